// Arguments of the kernels in join/.
#pragma once

#include "column.h"
#include "column_operations.h"

// Key columns of a join or a grouping.
#define KEYS_MAX 16

typedef struct KeyColumns {
    ColumnView columns[KEYS_MAX];
    uint32_t count;
    uint32_t reserved;
} KeyColumns;
static_assert(sizeof(KeyColumns) == 392, "KeyColumns has 392 bytes");

// hash_keys
typedef struct HashKeys {
    KeyColumns keys;
    uint64_t hashes;       // uint64_t [row_count]
    uint64_t row_count;
    uint32_t nulls_match;  // 0: a row with a NULL key gets HASH_NULL; 1: NULLs are a value
    uint32_t reserved;
} HashKeys;
static_assert(sizeof(HashKeys) == 416, "HashKeys has 416 bytes");

// The hash of a row that matches nothing; no other row has it.
#define HASH_NULL 0ull

// insert_build_rows
typedef struct InsertBuildRows {
    uint64_t hashes;    // uint64_t [row_count]
    uint64_t heads;     // uint32_t [slot_count], NO_ROW where empty: the last row of each chain
    uint64_t next_rows; // uint32_t [row_count]: the row after this one in its chain, or NO_ROW
    uint64_t row_count;
    uint64_t slot_count; // a power of two
} InsertBuildRows;
static_assert(sizeof(InsertBuildRows) == 40, "InsertBuildRows has 40 bytes");

// count_matches, write_matches
typedef struct ProbeRows {
    KeyColumns build_keys;
    KeyColumns probe_keys;
    uint64_t build_hashes;
    uint64_t heads;
    uint64_t next_rows;
    uint64_t slot_count;
    uint64_t probe_hashes;
    uint64_t probe_row_count;
    uint64_t counts;       // uint32_t [probe_row_count]: matches, written by count_matches
    uint64_t offsets;      // uint64_t [probe_row_count], read by write_matches
    uint64_t probe_rows;   // uint32_t: write_matches' pairs
    uint64_t build_rows;   // uint32_t: NO_ROW for a probe row without a match
    uint32_t first_only;   // count_matches stops at the first match: 0 or 1
    uint32_t keep_unmatched; // a probe row without a match counts as one pair with NO_ROW
} ProbeRows;
static_assert(sizeof(ProbeRows) == 872, "ProbeRows has 872 bytes");

// write_pairs
typedef struct WritePairs {
    uint64_t probe_rows;  // uint32_t [pair_count]
    uint64_t build_rows;  // uint32_t [pair_count]
    uint64_t first_pair;  // pairs are numbered probe row by probe row
    uint64_t pair_count;
    uint64_t build_row_count;
} WritePairs;
static_assert(sizeof(WritePairs) == 40, "WritePairs has 40 bytes");
