// Decompression of formats whose elements are literal bytes and copies of earlier output.
//
// A block handles a page, a window of BLOCK_THREADS input bytes at a time:
//
//   1. every thread reads the element that would start at its byte;
//   2. the elements that really start there are those reached from the window's first byte, found by pointer doubling;
//   3. a sum over their lengths places their output;
//   4. every thread takes output bytes and follows copies back until it is at a literal, or at output from before the
//      window.
//
// Several blocks may handle a page's parts, whose copies then reach no further back than to the part's first byte, and of which each begins
// with an element.
//
// A codec is a struct with two functions: `open` reads what comes before the first element, and `read` reads the
// element at a position:
//   READ_WHOLE: the element is complete. READ_BAD: there is none. READ_LATER: it is too long to be read by a thread
//   that only guesses; the window's first thread reads it when it is there.
//
// Source: the doubling is Wyllie's list ranking, "The Complexity of Parallel Computations", 1979; guessing at every
// byte is ours for these formats.
#pragma once

#include "../abi/parquet.h"
#include "../common/block.cuh"
#include "../common/bits.cuh"
#include "../common/report_error.cuh"

// No element of either format is shorter than two bytes.
#define ELEMENTS_MAX (BLOCK_THREADS / 2)
// 2^DOUBLINGS elements or more are reached.
#define DOUBLINGS 7
static_assert((1 << DOUBLINGS) >= ELEMENTS_MAX, "every element of a window is reached");
// The place after the window.
#define WINDOW_END BLOCK_THREADS
// The sum over a window has the count of elements above, and the bytes of output below this bit.
#define COUNT_SHIFT 48

enum ReadResult { READ_WHOLE, READ_BAD, READ_LATER };

// Literal bytes, then a copy; either may be empty.
struct Element {
    uint32_t encoded_bytes;
    uint32_t literal;       // offset in the input
    uint32_t literal_bytes;
    uint32_t copy_bytes;
    uint32_t copy_distance;
};

struct ElementTable {
    uint32_t start[ELEMENTS_MAX + 1]; // output, from the window's first byte on
    uint32_t literal[ELEMENTS_MAX];
    uint32_t literal_bytes[ELEMENTS_MAX];
    uint32_t copy_distance[ELEMENTS_MAX];
};

