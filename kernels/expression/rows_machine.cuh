// The machine for programs that do the same in every row: a thread has ROWS rows, so that an instruction is fetched and
// taken apart once for all of them, and what it waits for it waits for once.
//
// Has the instructions between the last of activity and PROGRAM_RARE, but for those of 256 bits, and of 128 bits if registers have
// fewer; each does what Machine's does. A row that has failed goes on with values that have no meaning: its first report stays.
#pragma once

#include "compare.cuh"
#include "datetime.cuh"
#include "float.cuh"
#include "instruction.cuh"

// A register of programs whose values all have at most 64 bits.
struct NarrowCell {
    uint64_t low;
};

DEVICE int64_t integer_of(const NarrowCell &cell) { return (int64_t)cell.low; }
DEVICE double float_of(const NarrowCell &cell) { return __builtin_bit_cast(double, cell.low); }
DEVICE void set_integer(NarrowCell *cell, int64_t value) { cell->low = (uint64_t)value; }
DEVICE void set_float(NarrowCell *cell, double value) { cell->low = __builtin_bit_cast(uint64_t, value); }

// An operand of all rows of a thread.
template <class Register>
struct RowOperand {
    const Register *cells;
    uint32_t step;     // from a row's cell to the next one's: 0 for a constant
    uint32_t shift;    // the register's bit
    uint32_t constant; // 1: never NULL

    METHOD const Register &of(uint32_t row) const { return cells[row * step]; }
    METHOD bool is_valid(uint32_t valid) const { return ((valid >> shift | constant) & 1) != 0; }
};

template <uint32_t ROWS, class Register>
struct RowsMachine {
    typedef RowOperand<Register> Operand;
    static const bool IS_WIDE = sizeof(Register) == sizeof(Cell);

    Register *registers; // ROWS cells each. Not a part of this, which is to be in registers itself
    uint32_t valid[ROWS]; // a bit a register
    const Cell *constants;
    uint64_t first_row; // the thread's; the next one is BLOCK_THREADS further on
    uint32_t row_count; // of the thread

    METHOD Register *cells_of(uint16_t number) const { return registers + number * ROWS; }
    METHOD Operand operand(uint16_t number) const {
        // A constant's lower half comes first.
        if (number & OPERAND_CONSTANT) return Operand{(const Register *)(constants + (number & (OPERAND_CONSTANT - 1))), 0, 0, 1};
        return Operand{cells_of(number), 1, number, 0};
    }
    METHOD uint64_t row_of(uint32_t row) const { return first_row + row * BLOCK_THREADS; }
    METHOD void set_valid(uint32_t row, uint32_t bit, bool is_valid) {
        valid[row] = is_valid ? valid[row] | bit : valid[row] & ~bit;
    }

