// Arguments of the kernels in exchange/, of move_strings and of place_strings.
#pragma once

#include "join.h"

// Partitions of one launch: one digit of a sort.
#define PARTITIONS_MAX 256

// assign_hash_partitions
typedef struct AssignHashPartitions {
    uint64_t hashes;          // uint64_t [row_count], of hash_keys
    uint64_t words;           // uint64_t [row_count]: the partition of each row
    uint64_t rows;            // uint32_t [row_count]: the row's own number
    uint64_t row_count;
    uint32_t partition_count; // at most PARTITIONS_MAX
    uint32_t level;           // rows that share a partition at one level are spread at the next
} AssignHashPartitions;

// assign_range_partitions
typedef struct AssignRangePartitions {
    KeyColumns keys;
    KeyColumns splitters;    // in order, no two equal
    uint64_t words;          // uint64_t [row_count]: 2 * s for a row before splitter s and after s - 1, one more if equal to s
    uint64_t rows;           // uint32_t [row_count]: the row's own number
    uint64_t row_count;
    uint32_t splitter_count; // at most (PARTITIONS_MAX - 1) / 2
    uint32_t descending;     // bit k: key k is ordered greatest first
    uint32_t nulls_first;    // bit k: NULLs of key k come first
    uint32_t reserved;
} AssignRangePartitions;

// Rows that a block of scatter_rows handles.
#define SCATTER_TILE_ROWS 4096
// Columns of one launch.
#define SCATTER_COLUMNS_MAX 8
// Blocks of memory that one launch fills.
#define SCATTER_BLOCKS_MAX 32
// Parts of such a block begin at multiples of so many bytes.
#define SCATTER_PART_ALIGNMENT 64

// assign_owners
typedef struct AssignOwners {
    KeyColumns keys;
    uint64_t owners;      // uint8_t [row_count]: the partition of each row, as of assign_hash_partitions
    uint64_t counts;      // uint32_t [owner_count * tiles]: rows of each tile, owner by owner
    uint64_t row_count;
    uint32_t owner_count; // at most PARTITIONS_MAX
    uint32_t level;
    uint32_t nulls_match; // 0: rows with a NULL key are spread by number
    uint32_t tiles;       // of SCATTER_TILE_ROWS rows
    uint64_t staying;     // uint8_t [row_count]: not 0 where stay_owner has the row whatever its keys are; or 0: nowhere
    uint32_t stay_owner;
    uint32_t reserved;
} AssignOwners;

// Where a column goes in a block of memory, in multiples of SCATTER_PART_ALIGNMENT from its beginning.
typedef struct ScatterPart {
    uint32_t values;
    uint32_t validity; // written where the column has validity
} ScatterPart;

// A block of memory for some of the rows, by their places in the order of owners.
typedef struct ScatterBlock {
    uint64_t first_row;
    uint64_t end_row;
    uint64_t address;
    ScatterPart parts[SCATTER_COLUMNS_MAX];
} ScatterBlock;

// scatter_rows
typedef struct ScatterRows {
    uint64_t owners;  // uint8_t [row_count], of assign_owners
    uint64_t offsets; // uint64_t [owner_count * tiles], the exclusive sums of its counts
    uint64_t row_count;
    uint32_t owner_count;
    uint32_t tiles;
    uint32_t column_count;
    uint32_t block_count;
    ColumnView columns[SCATTER_COLUMNS_MAX];
    ScatterBlock blocks[SCATTER_BLOCKS_MAX]; // in the order of their rows; rows of none stay
} ScatterRows;

// Rows that a block of the kernels of pack_cells.cu handles, and those that a warp does: a miniblock.
#define PACK_TILE_ROWS 1024
#define MINIBLOCK_ROWS 128
// Ranges of one launch of them.
#define PACKED_RANGES_MAX 48

// How the values of a range are packed.
enum PackedForm {
    FORM_DISTANCES = 1, // from a base
    FORM_DELTAS = 2,    // from the value before, less a base: but for the first of each miniblock, which are written as they are
    FORM_RUNS = 3,      // of each run, from a base, and the row that it starts with
};

// Rows of a column of bool or integers that follow one another.
typedef struct CellRange {
    uint64_t cells;
    uint64_t validity;   // uint8_t [row_count], or 0 if no row is NULL
    uint64_t row_count;  // more than 0
    uint64_t first_tile; // tiles of the ranges before
    uint32_t cell_bytes;
    uint32_t reserved;
} CellRange;

// Between which values those of a range lie. NULLs have none.
typedef struct RangeBounds {
    int64_t least;    // of no value, the greatest int64_t
    int64_t greatest; // of no value, the least int64_t
    // The same of what is between a value and the one before it in its miniblock, modulo 2^64. A NULL has the value before it.
    int64_t least_delta;
    int64_t greatest_delta;
    uint64_t beyond;    // 1 if a value has more than 64 bits; the others tell nothing then
    uint64_t run_count; // as of count_runs
} RangeBounds;

