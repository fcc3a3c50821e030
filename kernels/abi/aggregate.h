// Arguments of the kernels in aggregate/.
#pragma once

#include "join.h"

// assign_groups, number_groups
typedef struct AssignGroups {
    KeyColumns keys;
    uint64_t hashes;       // uint64_t [row_count], of hash_keys with nulls_match
    uint64_t slots;        // uint32_t [slot_count], NO_ROW where empty: the first row of a group
    uint64_t leaders;      // uint32_t [row_count]: the row that stands for this row's group
    uint64_t leader_flags; // uint8_t [row_count]: 1 for a row that stands for its group
    uint64_t offsets;      // uint64_t [row_count], of leader_flags; read by number_groups
    uint64_t groups;       // uint32_t [row_count], written by number_groups: 0 to groups - 1, in order of leaders
    uint64_t row_count;
    uint64_t slot_count;   // a power of two, at least twice row_count
    uint64_t status;       // Status
} AssignGroups;
static_assert(sizeof(AssignGroups) == 464, "AssignGroups has 464 bytes");

// What accumulate adds to a group.
enum AccumulatorKind {
    ACCUMULATE_COUNT = 0,     // rows whose input is not NULL, or all rows without an input
    ACCUMULATE_SUM = 1,       // of integers and decimals
    ACCUMULATE_MIN = 2,       // the row with the least value
    ACCUMULATE_MAX = 3,       // the row with the greatest value
    ACCUMULATE_ANY = 4,       // some row
};

// accumulate_groups, accumulate_few_groups, accumulate_large_sums, accumulate_few_large_sums
typedef struct AccumulateGroups {
    ColumnView input;     // type 0 with values 0: none
    uint64_t groups;      // uint32_t [row_count], or 0: all rows are group 0
    uint64_t row_count;
    uint64_t counts;      // uint64_t [group_count]: rows whose input is not NULL
    uint64_t sums;        // {low, high} [group_count], or LARGE_SUM_WORDS words each; null unless ACCUMULATE_SUM
    uint64_t rows;        // uint32_t [group_count], NO_ROW at first; null unless MIN, MAX, ANY
    uint64_t status;      // Status
    uint32_t group_count;
    uint32_t kind;        // AccumulatorKind
} AccumulateGroups;
static_assert(sizeof(AccumulateGroups) == 80, "AccumulateGroups has 80 bytes");

// finish_sums, finish_large_sums
typedef struct FinishSums {
    uint64_t counts;      // uint64_t [group_count]
    uint64_t sums;        // as of AccumulateGroups
    uint64_t values;      // cells of cell_bytes
    uint64_t validity;    // uint8_t [group_count]: 0 where the count is 0
    uint64_t group_count;
    uint64_t status;      // Status
    uint32_t cell_bytes;  // 8, 16 or 32
    uint32_t overflow_code;   // ErrorCode for a sum that does not fit the cell
    uint32_t overflow_detail; // the most digits that the cell has
    uint32_t reserved;
} FinishSums;
static_assert(sizeof(FinishSums) == 64, "FinishSums has 64 bytes");

// Groups of which every thread of a block keeps a sum of its own.
#define PRIVATE_GROUPS_MAX 8

// Words of a sum that 128 bits might not hold, least first: one more than the widest addend has, so that none wraps.
#define LARGE_SUM_WORDS 5
// As PRIVATE_GROUPS_MAX for such sums: what 48 KB of shared memory hold.
#define LARGE_PRIVATE_GROUPS_MAX 4

// Slots: groups of one integer key whose values lie close together. A slot is a row of 64-bit words, so that what a row
// adds lies side by side: the rows of the group, and for every input a count and a sum.

// Inputs of a slot's aggregates, and what is taken of a slot.
#define SLOT_INPUTS_MAX 8
#define SLOT_OUTPUTS_MAX 24

typedef struct SlotInput {
    ColumnView input;
    uint32_t count_word; // rows whose input is not NULL
    uint32_t sum_word;   // of two words, {low, high}; 0: no sum is wanted
} SlotInput;
static_assert(sizeof(SlotInput) == 32, "SlotInput has 32 bytes");

// accumulate_slots
typedef struct AccumulateSlots {
    ColumnView key;       // integers from `least` to `least + slot_count - 1`, and NULL
    uint64_t slots;       // uint64_t [slot_count + 1][slot_words], 0 at first; the last slot is that of NULL
    uint64_t row_count;
    int64_t least;
    uint64_t slot_count;
    uint32_t slot_words;
    uint32_t input_count;
    SlotInput inputs[SLOT_INPUTS_MAX];
} AccumulateSlots;
static_assert(sizeof(AccumulateSlots) == 320, "AccumulateSlots has 320 bytes");

typedef struct SlotOutput {
    uint64_t target; // uint64_t [row_count][words]
    uint32_t word;   // the first one of the slot
    uint32_t words;  // 1 or 2
} SlotOutput;
static_assert(sizeof(SlotOutput) == 16, "SlotOutput has 16 bytes");

// flag_slots, take_slots
typedef struct TakeSlots {
    uint64_t slots;     // as of AccumulateSlots
    uint64_t flags;     // uint8_t [slot_count + 1], written by flag_slots: 1 where there are rows
    uint64_t numbers;   // uint32_t [row_count], read by take_slots: slots
    uint64_t row_count;
    uint64_t keys;      // cells of key_bytes [row_count]
    uint64_t validity;  // uint8_t [row_count], or 0 if no key is NULL
    int64_t least;
    uint64_t slot_count;
    uint32_t slot_words;
    uint32_t key_bytes; // 2, 4 or 8
    uint32_t output_count;
    uint32_t reserved;
    SlotOutput outputs[SLOT_OUTPUTS_MAX];
} TakeSlots;
static_assert(sizeof(TakeSlots) == 464, "TakeSlots has 464 bytes");
