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

// A thread reads ROWS rows before it writes the first of them, so that it waits for memory once. A NULL's cell is zeros:
// whoever copies whole columns copies it too.
template <class T, uint32_t ROWS>
DEVICE void gather_rows(const GatherCells &args) {
    const uint32_t *rows = (const uint32_t *)args.rows;
    const uint8_t *source_validity = (const uint8_t *)args.source.validity;
    uint8_t *validity = (uint8_t *)args.validity;
    const uint64_t step = row_step();
    for (uint64_t first = first_row(); first < args.row_count; first += ROWS * step) {
        uint64_t source_rows[ROWS];
        bool valid[ROWS];
        T cells[ROWS];
        for (uint32_t item = 0; item < ROWS; item++) {
            const uint64_t row = first + item * step;
            valid[item] = row < args.row_count;
            source_rows[item] = args.first_row + row;
            if (rows && valid[item]) {
                source_rows[item] = rows[row];
                valid[item] = source_rows[item] != NO_ROW;
            }
        }
        if (validity && source_validity) {
            for (uint32_t item = 0; item < ROWS; item++) {
                if (valid[item]) valid[item] = source_validity[source_rows[item]] != 0;
            }
        }
        for (uint32_t item = 0; item < ROWS; item++) {
            cells[item] = valid[item] ? ((const T *)args.source.values)[source_rows[item]] : T{};
        }
        for (uint32_t item = 0; item < ROWS; item++) {
            const uint64_t row = first + item * step;
            if (row >= args.row_count) break;
            ((T *)args.values)[row] = cells[item];
            if (validity) validity[row] = valid[item];
        }
    }
}

KERNEL_RESIDENT(gather_cells, GatherCells, BLOCK_THREADS, 6) {
    switch (args.source.cell_bytes) {
        case 1: gather_rows<uint8_t, 4>(args); break;
        case 2: gather_rows<uint16_t, 4>(args); break;
        case 4: gather_rows<uint32_t, 4>(args); break;
        case 8: gather_rows<uint64_t, 4>(args); break;
        case 32: gather_rows<Cell32, 1>(args); break;
        default: gather_rows<Cell16, 2>(args);
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
