// The partition of every row, as the word by which a sort of one digit then gathers partitions.
//
// Grid:    any number of blocks; threads stride over the rows.
// Ordering: none here; scatter_digits keeps the order of rows within a partition.
// Traffic: 8 B of hash read, or the keys of a row and of log2(splitters) splitters; 12 B written a row.
// Source:  partitions by multiplication instead of division, Lemire, "Fast Random Integer Generation in an Interval",
//          TOMACS 2019; ranges between sampled splitters with equal rows apart, Frazer, McKellar, "Samplesort", JACM 1970.
#include "../abi/exchange.h"
#include "../common/launch.h"
#include "../common/cell.cuh"
#include "partition.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

KERNEL(assign_hash_partitions, AssignHashPartitions, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t hash = ((const uint64_t *)args.hashes)[row];
        ((uint64_t *)args.words)[row] = partition_of_hash(hash, row, args.level, args.partition_count);
        ((uint32_t *)args.rows)[row] = (uint32_t)row;
    }
}

// The order of a row and a splitter.
DEVICE int compare_with_splitter(const AssignRangePartitions &args, uint64_t row, uint64_t splitter) {
    for (uint32_t key = 0; key < args.keys.count; key++) {
        const ColumnView &a = args.keys.columns[key];
        const ColumnView &b = args.splitters.columns[key];
        bool a_null = cell_is_null(a, row), b_null = cell_is_null(b, splitter);
        if (a_null && b_null) continue;
        if (a_null || b_null) return a_null == ((args.nulls_first >> key & 1) != 0) ? -1 : 1;
        int order = compare_cells(a, row, b, splitter);
        if (order != 0) return args.descending >> key & 1 ? -order : order;
    }
    return 0;
}

KERNEL(assign_range_partitions, AssignRangePartitions, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        // The first splitter that does not come before the row.
        uint32_t first = 0, last = args.splitter_count;
        bool is_equal = false;
        while (first < last) {
            uint32_t middle = (first + last) / 2;
            int order = compare_with_splitter(args, row, middle);
            if (order > 0) {
                first = middle + 1;
            } else {
                last = middle;
                if (order == 0) is_equal = true;
            }
        }
        ((uint64_t *)args.words)[row] = 2 * (uint64_t)first + (is_equal ? 1 : 0);
        ((uint32_t *)args.rows)[row] = (uint32_t)row;
    }
}
