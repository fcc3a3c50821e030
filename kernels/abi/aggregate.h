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

// What accumulate adds to a group.
enum AccumulatorKind {
    ACCUMULATE_COUNT = 0,     // rows whose input is not NULL, or all rows without an input
    ACCUMULATE_SUM = 1,       // of integers and decimals
    ACCUMULATE_MIN = 2,       // the row with the least value
    ACCUMULATE_MAX = 3,       // the row with the greatest value
    ACCUMULATE_ANY = 4,       // some row
    ACCUMULATE_FLOAT_SUM = 5,  // of floats, or of states of such sums
    ACCUMULATE_DEVIATIONS = 6, // squares of the differences of floats from their mean, summed; or of states of such sums
};

// accumulate_groups, accumulate_few_groups, accumulate_large_sums, accumulate_few_large_sums
typedef struct AccumulateGroups {
    ColumnView input;
    uint64_t groups;      // uint32_t [row_count], or 0: all rows are group 0
    uint64_t row_count;
    uint64_t counts;      // uint64_t [group_count]: rows whose input is not NULL; of sums
    uint64_t sums;        // LARGE_SUM_WORDS words [group_count]; of sums
    uint64_t rows;        // uint32_t [group_count], NO_ROW at first; of MIN, MAX, ANY
    uint64_t status;      // Status
    uint32_t group_count;
    uint32_t kind;        // AccumulatorKind
} AccumulateGroups;

// finish_large_sums
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

// Groups of which a block finds the rows with the least or greatest value by itself.
#define FEW_GROUPS_MAX 1024
// Words of a sum that 128 bits might not hold, least first: one more than the widest addend has, so that none wraps.
#define LARGE_SUM_WORDS 5
// Groups of which every thread of a block keeps such a sum of its own: what 48 KB of shared memory hold.
#define LARGE_PRIVATE_GROUPS_MAX 4

// Slots: groups whose place is computed of their keys. A slot is a row of 64-bit words, so that what a row adds lies side by
// side: the rows of the group, and for every input the rows in which it is NULL, and a sum of two words.

#define SLOT_KEYS_MAX 4
#define SLOT_INPUTS_MAX 8
#define SLOT_OUTPUTS_MAX 16

// Rows of a thread at once.
#define SLOT_ROWS 4
// Cells of 64 bits that a block adds in: 36 KB of shared memory, so that six blocks share a multiprocessor. Each of
// PRIVATE_SLOT_THREADS has 36 of them: rows and five sums of six slots.
#define SLOT_CELLS_MAX 4608
// Cells of a slot that a block adds in: its rows, and of every input NULLs and a sum.
#define SHARE_CELLS_MAX (1 + 2 * SLOT_INPUTS_MAX)
// Threads of a block each of which has cells of its own.
#define PRIVATE_SLOT_THREADS 128
// Slots of which every thread of a block keeps cells of its own.
#define PRIVATE_SLOTS_MAX 12
// Slots of which a block keeps cells.
#define BLOCK_SLOTS_MAX 1024
static_assert(3 * PRIVATE_SLOTS_MAX * PRIVATE_SLOT_THREADS <= SLOT_CELLS_MAX, "there is room for the cells of one input");
static_assert(3 * BLOCK_SLOTS_MAX <= SLOT_CELLS_MAX, "there is room for the cells of one input");
static_assert(SLOT_CELLS_MAX / PRIVATE_SLOT_THREADS <= PRIVATE_SLOT_THREADS, "a thread has one carry at most");

// Where a key has its places. That of NULL is behind all others.
typedef struct SlotKey {
    ColumnView key;       // integers of up to 64 bits
    int64_t least;        // the key of the first place
    uint64_t place_count; // without that of NULL
    uint64_t stride;      // slots from one place to the next
} SlotKey;

typedef struct SlotInput {
    ColumnView input;   // integers of up to 128 bits, if a sum is wanted
    uint32_t null_word; // counts the rows in which it is NULL
    uint32_t sum_word;  // the first of two, or 0: only counted
    uint16_t share;     // which blocks add it: those of this number, modulo share_count
    uint16_t null_cell; // of the share's cells that which counts NULLs, or 0 if there are none
    uint16_t sum_cell;  // of the share's cells that of the sum, after null_cell, or 0
    uint16_t reserved;
} SlotInput;

// accumulate_slots, accumulate_block_slots, accumulate_private_slots
typedef struct AccumulateSlots {
    uint64_t slots;       // uint64_t [slot_count][slot_words]
    uint64_t row_count;
    uint64_t slot_count;
    uint64_t status;      // Status
    uint32_t slot_words;
    uint32_t key_count;   // without one all rows are of slot 0
    uint32_t input_count;
    uint32_t share_count; // parts of the inputs, of which a block adds one; cell 0 of each counts rows, and the first's is added
    SlotKey keys[SLOT_KEYS_MAX];
    SlotInput inputs[SLOT_INPUTS_MAX];
} AccumulateSlots;

