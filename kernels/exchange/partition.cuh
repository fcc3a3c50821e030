// Which partition a row is in.
#pragma once

#include "../abi/exchange.h"
#include "../common/hash.cuh"

// By the hash of its keys, HASH_NULL for one that matches nothing.
DEVICE uint32_t partition_of_hash(uint64_t hash, uint64_t row, uint32_t level, uint32_t partition_count) {
    // Rows that match nothing may be anywhere, but not all in one partition.
    if (hash == HASH_NULL) hash = row + 1;
    hash = hash_mix(hash + 0x9e3779b97f4a7c15ull * (level + 1));
    return (uint32_t)(((hash >> 32) * partition_count) >> 32);
}
