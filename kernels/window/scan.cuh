// Scans of values of any kind over tiles of rows: the tiles are joined first, their results scanned in the same way, and then each tile is
// scanned with what comes before it.
//
// A kind of scan has
//   Value                           the values that a scan joins: plain data
//   Value none() const              joined to another value it changes nothing
//   Value at(uint64_t row) const    of a row
//   Value join(before, own) const   associative
//
// Source: reduce, then scan, Dotsenko et al., "Fast Scan Algorithms on Graphics Processors", ICS 2008, section 3. We differ: neighbouring
//         rows are a thread's, so that joins that are not commutative keep their order. write_offsets of column/ takes one pass, because
//         its sums fit a word beside the state of a tile; these do not.
#pragma once

#include "../abi/column_operations.h"
#include "../common/launch.h"

#define SCAN_THREAD_ROWS (TILE_ROWS / BLOCK_THREADS)

// The first row of a thread.
DEVICE uint64_t scanned_row() { return (uint64_t)blockIdx.x * TILE_ROWS + threadIdx.x * SCAN_THREAD_ROWS; }

// The thread's rows, joined.
template <class Scan>
DEVICE typename Scan::Value join_rows(const Scan &scan, uint64_t row_count) {
    typename Scan::Value value = scan.none();
    const uint64_t first = scanned_row();
    for (uint32_t item = 0; item < SCAN_THREAD_ROWS && first + item < row_count; item++) {
        value = scan.join(value, scan.at(first + item));
    }
    return value;
}

// The values of the threads before this one, joined, and of all threads in *total. Every thread calls it, once a kernel.
template <class Scan>
DEVICE typename Scan::Value join_threads(const Scan &scan, typename Scan::Value value, typename Scan::Value *total) {
    SHARED typename Scan::Value values[BLOCK_THREADS];
    values[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t distance = 1; distance < BLOCK_THREADS; distance *= 2) {
        if (threadIdx.x >= distance) value = scan.join(values[threadIdx.x - distance], value);
        __syncthreads();
        values[threadIdx.x] = value;
        __syncthreads();
    }
    *total = values[BLOCK_THREADS - 1];
    return threadIdx.x ? values[threadIdx.x - 1] : scan.none();
}
