// DELTA_BINARY_PACKED: numbers as differences, which are packed in miniblocks whose widths a block's header has.
//
// Difference n leads from value n to value n + 1. A warp takes WARP_DELTAS of them, whatever the sizes of blocks are: its
// threads read headers alike, and unpack some each.
//
// Source: Parquet's Encodings.md, "Delta encoding".
#pragma once

#include "../common/bits.cuh"
#include "page.cuh"

// Miniblocks of a block; writers have 4 or 8.
#define MINIBLOCKS_MAX 256

struct DeltaStream {
    uint64_t data; // of the page's values
    uint32_t end;  // from there
    uint32_t count; // of differences
    uint32_t miniblocks; // of a block
    uint32_t miniblock_values;
    uint32_t width_max;
};

struct DeltaBlock {
    uint64_t minimum;
    uint32_t widths; // offset of the miniblocks' widths, which their bits follow
    uint64_t first_widths; // the first WIDTHS_HELD of them, a byte each
};

// Widths that are read at once.
#define WIDTHS_HELD 8

// Bits of a difference, at most. Between numbers of 32 bits it may have 33, as some writers store it.
DEVICE uint32_t delta_width_max(const EncodedPage &page) {
    return page.delta_form == DELTA_INT64 || page.delta_form == DELTA_INT32 ? 64 : 32;
}

// Reads a stream's header at *at, which moves to the first block. Says false if it can't be read, or has more than
// `values_max` values.
DEVICE bool open_deltas(DeltaStream &stream, uint32_t *at, uint32_t values_max, uint64_t *first, uint32_t *value_count) {
    uint64_t block_values = 0, miniblocks = 0, total = 0, zigzag = 0;
    if (!read_varint(stream.data, stream.end, at, &block_values)) return false;
    if (!read_varint(stream.data, stream.end, at, &miniblocks)) return false;
    if (!read_varint(stream.data, stream.end, at, &total)) return false;
    if (!read_varint(stream.data, stream.end, at, &zigzag)) return false;
    if (miniblocks == 0 || miniblocks > MINIBLOCKS_MAX || total > values_max) return false;
    if (block_values == 0 || block_values > 0x7fffffff || block_values % miniblocks) return false;
    if (block_values / miniblocks % 8) return false;
    stream.miniblocks = (uint32_t)miniblocks;
    stream.miniblock_values = (uint32_t)(block_values / miniblocks);
    stream.count = total ? (uint32_t)total - 1 : 0;
    *first = (uint64_t)decode_zigzag(zigzag);
    *value_count = (uint32_t)total;
    return true;
}

// Reads a block's header at `at`, as many bytes at once as a word has: threads wait for every read.
DEVICE bool open_block(const DeltaStream &stream, uint32_t at, DeltaBlock *block) {
    if (at >= stream.end) return false;
    const uint64_t word = load_u64(stream.data + at);
    // The highest bit of every byte that a number may end with.
    const uint64_t ends = ~word & 0x8080808080808080ull;
    uint64_t minimum = 0;
    uint32_t count = 0;
    if (ends) {
        count = (uint32_t)__ffsll((long long)ends) / 8;
        minimum = varint_of(word, count);
        at += count;
        if (at > stream.end) return false;
    } else if (!read_varint(stream.data, stream.end, &at, &minimum)) {
        return false;
    }
    if (stream.end - at < stream.miniblocks) return false;
    const bool has_widths = count > 0 && count + stream.miniblocks <= sizeof(word);
    *block = DeltaBlock{(uint64_t)decode_zigzag(minimum), at, has_widths ? word >> 8 * count : load_u64(stream.data + at)};
    return true;
}

DEVICE uint32_t width_of(const DeltaStream &stream, const DeltaBlock &block, uint32_t miniblock) {
    if (miniblock < WIDTHS_HELD) return (uint32_t)(block.first_widths >> 8 * miniblock) & 0xff;
    return load_u8(stream.data + block.widths + miniblock);
}

// Where the bits of a miniblock end that start at `bits`, or any place beyond the page.
DEVICE uint32_t bits_end(const DeltaStream &stream, uint32_t bits, uint32_t width) {
    const uint64_t end = bits + (uint64_t)stream.miniblock_values / 8 * width;
    return end > 0xffffffffu ? 0xffffffffu : (uint32_t)end;
}

