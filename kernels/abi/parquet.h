// Arguments of the kernels in parquet/.
//
// A batch is the pages of all columns of a row group that are decoded at once. A page's number is its place in the
// batch. A dictionary page is a page of a column of its own, whose rows are the dictionary's entries. A column need not
// have all rows of its pages: slices say which it has.
#pragma once

#include "column.h"

// Rows that a block that writes cells handles at most: 8 a thread.
#define SLICE_ROWS 2048
// Rows that a block of decode_levels expands at once: 4 a thread.
#define RUN_TILE_ROWS 1024
// Rows of a validity word.
#define WORD_ROWS 32
// Bytes after a page's last that may be read: kernels load whole words, and eight numbers where fewer are left.
#define PAGE_PADDING_BYTES 64
// Where decompressed pages lie is a multiple of this. What comes between them is zeros.
#define PAGE_ALIGNMENT 16
// Bytes of a page in which a thread finds what follows one another, pieces of the section of a page that a block has, and the section's
// bytes.
#define CHAIN_PIECE_BYTES 124
#define CHAIN_SECTION_PIECES 256
#define CHAIN_SECTION_BYTES (CHAIN_PIECE_BYTES * CHAIN_SECTION_PIECES)
// Pieces before a section of Snappy from which a walk leads into it, and the section's bytes without them.
#define SNAPPY_LEAD_PIECES 8
#define SNAPPY_SECTION_BYTES (CHAIN_SECTION_BYTES - SNAPPY_LEAD_PIECES * CHAIN_PIECE_BYTES)
// Output that a writer of Snappy compresses by itself.
#define SNAPPY_PART_BYTES 65536
// Threads of a block of decode_prefixes and build_strings.
#define BUILD_THREADS 32
// What a launch of build_strings does of a page at most: bytes of strings, a string counting for some more than its own.
// A warp copies some hundred megabytes a second.
#define BUILD_BYTES (4 << 20)
#define BUILD_STRING_BYTES 64
// Values from one DeltaSegment to the next: a warp decodes them, and 8 warps a slice.
#define DELTA_SEGMENT_VALUES 256
// Values from one RunSegment to the next. A warp needs the values of one or two.
#define RUN_SEGMENT_VALUES 512

// Where the n-th value that is not NULL comes from.
enum ValueSource {
    SOURCE_PLAIN = 0,    // source_bytes each, one after another
    SOURCE_SPLIT = 1,    // the same, all first bytes first (BYTE_STREAM_SPLIT)
    SOURCE_INTEGERS = 2, // differences, found by `index` (DELTA_BINARY_PACKED)
    SOURCE_STRINGS = 3,  // StringPlace in `scratch`, or lengths as differences, found by `index`
    SOURCE_BITS = 4,     // bits, lowest first
    SOURCE_INDEXES = 5,  // hybrid runs of dictionary indexes, after a byte of bit width; found by `index`
    SOURCE_FLAGS = 6,    // hybrid runs of one bit, after four bytes of length; found by `index`
};

// How definition levels are stored.
enum LevelsForm {
    LEVELS_NONE = 0,     // required: there are none
    LEVELS_PREFIXED = 1, // hybrid runs after four bytes of length, then the values (page V1)
    LEVELS_RUNS = 2,     // hybrid runs (page V2)
    LEVELS_PACKED = 3,   // one bit a row, highest first, then the values (page V1, deprecated)
};

// What a page has as differences.
enum DeltaForm {
    DELTA_NONE = 0,
    DELTA_INT32 = 1,
    DELTA_INT64 = 2,
    DELTA_LENGTHS = 3, // DELTA_LENGTH_BYTE_ARRAY
    DELTA_STRINGS = 4, // DELTA_BYTE_ARRAY
};

// How a file's value becomes a cell.
enum Conversion {
    CONVERT_BITS = 0,           // the value's bytes
    CONVERT_INTEGER = 1,        // 64 bits: checked against `least` and `greatest`, times `factor`
    CONVERT_NANOSECONDS = 2,    // the same, divided by 1000 and rounded down
    CONVERT_WIDE_INTEGER = 3,   // 128 bits, or 256 if the cell has them: as CONVERT_INTEGER
    CONVERT_DECIMAL = 4,        // bytes, most significant first: as CONVERT_WIDE_INTEGER
    CONVERT_FLOAT_TO_DOUBLE = 5,
    CONVERT_HALF_TO_FLOAT = 6,
    CONVERT_HALF_TO_DOUBLE = 7,
    CONVERT_INT96 = 8,          // nanoseconds of a day and the Julian day, to microseconds
    CONVERT_FLAG = 9,           // BOOLEAN
    CONVERT_STRING = 10,
};

// Of PageColumn.flags.
enum ColumnFlag {
    COLUMN_NOT_NULL = 1,
    COLUMN_UTF8 = 2,
    COLUMN_TRIM_BLANKS = 4,
    COLUMN_UNSIGNED = 8,
    COLUMN_CODES = 16,      // cells are uint32_t: places in the dictionary from first_code on, null_code for NULL
    COLUMN_DICTIONARY = 32, // faults are noted and not reported
    COLUMN_INFINITIES = 64, // the least and the greatest stored number but for the least of all are PostgreSQL's infinities
};

