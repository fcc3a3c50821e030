// Cells of a program: registers and constants.
#pragma once

#include "../abi/program.h"
#include "../common/cell.cuh"
#include "../common/report_error.cuh"

struct alignas(16) Cell {
    uint64_t low, high;
};

// An ErrorCode and, from bit 8 on, its detail; 0 if nothing is wrong.
typedef uint32_t Fault;

// Left by a function that found no space for a text.
#define FAULT_NO_SPACE 0xffu

DEVICE int64_t integer_of(const Cell &cell) { return (int64_t)cell.low; }
DEVICE int128 wide_of(const Cell &cell) { return (int128)(((uint128)cell.high << 64) | cell.low); }
DEVICE double float_of(const Cell &cell) { return __builtin_bit_cast(double, cell.low); }
DEVICE IntervalCell interval_of(const Cell &cell) {
    return IntervalCell{(int64_t)cell.low, (int32_t)(uint32_t)cell.high, (int32_t)(uint32_t)(cell.high >> 32)};
}

DEVICE void set_integer(Cell *cell, int64_t value) { cell->low = (uint64_t)value; }
DEVICE void set_wide(Cell *cell, int128 value) {
    cell->low = (uint64_t)value;
    cell->high = (uint64_t)((uint128)value >> 64);
}
// A decimal of more than 38 digits is in two cells, one after the other.
DEVICE int256 int256_at(const Cell *cells) {
    return int256{(uint128)wide_of(cells[0]), wide_of(cells[1])};
}
DEVICE void set_int256(Cell *cells, const int256 &value) {
    set_wide(cells, (int128)value.low);
    set_wide(cells + 1, value.high);
}
DEVICE void set_float(Cell *cell, double value) { cell->low = __builtin_bit_cast(uint64_t, value); }
DEVICE void set_interval(Cell *cell, int64_t microseconds, int32_t days, int32_t months) {
    cell->low = (uint64_t)microseconds;
    cell->high = ((uint64_t)(uint32_t)months << 32) | (uint32_t)days;
}

// Bytes of a text or a bytea.
struct Text {
    const uint8_t *bytes;
    uint32_t length;
};

DEVICE Text text_of(const Cell &cell) { return Text{(const uint8_t *)cell.low, (uint32_t)cell.high}; }
DEVICE void set_text(Cell *cell, const uint8_t *bytes, uint32_t length) {
    cell->low = (uint64_t)bytes;
    cell->high = length;
}

// Whether an ordering of -1, 0 or 1 is in a set of OrderingBit.
DEVICE int64_t ordering_holds(uint32_t set, int ordering) { return (set >> (ordering + 1)) & 1; }
