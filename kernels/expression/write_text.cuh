// Functions that make new text. Its bytes go into space that the launch gives; a row that finds none left is given up,
// and the host launches again with as much space as was wanted.
//
// Source: PostgreSQL 15, `varlena.c` (`replace_text`), `datetime.c` (`EncodeDateOnly`, `EncodeDateTime`,
// `EncodeTimeOnly`).
#pragma once

#include "calendar.cuh"
#include "form_text.cuh"
#include "format_moment.cuh"

// Bytes of the longest text of a value: a timestamp with zone and era.
#define WRITTEN_BYTES_MAX 64
// A table of letters: the number of each block of characters, 2 bytes each, and by that number the differences of the
// block's characters, 4 bytes each, lowest byte first.
#define CASE_BLOCK_CHARACTERS 256
#define CASE_BLOCKS 0x1100

// Space for a text; null if there is not enough.
DEVICE uint8_t *take_space(const EvaluateProgram &args, uint64_t bytes) {
    const uint64_t offset = atomicAdd((unsigned long long *)args.text_bytes, (unsigned long long)bytes);
    if (offset + bytes > args.text_bytes_max) return nullptr;
    return (uint8_t *)(args.text + offset);
}

DEVICE void copy_bytes(uint8_t *target, const uint8_t *source, uint32_t bytes) {
    for (uint32_t place = 0; place < bytes; place++) target[place] = source[place];
}

DEVICE Fault concat_text(const EvaluateProgram &args, Cell *target, const Text &a, const Text &b, const Text &c) {
    const uint64_t length = (uint64_t)a.length + b.length + c.length;
    if (length > TEXT_BYTES_MAX) return ERROR_TEXT_BYTES;
    uint8_t *bytes = take_space(args, length);
    if (!bytes) return FAULT_NO_SPACE;
    copy_bytes(bytes, a.bytes, a.length);
    copy_bytes(bytes + a.length, b.bytes, b.length);
    copy_bytes(bytes + a.length + b.length, c.bytes, c.length);
    set_text(target, bytes, (uint32_t)length);
    return 0;
}

DEVICE bool is_folded(uint8_t byte, bool upper) {
    return upper ? byte >= 'a' && byte <= 'z' : byte >= 'A' && byte <= 'Z';
}

DEVICE Fault fold_text(const EvaluateProgram &args, Cell *target, const Text &a, bool upper) {
    uint32_t place = 0;
    while (place < a.length && !is_folded(a.bytes[place], upper)) place++;
    if (place == a.length) {
        set_text(target, a.bytes, a.length);
        return 0;
    }
    uint8_t *bytes = take_space(args, a.length);
    if (!bytes) return FAULT_NO_SPACE;
    for (place = 0; place < a.length; place++) {
        bytes[place] = is_folded(a.bytes[place], upper) ? a.bytes[place] ^ 0x20 : a.bytes[place];
    }
    set_text(target, bytes, a.length);
    return 0;
}

// The code point of a character of `count` bytes.
DEVICE uint32_t decode_character(const uint8_t *bytes, uint32_t count) {
    if (count == 1) return bytes[0];
    uint32_t code_point = bytes[0] & (0x7fu >> count);
    for (uint32_t place = 1; place < count; place++) code_point = code_point << 6 | (bytes[place] & 0x3f);
    return code_point;
}

DEVICE uint32_t encoded_bytes(uint32_t code_point) {
    return code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
}

DEVICE uint8_t *encode_character(uint8_t *end, uint32_t code_point) {
    const uint32_t count = encoded_bytes(code_point);
    if (count == 1) {
        *end = (uint8_t)code_point;
        return end + 1;
    }
    for (uint32_t place = count - 1; place > 0; place--) {
        end[place] = (uint8_t)(0x80 | (code_point & 0x3f));
        code_point >>= 6;
    }
    end[0] = (uint8_t)(0xf0 << (4 - count) | code_point);
    return end + count;
}

