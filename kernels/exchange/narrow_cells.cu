// Integers as distances from a base, in as few bytes as the greatest distance has, and back: frames of reference.
//
// Grid:    any number of blocks, but for widen_cells; threads stride over the rows.
// Traffic: measure_bounds reads every cell; narrow_cells reads it and writes its distance; widen_cells reads the distance and writes the cell.
// Source:  frames of reference, Goldstein, Ramakrishnan, Shaft, "Compressing Relations and Indexes", ICDE 1998, section 3. We differ: distances have
//          whole bytes, so that whoever moves cells moves distances too.
#include "../abi/exchange.h"
#include "../abi/launch.h"
#include "../common/int256.cuh"
#include "../common/whole_cell.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

// The lowest 64 bits of an integer, whose sign is in all that a shorter one has not.
template <class T>
DEVICE int64_t low_word(T cell) { return (int64_t)cell; }
DEVICE int64_t low_word(const Cell16 &cell) { return (int64_t)cell.low; }
DEVICE int64_t low_word(const Cell32 &cell) { return (int64_t)cell.low.low; }

// Whether an integer has more than 64 bits.
template <class T>
DEVICE bool is_beyond(T) { return false; }
DEVICE bool is_beyond(const Cell16 &cell) { return cell.high != (uint64_t)((int64_t)cell.low >> 63); }
DEVICE bool is_beyond(const Cell32 &cell) {
    const uint64_t sign = (uint64_t)((int64_t)cell.low.low >> 63);
    return cell.low.high != sign || cell.high.low != sign || cell.high.high != sign;
}

template <class T>
DEVICE void measure_cells(const MeasureBounds &args, const ColumnView &column, ValueBounds *bounds) {
    const uint8_t *validity = (const uint8_t *)column.validity;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        if (validity && !validity[row]) continue;
        const T cell = ((const T *)column.values)[row];
        const int64_t value = low_word(cell);
        bounds->least = value < bounds->least ? value : bounds->least;
        bounds->greatest = value > bounds->greatest ? value : bounds->greatest;
        bounds->beyond |= is_beyond(cell);
    }
}

DEVICE void merge_bounds(ValueBounds *bounds, int64_t least, int64_t greatest, uint64_t beyond) {
    bounds->least = least < bounds->least ? least : bounds->least;
    bounds->greatest = greatest > bounds->greatest ? greatest : bounds->greatest;
    bounds->beyond |= beyond;
}

KERNEL(measure_bounds, MeasureBounds, BLOCK_THREADS) {
    SHARED ValueBounds of_warps[WARPS];
    const int64_t most = 0x7fffffffffffffffll;
    for (uint32_t place = 0; place < args.column_count; place++) {
        const ColumnView &column = args.columns[place];
        ValueBounds bounds = {most, -most - 1, 0};
        switch (column.cell_bytes) {
            case 1: measure_cells<uint8_t>(args, column, &bounds); break;
            case 2: measure_cells<int16_t>(args, column, &bounds); break;
            case 4: measure_cells<int32_t>(args, column, &bounds); break;
            case 8: measure_cells<int64_t>(args, column, &bounds); break;
            case 32: measure_cells<Cell32>(args, column, &bounds); break;
            default: measure_cells<Cell16>(args, column, &bounds);
        }
        for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
            const int64_t least = __shfl_xor_sync(0xffffffffu, bounds.least, distance);
            const int64_t greatest = __shfl_xor_sync(0xffffffffu, bounds.greatest, distance);
            merge_bounds(&bounds, least, greatest, __shfl_xor_sync(0xffffffffu, bounds.beyond, distance));
        }
        if (threadIdx.x % WARP_THREADS == 0) of_warps[threadIdx.x / WARP_THREADS] = bounds;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (uint32_t warp = 1; warp < WARPS; warp++) {
                merge_bounds(&bounds, of_warps[warp].least, of_warps[warp].greatest, of_warps[warp].beyond);
            }
            ValueBounds *all = (ValueBounds *)args.bounds + place;
            atomicMin((long long *)&all->least, (long long)bounds.least);
            atomicMax((long long *)&all->greatest, (long long)bounds.greatest);
            if (bounds.beyond) atomicMax((unsigned long long *)&all->beyond, 1ull);
        }
        __syncthreads();
    }
}

