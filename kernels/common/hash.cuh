// Hashes of cells.
//
// Source: the finaliser of MurmurHash3 (Appleby, 2011), public domain.
#pragma once

#include "../abi/column.h"
#include "launch.h"

DEVICE uint64_t hash_mix(uint64_t value) {
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    value ^= value >> 33;
    return value;
}

DEVICE uint64_t hash_bytes(const uint8_t *bytes, uint32_t length) {
    uint64_t hash = 0x9e3779b97f4a7c15ull ^ length;
    uint32_t place = 0;
    for (; place + 8 <= length; place += 8) {
        uint64_t word = 0;
        for (uint32_t byte = 0; byte < 8; byte++) word |= (uint64_t)bytes[place + byte] << (8 * byte);
        hash = hash_mix(hash ^ word);
    }
    uint64_t rest = 0;
    for (uint32_t byte = 0; place + byte < length; byte++) rest |= (uint64_t)bytes[place + byte] << (8 * byte);
    return hash_mix(hash ^ rest);
}
