// Cells that point to text which has moved as a whole.
//
// Grid:    any number of blocks; threads stride over the rows.
// Traffic: 16 B of cell a row, read and written.
#include "../abi/exchange.h"
#include "../common/launch.h"

KERNEL(move_strings, MoveStrings, BLOCK_THREADS) {
    uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS;
    for (uint64_t row = (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < args.row_count; row += step) {
        ((StringCell *)args.cells)[row].address += args.distance;
    }
}
