// Cells gathered by row number, and marks.
//
// Grid:    any number of blocks; threads stride over the rows.
// Traffic: a gather reads 4 B of row number and one cell a row and column, at 32 B a sector where rows are scattered.
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
