// Texts in another form. Positions and lengths count characters.
//
// Source: PostgreSQL 15, `oracle_compat.c` (`lpad`, `rpad`, `translate`, `repeat`) and `varlena.c` (`split_part`, `text_reverse`).
#pragma once

#include "text.cuh"

// Bytes that PostgreSQL allows in a value, and those of its header among them; what it reserves for a character.
#define VALUE_BYTES_MAX 0x3fffffffull
#define VALUE_HEADER_BYTES 4ull
#define CHARACTER_BYTES_MAX 4ull

// A text and how often it is repeated: whole, and then so many bytes of it.
struct RepeatedText {
    Text text;
    uint64_t times;
    uint32_t rest;

    METHOD uint64_t length() const { return times * text.length + rest; }

    METHOD uint8_t *write(uint8_t *end) const {
        for (uint64_t time = 0; time < times; time++) {
            for (uint32_t place = 0; place < text.length; place++) *end++ = text.bytes[place];
        }
        for (uint32_t place = 0; place < rest; place++) *end++ = text.bytes[place];
        return end;
    }
};

// What fills a text up to `length` characters, and how many of its own bytes are kept.
DEVICE Fault measure_padding(const Text &text, int64_t length, const Text &fill, RepeatedText *filled, uint32_t *kept) {
    const uint64_t wanted = length > 0 ? (uint64_t)length : 0, present = (uint64_t)count_characters(text.bytes, text.length);
    // Without anything to fill with, the text is cut at most.
    const uint64_t reserved = fill.length == 0 && present < wanted ? present : wanted;
    if (reserved * CHARACTER_BYTES_MAX + VALUE_HEADER_BYTES > VALUE_BYTES_MAX) return ERROR_REQUESTED_LENGTH;
    *kept = character_offset(text, (int64_t)wanted);
    *filled = RepeatedText{fill, 0, 0};
    if (reserved > present) {
        const uint64_t characters = (uint64_t)count_characters(fill.bytes, fill.length), missing = reserved - present;
        *filled = RepeatedText{fill, missing / characters, character_offset(fill, (int64_t)(missing % characters))};
    }
    return 0;
}

// Characters in reverse order.
DEVICE void write_reversed(uint8_t *target, const Text &text) {
    uint8_t *begin = target + text.length;
    for (uint32_t place = 0; place < text.length;) {
        const uint32_t next = next_character(text, place);
        begin -= next - place;
        for (uint32_t byte = place; byte < next; byte++) begin[byte - place] = text.bytes[byte];
        place = next;
    }
}

// The characters of a text, but those of `from` as the ones at the same places of `to`, or not at all. The first of a character counts.
// Without a target they are only measured.
DEVICE_CALL uint64_t write_translated(uint8_t *target, const Text &text, const Text &from, const Text &to) {
    uint64_t length = 0;
    for (uint32_t place = 0; place < text.length;) {
        const uint32_t next = next_character(text, place);
        Text character{text.bytes + place, next - place};
        for (uint32_t known = 0, replacement = 0; known < from.length;) {
            const uint32_t known_end = next_character(from, known);
            const uint32_t replacement_end = replacement < to.length ? next_character(to, replacement) : replacement;
            if (compare_bytes(from.bytes + known, known_end - known, character.bytes, character.length) == 0) {
                character = Text{to.bytes + replacement, replacement_end - replacement};
                break;
            }
            known = known_end;
            replacement = replacement_end;
        }
        for (uint32_t byte = 0; target && byte < character.length; byte++) target[length + byte] = character.bytes[byte];
        length += character.length;
        place = next;
    }
    return length;
}
