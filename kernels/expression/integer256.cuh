// Arithmetic of 256 bits that says whether it overflows, under the names that integer.cuh has for 128.
#pragma once

#include "integer.cuh"

#define INT256_MIN_MAGNITUDE (uint256{0, (uint128)1 << 127})

DEVICE bool is_zero(const uint256 &value) { return (value.low | value.high) == 0; }
DEVICE uint64_t low_word(const uint256 &value) { return (uint64_t)value.low; }
DEVICE bool is_negative(const int256 &value) { return value.high < 0; }

DEVICE uint256 negated(const uint256 &value) { return uint256{0, 0} - value; }
DEVICE uint256 magnitude_of(const int256 &value) {
    return is_negative(value) ? negated(bits_of(value)) : bits_of(value);
}

DEVICE int clz_wide(const uint256 &value) { return value.high ? clz_wide(value.high) : 128 + clz_wide(value.low); }

DEVICE bool add_overflows(const int256 &a, const int256 &b, int256 *result) {
    const int256 sum = signed_of(bits_of(a) + bits_of(b));
    *result = sum;
    return ((a.high ^ sum.high) & (b.high ^ sum.high)) < 0;
}

DEVICE bool subtract_overflows(const int256 &a, const int256 &b, int256 *result) {
    const int256 difference = signed_of(bits_of(a) - bits_of(b));
    *result = difference;
    return ((a.high ^ b.high) & (a.high ^ difference.high)) < 0;
}

// Whether a * b does not fit 256 bits without sign.
DEVICE bool multiply_overflows(uint256 a, uint256 b, uint256 *result) {
    const uint256 product = multiply_wide(a.low, b.low);
    *result = product;
    if (a.high == 0 && b.high == 0) return false;
    const uint256 cross = a.high ? multiply_wide(a.high, b.low) : multiply_wide(a.low, b.high);
    result->high = product.high + cross.low;
    return (a.high != 0 && b.high != 0) || cross.high != 0 || result->high < product.high;
}

DEVICE int256 with_sign(const uint256 &magnitude, bool negative) {
    return signed_of(negative ? negated(magnitude) : magnitude);
}

DEVICE bool from_magnitude_overflows(const uint256 &magnitude, bool negative, int256 *result) {
    *result = with_sign(magnitude, negative);
    return negative ? INT256_MIN_MAGNITUDE < magnitude : magnitude >= INT256_MIN_MAGNITUDE;
}

// The next word of a quotient by a divisor below 2^64, of which *rest is left over.
DEVICE uint64_t divide_word(uint128 *rest, uint64_t word, uint128 divisor) {
    const uint128 dividend = *rest << 64 | word;
    const uint128 quotient = dividend / divisor;
    *rest = dividend - quotient * divisor;
    return (uint64_t)quotient;
}

// Quotient and remainder; the divisor is not 0.
//
// Source: binary long division, from the first bit that the quotient can have: most quotients are short, and most
// divisors are counts or powers of ten below 2^64, which take four divisions.
DEVICE_CALL void divide_magnitudes(const uint256 &a, const uint256 &b, uint256 *quotient, uint256 *remainder) {
    if (b.high == 0 && (b.low >> 64) == 0) {
        uint128 rest = 0;
        const uint64_t highest = divide_word(&rest, (uint64_t)(a.high >> 64), b.low);
        const uint64_t third = divide_word(&rest, (uint64_t)a.high, b.low);
        const uint64_t second = divide_word(&rest, (uint64_t)(a.low >> 64), b.low);
        const uint64_t lowest = divide_word(&rest, (uint64_t)a.low, b.low);
        *quotient = uint256{(uint128)second << 64 | lowest, (uint128)highest << 64 | third};
        *remainder = uint256{rest, 0};
        return;
    }
    uint256 rest = a, result = uint256{0, 0};
    if (rest >= b) {
        const uint32_t places = (uint32_t)(clz_wide(b) - clz_wide(rest));
        uint256 part = b << places;
        for (uint32_t place = 0; place <= places; place++) {
            result = result << 1;
            if (rest >= part) {
                rest = rest - part;
                result.low |= 1;
            }
            part = part >> 1;
        }
    }
    *quotient = result;
    *remainder = rest;
}
