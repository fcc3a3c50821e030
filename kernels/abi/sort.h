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
static_assert(sizeof(SortWordBits) == 24, "SortWordBits has 24 bytes");

// measure_sort_words
typedef struct MeasureSortWords {
    ColumnView column;
    uint64_t bits; // SortWordBits
    uint64_t row_count;
    uint32_t word; // as of EncodeSortWords
    uint32_t reserved;
} MeasureSortWords;
static_assert(sizeof(MeasureSortWords) == 48, "MeasureSortWords has 48 bytes");

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
static_assert(sizeof(EncodeSortWords) == 56, "EncodeSortWords has 56 bytes");

#define SORT_WORD_NULL 0xffffffffu   // 0 for NULLs, 1 for others; `descending` swaps them
#define SORT_WORD_LENGTH 0xfffffffeu // the length of strings

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
static_assert(sizeof(SortDigits) == 64, "SortDigits has 64 bytes");