// measure_ranges
typedef struct MeasureRanges {
    uint64_t bounds; // RangeBounds [range_count], of no value before
    uint32_t range_count;
    uint32_t reserved;
    CellRange ranges[PACKED_RANGES_MAX];
} MeasureRanges;

// A range of which each value, or delta, is at least `base`, and less than 2 ^ width more.
typedef struct PackedRange {
    CellRange source;
    uint64_t bits;   // uint32_t [ceil(row_count * width / 32)]
    uint64_t firsts; // of deltas: int64_t [ceil(row_count / MINIBLOCK_ROWS)]
    int64_t base;
    uint32_t width;  // 0 to 64
    uint32_t form;
} PackedRange;

// pack_cells
typedef struct PackCells {
    uint32_t range_count;
    uint32_t reserved;
    PackedRange ranges[PACKED_RANGES_MAX];
} PackCells;

// A range as runs: rows that follow one another in a tile and have one value. A NULL is in the run before it.
typedef struct RunRange {
    CellRange source;
    uint64_t values; // int64_t [runs of the range]
    uint64_t starts; // uint64_t [runs of the range]: the first row of each
    int64_t base;    // the value of a run of NULLs alone
} RunRange;

// count_runs, collect_runs
typedef struct CollectRuns {
    uint64_t counts;  // uint32_t [tiles]: runs of each, written by count_runs
    uint64_t offsets; // uint64_t [tiles]: their exclusive sums, read by collect_runs
    uint32_t range_count;
    uint32_t reserved;
    RunRange ranges[PACKED_RANGES_MAX];
} CollectRuns;

// Rows whose cells are made of what pack_cells has written.
typedef struct UnpackedRange {
    uint64_t bits;       // uint32_t [ceil(row_count * width / 32)], of runs [ceil(run_count * width / 32)]
    uint64_t marks;      // of deltas: int64_t [ceil(row_count / MINIBLOCK_ROWS)]; of runs: uint32_t [ceil(run_count * start_width / 32)]
    uint64_t cells;      // [row_count * cell_bytes]
    uint64_t row_count;  // more than 0
    uint64_t first_tile; // tiles of the ranges before
    int64_t base;
    uint32_t width;      // 0 to 64: of 0 nothing is read
    uint32_t cell_bytes;
    uint16_t form;
    uint16_t start_width; // of the first row of a run
    uint32_t run_count;   // of runs, more than 0
} UnpackedRange;

// unpack_cells
typedef struct UnpackCells {
    uint32_t range_count;
    uint32_t reserved;
    UnpackedRange ranges[PACKED_RANGES_MAX];
} UnpackCells;

// Bytes of text that are compressed by themselves: a piece.
#define TEXT_PIECE_BYTES 65536
// Texts of one launch.
#define COMPRESSED_TEXTS_MAX 64

// Text that is compressed.
typedef struct TextRange {
    uint64_t text;        // uint8_t [bytes], at a multiple of 4
    uint64_t bytes;       // more than 0
    uint64_t slots;       // uint8_t [pieces * TEXT_PIECE_BYTES]: the LZ4 block of each piece
    uint64_t sizes;       // uint32_t [pieces]: its bytes; as many as the piece has if it is not shorter, and the slot tells nothing then
    uint64_t first_piece; // pieces of the texts before
} TextRange;

// compress_texts
typedef struct CompressTexts {
    uint32_t text_count;
    uint32_t reserved;
    TextRange texts[COMPRESSED_TEXTS_MAX];
} CompressTexts;

// Text that was compressed: where each piece ends behind these numbers, and the pieces. One of as many bytes as it has text is text.
typedef struct CompressedText {
    uint64_t source;       // uint32_t [pieces], then uint8_t: nothing is believed of them
    uint64_t source_bytes; // those of the numbers at least
    uint64_t target;       // uint8_t [bytes]
    uint64_t bytes;        // more than 0
    uint64_t first_piece;  // pieces of the texts before
} CompressedText;

// decompress_texts
typedef struct DecompressTexts {
    uint64_t refused; // uint32_t: set to 1 if a piece is not what it is to be
    uint32_t text_count;
    uint32_t reserved;
    CompressedText texts[COMPRESSED_TEXTS_MAX];
} DecompressTexts;

// move_strings
typedef struct MoveStrings {
    uint64_t cells;    // StringCell [row_count]
    uint64_t row_count;
    uint64_t distance; // added to every address
} MoveStrings;

// place_strings
typedef struct PlaceStrings {
    uint64_t lengths; // uint32_t [row_count]
    uint64_t offsets; // uint64_t [row_count]: where each text begins in bytes
    uint64_t bytes;
    uint64_t cells;   // StringCell [row_count]
    uint64_t row_count;
} PlaceStrings;
