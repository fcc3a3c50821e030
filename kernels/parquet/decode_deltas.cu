// Decodes integers and lengths of strings that are stored as differences, and converts them into cells.
//
// Grid:    one block a listed slice of at most SLICE_ROWS rows of a page.
// Inputs:  the page, its DeltaIndex, and its levels' words.
// Outputs: the column's cells and validity of the slice's rows. String cells point into the page.
// Status:  ERROR_PAGE if differences or lengths are not possible or too few; those of convert_values.
// Traffic: the encoded values of the slice read and a cell written a row; 16 B of index read a segment.
// Source:  Parquet's Encodings.md, "Delta encoding". A warp decodes a segment of the page's index into shared memory, of
//          which rows then take their values, so that neither NULLs nor selected rows matter to a warp. Integers of a page
//          without NULLs, which are most of what there is, need no other warp: theirs turn into cells in registers, and
//          shared memory only brings those that lie side by side to threads that do, so that they are stored 16 B at once.
#include "../common/block.cuh"
#include "convert.cuh"
#include "deltas.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)
static_assert(DELTA_SEGMENT_VALUES == WARP_DELTAS, "a warp takes a segment at once");
static_assert(DELTA_SEGMENT_VALUES * WARPS == SLICE_ROWS, "a warp has one segment of a slice that starts with one");

// Values of a page that a slice needs, and where they are put.
struct ValueWindow {
    uint64_t *values;
    uint32_t first, end;

    METHOD void put(uint32_t place, uint64_t value) {
        if (place >= first && place < end) values[window_place(place - first)] = value;
    }
};

// The sum of the threads before this one of a warp, as a number that wraps around. Every thread of the warp calls it.
DEVICE uint32_t warp_sum_before(uint32_t sum) { return warp_inclusive_sum(sum) - sum; }
// Sums of which none is more than its share of 32 bits add up there, at half the cost.
DEVICE uint64_t warp_sum_before(uint64_t sum) {
    const uint64_t share = (1ull << 31) / WARP_THREADS;
    if (__ballot_sync(0xffffffffu, sum + share >= 2 * share)) return warp_inclusive_sum(sum) - sum;
    return (uint64_t)(int64_t)(int32_t)warp_sum_before((uint32_t)sum);
}

// Decodes the values from `first` on, THREAD_DELTAS a thread, as numbers of a type whose sums wrap around. A thread's
// values beyond the page's last have no meaning. Says false if they can't be read, to all threads of the warp: every one of
// them calls it.
template <class Number>
DEVICE bool decode_segment(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, ThreadDeltas &own, Number *values) {
    const uint32_t end = stream.count - first < DELTA_SEGMENT_VALUES ? stream.count : first + DELTA_SEGMENT_VALUES;
    uint32_t at = segment.block;
    const bool is_sound = find_deltas(stream, &at, first, end, &own);
    // A difference leads to the value after its own place.
    if (has_wide_deltas(own)) {
        unpack_all_deltas(stream, own, values);
        Number sum = 0;
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
            const Number difference = values[item];
            values[item] = sum;
            sum += difference;
        }
        const Number before = (Number)segment.value + warp_sum_before(sum);
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) values[item] += before;
        return is_sound;
    }
    uint32_t numbers[THREAD_DELTAS];
    unpack_narrow(stream, own, numbers);
    const Number minimum = (Number)own.minimum;
    Number sum = THREAD_DELTAS * minimum;
#pragma unroll
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) sum += numbers[item];
    values[0] = (Number)segment.value + warp_sum_before(sum);
#pragma unroll
    for (uint32_t item = 1; item < THREAD_DELTAS; item++) values[item] = values[item - 1] + minimum + numbers[item - 1];
    return is_sound;
}

// The place of the thread's first value of a segment.
DEVICE uint32_t own_place(uint32_t first) { return first + threadIdx.x % WARP_THREADS * THREAD_DELTAS; }

// Numbers of 32 bits are the lower half of what they are in 64.
DEVICE bool decode_integers(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, bool is_short, ValueWindow window) {
    uint64_t values[THREAD_DELTAS];
    ThreadDeltas own_deltas;
    const bool is_sound = decode_segment(stream, segment, first, own_deltas, values);
#pragma unroll
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        window.put(own_place(first) + item, is_short ? (uint64_t)(int64_t)(int32_t)values[item] : values[item]);
    }
    return is_sound;
}

