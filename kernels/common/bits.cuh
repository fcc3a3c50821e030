// Numbers at any address and of any width.
//
// Loads read whole aligned words, so up to 3 bytes before and PAGE_PADDING_BYTES after what they return must be
// readable; buffers are allocated so.
#pragma once

#include "launch.h"

DEVICE uint8_t load_u8(uint64_t address) { return *(const uint8_t *)address; }

DEVICE uint32_t load_u32(uint64_t address) {
    const uint32_t *words = (const uint32_t *)(address & ~3ull);
    uint32_t shift = (uint32_t)(address & 3) * 8;
    uint32_t low = words[0];
    return shift == 0 ? low : (low >> shift) | (words[1] << (32 - shift));
}

DEVICE uint64_t load_u64(uint64_t address) {
    const uint32_t *words = (const uint32_t *)(address & ~3ull);
    uint32_t shift = (uint32_t)(address & 3) * 8;
    uint64_t low = (uint64_t)words[1] << 32 | words[0];
    return shift == 0 ? low : (low >> shift) | ((uint64_t)words[2] << (64 - shift));
}

DEVICE uint64_t swap_bytes(uint64_t value) {
    value = (value & 0x00ff00ff00ff00ffull) << 8 | ((value >> 8) & 0x00ff00ff00ff00ffull);
    value = (value & 0x0000ffff0000ffffull) << 16 | ((value >> 16) & 0x0000ffff0000ffffull);
    return value << 32 | value >> 32;
}

// At most 32 bits at a bit position, lowest bit first.
DEVICE uint32_t load_bits(uint64_t address, uint64_t bit, uint32_t width) {
    if (width == 0) return 0;
    uint64_t first = address + (bit >> 3);
    const uint32_t *words = (const uint32_t *)(first & ~3ull);
    uint32_t shift = (uint32_t)(first & 3) * 8 + (uint32_t)(bit & 7);
    uint64_t value = words[0];
    if (shift + width > 32) value |= (uint64_t)words[1] << 32;
    return (uint32_t)((value >> shift) & ((1ull << width) - 1));
}

// At most 64 bits at a bit position.
DEVICE uint64_t load_wide_bits(uint64_t address, uint64_t bit, uint32_t width) {
    if (width <= 32) return load_bits(address, bit, width);
    uint64_t low = load_bits(address, bit, 32);
    return low | (uint64_t)load_bits(address, bit + 32, width - 32) << 32;
}

// Sets bits that are 0 so far. No more than the value has are set beyond its place.
DEVICE void store_bits(uint32_t *words, uint32_t bit, uint64_t value, uint32_t width) {
    const uint32_t word = bit / 32, shift = bit % 32;
    atomicOr(&words[word], (uint32_t)(value << shift));
    if (shift + width > 32) atomicOr(&words[word + 1], (uint32_t)(value >> (32 - shift)));
    if (shift + width > 64) atomicOr(&words[word + 2], (uint32_t)(value >> (64 - shift)));
}

// 64 bits at a bit position. Three words are read, whatever of them is asked for.
DEVICE uint64_t load_window(uint64_t address, uint32_t bit) {
    bit += (uint32_t)(address & 3) * 8;
    const uint32_t *words = (const uint32_t *)(address & ~3ull) + bit / 32;
    const uint32_t low = words[0], middle = words[1], high = words[2], shift = bit % 32;
    const uint32_t first = (uint32_t)(((uint64_t)middle << 32 | low) >> shift);
    const uint32_t second = (uint32_t)(((uint64_t)high << 32 | middle) >> shift);
    return (uint64_t)second << 32 | first;
}

// The number that the first `count` bytes of a word stand for, seven bits each.
DEVICE uint64_t varint_of(uint64_t word, uint32_t count) {
    if (count < 8) word &= (1ull << (8 * count)) - 1;
    word &= 0x7f7f7f7f7f7f7f7full;
    word = (word & 0x007f007f007f007full) | (word & 0x7f007f007f007f00ull) >> 1;
    word = (word & 0x00003fff00003fffull) | (word & 0x3fff00003fff0000ull) >> 2;
    return (word & 0x000000000fffffffull) | (word & 0x0fffffff00000000ull) >> 4;
}

// The same of 1 to 4 bytes.
DEVICE uint32_t short_varint_of(uint32_t word, uint32_t count) {
    word = word << (32 - 8 * count) >> (32 - 8 * count) & 0x7f7f7f7fu;
    word = (word & 0x007f007fu) | (word & 0x7f007f00u) >> 1;
    return (word & 0x00003fffu) | (word & 0x3fff0000u) >> 2;
}

// How many bytes a variable-length number has that a word begins with; more than 4 if it does not end there.
DEVICE uint32_t varint_bytes(uint32_t word) {
    const uint32_t ends = ~word & 0x80808080u;
    return ends ? (uint32_t)__ffs((int)ends) / 8 : 5;
}

// A variable-length number at *at, which moves past it; false if it does not end before `end`.
DEVICE bool read_varint(uint64_t address, uint32_t end, uint32_t *at, uint64_t *value) {
    uint64_t result = 0;
    for (uint32_t shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = load_u8(address + *at);
        (*at)++;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return true;
        }
    }
    return false;
}

DEVICE int64_t decode_zigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }
