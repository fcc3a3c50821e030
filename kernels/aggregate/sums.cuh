// Sums of 128 bits that many threads add to.
#pragma once

#include "../common/cell.cuh"

DEVICE int128 integer_at(const ColumnView &column, uint64_t row) {
    switch (column.type) {
        case CELL_BOOL: return cell_at<uint8_t>(column, row);
        case CELL_INT16: return cell_at<int16_t>(column, row);
        case CELL_INT32: return cell_at<int32_t>(column, row);
        case CELL_INT64: return cell_at<int64_t>(column, row);
        default: return cell_at<int128>(column, row);
    }
}

// Adds to a 128-bit sum that other threads add to. The order of additions does not change the sum, and a sum that
// overflows wraps; callers prove from the number of rows that it can't, or check the high word.
DEVICE void add_wide(unsigned long long *words, uint64_t low, uint64_t high) {
    unsigned long long before = atomicAdd(&words[0], (unsigned long long)low);
    high += before + low < before;
    if (high) atomicAdd(&words[1], (unsigned long long)high);
}

// The same, of a group among others.
DEVICE void add_sum(uint64_t sums, uint32_t group, uint64_t low, uint64_t high) {
    add_wide((unsigned long long *)sums + 2 * (uint64_t)group, low, high);
}