// Rows 32 * n to 32 * n + 31 of a page.
typedef struct ValidityWord {
    uint32_t mask;   // bit r: row r is not NULL
    uint32_t before; // rows of the page before these that are not NULL
} ValidityWord;

// A string within a page, or within the strings built for it.
typedef struct StringPlace {
    uint32_t offset; // from EncodedPage.strings if that is set, from EncodedPage.values otherwise
    uint32_t length;
} StringPlace;

// Where to begin to decode the values from a multiple of DELTA_SEGMENT_VALUES on.
typedef struct DeltaSegment {
    uint64_t value; // the first
    uint32_t block; // offset of the header of the block that has the difference to the next; from EncodedPage.values
    uint32_t place; // of the first's string, for DELTA_LENGTHS; from the first of all
} DeltaSegment;

// What index_deltas finds out about a page. DeltaSegment [ceil(value_count / DELTA_SEGMENT_VALUES)] follow.
typedef struct DeltaIndex {
    uint32_t value_count;
    uint32_t miniblocks; // of a block
    uint32_t miniblock_values;
    uint32_t end;      // offset of what comes after the differences; from EncodedPage.values
    uint32_t is_sound; // 0: the differences can't be read
    uint32_t wide;     // 1 if a byte of the strings is beyond ASCII, for DELTA_LENGTHS
    uint32_t reserved[2];
} DeltaIndex;

// Where to begin to walk over the runs from a multiple of RUN_SEGMENT_VALUES on. RunSegment
// [ceil(row_count / RUN_SEGMENT_VALUES)] are a page's index.
typedef struct RunSegment {
    uint32_t header; // offset of the header of the next run; from where the runs start
    uint32_t data;   // what this run repeats, or the offset of the group of 8 packed values that is next
    uint32_t left;   // values of this run
    uint32_t form;   // 1 if this run is packed; plus twice the values of the group that are behind
} RunSegment;

// A page, decompressed.
typedef struct EncodedPage {
    uint64_t levels;   // LEVELS_PREFIXED, LEVELS_PACKED: the same as `values`
    uint64_t values;   // at PageState.values_offset from here
    uint64_t words;    // ValidityWord [ceil(row_count / 32)]; 0 if required
    uint64_t scratch;  // uint64_t [row_count], where the source needs it
    uint64_t prefixes; // uint64_t [row_count], for DELTA_STRINGS
    uint64_t strings;  // PageState.string_bytes + PAGE_PADDING_BYTES bytes, for DELTA_STRINGS
    uint64_t index;    // DeltaIndex, for every other DeltaForm; RunSegment, for runs
    uint32_t levels_bytes;
    uint32_t values_bytes;
    uint32_t row_count;
    uint32_t column;
    uint32_t source;      // ValueSource
    uint32_t levels_form; // LevelsForm
    uint32_t delta_form;  // DeltaForm
    uint32_t reserved;
} EncodedPage;

// What is found out about a page on the device.
typedef struct PageState {
    uint32_t values_offset; // bytes from EncodedPage.values to the first value
    uint32_t value_count;   // rows that are not NULL
    uint32_t dense;         // 1 if no row is NULL; `words` have no meaning then
    uint32_t located;       // values in `scratch`
    uint32_t wide;          // 1 if a byte of the strings may be beyond ASCII
    uint32_t faulty;        // 1 if an entry of the dictionary has a fault
    uint64_t string_bytes;
    uint32_t built_values; // strings of the page that are whole, of which scratch has the places in `strings`
    uint32_t built_bytes;  // of the string after them
    uint32_t ended_sections; // whose strings have been looked for
    uint32_t reserved;
} PageState;

// A column, or a dictionary, that pages are decoded into.
typedef struct PageColumn {
    uint64_t values;     // cells
    uint64_t validity;   // uint8_t, or 0 if required
    uint64_t dictionary; // cells; 0 if there is none
    uint64_t faults;     // a dictionary's own: uint8_t [entries], an ErrorCode or 0. A data column's: its dictionary's
    uint64_t null_count; // uint32_t; a dictionary, which has no NULL, has 0
    uint64_t least[4];   // of the file's value; little end first, as the next two
    uint64_t greatest[4];
    uint64_t factor[4];
    uint32_t conversion; // Conversion
    uint32_t cell_bytes;
    uint32_t source_bytes; // of a value of fixed width
    uint32_t dictionary_count;
    uint32_t dictionary_page; // its number
    uint32_t length_max;      // characters of a text
    uint32_t flags;
    uint32_t shift;        // 64 - bits of an integer
    uint32_t first_code;   // of the dictionary's first entry
    uint32_t null_code;
} PageColumn;

// A section of a page, of which one block finds what follows one another.
typedef struct PageSection {
    uint32_t page;
    uint32_t number; // of the page's sections
    uint32_t count;  // of the page's sections
    uint32_t first;  // the page's first section among all ChainSections; no meaning if the page has one section only
} PageSection;