    METHOD void load(const EvaluateProgram &args, const Instruction &in) {
        const ProgramColumn column = args.columns[in.a];
        Register *target = cells_of(in.target);
        bool is_there[ROWS];
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) {
            is_there[row] = row < row_count && (column.validity == 0 || ((const uint8_t *)column.validity)[row_of(row)] != 0);
            set_valid(row, 1u << in.target, is_there[row]);
        }
        const auto each = [&](auto set) {
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                if (is_there[row]) set(target + row, row_of(row));
            }
        };
        const uint64_t values = column.values;
        switch (in.opcode) {
            case OPCODE_LOAD_BOOL: each([&](Register *cell, uint64_t row) { cell->low = ((const uint8_t *)values)[row]; }); break;
            case OPCODE_LOAD_INT16: each([&](Register *cell, uint64_t row) { set_integer(cell, ((const int16_t *)values)[row]); }); break;
            case OPCODE_LOAD_INT32: each([&](Register *cell, uint64_t row) { set_integer(cell, ((const int32_t *)values)[row]); }); break;
            case OPCODE_LOAD_INT64: each([&](Register *cell, uint64_t row) { set_integer(cell, ((const int64_t *)values)[row]); }); break;
            case OPCODE_LOAD_FLOAT32: each([&](Register *cell, uint64_t row) { set_float(cell, ((const float *)values)[row]); }); break;
            default: // OPCODE_LOAD_CELL
                if constexpr (IS_WIDE) each([&](Register *cell, uint64_t row) { *cell = ((const Cell *)values)[row]; });
        }
    }

    METHOD void store(const EvaluateProgram &args, const Instruction &in) const {
        const ProgramColumn output = args.outputs[in.target];
        const Operand a = operand(in.a);
        const uint64_t values = output.values;
        bool is_there[ROWS];
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) {
            is_there[row] = row < row_count;
            if (!is_there[row]) continue;
            const bool is_valid = a.is_valid(valid[row]);
            if (in.opcode == OPCODE_STORE_FLAG) {
                ((uint8_t *)values)[row_of(row)] = is_valid && a.of(row).low != 0;
                continue;
            }
            if (output.validity != 0) ((uint8_t *)output.validity)[row_of(row)] = is_valid;
            is_there[row] = is_valid;
        }
        const auto each = [&](auto set) {
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                if (is_there[row]) set(a.of(row), row_of(row));
            }
        };
        switch (in.opcode) {
            case OPCODE_STORE_INT8: each([&](const Register &cell, uint64_t row) { ((uint8_t *)values)[row] = (uint8_t)cell.low; }); break;
            case OPCODE_STORE_INT16: each([&](const Register &cell, uint64_t row) { ((uint16_t *)values)[row] = (uint16_t)cell.low; }); break;
            case OPCODE_STORE_INT32: each([&](const Register &cell, uint64_t row) { ((uint32_t *)values)[row] = (uint32_t)cell.low; }); break;
            case OPCODE_STORE_INT64: each([&](const Register &cell, uint64_t row) { ((uint64_t *)values)[row] = cell.low; }); break;
            case OPCODE_STORE_FLOAT32: each([&](const Register &cell, uint64_t row) { ((float *)values)[row] = (float)float_of(cell); }); break;
            case OPCODE_STORE_FLAG: break;
            default: // OPCODE_STORE_CELL
                if constexpr (IS_WIDE) each([&](const Register &cell, uint64_t row) { ((Cell *)values)[row] = cell; });
        }
    }

    METHOD void copy(uint32_t row, uint16_t number, const Operand &source) {
        const bool is_valid = source.is_valid(valid[row]);
        cells_of(number)[row] = source.of(row);
        set_valid(row, 1u << number, is_valid);
    }
    METHOD void set_boolean(uint32_t row, uint16_t number, bool is_valid, bool value) {
        cells_of(number)[row].low = value;
        set_valid(row, 1u << number, is_valid);
    }
    METHOD bool is_true(uint32_t row, const Operand &a) const { return a.is_valid(valid[row]) && a.of(row).low != 0; }
    METHOD bool holds(uint32_t row, uint32_t condition, const Operand &a) const {
        const bool is_valid = a.is_valid(valid[row]);
        switch (condition) {
            case CONDITION_NULL: return !is_valid;
            case CONDITION_NOT_NULL: return is_valid;
            case CONDITION_TRUE: return is_valid && a.of(row).low != 0;
            case CONDITION_NOT_TRUE: return !is_valid || a.of(row).low == 0;
            case CONDITION_FALSE: return is_valid && a.of(row).low == 0;
            case CONDITION_NOT_FALSE: return !is_valid || a.of(row).low != 0;
            default: return true; // CONDITION_ALWAYS
        }
    }

    // Instructions that look at NULL themselves.
    METHOD void choose(const Instruction &in) {
        const Operand a = operand(in.a), b = operand(in.b), c = operand(in.c);
        const auto each = [&](auto set) {
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) set(row);
        };
        switch (in.opcode) {
            case OPCODE_MOVE: each([&](uint32_t row) { copy(row, in.target, a); }); break;
            case OPCODE_SET_NULL: each([&](uint32_t row) { set_valid(row, 1u << in.target, false); }); break;
            case OPCODE_AND:
            case OPCODE_OR: {
                // The value that decides alone: false for AND.
                const bool decisive = in.opcode == OPCODE_OR;
                each([&](uint32_t row) {
                    const bool a_valid = a.is_valid(valid[row]), b_valid = b.is_valid(valid[row]);
                    const bool decided = (a_valid && (a.of(row).low != 0) == decisive) || (b_valid && (b.of(row).low != 0) == decisive);
                    set_boolean(row, in.target, decided || (a_valid && b_valid), decided == decisive);
                });
                break;
            }
            case OPCODE_TEST: each([&](uint32_t row) { set_boolean(row, in.target, true, holds(row, in.mode, a)); }); break;
            case OPCODE_SELECT: each([&](uint32_t row) { copy(row, in.target, is_true(row, a) ? b : c); }); break;
            case OPCODE_COALESCE: each([&](uint32_t row) { copy(row, in.target, a.is_valid(valid[row]) ? a : b); }); break;
            case OPCODE_NULL_IF:
                each([&](uint32_t row) {
                    const bool equal = is_true(row, b);
                    copy(row, in.target, a);
                    if (equal) set_valid(row, 1u << in.target, false);
                });
                break;
            case OPCODE_CHOOSE:
                each([&](uint32_t row) { copy(row, in.target, !a.is_valid(valid[row]) || is_true(row, c) ? b : a); });
                break;
            default: // OPCODE_DISTINCT
                each([&](uint32_t row) {
                    const bool a_valid = a.is_valid(valid[row]), b_valid = b.is_valid(valid[row]);
                    const bool value = a_valid && b_valid ? c.of(row).low != 0 : (a_valid != b_valid) != (in.mode != 0);
                    set_boolean(row, in.target, true, value);
                });
        }
    }

    METHOD void report_fault(const EvaluateProgram &args, const Instruction &in) {
        if (in.detail) report_error(args.status, in.detail & 0xff, in.detail >> 8);
    }

    // Strict instructions.
    METHOD void calculate(const EvaluateProgram &args, const Instruction &in) {
        const Operand a = operand(in.a), b = operand(in.b);
        Register *target = cells_of(in.target);
        bool is_there[ROWS];
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) {
            is_there[row] = row < row_count && a.is_valid(valid[row]) && b.is_valid(valid[row]);
            set_valid(row, 1u << in.target, is_there[row]);
        }
        const auto each = [&](auto of) {
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                if (is_there[row]) set_integer(target + row, of(a.of(row), b.of(row)));
            }
        };
        // `of` says whether the result does not fit.
        const auto each_wide = [&](auto of) {
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                int128 wide;
                if (!is_there[row]) continue;
                if (of(a.of(row), b.of(row), &wide)) {
                    report_fault(args, in);
                } else if constexpr (IS_WIDE) {
                    set_wide(target + row, wide);
                }
            }
        };
        const auto each_checked = [&](auto of) {
            const uint32_t unused = 64 - in.mode;
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                int64_t result;
                if (!is_there[row]) continue;
                const bool overflow = of(integer_of(a.of(row)), integer_of(b.of(row)), &result);
                if (overflow || (int64_t)((uint64_t)result << unused) >> unused != result) {
                    report_fault(args, in);
                } else {
                    set_integer(target + row, result);
                }
            }
        };
        const uint32_t mode = in.mode;
        switch (in.opcode) {
            case OPCODE_NOT: each([](const Register &a, const Register &) { return integer_of(a) == 0; }); break;
            case OPCODE_NOT_ZERO: each([](const Register &a, const Register &) { return integer_of(a) != 0; }); break;
            case OPCODE_COMPARE_INTEGER:
                each([&](const Register &a, const Register &b) { return ordering_holds(mode, compare_numbers(integer_of(a), integer_of(b))); });
                break;
            case OPCODE_COMPARE_WIDE:
                if constexpr (IS_WIDE) each([&](const Register &a, const Register &b) { return ordering_holds(mode, compare_numbers(wide_of(a), wide_of(b))); });
                break;
            case OPCODE_COMPARE_FLOAT:
                each([&](const Register &a, const Register &b) { return ordering_holds(mode, compare_floats(float_of(a), float_of(b))); });
                break;
            case OPCODE_ADD_INTEGER: each_checked([](int64_t a, int64_t b, int64_t *result) { return add_overflows(a, b, result); }); break;
            case OPCODE_SUBTRACT_INTEGER:
                each_checked([](int64_t a, int64_t b, int64_t *result) { return subtract_overflows(a, b, result); });
                break;
            case OPCODE_MULTIPLY_INTEGER:
                each_checked([](int64_t a, int64_t b, int64_t *result) { return multiply_overflows(a, b, result); });
                break;
            case OPCODE_CHECK_INTEGER: each_checked([](int64_t a, int64_t, int64_t *result) { return *result = a, false; }); break;
            case OPCODE_WIDEN:
                if constexpr (IS_WIDE) each_wide([](const Register &a, const Register &, int128 *wide) { return *wide = integer_of(a), false; });
                break;
            case OPCODE_MULTIPLY_INTO_WIDE:
                if constexpr (IS_WIDE) each_wide([](const Register &a, const Register &b, int128 *wide) { return *wide = (int128)integer_of(a) * integer_of(b), false; });
                break;
            case OPCODE_ADD_WIDE:
                if constexpr (IS_WIDE) each_wide([](const Register &a, const Register &b, int128 *wide) { return add_overflows(wide_of(a), wide_of(b), wide); });
                break;
            case OPCODE_SUBTRACT_WIDE:
                if constexpr (IS_WIDE) each_wide([](const Register &a, const Register &b, int128 *wide) { return subtract_overflows(wide_of(a), wide_of(b), wide); });
                break;
            case OPCODE_TIMESTAMP_TO_DATE:
                each([](const Register &a, const Register &) { return date_of_timestamp(integer_of(a)); });
                break;
            default: // OPCODE_EXTRACT_DATE
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                    if (is_there[row]) set_integer(target + row, date_field(mode, integer_of(a.of(row))));
                }
        }
    }
};

// Evaluates rows first, first + step, ...
template <uint32_t ROWS, class Register>
DEVICE void run_rows_program(const EvaluateProgram &args) {
    Register registers[PROGRAM_REGISTERS_SMALL * ROWS];
    RowsMachine<ROWS, Register> machine;
    machine.registers = registers;
    machine.constants = (const Cell *)args.constants;
    const InstructionWords *program = (const InstructionWords *)args.instructions;
    const uint64_t tile = BLOCK_THREADS * ROWS, step = gridDim.x * tile;
    for (uint64_t first = blockIdx.x * tile; first < args.row_count; first += step) {
        machine.first_row = first + threadIdx.x;
        machine.row_count = 0;
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) {
            machine.valid[row] = 0;
            if (machine.row_of(row) < args.row_count) machine.row_count = row + 1;
        }
        for (uint32_t place = 0; place < args.instruction_count; place++) {
            const Instruction in = unpack(program[place]);
            if (in.opcode < OPCODE_STORE_INT8) {
                machine.load(args, in);
            } else if (in.opcode < OPCODE_MOVE) {
                machine.store(args, in);
            } else if (in.opcode < PROGRAM_STRICT) {
                machine.choose(in);
            } else {
                machine.calculate(args, in);
            }
        }
    }
}
