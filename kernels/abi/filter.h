// Arguments of the kernels in filter/.
#pragma once

#include "join.h"

// What a filter's words are.
#define FILTER_BITMAP 0u // a bit for every integer from `least` on, of one key: a key passes if and only if it was inserted
#define FILTER_BLOOM 1u  // blocks of BLOOM_BLOCK_WORDS words, found by hash: a key that was inserted passes

// Words of a block: one sector of memory. A key sets a bit in each.
#define BLOOM_BLOCK_WORDS 8

// A set of keys, as kernels see it.
typedef struct KeyFilterView {
    uint64_t words;      // uint32_t
    uint64_t slot_count; // FILTER_BITMAP: bits; FILTER_BLOOM: blocks, fewer than 2^32
    int64_t least;       // FILTER_BITMAP
    uint32_t kind;       // FILTER_*
    uint32_t reserved;
} KeyFilterView;
static_assert(sizeof(KeyFilterView) == 32, "KeyFilterView has 32 bytes");

// insert_filter_keys
typedef struct InsertFilterKeys {
    KeyColumns keys;
    KeyFilterView filter;
    uint64_t row_count;
} InsertFilterKeys;
static_assert(sizeof(InsertFilterKeys) == 432, "InsertFilterKeys has 432 bytes");

// How many rows were asked about, and how many passed.
typedef struct FilterCounts {
    uint64_t tested;
    uint64_t passed;
} FilterCounts;
static_assert(sizeof(FilterCounts) == 16, "FilterCounts has 16 bytes");

// test_filter_keys
typedef struct TestFilterKeys {
    KeyColumns keys; // of the types that were inserted
    KeyFilterView filter;
    uint64_t row_count;
    uint64_t asked;  // uint8_t [row_count]: rows that are asked about; 0: all
    uint64_t flags;  // uint8_t [row_count]: rows that pass; may be `asked`
    uint64_t counts; // FilterCounts that are added to, or 0
} TestFilterKeys;
static_assert(sizeof(TestFilterKeys) == 456, "TestFilterKeys has 456 bytes");
