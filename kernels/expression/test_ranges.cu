// Tests conditions that are comparisons of integers, all of which must hold, without an interpreter.
//
// Grid:    any number of blocks; a thread tests TESTED_ROWS rows at a time, whose cells are on their way together.
// Inputs:  columns of integers of 2, 4 or 8 bytes, and of booleans.
// Outputs: one flag a row: 1 where every term holds and no cell that it reads is NULL.
// Traffic: a column's cells once a term, but for rows that an earlier term has dropped; a flag a row.
#include "../common/launch.h"
#include "../abi/program.h"
#include "cell16.cuh"

#define TESTED_ROWS 8

// Cells of the rows with a bit in `wanted`, BLOCK_THREADS apart.
template <class T>
DEVICE void load_integers(uint64_t values, uint64_t first, uint32_t wanted, int64_t *cells) {
#pragma unroll
    for (uint32_t item = 0; item < TESTED_ROWS; item++) {
        if (wanted >> item & 1) cells[item] = ((const T *)values)[first + item * BLOCK_THREADS];
    }
}

// Loads a column's cells; returns which of the wanted rows have one.
DEVICE uint32_t load_operand(const RangeOperand &operand, uint64_t first, uint32_t wanted, int64_t *cells) {
    if (operand.validity) {
#pragma unroll
        for (uint32_t item = 0; item < TESTED_ROWS; item++) {
            if ((wanted >> item & 1) && !((const uint8_t *)operand.validity)[first + item * BLOCK_THREADS]) wanted &= ~(1u << item);
        }
    }
    switch (operand.cell_bytes) {
        case 1: load_integers<uint8_t>(operand.values, first, wanted, cells); break;
        case 2: load_integers<int16_t>(operand.values, first, wanted, cells); break;
        case 4: load_integers<int32_t>(operand.values, first, wanted, cells); break;
        default: load_integers<int64_t>(operand.values, first, wanted, cells);
    }
    return wanted;
}

DEVICE uint32_t test_term(const RangeTerm &term, uint64_t first, uint32_t wanted) {
    int64_t cells[TESTED_ROWS] = {}, others[TESTED_ROWS] = {};
    wanted = load_operand(term.operand, first, wanted, cells);
    if (term.other.values) wanted = load_operand(term.other, first, wanted, others);
    uint32_t passed = 0;
#pragma unroll
    for (uint32_t item = 0; item < TESTED_ROWS; item++) {
        const bool holds = term.other.values
                               ? ordering_holds(term.orderings, (cells[item] > others[item]) - (cells[item] < others[item])) != 0
                               : cells[item] >= term.least && cells[item] <= term.greatest;
        passed |= (uint32_t)holds << item;
    }
    return wanted & passed;
}

KERNEL(test_ranges, TestRanges, BLOCK_THREADS) {
    const uint64_t tile = BLOCK_THREADS * TESTED_ROWS, step = gridDim.x * tile;
    for (uint64_t start = blockIdx.x * tile; start < args.row_count; start += step) {
        const uint64_t first = start + threadIdx.x;
        uint32_t there = 0;
#pragma unroll
        for (uint32_t item = 0; item < TESTED_ROWS; item++) {
            if (first + item * BLOCK_THREADS < args.row_count) there |= 1u << item;
        }
        uint32_t passed = there;
        for (uint32_t place = 0; place < args.term_count; place++) passed = test_term(args.terms[place], first, passed);
#pragma unroll
        for (uint32_t item = 0; item < TESTED_ROWS; item++) {
            if (there >> item & 1) ((uint8_t *)args.flags)[first + item * BLOCK_THREADS] = passed >> item & 1;
        }
    }
}
