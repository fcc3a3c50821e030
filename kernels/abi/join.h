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

// hash_keys
typedef struct HashKeys {
    KeyColumns keys;
    uint64_t hashes;       // uint64_t [row_count]
    uint64_t row_count;
    uint32_t nulls_match;  // 0: a row with a NULL key gets HASH_NULL; 1: NULLs are a value
    uint32_t reserved;
} HashKeys;

// The hash of a row that matches nothing; no other row has it.
#define HASH_NULL 0ull

// What measure_keys finds of the keys that are not NULL. At first `least` is the greatest number and `greatest` the
// least.
typedef struct KeyRange {
    int64_t least;
    int64_t greatest;
} KeyRange;

// measure_keys
typedef struct MeasureKeys {
    ColumnView keys; // integers of at most 64 bits
    uint64_t row_count;
    uint64_t range; // KeyRange
} MeasureKeys;

// How keys find their slot.
#define SLOTS_BY_HASH 0u // hash & (slot_count - 1); slot_count is a power of two
#define SLOTS_BY_KEY 1u  // key - least, of one integer key; every key of the build side has a slot of its own

// insert_build_rows
typedef struct InsertBuildRows {
    ColumnView key;     // SLOTS_BY_KEY
    uint64_t hashes;    // uint64_t [row_count]: SLOTS_BY_HASH
    uint64_t heads;     // uint32_t [slot_count], NO_ROW where empty: the last row of each chain
    uint64_t next_rows; // uint32_t [row_count]: the row after this one in its chain, or NO_ROW
    uint64_t row_count;
    uint64_t slot_count;
    int64_t least;
    uint64_t shared; // uint32_t: set to 1 if two rows have one slot
    uint32_t slots;  // SLOTS_*
    uint32_t reserved;
} InsertBuildRows;

// find_equal_keys
typedef struct FindEqualKeys {
    KeyColumns keys;
    uint64_t hashes;
    uint64_t next_rows;
    uint64_t row_count;
    uint64_t found; // uint32_t: set to 1 if two rows of a chain have equal keys, or may have: a chain is too long to be searched
} FindEqualKeys;

// match_rows, count_matches, write_matches
typedef struct ProbeRows {
    KeyColumns build_keys;
    KeyColumns probe_keys;
    uint64_t build_hashes; // SLOTS_BY_HASH
    uint64_t heads;
    uint64_t next_rows;
    uint64_t slot_count;
    int64_t least;
    uint64_t probe_hashes; // SLOTS_BY_HASH
    uint64_t probe_row_count;
    uint64_t flags;        // uint8_t [probe_row_count]: whether a row has a match, written by match_rows
    uint64_t counts;       // uint32_t [probe_row_count]: matches, added to by count_matches; those that write_matches has left
    uint64_t offsets;      // uint64_t [probe_row_count]: where write_matches' next pair of a row goes
    uint64_t probe_rows;   // uint32_t: write_matches' pairs
    uint64_t build_rows;   // uint32_t: NO_ROW for a probe row without a match; match_rows': one a probe row
    uint64_t cursors;      // uint32_t [probe_row_count]: the build row with which a launch that resumes goes on, or
                           // NO_ROW; 0 if no chain has more than steps_max rows
    uint64_t unfinished;   // uint32_t: the probe rows with which the next launch goes on are added
    uint32_t slots;        // SLOTS_*
    uint32_t steps_max;    // along a chain; at least 1
    uint32_t resumes;      // 0: from the start of each chain
    uint32_t keep_unmatched; // a probe row without a match counts as one pair with NO_ROW
} ProbeRows;

// write_pairs
typedef struct WritePairs {
    uint64_t probe_rows;  // uint32_t [pair_count]
    uint64_t build_rows;  // uint32_t [pair_count]
    uint64_t first_pair;  // pairs are numbered probe row by probe row
    uint64_t pair_count;
    uint64_t build_row_count;
} WritePairs;
