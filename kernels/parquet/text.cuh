// Text: whether it is UTF-8, and how many characters it has.
#pragma once

#include "../common/bits.cuh"

// Bytes of the character that starts here, or 0 if none does. The ranges of the second byte leave out overlong forms,
// surrogates and what lies beyond U+10FFFF.
DEVICE uint32_t character_bytes(const uint8_t *text, uint32_t left) {
    uint8_t first = text[0];
    if (first < 0x80) return 1;
    uint32_t bytes = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
    if (first < 0xc2 || first > 0xf4 || bytes > left) return 0;
    uint8_t least = first == 0xe0 ? 0xa0 : (first == 0xf0 ? 0x90 : 0x80);
    uint8_t greatest = first == 0xed ? 0x9f : (first == 0xf4 ? 0x8f : 0xbf);
    if (text[1] < least || text[1] > greatest) return 0;
    for (uint32_t place = 2; place < bytes; place++) {
        if ((text[place] & 0xc0) != 0x80) return 0;
    }
    return bytes;
}

DEVICE_CALL bool is_utf8(uint64_t address, uint32_t length) {
    uint32_t place = 0;
    while (place < length) {
        if (place + 8 <= length && (load_u64(address + place) & 0x8080808080808080ull) == 0) {
            place += 8;
            continue;
        }
        uint32_t bytes = character_bytes((const uint8_t *)address + place, length - place);
        if (bytes == 0) return false;
        place += bytes;
    }
    return true;
}

DEVICE_CALL uint32_t count_characters(uint64_t address, uint32_t length) {
    uint32_t count = 0;
    for (uint32_t place = 0; place < length; place++) count += (load_u8(address + place) & 0xc0) != 0x80;
    return count;
}