// Moves *at over the block whose first difference is `first`. The last miniblock may be cut off after the last value.
DEVICE bool skip_block(const DeltaStream &stream, uint32_t *at, uint32_t first) {
    DeltaBlock block;
    if (!open_block(stream, *at, &block)) return false;
    uint32_t bits = block.widths + stream.miniblocks;
    for (uint32_t miniblock = 0; miniblock < stream.miniblocks && first < stream.count; miniblock++) {
        const uint32_t width = width_of(stream, block, miniblock);
        if (width > stream.width_max || bits > stream.end) return false;
        bits = bits_end(stream, bits, width);
        first += stream.miniblock_values;
    }
    *at = bits < stream.end ? bits : stream.end;
    return true;
}

// Differences that a thread unpacks at once. They are of one miniblock, and start with a byte.
#define THREAD_DELTAS 8
// Those of a warp.
#define WARP_DELTAS (WARP_THREADS * THREAD_DELTAS)

// A thread's differences.
struct ThreadDeltas {
    uint64_t minimum;
    uint32_t bits; // offset of the first one's bits
    uint32_t width;
    uint32_t count;
};

// Miniblocks of a block as most writers have them: their widths, of a byte each, fill a word.
#define EVEN_MINIBLOCKS 4
// The greatest width of a number of 32 bits.
#define NARROW_WIDTH_MAX 32

// The widths of EVEN_MINIBLOCKS miniblocks that are beyond NARROW_WIDTH_MAX: the highest bit of their bytes.
DEVICE uint32_t wide_widths(uint32_t widths) {
    const uint32_t carry = (0x7f - NARROW_WIDTH_MAX) * 0x01010101u;
    return (((widths & 0x7f7f7f7fu) + carry) | widths) & 0x80808080u;
}

// find_deltas for WARP_DELTAS differences that are all there and are whole blocks, of EVEN_MINIBLOCKS miniblocks whose
// widths are narrow, and of a minimum of at most 28 bits. Says false where one of that does not hold, whatever it has
// written: find_deltas finds out what is so. Threads take their miniblock of the widths' sums, without a loop over them.
DEVICE bool find_even_deltas(const DeltaStream &stream, uint32_t *at, uint32_t first, uint32_t end, ThreadDeltas *own) {
    // Threads of a miniblock, which take so many bytes of it for each bit of its width, and of a block.
    const uint32_t share = stream.miniblock_values / THREAD_DELTAS, block_share = EVEN_MINIBLOCKS * share;
    if (stream.miniblocks != EVEN_MINIBLOCKS || end - first != WARP_DELTAS) return false;
    // A power of two, so that what is divided by it takes no division.
    if (block_share == 0 || block_share > WARP_THREADS || (block_share & (block_share - 1))) return false;
    if (first & (block_share * THREAD_DELTAS - 1)) return false;
    const uint32_t lane = threadIdx.x % WARP_THREADS, share_bits = (uint32_t)__ffs(share) - 1;
    uint32_t next = *at;
    for (uint32_t first_lane = 0; first_lane < WARP_THREADS; first_lane += block_share) {
        if (next >= stream.end) return false;
        const uint64_t word = load_window(stream.data + next, 0);
        // The first byte that a number may end with.
        const uint32_t count = (uint32_t)__ffs(~(uint32_t)word & 0x80808080u) / 8;
        const uint32_t widths = (uint32_t)(word >> 8 * count), sums = widths * 0x01010101u;
        // Neither a sum of narrow widths nor this reaches 2^32.
        const uint32_t header = count + EVEN_MINIBLOCKS, bytes = header + (sums >> 24) * share;
        if (count == 0 || wide_widths(widths) || bytes > stream.end - next) return false;
        const uint32_t place = lane - first_lane;
        if (place < block_share) {
            const uint32_t shift = (place >> share_bits) * 8;
            const uint32_t width = widths >> shift & 0xff, before = (sums >> shift & 0xff) - width;
            const uint32_t zigzag = short_varint_of((uint32_t)word, count);
            const int32_t minimum = (int32_t)(zigzag >> 1) ^ -(int32_t)(zigzag & 1);
            *own = ThreadDeltas{(uint64_t)(int64_t)minimum, next + header + before * share + (place & (share - 1)) * width,
                                width, THREAD_DELTAS};
        }
        next += bytes;
    }
    *at = next;
    return true;
}

