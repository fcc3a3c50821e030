// The rows of frames with the least or greatest value; of equal values, such as 0 and -0, the last row's, as PostgreSQL has it.
//
// Grid:    best_tiles, write_best: ceil(count / TILE_ROWS) blocks; the others: any number, threads stride over pairs and rows.
// Inputs:  rows in order of partition and keys. NULLs are left out.
// Traffic: a scan compares every row about twice; a frame that may begin anywhere reads up to two rows of each size of the tree, whose
//          cells are at random places.
// Source:  scan.cuh; segment tree, Leis et al., VLDB 2015, section 4.4. We differ: nodes are row numbers, so that one kernel has values
//          of any type.
#include "../common/cell.cuh"
#include "frame.cuh"
#include "scan.cuh"

// The better of two rows, of which either may be NO_ROW.
DEVICE uint32_t better_row(const ColumnView &column, bool wants_greatest, uint32_t one, uint32_t other) {
    if (one == NO_ROW || other == NO_ROW) return one == NO_ROW ? other : one;
    const int order = compare_cells(column, one, column, other);
    if (order == 0) return greatest(one, other);
    return (order > 0) == wants_greatest ? one : other;
}

DEVICE uint32_t filled_row(const ColumnView &column, uint64_t row) {
    return cell_is_null(column, row) ? NO_ROW : (uint32_t)row;
}

// The best row of a partition so far.
struct RunningBest {
    typedef uint64_t Value;
    const ScanBest &args;

    METHOD Value none() const { return NO_ROW; }
    METHOD Value at(uint64_t place) const {
        if (args.states) return ((const uint64_t *)args.states)[place];
        const bool begins = args.starts && ((const uint8_t *)args.starts)[place];
        return (begins ? BEST_STARTED : 0) | filled_row(args.column, place);
    }
    METHOD Value join(Value before, Value own) const {
        if (own & BEST_STARTED) return own;
        return (before & BEST_STARTED) | better_row(args.column, args.greatest, (uint32_t)before, (uint32_t)own);
    }
};

KERNEL(best_tiles, ScanBest, BLOCK_THREADS) {
    const RunningBest scan{args};
    uint64_t total;
    join_threads(scan, join_rows(scan, args.count), &total);
    if (threadIdx.x == 0) ((uint64_t *)args.tile_states)[blockIdx.x] = total;
}

KERNEL(write_best, ScanBest, BLOCK_THREADS) {
    const RunningBest scan{args};
    uint64_t total, best = join_threads(scan, join_rows(scan, args.count), &total);
    if (args.states_above && blockIdx.x) best = scan.join(((const uint64_t *)args.states_above)[blockIdx.x - 1], best);
    const uint64_t first = scanned_row();
    for (uint32_t item = 0; item < SCAN_THREAD_ROWS && first + item < args.count; item++) {
        const uint64_t place = first + item;
        best = scan.join(best, scan.at(place));
        if (args.states) {
            ((uint64_t *)args.target)[place] = best;
        } else {
            ((uint32_t *)args.target)[place] = (uint32_t)best;
        }
    }
}

KERNEL(pair_best, PairBest, BLOCK_THREADS) {
    const uint32_t *source = (const uint32_t *)args.source;
    for (uint64_t place = first_row(); 2 * place < args.count; place += row_step()) {
        uint32_t pair[2] = {NO_ROW, NO_ROW};
        for (uint32_t item = 0; item < 2 && 2 * place + item < args.count; item++) {
            const uint64_t below = 2 * place + item;
            pair[item] = source ? source[below] : filled_row(args.column, below);
        }
        ((uint32_t *)args.target)[place] = better_row(args.column, args.greatest, pair[0], pair[1]);
    }
}

// The best row of a span: at most two nodes of each size.
DEVICE uint32_t best_of_span(const FindBest &args, Span span) {
    uint32_t best = NO_ROW;
    const uint32_t *nodes = nullptr; // rows themselves
    uint64_t count = args.frames.row_count;
    while (span.first < span.end) {
        for (uint32_t side = 0; side < 2; side++) {
            uint32_t node;
            if (side == 0) {
                if (span.first % 2 == 0) continue;
                node = span.first++;
            } else {
                if (span.end % 2 == 0 || span.first >= span.end) continue;
                node = --span.end;
            }
            best = better_row(args.column, args.greatest, best, nodes ? nodes[node] : filled_row(args.column, node));
        }
        nodes = nodes ? nodes + count : (const uint32_t *)args.tree;
        count = (count + 1) / 2;
        span = Span{span.first / 2, span.end / 2};
    }
    return best;
}

KERNEL(find_best, FindBest, BLOCK_THREADS) {
    const uint32_t *running = (const uint32_t *)args.running;
    for (uint64_t row = first_row(); row < args.frames.row_count; row += row_step()) {
        const FrameParts frame = parts_of_frame(args.frames, row);
        uint32_t best = NO_ROW;
        if (running) {
            if (!frame.is_empty()) best = running[frame.parts[0].end - 1];
        } else {
            for (uint32_t place = 0; place < FRAME_PARTS; place++) {
                best = better_row(args.column, args.greatest, best, best_of_span(args, frame.parts[place]));
            }
        }
        ((uint32_t *)args.rows)[row] = best;
    }
}
