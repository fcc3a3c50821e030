// Sets of keys that rows are tested against: bitmaps of dense integers, blocked Bloom filters of any keys.
//
// Grid:    any number of blocks; threads stride over the rows.
// Inputs:  keys; a row with a NULL key is not inserted and never passes.
// Outputs: words of the filter; one flag a row, and counts of rows.
// Traffic: a bitmap reads one word a row, a Bloom filter one sector of 32 B; smaller filters stay in caches.
// Source:  blocked Bloom filters, Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", WEA 2007; a
//          bit in each word of a block as in the split block filters of Parquet's format. We differ: the hash is the joins'.
#include "../abi/filter.h"
#include "../common/launch.h"
#include "../common/keys.cuh"
#include "bloom.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

// Whether they were set already, as most are where keys repeat.
DEVICE bool set_bits(uint32_t *word, uint32_t bits) {
    return (*(volatile uint32_t *)word & bits) == bits || (atomicOr(word, bits) & bits) == bits;
}

KERNEL(insert_bitmap_keys, InsertFilterKeys, BLOCK_THREADS) {
    const ColumnView &key = args.keys.columns[0];
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (cell_is_null(key, row)) continue;
        uint64_t bit = (uint64_t)integer_key_at(key, row) - (uint64_t)args.filter.least;
        if (bit >= args.filter.slot_count) continue;
        bool was_set = set_bits((uint32_t *)args.filter.words + bit / 32, 1u << (bit % 32));
        if (was_set) *(volatile uint32_t *)args.repeated = 1;
    }
}

KERNEL(insert_bloom_keys, InsertFilterKeys, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        bool has_null;
        uint64_t hash = hash_row(args.keys, row, &has_null);
        if (has_null) continue;
        uint32_t *block = (uint32_t *)args.filter.words + bloom_block(hash, args.filter.slot_count) * BLOOM_BLOCK_WORDS;
#pragma unroll
        for (uint32_t word = 0; word < BLOOM_BLOCK_WORDS; word++) set_bits(&block[word], bloom_bit(hash, word));
    }
}

DEVICE bool passes_bloom(const KeyFilterView &filter, const KeyColumns &keys, uint64_t row) {
    bool has_null;
    uint64_t hash = hash_row(keys, row, &has_null);
    if (has_null) return false;
    const BloomBlock block = *block_of(filter, hash);
    return has_bits(block, hash);
}

DEVICE bool passes_bitmap(const KeyFilterView &filter, const ColumnView &key, uint64_t row) {
    if (cell_is_null(key, row)) return false;
    uint64_t bit = (uint64_t)integer_key_at(key, row) - (uint64_t)filter.least;
    return bit < filter.slot_count && (((const uint32_t *)filter.words)[bit / 32] >> (bit % 32) & 1);
}

// Adds what a thread has counted: one pair of atomics a warp.
DEVICE void add_counts(uint64_t address, uint32_t tested, uint32_t passed) {
    if (!address) return;
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        tested += __shfl_down_sync(0xffffffffu, tested, distance);
        passed += __shfl_down_sync(0xffffffffu, passed, distance);
    }
    if (threadIdx.x % WARP_THREADS != 0 || tested == 0) return;
    FilterCounts *counts = (FilterCounts *)address;
    atomicAdd((unsigned long long *)&counts->tested, (unsigned long long)tested);
    atomicAdd((unsigned long long *)&counts->passed, (unsigned long long)passed);
}

DEVICE bool is_asked(const TestFilterKeys &args, uint64_t row) {
    return !args.asked || ((const uint8_t *)args.asked)[row];
}

KERNEL(test_bitmap_keys, TestFilterKeys, BLOCK_THREADS) {
    uint32_t tested = 0, passed = 0;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        bool asked = is_asked(args, row);
        bool passes = asked && passes_bitmap(args.filter, args.keys.columns[0], row);
        ((uint8_t *)args.flags)[row] = passes;
        tested += asked;
        passed += passes;
    }
    add_counts(args.counts, tested, passed);
}

// Rows of a thread at once: their blocks are on their way together, and a word has their flags.
#define TESTED_ROWS 4

template <class Key>
struct alignas(16) KeyGroup {
    Key keys[TESTED_ROWS];
};

// Flags of rows of which none is 0.
#define ALL_FLAGS 0x01010101u

// Tests TESTED_ROWS rows after one another, by one key without the ways of other types. What NULL rows have as a key is not used.
template <class Key>
DEVICE void test_key_group(const TestFilterKeys &args, uint64_t group, uint32_t *tested, uint32_t *passed) {
    const ColumnView &key = args.keys.columns[0];
    const KeyGroup<Key> keys = ((const KeyGroup<Key> *)key.values)[group];
    const uint32_t asked = args.asked ? ((const uint32_t *)args.asked)[group] : ALL_FLAGS;
    const uint32_t valid = key.validity ? ((const uint32_t *)key.validity)[group] : ALL_FLAGS;
    uint64_t hashes[TESTED_ROWS];
    BloomBlock blocks[TESTED_ROWS];
    bool is_there[TESTED_ROWS];
#pragma unroll
    for (uint32_t item = 0; item < TESTED_ROWS; item++) {
        const bool is_asked = (asked >> 8 * item & 0xff) != 0;
        *tested += is_asked;
        is_there[item] = is_asked && (valid >> 8 * item & 0xff) != 0;
        hashes[item] = hash_integer_row(keys.keys[item]);
        blocks[item] = is_there[item] ? *block_of(args.filter, hashes[item]) : BloomBlock{};
    }
    uint32_t flags = 0;
#pragma unroll
    for (uint32_t item = 0; item < TESTED_ROWS; item++) {
        if (is_there[item] && has_bits(blocks[item], hashes[item])) flags |= 1u << 8 * item;
    }
    ((uint32_t *)args.flags)[group] = flags;
    *passed += (uint32_t)__popc(flags);
}

// Whether rows can be tested by groups.
DEVICE bool has_key_groups(const TestFilterKeys &args) {
    const ColumnView &key = args.keys.columns[0];
    return args.keys.count == 1 && (key.cell_type == CELL_INT32 || key.cell_type == CELL_INT64) && key.values % 16 == 0 &&
           (key.validity | args.asked | args.flags) % TESTED_ROWS == 0;
}

KERNEL(test_bloom_keys, TestFilterKeys, BLOCK_THREADS) {
    uint32_t tested = 0, passed = 0;
    const uint64_t groups = has_key_groups(args) ? args.row_count / TESTED_ROWS : 0;
    const bool is_short = args.keys.columns[0].cell_type == CELL_INT32;
    for (uint64_t group = first_row(); group < groups; group += row_step()) {
        if (is_short) {
            test_key_group<int32_t>(args, group, &tested, &passed);
        } else {
            test_key_group<int64_t>(args, group, &tested, &passed);
        }
    }
    for (uint64_t row = groups * TESTED_ROWS + first_row(); row < args.row_count; row += row_step()) {
        bool asked = is_asked(args, row);
        tested += asked;
        bool passes = asked && passes_bloom(args.filter, args.keys, row);
        ((uint8_t *)args.flags)[row] = passes;
        passed += passes;
    }
    add_counts(args.counts, tested, passed);
}
