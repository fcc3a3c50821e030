// Values of a page into cells.
#pragma once

#include "../common/bits.cuh"
#include "page.cuh"
#include "text.cuh"

#define ROWS_PER_THREAD (SLICE_ROWS / BLOCK_THREADS)

// Values of a slice in shared memory. A word is left free after every 8, so that threads that write 8 each write to
// different banks.
#define WINDOW_WORDS (SLICE_ROWS + SLICE_ROWS / 8)
DEVICE uint32_t window_place(uint32_t value) { return value + value / 8; }

// Copies, so that they are held in registers and not read again after every cell that is written.
struct Slice {
    EncodedPage page;
    PageColumn column;
    uint64_t state; // PageState
    uint32_t dense;
    uint64_t status;
    uint64_t data;     // of the first value
    uint32_t capacity; // values that the page has; for SOURCE_SPLIT the distance of a value's bytes, too
    uint32_t number;
    uint32_t wide; // 1 if a byte of the strings may be beyond ASCII
    const uint64_t *window; // values that were decoded, where the page has an index: int64_t or StringPlace
    uint32_t window_first;  // the number of the first of them
};

// A value's bytes, `stride` apart.
struct ValueBytes {
    uint64_t address;
    uint32_t length;
    uint32_t stride;
};

// Notes or reports that a value can't be held.
DEVICE void fail_value(const Slice &slice, uint64_t row, uint32_t code) {
    if (slice.column.flags & COLUMN_DICTIONARY) {
        ((uint8_t *)slice.column.faults)[row] = (uint8_t)code;
        ((PageState *)slice.state)->faulty = 1;
    } else {
        report_error(slice.status, code, slice.number);
    }
}

DEVICE uint32_t value_capacity(const EncodedPage &page, const PageState &state, uint32_t width) {
    uint32_t bytes = value_bytes(page, state);
    switch (page.source) {
        case SOURCE_STRINGS: return state.located;
        case SOURCE_BITS: return bytes > 0x1fffffff ? 0xffffffffu : bytes * 8;
        // Where bytes are left over it is not known how far those of a value are apart.
        case SOURCE_SPLIT: return width && bytes % width == 0 ? bytes / width : 0;
        default: return width ? bytes / width : 0;
    }
}

DEVICE uint64_t window_value(const Slice &slice, uint32_t index) {
    return slice.window[window_place(index - slice.window_first)];
}

DEVICE StringPlace string_place(const Slice &slice, uint32_t index) {
    if (!slice.window) return ((const StringPlace *)slice.page.scratch)[index];
    const uint64_t word = window_value(slice, index);
    return StringPlace{(uint32_t)word, (uint32_t)(word >> 32)};
}

DEVICE ValueBytes value_bytes_at(const Slice &slice, uint32_t index) {
    const uint32_t width = slice.column.source_bytes;
    if (slice.page.source == SOURCE_STRINGS) {
        StringPlace place = string_place(slice, index);
        uint64_t base = slice.page.strings ? slice.page.strings : slice.page.values;
        return ValueBytes{base + place.offset, place.length, 1};
    }
    if (slice.page.source == SOURCE_SPLIT) return ValueBytes{slice.data + index, width, slice.capacity};
    return ValueBytes{slice.data + (uint64_t)index * width, width, 1};
}

// Up to 8 bytes of a value, lowest first.
DEVICE uint64_t gather_bytes(const ValueBytes &value, uint32_t first, uint32_t count) {
    uint64_t result = 0;
    for (uint32_t byte = 0; byte < count; byte++) {
        result |= (uint64_t)load_u8(value.address + (uint64_t)(first + byte) * value.stride) << (8 * byte);
    }
    return result;
}

DEVICE uint64_t load_fixed(const Slice &slice, uint32_t index) {
    const uint32_t width = slice.column.source_bytes;
    if (slice.page.source == SOURCE_INTEGERS) return window_value(slice, index);
    if (slice.page.source == SOURCE_SPLIT) return gather_bytes(value_bytes_at(slice, index), 0, width);
    return width == 4 ? load_u32(slice.data + (uint64_t)index * 4) : load_u64(slice.data + (uint64_t)index * 8);
}

// An integer of the file, extended from its bits.
DEVICE int64_t load_integer(const Slice &slice, uint32_t index) {
    uint64_t value = load_fixed(slice, index) << slice.column.shift;
    if (slice.column.flags & COLUMN_UNSIGNED) return (int64_t)(value >> slice.column.shift);
    return (int64_t)value >> slice.column.shift;
}

DEVICE int128 wide(const uint64_t *halves) { return (int128)((uint128)halves[1] << 64 | halves[0]); }

DEVICE void store_integer(const PageColumn &column, uint64_t row, int64_t value) {
    switch (column.cell_bytes) {
        case 2: ((int16_t *)column.values)[row] = (int16_t)value; break;
        case 4: ((int32_t *)column.values)[row] = (int32_t)value; break;
        case 8: ((int64_t *)column.values)[row] = value; break;
        default: ((int128 *)column.values)[row] = value;
    }
}

