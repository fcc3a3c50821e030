// The machine: fetches, masks, and the instructions that are frequent and small.
#pragma once

#include "compare.cuh"
#include "datetime.cuh"
#include "float.cuh"
#include "instruction.cuh"
#include "write_text.cuh"

// A bit a register; fewer instructions handle 32 of them.
template <bool IS_SMALL>
struct RegisterMask {
    typedef uint64_t Bits;
};
template <>
struct RegisterMask<true> {
    typedef uint32_t Bits;
};

// One row: its activity and which of its registers are not NULL.
template <class Bits>
struct RowState {
    Bits valid;
    uint64_t saved; // activity at every PUSH, the last one lowest
    bool active;
};

// Registers and constants have CELLS cells each. Operands are read before the target is written: it may be the same
// register.
template <uint32_t REGISTERS, uint32_t CELLS>
struct Machine {
    typedef typename RegisterMask<REGISTERS <= 32>::Bits Bits;

    Cell registers[REGISTERS * CELLS];
    const Cell *constants;
    RowState<Bits> row;

    METHOD const Cell *operand(uint16_t number) const {
        return (number & OPERAND_CONSTANT) ? constants + (number & (OPERAND_CONSTANT - 1)) * CELLS
                                           : registers + number * CELLS;
    }
    METHOD Cell *target(uint16_t number) { return registers + number * CELLS; }
    METHOD bool is_valid(uint16_t number) const {
        return (number & OPERAND_CONSTANT) != 0 || ((row.valid >> (number & (sizeof(Bits) * 8 - 1))) & 1) != 0;
    }
    METHOD bool is_true(uint16_t number) const { return is_valid(number) && operand(number)->low != 0; }
    METHOD void set_valid(uint16_t number, bool valid) {
        const Bits bit = (Bits)1 << number;
        row.valid = valid ? row.valid | bit : row.valid & ~bit;
    }
    METHOD void set_boolean(uint16_t number, bool valid, bool value) {
        target(number)->low = value;
        set_valid(number, valid);
    }

    METHOD bool holds(uint32_t condition, uint16_t number) const {
        switch (condition) {
            case CONDITION_NULL: return !is_valid(number);
            case CONDITION_NOT_NULL: return is_valid(number);
            case CONDITION_TRUE: return is_true(number);
            case CONDITION_NOT_TRUE: return !is_true(number);
            case CONDITION_FALSE: return is_valid(number) && operand(number)->low == 0;
            case CONDITION_NOT_FALSE: return !is_valid(number) || operand(number)->low != 0;
            default: return true; // CONDITION_ALWAYS
        }
    }

    // The place of the next instruction. The warp skips what none of its rows needs.
    METHOD uint32_t change_activity(const Instruction &in, uint32_t place) {
        if (in.opcode == OPCODE_POP) {
            row.active = row.saved & 1;
            row.saved >>= 1;
            return place + 1;
        }
        if (in.opcode == OPCODE_PUSH) row.saved = (row.saved << 1) | (row.active ? 1 : 0);
        row.active = row.active && holds(in.mode, in.a);
        return __ballot_sync(0xffffffffu, row.active) ? place + 1 : in.detail;
    }

    METHOD void load(const EvaluateProgram &args, const Instruction &in, uint64_t row_index) {
        const ProgramColumn column = args.columns[in.a];
        const bool valid = column.validity == 0 || ((const uint8_t *)column.validity)[row_index] != 0;
        set_valid(in.target, valid);
        if (!valid) return;
        Cell *cell = target(in.target);
        if constexpr (CELLS > 1) {
            if (in.opcode == OPCODE_LOAD_INT256) {
                const Cell *cells = (const Cell *)column.values + 2 * row_index;
                cell[0] = cells[0];
                cell[1] = cells[1];
                return;
            }
        }
        switch (in.opcode) {
            case OPCODE_LOAD_BOOL: cell->low = ((const uint8_t *)column.values)[row_index]; break;
            case OPCODE_LOAD_INT16: set_integer(cell, ((const int16_t *)column.values)[row_index]); break;
            case OPCODE_LOAD_INT32: set_integer(cell, ((const int32_t *)column.values)[row_index]); break;
            case OPCODE_LOAD_INT64: set_integer(cell, ((const int64_t *)column.values)[row_index]); break;
            case OPCODE_LOAD_FLOAT32: set_float(cell, ((const float *)column.values)[row_index]); break;
            default: *cell = ((const Cell *)column.values)[row_index]; // OPCODE_LOAD_CELL
        }
    }

