// Finds where to begin within pages of differences, so that they can then be decoded from any multiple of
// DELTA_SEGMENT_VALUES on.
//
// Grid:    one block a page.
// Inputs:  the page, with its levels.
// Outputs: the page's DeltaIndex.
// Status:  none: a page that can't be read is marked in its index.
// Traffic: the page's bytes read once, those of strings too, 16 B written a segment.
// Source:  one warp walks over blocks' headers, as libcudf's decoder of the same pages does; we keep what it finds. The
//          other warps add up the segments that it found before.
#include "../common/block.cuh"
#include "deltas.cuh"
#include "page.cuh"

// Segments that are found at once.
#define FOUND_SEGMENTS 64
#define ADDING_WARPS (BLOCK_THREADS / WARP_THREADS - 1)
static_assert(DELTA_SEGMENT_VALUES == WARP_DELTAS, "a warp takes a segment at once");

struct FoundSegments {
    uint32_t blocks[FOUND_SEGMENTS];
    // What the differences add up to; with each as often as there are values after it in the segment.
    uint64_t sums[FOUND_SEGMENTS];
    uint32_t weighted_sums[FOUND_SEGMENTS];
};

// A thread's way over the blocks.
struct BlockCursor {
    uint32_t at;      // of a block's header
    uint32_t next_at; // of the next block's
    uint32_t end;     // the first difference of the next block
};

// Finds the blocks of the segments from `segment` on. Says false if they can't be read.
DEVICE bool find_blocks(const DeltaStream &stream, BlockCursor &cursor, uint32_t segment, uint32_t count, uint32_t *blocks) {
    for (uint32_t number = 0; number < count; number++) {
        const uint32_t first = (segment + number) * DELTA_SEGMENT_VALUES;
        while (first < stream.count && first >= cursor.end) {
            cursor.at = cursor.next_at;
            if (!skip_block(stream, &cursor.next_at, cursor.end)) return false;
            cursor.end += stream.miniblocks * stream.miniblock_values;
        }
        blocks[number] = cursor.at;
    }
    return true;
}

// Moves past the blocks that are left: where a page's strings begin.
DEVICE bool find_end(const DeltaStream &stream, BlockCursor &cursor) {
    while (cursor.end < stream.count) {
        if (!skip_block(stream, &cursor.next_at, cursor.end)) return false;
        cursor.end += stream.miniblocks * stream.miniblock_values;
    }
    return true;
}

DEVICE uint32_t values_of_segment(uint32_t value_count, uint32_t segment) {
    const uint32_t left = value_count - segment * DELTA_SEGMENT_VALUES;
    return left < DELTA_SEGMENT_VALUES ? left : DELTA_SEGMENT_VALUES;
}

// Every thread of a warp calls it.
DEVICE bool add_segment(const DeltaStream &stream, FoundSegments &found, uint32_t number, uint32_t segment) {
    const uint32_t first = segment * DELTA_SEGMENT_VALUES;
    const uint32_t end = stream.count - first < DELTA_SEGMENT_VALUES ? stream.count : first + DELTA_SEGMENT_VALUES;
    const uint32_t last = first + values_of_segment(stream.count + 1, segment) - 1;
    uint64_t sum = 0, differences[THREAD_DELTAS];
    uint32_t weighted_sum = 0;
    uint32_t at = found.blocks[number];
    ThreadDeltas own;
    const bool is_sound = find_deltas(stream, &at, first, end, &own);
    unpack_deltas(stream, own, differences);
    const uint32_t behind = last - first - threadIdx.x % WARP_THREADS * THREAD_DELTAS;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        sum += differences[item];
        weighted_sum += (behind - item) * (uint32_t)differences[item];
    }
    sum = warp_sum(sum);
    weighted_sum = warp_sum(weighted_sum);
    if (threadIdx.x % WARP_THREADS == 0) {
        found.sums[number] = sum;
        found.weighted_sums[number] = weighted_sum;
    }
    return is_sound;
}