// What a character becomes. Code points behind the table's are themselves; a table lies at any address.
DEVICE uint32_t map_character(const Text &table, uint32_t code_point) {
    const uint32_t block = code_point / CASE_BLOCK_CHARACTERS;
    if (block >= CASE_BLOCKS) return code_point;
    const uint8_t *number = table.bytes + 2 * block;
    const uint32_t place = (number[0] | (uint32_t)number[1] << 8) * CASE_BLOCK_CHARACTERS + code_point % CASE_BLOCK_CHARACTERS;
    const uint8_t *delta = table.bytes + 2 * CASE_BLOCKS + 4 * place;
    return code_point + (delta[0] | (uint32_t)delta[1] << 8 | (uint32_t)delta[2] << 16 | (uint32_t)delta[3] << 24);
}

DEVICE Fault map_text(const EvaluateProgram &args, Cell *target, const Text &a, const Text &table) {
    uint64_t length = 0;
    bool changes = false;
    for (uint32_t place = 0; place < a.length;) {
        const uint32_t next = next_character(a, place);
        const uint32_t code_point = decode_character(a.bytes + place, next - place);
        const uint32_t mapped = map_character(table, code_point);
        changes = changes || mapped != code_point;
        length += encoded_bytes(mapped);
        place = next;
    }
    if (!changes) {
        set_text(target, a.bytes, a.length);
        return 0;
    }
    if (length > TEXT_BYTES_MAX) return ERROR_TEXT_BYTES;
    uint8_t *bytes = take_space(args, length);
    if (!bytes) return FAULT_NO_SPACE;
    uint8_t *end = bytes;
    for (uint32_t place = 0; place < a.length;) {
        const uint32_t next = next_character(a, place);
        end = encode_character(end, map_character(table, decode_character(a.bytes + place, next - place)));
        place = next;
    }
    set_text(target, bytes, (uint32_t)length);
    return 0;
}

DEVICE Fault replace_text(const EvaluateProgram &args, Cell *target, const Text &a, const Text &from, const Text &to) {
    uint64_t found = 0;
    if (from.length > 0) {
        for (uint32_t place = find_part(a, from, 0); place < a.length; place = find_part(a, from, place + from.length))
            found++;
    }
    if (found == 0) {
        set_text(target, a.bytes, a.length);
        return 0;
    }
    const uint64_t length = a.length - found * from.length + found * to.length;
    if (length > TEXT_BYTES_MAX) return ERROR_TEXT_BYTES;
    uint8_t *bytes = take_space(args, length);
    if (!bytes) return FAULT_NO_SPACE;
    uint8_t *end = bytes;
    uint32_t done = 0;
    while (done < a.length) {
        uint32_t place = find_part(a, from, done);
        if (place > a.length) place = a.length;
        copy_bytes(end, a.bytes + done, place - done);
        end += place - done;
        if (place == a.length) break;
        copy_bytes(end, to.bytes, to.length);
        end += to.length;
        done = place + from.length;
    }
    set_text(target, bytes, (uint32_t)length);
    return 0;
}

DEVICE Fault pad_blanks(const EvaluateProgram &args, Cell *target, const Text &a, int64_t width) {
    const int64_t missing = width - count_characters(a.bytes, a.length);
    if (missing <= 0) {
        set_text(target, a.bytes, a.length);
        return 0;
    }
    if (a.length + missing > (int64_t)TEXT_BYTES_MAX) return ERROR_TEXT_BYTES;
    uint8_t *bytes = take_space(args, a.length + (uint64_t)missing);
    if (!bytes) return FAULT_NO_SPACE;
    copy_bytes(bytes, a.bytes, a.length);
    for (int64_t place = 0; place < missing; place++) bytes[a.length + place] = ' ';
    set_text(target, bytes, a.length + (uint32_t)missing);
    return 0;
}

