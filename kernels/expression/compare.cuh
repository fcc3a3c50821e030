// Comparisons of cells of 16 bytes, and the search for a cell among sorted ones.
#pragma once

#include "cell16.cuh"

DEVICE int compare_text(const Text &a, const Text &b) { return compare_bytes(a.bytes, a.length, b.bytes, b.length); }

DEVICE int compare_ordered(uint32_t order, const Cell &a, const Cell &b) {
    switch (order) {
        case ORDER_INTEGER: return compare_numbers(integer_of(a), integer_of(b));
        case ORDER_WIDE: return compare_numbers(wide_of(a), wide_of(b));
        case ORDER_FLOAT: return compare_floats(float_of(a), float_of(b));
        case ORDER_TEXT: return compare_text(text_of(a), text_of(b));
        case ORDER_UUID: return compare_bytes((const uint8_t *)&a, 16, (const uint8_t *)&b, 16);
        default: return compare_numbers(interval_span(interval_of(a)), interval_span(interval_of(b)));
    }
}

// Whether a cell equals one of `count` sorted cells.
DEVICE bool search_cells(uint32_t order, const Cell &cell, const Cell *sorted, uint64_t count) {
    uint64_t first = 0;
    while (count > 0) {
        const uint64_t half = count / 2;
        const int ordering = compare_ordered(order, cell, sorted[first + half]);
        if (ordering == 0) return true;
        if (ordering > 0) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return false;
}

// The comparisons that are rare or large.
DEVICE void run_comparison(const Instruction &in, Cell *target, const Cell &a_cell, const Cell &b_cell,
                           const Cell *constants) {
    const Text a = text_of(a_cell), b = text_of(b_cell);
    const bool tests_equality = in.mode == ORDERING_EQUAL || in.mode == (ORDERING_LESS | ORDERING_GREATER);
    int64_t result;
    switch (in.opcode) {
        case OPCODE_COMPARE_TEXT:
            if (a.length != b.length && tests_equality) {
                result = in.mode != ORDERING_EQUAL;
            } else {
                result = ordering_holds(in.mode, compare_text(a, b));
            }
            break;
        case OPCODE_COMPARE_UUID: result = ordering_holds(in.mode, compare_ordered(ORDER_UUID, a_cell, b_cell)); break;
        default: result = search_cells(in.mode, a_cell, constants + b_cell.low, b_cell.high); // OPCODE_SEARCH
    }
    set_integer(target, result);
}
