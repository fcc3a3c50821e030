// Integers of 256 bits as two halves: decimals of more than 38 digits.
//
// Plain functions instead of loops over words, so that values stay in registers.
#pragma once

#include "launch.h"

typedef __int128 int128;
typedef unsigned __int128 uint128;

struct uint256 {
    uint128 low, high;
};

// Two's complement.
struct int256 {
    uint128 low;
    int128 high;
};

DEVICE uint256 bits_of(const int256 &value) { return uint256{value.low, (uint128)value.high}; }
DEVICE int256 signed_of(const uint256 &bits) { return int256{bits.low, (int128)bits.high}; }
DEVICE int256 int256_of(int128 value) { return int256{(uint128)value, value < 0 ? (int128)-1 : (int128)0}; }

DEVICE bool operator<(const uint256 &a, const uint256 &b) {
    return a.high < b.high || (a.high == b.high && a.low < b.low);
}
DEVICE bool operator>=(const uint256 &a, const uint256 &b) { return !(a < b); }
DEVICE bool operator<(const int256 &a, const int256 &b) {
    return a.high < b.high || (a.high == b.high && a.low < b.low);
}

// Sums and differences wrap.
DEVICE uint256 operator+(const uint256 &a, const uint256 &b) {
    const uint128 low = a.low + b.low;
    return uint256{low, a.high + b.high + (uint128)(low < a.low)};
}
DEVICE uint256 operator-(const uint256 &a, const uint256 &b) {
    return uint256{a.low - b.low, a.high - b.high - (uint128)(a.low < b.low)};
}

// The whole product of two integers of 128 bits.
DEVICE uint256 multiply_wide(uint128 a, uint128 b) {
    const uint64_t a_low = (uint64_t)a, a_high = (uint64_t)(a >> 64);
    const uint64_t b_low = (uint64_t)b, b_high = (uint64_t)(b >> 64);
    const uint128 lowest = (uint128)a_low * b_low;
    const uint128 first = (uint128)a_low * b_high, second = (uint128)a_high * b_low;
    // Three words of 64 bits.
    const uint128 middle = (lowest >> 64) + (uint64_t)first + (uint64_t)second;
    const uint128 highest = (uint128)a_high * b_high;
    return uint256{(middle << 64) | (uint64_t)lowest, highest + (first >> 64) + (second >> 64) + (middle >> 64)};
}

// Wraps.
DEVICE uint256 operator*(const uint256 &a, const uint256 &b) {
    const uint256 product = multiply_wide(a.low, b.low);
    return uint256{product.low, product.high + a.low * b.high + a.high * b.low};
}

// Shifts by less than 256.
DEVICE uint256 operator<<(const uint256 &value, uint32_t bits) {
    if (bits == 0) return value;
    if (bits >= 128) return uint256{0, value.low << (bits - 128)};
    return uint256{value.low << bits, (value.high << bits) | (value.low >> (128 - bits))};
}
DEVICE uint256 operator>>(const uint256 &value, uint32_t bits) {
    if (bits == 0) return value;
    if (bits >= 128) return uint256{value.high >> (bits - 128), 0};
    return uint256{(value.low >> bits) | (value.high << (128 - bits)), value.high >> bits};
}
