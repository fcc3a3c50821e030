// Integers of 64 and 128 bits that say whether they overflow.
#pragma once

#include "cell16.cuh"

#define INT128_MIN_MAGNITUDE ((uint128)1 << 127)

// `true` if the result does not fit; *result is then its low bits.
DEVICE bool add_overflows(int64_t a, int64_t b, int64_t *result) {
    int64_t sum = (int64_t)((uint64_t)a + (uint64_t)b);
    *result = sum;
    return ((a ^ sum) & (b ^ sum)) < 0;
}

DEVICE bool subtract_overflows(int64_t a, int64_t b, int64_t *result) {
    int64_t difference = (int64_t)((uint64_t)a - (uint64_t)b);
    *result = difference;
    return ((a ^ b) & (a ^ difference)) < 0;
}

DEVICE bool multiply_overflows(int64_t a, int64_t b, int64_t *result) {
    int128 product = (int128)a * b;
    *result = (int64_t)product;
    return (int64_t)(product >> 64) != (*result >> 63);
}

DEVICE bool add_overflows(int128 a, int128 b, int128 *result) {
    int128 sum = (int128)((uint128)a + (uint128)b);
    *result = sum;
    return ((a ^ sum) & (b ^ sum)) < 0;
}

DEVICE bool subtract_overflows(int128 a, int128 b, int128 *result) {
    int128 difference = (int128)((uint128)a - (uint128)b);
    *result = difference;
    return ((a ^ b) & (a ^ difference)) < 0;
}

DEVICE bool is_zero(uint128 value) { return value == 0; }
DEVICE uint64_t low_word(uint128 value) { return (uint64_t)value; }
DEVICE bool is_negative(int128 value) { return value < 0; }

DEVICE uint128 magnitude_of(int128 value) { return value < 0 ? -(uint128)value : (uint128)value; }

DEVICE int clz_wide(uint128 value) {
    uint64_t high = (uint64_t)(value >> 64);
    return high ? __clzll(high) : 64 + __clzll((uint64_t)value);
}

// Whether a * b does not fit 128 bits without sign.
DEVICE bool multiply_overflows(uint128 a, uint128 b, uint128 *result) {
    uint64_t a_high = (uint64_t)(a >> 64), b_high = (uint64_t)(b >> 64);
    *result = a * b;
    if (a_high == 0 && b_high == 0) return false;
    if (a_high != 0 && b_high != 0) return true;
    uint64_t high = a_high ? a_high : b_high;
    uint64_t other = a_high ? (uint64_t)b : (uint64_t)a;
    uint64_t low = a_high ? (uint64_t)a : (uint64_t)b;
    uint128 cross = (uint128)high * other;
    uint128 carried = cross + (((uint128)low * other) >> 64);
    return (carried >> 64) != 0;
}

// The value with this magnitude and sign, if it fits.
DEVICE int128 with_sign(uint128 magnitude, bool negative) { return (int128)(negative ? -magnitude : magnitude); }

// The same. Returns whether it does not fit.
DEVICE bool from_magnitude_overflows(uint128 magnitude, bool negative, int128 *result) {
    *result = with_sign(magnitude, negative);
    return magnitude > (negative ? INT128_MIN_MAGNITUDE : INT128_MIN_MAGNITUDE - 1);
}

DEVICE bool multiply_overflows(int128 a, int128 b, int128 *result) {
    uint128 product;
    bool overflow = multiply_overflows(magnitude_of(a), magnitude_of(b), &product);
    return from_magnitude_overflows(product, (a < 0) != (b < 0), result) || overflow;
}

// Quotient and remainder; the divisor is not 0.
DEVICE_CALL void divide_magnitudes(uint128 a, uint128 b, uint128 *quotient, uint128 *remainder) {
    if ((a >> 64) == 0 && (b >> 64) == 0) {
        *quotient = (uint64_t)a / (uint64_t)b;
        *remainder = (uint64_t)a % (uint64_t)b;
        return;
    }
    *quotient = a / b;
    *remainder = a - *quotient * b;
}

// PostgreSQL's integer division and remainder, for an instruction whose mode is the count of bits.
DEVICE Fault run_integer(const Instruction &in, Cell *target, int64_t a, int64_t b) {
    switch (in.opcode) {
        case OPCODE_DIVIDE_INTEGER: {
            if (b == 0) return ERROR_DIVISION_BY_ZERO;
            // The quotient of the least value by -1 does not fit.
            int64_t quotient;
            if (b == -1) {
                if (subtract_overflows((int64_t)0, a, &quotient)) return in.detail;
            } else {
                quotient = a / b;
            }
            uint32_t unused = 64 - in.mode;
            if ((int64_t)((uint64_t)quotient << unused) >> unused != quotient) return in.detail;
            set_integer(target, quotient);
            return 0;
        }
        case OPCODE_MODULO_INTEGER:
            if (b == 0) return ERROR_DIVISION_BY_ZERO;
            set_integer(target, b == -1 ? 0 : a % b);
            return 0;
        case OPCODE_ROUND_INTEGER: {
            int64_t quotient = a / b, part = a % b;
            part = part < 0 ? -part : part;
            if (part >= b - part) quotient += a < 0 ? -1 : 1;
            set_integer(target, quotient);
            return 0;
        }
        case OPCODE_BIT_AND: set_integer(target, a & b); return 0;
        case OPCODE_BIT_OR: set_integer(target, a | b); return 0;
        case OPCODE_BIT_XOR: set_integer(target, a ^ b); return 0;
        case OPCODE_BIT_NOT: set_integer(target, ~a); return 0;
        // C shifts a smallint as an integer, and processors take as much of the count as there are bits.
        case OPCODE_SHIFT_LEFT: {
            const int64_t shifted = in.mode == 64 ? (int64_t)((uint64_t)a << (b & 63)) : (int32_t)((uint32_t)a << (b & 31));
            set_integer(target, in.mode == 16 ? (int16_t)shifted : shifted);
            return 0;
        }
        case OPCODE_SHIFT_RIGHT: set_integer(target, in.mode == 64 ? a >> (b & 63) : a >> (b & 31)); return 0;
        default: // OPCODE_LIMIT_INTEGER
            if (a >= b || a <= -b) return in.detail;
            set_integer(target, a);
            return 0;
    }
}
