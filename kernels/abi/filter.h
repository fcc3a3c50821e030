// Arguments of the kernels in filter/.
#pragma once

#include "join.h"

// Words of a block of a Bloom filter: one sector of memory. A key sets a bit in each.
#define BLOOM_BLOCK_WORDS 8

// A set of keys, as kernels see it: a bitmap has a bit for every integer from `least` on, of one key; a Bloom filter
// has blocks that are found by hash.
typedef struct KeyFilterView {
    uint64_t words;      // uint32_t
    uint64_t slot_count; // bits, or blocks, of which there are fewer than 2^32
    int64_t least;
} KeyFilterView;

// insert_bitmap_keys, insert_bloom_keys
typedef struct InsertFilterKeys {
    KeyColumns keys;
    KeyFilterView filter;
    uint64_t row_count;
    uint64_t repeated; // uint32_t: set to 1 by insert_bitmap_keys if two rows have one key
} InsertFilterKeys;

// How many rows were asked about, and how many passed.
typedef struct FilterCounts {
    uint64_t tested;
    uint64_t passed;
} FilterCounts;

// test_bitmap_keys, test_bloom_keys
typedef struct TestFilterKeys {
    KeyColumns keys; // of the types that were inserted
    KeyFilterView filter;
    uint64_t row_count;
    uint64_t asked;  // uint8_t [row_count]: rows that are asked about; 0: all
    uint64_t flags;  // uint8_t [row_count]: rows that pass; may be `asked`
    uint64_t counts; // FilterCounts that are added to, or 0
} TestFilterKeys;