// A NULL's distance is 0: whoever gets it has no other bytes of this rank's memory.
template <class T>
DEVICE void narrow_column(const NarrowCells &args, const NarrowedColumn &column) {
    const uint8_t *validity = (const uint8_t *)column.source.validity;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t distance = 0;
        if (!validity || validity[row]) {
            distance = (uint64_t)low_word(((const T *)column.source.values)[row]) - (uint64_t)column.base;
        }
        switch (column.width) {
            case 1: ((uint8_t *)column.values)[row] = (uint8_t)distance; break;
            case 2: ((uint16_t *)column.values)[row] = (uint16_t)distance; break;
            case 4: ((uint32_t *)column.values)[row] = (uint32_t)distance; break;
            default: ((uint64_t *)column.values)[row] = distance;
        }
    }
}

KERNEL(narrow_cells, NarrowCells, BLOCK_THREADS) {
    for (uint32_t place = 0; place < args.column_count; place++) {
        const NarrowedColumn &column = args.columns[place];
        switch (column.source.cell_bytes) {
            case 1: narrow_column<uint8_t>(args, column); break;
            case 2: narrow_column<int16_t>(args, column); break;
            case 4: narrow_column<int32_t>(args, column); break;
            case 8: narrow_column<int64_t>(args, column); break;
            case 32: narrow_column<Cell32>(args, column); break;
            default: narrow_column<Cell16>(args, column);
        }
    }
}

// A distance that leads beyond what a cell holds wraps.
template <class T>
DEVICE void widen(int64_t base, uint64_t distance, T *cell) { *cell = (T)((uint64_t)base + distance); }
DEVICE void widen(int64_t base, uint64_t distance, Cell16 *cell) {
    const int128 value = (int128)base + (int128)distance;
    *cell = Cell16{(uint64_t)value, (uint64_t)((uint128)value >> 64)};
}
DEVICE void widen(int64_t base, uint64_t distance, Cell32 *cell) {
    widen(base, distance, &cell->low);
    const uint64_t sign = (uint64_t)((int64_t)cell->low.high >> 63);
    cell->high = Cell16{sign, sign};
}

template <class T>
DEVICE void widen_rows(const WidenedRange &range, uint64_t first, uint64_t end) {
    for (uint64_t row = first + threadIdx.x; row < end; row += BLOCK_THREADS) {
        uint64_t distance = 0;
        switch (range.width) {
            case 0: break;
            case 1: distance = ((const uint8_t *)range.source)[row]; break;
            case 2: distance = ((const uint16_t *)range.source)[row]; break;
            case 4: distance = ((const uint32_t *)range.source)[row]; break;
            default: distance = ((const uint64_t *)range.source)[row];
        }
        T cell;
        widen(range.base, distance, &cell);
        ((T *)range.target)[row] = cell;
    }
}

// Cells of some ranges of distances; one tile of a range a block.
//
// Grid:    the tiles of all ranges.
KERNEL(widen_cells, WidenCells, BLOCK_THREADS) {
    uint32_t place = 0;
    while (place + 1 < args.range_count && args.ranges[place + 1].first_tile <= blockIdx.x) place++;
    const WidenedRange &range = args.ranges[place];
    const uint64_t first = (blockIdx.x - range.first_tile) * WIDEN_TILE_ROWS;
    const uint64_t left = range.row_count - first;
    const uint64_t end = first + (left < WIDEN_TILE_ROWS ? left : WIDEN_TILE_ROWS);
    switch (range.cell_bytes) {
        case 1: widen_rows<uint8_t>(range, first, end); break;
        case 2: widen_rows<uint16_t>(range, first, end); break;
        case 4: widen_rows<uint32_t>(range, first, end); break;
        case 8: widen_rows<uint64_t>(range, first, end); break;
        case 32: widen_rows<Cell32>(range, first, end); break;
        default: widen_rows<Cell16>(range, first, end);
    }
}
