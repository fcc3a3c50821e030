// Cells gathered by row number, ranges of bytes copied, and marks.
//
// Grid:    any number of blocks, but for copies; threads stride over the rows.
// Traffic: a gather reads 4 B of row number and one cell a row and column, at 32 B a sector where rows are scattered.
#include "../abi/column_operations.h"
#include "../common/launch.h"
#include "../common/whole_cell.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

// Rows of a thread at once: their cells are on their way together.
#define GATHERED_ROWS 4

// Rows of a thread, each row_step() after the one before.
struct GatheredRows {
    uint64_t first;
    uint64_t sources[GATHERED_ROWS];
    bool is_there[GATHERED_ROWS]; // false for NO_ROW, and past the last row
};

// A NULL's cell is zero, because copies of whole columns include it.
template <class T>
DEVICE void gather_rows(const GatherCells &args, const GatheredColumn &column, const GatheredRows &rows) {
    const uint8_t *validity = column.validity ? (const uint8_t *)column.source.validity : nullptr;
    T cells[GATHERED_ROWS];
    bool is_valid[GATHERED_ROWS];
#pragma unroll
    for (uint32_t item = 0; item < GATHERED_ROWS; item++) {
        is_valid[item] = rows.is_there[item] && (!validity || validity[rows.sources[item]]);
        cells[item] = rows.is_there[item] ? ((const T *)column.source.values)[rows.sources[item]] : T{};
    }
#pragma unroll
    for (uint32_t item = 0; item < GATHERED_ROWS; item++) {
        const uint64_t row = rows.first + item * row_step();
        if (row >= args.row_count) break;
        ((T *)column.values)[row] = is_valid[item] ? cells[item] : T{};
        if (column.validity) ((uint8_t *)column.validity)[row] = is_valid[item];
    }
}

KERNEL(gather_cells, GatherCells, BLOCK_THREADS) {
    const uint32_t *numbers = (const uint32_t *)args.rows;
    GatheredRows rows;
    for (rows.first = first_row(); rows.first < args.row_count; rows.first += GATHERED_ROWS * row_step()) {
#pragma unroll
        for (uint32_t item = 0; item < GATHERED_ROWS; item++) {
            const uint64_t row = rows.first + item * row_step();
            rows.is_there[item] = row < args.row_count;
            rows.sources[item] = args.first_row + row;
            if (numbers && rows.is_there[item]) {
                rows.sources[item] = numbers[row];
                rows.is_there[item] = rows.sources[item] != NO_ROW;
            }
        }
        for (uint32_t place = 0; place < args.column_count; place++) {
            const GatheredColumn &column = args.columns[place];
            switch (column.source.cell_bytes) {
                case 1: gather_rows<uint8_t>(args, column, rows); break;
                case 2: gather_rows<uint16_t>(args, column, rows); break;
                case 4: gather_rows<uint32_t>(args, column, rows); break;
                case 8: gather_rows<uint64_t>(args, column, rows); break;
                case 32: gather_rows<Cell32>(args, column, rows); break;
                default: gather_rows<Cell16>(args, column, rows);
            }
        }
    }
}

// Bytes of a word.
#define WORD_BYTES 4

template <class T>
DEVICE void copy_words(uint64_t source, uint64_t target, uint64_t bytes) {
    for (uint64_t word = threadIdx.x; word < bytes / sizeof(T); word += BLOCK_THREADS) ((T *)target)[word] = ((const T *)source)[word];
}

// Bytes whose source and target have different places in their words: whole words are written, each from two that are read and lie in the
// range as a whole; the few bytes before and after, one by one.
DEVICE void copy_shifted(uint64_t source, uint64_t target, uint64_t bytes) {
    uint64_t before = (WORD_BYTES - target % WORD_BYTES) % WORD_BYTES;
    const uint64_t shift = (source + before) % WORD_BYTES;
    if (before < shift) before += WORD_BYTES;
    // What the second word of two has beyond the bytes that are wanted of it.
    const uint64_t beyond = shift ? WORD_BYTES - shift : 0;
    const uint64_t words = bytes > before + beyond ? (bytes - before - beyond) / WORD_BYTES : 0;
    if (words == 0) before = 0;
    const uint64_t after = before + words * WORD_BYTES;
    const uint32_t *sources = (const uint32_t *)(source + before - shift);
    uint32_t *targets = (uint32_t *)(target + before);
    for (uint64_t word = threadIdx.x; word < words; word += BLOCK_THREADS) {
        const uint64_t low = sources[word], high = shift ? sources[word + 1] : 0;
        targets[word] = (uint32_t)((low | high << 32) >> (8 * shift));
    }
    const uint64_t place = threadIdx.x < before ? threadIdx.x : after + (threadIdx.x - before);
    if (place < bytes) ((uint8_t *)target)[place] = ((const uint8_t *)source)[place];
}

// Bytes from some places to others that they do not overlap with; one tile of a range a block.
//
// Grid:    the tiles of all ranges.
// Traffic: every byte once read and once written, in words as large as addresses and lengths allow, of 4 bytes at least.
KERNEL(copy_ranges, CopyRanges, BLOCK_THREADS) {
    uint32_t place = 0;
    while (place + 1 < args.range_count && args.ranges[place + 1].first_tile <= blockIdx.x) place++;
    const CopiedRange &range = args.ranges[place];
    const uint64_t offset = (blockIdx.x - range.first_tile) * COPY_TILE_BYTES;
    const uint64_t left = range.bytes - offset, bytes = left < COPY_TILE_BYTES ? left : COPY_TILE_BYTES;
    const uint64_t source = range.source + offset, target = range.target + offset;
    const uint64_t bits = source | target | bytes;
    if (bits % 16 == 0) copy_words<Cell16>(source, target, bytes);
    else if (bits % 8 == 0) copy_words<uint64_t>(source, target, bytes);
    else if (bits % WORD_BYTES == 0) copy_words<uint32_t>(source, target, bytes);
    else copy_shifted(source, target, bytes);
}

KERNEL(mark_rows, MarkRows, BLOCK_THREADS) {
    const uint32_t *rows = (const uint32_t *)args.rows;
    const uint8_t *flags = (const uint8_t *)args.flags;
    for (uint64_t place = first_row(); place < args.count; place += row_step()) {
        if (rows[place] != NO_ROW && (!flags || flags[place])) ((uint8_t *)args.marks)[rows[place]] = 1;
    }
}

KERNEL(combine_flags, CombineFlags, BLOCK_THREADS) {
    const uint8_t *values = (const uint8_t *)args.values;
    const uint8_t *validity = (const uint8_t *)args.validity;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        bool is_true = values[row] != 0 && (!validity || validity[row] != 0);
        ((uint8_t *)args.flags)[row] = is_true != (args.invert != 0);
    }
}
