// Decimals of up to 38 digits: an integer of 128 bits times a power of ten that the program knows.
//
// Every result is exact, or rounded as PostgreSQL rounds, or a fault: no intermediate value wraps.
//
// Source: PostgreSQL 15, `numeric.c` (`select_div_scale`, `div_var`, `round_var`). We differ: long division in the
// decimal system, because a scaled dividend may exceed 128 bits.
#pragma once

#include "integer.cuh"
#include "powers.cuh"

// Digits in one of PostgreSQL's groups of digits.
#define GROUP_DIGITS 4
// The least count of significant digits of a quotient, and the most digits after the point.
#define SIGNIFICANT_DIGITS_MIN 16
#define DISPLAY_SCALE_MAX 1000

// value / power, rounded half away from zero.
DEVICE int128 divide_rounded(int128 value, uint128 power) {
    uint128 quotient, remainder;
    divide_magnitudes(magnitude_of(value), power, &quotient, &remainder);
    if (remainder >= power - remainder) quotient++;
    return (int128)(value < 0 ? -quotient : quotient);
}

// value * 10^exponent. Returns whether it does not fit.
DEVICE bool raise_overflows(int128 value, uint32_t exponent, int128 *result) {
    *result = 0;
    if (value == 0) return false;
    if (exponent > POWER_EXPONENT_MAX) return true;
    return multiply_overflows(value, (int128)power_of_ten(exponent), result);
}

// -1, 0 or 1 of a * 10^a_raise and b * 10^b_raise, one of which is 0.
DEVICE int compare_scaled(int128 a, uint32_t a_raise, int128 b, uint32_t b_raise) {
    int128 raised;
    // What does not fit is further from zero than anything that does.
    if (b_raise == 0) {
        if (raise_overflows(a, a_raise, &raised)) return a < 0 ? -1 : 1;
        return compare_numbers(raised, b);
    }
    if (raise_overflows(b, b_raise, &raised)) return b < 0 ? 1 : -1;
    return compare_numbers(a, raised);
}

// (a + b) % divisor; a and b are less than divisor, which is at most 2^127.
DEVICE uint128 add_modulo(uint128 a, uint128 b, uint128 divisor) {
    uint128 sum = a + b;
    return sum >= divisor ? sum - divisor : sum;
}

// The remainder of a * 10^a_raise by b * 10^b_raise, one of which is 0, with the sign of a.
DEVICE Fault modulo_scaled(int128 a, uint32_t a_raise, int128 b, uint32_t b_raise, int128 *result) {
    if (b == 0) return ERROR_DIVISION_BY_ZERO;
    int128 raised;
    if (raise_overflows(b, b_raise, &raised)) {
        *result = a; // which is nearer to zero than the divisor
        return 0;
    }
    uint128 divisor = magnitude_of(raised), quotient, remainder;
    divide_magnitudes(magnitude_of(a), divisor, &quotient, &remainder);
    for (uint32_t digit = 0; digit < a_raise; digit++) {
        uint128 twice = add_modulo(remainder, remainder, divisor);
        uint128 five = add_modulo(add_modulo(twice, twice, divisor), remainder, divisor);
        remainder = add_modulo(five, five, divisor);
    }
    *result = (int128)(a < 0 ? -remainder : remainder);
    return 0;
}

// Rounds to `digits` digits after the point, or before it if negative, and holds the result at `scale`.
DEVICE bool round_overflows(uint32_t rounding, int128 value, int64_t digits, uint32_t a_scale, uint32_t scale,
                            int128 *result) {
    int64_t dropped = (int64_t)a_scale - digits;
    if (dropped <= 0) {
        if (scale >= a_scale) return raise_overflows(value, scale - a_scale, result);
        *result = divide_rounded(value, power_of_ten(a_scale - scale));
        return false;
    }
    *result = 0;
    if (dropped > POWER_EXPONENT_MAX) {
        // The power is more than twice as large as any value.
        return !(rounding <= ROUNDING_TRUNCATE || (rounding == ROUNDING_CEILING && value <= 0) ||
                 (rounding == ROUNDING_FLOOR && value >= 0));
    }
    uint128 power = power_of_ten((uint32_t)dropped), quotient, remainder;
    divide_magnitudes(magnitude_of(value), power, &quotient, &remainder);
    bool away = rounding == ROUNDING_ROUND     ? remainder >= power - remainder
                : rounding == ROUNDING_CEILING ? remainder != 0 && value > 0
                : rounding == ROUNDING_FLOOR   ? remainder != 0 && value < 0
                                               : false;
    if (away) quotient++;
    int128 rounded = (int128)(value < 0 ? -quotient : quotient);
    if (rounded == 0) return false;
    int64_t raised = (int64_t)scale - digits;
    if (raised < 0 || raised > POWER_EXPONENT_MAX) return true;
    return raise_overflows(rounded, (uint32_t)raised, result);
}

