// Arguments of the kernels in window/.
#pragma once

#include "join.h"

// Neighbouring rows that belong together: partitions, or peer groups within them.
typedef struct RowRuns {
    uint64_t numbers; // uint32_t [row_count + 1], of count_before: a row's run is the number behind the row, less 1; 0: all rows are one run
    uint64_t starts;  // uint32_t [run_count]: the first row of each; not read of a single run
    uint32_t run_count;
    uint32_t reserved;
} RowRuns;

// mark_runs
typedef struct MarkRuns {
    KeyColumns keys;    // what the rows of a run have in common; NULLs are equal
    uint64_t outer;     // uint8_t [row_count]: 1 where a run begins that this one's are parts of; 0: all rows are one
    uint64_t flags;     // uint8_t [row_count]: 1 where a run begins
    uint64_t row_count;
} MarkRuns;

// In what the bounds of a frame count.
enum WindowUnit {
    UNIT_ROWS = 0,
    UNIT_GROUPS = 1, // peer groups
    UNIT_RANGE = 2,  // values of the key
};

enum WindowBound {
    BOUND_UNBOUNDED = 0,
    BOUND_CURRENT = 1,   // the row, or its peer group
    BOUND_PRECEDING = 2, // so many rows or peer groups before that
    BOUND_FOLLOWING = 3,
    BOUND_LIMIT = 4,     // keys up to a value
};

// A bound of a frame.
typedef struct FrameEdge {
    ColumnView limit; // of BOUND_LIMIT, of the key's type
    uint32_t bound;   // WindowBound
    uint32_t count;   // of BOUND_PRECEDING and BOUND_FOLLOWING
} FrameEdge;

// find_frames
typedef struct FindFrames {
    RowRuns partitions;
    RowRuns peers;
    FrameEdge start;
    FrameEdge end;
    ColumnView key;      // of BOUND_LIMIT: in order within a partition, NULLs at one of its ends
    uint64_t starts;     // uint32_t [row_count]
    uint64_t ends;       // uint32_t [row_count]: behind the last row, and never before the first
    uint64_t row_count;
    uint32_t unit;       // WindowUnit
    uint32_t descending; // the order of the key
} FindFrames;

// What is left out of a frame.
enum WindowExclusion {
    EXCLUDE_NOTHING = 0,
    EXCLUDE_ROW = 1,   // the row itself
    EXCLUDE_GROUP = 2, // its peer group
    EXCLUDE_TIES = 3,  // its peer group but for the row
};

// The rows that a function of each row looks at.
typedef struct WindowFrames {
    RowRuns peers;      // not read if nothing is left out
    uint64_t starts;    // as of FindFrames
    uint64_t ends;
    uint64_t row_count;
    uint32_t exclusion; // WindowExclusion
    uint32_t reserved;
} WindowFrames;

// A number of a row in its partition.
enum RowNumberKind {
    NUMBER_ROW = 0,          // int64_t: from 1
    NUMBER_RANK = 1,         // int64_t: of the first row of its peer group
    NUMBER_DENSE_RANK = 2,   // int64_t: of its peer group
    NUMBER_PERCENT_RANK = 3, // double: (rank - 1) / (rows - 1), 0 for a single row
    NUMBER_CUME_DIST = 4,    // double: rows up to the end of its peer group / rows
    NUMBER_NTILE = 5,        // int32_t: of its part
};

// number_rows
typedef struct NumberRows {
    RowRuns partitions;
    RowRuns peers;
    uint64_t target;    // [row_count]
    uint64_t row_count;
    uint32_t kind;      // RowNumberKind
    uint32_t parts;     // of NUMBER_NTILE
} NumberRows;

enum FoundRowKind {
    FIND_LAG = 0,   // `number` rows before the row in its partition
    FIND_FIRST = 1, // of the frame
    FIND_LAST = 2,
    FIND_NTH = 3,   // the one with this number, from 1
};

// find_rows
typedef struct FindRows {
    WindowFrames frames; // not of FIND_LAG
    RowRuns partitions;  // of FIND_LAG
    uint64_t rows;       // uint32_t [row_count]: NO_ROW where there is none
    uint64_t row_count;
    int64_t number;
    uint32_t kind;       // FoundRowKind
    uint32_t reserved;
} FindRows;

// count_frames
typedef struct CountFrames {
    WindowFrames frames;
    uint64_t filled; // uint32_t [row_count + 1]: counted rows before each; 0: every row counts
    uint64_t target; // int64_t [row_count]
} CountFrames;

// sum_tiles, write_sums, and the same of large sums
typedef struct SumRows {
    ColumnView addends;  // integers of at most 128 bits; those of large sums have up to 256
    uint64_t tile_sums;  // [ceil(row_count / TILE_ROWS)] sums of 128 or 256 bits, written by sum_tiles
    uint64_t sums_above; // the same, read by write_sums: the sums before each tile; 0 of a single one
    uint64_t sums;       // [row_count + 1] written by write_sums: before each row, and of all
    uint64_t row_count;
} SumRows;

// sum_frames, sum_large_frames
typedef struct SumFrames {
    WindowFrames frames;
    uint64_t sums;            // as of SumRows
    uint64_t filled;          // as of CountFrames
    uint64_t values;          // cells of cell_bytes [row_count]
    uint64_t validity;        // uint8_t [row_count]: 0 for a frame without addends
    uint64_t status;          // Status
    uint32_t cell_bytes;      // 8, 16 or 32
    uint32_t overflow_code;   // ErrorCode for a sum that does not fit the cell
    uint32_t overflow_detail; // the most digits that the cell has
    uint32_t reserved;
} SumFrames;

// The state of a scan for the best row: the row or NO_ROW, and whether a partition has begun.
#define BEST_STARTED (1ull << 32)

// best_tiles, write_best
typedef struct ScanBest {
    ColumnView column;
    uint64_t starts;       // uint8_t [count]: 1 where a partition begins; 0: all rows are one
    uint64_t states;       // uint64_t [count] of what is scanned; 0: rows
    uint64_t tile_states;  // uint64_t [ceil(count / TILE_ROWS)], written by best_tiles
    uint64_t states_above; // uint64_t, read by write_best: the states up to and with each tile; 0 of a single one
    uint64_t target;       // written by write_best: up to and with each row its best one, uint32_t; of states uint64_t
    uint64_t count;
    uint32_t greatest;     // or least
    uint32_t reserved;
} ScanBest;

// pair_best
typedef struct PairBest {
    ColumnView column;
    uint64_t source;   // uint32_t [count]: rows or NO_ROW; 0: all rows that are not NULL
    uint64_t target;   // uint32_t [ceil(count / 2)]
    uint64_t count;
    uint32_t greatest;
    uint32_t reserved;
} PairBest;

// find_best
typedef struct FindBest {
    ColumnView column;
    WindowFrames frames;
    uint64_t running; // uint32_t [row_count], of write_best, where all frames begin with their partition; or 0
    uint64_t tree;    // uint32_t: the best of 2 rows, of 4 and so on, one size behind the other
    uint64_t rows;    // uint32_t [row_count]: NO_ROW where there is none
    uint32_t greatest;
    uint32_t reserved;
} FindBest;