// Whether a byte of a page from an offset on is beyond ASCII, as far as the thread has looked at them.
DEVICE bool sees_wide(const EncodedPage &page, uint32_t offset) {
    bool is_wide = false;
    for (uint64_t at = (uint64_t)offset + threadIdx.x * 4; at < page.values_bytes; at += BLOCK_THREADS * 4) {
        const uint32_t bytes = load_u32(page.values + at);
        const uint64_t left = page.values_bytes - at;
        is_wide = is_wide || ((left < 4 ? bytes << (32 - 8 * left) : bytes) & 0x80808080u) != 0;
    }
    return is_wide;
}

KERNEL(index_deltas, DecodePages, BLOCK_THREADS) {
    SHARED FoundSegments tables[2];
    SHARED DeltaStream shared_stream;
    // One for each table: what is written in a round is read in the same one, by all.
    SHARED uint32_t value_count, failed[2], end, wide;
    const EncodedPage page = page_at(args, blockIdx.x);
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    DeltaIndex *index = (DeltaIndex *)page.index;
    DeltaSegment *segments = (DeltaSegment *)(index + 1);
    BlockCursor cursor = BlockCursor{0, 0, 0};
    uint64_t value = 0;
    if (threadIdx.x == 0) {
        uint32_t at = 0, count = 0;
        DeltaStream stream = DeltaStream{page.values, page.values_bytes, 0, 1, 8, delta_width_max(page)};
        const bool is_open = find_values(page, &at) && open_deltas(stream, &at, page.row_count, &value, &count);
        failed[0] = failed[1] = !is_open;
        value_count = is_open ? count : 0;
        shared_stream = stream;
        cursor = BlockCursor{at, at, 0};
    }
    __syncthreads();
    const DeltaStream stream = shared_stream;
    const uint32_t segment_count = value_count / DELTA_SEGMENT_VALUES + (value_count % DELTA_SEGMENT_VALUES != 0);
    uint32_t place = 0;
    // One round more: the first only finds, and the last only adds.
    for (uint32_t first = 0; first < segment_count + FOUND_SEGMENTS; first += FOUND_SEGMENTS) {
        const uint32_t turn = first / FOUND_SEGMENTS % 2;
        FoundSegments &before = tables[1 - turn];
        const uint32_t start = first - FOUND_SEGMENTS;
        const uint32_t left = first == 0 ? 0 : segment_count - start;
        const uint32_t count = left < FOUND_SEGMENTS ? left : FOUND_SEGMENTS;
        if (threadIdx.x == 0 && first < segment_count) {
            const uint32_t ahead = segment_count - first < FOUND_SEGMENTS ? segment_count - first : FOUND_SEGMENTS;
            if (!find_blocks(stream, cursor, first, ahead, tables[turn].blocks)) failed[turn] = 1;
        }
        for (uint32_t number = warp - 1; warp > 0 && number < count; number += ADDING_WARPS) {
            if (!add_segment(stream, before, number, start + number)) failed[turn] = 1;
        }
        __syncthreads();
        if (failed[turn]) break;
        if (threadIdx.x == 0) {
            for (uint32_t number = 0; number < count; number++) {
                segments[start + number] = DeltaSegment{value, before.blocks[number], place};
                place += values_of_segment(value_count, start + number) * (uint32_t)value + before.weighted_sums[number];
                value += before.sums[number];
            }
        }
    }
    bool is_sound = false;
    if (threadIdx.x == 0) {
        is_sound = !failed[0] && !failed[1] && find_end(stream, cursor);
        end = cursor.next_at;
        wide = 0;
    }
    __syncthreads();
    if (page.delta_form == DELTA_LENGTHS && sees_wide(page, end)) wide = 1;
    __syncthreads();
    if (threadIdx.x != 0) return;
    *index = DeltaIndex{value_count, stream.miniblocks, stream.miniblock_values, end, is_sound, wide, {}};
}
