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

// The word of a cell that decides first: the highest of a number, the first bytes of text and uuids.
DEVICE uint32_t leading_word(uint32_t cell_type) {
    switch (cell_type) {
        case CELL_INT128:
        case CELL_INTERVAL: return 1;
        case CELL_INT256: return 3;
        default: return 0;
    }
}

// A word of a row's first key that is in the order of the rows, but for rows with the same one.
DEVICE uint64_t first_word(const RankedKey &key, uint64_t row) {
    if (key.column.validity != 0 && cell_is_null(key.column, row)) return key.nulls_first ? 0 : ~0ull;
    uint64_t word = sort_word(key.column, row, leading_word(key.column.cell_type));
    if (key.descending) word = ~word;
    if (key.column.validity == 0) return word;
    // NULLs have an end of the range to themselves.
    return (word >> 1) + (key.nulls_first ? 1ull << 63 : 0);
}

// Less than, equal to or greater than zero as `a` comes before `b`, at the same place, or after it.
DEVICE int compare_key(const RankedKey &key, uint64_t a, uint64_t b) {
    bool a_is_null = cell_is_null(key.column, a), b_is_null = cell_is_null(key.column, b);
    if (a_is_null || b_is_null) {
        if (a_is_null == b_is_null) return 0;
        return a_is_null == (key.nulls_first != 0) ? -1 : 1;
    }
    int order = compare_cells(key.column, a, key.column, b);
    return key.descending ? -order : order;
}

DEVICE bool comes_before(const RankRows &args, uint64_t a, uint64_t b) {
    for (uint32_t place = 0; place < args.key_count; place++) {
        int order = compare_key(args.keys[place], a, b);
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
