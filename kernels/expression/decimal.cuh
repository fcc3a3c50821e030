// Decimals: an integer of 128 bits, or of 256 for more than 38 digits, times a power of ten that the program knows.
//
// Every result is exact, or rounded as PostgreSQL rounds, or a fault: no intermediate value wraps. The functions are
// the same for both widths.
//
// Source: PostgreSQL 15, `numeric.c` (`select_div_scale`, `div_var`, `round_var`). We differ: long division in the
// decimal system, because a scaled dividend may exceed the width.
#pragma once

#include "powers.cuh"

// Digits in one of PostgreSQL's groups of digits.
#define GROUP_DIGITS 4
// The least count of significant digits of a quotient, and the most digits after the point.
#define SIGNIFICANT_DIGITS_MIN 16
#define DISPLAY_SCALE_MAX 1000
// A decimal that exceeds 128 or 256 bits.
#define DECIMAL128_FAULT (ERROR_DECIMAL_RANGE | (38u << 8))
#define DECIMAL256_FAULT (ERROR_DECIMAL_RANGE | (76u << 8))

// What differs between integers of 128 and of 256 bits.
template <class Signed>
struct Width;
template <>
struct Width<int128> {
    typedef uint128 Unsigned;
    // The greatest power of ten that fits without sign; the next one is more than twice as large as any value.
    static const uint32_t EXPONENT_MAX = POWER_EXPONENT_MAX;
    METHOD static uint128 power_of(uint32_t exponent) { return power_of_ten(exponent); }
    METHOD static uint128 of(uint64_t value) { return value; }
};
template <>
struct Width<int256> {
    typedef uint256 Unsigned;
    static const uint32_t EXPONENT_MAX = POWER256_EXPONENT_MAX;
    METHOD static uint256 power_of(uint32_t exponent) { return power256_of_ten(exponent); }
    METHOD static uint256 of(uint64_t value) { return uint256{value, 0}; }
};
template <class Signed>
using Magnitude = typename Width<Signed>::Unsigned;

// value / power, rounded half away from zero. The power is at least 1, so that no quotient overflows.
template <class Signed>
DEVICE Signed divide_rounded(Signed value, Magnitude<Signed> power) {
    Magnitude<Signed> quotient, remainder;
    divide_magnitudes(magnitude_of(value), power, &quotient, &remainder);
    if (remainder >= power - remainder) quotient = quotient + Width<Signed>::of(1);
    return with_sign(quotient, is_negative(value));
}

// value * 10^exponent. Returns whether it does not fit.
template <class Signed>
DEVICE bool raise_overflows(Signed value, uint32_t exponent, Signed *result) {
    *result = Signed{};
    Magnitude<Signed> magnitude = magnitude_of(value);
    if (is_zero(magnitude)) return false;
    if (exponent > Width<Signed>::EXPONENT_MAX) return true;
    if (multiply_overflows(magnitude, Width<Signed>::power_of(exponent), &magnitude)) return true;
    return from_magnitude_overflows(magnitude, is_negative(value), result);
}

// -1, 0 or 1 of a * 10^a_raise and b * 10^b_raise, one of which is 0.
template <class Signed>
DEVICE int compare_scaled(Signed a, uint32_t a_raise, Signed b, uint32_t b_raise) {
    Signed raised;
    // What does not fit is further from zero than anything that does.
    if (b_raise == 0) {
        if (raise_overflows(a, a_raise, &raised)) return is_negative(a) ? -1 : 1;
        return compare_numbers(raised, b);
    }
    if (raise_overflows(b, b_raise, &raised)) return is_negative(b) ? 1 : -1;
    return compare_numbers(a, raised);
}

// (a + b) % divisor; a and b are less than divisor, which is at most half of what has no sign.
template <class Unsigned>
DEVICE Unsigned add_modulo(Unsigned a, Unsigned b, Unsigned divisor) {
    Unsigned sum = a + b;
    return sum >= divisor ? sum - divisor : sum;
}

// The remainder of a * 10^a_raise by b * 10^b_raise, one of which is 0, with the sign of a.
template <class Signed>
DEVICE Fault modulo_scaled(Signed a, uint32_t a_raise, Signed b, uint32_t b_raise, Signed *result) {
    if (is_zero(magnitude_of(b))) return ERROR_DIVISION_BY_ZERO;
    Signed raised;
    if (raise_overflows(b, b_raise, &raised)) {
        *result = a; // which is nearer to zero than the divisor
        return 0;
    }
    Magnitude<Signed> divisor = magnitude_of(raised), quotient, remainder;
    divide_magnitudes(magnitude_of(a), divisor, &quotient, &remainder);
    for (uint32_t digit = 0; digit < a_raise; digit++) {
        Magnitude<Signed> twice = add_modulo(remainder, remainder, divisor);
        Magnitude<Signed> five = add_modulo(add_modulo(twice, twice, divisor), remainder, divisor);
        remainder = add_modulo(five, five, divisor);
    }
    *result = with_sign(remainder, is_negative(a));
    return 0;
}

