// Elements of Snappy: literal bytes, or a copy.
//
// Source: google/snappy, format_description.txt.
#pragma once

#include "decompress.cuh"

struct SnappyCodec {
    METHOD bool open(const CompressedPage &page, uint32_t *position) const {
        uint64_t length = 0;
        return read_varint(page.source, page.source_bytes, position, &length) && length == page.target_bytes;
    }

    METHOD ReadResult read(uint64_t source, uint32_t at, uint32_t end, bool, Element *element) const {
        const uint32_t left = end - at;
        const uint32_t tag = load_u8(source + at);
        const uint32_t kind = tag & 3, size = tag >> 2;
        if (kind == 0) {
            uint32_t extra = size < 60 ? 0 : size - 59;
            if (left <= extra) return READ_BAD;
            uint64_t bytes = size;
            for (uint32_t byte = 0; byte < extra; byte++) {
                if (byte == 0) bytes = 0;
                bytes |= (uint64_t)load_u8(source + at + 1 + byte) << (8 * byte);
            }
            bytes++;
            if (bytes > left - 1 - extra) return READ_BAD;
            *element = Element{1 + extra + (uint32_t)bytes, at + 1 + extra, (uint32_t)bytes, 0, 0};
            return READ_WHOLE;
        }
        const uint32_t header = kind == 3 ? 5 : kind + 1;
        if (left < header) return READ_BAD;
        uint32_t distance = 0;
        for (uint32_t byte = 1; byte < header; byte++) distance |= (uint32_t)load_u8(source + at + byte) << (8 * (byte - 1));
        uint32_t bytes = size + 1;
        if (kind == 1) {
            distance |= (tag >> 5) << 8;
            bytes = 4 + (size & 7);
        }
        *element = Element{header, 0, 0, bytes, distance};
        return READ_WHOLE;
    }
};
