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
// Source:  Parquet's Encodings.md, "Delta encoding". One warp walks the headers, a tile of numbers ahead, from a window
//          in shared memory; all threads unpack, and a sum over the block turns differences into values.
#include "../common/block.cuh"
#include "bits.cuh"
#include "page.cuh"

// Numbers that are unpacked at once, and how many of them by a thread: they lie in one miniblock, whose length is a
// multiple of 8.
#define TILE_VALUES 2048
#define THREAD_VALUES (TILE_VALUES / BLOCK_THREADS)
// Miniblocks of a tile, and of a block; writers have 4 a block.
#define TILE_MINIBLOCKS 64
#define MINIBLOCKS_MAX 256
// Bytes that the walker holds to read headers from.
#define WINDOW_BYTES 2048
// A thread's numbers lie apart in shared memory, so that neither those who write nor those who read share banks.
#define STAGE_STRIDE (BLOCK_THREADS + 2)

// What one warp walks over: headers of blocks, and the miniblocks between them.
struct DeltaCursor {
    uint64_t data;
    uint64_t minimum;
    uint32_t at; // of the next miniblock, or of the next header
    uint32_t end;
    uint32_t left; // numbers that no tile has yet
    uint32_t miniblocks;
    uint32_t miniblock_values;
    uint32_t width_max;
    uint32_t widths; // where the block's widths are
    uint32_t next;   // miniblock of the block; `miniblocks` where a header comes next
    uint32_t passed; // numbers of the next miniblock that tiles have
};

// The miniblocks of a tile. Each starts `miniblock_values` after the one before.
struct MiniblockTable {
    uint32_t failed;
    uint32_t offsets[TILE_MINIBLOCKS];
    uint64_t minimums[TILE_MINIBLOCKS];
    uint8_t widths[TILE_MINIBLOCKS];
};

// Bytes of the page from `first` on, which is a multiple of 4.
struct HeaderWindow {
    uint32_t first;
    uint32_t words[WINDOW_BYTES / 4];
};

// Every thread of the warp calls it.
DEVICE void fill_window(HeaderWindow &window, const DeltaCursor &cursor) {
    const uint64_t address = (cursor.data + cursor.at) & ~3ull;
    const uint64_t end = cursor.data + cursor.end;
    if (threadIdx.x == 0) window.first = (uint32_t)(address - (cursor.data & ~3ull));
    for (uint32_t word = threadIdx.x; word < WINDOW_BYTES / 4; word += WARP_THREADS) {
        if (address + (uint64_t)word * 4 < end) window.words[word] = ((const uint32_t *)address)[word];
    }
    __syncwarp();
}

// Says whether a byte of the page is in the window, and where.
DEVICE bool in_window(const HeaderWindow &window, const DeltaCursor &cursor, uint32_t at, uint32_t *place) {
    *place = (uint32_t)(cursor.data & 3) + at - window.first;
    return *place < WINDOW_BYTES;
}

DEVICE uint8_t load_header_u8(const HeaderWindow &window, const DeltaCursor &cursor, uint32_t at) {
    uint32_t place;
    if (!in_window(window, cursor, at, &place)) return load_u8(cursor.data + at);
    return (uint8_t)(window.words[place / 4] >> (place % 4 * 8));
}

// A variable-length number at the cursor, which moves past it; false if it does not end before the page.
DEVICE bool read_header_varint(const HeaderWindow &window, DeltaCursor &cursor, uint64_t *value) {
    uint64_t result = 0;
    for (uint32_t shift = 0; shift < 64 && cursor.at < cursor.end; shift += 7) {
        uint8_t byte = load_header_u8(window, cursor, cursor.at);
        cursor.at++;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return true;
        }
    }
    return false;
}

