// Elements of LZ4 blocks: a token, literal bytes, and a copy, which the last one has not.
//
// Source: lz4/lz4, doc/lz4_Block_format.md.
#pragma once

#include "decompress.cuh"

// Bytes of a length's extension that a guessing thread reads.
#define EXTENSION_BYTES_MAX 8

struct Lz4Codec {
    METHOD bool open(const CompressedPage &, uint32_t *) const { return true; }

    // Adds the extension of a length of 15.
    METHOD ReadResult extend(uint64_t source, uint32_t *at, uint32_t end, bool is_certain, uint64_t *length) const {
        for (uint32_t bytes = 0;; bytes++) {
            if (*at >= end) return READ_BAD;
            if (!is_certain && bytes == EXTENSION_BYTES_MAX) return READ_LATER;
            uint32_t byte = load_u8(source + *at);
            (*at)++;
            *length += byte;
            if (byte != 255) return READ_WHOLE;
        }
    }

    METHOD ReadResult read(uint64_t source, uint32_t first, uint32_t end, bool is_certain, Element *element) const {
        const uint32_t token = load_u8(source + first);
        uint32_t at = first + 1;
        uint64_t literal_bytes = token >> 4, copy_bytes = 4 + (token & 15);
        ReadResult result = READ_WHOLE;
        if (literal_bytes == 15) result = extend(source, &at, end, is_certain, &literal_bytes);
        if (result != READ_WHOLE) return result;
        if (literal_bytes > end - at) return READ_BAD;
        const uint32_t literal = at;
        at += (uint32_t)literal_bytes;
        // The last element has no copy.
        if (at == end) {
            *element = Element{at - first, literal, (uint32_t)literal_bytes, 0, 0};
            return READ_WHOLE;
        }
        if (end - at < 2) return READ_BAD;
        const uint32_t distance = load_u8(source + at) | (uint32_t)load_u8(source + at + 1) << 8;
        at += 2;
        if ((token & 15) == 15) result = extend(source, &at, end, is_certain, &copy_bytes);
        if (result != READ_WHOLE) return result;
        if (copy_bytes > 0x7fffffff) return READ_BAD;
        *element = Element{at - first, literal, (uint32_t)literal_bytes, (uint32_t)copy_bytes, distance};
        return READ_WHOLE;
    }
};
