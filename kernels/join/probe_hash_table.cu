// Hash joins: chains of build rows, probed twice, once to count and once to write.
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
        uint64_t hash = 0x51ed270b0e3f4f1bull;
        bool has_null = false;
        for (uint32_t key = 0; key < args.keys.count; key++) {
            const ColumnView &column = args.keys.columns[key];
            bool is_null = cell_is_null(column, row);
            has_null = has_null || is_null;
            hash = hash_mix(hash ^ (is_null ? 0x7fb5d329728ea185ull : hash_cell(column, row)));
        }
        if (hash == HASH_NULL) hash = 1;
        ((uint64_t *)args.hashes)[row] = has_null && !args.nulls_match ? HASH_NULL : hash;
    }
}

KERNEL(insert_build_rows, InsertBuildRows, BLOCK_THREADS) {
    uint32_t *heads = (uint32_t *)args.heads;
    uint32_t *next_rows = (uint32_t *)args.next_rows;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t hash = ((const uint64_t *)args.hashes)[row];
        next_rows[row] = hash == HASH_NULL ? NO_ROW : atomicExch(&heads[hash & (args.slot_count - 1)], (uint32_t)row);
    }
}

// The next row of the chain from `row` on that matches, or NO_ROW.
DEVICE uint32_t next_match(const ProbeRows &args, uint32_t row, uint64_t hash, uint64_t probe_row) {
    while (row != NO_ROW) {
        if (((const uint64_t *)args.build_hashes)[row] == hash &&
            keys_match(args.build_keys, row, args.probe_keys, probe_row)) {
            return row;
        }
        row = ((const uint32_t *)args.next_rows)[row];
    }
    return NO_ROW;
}

DEVICE uint32_t first_match(const ProbeRows &args, uint64_t hash, uint64_t probe_row) {
    if (hash == HASH_NULL) return NO_ROW;
    return next_match(args, ((const uint32_t *)args.heads)[hash & (args.slot_count - 1)], hash, probe_row);
}

KERNEL(count_matches, ProbeRows, BLOCK_THREADS) {
    for (uint64_t probe_row = first_row(); probe_row < args.probe_row_count; probe_row += row_step()) {
        uint64_t hash = ((const uint64_t *)args.probe_hashes)[probe_row];
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
        uint64_t hash = ((const uint64_t *)args.probe_hashes)[probe_row];
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
