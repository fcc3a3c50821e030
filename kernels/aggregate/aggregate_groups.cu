// Grouping, and the rows that hold a group's least, greatest or any value. Rows find their group in a hash table of row numbers.
//
// Grid:    any number of blocks; threads stride over the rows.
// Ordering: groups are numbered in the order of the rows that stand for them. Which row stands for a group has no order.
// Traffic: assign_groups reads a hash, a slot and the keys of two rows; accumulate_groups reads a group and a cell a row, and
//          the cell of the row that it is compared with. accumulate_few_groups, for at most FEW_GROUPS_MAX groups, has that row in
//          shared memory: threads that offer rows of the same few groups to one place of the device's memory wait for one another.
#include "../abi/aggregate.h"
#include "../common/launch.h"
#include "../common/keys.cuh"
#include "../common/report_error.cuh"

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

// Offers a row to where the best row of its group is, which other threads offer theirs to.
DEVICE void offer_row(const AccumulateGroups &args, uint32_t *best, uint64_t row) {
    uint32_t known = *(volatile uint32_t *)best;
    while (is_better(args, row, known)) {
        uint32_t seen = atomicCAS(best, known, (uint32_t)row);
        if (seen == known) return;
        known = seen;
    }
}

KERNEL(accumulate_groups, AccumulateGroups, BLOCK_THREADS) {
    const uint32_t *groups = (const uint32_t *)args.groups;
    uint32_t *best = (uint32_t *)args.rows;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (!cell_is_null(args.input, row)) offer_row(args, &best[groups ? groups[row] : 0], row);
    }
}

KERNEL(accumulate_few_groups, AccumulateGroups, BLOCK_THREADS) {
    SHARED uint32_t best[FEW_GROUPS_MAX];
    const uint32_t *groups = (const uint32_t *)args.groups;
    for (uint32_t group = threadIdx.x; group < args.group_count; group += BLOCK_THREADS) best[group] = NO_ROW;
    __syncthreads();
    // Of one group a thread has its own best row first.
    uint32_t own = NO_ROW;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (cell_is_null(args.input, row)) continue;
        if (groups) {
            offer_row(args, &best[groups[row]], row);
        } else if (is_better(args, row, own)) {
            own = (uint32_t)row;
        }
    }
    if (own != NO_ROW) offer_row(args, &best[0], own);
    __syncthreads();
    for (uint32_t group = threadIdx.x; group < args.group_count; group += BLOCK_THREADS) {
        if (best[group] != NO_ROW) offer_row(args, (uint32_t *)args.rows + group, best[group]);
    }
}
