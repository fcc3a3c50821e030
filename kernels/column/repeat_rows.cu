// Rows repeated by numbers of their own: how often each comes, and which row and number each repeat is of.
//
// Grid:    any number of blocks; threads stride over the rows, or over the repeats.
// Inputs:  count_repeats: the number of every row. repeat_rows: the sums of the counts before each row, in ascending order.
// Outputs: a count a row; a row number and a number from 1 on a repeat, in the order of rows.
// Traffic: count_repeats reads a cell and writes 4 B a row. repeat_rows writes 12 B a repeat; the offsets that neighbours search are in
//          the caches.
// Source:  the search of an expansion by sorted counts, Baxter, "Modern GPU: Load-Balancing Search", 2013. We differ: each thread
//          searches all offsets, because repeats are few beside the work of gathering them.
#include "../abi/column_operations.h"
#include "../common/cell.cuh"

DEVICE uint64_t first_item() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t item_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

// How many numbers a row has.
DEVICE uint64_t numbers_of(const ColumnView &lasts, uint64_t row) {
    if (cell_is_null(lasts, row)) return 0;
    const int64_t last = cell_at<int64_t>(lasts, row);
    return last > 0 ? (uint64_t)last : 0;
}

KERNEL(count_repeats, CountRepeats, BLOCK_THREADS) {
    bool has_more = false;
    for (uint64_t row = first_item(); row < args.row_count; row += item_step()) {
        const uint64_t all = numbers_of(args.lasts, row);
        const uint64_t left = all > args.before ? all - args.before : 0;
        uint32_t count = (uint32_t)(left < REPEATED_ROUND ? left : REPEATED_ROUND);
        if (all == 0 && args.before == 0 && args.keeps_rows) count = 1;
        has_more = has_more || left > REPEATED_ROUND;
        ((uint32_t *)args.counts)[row] = count;
    }
    if (has_more) *(volatile uint32_t *)args.more = 1;
}

KERNEL(repeat_rows, RepeatRows, BLOCK_THREADS) {
    const uint64_t *offsets = (const uint64_t *)args.offsets;
    for (uint64_t item = first_item(); item < args.count; item += item_step()) {
        const uint64_t repeat = args.first + item;
        // The last row with no more repeats before it than this one: those without repeats come before it.
        uint64_t row = 0, end = args.row_count;
        while (end - row > 1) {
            const uint64_t middle = row + (end - row) / 2;
            if (offsets[middle] <= repeat) row = middle;
            else end = middle;
        }
        ((uint32_t *)args.rows)[item] = (uint32_t)row;
        ((int64_t *)args.numbers)[item] = (int64_t)(args.before + repeat - offsets[row] + 1);
        if (args.validity) ((uint8_t *)args.validity)[item] = numbers_of(args.lasts, row) > 0;
    }
}