// Finds every thread's differences among those from `first`, a multiple of THREAD_DELTAS, to `end`, at most WARP_DELTAS
// of them. The header of the block of the first is at *at, which moves to the header of the block of `end`, or past the
// stream where that is its end. Says false if they can't be read. Every thread of a warp calls it.
DEVICE bool find_deltas(const DeltaStream &stream, uint32_t *at, uint32_t first, uint32_t end, ThreadDeltas *own) {
    *own = ThreadDeltas{0, 0, 0, 0};
    if (find_even_deltas(stream, at, first, end, own)) return true;
    *own = ThreadDeltas{0, 0, 0, 0};
    const uint32_t own_first = first + threadIdx.x % WARP_THREADS * THREAD_DELTAS;
    uint32_t next = first;
    // Neither this nor `next` reaches 2^32: there are less than 2^31 differences, and of a block too.
    uint32_t place = first - first % (stream.miniblocks * stream.miniblock_values);
    while (next < end) {
        DeltaBlock block;
        if (!open_block(stream, *at, &block)) return false;
        uint32_t bits = block.widths + stream.miniblocks;
        for (uint32_t miniblock = 0; miniblock < stream.miniblocks && place < stream.count; miniblock++) {
            // The rest of the block is for others.
            if (next == end && end < stream.count) return true;
            const uint32_t width = width_of(stream, block, miniblock);
            if (width > stream.width_max || bits > stream.end) return false;
            const uint32_t stop = end - place < stream.miniblock_values ? end : place + stream.miniblock_values;
            if (next < stop) {
                if (((uint64_t)(stop - place) * width + 7) / 8 > stream.end - bits) return false;
                if (own_first >= next && own_first < stop) {
                    const uint32_t left = stop - own_first;
                    *own = ThreadDeltas{block.minimum, bits + (own_first - place) / 8 * width, width,
                                        left < THREAD_DELTAS ? left : THREAD_DELTAS};
                }
                next = stop;
            }
            bits = bits_end(stream, bits, width);
            place += stream.miniblock_values;
        }
        *at = bits < stream.end ? bits : stream.end;
    }
    return true;
}

// A thread's numbers of at most NARROW_WIDTH_MAX bits, as many of them at once as a window has.
template <uint32_t Windows>
DEVICE void unpack_windows(uint64_t data, uint32_t width, uint32_t *numbers) {
    const uint32_t count = THREAD_DELTAS / Windows;
    const uint32_t mask = width < 32 ? (1u << width) - 1 : 0xffffffffu;
#pragma unroll
    for (uint32_t window = 0; window < Windows; window++) {
        const uint64_t bits = load_window(data, window * count * width);
#pragma unroll
        for (uint32_t item = 0; item < count; item++) numbers[window * count + item] = (uint32_t)(bits >> item * width) & mask;
    }
}

// What a thread's differences are more than their minimum, where no width of the warp's is more than NARROW_WIDTH_MAX; those
// that are not there have no meaning, and bytes are read for them. Every thread of a warp calls it: all take the same way.
DEVICE void unpack_narrow(const DeltaStream &stream, const ThreadDeltas &own, uint32_t *numbers) {
    const uint64_t data = stream.data + own.bits;
    if (__ballot_sync(0xffffffffu, own.width > 64 / THREAD_DELTAS) == 0) {
        unpack_windows<1>(data, own.width, numbers);
    } else if (__ballot_sync(0xffffffffu, own.width > 2 * 64 / THREAD_DELTAS) == 0) {
        unpack_windows<2>(data, own.width, numbers);
    } else {
        unpack_windows<4>(data, own.width, numbers);
    }
}

// Whether a width of the warp's is more than NARROW_WIDTH_MAX. Every thread of a warp calls it.
DEVICE bool has_wide_deltas(const ThreadDeltas &own) { return __ballot_sync(0xffffffffu, own.width > NARROW_WIDTH_MAX) != 0; }

// A thread's differences as numbers that wrap around; those that are not there have no meaning, and bytes are read for them.
// Every thread of a warp calls it.
template <class Number>
DEVICE void unpack_all_deltas(const DeltaStream &stream, const ThreadDeltas &own, Number *differences) {
    if (has_wide_deltas(own)) {
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
            differences[item] = (Number)(load_wide_bits(stream.data + own.bits, item * own.width, own.width) + own.minimum);
        }
        return;
    }
    uint32_t numbers[THREAD_DELTAS];
    unpack_narrow(stream, own, numbers);
#pragma unroll
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) differences[item] = (Number)(numbers[item] + own.minimum);
}

// The same; those that are not there are 0.
template <class Number>
DEVICE void unpack_deltas(const DeltaStream &stream, const ThreadDeltas &own, Number *differences) {
    unpack_all_deltas(stream, own, differences);
#pragma unroll
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        if (item >= own.count) differences[item] = 0;
    }
}