// A number of at least `width` digits, zeros in front. Returns the end.
DEVICE uint8_t *write_number(uint8_t *end, uint64_t value, uint32_t width) {
    uint8_t digits[20];
    uint32_t count = 0;
    while (value > 0 || count < width) {
        digits[count++] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
    while (count > 0) *end++ = digits[--count];
    return end;
}

DEVICE uint8_t *write_date(uint8_t *end, const CivilDate &date) {
    end = write_number(end, (uint64_t)(date.year > 0 ? date.year : 1 - date.year), 4);
    *end++ = '-';
    end = write_number(end, (uint64_t)date.month, 2);
    *end++ = '-';
    return write_number(end, (uint64_t)date.day, 2);
}

DEVICE uint8_t *write_era(uint8_t *end, const CivilDate &date) {
    if (date.year > 0) return end;
    *end++ = ' ';
    *end++ = 'B';
    *end++ = 'C';
    return end;
}

DEVICE uint8_t *write_time(uint8_t *end, int64_t time) {
    end = write_number(end, (uint64_t)(time / HOUR_MICROSECONDS), 2);
    *end++ = ':';
    end = write_number(end, (uint64_t)(time / MINUTE_MICROSECONDS % 60), 2);
    *end++ = ':';
    end = write_number(end, (uint64_t)(time / SECOND_MICROSECONDS % 60), 2);
    uint64_t fraction = (uint64_t)(time % SECOND_MICROSECONDS);
    if (fraction == 0) return end;
    uint32_t width = 6;
    for (; fraction % 10 == 0; fraction /= 10) width--;
    *end++ = '.';
    return write_number(end, fraction, width);
}

DEVICE uint8_t *write_timestamp(uint8_t *end, int64_t timestamp, bool zone) {
    const CivilDate date = date_of_days(divide_floor(timestamp, DAY_MICROSECONDS));
    end = write_date(end, date);
    *end++ = ' ';
    end = write_time(end, modulo_floor(timestamp, DAY_MICROSECONDS));
    if (zone) {
        *end++ = '+';
        *end++ = '0';
        *end++ = '0';
    }
    return write_era(end, date);
}

DEVICE uint8_t *write_uuid(uint8_t *end, const Cell &cell) {
    for (uint32_t index = 0; index < 16; index++) {
        if (index == 4 || index == 6 || index == 8 || index == 10) *end++ = '-';
        const uint8_t byte = (uint8_t)((index < 8 ? cell.low : cell.high) >> (8 * (index % 8)));
        const uint8_t digits[2] = {(uint8_t)(byte >> 4), (uint8_t)(byte & 15)};
        for (uint32_t digit = 0; digit < 2; digit++) {
            *end++ = (uint8_t)(digits[digit] < 10 ? '0' + digits[digit] : 'a' + digits[digit] - 10);
        }
    }
    return end;
}

// PostgreSQL's text of a value.
DEVICE Fault write_value(const EvaluateProgram &args, uint32_t kind, Cell *target, const Cell &cell) {
    uint8_t text[WRITTEN_BYTES_MAX];
    uint8_t *end = text;
    const int64_t value = integer_of(cell);
    switch (kind) {
        case WRITTEN_INTEGER:
            if (value < 0) *end++ = '-';
            end = write_number(end, value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
            break;
        case WRITTEN_BOOL: {
            const uint64_t word = value ? 0x65757274ull : 0x65736c6166ull; // "true", "false"
            for (uint64_t rest = word; rest > 0; rest >>= 8) *end++ = (uint8_t)rest;
            break;
        }
        case WRITTEN_DATE: {
            const CivilDate date = date_of_days(value);
            end = write_era(write_date(end, date), date);
            break;
        }
        case WRITTEN_TIME: end = write_time(end, value); break;
        case WRITTEN_UUID: end = write_uuid(end, cell); break;
        default: end = write_timestamp(end, value, kind == WRITTEN_TIMESTAMP_UTC);
    }
    const uint32_t length = (uint32_t)(end - text);
    uint8_t *bytes = take_space(args, length);
    if (!bytes) return FAULT_NO_SPACE;
    copy_bytes(bytes, text, length);
    set_text(target, bytes, length);
    return 0;
}

DEVICE Fault pad_text(const EvaluateProgram &args, Cell *target, const Text &a, int64_t length, const Text &fill, bool at_start) {
    RepeatedText filled;
    uint32_t kept;
    const Fault fault = measure_padding(a, length, fill, &filled, &kept);
    if (fault) return fault;
    const uint64_t bytes_wanted = filled.length() + kept;
    if (bytes_wanted > TEXT_BYTES_MAX) return ERROR_TEXT_BYTES;
    uint8_t *bytes = take_space(args, bytes_wanted);
    if (!bytes) return FAULT_NO_SPACE;
    uint8_t *end = at_start ? filled.write(bytes) : bytes;
    copy_bytes(end, a.bytes, kept);
    if (!at_start) filled.write(end + kept);
    set_text(target, bytes, (uint32_t)bytes_wanted);
    return 0;
}

DEVICE Fault repeat_text(const EvaluateProgram &args, Cell *target, const Text &a, int64_t count) {
    const RepeatedText repeated{a, a.length && count > 0 ? (uint64_t)count : 0, 0};
    if (repeated.length() + VALUE_HEADER_BYTES > VALUE_BYTES_MAX) return ERROR_REQUESTED_LENGTH;
    uint8_t *bytes = take_space(args, repeated.length());
    if (!bytes) return FAULT_NO_SPACE;
    repeated.write(bytes);
    set_text(target, bytes, (uint32_t)repeated.length());
    return 0;
}

DEVICE Fault reverse_text(const EvaluateProgram &args, Cell *target, const Text &a) {
    uint8_t *bytes = take_space(args, a.length);
    if (!bytes) return FAULT_NO_SPACE;
    write_reversed(bytes, a);
    set_text(target, bytes, a.length);
    return 0;
}

DEVICE Fault translate_text(const EvaluateProgram &args, Cell *target, const Text &a, const Text &from, const Text &to) {
    const uint64_t length = write_translated(nullptr, a, from, to);
    if (length > TEXT_BYTES_MAX) return ERROR_TEXT_BYTES;
    uint8_t *bytes = take_space(args, length);
    if (!bytes) return FAULT_NO_SPACE;
    write_translated(bytes, a, from, to);
    set_text(target, bytes, (uint32_t)length);
    return 0;
}

DEVICE Fault format_moment(const EvaluateProgram &args, Cell *target, int64_t moment, const Text &table) {
    TextSink measured{nullptr, 0};
    write_moment(&measured, moment, (const uint16_t *)table.bytes);
    uint8_t *bytes = take_space(args, measured.length);
    if (!bytes) return FAULT_NO_SPACE;
    TextSink sink{bytes, 0};
    write_moment(&sink, moment, (const uint16_t *)table.bytes);
    set_text(target, bytes, sink.length);
    return 0;
}

// The functions that make new text.
DEVICE Fault run_write_text(const EvaluateProgram &args, const Instruction &in, Cell *target, const Cell &a,
                            const Cell &b, const Cell &c) {
    switch (in.opcode) {
        case OPCODE_FOLD_TEXT: return fold_text(args, target, text_of(a), in.mode != 0);
        case OPCODE_MAP_TEXT: return map_text(args, target, text_of(a), text_of(b));
        case OPCODE_CONCAT: return concat_text(args, target, text_of(a), text_of(b), text_of(c));
        case OPCODE_REPLACE: return replace_text(args, target, text_of(a), text_of(b), text_of(c));
        case OPCODE_PAD_BLANKS: return pad_blanks(args, target, text_of(a), integer_of(b));
        case OPCODE_PAD_TEXT: return pad_text(args, target, text_of(a), integer_of(b), text_of(c), in.mode != 0);
        case OPCODE_REPEAT: return repeat_text(args, target, text_of(a), integer_of(b));
        case OPCODE_REVERSE: return reverse_text(args, target, text_of(a));
        case OPCODE_TRANSLATE: return translate_text(args, target, text_of(a), text_of(b), text_of(c));
        case OPCODE_FORMAT_MOMENT: return format_moment(args, target, integer_of(a), text_of(b));
        default: return write_value(args, in.mode, target, a); // OPCODE_WRITE_TEXT
    }
}
