// Functions of text that exists already: results are views of their arguments' bytes. Positions and lengths count
// characters of UTF-8.
//
// Source: PostgreSQL 15, `varlena.c` (`text_substring`, `text_position`, `text_left`, `text_right`) and
// `oracle_compat.c` (`dotrim`).
#pragma once

#include "integer.cuh"
#include "like.cuh"

DEVICE bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

DEVICE int64_t count_characters(const uint8_t *bytes, uint32_t length) {
    int64_t count = 0;
    for (uint32_t place = 0; place < length; place++) count += !is_continuation(bytes[place]);
    return count;
}

// The byte at which the character of this index starts, or the length.
DEVICE uint32_t character_offset(const Text &text, int64_t index) {
    uint32_t place = 0;
    for (; index > 0 && place < text.length; index--) place = next_character(text, place);
    return place;
}

// The characters from `start`, which counts from 1 and may be less, up to `start + count`.
DEVICE Text character_range(const Text &text, int64_t start, int64_t count) {
    const uint32_t skipped = character_offset(text, start > 1 ? start - 1 : 0);
    const Text rest = Text{text.bytes + skipped, text.length - skipped};
    const int64_t kept = start + count - (start > 1 ? start : 1);
    return Text{rest.bytes, character_offset(rest, kept)};
}

// The first n characters, or all but the last -n.
DEVICE Text left_of(const Text &text, int64_t n) {
    const int64_t kept = n >= 0 ? n : count_characters(text.bytes, text.length) + n;
    return Text{text.bytes, character_offset(text, kept)};
}

// The last n characters, or all but the first -n.
DEVICE Text right_of(const Text &text, int64_t n) {
    const int64_t skipped = n >= 0 ? count_characters(text.bytes, text.length) - n : -n;
    const uint32_t offset = character_offset(text, skipped);
    return Text{text.bytes + offset, text.length - offset};
}

// Whether a character is one of those in `characters`.
DEVICE bool has_character(const Text &characters, const uint8_t *character, uint32_t bytes) {
    for (uint32_t place = 0; place < characters.length;) {
        const uint32_t next = next_character(characters, place);
        if (compare_bytes(characters.bytes + place, next - place, character, bytes) == 0) return true;
        place = next;
    }
    return false;
}

DEVICE Text trim_text(const Text &text, const Text &characters, uint32_t sides) {
    uint32_t first = 0, last = text.length;
    while ((sides & TRIM_LEADING) && first < last) {
        const uint32_t next = next_character(text, first);
        if (!has_character(characters, text.bytes + first, next - first)) break;
        first = next;
    }
    while ((sides & TRIM_TRAILING) && last > first) {
        uint32_t start = last - 1;
        while (start > first && is_continuation(text.bytes[start])) start--;
        if (!has_character(characters, text.bytes + start, last - start)) break;
        last = start;
    }
    return Text{text.bytes + first, last - first};
}

// The place of the part's first byte from `from` on, or the text's length + 1.
DEVICE uint32_t find_part(const Text &text, const Text &part, uint32_t from) {
    if (part.length == 0) return from;
    for (uint32_t place = from; (uint64_t)place + part.length <= text.length; place++) {
        if (text.bytes[place] != part.bytes[0]) continue;
        uint32_t byte = 1;
        while (byte < part.length && text.bytes[place + byte] == part.bytes[byte]) byte++;
        if (byte == part.length) return place;
    }
    return text.length + 1;
}

DEVICE int64_t position_of(const Text &text, const Text &part) {
    const uint32_t place = find_part(text, part, 0);
    return place > text.length ? 0 : count_characters(text.bytes, place) + 1;
}

DEVICE bool starts_with(const Text &text, const Text &prefix) {
    return prefix.length <= text.length && compare_bytes(text.bytes, prefix.length, prefix.bytes, prefix.length) == 0;
}

// Whether a part of a text matches, by the table of an automaton (src/gpu/program/automaton.rs), which begins at a multiple of 8.
DEVICE_CALL bool matches_table(const Text &text, const Text &table) {
    const uint16_t *head = (const uint16_t *)(table.bytes + 256), *followers = head + 4;
    const uint32_t class_count = head[0], first_accepting = head[2];
    uint32_t state = head[1];
    // In the first two states the rest of the text makes no difference.
    for (uint32_t place = 0; place < text.length && state > 1; place++) {
        state = followers[state * class_count + table.bytes[text.bytes[place]]];
    }
    return state == 1 || state >= first_accepting;
}

// The field of a number that is not 0, from the end if it is negative; an empty text if there is none. Delimiters are looked for from
// the start, as they may overlap.
DEVICE_CALL Text field_of(const Text &text, const Text &delimiter, int64_t number) {
    const Text none{text.bytes, 0};
    if (delimiter.length == 0) return number == 1 || number == -1 ? text : none;
    if (number < 0) {
        int64_t count = 1;
        for (uint32_t place = find_part(text, delimiter, 0); place < text.length; place = find_part(text, delimiter, place + delimiter.length)) {
            count++;
        }
        number += count + 1;
        if (number < 1) return none;
    }
    uint32_t begin = 0;
    for (;; number--) {
        const uint32_t place = find_part(text, delimiter, begin);
        const bool is_last = place >= text.length;
        if (number == 1) return Text{text.bytes + begin, (is_last ? text.length : place) - begin};
        if (is_last) return none;
        begin = place + delimiter.length;
    }
}

// The functions of text that makes no new bytes.
DEVICE Fault run_text(const Instruction &in, Cell *target, const Cell &a_cell, const Cell &b_cell,
                      const Cell &c_cell) {
    const Text a = text_of(a_cell), b = text_of(b_cell);
    const int64_t number = integer_of(b_cell), count = integer_of(c_cell);
    Text result = a;
    int64_t integer;
    Fault fault = 0;
    switch (in.opcode) {
        case OPCODE_LIKE: integer = matches_like(a, b, in.mode != 0, &fault); break;
        case OPCODE_LENGTH: integer = count_characters(a.bytes, a.length); break;
        case OPCODE_OCTET_LENGTH: integer = a.length; break;
        case OPCODE_POSITION: integer = position_of(a, b); break;
        case OPCODE_MATCH_TABLE: integer = matches_table(a, b); break;
        case OPCODE_STARTS_WITH: integer = starts_with(a, b); break;
        default:
            switch (in.opcode) {
                case OPCODE_SUBSTRING:
                    if (count < 0) return ERROR_NEGATIVE_LENGTH;
                    result = character_range(a, number, count);
                    break;
                case OPCODE_SUBSTRING_FROM: result = character_range(a, number, (int64_t)1 << 40); break;
                case OPCODE_SPLIT_PART:
                    if (count == 0) return ERROR_FIELD_POSITION;
                    result = field_of(a, b, count);
                    break;
                case OPCODE_LEFT: result = left_of(a, number); break;
                case OPCODE_RIGHT: result = right_of(a, number); break;
                default: result = trim_text(a, b, in.mode); // OPCODE_TRIM
            }
            set_text(target, result.bytes, result.length);
            return 0;
    }
    set_integer(target, integer);
    return fault;
}
