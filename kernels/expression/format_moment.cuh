// `to_char` of timestamps, by the pieces that src/gpu/program/moment_pieces.rs makes of a format.
//
// A text is made twice: first to know its length, then where it is kept.
//
// Source: PostgreSQL 15, `formatting.c` (`DCH_to_char`, `str_numth`).
#pragma once

#include "calendar.cuh"

// Characters of the longest name of a day or month, and of a Roman number.
#define NAME_WIDTH 9
#define ROMAN_WIDTH 4
// Days from Julian day 0 to 1970-01-01.
#define JULIAN_EPOCH_DAYS 2440588

CONSTANT_TABLE char MONTH_NAMES[12][NAME_WIDTH + 1] = {"January", "February", "March",     "April",   "May",      "June",
                                                       "July",    "August",   "September", "October", "November", "December"};
CONSTANT_TABLE char DAY_NAMES[7][NAME_WIDTH + 1] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                    "Thursday", "Friday", "Saturday"};
CONSTANT_TABLE char ROMAN_NUMBERS[12][ROMAN_WIDTH + 1] = {"I",   "II",   "III", "IV", "V",  "VI",
                                                          "VII", "VIII", "IX",  "X",  "XI", "XII"};
CONSTANT_TABLE char ERA_NAMES[4][ROMAN_WIDTH + 1] = {"AD", "BC", "A.D.", "B.C."};
CONSTANT_TABLE char HALF_DAY_NAMES[4][ROMAN_WIDTH + 1] = {"AM", "PM", "A.M.", "P.M."};
CONSTANT_TABLE char ORDINAL_ENDINGS[4][3] = {"TH", "ST", "ND", "RD"};

// Where a text goes, or nowhere: then it is measured.
struct TextSink {
    uint8_t *bytes;
    uint32_t length;

    METHOD void put(uint8_t byte) {
        if (bytes) bytes[length] = byte;
        length++;
    }
};

// A number of at least `width` characters, zeros behind the sign.
DEVICE void put_number(TextSink &sink, int64_t value, uint32_t width) {
    uint8_t digits[20];
    uint32_t count = 0;
    uint64_t rest = (uint64_t)value;
    if (value < 0) {
        sink.put('-');
        rest = 0 - rest;
        width = width ? width - 1 : 0;
    }
    do {
        digits[count++] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0 || count < width);
    while (count > 0) sink.put(digits[--count]);
}