// Appends `count` decimal digits of remainder / divisor to the quotient. Returns whether it does not fit.
DEVICE bool append_digits(uint128 *quotient, uint128 *remainder, uint128 divisor, uint32_t count) {
    while (count > 0) {
        if (*remainder == 0) {
            if (*quotient == 0) return false;
            if (count > POWER_EXPONENT_MAX) return true;
            return multiply_overflows(*quotient, power_of_ten(count), quotient);
        }
        // As many digits at once as the remainder has room for: 1233 / 4096 is just below log10(2).
        uint32_t chunk = (uint32_t)clz_wide(divisor) * 1233 / 4096;
        chunk = chunk > count ? count : chunk;
        uint128 digits = 0;
        if (chunk > 0) {
            divide_magnitudes(*remainder * power_of_ten(chunk), divisor, &digits, remainder);
        } else {
            chunk = 1;
            uint128 sum = 0;
            for (uint32_t time = 0; time < 10; time++) {
                sum += *remainder; // below 2^128, because both are below the divisor, at most 2^127
                if (sum >= divisor) {
                    sum -= divisor;
                    digits++;
                }
            }
            *remainder = sum;
        }
        uint128 raised;
        if (multiply_overflows(*quotient, power_of_ten(chunk), &raised)) return true;
        *quotient = raised + digits;
        if (*quotient < digits) return true;
        count -= chunk;
    }
    return false;
}

// a / b rounded half away from zero to `digits` digits after the point and held at `scale`.
DEVICE Fault divide_decimal(int128 a, int128 b, int64_t digits, uint32_t scales, uint32_t fault, int128 *result) {
    int64_t a_scale = scales & 0xff, b_scale = (scales >> 8) & 0xff, scale = (scales >> 16) & 0xff;
    if (b == 0) return ERROR_DIVISION_BY_ZERO;
    if (digits < 0 || digits > scale) return fault;
    int64_t raised = digits + b_scale - a_scale;
    uint128 divisor = magnitude_of(b), quotient = 0, remainder = 0;
    if (raised < 0 && multiply_overflows(divisor, power_of_ten((uint32_t)-raised), &divisor)) {
        // More than twice the dividend.
    } else {
        divide_magnitudes(magnitude_of(a), divisor, &quotient, &remainder);
        if (raised > 0 && append_digits(&quotient, &remainder, divisor, (uint32_t)raised)) return fault;
        if (remainder >= divisor - remainder) quotient++;
    }
    int128 rounded;
    if (from_magnitude_overflows(quotient, (a < 0) != (b < 0), &rounded)) return fault;
    if (raise_overflows(rounded, (uint32_t)(scale - digits), result)) return fault;
    return 0;
}

DEVICE int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0); }

// The first of PostgreSQL's groups of four digits that is not zero, and its place: low has the place and, from bit 32
// on, the display scale; high has the group.
DEVICE void leading_group(int128 value, uint32_t scale, int64_t display, Cell *target) {
    int64_t weight = 0, group = 0;
    if (value != 0) {
        uint128 magnitude = magnitude_of(value);
        int64_t digit_count = 1;
        while (digit_count <= POWER_EXPONENT_MAX && magnitude >= power_of_ten((uint32_t)digit_count)) digit_count++;
        weight = floor_divide(digit_count - 1 - (int64_t)scale, GROUP_DIGITS);
        // The group ends at this place of the digits, counted from the last one.
        int64_t dropped = (int64_t)scale + weight * GROUP_DIGITS;
        uint128 kept = magnitude, rest;
        if (dropped > 0) divide_magnitudes(magnitude, power_of_ten((uint32_t)dropped), &kept, &rest);
        group = (int64_t)kept;
        for (; dropped < 0; dropped++) group *= 10;
    }
    target->low = ((uint64_t)(uint32_t)(int32_t)display << 32) | (uint32_t)(int32_t)weight;
    target->high = (uint64_t)group;
}

