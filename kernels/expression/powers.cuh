// Powers of ten in 128 and in 256 bits.
#pragma once

#include "integer256.cuh"

// The greatest exponents whose powers fit 128 and 256 bits without sign.
#define POWER_EXPONENT_MAX 38
#define POWER256_EXPONENT_MAX 77

// Low and high half of 10^0 to 10^38.
CONSTANT_TABLE uint64_t POWERS_OF_TEN[POWER_EXPONENT_MAX + 1][2] = {
    {0x0000000000000001ull, 0x0000000000000000ull},
    {0x000000000000000aull, 0x0000000000000000ull},
    {0x0000000000000064ull, 0x0000000000000000ull},
    {0x00000000000003e8ull, 0x0000000000000000ull},
    {0x0000000000002710ull, 0x0000000000000000ull},
    {0x00000000000186a0ull, 0x0000000000000000ull},
    {0x00000000000f4240ull, 0x0000000000000000ull},
    {0x0000000000989680ull, 0x0000000000000000ull},
    {0x0000000005f5e100ull, 0x0000000000000000ull},
    {0x000000003b9aca00ull, 0x0000000000000000ull},
    {0x00000002540be400ull, 0x0000000000000000ull},
    {0x000000174876e800ull, 0x0000000000000000ull},
    {0x000000e8d4a51000ull, 0x0000000000000000ull},
    {0x000009184e72a000ull, 0x0000000000000000ull},
    {0x00005af3107a4000ull, 0x0000000000000000ull},
    {0x00038d7ea4c68000ull, 0x0000000000000000ull},
    {0x002386f26fc10000ull, 0x0000000000000000ull},
    {0x016345785d8a0000ull, 0x0000000000000000ull},
    {0x0de0b6b3a7640000ull, 0x0000000000000000ull},
    {0x8ac7230489e80000ull, 0x0000000000000000ull},
    {0x6bc75e2d63100000ull, 0x0000000000000005ull},
    {0x35c9adc5dea00000ull, 0x0000000000000036ull},
    {0x19e0c9bab2400000ull, 0x000000000000021eull},
    {0x02c7e14af6800000ull, 0x000000000000152dull},
    {0x1bcecceda1000000ull, 0x000000000000d3c2ull},
    {0x161401484a000000ull, 0x0000000000084595ull},
    {0xdcc80cd2e4000000ull, 0x000000000052b7d2ull},
    {0x9fd0803ce8000000ull, 0x00000000033b2e3cull},
    {0x3e25026110000000ull, 0x00000000204fce5eull},
    {0x6d7217caa0000000ull, 0x00000001431e0faeull},
    {0x4674edea40000000ull, 0x0000000c9f2c9cd0ull},
    {0xc0914b2680000000ull, 0x0000007e37be2022ull},
    {0x85acef8100000000ull, 0x000004ee2d6d415bull},
    {0x38c15b0a00000000ull, 0x0000314dc6448d93ull},
    {0x378d8e6400000000ull, 0x0001ed09bead87c0ull},
    {0x2b878fe800000000ull, 0x0013426172c74d82ull},
    {0xb34b9f1000000000ull, 0x00c097ce7bc90715ull},
    {0x00f436a000000000ull, 0x0785ee10d5da46d9ull},
    {0x098a224000000000ull, 0x4b3b4ca85a86c47aull},
};

// 10^exponent; exponent <= POWER_EXPONENT_MAX.
DEVICE uint128 power_of_ten(uint32_t exponent) {
    return ((uint128)POWERS_OF_TEN[exponent][1] << 64) | POWERS_OF_TEN[exponent][0];
}

// 10^exponent; exponent <= POWER256_EXPONENT_MAX.
DEVICE uint256 power256_of_ten(uint32_t exponent) {
    if (exponent <= POWER_EXPONENT_MAX) return uint256{power_of_ten(exponent), 0};
    uint256 power;
    const uint32_t rest = exponent - POWER_EXPONENT_MAX;
    const uint256 first = uint256{power_of_ten(POWER_EXPONENT_MAX), 0};
    // 10^39 has 130 bits.
    const uint256 second = rest <= POWER_EXPONENT_MAX ? uint256{power_of_ten(rest), 0}
                                                      : multiply_wide(power_of_ten(POWER_EXPONENT_MAX), 10);
    multiply_overflows(first, second, &power);
    return power;
}
