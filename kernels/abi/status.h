// What went wrong in a kernel, for the host to turn into PostgreSQL's error.
#pragma once

#include <stdint.h>

enum ErrorCode {
    ERROR_NONE = 0,
    ERROR_INT16_RANGE = 1,         // smallint out of range
    ERROR_INT32_RANGE = 2,         // integer out of range
    ERROR_INT64_RANGE = 3,         // bigint out of range
    ERROR_DECIMAL_RANGE = 4,       // a decimal exceeds its bits
    ERROR_NUMERIC_OVERFLOW = 5,    // numeric field overflow
    ERROR_DIVISION_BY_ZERO = 6,    // division by zero
    ERROR_FLOAT_OVERFLOW = 7,      // value out of range: overflow
    ERROR_FLOAT_UNDERFLOW = 8,     // value out of range: underflow
    ERROR_NEGATIVE_LENGTH = 9,     // negative substring length not allowed
    ERROR_DATE_RANGE = 10,         // date out of range
    ERROR_TIMESTAMP_RANGE = 11,    // timestamp out of range
    ERROR_SQUARE_ROOT = 12,        // cannot take square root of a negative number
    ERROR_PATTERN = 13,            // LIKE pattern must not end with escape character
    ERROR_INTERVAL_RANGE = 14,     // interval out of range
    ERROR_TEXT_TOO_LONG = 15,      // a file's text exceeds varchar(n)
    ERROR_NULL_IN_COLUMN = 16,     // a file's NULL in a column declared NOT NULL
    ERROR_REQUESTED_LENGTH = 17,   // requested length too large
    ERROR_FIELD_POSITION = 18,     // field position must not be zero
    ERROR_DATE_TO_TIMESTAMP = 24,  // date out of range for timestamp
    ERROR_TEXT_BYTES = 25,         // a made text exceeds TEXT_BYTES_MAX
    ERROR_INFINITE_DATES = 26,     // cannot subtract infinite dates
    ERROR_INFINITE_TIMESTAMPS = 27, // cannot subtract infinite timestamps
    ERROR_INFINITE_FIELD = 28,     // a field of an infinite timestamp
    ERROR_ORIGIN_RANGE = 29,       // origin out of range
    ERROR_STRIDE = 30,             // stride must be greater than zero
    ERROR_NO_MOMENT = 31,          // seconds that are no timestamp; `value` is them, a double
    ERROR_PAGE = 32,               // a corrupt data page; `detail` is the page's number in its batch
    ERROR_DICTIONARY_INDEX = 33,   // an index beyond its dictionary; `detail` as of ERROR_PAGE
    ERROR_COMPRESSED_PAGE = 34,    // a page that does not decompress; `detail` as of ERROR_PAGE
    ERROR_INVALID_UTF8 = 35,       // text that is not UTF-8; `detail` as of ERROR_PAGE
    ERROR_VALUE_RANGE = 36,        // a file's value beyond its declared type; `detail` as of ERROR_PAGE
    ERROR_PROBE_LIMIT = 64,        // a hash table is full: a bug
    ERROR_SLOT_RANGE = 65,         // a key without a slot
    ERROR_FLOAT_STATE = 66,        // bytes that are no state of a sum of floats: a bug
};

typedef struct Status {
    uint32_t code; // ErrorCode
    uint32_t detail;
    uint64_t value; // of an instruction: its first operand
} Status;