// A key of the slots that are taken.
typedef struct SlotKeyTarget {
    uint64_t target;      // cells of cell_bytes [row_count]
    uint64_t validity;    // uint8_t [row_count], or 0 if no key is NULL
    int64_t least;        // as of SlotKey, and so the next two
    uint64_t place_count;
    uint64_t stride;
    uint32_t cell_bytes;  // 2, 4 or 8
    uint32_t null_places; // 1 if NULL has a place, else 0
} SlotKeyTarget;

// A count, or a sum in the cells of its type.
typedef struct SlotOutput {
    uint64_t target;          // cells of cell_bytes [row_count]
    uint64_t validity;        // uint8_t [row_count] of a sum: 0 where every input is NULL; 0 for a count
    uint32_t null_word;       // as of SlotInput, or 0: rows count, whatever is in them
    uint32_t sum_word;        // as of SlotInput
    uint32_t cell_bytes;      // 8, or, of a sum, 16 or 32
    uint32_t overflow_code;   // ErrorCode for a sum that does not fit the cell
    uint32_t overflow_detail; // the most digits that the cell has
    uint32_t reserved;
} SlotOutput;

// flag_slots, take_slots
typedef struct TakeSlots {
    uint64_t slots;     // as of AccumulateSlots
    uint64_t flags;     // uint8_t [slot_count], written by flag_slots: 1 where there are rows
    uint64_t numbers;   // uint32_t [row_count], read by take_slots: slots; 0: all of them, in order
    uint64_t row_count;
    uint64_t slot_count;
    uint64_t status;    // Status
    uint32_t slot_words;
    uint32_t key_count; // keys that are wanted
    uint32_t output_count;
    uint32_t reserved;
    SlotKeyTarget keys[SLOT_KEYS_MAX];
    SlotOutput outputs[SLOT_OUTPUTS_MAX];
} TakeSlots;

// Exact sums of floats (float_sums.cuh).

// What was added to a group, beside its numbers.
#define FLOAT_ANY 1
#define FLOAT_NOT_NEGATIVE_ZERO 2
#define FLOAT_NAN 4
#define FLOAT_INFINITY 8
#define FLOAT_NEGATIVE_INFINITY 16

// Words of the widest numbers: a square has its lowest bit at 2 * 2045 at most, and 106 bits; a few words are for carries.
#define FLOAT_WORDS_MAX 160
// Addends after which the carries of a word are taken out.
#define FLOAT_ADDENDS_MAX 0x20000000
// Threads of a block each of which has words of its own, and how many: what 36 KB of shared memory hold.
#define FLOAT_PRIVATE_THREADS 128
#define FLOAT_PRIVATE_WORDS_MAX 36
// Words of which a block keeps copies of its own.
#define FLOAT_BLOCK_WORDS_MAX 4608

// A group: the words that its values touch. All zeros at first.
typedef struct FloatGroup {
    uint32_t marks;        // FLOAT_ANY and so on
    uint32_t words_before; // FLOAT_WORDS_MAX less the place of the sum's first word
    uint32_t words_end;    // the place behind its last word, or 0 if it has none
    uint32_t square_words_before; // the same of the squares
    uint32_t square_words_end;
    uint32_t reserved;
} FloatGroup;

// measure_floats, accumulate_floats, accumulate_block_floats, accumulate_private_floats
typedef struct AccumulateFloats {
    ColumnView input;    // floats, or states of sums in cells of text
    uint64_t groups;     // uint32_t [row], or 0: all rows are group 0
    uint64_t measured;   // FloatGroup [group]
    uint64_t offsets;    // uint64_t [group]: words of the groups before
    uint64_t words;      // int64_t [word_count]: of each group the count of its values if `deviates`, the sum, the squares
    uint64_t word_count;
    uint64_t first_row;
    uint64_t end_row;
    uint64_t status;     // Status
    uint32_t deviates;   // 1 if counts and squares are wanted too, else 0
    uint32_t reserved;
} AccumulateFloats;

// count_float_words, carry_floats, measure_float_states, write_float_states, round_float_sums
typedef struct FinishFloats {
    uint64_t measured;     // as of AccumulateFloats, and so the next two
    uint64_t offsets;
    uint64_t words;
    uint64_t group_count;
    uint64_t lengths;      // uint32_t [group_count]: words, or bytes of the state, of each group
    uint64_t byte_offsets; // uint64_t [group_count]: bytes of the states before
    uint64_t bytes;        // the states, one after another
    uint64_t values;       // StringCell or floats of cell_bytes [group_count]
    uint64_t validity;     // uint8_t [group_count]
    uint64_t status;       // Status
    uint32_t cell_bytes;   // 4 or 8, of round_float_sums
    uint32_t deviates;     // as of AccumulateFloats
} FinishFloats;
