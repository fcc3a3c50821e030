// Values as unsigned words in their order: a key is one word or several.
#pragma once

#include "../abi/sort.h"
#include "../common/cell.cuh"

DEVICE uint64_t signed_word(int64_t value) { return (uint64_t)value ^ (1ull << 63); }

// Floats in PostgreSQL's order: -0 as 0, NaN greatest.
DEVICE uint64_t float_word(double value) {
    if (value != value) return ~0ull;
    uint64_t bits = __builtin_bit_cast(uint64_t, value == 0 ? 0.0 : value);
    return bits >> 63 ? ~bits : bits | (1ull << 63);
}

DEVICE uint64_t bytes_word(const uint8_t *bytes, uint32_t length, uint32_t word) {
    uint64_t result = 0;
    for (uint32_t byte = 0; byte < 8; byte++) {
        uint64_t place = (uint64_t)word * 8 + byte;
        result = (result << 8) | (place < length ? bytes[place] : 0);
    }
    return result;
}

DEVICE uint64_t wide_word(int128 value, uint32_t word) {
    return word == 0 ? (uint64_t)value : signed_word((int64_t)(value >> 64));
}

DEVICE uint64_t int256_word(const int256 &value, uint32_t word) {
    return word < 2 ? (uint64_t)(value.low >> (64 * word)) : wide_word(value.high, word - 2);
}

DEVICE uint64_t sort_word(const ColumnView &column, uint64_t row, uint32_t word) {
    if (word == SORT_WORD_NULL) return cell_is_null(column, row) ? 0 : 1;
    if (cell_is_null(column, row)) return 0;
    switch (column.cell_type) {
        case CELL_BOOL: return cell_at<uint8_t>(column, row);
        case CELL_INT16: return signed_word(cell_at<int16_t>(column, row));
        case CELL_INT32: return signed_word(cell_at<int32_t>(column, row));
        case CELL_INT64: return signed_word(cell_at<int64_t>(column, row));
        case CELL_INT128: return wide_word(cell_at<int128>(column, row), word);
        case CELL_INT256: return int256_word(cell_at<int256>(column, row), word);
        case CELL_FLOAT32: return float_word((double)cell_at<float>(column, row));
        case CELL_FLOAT64: return float_word(cell_at<double>(column, row));
        case CELL_STRING: {
            StringCell cell = cell_at<StringCell>(column, row);
            if (word == SORT_WORD_LENGTH) return cell.length;
            return bytes_word((const uint8_t *)cell.address, cell.length, word);
        }
        case CELL_BYTES16: return bytes_word((const uint8_t *)column.values + row * 16, 16, word);
        default: return wide_word(interval_span(cell_at<IntervalCell>(column, row)), word);
    }
}