DEVICE void store_wide(const Slice &slice, uint64_t row, int128 value) {
    const PageColumn &column = slice.column;
    if (value < wide(column.least) || value > wide(column.greatest)) {
        fail_value(slice, row, ERROR_VALUE_RANGE);
        value = 0;
    }
    value *= wide(column.factor);
    if (column.cell_bytes == 16) {
        ((int128 *)column.values)[row] = value;
    } else {
        store_integer(column, row, (int64_t)value);
    }
}

struct ConvertBits {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        const PageColumn &column = slice.column;
        switch (column.cell_bytes) {
            case 4: ((uint32_t *)column.values)[row] = (uint32_t)load_fixed(slice, index); break;
            case 8: ((uint64_t *)column.values)[row] = load_fixed(slice, index); break;
            default: {
                ValueBytes value = value_bytes_at(slice, index);
                if (value.length != 16) {
                    report_error(slice.status, ERROR_PAGE, slice.number);
                    return;
                }
                ((Cell16 *)column.values)[row] = Cell16{gather_bytes(value, 0, 8), gather_bytes(value, 8, 8)};
            }
        }
    }
};

// Whether a stored date or timestamp is DuckDB's infinity, which *infinity then is PostgreSQL's for.
DEVICE bool find_infinity(const PageColumn &column, int64_t value, int64_t *infinity) {
    if (!(column.flags & COLUMN_INFINITIES)) return false;
    const int64_t greatest = column.cell_bytes == 4 ? INT32_MAX : INT64_MAX;
    if (value != greatest && value != -greatest) return false;
    *infinity = value > 0 ? greatest : -greatest - 1;
    return true;
}

struct ConvertInteger {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        const PageColumn &column = slice.column;
        int64_t value = load_integer(slice, index), infinity = 0;
        if (find_infinity(column, value, &infinity)) {
            store_integer(column, row, infinity);
            return;
        }
        if (value < (int64_t)column.least[0] || value > (int64_t)column.greatest[0]) {
            fail_value(slice, row, ERROR_VALUE_RANGE);
            value = 0;
        }
        if (column.conversion == CONVERT_NANOSECONDS) {
            int64_t quotient = value / 1000;
            store_integer(column, row, quotient - (value % 1000 < 0));
        } else {
            store_integer(column, row, value * (int64_t)column.factor[0]);
        }
    }
};

DEVICE int128 wide_integer_at(const Slice &slice, uint32_t index) {
    int64_t value = load_integer(slice, index);
    return slice.column.flags & COLUMN_UNSIGNED ? (int128)(uint64_t)value : (int128)value;
}

// Whether a decimal may have so many bytes; otherwise its page is corrupt.
DEVICE bool is_decimal_length(const Slice &slice, uint32_t bytes) {
    bool is_fixed = slice.column.source_bytes != 0;
    if (bytes != 0 && (!is_fixed || bytes == slice.column.source_bytes)) return true;
    report_error(slice.status, ERROR_PAGE, slice.number);
    return false;
}

struct ConvertWideInteger {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        store_wide(slice, row, wide_integer_at(slice, index));
    }
};

struct ConvertDecimal {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        ValueBytes value = value_bytes_at(slice, index);
        if (!is_decimal_length(slice, value.length)) return;
        if (value.length <= 8 && value.stride == 1) {
            int64_t number = (int64_t)swap_bytes(load_u64(value.address)) >> (64 - 8 * value.length);
            store_wide(slice, row, number);
            return;
        }
        // The sign fills what the value's bytes do not.
        int8_t sign = (int8_t)load_u8(value.address) < 0 ? -1 : 0;
        uint128 number = (uint128)(int128)sign;
        bool fits = true;
        for (uint32_t byte = 0; byte < value.length; byte++) {
            if (value.length - byte > 16) fits = fits && load_u8(value.address + (uint64_t)byte * value.stride) == (uint8_t)sign;
            number = number << 8 | load_u8(value.address + (uint64_t)byte * value.stride);
        }
        if (value.length > 16) fits = fits && ((int128)number < 0) == (sign < 0);
        if (fits) {
            store_wide(slice, row, (int128)number);
        } else {
            fail_value(slice, row, ERROR_VALUE_RANGE);
        }
    }
};

struct ConvertFloatToDouble {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        float value = __builtin_bit_cast(float, (uint32_t)load_fixed(slice, index));
        ((double *)slice.column.values)[row] = (double)value;
    }
};

// IEEE's 16 bits as its 32: every value is exact.
DEVICE float half_to_float(uint32_t half) {
    uint32_t sign = (half & 0x8000) << 16, exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000 | fraction << 13);
    if (exponent != 0) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
    // 2^-24 times the fraction.
    float magnitude = (float)fraction * __builtin_bit_cast(float, 103u << 23);
    return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}

struct ConvertHalf {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        ValueBytes value = value_bytes_at(slice, index);
        if (value.length != 2) {
            report_error(slice.status, ERROR_PAGE, slice.number);
            return;
        }
        float number = half_to_float((uint32_t)gather_bytes(value, 0, 2));
        if (slice.column.conversion == CONVERT_HALF_TO_FLOAT) {
            ((float *)slice.column.values)[row] = number;
        } else {
            ((double *)slice.column.values)[row] = (double)number;
        }
    }
};

