// Arguments of the kernels in segment/: columns that stay on the device, packed by blocks of rows.
//
// A segment has the rows of one column of a row group. Each of its blocks has a base, and a distance from it a row in as few bits as the
// greatest one takes, lowest bit first. A block's words are lines of 128 bytes, as many as its rows need. So the bounds of a block's values come
// with it.
#pragma once

#include "aggregate.h"
#include "filter.h"

// Rows of a block, and words of a bit for each of them.
#define SEGMENT_BLOCK_ROWS 1024
#define SEGMENT_BLOCK_WORDS 32

// How a segment has its rows.
enum SegmentForm {
    SEGMENT_DISTANCES = 0, // integers, booleans, and codes: distances from the bases
    SEGMENT_CELLS = 1,     // cells of any other type
    SEGMENT_TEXT = 2,      // text: distances to the bytes before a row's own; the last block has another behind it, with all bytes
};

// A block of rows.
typedef struct SegmentBlock {
    int64_t base;
    uint32_t first_line; // where its words begin, in lines of SEGMENT_BLOCK_WORDS words
    uint32_t width;       // bits of a distance, 0 to 64
} SegmentBlock;

// A segment as kernels see it.
typedef struct SegmentView {
    uint64_t blocks;   // SegmentBlock of every SEGMENT_BLOCK_ROWS rows
    uint64_t words;    // of SEGMENT_DISTANCES and SEGMENT_TEXT; cells of SEGMENT_CELLS
    uint64_t validity; // a bit a row, 0 for NULL, SEGMENT_BLOCK_WORDS words a block; or 0 if no row is NULL
    uint64_t texts;    // of SEGMENT_TEXT the bytes; of codes the entries of their dictionary, StringCell; otherwise 0
    uint32_t form;     // SegmentForm
    uint32_t reserved;
} SegmentView;

// Rows of a row group that follow one another, and where they go.
typedef struct SegmentRange {
    uint64_t views;       // SegmentView of each column
    uint64_t first_block; // the number of the block with its first row, among the blocks of all ranges
    uint64_t target_row;  // its first row among those of all ranges
    uint32_t first_row;   // of the segments
    uint32_t row_count;
} SegmentRange;

// The rows of a launch. A warp has a block of them.
typedef struct SegmentRows {
    uint64_t ranges; // SegmentRange, in the order of their blocks
    uint64_t block_count;
    uint32_t range_count;
    uint32_t reserved;
} SegmentRows;

// A set of rows of a launch.
typedef struct SegmentSelection {
    uint64_t bits;    // uint32_t [block_count * SEGMENT_BLOCK_WORDS]: a bit a row; or 0: all rows
    uint64_t offsets; // uint64_t [block_count]: how many of them are in the blocks before
} SegmentSelection;

enum SegmentTestKind {
    TEST_RANGE = 0,        // least to greatest
    TEST_ORDER = 1,        // the column's value has one of the orderings to the other column's
    TEST_BITMAP = 2,       // a bit of `words` for each integer from least on
    TEST_BLOOM = 3,        // a Bloom filter of integers, see KeyFilterView
    TEST_FLAGS = 4,        // uint8_t a row, by its place among the rows of all ranges
    TEST_RANKED_FLAGS = 5, // uint8_t for each row of `before`, in their order
    TEST_SEARCH = 6,       // text that `words`, a SegmentSearch, finds
};

// Parts and bytes of a search at most.
#define SEARCH_PARTS_MAX 8
#define SEARCH_BYTES_MAX 128

// Parts of text that follow one another in a text, with anything between them.
typedef struct SegmentSearch {
    uint32_t part_count;
    uint32_t begins;  // 1: the text begins with the first part
    uint32_t ends;    // 1: it ends with the last one; one part that does both is the text
    uint32_t negated; // 1: texts without them pass
    uint32_t part_bytes[SEARCH_PARTS_MAX];
    uint32_t heads[SEARCH_PARTS_MAX]; // the first four bytes of each part, the first one lowest, and zeros behind a shorter one
    uint8_t bytes[SEARCH_BYTES_MAX]; // of the parts, one after another
} SegmentSearch;

// A test of rows. It reads distances, or text; a NULL does not pass.
typedef struct SegmentTest {
    uint32_t kind;      // SegmentTestKind
    uint32_t column;    // its number among the views
    uint32_t other;
    uint32_t orderings; // OrderingBit
    int64_t least;
    int64_t greatest;
    uint64_t words;
    uint64_t slot_count; // bits, or blocks of a Bloom filter
    uint64_t counts;     // FilterCounts that are added to, or 0
} SegmentTest;

#define SEGMENT_TESTS_MAX 24

