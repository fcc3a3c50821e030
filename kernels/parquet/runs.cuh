// Parquet's hybrid of repeated and bit-packed runs.
//
// One thread walks the headers and lists the runs of a tile in a table; all threads expand.
//
// Source: Parquet's Encodings.md, "Run Length Encoding / Bit-Packing Hybrid". As other readers do, a header of 0 is
// padding that ends the runs of indexes and flags, and an empty run of levels; and the last packed run may be shorter than it
// says. A run without values means nothing; no writer has two in a row, which end the runs too, so that walking over runs
// takes as long as there are values, and not as there are bytes.
#pragma once

#include "../common/bits.cuh"
#include "page.cuh"

// Headers are numbers of at most 32 bits.
#define RUN_HEADER_BYTES_MAX 5
// Runs without values that may follow one another.
#define EMPTY_RUNS_MAX 1

struct RunCursor {
    uint64_t data;
    uint32_t at; // of the next header
    uint32_t end;
    uint32_t width;
    uint32_t packed;
    uint32_t value; // of a repeated run; the offset of a packed one's first byte
    uint64_t passed;
    uint64_t left;
    uint32_t padded; // 1 if a header of 0 ends the runs
};

// The runs of a tile. `first` is twice the tile's value that a run starts at, plus 1 if it is packed; it is negative
// for a packed run that starts up to 7 values before the tile.
template <uint32_t Rows>
struct RunTable {
    uint32_t count;
    int32_t first[Rows + 1];
    uint32_t data[Rows + 1];
};

DEVICE RunCursor open_runs(uint64_t data, uint32_t at, uint32_t end, uint32_t width) {
    return RunCursor{data, at, end, width, 0, 0, 0, 0, 0};
}

// Where the runs of indexes or of flags lie, `data` on. Says false if they do not fit the page.
DEVICE bool open_indexes(const EncodedPage &page, uint64_t data, uint32_t bytes, RunCursor *cursor) {
    if (page.source == SOURCE_FLAGS) {
        if (bytes < 4) return false;
        uint32_t length = load_u32(data);
        *cursor = open_runs(data, 4, length > bytes - 4 ? bytes : 4 + length, 1);
        cursor->padded = 1;
        return length <= bytes - 4;
    }
    if (bytes < 1) return false;
    uint32_t width = load_u8(data);
    *cursor = open_runs(data, 1, bytes, width);
    cursor->padded = 1;
    return width <= 32;
}

// The next run that has values; false at the end.
DEVICE bool next_run(RunCursor &cursor) {
    for (uint32_t empty = 0; cursor.left == 0; empty++) {
        if (empty > EMPTY_RUNS_MAX) return false;
        // A header of up to 4 bytes and the value behind it are on their way at once, and are taken if they are within the data.
        const uint64_t word = load_u64(cursor.data + cursor.at);
        const uint32_t header_bytes = varint_bytes((uint32_t)word);
        uint64_t header = 0;
        if (header_bytes <= 4 && cursor.end - cursor.at >= header_bytes) {
            header = short_varint_of((uint32_t)word, header_bytes);
            cursor.at += header_bytes;
        } else {
            uint32_t limit = cursor.end - cursor.at > RUN_HEADER_BYTES_MAX ? cursor.at + RUN_HEADER_BYTES_MAX : cursor.end;
            if (!read_varint(cursor.data, limit, &cursor.at, &header)) return false;
        }
        if (header == 0 && cursor.padded) return false;
        uint64_t bytes_left = cursor.end - cursor.at;
        cursor.packed = (uint32_t)(header & 1);
        cursor.passed = 0;
        if (cursor.packed) {
            uint64_t groups = header >> 1;
            uint64_t bytes = groups * cursor.width;
            cursor.value = cursor.at;
            cursor.left = groups * 8;
            if (bytes > bytes_left) {
                bytes = bytes_left;
                cursor.left = bytes_left * 8 / cursor.width;
            }
            cursor.at += (uint32_t)bytes;
        } else {
            uint32_t bytes = (cursor.width + 7) / 8;
            if (bytes > bytes_left) return false;
            const uint32_t value = header_bytes <= 4 ? (uint32_t)(word >> (8 * header_bytes)) : load_u32(cursor.data + cursor.at);
            cursor.value = bytes < 4 ? value & ((1u << (8 * bytes)) - 1) : value;
            cursor.left = header >> 1;
            cursor.at += bytes;
        }
    }
    return true;
}

// Passes over values. False if the data end before.
DEVICE bool skip_runs(RunCursor &cursor, uint32_t count) {
    while (count > 0) {
        if (!next_run(cursor)) return false;
        uint32_t taken = cursor.left < count ? (uint32_t)cursor.left : count;
        cursor.passed += taken;
        cursor.left -= taken;
        count -= taken;
    }
    return true;
}

// Where a cursor is, for resume_runs. A run's values beyond those of any page are left out.
DEVICE RunSegment segment_of(const RunCursor &cursor) {
    const uint32_t left = cursor.left < 0x7fffffff ? (uint32_t)cursor.left : 0x7fffffff;
    if (!cursor.packed) return RunSegment{cursor.at, cursor.value, left, 0};
    const uint32_t data = cursor.value + (uint32_t)(cursor.passed / 8 * cursor.width);
    return RunSegment{cursor.at, data, left, 1 + 2 * (uint32_t)(cursor.passed % 8)};
}

DEVICE void resume_runs(RunCursor &cursor, const RunSegment &segment) {
    cursor.at = segment.header;
    cursor.packed = segment.form & 1;
    cursor.value = segment.data;
    cursor.passed = segment.form / 2;
    cursor.left = segment.left;
}

// Lists the runs of the next `wanted` values, 1 to Rows. False if the data end before; zeros fill the rest.
template <uint32_t Rows>
DEVICE bool list_runs(RunCursor &cursor, RunTable<Rows> &table, uint32_t wanted) {
    uint32_t filled = 0, count = 0;
    bool complete = true;
    while (filled < wanted) {
        if (!next_run(cursor)) {
            table.first[count] = (int32_t)filled * 2;
            table.data[count] = 0;
            count++;
            complete = false;
            break;
        }
        uint32_t taken = cursor.left < wanted - filled ? (uint32_t)cursor.left : wanted - filled;
        int32_t first = (int32_t)filled;
        uint32_t data = cursor.value;
        if (cursor.packed) {
            first -= (int32_t)(cursor.passed % 8);
            data += (uint32_t)(cursor.passed / 8 * cursor.width);
        }
        table.first[count] = first * 2 + (int32_t)cursor.packed;
        table.data[count] = data;
        count++;
        filled += taken;
        cursor.passed += taken;
        cursor.left -= taken;
    }
    table.count = count;
    return complete;
}

// Value `place` of the tile.
template <uint32_t Rows>
DEVICE uint32_t run_value(const RunTable<Rows> &table, uint64_t data, uint32_t width, uint32_t place) {
    uint32_t low = 0, high = table.count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if ((table.first[middle] >> 1) <= (int32_t)place) {
            low = middle;
        } else {
            high = middle;
        }
    }
    int32_t first = table.first[low];
    uint32_t value = table.data[low];
    if ((first & 1) == 0) return value;
    uint64_t bit = (uint64_t)((int32_t)place - (first >> 1)) * width;
    return load_bits(data + value, bit, width);
}
