// Hash joins: chains of build rows. Where no two rows have equal keys a probe takes one pass; otherwise two, one to count
// and one to write. Dense integer keys are slots themselves, and need neither hashes nor comparisons.
//
// Grid:    any number of blocks; threads stride over the rows.
// Ordering: pairs come in probe order; pairs of one probe row have no order.
// Traffic: 8 B of hash a build row and 8 B of slot and link; a probe reads one slot, and hash, link and keys of each row
//          of its chain, at 32 B a sector.
// Source:  separate chaining over row numbers; keys are compared after hashes, so that a collision costs time only.
#include "../abi/join.h"
#include "../abi/launch.h"
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

// Whether a chain has a row after this one with the same keys.
DEVICE bool has_equal(const FindEqualKeys &args, uint32_t row) {
    const uint64_t *hashes = (const uint64_t *)args.hashes;
    const uint32_t *next_rows = (const uint32_t *)args.next_rows;
    for (uint32_t other = next_rows[row]; other != NO_ROW; other = next_rows[other]) {
        if (hashes[other] == hashes[row] && keys_match(args.keys, other, args.keys, row)) return true;
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

// The next row of the chain from `row` on that matches, or NO_ROW.
DEVICE uint32_t next_match(const ProbeRows &args, uint32_t row, uint64_t hash, uint64_t probe_row) {
    // All rows of the chain have the key that the slot is of.
    if (args.slots == SLOTS_BY_KEY) return row;
    while (row != NO_ROW) {
        if (((const uint64_t *)args.build_hashes)[row] == hash &&
            keys_match(args.build_keys, row, args.probe_keys, probe_row)) {
            return row;
        }
        row = ((const uint32_t *)args.next_rows)[row];
    }
    return NO_ROW;
}

DEVICE uint64_t probe_hash(const ProbeRows &args, uint64_t probe_row) {
    return args.slots == SLOTS_BY_KEY ? 0 : ((const uint64_t *)args.probe_hashes)[probe_row];
}

DEVICE uint32_t first_match(const ProbeRows &args, uint64_t hash, uint64_t probe_row) {
    const uint32_t *heads = (const uint32_t *)args.heads;
    if (args.slots == SLOTS_BY_KEY) {
        uint64_t slot = slot_of_key(args.probe_keys.columns[0], probe_row, args.least, args.slot_count);
        return slot == args.slot_count ? NO_ROW : heads[slot];
    }
    if (hash == HASH_NULL) return NO_ROW;
    return next_match(args, heads[hash & (args.slot_count - 1)], hash, probe_row);
}

// The first match of every probe row. Where build keys are unique, that is all of them.
KERNEL(match_rows, ProbeRows, BLOCK_THREADS) {
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint32_t row = first_match(args, probe_hash(args, probe_row), probe_row);
        ((uint32_t *)args.build_rows)[probe_row] = row;
        ((uint8_t *)args.flags)[probe_row] = row != NO_ROW;
    }
}

KERNEL(count_matches, ProbeRows, BLOCK_THREADS) {
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint64_t hash = probe_hash(args, probe_row);
        uint32_t count = 0;
        uint32_t row = first_match(args, hash, probe_row);
        while (row != NO_ROW) {
            count++;
            if (args.first_only) break;
            row = next_match(args, ((const uint32_t *)args.next_rows)[row], hash, probe_row);
        }
        ((uint32_t *)args.counts)[probe_row] = count == 0 && args.keep_unmatched ? 1 : count;
    }
}

KERNEL(write_matches, ProbeRows, BLOCK_THREADS) {
    uint32_t *probe_rows = (uint32_t *)args.probe_rows;
    uint32_t *build_rows = (uint32_t *)args.build_rows;
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint32_t count = ((const uint32_t *)args.counts)[probe_row];
        if (count == 0) continue;
        uint64_t hash = probe_hash(args, probe_row);
        uint64_t place = ((const uint64_t *)args.offsets)[probe_row];
        uint32_t row = first_match(args, hash, probe_row);
        for (uint32_t match = 0; match < count; match++) {
            probe_rows[place + match] = (uint32_t)probe_row;
            build_rows[place + match] = row;
            if (match + 1 < count) row = next_match(args, ((const uint32_t *)args.next_rows)[row], hash, probe_row);
        }
    }
}

// Every pair of a join without keys.
KERNEL(write_pairs, WritePairs, BLOCK_THREADS) {
    for (uint64_t place = first_row(); place < args.pair_count; place += row_step()) {
        uint64_t pair = args.first_pair + place;
        ((uint32_t *)args.probe_rows)[place] = (uint32_t)(pair / args.build_row_count);
        ((uint32_t *)args.build_rows)[place] = (uint32_t)(pair % args.build_row_count);
    }
}
