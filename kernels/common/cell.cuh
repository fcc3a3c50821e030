// Reading, comparing and hashing cells of any type.
//
// Ordering of every type is PostgreSQL's: NaN equals NaN and is the greatest number, -0 equals 0, strings and uuids by
// byte, intervals with months of 30 days.
#pragma once

#include "../abi/column.h"
#include "launch.h"
#include "hash.cuh"
#include "int256.cuh"

DEVICE bool cell_is_null(const ColumnView &column, uint64_t row) {
    return column.validity != 0 && ((const uint8_t *)column.validity)[row] == 0;
}

template <class T>
DEVICE T cell_at(const ColumnView &column, uint64_t row) {
    return ((const T *)column.values)[row];
}

template <class T>
DEVICE int compare_numbers(T a, T b) {
    return a < b ? -1 : (b < a ? 1 : 0);
}

template <class T>
DEVICE int compare_floats(T a, T b) {
    bool a_nan = a != a, b_nan = b != b;
    if (a_nan || b_nan) return (int)a_nan - (int)b_nan;
    return compare_numbers(a, b);
}

DEVICE int compare_bytes(const uint8_t *a, uint32_t a_length, const uint8_t *b, uint32_t b_length) {
    uint32_t shared = a_length < b_length ? a_length : b_length;
    for (uint32_t place = 0; place < shared; place++) {
        if (a[place] != b[place]) return a[place] < b[place] ? -1 : 1;
    }
    return compare_numbers(a_length, b_length);
}

DEVICE int128 interval_span(const IntervalCell &cell) {
    return (int128)cell.microseconds + ((int128)cell.days + (int128)cell.months * 30) * 86400000000ll;
}

// -1, 0 or 1; neither row is NULL.
DEVICE_CALL int compare_cells(const ColumnView &a, uint64_t a_row, const ColumnView &b, uint64_t b_row) {
    switch (a.cell_type) {
        case CELL_BOOL: return compare_numbers(cell_at<uint8_t>(a, a_row), cell_at<uint8_t>(b, b_row));
        case CELL_INT16: return compare_numbers(cell_at<int16_t>(a, a_row), cell_at<int16_t>(b, b_row));
        case CELL_INT32: return compare_numbers(cell_at<int32_t>(a, a_row), cell_at<int32_t>(b, b_row));
        case CELL_INT64: return compare_numbers(cell_at<int64_t>(a, a_row), cell_at<int64_t>(b, b_row));
        case CELL_INT128: return compare_numbers(cell_at<int128>(a, a_row), cell_at<int128>(b, b_row));
        case CELL_INT256: {
            // Word by word, so that few registers are live. The sign is in the highest.
            const int64_t *x = (const int64_t *)a.values + 4 * a_row, *y = (const int64_t *)b.values + 4 * b_row;
            if (x[3] != y[3]) return x[3] < y[3] ? -1 : 1;
            for (uint32_t word = 3; word-- > 0;) {
                if (x[word] != y[word]) return (uint64_t)x[word] < (uint64_t)y[word] ? -1 : 1;
            }
            return 0;
        }
        case CELL_FLOAT32: return compare_floats(cell_at<float>(a, a_row), cell_at<float>(b, b_row));
        case CELL_FLOAT64: return compare_floats(cell_at<double>(a, a_row), cell_at<double>(b, b_row));
        case CELL_STRING: {
            StringCell x = cell_at<StringCell>(a, a_row), y = cell_at<StringCell>(b, b_row);
            return compare_bytes((const uint8_t *)x.address, x.length, (const uint8_t *)y.address, y.length);
        }
        case CELL_BYTES16:
            return compare_bytes((const uint8_t *)a.values + a_row * 16, 16, (const uint8_t *)b.values + b_row * 16, 16);
        default:
            return compare_numbers(interval_span(cell_at<IntervalCell>(a, a_row)),
                                   interval_span(cell_at<IntervalCell>(b, b_row)));
    }
}

// Whether two cells that are not NULL are equal. Cheaper than compare_cells for strings of different length.
DEVICE_CALL bool cells_equal(const ColumnView &a, uint64_t a_row, const ColumnView &b, uint64_t b_row) {
    switch (a.cell_type) {
        case CELL_INT32: return cell_at<int32_t>(a, a_row) == cell_at<int32_t>(b, b_row);
        case CELL_INT64: return cell_at<int64_t>(a, a_row) == cell_at<int64_t>(b, b_row);
        case CELL_STRING: {
            StringCell x = cell_at<StringCell>(a, a_row), y = cell_at<StringCell>(b, b_row);
            if (x.length != y.length) return false;
            return x.address == y.address ||
                   compare_bytes((const uint8_t *)x.address, x.length, (const uint8_t *)y.address, y.length) == 0;
        }
        default: return compare_cells(a, a_row, b, b_row) == 0;
    }
}

DEVICE uint64_t hash_wide(uint128 value) { return hash_mix(hash_mix((uint64_t)value) ^ (uint64_t)(value >> 64)); }

// Equal cells have equal hashes.
DEVICE_CALL uint64_t hash_cell(const ColumnView &column, uint64_t row) {
    switch (column.cell_type) {
        case CELL_BOOL: return hash_mix(cell_at<uint8_t>(column, row));
        case CELL_INT16: return hash_mix((uint64_t)(int64_t)cell_at<int16_t>(column, row));
        case CELL_INT32: return hash_mix((uint64_t)(int64_t)cell_at<int32_t>(column, row));
        case CELL_INT64: return hash_mix((uint64_t)cell_at<int64_t>(column, row));
        case CELL_INT128: return hash_wide((uint128)cell_at<int128>(column, row));
        case CELL_INT256: {
            uint256 value = bits_of(cell_at<int256>(column, row));
            return hash_mix(hash_wide(value.low) ^ hash_wide(value.high));
        }
        case CELL_FLOAT32: {
            float value = cell_at<float>(column, row);
            if (value != value) return hash_mix(1);
            return hash_mix((uint64_t)__builtin_bit_cast(uint32_t, value == 0 ? 0.0f : value) << 1);
        }
        case CELL_FLOAT64: {
            double value = cell_at<double>(column, row);
            if (value != value) return hash_mix(1);
            return hash_mix(__builtin_bit_cast(uint64_t, value == 0 ? 0.0 : value));
        }
        case CELL_STRING: {
            StringCell cell = cell_at<StringCell>(column, row);
            return hash_bytes((const uint8_t *)cell.address, cell.length);
        }
        case CELL_BYTES16: return hash_bytes((const uint8_t *)column.values + row * 16, 16);
        default: return hash_wide((uint128)interval_span(cell_at<IntervalCell>(column, row)));
    }
}