    METHOD void store(const EvaluateProgram &args, const Instruction &in, uint64_t row_index) const {
        const ProgramColumn output = args.outputs[in.target];
        if (in.opcode == OPCODE_STORE_FLAG) {
            ((uint8_t *)output.values)[row_index] = is_true(in.a);
            return;
        }
        const bool valid = is_valid(in.a);
        if (output.validity != 0) ((uint8_t *)output.validity)[row_index] = valid;
        if (!valid) return;
        const Cell *value = operand(in.a);
        if constexpr (CELLS > 1) {
            if (in.opcode == OPCODE_STORE_INT256) {
                Cell *cells = (Cell *)output.values + 2 * row_index;
                cells[0] = value[0];
                cells[1] = value[1];
                return;
            }
        }
        switch (in.opcode) {
            case OPCODE_STORE_INT8: ((uint8_t *)output.values)[row_index] = (uint8_t)value->low; break;
            case OPCODE_STORE_INT16: ((uint16_t *)output.values)[row_index] = (uint16_t)value->low; break;
            case OPCODE_STORE_INT32: ((uint32_t *)output.values)[row_index] = (uint32_t)value->low; break;
            case OPCODE_STORE_INT64: ((uint64_t *)output.values)[row_index] = value->low; break;
            case OPCODE_STORE_FLOAT32: ((float *)output.values)[row_index] = (float)float_of(*value); break;
            default: ((Cell *)output.values)[row_index] = *value; // OPCODE_STORE_CELL
        }
    }

    METHOD void copy(uint16_t number, uint16_t source) {
        const Cell *from = operand(source);
        registers[number * CELLS] = from[0];
        if constexpr (CELLS > 1) registers[number * CELLS + 1] = from[1];
        set_valid(number, is_valid(source));
    }

    // Instructions that look at NULL themselves.
    METHOD void choose(const Instruction &in) {
        const bool a_valid = is_valid(in.a);
        switch (in.opcode) {
            case OPCODE_MOVE: copy(in.target, in.a); break;
            case OPCODE_SET_NULL: set_valid(in.target, false); break;
            case OPCODE_AND:
            case OPCODE_OR: {
                // The value that decides alone: false for AND.
                const bool decisive = in.opcode == OPCODE_OR;
                const bool b_valid = is_valid(in.b);
                const bool a_decides = a_valid && (operand(in.a)->low != 0) == decisive;
                const bool b_decides = b_valid && (operand(in.b)->low != 0) == decisive;
                const bool decided = a_decides || b_decides;
                set_boolean(in.target, decided || (a_valid && b_valid), decided == decisive);
                break;
            }
            case OPCODE_TEST: set_boolean(in.target, true, holds(in.mode, in.a)); break;
            case OPCODE_SELECT: copy(in.target, is_true(in.a) ? in.b : in.c); break;
            case OPCODE_COALESCE: copy(in.target, a_valid ? in.a : in.b); break;
            case OPCODE_NULL_IF: {
                const bool equal = is_true(in.b);
                copy(in.target, in.a);
                if (equal) set_valid(in.target, false);
                break;
            }
            case OPCODE_CHOOSE: copy(in.target, !a_valid || is_true(in.c) ? in.b : in.a); break;
            default: { // OPCODE_DISTINCT
                const bool b_valid = is_valid(in.b);
                const bool value = a_valid && b_valid ? operand(in.c)->low != 0 : (a_valid != b_valid) != (in.mode != 0);
                set_boolean(in.target, true, value);
            }
        }
    }

    // Strict instructions that are frequent and small. Returns a fault.
    METHOD Fault calculate(const Instruction &in) {
        Cell *cell = target(in.target);
        const Cell *a_cell = operand(in.a), *b_cell = operand(in.b);
        const int64_t a = integer_of(*a_cell), b = integer_of(*b_cell);
        int64_t result = 0;
        int128 wide;
        bool overflow;
        switch (in.opcode) {
            case OPCODE_NOT: result = a == 0; break;
            case OPCODE_NOT_ZERO: result = a != 0; break;
            case OPCODE_COMPARE_INTEGER: result = ordering_holds(in.mode, compare_numbers(a, b)); break;
            case OPCODE_COMPARE_WIDE:
                result = ordering_holds(in.mode, compare_numbers(wide_of(*a_cell), wide_of(*b_cell)));
                break;
            case OPCODE_COMPARE_FLOAT:
                result = ordering_holds(in.mode, compare_floats(float_of(*a_cell), float_of(*b_cell)));
                break;
            case OPCODE_ADD_INTEGER:
            case OPCODE_SUBTRACT_INTEGER:
            case OPCODE_MULTIPLY_INTEGER:
            case OPCODE_CHECK_INTEGER: {
                overflow = in.opcode == OPCODE_ADD_INTEGER        ? add_overflows(a, b, &result)
                           : in.opcode == OPCODE_SUBTRACT_INTEGER ? subtract_overflows(a, b, &result)
                           : in.opcode == OPCODE_MULTIPLY_INTEGER ? multiply_overflows(a, b, &result)
                                                                  : (result = a, false);
                const uint32_t unused = 64 - in.mode;
                if (overflow || (int64_t)((uint64_t)result << unused) >> unused != result) return in.detail;
                break;
            }
            case OPCODE_WIDEN: set_wide(cell, a); return 0;
            case OPCODE_MULTIPLY_INTO_WIDE: set_wide(cell, (int128)a * b); return 0;
            case OPCODE_ADD_WIDE:
            case OPCODE_SUBTRACT_WIDE:
                overflow = in.opcode == OPCODE_ADD_WIDE ? add_overflows(wide_of(*a_cell), wide_of(*b_cell), &wide)
                                                        : subtract_overflows(wide_of(*a_cell), wide_of(*b_cell), &wide);
                if (overflow) return in.detail;
                set_wide(cell, wide);
                return 0;
            case OPCODE_TIMESTAMP_TO_DATE: result = date_of_timestamp(a); break;
            default: result = date_field(in.mode, a); // OPCODE_EXTRACT_DATE
        }
        set_integer(cell, result);
        return 0;
    }
};

