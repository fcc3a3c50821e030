// Sums of addends of which 128 bits do not hold enough: as in aggregate_groups.cu, in LARGE_SUM_WORDS words.
//
// Grid:    any number of blocks; threads stride over the rows.
// Inputs:  cells of 128 or 256 bits.
// Status:  finish_large_sums: overflow_code for a sum that does not fit its cell. The words themselves never wrap: no
//          device holds the 2^64 rows that it takes.
// Traffic: a group and a cell a row, and an atomic addition for every word that an addend changes, unless there are at
//          most LARGE_PRIVATE_GROUPS_MAX groups.
#include "../abi/aggregate.h"
#include "../common/launch.h"
#include "../common/cell.cuh"
#include "../common/report_error.cuh"

struct LargeSum {
    uint64_t words[LARGE_SUM_WORDS];
};

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

DEVICE LargeSum addend_at(const ColumnView &column, uint64_t row) {
    const int256 value =
        column.cell_type == CELL_INT256 ? cell_at<int256>(column, row) : int256_of(cell_at<int128>(column, row));
    const uint128 high = (uint128)value.high;
    return LargeSum{{(uint64_t)value.low, (uint64_t)(value.low >> 64), (uint64_t)high, (uint64_t)(high >> 64),
                     value.high < 0 ? ~0ull : 0ull}};
}

// Adds to a sum that other threads add to. The thread whose addition wraps a word carries into the next word.
DEVICE void add_shared(uint64_t sums, uint32_t group, const LargeSum &addend) {
    unsigned long long *words = (unsigned long long *)sums + LARGE_SUM_WORDS * (uint64_t)group;
    uint64_t carry = 0;
    for (uint32_t word = 0; word < LARGE_SUM_WORDS; word++) {
        const uint64_t part = addend.words[word] + carry;
        carry = part < carry;
        if (part == 0) continue;
        const uint64_t before = atomicAdd(&words[word], (unsigned long long)part);
        carry += before + part < before;
    }
}

DEVICE bool has_input(const AccumulateGroups &args, uint64_t row) { return !cell_is_null(args.input, row); }

KERNEL(accumulate_large_sums, AccumulateGroups, BLOCK_THREADS) {
    const uint32_t *groups = (const uint32_t *)args.groups;
    unsigned long long *counts = (unsigned long long *)args.counts;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (!has_input(args, row)) continue;
        const uint32_t group = groups ? groups[row] : 0;
        atomicAdd(&counts[group], 1ull);
        add_shared(args.sums, group, addend_at(args.input, row));
    }
}

// Words of a thread's sums of a block, the threads' next to each other.
typedef uint64_t PrivateSums[LARGE_PRIVATE_GROUPS_MAX][LARGE_SUM_WORDS][BLOCK_THREADS];

DEVICE void add_private(PrivateSums &sums, uint32_t group, uint32_t thread, const LargeSum &addend) {
    uint64_t carry = 0;
    for (uint32_t word = 0; word < LARGE_SUM_WORDS; word++) {
        const uint64_t part = addend.words[word] + carry;
        carry = part < carry;
        const uint64_t sum = sums[group][word][thread] + part;
        carry += sum < part;
        sums[group][word][thread] = sum;
    }
}

DEVICE LargeSum private_sum(const PrivateSums &sums, uint32_t group, uint32_t thread) {
    LargeSum sum;
    for (uint32_t word = 0; word < LARGE_SUM_WORDS; word++) sum.words[word] = sums[group][word][thread];
    return sum;
}

// The same for at most LARGE_PRIVATE_GROUPS_MAX groups.
KERNEL(accumulate_few_large_sums, AccumulateGroups, BLOCK_THREADS) {
    SHARED PrivateSums sums;
    SHARED uint32_t row_counts[LARGE_PRIVATE_GROUPS_MAX][BLOCK_THREADS];
    const uint32_t thread = threadIdx.x;
    for (uint32_t group = 0; group < args.group_count; group++) {
        for (uint32_t word = 0; word < LARGE_SUM_WORDS; word++) sums[group][word][thread] = 0;
        row_counts[group][thread] = 0;
    }
    const uint32_t *groups = (const uint32_t *)args.groups;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (!has_input(args, row)) continue;
        const uint32_t group = groups ? groups[row] : 0;
        row_counts[group][thread]++;
        add_private(sums, group, thread, addend_at(args.input, row));
    }
    for (uint32_t width = BLOCK_THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (thread >= width) continue;
        for (uint32_t group = 0; group < args.group_count; group++) {
            add_private(sums, group, thread, private_sum(sums, group, thread + width));
            row_counts[group][thread] += row_counts[group][thread + width];
        }
    }
    __syncthreads();
    if (thread < args.group_count && row_counts[thread][0]) {
        atomicAdd((unsigned long long *)args.counts + thread, (unsigned long long)row_counts[thread][0]);
        add_shared(args.sums, thread, private_sum(sums, thread, 0));
    }
}

KERNEL(finish_large_sums, FinishSums, BLOCK_THREADS) {
    for (uint64_t group = first_row(); group < args.group_count; group += row_step()) {
        const bool valid = ((const uint64_t *)args.counts)[group] != 0;
        ((uint8_t *)args.validity)[group] = valid;
        const uint64_t *words = (const uint64_t *)args.sums + LARGE_SUM_WORDS * group;
        uint64_t *cell = (uint64_t *)(args.values + args.cell_bytes * group);
        const uint32_t cell_words = args.cell_bytes / 8;
        // The words beyond the cell must repeat its sign.
        const uint64_t sign = (uint64_t)((int64_t)words[cell_words - 1] >> 63);
        bool fits = true;
        for (uint32_t word = 0; word < LARGE_SUM_WORDS; word++) {
            if (word < cell_words) {
                cell[word] = words[word];
            } else {
                fits = fits && words[word] == sign;
            }
        }
        if (valid && !fits) report_error(args.status, args.overflow_code, args.overflow_detail);
    }
}
