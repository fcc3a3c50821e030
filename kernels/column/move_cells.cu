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

// A NULL's cell is zeros: whoever copies whole columns copies it too.
template <class T>
DEVICE void gather_cell(const GatherCells &args, bool valid, uint64_t source_row, uint64_t row) {
    ((T *)args.values)[row] = valid ? ((const T *)args.source.values)[source_row] : T{};
}

KERNEL(gather_cells, GatherCells, BLOCK_THREADS) {
    const uint32_t *rows = (const uint32_t *)args.rows;
    uint8_t *validity = (uint8_t *)args.validity;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t source_row = args.first_row + row;
        bool valid = true;
        if (rows) {
            source_row = rows[row];
            valid = source_row != NO_ROW;
        }
        if (validity) {
            valid = valid && (args.source.validity == 0 || ((const uint8_t *)args.source.validity)[source_row]);
            validity[row] = valid;
        }
        switch (args.source.cell_bytes) {
            case 1: gather_cell<uint8_t>(args, valid, source_row, row); break;
            case 2: gather_cell<uint16_t>(args, valid, source_row, row); break;
            case 4: gather_cell<uint32_t>(args, valid, source_row, row); break;
            case 8: gather_cell<uint64_t>(args, valid, source_row, row); break;
            case 32: gather_cell<Cell32>(args, valid, source_row, row); break;
            default: gather_cell<Cell16>(args, valid, source_row, row);
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
