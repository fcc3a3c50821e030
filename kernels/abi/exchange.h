// Arguments of the kernels in exchange/, of move_strings and of place_strings.
#pragma once

#include "join.h"

// Partitions of one launch: one digit of a sort.
#define PARTITIONS_MAX 256

// assign_hash_partitions
typedef struct AssignHashPartitions {
    uint64_t hashes;          // uint64_t [row_count], of hash_keys
    uint64_t words;           // uint64_t [row_count]: the partition of each row
    uint64_t rows;            // uint32_t [row_count]: the row's own number
    uint64_t row_count;
    uint32_t partition_count; // at most PARTITIONS_MAX
    uint32_t level;           // rows that share a partition at one level are spread at the next
} AssignHashPartitions;
static_assert(sizeof(AssignHashPartitions) == 40, "AssignHashPartitions has 40 bytes");

// assign_range_partitions
typedef struct AssignRangePartitions {
    KeyColumns keys;
    KeyColumns splitters;    // in order, no two equal
    uint64_t words;          // uint64_t [row_count]: 2 * s for a row before splitter s and after s - 1, one more if equal to s
    uint64_t rows;           // uint32_t [row_count]: the row's own number
    uint64_t row_count;
    uint32_t splitter_count; // at most (PARTITIONS_MAX - 1) / 2
    uint32_t descending;     // bit k: key k is ordered greatest first
    uint32_t nulls_first;    // bit k: NULLs of key k come first
    uint32_t reserved;
} AssignRangePartitions;
static_assert(sizeof(AssignRangePartitions) == 824, "AssignRangePartitions has 824 bytes");

// move_strings
typedef struct MoveStrings {
    uint64_t cells;    // StringCell [row_count]
    uint64_t row_count;
    uint64_t distance; // added to every address
} MoveStrings;
static_assert(sizeof(MoveStrings) == 24, "MoveStrings has 24 bytes");

// place_strings
typedef struct PlaceStrings {
    uint64_t lengths; // uint32_t [row_count]
    uint64_t offsets; // uint64_t [row_count]: where each text begins in bytes
    uint64_t bytes;
    uint64_t cells;   // StringCell [row_count]
    uint64_t row_count;
} PlaceStrings;
static_assert(sizeof(PlaceStrings) == 40, "PlaceStrings has 40 bytes");
