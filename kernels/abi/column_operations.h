// Arguments of the kernels in column/ and string/.
#pragma once

#include "column.h"

// Rows that a block of a tiled kernel handles: 16 a thread.
#define TILE_ROWS 4096

// Of write_offsets, count_before and select_rows: how many blocks have begun and ended. A word a tile follows. All are 0 between launches.
typedef struct ScanState {
    uint64_t started;
    uint64_t ended;
} ScanState;

// write_offsets, count_before, select_rows
typedef struct ScanCounts {
    uint64_t counts;    // uint8_t [row_count], of which 0 counts 0 and others 1, or uint32_t [row_count]
    uint64_t state;     // ScanState, uint64_t [tiles]
    uint64_t tile_sums; // uint64_t [tiles + 1]: the sum before each tile, then that of all
    uint64_t target;    // write_offsets: uint64_t [row_count]; count_before: uint32_t [row_count + 1], the last one of all rows;
                        // select_rows: uint32_t, the numbers of counted rows
    uint64_t row_count;
    uint32_t count_bytes; // 1 or 4
    uint32_t reserved;
} ScanCounts;

// No row: what an outer join gathers NULL for.
#define NO_ROW 0xffffffffu

// gather_cells: columns of one launch
#define GATHERED_COLUMNS_MAX 8

typedef struct GatheredColumn {
    ColumnView source;
    uint64_t values;   // [row_count * cell_bytes]
    uint64_t validity; // uint8_t [row_count], or 0 if nothing can be NULL
} GatheredColumn;

// gather_cells
typedef struct GatherCells {
    uint64_t rows; // uint32_t [row_count], NO_ROW for NULL; 0: every row in order, from `first_row` on
    uint64_t row_count;
    uint64_t first_row;
    uint32_t column_count;
    uint32_t reserved;
    GatheredColumn columns[GATHERED_COLUMNS_MAX];
} GatherCells;

// copy_ranges: bytes that a block copies
#define COPY_TILE_BYTES 32768
#define COPIED_RANGES_MAX 64

typedef struct CopiedRange {
    uint64_t source;
    uint64_t target;
    uint64_t bytes;      // more than 0
    uint64_t first_tile; // tiles of the ranges before
} CopiedRange;

// copy_ranges
typedef struct CopyRanges {
    uint32_t range_count;
    uint32_t reserved;
    CopiedRange ranges[COPIED_RANGES_MAX];
} CopyRanges;

// mark_rows
typedef struct MarkRows {
    uint64_t rows;  // uint32_t [count]
    uint64_t flags; // uint8_t [count] or 0: only these entries count
    uint64_t marks; // uint8_t, set to 1 at rows[i]
    uint64_t count;
} MarkRows;

// count_repeats: the most repeats of a row in one round, so that the counts of all rows of a chunk add up to less than 2^62
#define REPEATED_ROUND 0x20000000

// count_repeats
typedef struct CountRepeats {
    ColumnView lasts; // int64_t cells: a row is repeated for the numbers from 1 to its own
    uint64_t counts;  // uint32_t [row_count]: how often in this round
    uint64_t more;    // uint32_t, set to 1 if a row is repeated in the next round too
    uint64_t row_count;
    uint64_t before; // repeats of a row in the rounds before
    uint32_t keeps_rows; // whether a row without numbers comes once
    uint32_t reserved;
} CountRepeats;

// repeat_rows
typedef struct RepeatRows {
    uint64_t offsets; // uint64_t [row_count]: repeats of the rows before, in this round
    uint64_t row_count;
    uint64_t first; // the first repeat that is wanted
    uint64_t count; // how many are; all of them exist
    uint64_t rows;  // uint32_t [count]: their rows
    uint64_t numbers;  // int64_t [count]: their numbers
    uint64_t validity; // uint8_t [count], or 0 if every row has numbers: whether there is a number
    ColumnView lasts;  // as of count_repeats; read with `validity` only
    uint64_t before;   // as of count_repeats
} RepeatRows;

// combine_flags
typedef struct CombineFlags {
    uint64_t values;   // uint8_t [row_count]: a boolean column
    uint64_t validity; // uint8_t [row_count] or 0
    uint64_t flags;    // uint8_t [row_count]: 1 where the value is true and not NULL, or 0 there if `invert`
    uint64_t row_count;
    uint32_t invert;
    uint32_t reserved;
} CombineFlags;

// measure_strings, copy_strings
typedef struct CopyStrings {
    ColumnView source;  // string cells
    uint64_t lengths;   // uint32_t [row_count], written by measure_strings; 0 for NULL
    uint64_t offsets;   // uint64_t [row_count], read by copy_strings
    uint64_t bytes;     // the text, one after another
    uint64_t first_offset; // of `bytes`, among the offsets
    uint64_t cells;     // StringCell [row_count] that point into `bytes`, or 0 if nobody wants them
    uint64_t row_count;
} CopyStrings;
