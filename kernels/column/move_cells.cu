// Cells gathered by row number, and marks.
//
// Grid:    any number of blocks; threads stride over the rows.
// Traffic: a gather reads 4 B of row number and one cell a row, at 32 B a sector where rows are scattered.
#include "../abi/column_operations.h"
#include "../abi/launch.h"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

struct Cell16 {
    uint64_t low, high;
};

struct Cell32 {
    Cell16 low, high;
};

template <class T>
DEVICE void copy_cell(uint64_t source, uint64_t source_row, uint64_t target, uint64_t target_row) {
    ((T *)target)[target_row] = ((const T *)source)[source_row];
}

KERNEL(gather_cells, GatherCells, BLOCK_THREADS) {
    const uint32_t *rows = (const uint32_t *)args.rows;
    uint8_t *validity = (uint8_t *)args.validity;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t source_row = args.first_row + row;
        if (rows) {
            uint32_t number = rows[row];
            if (number == NO_ROW) {
                validity[row] = 0;
                continue;
            }
            source_row = number;
        }
        if (validity) {
            bool valid = args.source.validity == 0 || ((const uint8_t *)args.source.validity)[source_row];
            validity[row] = valid;
            if (!valid) continue;
        }
        switch (args.source.cell_bytes) {
            case 1: copy_cell<uint8_t>(args.source.values, source_row, args.values, row); break;
            case 2: copy_cell<uint16_t>(args.source.values, source_row, args.values, row); break;
            case 4: copy_cell<uint32_t>(args.source.values, source_row, args.values, row); break;
            case 8: copy_cell<uint64_t>(args.source.values, source_row, args.values, row); break;
            case 32: copy_cell<Cell32>(args.source.values, source_row, args.values, row); break;
            default: copy_cell<Cell16>(args.source.values, source_row, args.values, row);
        }
    }
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