// Strings lie one after another, the segment's first at `offset`.
DEVICE bool decode_lengths(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, uint32_t offset, ValueWindow window) {
    uint32_t lengths[THREAD_DELTAS];
    ThreadDeltas own;
    bool is_sound = decode_segment(stream, segment, first, own, lengths);
    uint32_t sum = 0;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        if (own_place(first) + item > stream.count) lengths[item] = 0;
        sum += lengths[item];
    }
    offset += warp_inclusive_sum(sum) - sum;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        // A negative length is longer than any page.
        if ((uint64_t)offset + lengths[item] > stream.end) is_sound = false;
        window.put(own_place(first) + item, (uint64_t)lengths[item] << 32 | offset);
        offset += lengths[item];
    }
    return is_sound;
}

DEVICE DeltaStream stream_of(const EncodedPage &page, const DeltaIndex &index) {
    return DeltaStream{page.values,      page.values_bytes,      index.value_count - 1,
                       index.miniblocks, index.miniblock_values, delta_width_max(page)};
}

DEVICE const DeltaSegment *segments_of(const EncodedPage &page) {
    return (const DeltaSegment *)(page.index + sizeof(DeltaIndex));
}

// Decodes the values of a window of a page. Every thread of the block calls it.
DEVICE bool decode_window(const EncodedPage &page, uint32_t value_count, ValueWindow window) {
    const DeltaIndex index = *(const DeltaIndex *)page.index;
    const DeltaSegment *segments = segments_of(page);
    if (window.first >= window.end) return true;
    if (!index.is_sound || index.value_count != value_count) return false;
    const DeltaStream stream = stream_of(page, index);
    bool is_sound = true;
    uint32_t segment = window.first / DELTA_SEGMENT_VALUES + threadIdx.x / WARP_THREADS;
    for (; segment * DELTA_SEGMENT_VALUES < window.end; segment += WARPS) {
        const DeltaSegment start = segments[segment];
        const uint32_t first = segment * DELTA_SEGMENT_VALUES;
        if (page.delta_form == DELTA_LENGTHS) {
            is_sound = decode_lengths(stream, start, first, index.end + start.place, window) && is_sound;
        } else {
            is_sound = decode_integers(stream, start, first, page.delta_form == DELTA_INT32, window) && is_sound;
        }
    }
    return is_sound;
}

// A slice with its values in `values`. Every thread of the block calls it.
DEVICE Slice decoded_slice(const SliceWork &work, uint64_t *values) {
    SHARED uint32_t failed;
    uint32_t first, end;
    if (threadIdx.x == 0) failed = 0;
    __syncthreads();
    {
        const PageSlice &place = work.slice;
        const uint32_t dense = work.state.dense, value_count = work.state.value_count;
        first = values_before(work.page, dense, value_count, place.first_row);
        end = values_before(work.page, dense, value_count, place.first_row + place.row_count);
        if (!decode_window(work.page, value_count, ValueWindow{values, first, end})) failed = 1;
    }
    __syncthreads();
    Slice slice = slice_of(work);
    slice.wide = ((const DeltaIndex *)slice.page.index)->wide;
    slice.window = values;
    slice.window_first = first;
    // Values of a page that can't be read are not looked at.
    slice.capacity = failed ? 0 : end;
    return slice;
}

// Cells that are stored at once.
template <class Cell>
struct alignas(16) CellGroup {
    Cell cells[16 / sizeof(Cell)];
};

// Writes the cells of a segment, of which a thread has THREAD_DELTAS one after another and those from `from` to `until` are
// wanted, to `target` on. `shared` is the warp's own. Every thread of a warp calls it.
template <class Cell>
DEVICE void store_segment(const Cell *own, uint64_t target, uint32_t from, uint32_t until, uint64_t *shared) {
    const uint32_t size = 16 / sizeof(Cell), count = THREAD_DELTAS / size;
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    CellGroup<Cell> *groups = (CellGroup<Cell> *)shared;
    // Groups change places within a thread's, so that no two of eight threads meet in a bank, here or below.
    const auto place_of = [](uint32_t group) { return group ^ (group / 8 % count); };
    // What the segment before left is read.
    __syncwarp();
#pragma unroll
    for (uint32_t number = 0; number < count; number++) {
        CellGroup<Cell> group;
        for (uint32_t item = 0; item < size; item++) group.cells[item] = own[number * size + item];
        groups[place_of(lane * count + number)] = group;
    }
    __syncwarp();
    if (from == 0 && until == DELTA_SEGMENT_VALUES && target % 16 == 0) {
        CellGroup<Cell> read[count];
#pragma unroll
        for (uint32_t number = 0; number < count; number++) read[number] = groups[place_of(number * WARP_THREADS + lane)];
#pragma unroll
        for (uint32_t number = 0; number < count; number++) ((CellGroup<Cell> *)target)[number * WARP_THREADS + lane] = read[number];
        return;
    }
    for (uint32_t place = lane; place < until; place += WARP_THREADS) {
        if (place >= from) ((Cell *)target)[place] = groups[place_of(place / size)].cells[place % size];
    }
}

