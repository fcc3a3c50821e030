// Rows of several key columns.
#pragma once

#include "../abi/join.h"
#include "cell.cuh"

// What the hash of a row begins with.
#define HASH_SEED 0x51ed270b0e3f4f1bull

// The hash of a row of one key that is an integer of at most 64 bits and not NULL, as hash_row has it.
DEVICE uint64_t hash_integer_row(int64_t key) {
    const uint64_t hash = hash_mix(HASH_SEED ^ hash_mix((uint64_t)key));
    return hash == HASH_NULL ? 1 : hash;
}

// The hash of a row's keys, in which NULL is a value. Never HASH_NULL.
DEVICE uint64_t hash_row(const KeyColumns &keys, uint64_t row, bool *has_null) {
    uint64_t hash = HASH_SEED;
    *has_null = false;
    for (uint32_t key = 0; key < keys.count; key++) {
        const ColumnView &column = keys.columns[key];
        bool is_null = cell_is_null(column, row);
        *has_null = *has_null || is_null;
        hash = hash_mix(hash ^ (is_null ? 0x7fb5d329728ea185ull : hash_cell(column, row)));
    }
    return hash == HASH_NULL ? 1 : hash;
}

// A key that is an integer of at most 64 bits.
DEVICE int64_t integer_key_at(const ColumnView &column, uint64_t row) {
    switch (column.cell_type) {
        case CELL_INT16: return cell_at<int16_t>(column, row);
        case CELL_INT32: return cell_at<int32_t>(column, row);
        default: return cell_at<int64_t>(column, row);
    }
}

// Whether all keys of two rows are equal and none is NULL.
DEVICE bool keys_match(const KeyColumns &a, uint64_t a_row, const KeyColumns &b, uint64_t b_row) {
    for (uint32_t key = 0; key < a.count; key++) {
        if (cell_is_null(a.columns[key], a_row) || cell_is_null(b.columns[key], b_row)) return false;
        if (!cells_equal(a.columns[key], a_row, b.columns[key], b_row)) return false;
    }
    return true;
}

// Whether all keys of two rows are equal, where NULL equals NULL.
DEVICE bool keys_same(const KeyColumns &a, uint64_t a_row, const KeyColumns &b, uint64_t b_row) {
    for (uint32_t key = 0; key < a.count; key++) {
        bool a_null = cell_is_null(a.columns[key], a_row), b_null = cell_is_null(b.columns[key], b_row);
        if (a_null != b_null) return false;
        if (!a_null && !cells_equal(a.columns[key], a_row, b.columns[key], b_row)) return false;
    }
    return true;
}
