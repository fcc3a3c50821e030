// Decodes delta encodings: integers, lengths of strings, and prefixes that strings share with the one before.
//
// decode_deltas
//   Grid:    one block a listed page.
//   Outputs: scratch[value_count]: int64_t, or StringPlace of a string's bytes in the page; for DELTA_STRINGS these
//            are suffixes, prefixes[value_count] has the lengths of prefixes, and the state's string_bytes is the sum
//            of both. Of the state `located`, and `wide` for strings.
//   Status:  ERROR_PAGE if a number, a length or a prefix is not possible.
// build_strings
//   Grid:    one block of BUILD_THREADS a listed page of DELTA_STRINGS.
//   Outputs: strings[string_bytes], then PAGE_PADDING_BYTES zeros; scratch[value_count]: StringPlace in `strings`.
// Source:  Parquet's Encodings.md, "Delta encoding". Miniblocks are handled a block at a time: one thread reads the
//          header, all threads unpack, and a sum over the block turns differences into values.
#include "../common/block.cuh"
#include "bits.cuh"
#include "page.cuh"

// Miniblocks of a block; writers have 4.
#define MINIBLOCKS_MAX 256

struct DeltaStream {
    uint64_t first;
    uint64_t minimum;
    uint64_t block_values;
    uint32_t miniblock_values;
    uint32_t at;
    uint32_t failed;
    uint32_t offsets[MINIBLOCKS_MAX];
    uint8_t widths[MINIBLOCKS_MAX];
};

DEVICE void open_deltas(DeltaStream &stream, uint64_t data, uint32_t at, uint32_t end, uint32_t wanted) {
    uint64_t miniblocks = 0, total = 0, first = 0;
    stream.failed = 1;
    stream.at = at;
    if (!read_varint(data, end, &stream.at, &stream.block_values)) return;
    if (!read_varint(data, end, &stream.at, &miniblocks)) return;
    if (!read_varint(data, end, &stream.at, &total)) return;
    if (!read_varint(data, end, &stream.at, &first)) return;
    if (miniblocks == 0 || miniblocks > MINIBLOCKS_MAX || total != wanted) return;
    if (stream.block_values == 0 || stream.block_values > 0x7fffffff || stream.block_values % miniblocks) return;
    uint64_t miniblock_values = stream.block_values / miniblocks;
    if (miniblock_values % 8) return;
    stream.miniblock_values = (uint32_t)miniblock_values;
    stream.first = (uint64_t)decode_zigzag(first);
    stream.failed = 0;
}

// Reads a block's header, for the `wanted` values that are left.
DEVICE void open_block(DeltaStream &stream, uint64_t data, uint32_t end, uint32_t wanted, uint32_t width_max) {
    uint64_t minimum = 0;
    stream.failed = 1;
    if (!read_varint(data, end, &stream.at, &minimum)) return;
    stream.minimum = (uint64_t)decode_zigzag(minimum);
    const uint32_t miniblocks = (uint32_t)(stream.block_values / stream.miniblock_values);
    if (end - stream.at < miniblocks) return;
    const uint32_t widths = stream.at;
    uint64_t at = (uint64_t)stream.at + miniblocks;
    for (uint32_t miniblock = 0; miniblock < miniblocks; miniblock++) {
        uint64_t first = (uint64_t)miniblock * stream.miniblock_values;
        if (first >= wanted) break;
        uint32_t width = load_u8(data + widths + miniblock);
        uint64_t needed = wanted - first < stream.miniblock_values ? wanted - first : stream.miniblock_values;
        if (width > width_max || at > end || (needed * width + 7) / 8 > end - at) return;
        stream.widths[miniblock] = (uint8_t)width;
        stream.offsets[miniblock] = (uint32_t)at;
        at += (uint64_t)stream.miniblock_values / 8 * width;
    }
    // The last miniblock may be cut off after the last value.
    stream.at = at < end ? (uint32_t)at : end;
    stream.failed = 0;
}

// Decodes `wanted` numbers, of which there is at least one, that start at `at`. Every thread calls it; says false if
// they can't be read, and moves *at past them.
DEVICE_CALL bool read_deltas(uint64_t data, uint32_t *at, uint32_t end, uint32_t wanted, uint64_t *target, bool narrow) {
    SHARED DeltaStream stream;
    __syncthreads();
    if (threadIdx.x == 0) open_deltas(stream, data, *at, end, wanted);
    __syncthreads();
    if (stream.failed) return false;
    uint64_t base = stream.first;
    if (threadIdx.x == 0) target[0] = narrow ? (uint64_t)(int64_t)(int32_t)base : base;
    uint32_t done = 1;
    while (done < wanted) {
        __syncthreads();
        if (threadIdx.x == 0) open_block(stream, data, end, wanted - done, narrow ? 32 : 64);
        __syncthreads();
        if (stream.failed) return false;
        const uint32_t left = wanted - done;
        const uint32_t count = left < stream.block_values ? left : (uint32_t)stream.block_values;
        for (uint32_t first = 0; first < count; first += BLOCK_THREADS) {
            uint32_t place = first + threadIdx.x;
            uint64_t difference = 0;
            if (place < count) {
                uint32_t miniblock = place / stream.miniblock_values;
                uint32_t width = stream.widths[miniblock];
                uint64_t bit = (uint64_t)(place % stream.miniblock_values) * width;
                difference = load_wide_bits(data + stream.offsets[miniblock], bit, width) + stream.minimum;
            }
            uint64_t total;
            uint64_t value = base + block_exclusive_sum(difference, &total) + difference;
            if (place < count) target[done + place] = narrow ? (uint64_t)(int64_t)(int32_t)value : value;
            base += total;
        }
        done += count;
    }
    __syncthreads();
    *at = stream.at;
    return true;
}