DEVICE uint32_t find_element(const ElementTable &table, uint32_t count, uint32_t place) {
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (table.start[middle] <= place) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Which byte a place of the window's output holds: follows copies back.
DEVICE uint8_t resolve_byte(const ElementTable &table, uint32_t count, uint32_t place, uint64_t source, uint64_t target) {
    for (;;) {
        uint32_t number = find_element(table, count, place);
        uint32_t within = place - table.start[number];
        uint32_t literal_bytes = table.literal_bytes[number];
        if (within < literal_bytes) return load_u8(source + table.literal[number] + within);
        uint32_t distance = table.copy_distance[number];
        uint32_t copied = within - literal_bytes;
        // A copy that overlaps itself repeats what lies before it.
        if (copied >= distance) copied %= distance;
        int64_t origin = (int64_t)table.start[number] + literal_bytes + copied - distance;
        if (origin < 0) return load_u8(target + (uint64_t)origin);
        place = (uint32_t)origin;
        count = number + 1;
    }
}

// Marks the threads whose element is reached from the first.
DEVICE void mark_reached(uint16_t *jumps, uint8_t *reached, uint32_t next) {
    jumps[threadIdx.x] = (uint16_t)next;
    reached[threadIdx.x] = threadIdx.x == 0;
    __syncthreads();
    for (uint32_t round = 0; round < DOUBLINGS; round++) {
        uint32_t jump = jumps[threadIdx.x];
        uint32_t further = jump < WINDOW_END ? jumps[jump] : WINDOW_END;
        bool marks = reached[threadIdx.x] && jump < WINDOW_END;
        __syncthreads();
        if (marks) reached[jump] = 1;
        jumps[threadIdx.x] = (uint16_t)further;
        __syncthreads();
    }
}

// Decompresses a page's bytes from `first` to `last`, of which the first element is at a position. Says false if they are not to be had from
// there: what has been written then has no meaning. The page's last byte needs all of its input. Every thread calls it.
template <class Codec>
DEVICE bool decompress_part(const Codec &codec, const CompressedPage &page, uint32_t position, uint32_t first, uint32_t last) {
    SHARED ElementTable table;
    SHARED uint16_t jumps[BLOCK_THREADS];
    SHARED uint8_t reached[BLOCK_THREADS];
    SHARED uint32_t failed, strays, next_position, whole_count;
    const uint32_t end = page.source_bytes;
    uint32_t produced = first;
    while (position < end && (produced < last || last == page.target_bytes)) {
        const uint32_t at = position + threadIdx.x;
        Element element{0, 0, 0, 0, 0};
        ReadResult result = READ_BAD;
        if (at >= position && at < end) result = codec.read(page.source, at, end, threadIdx.x == 0, &element);
        uint32_t next = WINDOW_END;
        if (result == READ_WHOLE && element.encoded_bytes < WINDOW_END - threadIdx.x) {
            next = threadIdx.x + element.encoded_bytes;
        }
        // Elements at or after the end are none.
        if (next < WINDOW_END && next >= end - position) next = WINDOW_END;
        if (threadIdx.x == 0) failed = strays = 0;
        mark_reached(jumps, reached, next);
        const bool counts = reached[threadIdx.x] && result == READ_WHOLE;
        if (reached[threadIdx.x] && result == READ_BAD) failed = 1;
        // The window ends where an element must be read by the first thread.
        if (reached[threadIdx.x] && result == READ_LATER) next_position = at;
        const uint64_t output = (uint64_t)element.literal_bytes + element.copy_bytes;
        uint64_t total;
        const uint64_t before = block_exclusive_sum(counts ? (1ull << COUNT_SHIFT) + output : 0, &total);
        const uint32_t number = (uint32_t)(before >> COUNT_SHIFT);
        const uint64_t start = before & ((1ull << COUNT_SHIFT) - 1);
        uint32_t count = (uint32_t)(total >> COUNT_SHIFT);
        uint64_t total_bytes = total & ((1ull << COUNT_SHIFT) - 1);
        if (failed || count == 0) return false;
        if (total_bytes > last - produced) {
            if (last == page.target_bytes) return false;
            // The part ends where an element starts.
            total_bytes = last - produced;
            if (threadIdx.x == 0) whole_count = 0;
            __syncthreads();
            if (counts && start == total_bytes) whole_count = number;
            __syncthreads();
            count = whole_count;
            if (count == 0) return false;
        }
        if (counts && number < count) {
            table.start[number] = (uint32_t)start;
            table.literal[number] = element.literal;
            table.literal_bytes[number] = element.literal_bytes;
            table.copy_distance[number] = element.copy_distance;
            const uint64_t copy_start = produced - first + start + element.literal_bytes;
            if (element.copy_bytes && (element.copy_distance == 0 || element.copy_distance > copy_start)) strays = 1;
            // Whole elements are reached one after another, so the last one's thread knows where the next starts.
            if (number == count - 1 && next >= WINDOW_END) next_position = at + element.encoded_bytes;
        }
        __syncthreads();
        if (strays) return false;
        const uint64_t target = page.target + produced;
        for (uint32_t place = threadIdx.x; place < total_bytes; place += BLOCK_THREADS) {
            ((uint8_t *)target)[place] = resolve_byte(table, count, place, page.source, target);
        }
        position = next_position;
        produced += (uint32_t)total_bytes;
        __syncthreads();
    }
    return produced == last;
}

template <class Codec>
DEVICE bool decompress_page(const CompressedPage &page) {
    const Codec codec;
    uint32_t position = 0;
    return codec.open(page, &position) && decompress_part(codec, page, position, 0, page.target_bytes);
}

// Pages lie at multiples of PAGE_ALIGNMENT, and whole words are loaded.
DEVICE void clear_gap(const CompressedPage &page) {
    const uint64_t end = page.target + page.target_bytes;
    const uint32_t gap = (uint32_t)(-end % PAGE_ALIGNMENT);
    if (threadIdx.x < gap) ((uint8_t *)end)[threadIdx.x] = 0;
}
