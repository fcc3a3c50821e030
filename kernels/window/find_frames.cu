// Where partitions and peer groups begin, and which rows the frame of each row has.
//
// Grid:    any number of blocks; threads stride over the rows, which are in order of partition and keys.
// Outputs: a flag a row; the first row of each frame, and the one behind its last.
// Traffic: mark_runs reads the keys of a row and of the one before; find_frames the runs of a row, and for a limit of values the
//          keys that a binary search meets, which neighbours share.
// Source:  frames as two row numbers, Leis et al., "Efficient Processing of Window Functions in Analytical SQL Queries", VLDB 2015,
//          section 4.1. We differ: a thread a row, so that few large partitions and many small ones take the same time.
#include "../common/keys.cuh"
#include "frame.cuh"

KERNEL(mark_runs, MarkRuns, BLOCK_THREADS) {
    const uint8_t *outer = (const uint8_t *)args.outer;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        const bool begins = row == 0 || (outer && outer[row]) || !keys_same(args.keys, row - 1, args.keys, row);
        ((uint8_t *)args.flags)[row] = begins;
    }
}

// A row, its partition and its peer group.
struct RowPlace {
    uint32_t row;
    Span partition;
    uint32_t group;
    Span own;
    Span groups; // of the partition
};

DEVICE RowPlace place_of(const FindFrames &args, uint64_t row) {
    RowPlace place;
    place.row = (uint32_t)row;
    place.partition = span_of_run(args.partitions, run_of(args.partitions, row), args.row_count);
    place.group = run_of(args.peers, row);
    place.own = span_of_run(args.peers, place.group, args.row_count);
    place.groups = Span{0, 1};
    if (args.unit == UNIT_GROUPS) {
        place.groups = Span{run_of(args.peers, place.partition.first), run_of(args.peers, place.partition.end - 1) + 1};
    }
    return place;
}

// The first row of a span for which the test fails, which passes for those before.
template <class Test>
DEVICE uint32_t partition_point(Span span, const Test &passes) {
    while (span.first < span.end) {
        const uint32_t middle = span.first + span.count() / 2;
        if (passes(middle)) {
            span.first = middle + 1;
        } else {
            span.end = middle;
        }
    }
    return span.first;
}

// The rows of a partition whose key is not NULL.
DEVICE Span filled_rows(const ColumnView &key, const Span &partition) {
    if (cell_is_null(key, partition.first)) {
        return Span{partition_point(partition, [&](uint32_t row) { return cell_is_null(key, row); }), partition.end};
    }
    if (cell_is_null(key, partition.end - 1)) {
        return Span{partition.first, partition_point(partition, [&](uint32_t row) { return !cell_is_null(key, row); })};
    }
    return partition;
}

// Whether the key of another row comes before the limit of a row, or with `or_equal` not behind it.
DEVICE bool is_before(const FindFrames &args, const ColumnView &limit, uint32_t other, uint32_t row, bool or_equal) {
    if (cell_is_null(limit, row)) return true;
    const int order = compare_cells(args.key, other, limit, row);
    return order == 0 ? or_equal : (order < 0) != (args.descending != 0);
}

// The first row that is not before the limit, or with `is_end` the first that is behind it.
DEVICE uint32_t row_at_limit(const FindFrames &args, const ColumnView &limit, const RowPlace &place, bool is_end) {
    if (cell_is_null(args.key, place.row)) return is_end ? place.own.end : place.own.first;
    return partition_point(filled_rows(args.key, place.partition),
                           [&](uint32_t other) { return is_before(args, limit, other, place.row, is_end); });
}

// The first row of a row's frame.
DEVICE uint32_t start_of(const FindFrames &args, const RowPlace &place) {
    const uint32_t count = args.start.count;
    const Span &partition = place.partition;
    const bool counts_rows = args.unit == UNIT_ROWS;
    switch (args.start.bound) {
        case BOUND_UNBOUNDED: return partition.first;
        case BOUND_CURRENT: return counts_rows ? place.row : place.own.first;
        case BOUND_PRECEDING: {
            if (counts_rows) return place.row - least(count, place.row - partition.first);
            const uint32_t group = place.group - least(count, place.group - place.groups.first);
            return span_of_run(args.peers, group, args.row_count).first;
        }
        case BOUND_FOLLOWING:
            if (counts_rows) return place.row + least(count, partition.end - place.row);
            if (count >= place.groups.end - place.group) return partition.end;
            return span_of_run(args.peers, place.group + count, args.row_count).first;
        default: return row_at_limit(args, args.start.limit, place, false);
    }
}

// The row behind the last one of a row's frame.
DEVICE uint32_t end_of(const FindFrames &args, const RowPlace &place) {
    const uint32_t count = args.end.count;
    const Span &partition = place.partition;
    const bool counts_rows = args.unit == UNIT_ROWS;
    switch (args.end.bound) {
        case BOUND_UNBOUNDED: return partition.end;
        case BOUND_CURRENT: return counts_rows ? place.row + 1 : place.own.end;
        case BOUND_PRECEDING:
            if (counts_rows) return place.row + 1 - least(count, place.row + 1 - partition.first);
            if (count > place.group - place.groups.first) return partition.first;
            return span_of_run(args.peers, place.group - count, args.row_count).end;
        case BOUND_FOLLOWING:
            if (counts_rows) return place.row + 1 + least(count, partition.end - place.row - 1);
            if (count >= place.groups.end - place.group) return partition.end;
            return span_of_run(args.peers, place.group + count, args.row_count).end;
        default: return row_at_limit(args, args.end.limit, place, true);
    }
}

KERNEL(find_frames, FindFrames, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        const RowPlace place = place_of(args, row);
        const uint32_t start = start_of(args, place);
        ((uint32_t *)args.starts)[row] = start;
        ((uint32_t *)args.ends)[row] = greatest(start, end_of(args, place));
    }
}
