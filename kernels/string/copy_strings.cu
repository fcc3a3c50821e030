// Strings laid one after another, to leave the device or to let go of the pages that they lie in.
//
// Grid:    any number of blocks; a warp copies a string.
// Traffic: 16 B of cell a row, and every byte of text twice.
#include "../abi/column_operations.h"
#include "../common/launch.h"

KERNEL(measure_strings, CopyStrings, BLOCK_THREADS) {
    const uint8_t *validity = (const uint8_t *)args.source.validity;
    uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS;
    for (uint64_t row = (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < args.row_count; row += step) {
        bool valid = !validity || validity[row];
        ((uint32_t *)args.lengths)[row] = valid ? ((const StringCell *)args.source.values)[row].length : 0;
    }
}

KERNEL(copy_strings, CopyStrings, BLOCK_THREADS) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    uint64_t warp = ((uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / WARP_THREADS;
    uint64_t warps = (uint64_t)gridDim.x * (BLOCK_THREADS / WARP_THREADS);
    for (uint64_t row = warp; row < args.row_count; row += warps) {
        uint32_t length = ((const uint32_t *)args.lengths)[row];
        uint64_t target = args.bytes + (((const uint64_t *)args.offsets)[row] - args.first_offset);
        if (length) {
            const uint8_t *source = (const uint8_t *)((const StringCell *)args.source.values)[row].address;
            for (uint32_t place = lane; place < length; place += WARP_THREADS) ((uint8_t *)target)[place] = source[place];
        }
        if (args.cells && lane == 0) ((StringCell *)args.cells)[row] = StringCell{target, length, 0};
    }
}
