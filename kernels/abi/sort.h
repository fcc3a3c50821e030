// Arguments of the kernels in sort/.
#pragma once

#include "column.h"

// Values of a digit: 8 bits.
#define DIGIT_VALUES 256
// Rows that a block ranks.
#define SORT_TILE_ROWS 2048

// What a word of a key is like in the rows that are not NULL. All 0 before.
typedef struct SortWordBits {
    uint64_t ones;     // bits that are 1 in a row
    uint64_t zeros;    // bits that are 0 in a row
    uint64_t greatest; // of the words
} SortWordBits;

// measure_sort_words
typedef struct MeasureSortWords {
    ColumnView column;
    uint64_t bits; // SortWordBits
    uint64_t row_count;
    uint32_t word; // as of EncodeSortWords
    uint32_t reserved;
} MeasureSortWords;

// encode_sort_words
typedef struct EncodeSortWords {
    ColumnView column;
    uint64_t rows;       // uint32_t [row_count]: the order so far
    uint64_t words;      // uint64_t [row_count]: what the next passes sort by, least first
    uint64_t row_count;
    uint32_t word;       // which 64 bits: 0 the lowest of numbers; for strings the 8 bytes from 8 * word on, and
                         // SORT_WORD_LENGTH their length
    uint32_t descending;
} EncodeSortWords;

#define SORT_WORD_NULL 0xffffffffu   // 0 for NULLs, 1 for others; `descending` swaps them
#define SORT_WORD_LENGTH 0xfffffffeu // the length of strings

// Rows that rank_rows orders at most, and a block of it.
#define RANKED_ROWS_MAX 4096
#define RANKED_BLOCK_ROWS 32
// Keys by which it orders them at most.
#define RANKED_KEYS_MAX 16

typedef struct RankedKey {
    ColumnView column;
    uint32_t descending;
    uint32_t nulls_first;
} RankedKey;

// rank_rows
typedef struct RankRows {
    uint64_t order; // uint32_t [row_count]: receives the numbers of the rows, the first row's first
    uint64_t row_count;
    uint32_t key_count; // at least 1
    uint32_t reserved;
    RankedKey keys[RANKED_KEYS_MAX];
} RankRows;

// count_digits, scatter_digits
typedef struct SortDigits {
    uint64_t words;         // uint64_t [row_count]
    uint64_t rows;          // uint32_t [row_count]
    uint64_t digit_counts;  // uint32_t [DIGIT_VALUES * tiles], digit by digit
    uint64_t digit_offsets; // uint64_t, the exclusive sums of digit_counts
    uint64_t target_words;
    uint64_t target_rows;
    uint64_t row_count;
    uint32_t shift;         // the digit's lowest bit
    uint32_t tiles;
} SortDigits;

// Bytes of a text that a word has.
#define TEXT_WORD_BYTES 7
// The lowest 4 bits of a word: how many bytes the text has from its first one on; this, if they are more than it has.
#define TEXT_GOES_ON 8
// A launch compares fewer bytes of a text.
#define TEXT_STRETCH_MAX (1ull << 22)
// Bits below a group's number: at most 2 * TEXT_STRETCH_MAX.
#define TEXT_LEAVING_BITS 24

// compare_texts
typedef struct CompareTexts {
    uint64_t cells;       // StringCell, by row
    uint64_t rows;        // uint32_t [count], group by group
    uint64_t leaders;     // uint32_t [count]: the place that the group is compared with; 0: the middle of a single group
    uint64_t groups;      // uint32_t [count]: the group's first place; not read of a single group
    uint64_t shared;      // uint32_t [count]: bytes known to be the group's; then those that are the leader's too
    uint64_t group_words; // int64_t [count]: the group, and where and to which side the text leaves the leader
    uint64_t text_words;  // int64_t [count]: the bytes from there on
    uint64_t count;
    uint32_t bytes_max;   // compared of a text; less than TEXT_STRETCH_MAX
    uint32_t reserved;
} CompareTexts;

// mark_text_groups, rank_text_groups, keep_text_groups
typedef struct TextGroups {
    uint64_t rows;          // as of CompareTexts
    uint64_t groups;        // 0: a single group
    uint64_t shared;
    uint64_t group_words;
    uint64_t text_words;
    uint64_t order;         // uint32_t [count]: places in their new order
    uint64_t starts;        // uint8_t [count]: whether a group starts there, in the new order as all that follows
    uint64_t starts_before; // uint64_t [count]: exclusive sums of starts
    uint64_t firsts;        // uint32_t [group_count]: where groups start
    uint64_t ranks;         // int64_t, by row: the group's first place is added, less that of the group before
    uint64_t kept;          // uint8_t [count]: whether more bytes decide
    uint64_t kept_before;   // uint64_t [count]: exclusive sums of kept
    uint64_t kept_places;   // uint32_t [kept_count]
    uint64_t kept_rows;     // uint32_t [kept_count]: of the next round, as the three that follow
    uint64_t kept_groups;
    uint64_t kept_leaders;
    uint64_t kept_shared;
    uint64_t count;
    uint64_t group_count;
    uint64_t kept_count;
} TextGroups;
