// Prefix sums over counts and flags, in three launches: totals of tiles, their sums, and offsets or row numbers.
//
// Grid:    sum_tiles, write_offsets, select_rows: ceil(row_count / TILE_ROWS) blocks; scan_totals: one.
// Ordering: offsets and row numbers keep the order of rows.
// Traffic: counts are read twice; offsets are written once.
// Source:  reduce-then-scan, Blelloch, "Prefix Sums and Their Applications", 1990, section 1.3.
#include "../abi/column_operations.h"
#include "../abi/launch.h"
#include "../common/block.cuh"

#define ROWS_PER_THREAD (TILE_ROWS / BLOCK_THREADS)
static_assert(ROWS_PER_THREAD % 8 == 0, "a thread's counts of one byte are whole words");
// Totals that a thread adds up at once.
#define TOTALS_PER_THREAD 4

// The first of the thread's rows.
DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * TILE_ROWS + threadIdx.x * ROWS_PER_THREAD; }

// The counts of the thread's rows, 0 beyond the last one; returns their sum. A flag of a row that failed has no
// meaning, and must still count as one row at most.
DEVICE uint64_t load_counts(const ScanCounts &args, uint32_t *counts) {
    const uint64_t first = first_row();
    uint64_t sum = 0;
    if (args.count_bytes == 1 && first + ROWS_PER_THREAD <= args.row_count && args.counts % 8 == 0) {
        const uint64_t *words = (const uint64_t *)(args.counts + first);
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            counts[item] = ((words[item / 8] >> (item % 8 * 8)) & 0xff) != 0;
        }
    } else {
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            const uint64_t row = first + item;
            counts[item] = row >= args.row_count   ? 0
                           : args.count_bytes == 1 ? ((const uint8_t *)args.counts)[row] != 0
                                                   : ((const uint32_t *)args.counts)[row];
        }
    }
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) sum += counts[item];
    return sum;
}

KERNEL(sum_tiles, ScanCounts, BLOCK_THREADS) {
    uint32_t counts[ROWS_PER_THREAD];
    uint64_t total;
    block_exclusive_sum(load_counts(args, counts), &total);
    if (threadIdx.x == 0) ((uint64_t *)args.tile_totals)[blockIdx.x] = total;
}

KERNEL(scan_totals, ScanTotals, BLOCK_THREADS) {
    uint64_t *totals = (uint64_t *)args.totals;
    uint64_t before = 0;
    for (uint64_t tile = 0; tile < args.count; tile += BLOCK_THREADS * TOTALS_PER_THREAD) {
        const uint64_t first = tile + threadIdx.x * TOTALS_PER_THREAD;
        uint64_t values[TOTALS_PER_THREAD];
        uint64_t sum = 0;
        for (uint32_t item = 0; item < TOTALS_PER_THREAD; item++) {
            values[item] = first + item < args.count ? totals[first + item] : 0;
            sum += values[item];
        }
        uint64_t total;
        uint64_t offset = before + block_exclusive_sum(sum, &total);
        for (uint32_t item = 0; item < TOTALS_PER_THREAD && first + item < args.count; item++) {
            totals[first + item] = offset;
            offset += values[item];
        }
        before += total;
    }
    if (threadIdx.x == 0) *(uint64_t *)args.total = before;
}

// The sum of the counts of all rows before the thread's.
DEVICE uint64_t counts_before(const ScanCounts &args, uint64_t sum) {
    uint64_t total;
    return ((const uint64_t *)args.tile_totals)[blockIdx.x] + block_exclusive_sum(sum, &total);
}

KERNEL(write_offsets, ScanCounts, BLOCK_THREADS) {
    uint32_t counts[ROWS_PER_THREAD];
    uint64_t offset = counts_before(args, load_counts(args, counts));
    uint64_t *target = (uint64_t *)args.target + first_row();
    for (uint32_t item = 0; item < ROWS_PER_THREAD && first_row() + item < args.row_count; item++) {
        target[item] = offset;
        offset += counts[item];
    }
}

KERNEL(select_rows, ScanCounts, BLOCK_THREADS) {
    uint32_t counts[ROWS_PER_THREAD];
    uint32_t *target = (uint32_t *)args.target + counts_before(args, load_counts(args, counts));
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        if (counts[item]) *target++ = (uint32_t)first_row() + item;
    }
}