// A word in capital letters or with a capital letter, at most so many letters of it, with blanks up to a width.
DEVICE void put_word(TextSink &sink, const char *word, uint32_t letters_max, uint32_t flags, uint32_t width) {
    uint32_t count = 0;
    for (; count < letters_max && word[count]; count++) {
        uint8_t letter = (uint8_t)word[count];
        if ((flags & PIECE_UPPER) && letter >= 'a' && letter <= 'z') letter -= 'a' - 'A';
        if ((flags & PIECE_LOWER) && letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
        sink.put(letter);
    }
    for (; (flags & PIECE_FILLED) && count < width; count++) sink.put(' ');
}

DEVICE void put_ordinal_ending(TextSink &sink, int64_t value, uint32_t flags) {
    const uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const uint32_t last = (uint32_t)(magnitude % 10);
    put_word(sink, ORDINAL_ENDINGS[magnitude / 10 % 10 != 1 && last < 4 ? last : 0], 2,
             flags & PIECE_ORDINAL_UPPER ? PIECE_UPPER : PIECE_LOWER, 0);
}

// The number of a year in its era, as far as it has digits.
DEVICE int64_t shown_year(int64_t year, uint32_t digits) {
    const int64_t counted = year > 0 ? year : 1 - year;
    return digits == 1 ? counted % 10 : digits == 2 ? counted % 100 : digits == 3 ? counted % 1000 : counted;
}

DEVICE_CALL void write_moment(TextSink *target, int64_t moment, const uint16_t *table) {
    TextSink sink = *target;
    const int64_t days = divide_floor(moment, DAY_MICROSECONDS), time = modulo_floor(moment, DAY_MICROSECONDS);
    const CivilDate date = date_of_days(days);
    const int64_t day_of_year = days - days_of_date(CivilDate{date.year, 1, 1}) + 1;
    const int64_t hour = time / HOUR_MICROSECONDS;
    for (uint32_t piece = 0; piece < table[0]; piece++) {
        const uint32_t kind = table[1 + 3 * piece], flags = table[2 + 3 * piece], argument = table[3 + 3 * piece];
        int64_t number, iso_year;
        uint32_t width = 0;
        switch (kind) {
            case PIECE_BYTE: sink.put((uint8_t)argument); continue;
            case PIECE_ERA: put_word(sink, ERA_NAMES[(date.year <= 0) + 2 * argument], ROMAN_WIDTH, flags, 0); continue;
            case PIECE_HALF_DAY: put_word(sink, HALF_DAY_NAMES[(hour >= 12) + 2 * argument], ROMAN_WIDTH, flags, 0); continue;
            case PIECE_DAY_NAME: put_word(sink, DAY_NAMES[day_of_week(days)], argument, flags, NAME_WIDTH); continue;
            case PIECE_MONTH_NAME: put_word(sink, MONTH_NAMES[date.month - 1], argument, flags, NAME_WIDTH); continue;
            case PIECE_ROMAN_MONTH: put_word(sink, ROMAN_NUMBERS[date.month - 1], ROMAN_WIDTH, flags, ROMAN_WIDTH); continue;
            case PIECE_CENTURY:
                number = date.year > 0 ? (date.year - 1) / 100 + 1 : date.year / 100 - 1;
                width = date.year > 0 ? 2 : 3;
                break;
            case PIECE_DAY_OF_YEAR: number = day_of_year; width = 3; break;
            case PIECE_DAY_OF_MONTH: number = date.day; width = 2; break;
            case PIECE_DAY_OF_WEEK: number = day_of_week(days) + 1; break;
            case PIECE_FRACTION:
                number = time % SECOND_MICROSECONDS;
                for (uint32_t digits = argument; digits < 6; digits++) number /= 10;
                break;
            case PIECE_HOUR24: number = hour; width = 2; break;
            case PIECE_HOUR12: number = hour % 12 == 0 ? 12 : hour % 12; width = 2; break;
            case PIECE_ISO_DAY_OF_YEAR:
                number = (iso_week(days, &iso_year) - 1) * 7 + days - week_start(days) + 1;
                width = 3;
                break;
            case PIECE_ISO_DAY_OF_WEEK: number = (day_of_week(days) + 6) % 7 + 1; break;
            case PIECE_ISO_WEEK: number = iso_week(days, &iso_year); width = 2; break;
            case PIECE_ISO_YEAR:
                iso_week(days, &iso_year);
                number = shown_year(iso_year, argument);
                width = argument;
                break;
            case PIECE_JULIAN_DAY: number = days + JULIAN_EPOCH_DAYS; break;
            case PIECE_MINUTE: number = time / MINUTE_MICROSECONDS % 60; width = 2; break;
            case PIECE_MONTH: number = date.month; width = 2; break;
            case PIECE_QUARTER: number = (date.month - 1) / 3 + 1; break;
            case PIECE_SECOND_OF_DAY: number = time / SECOND_MICROSECONDS; break;
            case PIECE_SECOND: number = time / SECOND_MICROSECONDS % 60; width = 2; break;
            case PIECE_WEEK: number = (day_of_year - 1) / 7 + 1; width = 2; break;
            case PIECE_WEEK_OF_MONTH: number = (date.day - 1) / 7 + 1; break;
            default: // PIECE_YEAR, PIECE_YEAR_WITH_COMMA
                number = shown_year(date.year, argument);
                width = argument;
        }
        if (kind == PIECE_YEAR_WITH_COMMA) {
            put_number(sink, number / 1000, 0);
            sink.put(',');
            put_number(sink, number % 1000, 3);
        } else {
            const bool is_filled = (flags & PIECE_FILLED) != 0;
            put_number(sink, number, kind == PIECE_FRACTION ? argument : is_filled ? width : 0);
        }
        if (flags & (PIECE_ORDINAL_UPPER | PIECE_ORDINAL_LOWER)) put_ordinal_ending(sink, number, flags);
    }
    *target = sink;
}
