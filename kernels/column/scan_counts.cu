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

DEVICE uint32_t count_at(const ScanCounts &args, uint64_t row) {
    if (row >= args.row_count) return 0;
    return args.count_bytes == 1 ? ((const uint8_t *)args.counts)[row] : ((const uint32_t *)args.counts)[row];
}

KERNEL(sum_tiles, ScanCounts, BLOCK_THREADS) {
    const uint64_t first = (uint64_t)blockIdx.x * TILE_ROWS;
    uint64_t sum = 0;
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        sum += count_at(args, first + item * BLOCK_THREADS + threadIdx.x);
    }
    uint64_t total;
    block_exclusive_sum(sum, &total);
    if (threadIdx.x == 0) ((uint64_t *)args.tile_totals)[blockIdx.x] = total;
}

KERNEL(scan_totals, ScanTotals, BLOCK_THREADS) {
    uint64_t *totals = (uint64_t *)args.totals;
    uint64_t before = 0;
    for (uint64_t first = 0; first < args.count; first += BLOCK_THREADS) {
        uint64_t place = first + threadIdx.x;
        uint64_t value = place < args.count ? totals[place] : 0;
        uint64_t total;
        uint64_t offset = block_exclusive_sum(value, &total);
        if (place < args.count) totals[place] = before + offset;
        before += total;
    }
    if (threadIdx.x == 0) *(uint64_t *)args.total = before;
}

KERNEL(write_offsets, ScanCounts, BLOCK_THREADS) {
    uint64_t *target = (uint64_t *)args.target;
    uint64_t before = ((const uint64_t *)args.tile_totals)[blockIdx.x];
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        uint64_t first = (uint64_t)blockIdx.x * TILE_ROWS + item * BLOCK_THREADS;
        if (first >= args.row_count) break;
        uint64_t row = first + threadIdx.x;
        uint64_t total;
        uint64_t offset = block_exclusive_sum(count_at(args, row), &total);
        if (row < args.row_count) target[row] = before + offset;
        before += total;
    }
}

KERNEL(select_rows, ScanCounts, BLOCK_THREADS) {
    uint32_t *target = (uint32_t *)args.target;
    uint64_t before = ((const uint64_t *)args.tile_totals)[blockIdx.x];
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        uint64_t first = (uint64_t)blockIdx.x * TILE_ROWS + item * BLOCK_THREADS;
        if (first >= args.row_count) break;
        uint64_t row = first + threadIdx.x;
        uint32_t count = count_at(args, row);
        uint64_t total;
        uint64_t offset = block_exclusive_sum(count, &total);
        if (count) target[before + offset] = (uint32_t)row;
        before += total;
    }
}