// Reads the header of the page, which says its first number.
DEVICE bool open_deltas(const HeaderWindow &window, DeltaCursor &cursor, uint64_t *first) {
    uint64_t block_values = 0, miniblocks = 0, total = 0;
    if (!read_header_varint(window, cursor, &block_values)) return false;
    if (!read_header_varint(window, cursor, &miniblocks)) return false;
    if (!read_header_varint(window, cursor, &total)) return false;
    if (!read_header_varint(window, cursor, first)) return false;
    if (miniblocks == 0 || miniblocks > MINIBLOCKS_MAX || total != cursor.left) return false;
    if (block_values == 0 || block_values > 0x7fffffff || block_values % miniblocks) return false;
    if (block_values / miniblocks % 8) return false;
    *first = (uint64_t)decode_zigzag(*first);
    cursor.miniblock_values = (uint32_t)(block_values / miniblocks);
    cursor.miniblocks = (uint32_t)miniblocks;
    cursor.next = cursor.miniblocks;
    cursor.left--;
    return true;
}

// Reads a block's header.
DEVICE bool open_block(const HeaderWindow &window, DeltaCursor &cursor) {
    uint64_t minimum = 0;
    if (!read_header_varint(window, cursor, &minimum)) return false;
    if (cursor.end - cursor.at < cursor.miniblocks) return false;
    cursor.minimum = (uint64_t)decode_zigzag(minimum);
    cursor.widths = cursor.at;
    cursor.at += cursor.miniblocks;
    cursor.next = 0;
    return true;
}

// Numbers of a tile, of those that are left.
DEVICE uint32_t tile_values(uint32_t left, uint32_t miniblock_values) {
    const uint32_t whole = TILE_VALUES / miniblock_values < TILE_MINIBLOCKS ? TILE_VALUES / miniblock_values : TILE_MINIBLOCKS;
    const uint32_t most = whole ? whole * miniblock_values : TILE_VALUES;
    return left < most ? left : most;
}

// Lists miniblocks from entry *count on until the tile has `wanted` numbers. Says false where the window has to move
// to the next header first.
DEVICE bool list_miniblocks(const HeaderWindow &window, DeltaCursor &cursor, MiniblockTable &table, uint32_t wanted, uint32_t *count) {
    uint32_t place;
    for (uint32_t filled = *count * cursor.miniblock_values; filled < wanted; (*count)++) {
        if (cursor.next == cursor.miniblocks) {
            if (!in_window(window, cursor, cursor.at, &place)) return false;
            if (!open_block(window, cursor)) break;
        }
        const uint32_t width = load_header_u8(window, cursor, cursor.widths + cursor.next);
        const uint32_t rest = cursor.miniblock_values - cursor.passed;
        const uint32_t needed = cursor.left < rest ? cursor.left : rest;
        if (width > cursor.width_max || cursor.at > cursor.end) break;
        if (((uint64_t)needed * width + 7) / 8 > cursor.end - cursor.at) break;
        table.offsets[*count] = cursor.at;
        table.widths[*count] = (uint8_t)width;
        table.minimums[*count] = cursor.minimum;
        const uint32_t taken = needed < wanted - filled ? needed : wanted - filled;
        filled += taken;
        cursor.left -= taken;
        cursor.passed += taken;
        // The last miniblock may be cut off after the last value.
        const uint64_t whole = (uint64_t)(taken == needed ? rest : taken) / 8 * width;
        cursor.at = whole < cursor.end - cursor.at ? cursor.at + (uint32_t)whole : cursor.end;
        if (taken == needed) {
            cursor.next++;
            cursor.passed = 0;
        }
        if (filled == wanted) return true;
    }
    table.failed = 1;
    return true;
}

