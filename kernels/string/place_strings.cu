// Cells of texts that lie one after another, by their lengths: what came without addresses.
//
// Grid:    any number of blocks; threads stride over the rows.
// Traffic: 12 B read and 16 B of cell written a row.
#include "../abi/exchange.h"
#include "../common/launch.h"

KERNEL(place_strings, PlaceStrings, BLOCK_THREADS) {
    uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS;
    for (uint64_t row = (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < args.row_count; row += step) {
        uint64_t address = args.bytes + ((const uint64_t *)args.offsets)[row];
        ((StringCell *)args.cells)[row] = StringCell{address, ((const uint32_t *)args.lengths)[row], 0};
    }
}