// Turns lengths into places of strings that lie one after another from `at` on. Every thread calls it.
DEVICE bool place_strings(uint64_t *scratch, uint32_t count, uint32_t at, uint32_t end) {
    SHARED uint32_t failed;
    if (threadIdx.x == 0) failed = 0;
    __syncthreads();
    uint64_t before = at;
    for (uint32_t first = 0; first < count; first += BLOCK_THREADS) {
        uint32_t place = first + threadIdx.x;
        int64_t length = place < count ? (int64_t)scratch[place] : 0;
        if (length < 0 || length > (int64_t)end) {
            failed = 1;
            length = 0;
        }
        uint64_t total;
        uint64_t offset = before + block_exclusive_sum((uint64_t)length, &total);
        if (place < count) ((StringPlace *)scratch)[place] = StringPlace{(uint32_t)offset, (uint32_t)length};
        before += total;
        if (before > end) break;
    }
    __syncthreads();
    return !failed && before <= end;
}

// Checks prefixes and adds up the bytes of all strings. Every thread calls it.
DEVICE bool measure_strings(const EncodedPage &page, uint32_t count, uint64_t *bytes) {
    SHARED uint32_t failed;
    const uint64_t *prefixes = (const uint64_t *)page.prefixes;
    const StringPlace *suffixes = (const StringPlace *)page.scratch;
    if (threadIdx.x == 0) failed = 0;
    __syncthreads();
    uint64_t sum = 0;
    for (uint32_t place = threadIdx.x; place < count; place += BLOCK_THREADS) {
        uint64_t previous = place ? prefixes[place - 1] + suffixes[place - 1].length : 0;
        // A prefix beyond 32 bits, a negative one included, has no string to be part of.
        if (prefixes[place] > previous || previous > 0xffffffffu) failed = 1;
        sum += prefixes[place] + suffixes[place].length;
        if (failed) break;
    }
    __syncthreads();
    uint64_t total;
    block_exclusive_sum(failed ? 0 : sum, &total);
    *bytes = total;
    return !failed && total <= 0xffffffffu;
}

KERNEL(decode_deltas, DecodePages, BLOCK_THREADS) {
    const uint32_t number = listed_page(args);
    const EncodedPage &page = page_at(args, number);
    PageState &state = state_at(args, number);
    const uint32_t count = state.value_count;
    if (count == 0) return;
    uint64_t *scratch = (uint64_t *)page.scratch;
    uint32_t at = state.values_offset;
    const uint32_t end = page.values_bytes;
    uint64_t string_bytes = 0;
    bool is_sound = at <= end;
    const bool is_strings = page.delta_form == DELTA_STRINGS;
    const bool narrow = page.delta_form != DELTA_INT64;
    if (is_strings) is_sound = is_sound && read_deltas(page.values, &at, end, count, (uint64_t *)page.prefixes, narrow);
    is_sound = is_sound && read_deltas(page.values, &at, end, count, scratch, narrow);
    if (page.delta_form >= DELTA_LENGTHS) is_sound = is_sound && place_strings(scratch, count, at, end);
    if (is_strings) is_sound = is_sound && measure_strings(page, count, &string_bytes);
    if (threadIdx.x != 0) return;
    if (!is_sound) report_error(args.status, ERROR_PAGE, number);
    state.located = is_sound ? count : 0;
    state.string_bytes = is_sound ? string_bytes : 0;
    state.wide = 1;
}

KERNEL(build_strings, DecodePages, BUILD_THREADS) {
    const EncodedPage page = page_at(args, listed_page(args));
    const PageState &state = state_at(args, listed_page(args));
    const uint64_t *prefixes = (const uint64_t *)page.prefixes;
    StringPlace *places = (StringPlace *)page.scratch;
    uint8_t *target = (uint8_t *)page.strings;
    const uint8_t *previous = target;
    uint32_t offset = 0;
    for (uint32_t index = 0; index < state.located; index++) {
        const StringPlace suffix = places[index];
        const uint32_t prefix = (uint32_t)prefixes[index];
        const uint32_t length = prefix + suffix.length;
        const uint8_t *source = (const uint8_t *)page.values + suffix.offset;
        for (uint32_t byte = threadIdx.x; byte < length; byte += BUILD_THREADS) {
            target[offset + byte] = byte < prefix ? previous[byte] : source[byte - prefix];
        }
        __syncwarp();
        if (threadIdx.x == 0) places[index] = StringPlace{offset, length};
        previous = target + offset;
        offset += length;
    }
    // Whole words are loaded.
    for (uint32_t byte = threadIdx.x; byte < PAGE_PADDING_BYTES; byte += BUILD_THREADS) target[offset + byte] = 0;
}