// Rounds to `digits` digits after the point, or before it if negative, and holds the result at `scale`.
template <class Signed>
DEVICE bool round_overflows(uint32_t rounding, Signed value, int64_t digits, uint32_t a_scale, uint32_t scale,
                            Signed *result) {
    int64_t dropped = (int64_t)a_scale - digits;
    if (dropped <= 0) {
        if (scale >= a_scale) return raise_overflows(value, scale - a_scale, result);
        *result = divide_rounded(value, Width<Signed>::power_of(a_scale - scale));
        return false;
    }
    *result = Signed{};
    const bool away_from_zero = !is_zero(magnitude_of(value)) && rounding != ROUNDING_TRUNCATE &&
                                (rounding == ROUNDING_CEILING) == !is_negative(value);
    if (dropped > Width<Signed>::EXPONENT_MAX) return rounding != ROUNDING_ROUND && away_from_zero;
    Magnitude<Signed> power = Width<Signed>::power_of((uint32_t)dropped), quotient, remainder;
    divide_magnitudes(magnitude_of(value), power, &quotient, &remainder);
    const bool is_half = remainder >= power - remainder;
    if (rounding == ROUNDING_ROUND ? is_half : !is_zero(remainder) && away_from_zero) quotient = quotient + Width<Signed>::of(1);
    if (is_zero(quotient)) return false;
    int64_t raised = (int64_t)scale - digits;
    if (raised < 0) return true;
    // Below the value's magnitude, or 1.
    return raise_overflows(with_sign(quotient, is_negative(value)), (uint32_t)raised, result);
}

// Appends `count` decimal digits of remainder / divisor to the quotient. Returns whether it does not fit.
template <class Signed>
DEVICE bool append_digits(Magnitude<Signed> *quotient, Magnitude<Signed> *remainder, Magnitude<Signed> divisor,
                          uint32_t count) {
    while (count > 0) {
        if (is_zero(*remainder)) {
            if (is_zero(*quotient)) return false;
            if (count > Width<Signed>::EXPONENT_MAX) return true;
            return multiply_overflows(*quotient, Width<Signed>::power_of(count), quotient);
        }
        // As many digits at once as the remainder has room for: 1233 / 4096 is just below log10(2).
        uint32_t chunk = (uint32_t)clz_wide(divisor) * 1233 / 4096;
        chunk = chunk > count ? count : chunk;
        Magnitude<Signed> digits = {};
        if (chunk > 0) {
            Magnitude<Signed> raised;
            multiply_overflows(*remainder, Width<Signed>::power_of(chunk), &raised);
            divide_magnitudes(raised, divisor, &digits, remainder);
        } else {
            chunk = 1;
            Magnitude<Signed> sum = {};
            for (uint32_t time = 0; time < 10; time++) {
                // Does not wrap: both are below the divisor, which is at most half of what has no sign.
                sum = sum + *remainder;
                if (sum >= divisor) {
                    sum = sum - divisor;
                    digits = digits + Width<Signed>::of(1);
                }
            }
            *remainder = sum;
        }
        Magnitude<Signed> raised;
        if (multiply_overflows(*quotient, Width<Signed>::power_of(chunk), &raised)) return true;
        *quotient = raised + digits;
        if (*quotient < digits) return true;
        count -= chunk;
    }
    return false;
}

// a / b rounded half away from zero to `digits` digits after the point and held at `scale`.
template <class Signed>
DEVICE Fault divide_decimal(Signed a, Signed b, int64_t digits, uint32_t scales, uint32_t fault, Signed *result) {
    int64_t a_scale = scales & 0xff, b_scale = (scales >> 8) & 0xff, scale = (scales >> 16) & 0xff;
    Magnitude<Signed> divisor = magnitude_of(b), quotient = {}, remainder = {};
    if (is_zero(divisor)) return ERROR_DIVISION_BY_ZERO;
    if (digits < 0 || digits > scale) return fault;
    int64_t raised = digits + b_scale - a_scale;
    if (raised < 0 && multiply_overflows(divisor, Width<Signed>::power_of((uint32_t)-raised), &divisor)) {
        // More than twice the dividend.
    } else {
        divide_magnitudes(magnitude_of(a), divisor, &quotient, &remainder);
        if (raised > 0 && append_digits<Signed>(&quotient, &remainder, divisor, (uint32_t)raised)) return fault;
        if (remainder >= divisor - remainder) quotient = quotient + Width<Signed>::of(1);
    }
    Signed rounded;
    if (from_magnitude_overflows(quotient, is_negative(a) != is_negative(b), &rounded)) return fault;
    if (raise_overflows(rounded, (uint32_t)(scale - digits), result)) return fault;
    return 0;
}

DEVICE int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0); }