// What a block has found in a section. Places are bytes from the page's first aligned word.
typedef struct ChainSection {
    uint32_t start;         // of the first element; all ones if none starts here
    uint32_t end;           // of the last element; 0 if there is none, all ones if another should follow and does not
    uint32_t weight;        // of all elements
    uint32_t weight_before; // of all sections before; all ones if the section's pieces have no meaning
} ChainSection;

// What a thread has found in a piece of a section.
typedef struct ChainPiece {
    uint32_t start;         // of the first element; all ones if none starts here
    uint32_t weight_before; // of the pieces before it in the section
} ChainPiece;

// locate_strings, write_places
typedef struct LocateStrings {
    uint64_t pages;    // EncodedPage
    uint64_t states;   // PageState, one a page
    uint64_t list;     // PageSection [grid]; those of pages of several sections come first
    uint64_t sections; // ChainSection, of all pages of several sections
    uint64_t pieces;   // ChainPiece [CHAIN_SECTION_PIECES] for each of them
    uint64_t status;
} LocateStrings;

// index_deltas, index_runs; decode_levels, decode_prefixes, build_strings; decode_indexes, decode_deltas, decode_large_deltas,
// convert_values, convert_large_values
typedef struct DecodePages {
    uint64_t pages;   // EncodedPage
    uint64_t columns; // PageColumn
    uint64_t states;  // PageState, one a page
    uint64_t list;    // uint32_t [grid]: the pages to handle; of kernels that write cells PageSlice [grid]. index_deltas and
                      // index_runs have only `pages`, and handle all
    uint64_t status;
} DecodePages;

// Rows of a page, and where their cells go.
typedef struct PageSlice {
    uint32_t page;
    uint32_t first_row; // of the page
    uint32_t row_count;
    uint32_t target_row; // of the column, for the first of them
} PageSlice;

// A page, or a part of one, to decompress.
typedef struct CompressedPage {
    uint64_t source;
    uint64_t target;
    uint32_t source_bytes;
    uint32_t target_bytes; // exactly
    uint32_t page;         // its number
    uint32_t reserved;
} CompressedPage;

// A page of Snappy, and what is found out about it on the device.
typedef struct SnappyPage {
    CompressedPage page;
    uint32_t first_section;  // of the page's among all ChainSections
    uint32_t section_count;  // 0: it is not to be indexed
    uint32_t ended_sections; // whose elements have been looked for
    uint32_t is_indexed;     // 1 if sections and pieces say where elements start
    uint32_t ended_parts;    // that blocks have decompressed
    uint32_t has_faults;     // 1 if a part can't be decompressed by itself
} SnappyPage;

// A section of a page's input, or a part of its output.
typedef struct PagePart {
    uint32_t page; // its place among the launch's
    uint32_t number;
} PagePart;

// index_snappy, decompress_snappy
typedef struct DecompressSnappy {
    uint64_t pages;    // SnappyPage
    uint64_t list;     // PagePart [grid]
    uint64_t sections; // ChainSection, of all pages that are to be indexed
    uint64_t pieces;   // ChainPiece [CHAIN_SECTION_PIECES] for each of them
    uint64_t status;
} DecompressSnappy;

// decompress_lz4
typedef struct DecompressPages {
    uint64_t pages; // CompressedPage [grid]
    uint64_t status;
} DecompressPages;

// decompress_hadoop_lz4
typedef struct DecompressFrames {
    uint64_t pages;   // CompressedPage [grid]
    uint64_t refused; // uint32_t [grid]: 1 where the host has to decompress the page
} DecompressFrames;

// What a library decompresses.
enum FrameFormat { FRAME_ZSTD = 0, FRAME_GZIP = 1 };

// What a page's bytes must be for a library to see it: CRC-32 of its compressed bytes and of those before them.
typedef struct PageChecksum {
    uint32_t checksum;
    uint32_t is_known;   // 0: the writer has left none
    uint32_t lead_bytes; // levels of a page V2, before the compressed bytes
    uint32_t reserved;
} PageChecksum;

// prepare_frames, check_frames: pages of one format, and the arrays that a library takes
typedef struct FramedPages {
    uint64_t pages;          // CompressedPage [page_count]
    uint64_t refused;        // uint32_t [page_count]: 1 where the host has to decompress the page
    uint64_t sources;        // uint64_t [page_count]: where the frames are
    uint64_t source_bytes;   // uint64_t [page_count]
    uint64_t targets;        // uint64_t [page_count]
    uint64_t target_bytes;   // uint64_t [page_count]
    uint64_t produced_bytes; // uint64_t [page_count]: what the library says that it has written
    uint64_t statuses;       // int32_t [page_count]: 0 where the library found no fault
    uint64_t stand_in;       // a frame of one byte, which the library gets in place of a page that it is not to see
    uint64_t checksums;      // PageChecksum [page_count]
    uint32_t stand_in_bytes;
    uint32_t format; // FrameFormat
    uint32_t page_count;
    uint32_t takes_unchecked; // 1: pages without a checksum too
} FramedPages;
