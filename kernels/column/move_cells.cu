// Cells gathered by row number, ranges of bytes copied, and marks.
//
// Grid:    any number of blocks, but for copies; threads stride over the rows.
// Traffic: a gather reads 4 B of row number and one cell a row and column, at 32 B a sector where rows are scattered.
#include "../abi/column_operations.h"
#include "../abi/launch.h"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

struct alignas(16) Cell16 {
    uint64_t low, high;
};

struct Cell32 {
    Cell16 low, high;
};

// A NULL's cell is zeros: whoever copies whole columns copies it too.
template <class T>
DEVICE void gather_cell(const GatheredColumn &column, bool valid, uint64_t source_row, uint64_t row) {
    ((T *)column.values)[row] = valid ? ((const T *)column.source.values)[source_row] : T{};
}

KERNEL(gather_cells, GatherCells, BLOCK_THREADS) {
    const uint32_t *rows = (const uint32_t *)args.rows;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t source_row = args.first_row + row;
        bool is_there = true;
        if (rows) {
            source_row = rows[row];
            is_there = source_row != NO_ROW;
        }
        for (uint32_t place = 0; place < args.column_count; place++) {
            const GatheredColumn &column = args.columns[place];
            bool valid = is_there;
            if (column.validity) {
                const uint8_t *source_validity = (const uint8_t *)column.source.validity;
                valid = is_there && (!source_validity || source_validity[source_row]);
                ((uint8_t *)column.validity)[row] = valid;
            }
            switch (column.source.cell_bytes) {
                case 1: gather_cell<uint8_t>(column, valid, source_row, row); break;
                case 2: gather_cell<uint16_t>(column, valid, source_row, row); break;
                case 4: gather_cell<uint32_t>(column, valid, source_row, row); break;
                case 8: gather_cell<uint64_t>(column, valid, source_row, row); break;
                case 32: gather_cell<Cell32>(column, valid, source_row, row); break;
                default: gather_cell<Cell16>(column, valid, source_row, row);
            }
        }
    }
}

template <class T>
DEVICE void copy_words(uint64_t source, uint64_t target, uint64_t bytes) {
    for (uint64_t word = threadIdx.x; word < bytes / sizeof(T); word += BLOCK_THREADS) ((T *)target)[word] = ((const T *)source)[word];
}

// Bytes from some places to others that they do not overlap with; one tile of a range a block.
//
// Grid:    the tiles of all ranges.
// Traffic: every byte once read and once written, in words as large as addresses and lengths allow.
KERNEL(copy_ranges, CopyRanges, BLOCK_THREADS) {
    uint32_t place = 0;
    while (place + 1 < args.range_count && args.ranges[place + 1].first_tile <= blockIdx.x) place++;
    const CopiedRange &range = args.ranges[place];
    const uint64_t offset = (blockIdx.x - range.first_tile) * COPY_TILE_BYTES;
    const uint64_t left = range.bytes - offset, bytes = left < COPY_TILE_BYTES ? left : COPY_TILE_BYTES;
    const uint64_t source = range.source + offset, target = range.target + offset;
    const uint64_t bits = source | target | bytes;
    if (bits % 16 == 0) copy_words<Cell16>(source, target, bytes);
    else if (bits % 4 == 0) copy_words<uint32_t>(source, target, bytes);
    else copy_words<uint8_t>(source, target, bytes);
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
