// Floats with PostgreSQL's checks. `real` is computed in 32 bits and held as the double of the same value.
//
// No expression here is a product plus something, so that no compiler can fuse one; sums, products, quotients and
// roots are rounded to nearest, and denormals are kept, on every device.
//
// Source: PostgreSQL 15, `float.c` and `utils/float.h`.
#pragma once

#include <math.h>

#include "decimal.cuh"

template <class F>
DEVICE bool is_infinite(F value) {
    return value - value != 0 && value == value;
}

template <class F>
DEVICE Fault calculate_float(uint32_t opcode, F a, F b, F *result) {
    switch (opcode) {
        case OPCODE_ADD_FLOAT: *result = a + b; break;
        case OPCODE_SUBTRACT_FLOAT: *result = a - b; break;
        case OPCODE_MULTIPLY_FLOAT:
            *result = a * b;
            if (*result == 0 && a != 0 && b != 0) return ERROR_FLOAT_UNDERFLOW;
            break;
        default: // OPCODE_DIVIDE_FLOAT
            if (b == 0 && a == a) return ERROR_DIVISION_BY_ZERO;
            *result = a / b;
            if (is_infinite(*result) && !is_infinite(a)) return ERROR_FLOAT_OVERFLOW;
            if (*result == 0 && a != 0 && !is_infinite(b)) return ERROR_FLOAT_UNDERFLOW;
            return 0;
    }
    return is_infinite(*result) && !is_infinite(a) && !is_infinite(b) ? (Fault)ERROR_FLOAT_OVERFLOW : 0;
}

DEVICE double round_float(uint32_t rounding, double a) {
    switch (rounding) {
        case ROUNDING_ROUND: return rint(a);
        case ROUNDING_TRUNCATE: return trunc(a);
        case ROUNDING_CEILING: return ceil(a);
        default: return floor(a);
    }
}

// Rounded half to even; a fault if it does not fit the bits of in.mode.
DEVICE Fault float_to_integer(const Instruction &in, Cell *target, double a) {
    double rounded = rint(a);
    if (!(rounded >= -9223372036854775808.0 && rounded < 9223372036854775808.0)) return in.detail;
    int64_t value = (int64_t)rounded;
    uint32_t unused = 64 - in.mode;
    if ((int64_t)((uint64_t)value << unused) >> unused != value) return in.detail;
    set_integer(target, value);
    return 0;
}

// The functions of floats.
DEVICE Fault run_float(const Instruction &in, Cell *target, const Cell &a_cell, const Cell &b_cell) {
    const double a = float_of(a_cell), b = float_of(b_cell);
    double result = 0;
    Fault fault = 0;
    switch (in.opcode) {
        case OPCODE_ADD_FLOAT:
        case OPCODE_SUBTRACT_FLOAT:
        case OPCODE_MULTIPLY_FLOAT:
        case OPCODE_DIVIDE_FLOAT:
            if (in.mode == FORM_REAL) {
                float single = 0;
                fault = calculate_float(in.opcode, (float)a, (float)b, &single);
                result = single;
            } else {
                fault = calculate_float(in.opcode, a, b, &result);
                if (in.mode == FORM_UNCHECKED) fault = 0;
            }
            break;
        case OPCODE_NEGATE_FLOAT: result = -a; break;
        case OPCODE_ABSOLUTE_FLOAT: result = fabs(a); break;
        case OPCODE_SIGN_FLOAT: result = a > 0 ? 1 : (a < 0 ? -1 : 0); break;
        case OPCODE_ROUND_FLOAT: result = round_float(in.mode, a); break;
        case OPCODE_SQUARE_ROOT:
            if (a < 0) return ERROR_SQUARE_ROOT;
            result = sqrt(a);
            break;
        case OPCODE_INTEGER_TO_FLOAT:
            result = in.mode ? (double)(float)integer_of(a_cell) : (double)integer_of(a_cell);
            break;
        case OPCODE_WIDE_TO_FLOAT: result = decimal_to_float(wide_of(a_cell), in.detail, in.mode != 0); break;
        case OPCODE_DOUBLE_TO_REAL: {
            float single = (float)a;
            if (is_infinite(single) && !is_infinite(a)) return ERROR_FLOAT_OVERFLOW;
            if (single == 0 && a != 0) return ERROR_FLOAT_UNDERFLOW;
            result = single;
            break;
        }
        default: return float_to_integer(in, target, a); // OPCODE_FLOAT_TO_INTEGER
    }
    set_float(target, result);
    return fault;
}
