// Grouping and aggregates: rows find their group in a hash table of row numbers, and are then added to it.
//
// Grid:    any number of blocks; threads stride over the rows.
// Ordering: groups are numbered in the order of the rows that stand for them. Which row stands for a group has no order.
// Traffic: assign_groups reads a hash, a slot and the keys of two rows; accumulate_groups reads a group and a cell a row,
//          and adds with atomics unless there are at most PRIVATE_GROUPS_MAX groups.
// Source:  block-private partial sums for few groups as in libcudf's groupby; 128-bit sums as two words with a carry.
#include "../abi/aggregate.h"
#include "../abi/launch.h"
#include "../abi/status.h"
#include "../common/keys.cuh"
#include "sums.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

KERNEL(assign_groups, AssignGroups, BLOCK_THREADS) {
    uint32_t *slots = (uint32_t *)args.slots;
    const uint64_t *hashes = (const uint64_t *)args.hashes;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t hash = hashes[row];
        uint64_t slot = hash & (args.slot_count - 1);
        uint32_t leader = NO_ROW;
        for (uint64_t step = 0; step < args.slot_count; step++) {
            uint32_t known = *(volatile uint32_t *)&slots[slot];
            if (known == NO_ROW) {
                known = atomicCAS(&slots[slot], NO_ROW, (uint32_t)row);
                if (known == NO_ROW) {
                    leader = (uint32_t)row;
                    break;
                }
            }
            if (hashes[known] == hash && keys_same(args.keys, known, args.keys, row)) {
                leader = known;
                break;
            }
            slot = (slot + 1) & (args.slot_count - 1);
        }
        if (leader == NO_ROW) report_error(args.status, ERROR_PROBE_LIMIT);
        ((uint32_t *)args.leaders)[row] = leader;
        ((uint8_t *)args.leader_flags)[row] = leader == (uint32_t)row;
    }
}

KERNEL(number_groups, AssignGroups, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint32_t leader = ((const uint32_t *)args.leaders)[row];
        ((uint32_t *)args.groups)[row] = (uint32_t)((const uint64_t *)args.offsets)[leader];
    }
}

// Whether `row` must replace `known` as the row that holds a group's least or greatest value.
DEVICE bool is_better(const AccumulateGroups &args, uint64_t row, uint32_t known) {
    if (known == NO_ROW) return true;
    if (args.kind == ACCUMULATE_ANY) return false;
    int order = compare_cells(args.input, row, args.input, known);
    return args.kind == ACCUMULATE_MIN ? order < 0 : order > 0;
}

DEVICE void offer_row(const AccumulateGroups &args, uint32_t group, uint64_t row) {
    uint32_t *best = (uint32_t *)args.rows + group;
    uint32_t known = *(volatile uint32_t *)best;
    while (is_better(args, row, known)) {
        uint32_t seen = atomicCAS(best, known, (uint32_t)row);
        if (seen == known) return;
        known = seen;
    }
}

DEVICE bool has_input(const AccumulateGroups &args, uint64_t row) {
    return args.input.values == 0 || !cell_is_null(args.input, row);
}

KERNEL(accumulate_groups, AccumulateGroups, BLOCK_THREADS) {
    const uint32_t *groups = (const uint32_t *)args.groups;
    unsigned long long *counts = (unsigned long long *)args.counts;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (!has_input(args, row)) continue;
        uint32_t group = groups ? groups[row] : 0;
        if (args.kind >= ACCUMULATE_MIN) {
            offer_row(args, group, row);
            continue;
        }
        atomicAdd(&counts[group], 1ull);
        if (args.kind == ACCUMULATE_SUM) {
            uint128 value = (uint128)integer_at(args.input, row);
            add_sum(args.sums, group, (uint64_t)value, (uint64_t)(value >> 64));
        }
    }
}

// The same for counts and sums of at most PRIVATE_GROUPS_MAX groups.
KERNEL(accumulate_few_groups, AccumulateGroups, BLOCK_THREADS) {
    SHARED uint64_t low_words[PRIVATE_GROUPS_MAX][BLOCK_THREADS];
    SHARED uint64_t high_words[PRIVATE_GROUPS_MAX][BLOCK_THREADS];
    SHARED uint32_t row_counts[PRIVATE_GROUPS_MAX][BLOCK_THREADS];
    const uint32_t thread = threadIdx.x;
    for (uint32_t group = 0; group < args.group_count; group++) {
        low_words[group][thread] = 0;
        high_words[group][thread] = 0;
        row_counts[group][thread] = 0;
    }
    const uint32_t *groups = (const uint32_t *)args.groups;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (!has_input(args, row)) continue;
        uint32_t group = groups ? groups[row] : 0;
        row_counts[group][thread]++;
        if (args.kind == ACCUMULATE_SUM) {
            uint128 value = (uint128)integer_at(args.input, row);
            uint64_t low = low_words[group][thread] + (uint64_t)value;
            high_words[group][thread] += (uint64_t)(value >> 64) + (low < (uint64_t)value);
            low_words[group][thread] = low;
        }
    }
    for (uint32_t width = BLOCK_THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (thread >= width) continue;
        for (uint32_t group = 0; group < args.group_count; group++) {
            uint64_t other = low_words[group][thread + width];
            uint64_t low = low_words[group][thread] + other;
            high_words[group][thread] += high_words[group][thread + width] + (low < other);
            low_words[group][thread] = low;
            row_counts[group][thread] += row_counts[group][thread + width];
        }
    }
    __syncthreads();
    if (thread < args.group_count && row_counts[thread][0]) {
        atomicAdd((unsigned long long *)args.counts + thread, (unsigned long long)row_counts[thread][0]);
        if (args.kind == ACCUMULATE_SUM) add_sum(args.sums, thread, low_words[thread][0], high_words[thread][0]);
    }
}

KERNEL(finish_sums, FinishSums, BLOCK_THREADS) {
    for (uint64_t group = first_row(); group < args.group_count; group += row_step()) {
        bool valid = ((const uint64_t *)args.counts)[group] != 0;
        ((uint8_t *)args.validity)[group] = valid;
        uint64_t low = ((const uint64_t *)args.sums)[2 * group];
        uint64_t high = ((const uint64_t *)args.sums)[2 * group + 1];
        if (args.cell_bytes > 8) {
            const int128 sum = (int128)(((uint128)high << 64) | low);
            if (args.cell_bytes == 16) {
                ((int128 *)args.values)[group] = sum;
            } else {
                ((int256 *)args.values)[group] = int256_of(sum);
            }
            continue;
        }
        ((uint64_t *)args.values)[group] = low;
        const bool fits = high == (uint64_t)((int64_t)low >> 63);
        if (valid && !fits) report_error(args.status, args.overflow_code, args.overflow_detail);
    }
}
