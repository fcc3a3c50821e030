// Blocks of segments, each of which a warp has: a thread has every 32nd row of it, and a bit for each of these in its mask.
#pragma once

#include "../abi/segment.h"
#include "../common/launch.h"
#include "../common/bits.cuh"
#include "../common/block.cuh"

// Rows of a thread.
#define THREAD_ROWS (SEGMENT_BLOCK_ROWS / WARP_THREADS)
static_assert(THREAD_ROWS == 32, "a mask has a bit for each row of a thread");

DEVICE uint32_t lane_of_thread() { return threadIdx.x % WARP_THREADS; }

// The place of the one that a block is of: where it would be if all had as many blocks, or else by halves.
template <class Range>
DEVICE uint32_t find_by_block(const Range *ranges, uint32_t count, uint64_t block, uint64_t block_count) {
    const uint32_t likely = (uint32_t)(block * count / block_count);
    const bool begins_before = ranges[likely].first_block <= block;
    if (begins_before && (likely + 1 == count || ranges[likely + 1].first_block > block)) return likely;
    uint32_t low = begins_before ? likely : 0, high = begins_before ? count : likely;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (ranges[middle].first_block <= block) low = middle;
        else high = middle;
    }
    return low;
}

// A block of a launch.
struct PlacedBlock {
    const SegmentView *views;
    uint64_t number;       // in the segment
    int64_t target_origin; // what a row's number in the segment lacks to be its place among those of all ranges
    uint32_t first, end;   // the rows that are meant, of the block's
};

DEVICE PlacedBlock place_block(const SegmentRows &rows, uint64_t block) {
    const SegmentRange *ranges = (const SegmentRange *)rows.ranges;
    const SegmentRange &range = ranges[find_by_block(ranges, rows.range_count, block, rows.block_count)];
    PlacedBlock placed;
    placed.views = (const SegmentView *)range.views;
    placed.number = range.first_row / SEGMENT_BLOCK_ROWS + (block - range.first_block);
    const uint64_t begin = placed.number * SEGMENT_BLOCK_ROWS, last = (uint64_t)range.first_row + range.row_count;
    placed.first = range.first_row > begin ? (uint32_t)(range.first_row - begin) : 0;
    placed.end = last < begin + SEGMENT_BLOCK_ROWS ? (uint32_t)(last - begin) : SEGMENT_BLOCK_ROWS;
    placed.target_origin = (int64_t)range.target_row - (int64_t)range.first_row;
    return placed;
}

DEVICE SegmentBlock head_of(const SegmentView &view, uint64_t number) { return ((const SegmentBlock *)view.blocks)[number]; }

// Lines of words for so many rows.
DEVICE uint32_t lines_of(uint32_t row_count, uint32_t width) { return (row_count * width + SEGMENT_BLOCK_ROWS - 1) / SEGMENT_BLOCK_ROWS; }

DEVICE uint64_t words_of(const SegmentView &view, const SegmentBlock &block) {
    return view.words + (uint64_t)block.first_line * (SEGMENT_BLOCK_WORDS * sizeof(uint32_t));
}

// Bit i of thread j becomes bit j of thread i: of a word of bits a thread, for 32 rows that follow one another, a mask of the thread's own
// rows, and the other way. Every thread of the warp calls it.
DEVICE uint32_t transposed_bits(uint32_t bits) {
    const uint32_t lane = lane_of_thread();
    uint32_t low = 0x0000ffffu;
#pragma unroll
    for (uint32_t step = WARP_THREADS / 2; step; step /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, step);
        bits = lane & step ? (bits & ~low) | (other >> step & low) : (bits & low) | (other & low) << step;
        low ^= low << step / 2;
    }
    return bits;
}

// Of this thread's rows, those from `first` to `end` of the block.
DEVICE uint32_t rows_between(uint32_t first, uint32_t end) {
    const uint32_t lane = lane_of_thread();
    const uint32_t skipped = first > lane ? (first - lane + WARP_THREADS - 1) / WARP_THREADS : 0;
    const uint32_t passed = end > lane ? (end - lane + WARP_THREADS - 1) / WARP_THREADS : 0;
    const uint32_t below = passed >= 32 ? 0xffffffffu : (1u << passed) - 1;
    return skipped >= 32 ? 0 : below >> skipped << skipped;
}

DEVICE bool bit_of(uint64_t bits, uint64_t row) { return ((const uint32_t *)bits)[row / 32] >> (row % 32) & 1; }

// Numbers of the rows whose bits are set, of which this thread has the word of 32. Every thread of the warp calls it.
DEVICE void list_rows(uint32_t word, uint32_t before, uint16_t *listed) {
    for (; word; word &= word - 1) listed[before++] = (uint16_t)(lane_of_thread() * 32 + (uint32_t)__ffs((int)word) - 1);
    __syncwarp();
}

// A number of up to 32 bits that begins at a bit of two words.
DEVICE uint32_t bits_of_words(const uint32_t *words, uint32_t bit, uint32_t ones) { return __funnelshift_r(words[0], words[1], bit) & ones; }

DEVICE uint32_t ones_of(uint32_t width) { return width == 32 ? 0xffffffffu : (1u << width) - 1; }

// The distance of a row of at most 32 bits. The word behind the last one is readable.
DEVICE uint32_t short_distance(const uint32_t *words, uint32_t row, uint32_t width) {
    const uint32_t bit = row * width;
    return bits_of_words(words + bit / 32, bit, ones_of(width));
}

// What one load brings.
struct alignas(16) Words4 {
    uint32_t words[4];
};