// The first of PostgreSQL's groups of four digits that is not zero, and its place: low has the place and, from bit 32
// on, the display scale; high has the group.
template <class Signed>
DEVICE void leading_group(Signed value, uint32_t scale, int64_t display, Cell *target) {
    int64_t weight = 0, group = 0;
    const Magnitude<Signed> magnitude = magnitude_of(value);
    if (!is_zero(magnitude)) {
        uint32_t digit_count = 1;
        while (digit_count <= Width<Signed>::EXPONENT_MAX && magnitude >= Width<Signed>::power_of(digit_count)) {
            digit_count++;
        }
        weight = floor_divide((int64_t)digit_count - 1 - (int64_t)scale, GROUP_DIGITS);
        // The group ends at this place of the digits, counted from the last one.
        int64_t dropped = (int64_t)scale + weight * GROUP_DIGITS;
        Magnitude<Signed> kept = magnitude, rest;
        if (dropped > 0) divide_magnitudes(magnitude, Width<Signed>::power_of((uint32_t)dropped), &kept, &rest);
        group = (int64_t)low_word(kept);
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
template <class Signed>
DEVICE double decimal_to_float(Signed value, uint32_t scale, bool single) {
    if (is_zero(magnitude_of(value))) return 0.0;
    Magnitude<Signed> divisor = Width<Signed>::power_of(scale), quotient, remainder;
    divide_magnitudes(magnitude_of(value), divisor, &quotient, &remainder);
    // Bits of the quotient from the first that is set: exactly 64, the last of them set if anything follows.
    int exponent = 0;
    while (is_zero(quotient >> 63)) {
        remainder = remainder << 1; // the divisor is at most half of what has no sign
        quotient = quotient << 1;
        if (remainder >= divisor) {
            remainder = remainder - divisor;
            quotient = quotient + Width<Signed>::of(1);
        }
        exponent--;
    }
    uint64_t rest = !is_zero(remainder);
    for (; !is_zero(quotient >> 64); exponent++) {
        rest |= low_word(quotient) & 1;
        quotient = quotient >> 1;
    }
    uint64_t bits = low_word(quotient) | rest;
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
    return is_negative(value) ? -result : result;
}

// The rare functions of decimals of at most 38 digits.
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
                return DECIMAL128_FAULT;
            break;
        case OPCODE_DIVIDE_DECIMAL: {
            Fault fault = divide_decimal(a, b, integer_of(c_cell), in.detail, DECIMAL128_FAULT, &result);
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

// The same of decimals of more digits, each in two cells.
DEVICE_CALL Fault run_int256(const Instruction &in, Cell *target, const Cell *a_cell, const Cell *b_cell,
                             const Cell *c_cell) {
    if (in.opcode == OPCODE_WIDEN_INT256) {
        set_int256(target, int256_of(wide_of(*a_cell)));
        return 0;
    }
    const int256 a = int256_at(a_cell);
    int256 result;
    switch (in.opcode) {
        case OPCODE_NARROW_INT256:
            if (a.high != ((int128)a.low >> 127)) return in.detail;
            set_wide(target, (int128)a.low);
            return 0;
        case OPCODE_ADD_INT256:
            if (add_overflows(a, int256_at(b_cell), &result)) return in.detail;
            break;
        case OPCODE_SUBTRACT_INT256:
            if (subtract_overflows(a, int256_at(b_cell), &result)) return in.detail;
            break;
        case OPCODE_MULTIPLY_INT256: {
            const int256 b = int256_at(b_cell);
            uint256 product;
            const bool negative = is_negative(a) != is_negative(b);
            if (multiply_overflows(magnitude_of(a), magnitude_of(b), &product)) return in.detail;
            if (from_magnitude_overflows(product, negative, &result)) return in.detail;
            break;
        }
        case OPCODE_ROUND_INT256: result = divide_rounded(a, bits_of(int256_at(b_cell))); break;
        case OPCODE_LIMIT_INT256:
            if (magnitude_of(a) >= bits_of(int256_at(b_cell))) return in.detail;
            result = a;
            break;
        case OPCODE_SIGN_INT256:
            set_integer(target, is_negative(a) ? -1 : (is_zero(magnitude_of(a)) ? 0 : 1));
            return 0;
        case OPCODE_COMPARE_INT256: {
            const int ordering = compare_scaled(a, in.detail & 0xff, int256_at(b_cell), in.detail >> 8);
            set_integer(target, ordering_holds(in.mode, ordering));
            return 0;
        }
        case OPCODE_MODULO_INT256: {
            const Fault fault = modulo_scaled(a, in.detail & 0xff, int256_at(b_cell), in.detail >> 8, &result);
            if (fault) return fault;
            break;
        }
        case OPCODE_ROUND_DECIMAL_INT256:
            if (round_overflows(in.mode, a, integer_of(*b_cell), in.detail & 0xff, in.detail >> 8, &result)) {
                return DECIMAL256_FAULT;
            }
            break;
        case OPCODE_DIVIDE_INT256: {
            const int256 b = int256_at(b_cell);
            const Fault fault = divide_decimal(a, b, integer_of(*c_cell), in.detail, DECIMAL256_FAULT, &result);
            if (fault) return fault;
            break;
        }
        case OPCODE_LEADING_GROUP_INT256: leading_group(a, in.detail, integer_of(*b_cell), target); return 0;
        default: // OPCODE_INT256_TO_FLOAT
            set_float(target, decimal_to_float(a, in.detail, in.mode != 0));
            return 0;
    }
    set_int256(target, result);
    return 0;
}