// Says of the same rows that they are not NULL.
DEVICE void mark_segment(uint64_t target, uint32_t from, uint32_t until) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    static_assert(THREAD_DELTAS == sizeof(uint64_t), "a thread marks as many rows at once");
    if (from == 0 && until == DELTA_SEGMENT_VALUES && target % 8 == 0) {
        ((uint64_t *)target)[lane] = 0x0101010101010101ull;
        return;
    }
    for (uint32_t place = lane; place < until; place += WARP_THREADS) {
        if (place >= from) ((uint8_t *)target)[place] = 1;
    }
}

// What values of 64 bits may be.
struct LongRange {
    uint64_t least, span;

    METHOD explicit LongRange(const PageColumn &column) : least(column.least[0]), span(column.greatest[0] - least) {}
    METHOD bool has(uint64_t value) const { return value - least <= span; }
    METHOD static int64_t extended(uint64_t value) { return (int64_t)value; }
    // Whether a thread's values, of which this is the first, are so far from both ends that no difference can leave the
    // range. The thread then skips the check of the others.
    METHOD bool has_all(uint64_t value, const ThreadDeltas &own) const {
        // Minimum and rest have at most 33 bits together.
        const uint64_t margin = (uint64_t)THREAD_DELTAS << 33;
        const bool is_narrow = own.width <= NARROW_WIDTH_MAX && own.minimum + (1ull << 32) < 2ull << 32;
        return is_narrow && span >= 2 * margin && value - least - margin <= span - 2 * margin;
    }
};

// What values of 32 bits may be, some at least.
struct ShortRange {
    uint32_t least, span;

    METHOD explicit ShortRange(const PageColumn &column) {
        const int64_t first = (int64_t)column.least[0], last = (int64_t)column.greatest[0];
        least = (uint32_t)(first < INT32_MIN ? INT32_MIN : first);
        span = (uint32_t)(last > INT32_MAX ? INT32_MAX : last) - least;
    }
    METHOD bool has(uint32_t value) const { return value - least <= span; }
    METHOD static int64_t extended(uint32_t value) { return (int32_t)value; }
    METHOD bool has_all(uint32_t, const ThreadDeltas &) const { return false; }
};

// Whether a page's values are integers with nothing to be done before they are tested against a range of their own bits, and
// every row has one.
DEVICE bool has_plain_integers(const SliceWork &work) {
    const PageColumn &column = work.column;
    const uint32_t conversion = column.conversion, form = work.page.delta_form;
    const uint32_t cell_bytes = column.cell_bytes, shift = column.shift, flags = column.flags;
    const int64_t least = (int64_t)column.least[0], greatest = (int64_t)column.greatest[0];
    const bool is_integer = (conversion == CONVERT_BITS) | (conversion == CONVERT_INTEGER);
    const bool has_values = (least <= INT32_MAX) & (greatest >= INT32_MIN);
    const bool is_short = (form == DELTA_INT32) & (shift == 32) & has_values & ((cell_bytes == 4) | (cell_bytes == 8));
    const bool is_long = (form == DELTA_INT64) & (shift == 0) & (cell_bytes == 8);
    return is_integer & (is_short | is_long) & ((flags & (COLUMN_UNSIGNED | COLUMN_DICTIONARY)) == 0) & (work.state.dense != 0);
}

// Decodes and converts a segment of what has_plain_integers, the values from `first` on. What the column and the place have is
// read late, so that it takes no registers before. Every thread of a warp calls it.
template <class Number, class Signed, class Range, class Cell>
DEVICE void decode_plain_segment(const SliceWork &work, const DeltaStream &stream, const DeltaSegment &segment, uint32_t first,
                                 uint64_t *shared) {
    Number values[THREAD_DELTAS];
    ThreadDeltas own;
    if (!decode_segment(stream, segment, first, own, values)) {
        report_error(work.status, ERROR_PAGE, work.slice.page);
        return;
    }
    const PageColumn &column = work.column;
    const PageSlice &place = work.slice;
    const uint32_t first_row = place.first_row, end_row = first_row + place.row_count;
    int64_t factor = 1;
    uint32_t infinities = 0; // a bit a value, and one 8 bits above it for those below zero
    if (column.conversion != CONVERT_BITS) {
        const Range range(column);
        factor = (int64_t)column.factor[0];
        if (!range.has_all(values[0], own)) {
            bool is_outside = false;
#pragma unroll
            for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
                const uint32_t row = own_place(first) + item;
                int64_t infinity = 0;
                if (range.has(values[item])) continue;
                if (find_infinity(column, Range::extended(values[item]), &infinity)) {
                    infinities |= (infinity < 0 ? 0x101u : 1u) << item;
                } else {
                    is_outside = is_outside || (row >= first_row && row < end_row);
                }
                values[item] = 0;
            }
            if (is_outside) report_error(work.status, ERROR_VALUE_RANGE, place.page);
        }
    }
    Cell cells[THREAD_DELTAS];
