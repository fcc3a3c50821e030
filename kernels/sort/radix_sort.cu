// A stable sort of row numbers by 64-bit words, 8 bits a pass, least significant digit first.
//
// Bits that are the same in every row need no pass: measure_sort_words finds them.
//
// Grid:    measure_sort_words, encode_sort_words: any number of blocks; the others: ceil(row_count / SORT_TILE_ROWS).
// Ordering: stable. Sorting by the last key first and the first key last sorts by all of them.
// Traffic: a pass reads words twice and rows once, and writes both.
// Source:  LSD radix sort with counts per tile, Satish, Harris, Garland, "Designing Efficient Sorting Algorithms for
//          Manycore GPUs", IPDPS 2009, section IV. We differ: ranks within a warp come from votes on the digit's bits.
#include "../common/launch.h"
#include "../abi/sort.h"
#include "sort_word.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)

// Atomics only where something changes.
DEVICE void add_bits(uint64_t *target, uint64_t bits) {
    if (bits & ~*(volatile uint64_t *)target) atomicOr((unsigned long long *)target, (unsigned long long)bits);
}

KERNEL(measure_sort_words, MeasureSortWords, BLOCK_THREADS) {
    uint64_t ones = 0, zeros = 0, greatest = 0;
    uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS;
    for (uint64_t row = (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < args.row_count; row += step) {
        if (args.word != SORT_WORD_NULL && cell_is_null(args.column, row)) continue;
        uint64_t word = sort_word(args.column, row, args.word);
        ones |= word;
        zeros |= ~word;
        greatest = word > greatest ? word : greatest;
    }
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        ones |= __shfl_xor_sync(0xffffffffu, ones, distance);
        zeros |= __shfl_xor_sync(0xffffffffu, zeros, distance);
        uint64_t other = __shfl_xor_sync(0xffffffffu, greatest, distance);
        greatest = other > greatest ? other : greatest;
    }
    if (threadIdx.x % WARP_THREADS != 0) return;
    SortWordBits *bits = (SortWordBits *)args.bits;
    add_bits(&bits->ones, ones);
    add_bits(&bits->zeros, zeros);
    if (greatest > *(volatile uint64_t *)&bits->greatest) {
        atomicMax((unsigned long long *)&bits->greatest, (unsigned long long)greatest);
    }
}

KERNEL(encode_sort_words, EncodeSortWords, BLOCK_THREADS) {
    uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS;
    for (uint64_t place = (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; place < args.row_count; place += step) {
        uint64_t row = ((const uint32_t *)args.rows)[place];
        uint64_t word = sort_word(args.column, row, args.word);
        ((uint64_t *)args.words)[place] = args.descending ? ~word : word;
    }
}

KERNEL(count_digits, SortDigits, BLOCK_THREADS) {
    SHARED uint32_t counts[DIGIT_VALUES];
    counts[threadIdx.x] = 0;
    __syncthreads();
    uint64_t first = (uint64_t)blockIdx.x * SORT_TILE_ROWS;
    for (uint32_t item = 0; item < SORT_TILE_ROWS / BLOCK_THREADS; item++) {
        uint64_t place = first + item * BLOCK_THREADS + threadIdx.x;
        if (place < args.row_count) {
            uint32_t digit = (uint32_t)(((const uint64_t *)args.words)[place] >> args.shift) & (DIGIT_VALUES - 1);
            atomicAdd(&counts[digit], 1u);
        }
    }
    __syncthreads();
    ((uint32_t *)args.digit_counts)[(uint64_t)threadIdx.x * args.tiles + blockIdx.x] = counts[threadIdx.x];
}

KERNEL(scatter_digits, SortDigits, BLOCK_THREADS) {
    // Where the next row of each digit goes, and the rows of each warp in this round.
    SHARED uint64_t targets[DIGIT_VALUES];
    SHARED uint32_t warp_counts[WARPS][DIGIT_VALUES];
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    targets[threadIdx.x] = ((const uint64_t *)args.digit_offsets)[(uint64_t)threadIdx.x * args.tiles + blockIdx.x];
    uint64_t first = (uint64_t)blockIdx.x * SORT_TILE_ROWS;
    for (uint32_t item = 0; item < SORT_TILE_ROWS / BLOCK_THREADS; item++) {
        if (first + item * BLOCK_THREADS >= args.row_count) break;
        uint64_t place = first + item * BLOCK_THREADS + threadIdx.x;
        bool is_row = place < args.row_count;
        uint64_t word = is_row ? ((const uint64_t *)args.words)[place] : 0;
        uint32_t digit = (uint32_t)(word >> args.shift) & (DIGIT_VALUES - 1);
        for (uint32_t other = 0; other < WARPS; other++) warp_counts[other][threadIdx.x] = 0;
        __syncthreads();
        // The lanes of this warp with the same digit.
        uint32_t peers = __ballot_sync(0xffffffffu, is_row);
        for (uint32_t bit = 0; bit < 8; bit++) {
            uint32_t votes = __ballot_sync(0xffffffffu, (digit >> bit) & 1);
            peers &= (digit >> bit) & 1 ? votes : ~votes;
        }
        uint32_t rank = __popc(peers & ((1u << lane) - 1));
        if (is_row && rank == 0) warp_counts[warp][digit] = __popc(peers);
        __syncthreads();
        if (is_row) {
            uint64_t target = targets[digit] + rank;
            for (uint32_t other = 0; other < warp; other++) target += warp_counts[other][digit];
            ((uint64_t *)args.target_words)[target] = word;
            ((uint32_t *)args.target_rows)[target] = ((const uint32_t *)args.rows)[place];
        }
        __syncthreads();
        uint32_t in_round = 0;
        for (uint32_t other = 0; other < WARPS; other++) in_round += warp_counts[other][threadIdx.x];
        targets[threadIdx.x] += in_round;
        __syncthreads();
    }
}
