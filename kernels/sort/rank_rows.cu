// The order of few rows by some keys, in one launch: a row's place is the number of rows that come before it.
//
// Grid:    ceil(row_count / RANKED_BLOCK_ROWS).
// Ordering: stable.
// Traffic: every block reads all keys, which its multiprocessor's cache holds.
// Work:    row_count squared comparisons, of words of the first key for most pairs; texts are short (the host has measured them).
// Source:  counting the rows before each is the oldest of parallel sorts (Muller and Preparata, "Bounds to Complexities of
//          Networks for Sorting and for Switching", JACM 1975, section 3).
#include "../common/launch.h"
#include "../abi/sort.h"
#include "sort_word.cuh"

// Threads that share a row.
#define LANES (BLOCK_THREADS / RANKED_BLOCK_ROWS)

// Words of a key but for text, and which of them is compared first; the others follow up or down.
DEVICE uint32_t word_count(uint32_t cell_type) {
    switch (cell_type) {
        case CELL_INT128:
        case CELL_INTERVAL:
        case CELL_BYTES16: return 2;
        case CELL_INT256: return 4;
        default: return 1;
    }
}

// The number of the word that is compared after `before` others: text and uuids begin with word 0, numbers end with it.
DEVICE uint32_t word_after(uint32_t cell_type, uint32_t before) {
    bool ascends = cell_type == CELL_STRING || cell_type == CELL_BYTES16;
    return ascends ? before : word_count(cell_type) - 1 - before;
}

// A word of a row's first key that is in the order of the rows, but for rows with the same one.
DEVICE uint64_t first_word(const RankedKey &key, uint64_t row) {
    if (key.column.validity != 0 && cell_is_null(key.column, row)) return key.nulls_first ? 0 : ~0ull;
    uint64_t word = sort_word(key.column, row, word_after(key.column.cell_type, 0));
    if (key.descending) word = ~word;
    if (key.column.validity == 0) return word;
    // NULLs have an end of the range to themselves.
    return (word >> 1) + (key.nulls_first ? 1ull << 63 : 0);
}

// Less than, equal to or greater than zero as `a` comes before `b`, at the same place, or after it.
DEVICE int32_t compare_words(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

DEVICE int32_t compare_key(const RankedKey &key, uint64_t a, uint64_t b) {
    const ColumnView &column = key.column;
    bool a_is_null = cell_is_null(column, a), b_is_null = cell_is_null(column, b);
    if (a_is_null || b_is_null) {
        if (a_is_null == b_is_null) return 0;
        return a_is_null == (key.nulls_first != 0) ? -1 : 1;
    }
    uint32_t count = word_count(column.cell_type);
    if (column.cell_type == CELL_STRING) {
        uint32_t a_length = cell_at<StringCell>(column, a).length, b_length = cell_at<StringCell>(column, b).length;
        count = ((a_length < b_length ? a_length : b_length) + 7) / 8;
    }
    int32_t order = 0;
    for (uint32_t before = 0; before < count && order == 0; before++) {
        uint32_t word = word_after(column.cell_type, before);
        order = compare_words(sort_word(column, a, word), sort_word(column, b, word));
    }
    if (order == 0 && column.cell_type == CELL_STRING) {
        order = compare_words(sort_word(column, a, SORT_WORD_LENGTH), sort_word(column, b, SORT_WORD_LENGTH));
    }
    return key.descending ? -order : order;
}

DEVICE bool comes_before(const RankRows &args, uint64_t a, uint64_t b) {
    for (uint32_t place = 0; place < args.key_count; place++) {
        int32_t order = compare_key(args.keys[place], a, b);
        if (order != 0) return order < 0;
    }
    return a < b;
}

KERNEL(rank_rows, RankRows, BLOCK_THREADS) {
    SHARED uint64_t words[BLOCK_THREADS];
    const uint64_t row = (uint64_t)blockIdx.x * RANKED_BLOCK_ROWS + threadIdx.x / LANES;
    const uint32_t lane = threadIdx.x % LANES;
    const bool is_row = row < args.row_count;
    const uint64_t own = is_row ? first_word(args.keys[0], row) : 0;
    uint32_t before = 0;
    for (uint64_t first = 0; first < args.row_count; first += BLOCK_THREADS) {
        if (first + threadIdx.x < args.row_count) words[threadIdx.x] = first_word(args.keys[0], first + threadIdx.x);
        __syncthreads();
        uint64_t left = args.row_count - first;
        uint32_t count = left < BLOCK_THREADS ? (uint32_t)left : BLOCK_THREADS;
        for (uint32_t other = lane; is_row && other < count; other += LANES) {
            uint64_t word = words[other];
            before += word < own || (word == own && comes_before(args, first + other, row));
        }
        __syncthreads();
    }
    for (uint32_t distance = LANES / 2; distance > 0; distance /= 2) {
        before += __shfl_xor_sync(0xffffffffu, before, distance);
    }
    if (is_row && lane == 0) ((uint32_t *)args.order)[before] = (uint32_t)row;
}
