// Sums of floats without rounding, a number of several words a group.
//
// A finite double is a whole multiple of 2^-1074, its square one of 2^-2148. A sum is such a multiple too: a whole number in words of 32
// bits. A group has only the words that its values touch, which are known before any is added:
//
//   measure_floats      marks and the first and last word of every group
//   count_float_words   how many words each has; a prefix sum makes places of them
//   accumulate_floats   every value adds to 2 or 3 words, its square to 5 at most
//   carry_floats        leaves 32 bits in each word; the last word of a number keeps its higher bits too, with the sign
//   write_float_states  a partial result of each group in bytes; round_float_sums: or the float next to the sum
//
//   words of a group    | values | sum: first word … end | squares: first word … end |        the count and squares of deviations only
//   bytes of a state    | FloatState | 4 bytes a word of the sum | 4 bytes a word of the squares |
//
// Invariants
// - A word has 64 bits, of which an addend needs 34 with its sign. So FLOAT_ADDENDS_MAX of them do not overflow it, and carries are left
//   in it until then.
// - Neither the order of values and states nor their division into launches makes a difference.
//
// Source: src/cpu/functions/float_sum/exact.rs does the same on the host. We differ: windows of words are a group's own, because a
// launch knows its values before it adds them.
#pragma once

#include "../abi/aggregate.h"
#include "../common/launch.h"
#include "../common/bits.cuh"
#include "../common/cell.cuh"
#include "../common/report_error.cuh"

// A value: digits * 2^place, of which place counts from the lowest bit of all numbers.
struct FloatParts {
    uint32_t marks;
    uint32_t place;
    uint64_t digits; // 0 for zeros, infinities and NaN
    bool is_negative;
};

DEVICE FloatParts float_parts(double value) {
    const uint64_t bits = __builtin_bit_cast(uint64_t, value), fraction = bits & ((1ull << 52) - 1);
    const uint32_t exponent = (uint32_t)(bits >> 52) & 0x7ff;
    const bool is_negative = bits >> 63;
    FloatParts parts{FLOAT_ANY | FLOAT_NOT_NEGATIVE_ZERO, exponent ? exponent - 1 : 0, fraction, is_negative};
    if (exponent == 0x7ff) {
        parts.marks |= fraction ? FLOAT_NAN : is_negative ? FLOAT_NEGATIVE_INFINITY : FLOAT_INFINITY;
        parts.digits = 0;
    } else if (exponent) {
        parts.digits |= 1ull << 52;
    } else if (fraction == 0 && is_negative) {
        parts.marks = FLOAT_ANY;
    }
    return parts;
}

DEVICE FloatParts float_parts_at(const ColumnView &column, uint64_t row) {
    return float_parts(column.cell_type == CELL_FLOAT32 ? (double)cell_at<float>(column, row) : cell_at<double>(column, row));
}

// The words of a number that some addends touch: those from `first` to `end`, which is 0 if there are none.
struct FloatWindow {
    uint32_t first, end;

    METHOD uint32_t width() const { return end ? end - first : 0; }
};

// A value's words, and those of its square.
DEVICE FloatWindow value_window(const FloatParts &parts) {
    return parts.digits ? FloatWindow{parts.place / 32, parts.place / 32 + 3} : FloatWindow{0, 0};
}
DEVICE FloatWindow square_window(const FloatParts &parts) {
    return parts.digits ? FloatWindow{parts.place / 16, parts.place / 16 + 5} : FloatWindow{0, 0};
}

DEVICE FloatWindow sum_of_group(const FloatGroup &group) {
    return FloatWindow{FLOAT_WORDS_MAX - group.words_before, group.words_end};
}
DEVICE FloatWindow squares_of_group(const FloatGroup &group) {
    return FloatWindow{FLOAT_WORDS_MAX - group.square_words_before, group.square_words_end};
}

// The head of a state, of which words follow: a byte each of its first five numbers,
// in two words, two unused ones, and the count.
struct FloatState {
    uint32_t marks, first_word, word_count;
    uint32_t first_square_word, square_word_count;
    uint64_t count;
    uint64_t words; // where they are
};

#define FLOAT_STATE_BYTES 16

// Returns false for bytes that are no state.
DEVICE bool read_state(const AccumulateFloats &args, uint64_t row, FloatState *state) {
    const StringCell cell = cell_at<StringCell>(args.input, row);
    if (cell.length < FLOAT_STATE_BYTES) return false;
    const uint32_t sum = load_u32(cell.address), squares = load_u32(cell.address + 4);
    *state = FloatState{sum & 0xff,     sum >> 8 & 0xff,           sum >> 16 & 0xff,
                        squares & 0xff, squares >> 8 & 0xff,       load_u64(cell.address + 8),
                        cell.address + FLOAT_STATE_BYTES};
    return cell.length == FLOAT_STATE_BYTES + 4 * (state->word_count + state->square_word_count) &&
           state->first_word + state->word_count <= FLOAT_WORDS_MAX &&
           state->first_square_word + state->square_word_count <= FLOAT_WORDS_MAX;
}

// Writes the head of a state to an address that is a multiple of 4.
DEVICE void write_head(uint64_t address, const FloatState &state) {
    uint32_t *words = (uint32_t *)address;
    words[0] = state.marks | state.first_word << 8 | state.word_count << 16;
    words[1] = state.first_square_word | state.square_word_count << 8;
    words[2] = (uint32_t)state.count;
    words[3] = (uint32_t)(state.count >> 32);
}

DEVICE uint64_t *words_of_group(uint64_t words, uint64_t offsets, uint64_t group) {
    return (uint64_t *)words + ((const uint64_t *)offsets)[group];
}
