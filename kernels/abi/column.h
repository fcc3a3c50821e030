// Columns in device memory, as kernels and the host see them.
//
// A column has `values`, one fixed-width cell a row, and optionally `validity`, one byte a row: 0 is NULL. Cells of
// NULL rows have no meaning and are not read for it. Strings are cells too: an address and a length, whose bytes lie in
// a page, a dictionary or a buffer that the column keeps alive.
#pragma once

#include <stdint.h>

// What a cell is. The numbers are part of the contract with the host.
enum CellType {
    CELL_BOOL = 0,     // uint8_t, 0 or 1
    CELL_INT16 = 1,    // int16_t
    CELL_INT32 = 2,    // int32_t; date too
    CELL_INT64 = 3,    // int64_t; time, timestamps, decimals of at most 18 digits
    CELL_INT128 = 4,   // __int128: decimals of 19 to 38 digits
    CELL_FLOAT32 = 5,  // float
    CELL_FLOAT64 = 6,  // double
    CELL_STRING = 7,   // StringCell: text and bytea
    CELL_BYTES16 = 8,  // 16 bytes in order: uuid
    CELL_INTERVAL = 9, // IntervalCell
    CELL_INT256 = 10,  // 256 bits, little end first: decimals of 39 to 76 digits
};

// Text or bytes that lie elsewhere.
typedef struct StringCell {
    uint64_t address;
    uint32_t length;
    uint32_t reserved; // 0
} StringCell;

// PostgreSQL's interval.
typedef struct IntervalCell {
    int64_t microseconds;
    int32_t days;
    int32_t months;
} IntervalCell;

// A column as a kernel reads or writes it.
typedef struct ColumnView {
    uint64_t values;   // address of the first cell
    uint64_t validity; // address of the first validity byte, or 0 if no row is NULL
    uint32_t cell_type; // CellType
    uint32_t cell_bytes;
} ColumnView;
