// A page as its kernels see it.
#pragma once

#include "../abi/parquet.h"
#include "../common/int256.cuh"
#include "../common/report_error.cuh"
#include "../common/whole_cell.cuh"
#include "../common/bits.cuh"

DEVICE const EncodedPage &page_at(const DecodePages &args, uint32_t number) {
    return ((const EncodedPage *)args.pages)[number];
}
DEVICE PageState &state_at(const DecodePages &args, uint32_t number) { return ((PageState *)args.states)[number]; }
DEVICE const PageColumn &column_at(const DecodePages &args, uint32_t number) {
    return ((const PageColumn *)args.columns)[number];
}
DEVICE uint32_t listed_page(const DecodePages &args) { return ((const uint32_t *)args.list)[blockIdx.x]; }

// What a block that writes cells has to do, in shared memory: registers are few, and it is read again rather than held.
struct SliceWork {
    EncodedPage page;
    PageState state;
    PageColumn column;
    PageSlice slice;
    uint64_t state_address;
    uint64_t status;
};

// Copies words of which every lane of a warp takes some.
DEVICE void copy_words(void *target, uint64_t source, uint32_t bytes, uint32_t lane) {
    for (uint32_t word = lane; word < bytes / 8; word += WARP_THREADS) {
        ((uint64_t *)target)[word] = ((const uint64_t *)source)[word];
    }
}

// Finds out what a block has to do. Every thread of it calls this.
DEVICE void take_slice(const DecodePages &args, SliceWork &work) {
    static_assert(sizeof(EncodedPage) % 8 == 0 && sizeof(PageState) % 8 == 0 && sizeof(PageColumn) % 8 == 0, "whole words");
    if (threadIdx.x < WARP_THREADS) {
        const uint32_t lane = threadIdx.x;
        const PageSlice slice = ((const PageSlice *)args.list)[blockIdx.x];
        const uint64_t page = args.pages + (uint64_t)slice.page * sizeof(EncodedPage);
        const uint64_t state = args.states + (uint64_t)slice.page * sizeof(PageState);
        const uint64_t column = args.columns + (uint64_t)((const EncodedPage *)page)->column * sizeof(PageColumn);
        copy_words(&work.page, page, sizeof(EncodedPage), lane);
        copy_words(&work.state, state, sizeof(PageState), lane);
        copy_words(&work.column, column, sizeof(PageColumn), lane);
        if (lane == 0) {
            work.slice = slice;
            work.state_address = state;
            work.status = args.status;
        }
    }
    __syncthreads();
}

// Where the values start: after the levels, which a page V1 has in the same section. Says false if it has too few bytes.
DEVICE bool find_values(const EncodedPage &page, uint32_t *values_offset) {
    *values_offset = 0;
    if (page.levels_form == LEVELS_PREFIXED) {
        if (page.levels_bytes < 4) return false;
        uint32_t length = load_u32(page.levels);
        if (length > page.levels_bytes - 4) return false;
        *values_offset = 4 + length;
    } else if (page.levels_form == LEVELS_PACKED) {
        uint32_t bytes = page.row_count / 8 + (page.row_count % 8 != 0);
        if (bytes > page.levels_bytes) return false;
        *values_offset = bytes;
    }
    return true;
}

// Bytes of a page's values; 0 if its levels took more than there are.
DEVICE uint32_t value_bytes(const EncodedPage &page, const PageState &state) {
    return page.values_bytes > state.values_offset ? page.values_bytes - state.values_offset : 0;
}

// Whether a row is not NULL, and then the number of its value in *index.
DEVICE bool find_value(const EncodedPage &page, uint32_t dense, uint32_t row, uint32_t *index) {
    *index = row;
    if (dense) return true;
    ValidityWord word = ((const ValidityWord *)page.words)[row / WORD_ROWS];
    uint32_t bit = 1u << (row % WORD_ROWS);
    *index = word.before + (uint32_t)__popc(word.mask & (bit - 1));
    return (word.mask & bit) != 0;
}

// Values of a page before a row.
DEVICE uint32_t values_before(const EncodedPage &page, uint32_t dense, uint32_t value_count, uint32_t row) {
    if (row >= page.row_count) return value_count;
    uint32_t count;
    find_value(page, dense, row, &count);
    return count;
}

DEVICE void clear_cell(const PageColumn &column, uint64_t row) {
    switch (column.cell_bytes) {
        case 1: ((uint8_t *)column.values)[row] = 0; break;
        case 2: ((uint16_t *)column.values)[row] = 0; break;
        case 4: ((uint32_t *)column.values)[row] = 0; break;
        case 8: ((uint64_t *)column.values)[row] = 0; break;
        default: { // 16 or 32
            const uint32_t parts = column.cell_bytes / 16;
            for (uint32_t part = 0; part < parts; part++) ((Cell16 *)column.values)[row * parts + part] = Cell16{0, 0};
        }
    }
}

// Notes whether a row is NULL. A NULL's cell is zero, because copies of whole columns include it.
DEVICE void mark_row(const PageColumn &column, uint64_t row, bool valid) {
    if (column.validity) ((uint8_t *)column.validity)[row] = valid;
    if (!valid) clear_cell(column, row);
}