DEVICE int64_t quotient_scale(const Cell &a, const Cell &b) {
    int64_t weight = (int64_t)(int32_t)(uint32_t)a.low - (int64_t)(int32_t)(uint32_t)b.low;
    if ((int64_t)a.high <= (int64_t)b.high) weight--;
    int64_t scale = SIGNIFICANT_DIGITS_MIN - weight * GROUP_DIGITS;
    int64_t a_display = (int32_t)(uint32_t)(a.low >> 32), b_display = (int32_t)(uint32_t)(b.low >> 32);
    scale = scale < a_display ? a_display : scale;
    scale = scale < b_display ? b_display : scale;
    return scale < 0 ? 0 : (scale > DISPLAY_SCALE_MAX ? DISPLAY_SCALE_MAX : scale);
}

// 2^exponent for an exponent of a normal double.
DEVICE double power_of_two(int exponent) { return __builtin_bit_cast(double, (uint64_t)(1023 + exponent) << 52); }

// The double or, if `single`, the float nearest to value / 10^scale, halves to even, as reading the decimal gives.
DEVICE double wide_to_float(int128 value, uint32_t scale, bool single) {
    if (value == 0) return 0.0;
    uint128 divisor = power_of_ten(scale), quotient, remainder;
    divide_magnitudes(magnitude_of(value), divisor, &quotient, &remainder);
    // Bits of the quotient from the first that is set: exactly 64, the last of them set if anything follows.
    int exponent = 0;
    while ((quotient >> 63) == 0) {
        remainder <<= 1; // the divisor is below 2^127
        quotient <<= 1;
        if (remainder >= divisor) {
            remainder -= divisor;
            quotient |= 1;
        }
        exponent--;
    }
    uint64_t rest = remainder != 0;
    for (; (quotient >> 64) != 0; exponent++) {
        rest |= (uint64_t)quotient & 1;
        quotient >>= 1;
    }
    uint64_t bits = (uint64_t)quotient | rest;
    double result;
    if (single) {
        // 53 bits, the last of them set if anything was lost, so that rounding to 24 rounds once.
        uint64_t lost = bits & 0x7ff;
        bits = (bits >> 11 << 11) | (lost ? 0x800 : 0);
        result = (double)bits * power_of_two(exponent);
        result = (double)(float)result;
    } else {
        result = (double)bits * power_of_two(exponent);
    }
    return value < 0 ? -result : result;
}

// The rare functions of decimals.
DEVICE Fault run_decimal(const Instruction &in, Cell *target, const Cell &a_cell, const Cell &b_cell,
                         const Cell &c_cell) {
    const int128 a = wide_of(a_cell), b = wide_of(b_cell);
    int128 result = 0;
    switch (in.opcode) {
        case OPCODE_NARROW_WIDE:
            if ((int128)(int64_t)a != a) return in.detail;
            set_integer(target, (int64_t)a);
            return 0;
        case OPCODE_MULTIPLY_WIDE:
            if (multiply_overflows(a, b, &result)) return in.detail;
            break;
        case OPCODE_ROUND_WIDE: result = divide_rounded(a, (uint128)b); break;
        case OPCODE_LIMIT_WIDE:
            if (a >= b || a <= -b) return in.detail;
            result = a;
            break;
        case OPCODE_SIGN_WIDE: set_integer(target, a > 0 ? 1 : (a < 0 ? -1 : 0)); return 0;
        case OPCODE_COMPARE_SCALED:
            set_integer(target, ordering_holds(in.mode, compare_scaled(a, in.detail & 0xff, b, in.detail >> 8)));
            return 0;
        case OPCODE_MODULO_WIDE: {
            Fault fault = modulo_scaled(a, in.detail & 0xff, b, in.detail >> 8, &result);
            if (fault) return fault;
            break;
        }
        case OPCODE_ROUND_DECIMAL:
            if (round_overflows(in.mode, a, integer_of(b_cell), in.detail & 0xff, (in.detail >> 8) & 0xff, &result))
                return ERROR_DECIMAL_RANGE | (38u << 8);
            break;
        case OPCODE_DIVIDE_DECIMAL: {
            Fault fault = divide_decimal(a, b, integer_of(c_cell), in.detail, ERROR_DECIMAL_RANGE | (38u << 8), &result);
            if (fault) return fault;
            break;
        }
        case OPCODE_LEADING_GROUP: leading_group(a, in.detail, integer_of(b_cell), target); return 0;
        default: // OPCODE_QUOTIENT_SCALE
            set_integer(target, quotient_scale(a_cell, b_cell));
            return 0;
    }
    set_wide(target, result);
    return 0;
}
