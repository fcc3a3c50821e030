// Hash joins: chains of build rows. Where no two rows have equal keys a probe takes one pass; otherwise two, one to count
// and one to write. Dense integer keys are slots themselves, and need neither hashes nor comparisons.
//
// A launch takes at most so many steps along the chain of each probe row, and the next one goes on there: however long a
// chain is, no launch is.
//
// Grid:    any number of blocks; threads stride over the rows.
// Ordering: pairs come in probe order; pairs of one probe row have no order.
// Traffic: 8 B of hash a build row and 8 B of slot and link; a probe reads one slot, and hash, link and keys of each row
//          of its chain, at 32 B a sector.
// Source:  separate chaining over row numbers; keys are compared after hashes, so that a collision costs time only.
#include "../abi/join.h"
#include "../common/launch.h"
#include "../common/keys.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

KERNEL(hash_keys, HashKeys, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        bool has_null;
        uint64_t hash = hash_row(args.keys, row, &has_null);
        ((uint64_t *)args.hashes)[row] = has_null && !args.nulls_match ? HASH_NULL : hash;
    }
}

// One pair of atomics a warp.
KERNEL(measure_keys, MeasureKeys, BLOCK_THREADS) {
    const int64_t most = 0x7fffffffffffffffll;
    int64_t least = most, greatest = -most - 1;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (cell_is_null(args.keys, row)) continue;
        int64_t key = integer_key_at(args.keys, row);
        least = key < least ? key : least;
        greatest = key > greatest ? key : greatest;
    }
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        int64_t other_least = __shfl_down_sync(0xffffffffu, least, distance);
        int64_t other_greatest = __shfl_down_sync(0xffffffffu, greatest, distance);
        least = other_least < least ? other_least : least;
        greatest = other_greatest > greatest ? other_greatest : greatest;
    }
    if (threadIdx.x % WARP_THREADS != 0) return;
    KeyRange *range = (KeyRange *)args.range;
    atomicMin((long long *)&range->least, (long long)least);
    atomicMax((long long *)&range->greatest, (long long)greatest);
}

// The slot of a key, or slot_count if it has none.
DEVICE uint64_t slot_of_key(const ColumnView &column, uint64_t row, int64_t least, uint64_t slot_count) {
    if (cell_is_null(column, row)) return slot_count;
    uint64_t slot = (uint64_t)integer_key_at(column, row) - (uint64_t)least;
    return slot < slot_count ? slot : slot_count;
}

KERNEL(insert_build_rows, InsertBuildRows, BLOCK_THREADS) {
    uint32_t *heads = (uint32_t *)args.heads;
    uint32_t *next_rows = (uint32_t *)args.next_rows;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t slot;
        if (args.slots == SLOTS_BY_KEY) {
            slot = slot_of_key(args.key, row, args.least, args.slot_count);
        } else {
            uint64_t hash = ((const uint64_t *)args.hashes)[row];
            slot = hash == HASH_NULL ? args.slot_count : hash & (args.slot_count - 1);
        }
        uint32_t before = slot == args.slot_count ? NO_ROW : atomicExch(&heads[slot], (uint32_t)row);
        next_rows[row] = before;
        if (before != NO_ROW) *(volatile uint32_t *)args.shared = 1;
    }
}

// Rows of a chain that are compared with one of its rows.
#define COMPARED_ROWS_MAX 1024

// Whether a chain has a row after this one with the same keys, or is too long for finding out.
DEVICE bool has_equal(const FindEqualKeys &args, uint32_t row) {
    const uint64_t *hashes = (const uint64_t *)args.hashes;
    const uint32_t *next_rows = (const uint32_t *)args.next_rows;
    uint32_t compared = 0;
    for (uint32_t other = next_rows[row]; other != NO_ROW; other = next_rows[other]) {
        if (hashes[other] == hashes[row] && keys_match(args.keys, other, args.keys, row)) return true;
        if (++compared == COMPARED_ROWS_MAX) return true;
    }
    return false;
}

KERNEL(find_equal_keys, FindEqualKeys, BLOCK_THREADS) {
    volatile uint32_t *found = (volatile uint32_t *)args.found;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (*found) return;
        if (has_equal(args, (uint32_t)row)) *found = 1;
    }
}

DEVICE uint64_t probe_hash(const ProbeRows &args, uint64_t probe_row) {
    return args.slots == SLOTS_BY_KEY ? 0 : ((const uint64_t *)args.probe_hashes)[probe_row];
}

// The row that a walk begins with: the chain's last one, or where the launch before stopped. NO_ROW if nothing is left.
DEVICE uint32_t begin_walk(const ProbeRows &args, uint64_t hash, uint64_t probe_row) {
    if (args.resumes) return ((const uint32_t *)args.cursors)[probe_row];
    const uint32_t *heads = (const uint32_t *)args.heads;
    if (args.slots == SLOTS_BY_KEY) {
        uint64_t slot = slot_of_key(args.probe_keys.columns[0], probe_row, args.least, args.slot_count);
        return slot == args.slot_count ? NO_ROW : heads[slot];
    }
    return hash == HASH_NULL ? NO_ROW : heads[hash & (args.slot_count - 1)];
}