// Strict instructions that are rare or large, on operands that are not NULL.
DEVICE_CALL Fault run_rare(const Instruction &in, Cell *target, const Cell *a, const Cell *b, const Cell *c,
                           const Cell *constants) {
    if (in.opcode <= OPCODE_LIMIT_INTEGER) return run_integer(in, target, integer_of(*a), integer_of(*b));
    if (in.opcode <= OPCODE_QUOTIENT_SCALE) return run_decimal(in, target, *a, *b, *c);
    if (in.opcode <= OPCODE_FLOAT_TO_INTEGER) return run_float(in, target, *a, *b);
    if (in.opcode <= OPCODE_COMPARE_INTERVAL) return run_datetime(in, target, *a, *b, *c, constants);
    run_comparison(in, target, *a, *b, constants);
    return 0;
}

// As run_rare, for the functions of text.
DEVICE_CALL Fault run_any_text(const EvaluateProgram &args, const Instruction &in, Cell *target, const Cell *a,
                               const Cell *b, const Cell *c) {
    if (in.opcode < OPCODE_FOLD_TEXT) return run_text(in, target, *a, *b, *c);
    return run_write_text(args, in, target, *a, *b, *c);
}

// Evaluates rows first, first + step, ... The threads of a warp stay together.
template <uint32_t REGISTERS, uint32_t CELLS, bool HAS_TEXT>
DEVICE void run_program(const EvaluateProgram &args) {
    Machine<REGISTERS, CELLS> machine;
    machine.constants = (const Cell *)args.constants;
    const InstructionWords *program = (const InstructionWords *)args.instructions;
    const uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS;
    for (uint64_t first = (uint64_t)blockIdx.x * BLOCK_THREADS; first < args.row_count; first += step) {
        const uint64_t row_index = first + threadIdx.x;
        machine.row = {0, 0, row_index < args.row_count};
        for (uint32_t place = 0; place < args.instruction_count;) {
            const Instruction in = unpack(program[place]);
            if (in.opcode <= OPCODE_POP) {
                place = machine.change_activity(in, place);
                continue;
            }
            place++;
            if (!machine.row.active) continue;
            if (in.opcode < OPCODE_STORE_INT8) {
                machine.load(args, in, row_index);
            } else if (in.opcode < OPCODE_MOVE) {
                machine.store(args, in, row_index);
            } else if (in.opcode < PROGRAM_STRICT) {
                machine.choose(in);
            } else {
                // Only rare instructions have three operands.
                const bool valid = machine.is_valid(in.a) && machine.is_valid(in.b) &&
                                   (in.opcode < PROGRAM_RARE || machine.is_valid(in.c));
                machine.set_valid(in.target, valid);
                if (!valid) continue;
                Fault fault;
                if (in.opcode < PROGRAM_RARE) {
                    fault = machine.calculate(in);
                } else {
                    Cell *target = machine.target(in.target);
                    const Cell *a = machine.operand(in.a), *b = machine.operand(in.b), *c = machine.operand(in.c);
                    if (CELLS > 1 && in.opcode >= PROGRAM_INT256) {
                        fault = run_int256(in, target, a, b, c);
                    } else if (!HAS_TEXT || in.opcode < PROGRAM_TEXT) {
                        fault = run_rare(in, target, a, b, c, machine.constants);
                    } else {
                        fault = run_any_text(args, in, target, a, b, c);
                    }
                }
                if (fault == 0) continue;
                // The row's values have no meaning from here on.
                machine.row.active = false;
                machine.row.saved = 0;
                if (fault != FAULT_NO_SPACE) report_error(args.status, fault & 0xff, fault >> 8, machine.operand(in.a)->low);
            }
        }
    }
}