// Lists the next tile. The threads of the first warp call it.
DEVICE void list_tile(HeaderWindow &window, DeltaCursor &cursor, MiniblockTable &table) {
    const uint32_t wanted = tile_values(cursor.left, cursor.miniblock_values);
    uint32_t count = 0;
    if (threadIdx.x == 0) table.failed = 0;
    if (wanted == 0) return;
    for (;;) {
        bool is_listed = true;
        if (threadIdx.x == 0) is_listed = list_miniblocks(window, cursor, table, wanted, &count);
        // The other lanes follow the walker.
        if (__shfl_sync(0xffffffffu, (uint32_t)is_listed, 0)) break;
        cursor.at = __shfl_sync(0xffffffffu, cursor.at, 0);
        fill_window(window, cursor);
    }
    cursor.left = __shfl_sync(0xffffffffu, cursor.left, 0);
}

// Decodes `wanted` numbers, of which there is at least one, that start at `at`. Every thread calls it; says false if
// they can't be read, and moves *at past them.
DEVICE_CALL bool read_deltas(uint64_t data, uint32_t *at, uint32_t end, uint32_t wanted, uint64_t *target, bool narrow) {
    SHARED HeaderWindow window;
    SHARED MiniblockTable tables[2];
    SHARED uint64_t stage[THREAD_VALUES * STAGE_STRIDE];
    SHARED uint64_t opened_first;
    SHARED uint32_t opened_values, last;
    DeltaCursor cursor = DeltaCursor{data, 0, *at, end, wanted, 0, 0, narrow ? 32u : 64u, 0, 0, 0};
    __syncthreads();
    if (threadIdx.x < WARP_THREADS) {
        fill_window(window, cursor);
        uint64_t first = 0;
        if (threadIdx.x == 0) {
            opened_values = open_deltas(window, cursor, &first) ? cursor.miniblock_values : 0;
            opened_first = first;
        }
        cursor.left = __shfl_sync(0xffffffffu, cursor.left, 0);
        cursor.miniblock_values = __shfl_sync(0xffffffffu, cursor.miniblock_values, 0);
        if (cursor.miniblock_values) list_tile(window, cursor, tables[0]);
    }
    __syncthreads();
    const uint32_t miniblock_values = opened_values;
    if (!miniblock_values) return false;
    uint64_t base = opened_first;
    if (threadIdx.x == 0) target[0] = narrow ? (uint64_t)(int64_t)(int32_t)base : base;
    uint32_t done = 1;
    for (uint32_t tile = 0; done < wanted; tile++) {
        const MiniblockTable &table = tables[tile % 2];
        if (table.failed) return false;
        if (threadIdx.x < WARP_THREADS) list_tile(window, cursor, tables[(tile + 1) % 2]);
        const uint32_t count = tile_values(wanted - done, miniblock_values);
        const uint32_t place = threadIdx.x * THREAD_VALUES;
        uint64_t values[THREAD_VALUES];
        uint64_t sum = 0;
        if (place < count) {
            const uint32_t entry = place / miniblock_values;
            const uint32_t width = table.widths[entry];
            const uint64_t minimum = table.minimums[entry];
            const uint64_t first = data + table.offsets[entry] + (place - entry * miniblock_values) / 8 * width;
            for (uint32_t item = 0; item < THREAD_VALUES; item++) {
                if (place + item < count) sum += load_wide_bits(first, item * width, width) + minimum;
                values[item] = sum;
            }
        }
        uint64_t total;
        const uint64_t before = base + block_exclusive_sum(sum, &total);
        if (place < count) {
            for (uint32_t item = 0; item < THREAD_VALUES; item++) {
                stage[item * STAGE_STRIDE + threadIdx.x] = before + values[item];
            }
        }
        __syncthreads();
        for (uint32_t number = threadIdx.x; number < count; number += BLOCK_THREADS) {
            const uint64_t value = stage[number % THREAD_VALUES * STAGE_STRIDE + number / THREAD_VALUES];
            target[done + number] = narrow ? (uint64_t)(int64_t)(int32_t)value : value;
        }
        base += total;
        done += count;
    }
    if (threadIdx.x == 0) last = cursor.at;
    __syncthreads();
    *at = last;
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