DEVICE uint32_t next_in_chain(const ProbeRows &args, uint32_t row) { return ((const uint32_t *)args.next_rows)[row]; }

DEVICE bool is_match(const ProbeRows &args, uint32_t row, uint64_t hash, uint64_t probe_row) {
    // All rows of the chain have the key that the slot is of.
    if (args.slots == SLOTS_BY_KEY) return true;
    return ((const uint64_t *)args.build_hashes)[row] == hash &&
           keys_match(args.build_keys, row, args.probe_keys, probe_row);
}

// Says where the next launch goes on with a probe row, and whether there is anything left of it.
DEVICE uint32_t end_walk(const ProbeRows &args, uint64_t probe_row, uint32_t row) {
    if (args.cursors) ((uint32_t *)args.cursors)[probe_row] = row;
    return row != NO_ROW;
}

DEVICE void add_unfinished(const ProbeRows &args, uint32_t rows) {
    if (rows > 0 && args.unfinished) atomicAdd((uint32_t *)args.unfinished, rows);
}

// The first match of every probe row. Where build keys are unique, that is all of them.
KERNEL(match_rows, ProbeRows, BLOCK_THREADS) {
    uint32_t unfinished = 0;
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint64_t hash = probe_hash(args, probe_row);
        uint32_t row = begin_walk(args, hash, probe_row);
        if (args.resumes && row == NO_ROW) continue;
        uint32_t match = NO_ROW;
        for (uint32_t step = 0; row != NO_ROW && step < args.steps_max; step++) {
            if (is_match(args, row, hash, probe_row)) match = row;
            row = match == NO_ROW ? next_in_chain(args, row) : NO_ROW;
        }
        ((uint32_t *)args.build_rows)[probe_row] = match;
        ((uint8_t *)args.flags)[probe_row] = match != NO_ROW;
        unfinished += end_walk(args, probe_row, row);
    }
    add_unfinished(args, unfinished);
}

KERNEL(count_matches, ProbeRows, BLOCK_THREADS) {
    uint32_t *counts = (uint32_t *)args.counts;
    uint32_t unfinished = 0;
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint64_t hash = probe_hash(args, probe_row);
        uint32_t row = begin_walk(args, hash, probe_row);
        if (args.resumes && row == NO_ROW) continue;
        uint32_t count = args.resumes ? counts[probe_row] : 0;
        for (uint32_t step = 0; row != NO_ROW && step < args.steps_max; step++) {
            count += is_match(args, row, hash, probe_row);
            row = next_in_chain(args, row);
        }
        counts[probe_row] = count == 0 && row == NO_ROW && args.keep_unmatched ? 1 : count;
        unfinished += end_walk(args, probe_row, row);
    }
    add_unfinished(args, unfinished);
}

DEVICE void write_pair(const ProbeRows &args, uint64_t place, uint64_t probe_row, uint32_t build_row) {
    ((uint32_t *)args.probe_rows)[place] = (uint32_t)probe_row;
    ((uint32_t *)args.build_rows)[place] = build_row;
}

// What is left of a probe row's pairs is its count, and its offset is where they go.
KERNEL(write_matches, ProbeRows, BLOCK_THREADS) {
    uint32_t *counts = (uint32_t *)args.counts;
    uint64_t *offsets = (uint64_t *)args.offsets;
    uint32_t unfinished = 0;
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint32_t left = counts[probe_row];
        if (left == 0) continue;
        uint64_t hash = probe_hash(args, probe_row);
        uint64_t place = offsets[probe_row];
        uint32_t row = begin_walk(args, hash, probe_row);
        for (uint32_t step = 0; left > 0 && row != NO_ROW && step < args.steps_max; step++) {
            if (is_match(args, row, hash, probe_row)) {
                write_pair(args, place, probe_row, row);
                place++;
                left--;
            }
            row = next_in_chain(args, row);
        }
        // A row without a match, which is kept.
        if (left > 0 && row == NO_ROW) {
            write_pair(args, place, probe_row, NO_ROW);
            left = 0;
        }
        counts[probe_row] = left;
        if (left == 0) continue;
        offsets[probe_row] = place;
        end_walk(args, probe_row, row);
        unfinished++;
    }
    add_unfinished(args, unfinished);
}

// Every pair of a join without keys.
KERNEL(write_pairs, WritePairs, BLOCK_THREADS) {
    for (uint64_t place = first_row(); place < args.pair_count; place += row_step()) {
        uint64_t pair = args.first_pair + place;
        ((uint32_t *)args.probe_rows)[place] = (uint32_t)(pair / args.build_row_count);
        ((uint32_t *)args.build_rows)[place] = (uint32_t)(pair % args.build_row_count);
    }
}