// test_segments
typedef struct TestSegments {
    SegmentRows rows;
    SegmentSelection before; // the rows that are tested
    uint64_t bits;           // uint32_t [block_count * SEGMENT_BLOCK_WORDS]: the rows that pass all tests
    uint64_t counts;         // uint32_t [block_count]: how many
    uint32_t test_count;
    uint32_t reserved;
    SegmentTest tests[SEGMENT_TESTS_MAX];
} TestSegments;

// How a column is read.
enum SegmentReadKind {
    READ_CELLS = 0, // cells of its type
    READ_CODES = 1, // uint32_t codes, with one for NULL
    READ_PLACES = 2, // uint32_t: each row's place among those of all ranges; no column
};

// A column of a read.
typedef struct SegmentRead {
    uint64_t values;
    uint64_t validity; // uint8_t a row, or 0 if no row is NULL
    uint32_t column;   // its number among the views
    uint32_t kind;     // SegmentReadKind
    uint32_t cell_bytes;
    uint32_t null_code;
} SegmentRead;

#define SEGMENT_READS_MAX 12

// read_segments
typedef struct ReadSegments {
    SegmentRows rows;
    SegmentSelection selection; // without bits, a row goes to its place among those of all ranges; otherwise they go after one another
    uint32_t read_count;
    uint32_t reserved;
    SegmentRead reads[SEGMENT_READS_MAX];
} ReadSegments;

// Columns of a fold, factors of an addend, and sums of a warp at most.
#define FOLD_COLUMNS_MAX 8
#define FOLD_FACTORS_MAX 3
#define FOLD_SUMS_MAX 40

// A key of the slots that rows are folded into, see SlotKey.
typedef struct FoldKey {
    int64_t least;
    uint64_t place_count;
    uint64_t stride;
    uint32_t column; // its number among the fold's
    uint32_t reserved;
} FoldKey;

// constant + coefficient * column
typedef struct FoldFactor {
    int64_t constant;
    int64_t coefficient;
    uint32_t column;
    uint32_t reserved;
} FoldFactor;

// An addend: the product of its factors, which 64 bits hold, and so does the sum of those of a warp. NULL if a column is.
typedef struct FoldInput {
    uint32_t factor_count;
    uint32_t null_word; // as of SlotInput
    uint32_t sum_word;
    uint32_t null_sum;  // which of a slot's sums count NULLs, or 0 if there are none
    uint32_t sum;       // which are the addends', or 0
    uint32_t shared;    // how many factors are all of the input before, whose product this one continues
    FoldFactor factors[FOLD_FACTORS_MAX];
} FoldInput;

// fold_segments
typedef struct FoldSegments {
    SegmentRows rows;
    SegmentSelection selection;
    uint64_t slots;        // as of AccumulateSlots
    uint64_t slot_count;
    uint32_t slot_words;
    uint32_t key_count;
    uint32_t input_count;
    uint32_t column_count;
    uint32_t sum_count;    // sums of a slot, at most FOLD_SUMS_MAX of all slots; the first counts rows
    uint32_t reserved;
    uint32_t columns[FOLD_COLUMNS_MAX]; // their numbers among the views
    FoldKey keys[SLOT_KEYS_MAX];
    FoldInput inputs[SLOT_INPUTS_MAX];
} FoldSegments;

// Rows of a column that become a segment.
typedef struct SegmentSource {
    uint64_t cells;
    uint64_t validity;    // uint8_t a row, or 0
    uint64_t row_count;
    uint64_t first_block; // the number of its first block among those of all sources
    int64_t origin;       // of text: what the offset of its first byte is; taken from every value
    uint64_t text_bytes;  // of text
    uint64_t blocks;      // pack_segments: SegmentBlock, one more for text
    uint64_t words;
    uint64_t bits;        // a bit a row for validity; or 0: no row is NULL
} SegmentSource;

// What measure_segments finds of a source.
typedef struct SegmentMeasure {
    int64_t least; // of values that are not NULL; more than the greatest if there are none
    int64_t greatest;
    uint64_t null_count;
    uint64_t beyond; // not 0 if a value has more than 64 bits
} SegmentMeasure;

// measure_segments, pack_segments
typedef struct EncodeSegments {
    uint64_t sources; // SegmentSource
    uint64_t block_count;
    uint64_t remap;   // uint32_t: what each code becomes, 0xffffffff for NULL; or 0
    uint64_t blocks;  // SegmentBlock [block_count], without first_line
    uint64_t lines;   // uint32_t [block_count]: of each block's words
    uint64_t offsets; // pack_segments: uint64_t [block_count]: the sum of the lines before
    uint64_t measures; // SegmentMeasure of each source
    uint32_t source_count;
    uint32_t cell_bytes; // of integers and booleans; of text, uint64_t offsets; 0: only validity is read
    uint32_t is_text;
    uint32_t reserved;
} EncodeSegments;