#pragma unroll
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) cells[item] = (Cell)(Signed)values[item];
    if (factor != 1) {
#pragma unroll
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) cells[item] *= (Cell)factor;
    }
    if (infinities) {
        const Cell least = (Cell)1 << (8 * sizeof(Cell) - 1);
#pragma unroll
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
            if (infinities >> item & 1) cells[item] = infinities >> (item + 8) & 1 ? least : least - 1;
        }
    }
    const uint32_t from = first_row > first ? first_row - first : 0;
    const uint32_t until = end_row - first < DELTA_SEGMENT_VALUES ? end_row - first : DELTA_SEGMENT_VALUES;
    const uint64_t row = (uint64_t)place.target_row + first - first_row;
    store_segment(cells, column.values + row * sizeof(Cell), from, until, shared);
    if (column.validity) mark_segment(column.validity + row, from, until);
}

// Decodes and converts what has_plain_integers. Every thread of a block calls it.
DEVICE void decode_plain(const SliceWork &work, uint64_t *shared) {
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    const EncodedPage &page = work.page;
    const uint32_t end_row = work.slice.first_row + work.slice.row_count;
    const uint32_t last = (end_row - 1) / DELTA_SEGMENT_VALUES;
    for (uint32_t number = work.slice.first_row / DELTA_SEGMENT_VALUES + warp; number <= last; number += WARPS) {
        // A page's index has room for the segments of all its rows, so that both are on their way together.
        const DeltaSegment segment = segments_of(page)[number];
        const DeltaIndex index = *(const DeltaIndex *)page.index;
        const uint32_t value_count = work.state.value_count;
        const DeltaStream stream = stream_of(page, index);
        const bool has_rows = (index.value_count == value_count) & (end_row <= value_count);
        if (!((index.is_sound != 0) & has_rows & (stream.miniblocks != 0) & (stream.miniblock_values != 0) & (segment.block <= stream.end))) {
            report_error(work.status, ERROR_PAGE, work.slice.page);
            return;
        }
        const uint32_t first = number * DELTA_SEGMENT_VALUES, cell_bytes = work.column.cell_bytes;
        uint64_t *own = shared + warp * DELTA_SEGMENT_VALUES;
        if (page.delta_form == DELTA_INT32 && cell_bytes == 4) {
            decode_plain_segment<uint32_t, int32_t, ShortRange, uint32_t>(work, stream, segment, first, own);
        } else if (page.delta_form == DELTA_INT32) {
            decode_plain_segment<uint32_t, int32_t, ShortRange, uint64_t>(work, stream, segment, first, own);
        } else {
            decode_plain_segment<uint64_t, int64_t, LongRange, uint64_t>(work, stream, segment, first, own);
        }
    }
}

KERNEL_RESIDENT(decode_deltas, DecodePages, BLOCK_THREADS, 4) {
    SHARED CellGroup<uint64_t> groups[WINDOW_WORDS / 2];
    uint64_t *values = groups[0].cells;
    SHARED SliceWork work;
    take_slice(args, work);
    if (has_plain_integers(work)) {
        decode_plain(work, values);
        return;
    }
    const PageSlice place = work.slice;
    const Slice slice = decoded_slice(work, values);
    const uint32_t conversion = slice.column.conversion;
    if (conversion == CONVERT_BITS || conversion == CONVERT_INTEGER || conversion == CONVERT_NANOSECONDS) {
        convert_rows<ConvertInteger>(slice, place);
    } else if (conversion == CONVERT_WIDE_INTEGER) {
        convert_rows<ConvertWideInteger>(slice, place);
    } else if (conversion == CONVERT_DECIMAL) {
        convert_rows<ConvertDecimal>(slice, place);
    } else {
        convert_rows<ConvertString>(slice, place);
    }
}

// decode_deltas for columns whose cells have 256 bits, which take more registers.
KERNEL_RESIDENT(decode_large_deltas, DecodePages, BLOCK_THREADS, 4) {
    SHARED uint64_t values[WINDOW_WORDS];
    SHARED SliceWork work;
    take_slice(args, work);
    const PageSlice place = work.slice;
    const Slice slice = decoded_slice(work, values);
    if (slice.column.conversion == CONVERT_WIDE_INTEGER) {
        convert_rows<ConvertLargeInteger>(slice, place);
    } else {
        convert_rows<ConvertLargeDecimal>(slice, place);
    }
}