struct ConvertInt96 {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        const uint64_t julian_day_of_epoch = 2440588, day_microseconds = 86400000000ull;
        uint64_t address = slice.data + (uint64_t)index * 12;
        int64_t nanoseconds = (int64_t)load_u64(address);
        uint64_t days = (uint64_t)(int64_t)(int32_t)load_u32(address + 8) - julian_day_of_epoch;
        const int64_t microseconds = nanoseconds / 1000 - (nanoseconds % 1000 < 0);
        // Wraps, as other readers do.
        int64_t value = (int64_t)(days * day_microseconds + (uint64_t)microseconds);
        if (value < (int64_t)slice.column.least[0]) fail_value(slice, row, ERROR_VALUE_RANGE);
        ((int64_t *)slice.column.values)[row] = value;
    }
};

struct ConvertFlag {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        ((uint8_t *)slice.column.values)[row] = (load_u8(slice.data + index / 8) >> (index % 8)) & 1;
    }
};

// A text that can't be held is empty: conditions may look at all entries of a dictionary.
struct ConvertString {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        const PageColumn &column = slice.column;
        ValueBytes value = value_bytes_at(slice, index);
        if (column.source_bytes && value.length != column.source_bytes) {
            report_error(slice.status, ERROR_PAGE, slice.number);
            return;
        }
        if ((column.flags & COLUMN_UTF8) && slice.wide && !is_utf8(value.address, value.length)) {
            fail_value(slice, row, ERROR_INVALID_UTF8);
            value.length = 0;
        }
        if (column.flags & COLUMN_TRIM_BLANKS) {
            while (value.length && load_u8(value.address + value.length - 1) == ' ') value.length--;
        }
        if (value.length > column.length_max && count_characters(value.address, value.length) > column.length_max) {
            fail_value(slice, row, ERROR_TEXT_TOO_LONG);
            value.length = 0;
        }
        ((StringCell *)column.values)[row] = StringCell{value.address, value.length, 0};
    }
};

template <class Convert>
DEVICE void convert_rows(const Slice &slice, const PageSlice &place) {
    const uint32_t dense = slice.dense;
    Convert convert;
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        const uint32_t within = item * BLOCK_THREADS + threadIdx.x;
        if (within >= place.row_count) break;
        const uint64_t target = (uint64_t)place.target_row + within;
        uint32_t index;
        const bool valid = find_value(slice.page, dense, place.first_row + within, &index);
        mark_row(slice.column, target, valid);
        if (!valid) continue;
        if (index >= slice.capacity) {
            report_error(slice.status, ERROR_PAGE, slice.number);
            continue;
        }
        convert.apply(slice, index, target);
    }
}

DEVICE Slice slice_of(const SliceWork &work) {
    const EncodedPage page = work.page;
    const PageColumn column = work.column;
    return Slice{page,
                 column,
                 work.state_address,
                 work.state.dense,
                 work.status,
                 page.values + work.state.values_offset,
                 value_capacity(page, work.state, column.source_bytes),
                 work.slice.page,
                 work.state.wide,
                 nullptr,
                 0};
}

DEVICE uint256 words_of(const uint64_t *words) {
    return uint256{(uint128)wide(words), (uint128)wide(words + 2)};
}

DEVICE void store_int256(const Slice &slice, uint64_t row, int256 value) {
    const PageColumn &column = slice.column;
    if (value < signed_of(words_of(column.least)) || signed_of(words_of(column.greatest)) < value) {
        fail_value(slice, row, ERROR_VALUE_RANGE);
        value = int256{0, 0};
    }
    ((int256 *)column.values)[row] = signed_of(bits_of(value) * words_of(column.factor));
}

// ConvertWideInteger and ConvertDecimal to cells of 256 bits.
struct ConvertLargeInteger {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        store_int256(slice, row, int256_of(wide_integer_at(slice, index)));
    }
};

struct ConvertLargeDecimal {
    DEVICE void apply(const Slice &slice, uint32_t index, uint64_t row) {
        ValueBytes value = value_bytes_at(slice, index);
        if (!is_decimal_length(slice, value.length)) return;
        int8_t sign = (int8_t)load_u8(value.address) < 0 ? -1 : 0;
        uint256 number = bits_of(int256_of(sign));
        bool fits = true;
        for (uint32_t byte = 0; byte < value.length; byte++) {
            uint8_t next = load_u8(value.address + (uint64_t)byte * value.stride);
            if (value.length - byte > 32) fits = fits && next == (uint8_t)sign;
            number = number << 8;
            number.low |= next;
        }
        if (value.length > 32) fits = fits && (signed_of(number).high < 0) == (sign < 0);
        if (fits) {
            store_int256(slice, row, signed_of(number));
        } else {
            fail_value(slice, row, ERROR_VALUE_RANGE);
        }
    }
};
