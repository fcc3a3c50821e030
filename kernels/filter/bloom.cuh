// Blocks of Bloom filters, and the bits that a hash has in its block.
#pragma once

#include "../abi/filter.h"
#include "../common/launch.h"

// The block of a hash, by its upper half.
DEVICE uint64_t bloom_block(uint64_t hash, uint64_t block_count) { return (hash >> 32) * block_count >> 32; }

// The bit of a hash in a word of its block, by its lower half.
DEVICE uint32_t bloom_bit(uint64_t hash, uint32_t word) {
    // Folded into the code: every caller unrolls its loop over the words.
    const uint32_t salts[BLOOM_BLOCK_WORDS] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du,
                                               0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};
    return 1u << ((uint32_t)hash * salts[word] >> 27);
}

// Half a block: what one load brings.
struct alignas(16) BlockHalf {
    uint32_t words[BLOOM_BLOCK_WORDS / 2];
};

struct BloomBlock {
    BlockHalf halves[2];
};

DEVICE const BloomBlock *block_of(const KeyFilterView &filter, uint64_t hash) {
    return (const BloomBlock *)filter.words + bloom_block(hash, filter.slot_count);
}

DEVICE bool has_bits(const BloomBlock &block, uint64_t hash) {
    uint32_t missing = 0;
#pragma unroll
    for (uint32_t word = 0; word < BLOOM_BLOCK_WORDS; word++) {
        missing |= ~block.halves[word / (BLOOM_BLOCK_WORDS / 2)].words[word % (BLOOM_BLOCK_WORDS / 2)] & bloom_bit(hash, word);
    }
    return missing == 0;
}
