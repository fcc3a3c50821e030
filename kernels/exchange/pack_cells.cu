// Integers as distances from a base, in as many bits as the greatest distance has, and back: frames of reference, packed.
//
// Grid:    the tiles of all ranges of a launch, one a block. A range is some rows of a column that follow one another.
// Traffic: measure_ranges reads every cell; pack_cells reads it and writes its bits; unpack_cells reads the bits and writes the cell.
// Source:  frames of reference, Goldstein, Ramakrishnan, Shaft, "Compressing Relations and Indexes", ICDE 1998, section 3. Distances lie one
//          after another, lowest bit first, as in Parquet's bit-packed runs; ranges have any count of them.
#include "../abi/exchange.h"
#include "../abi/launch.h"
#include "../common/bits.cuh"
#include "../common/whole_cell.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)
// Rows of a thread: every 32nd of its warp's share.
#define THREAD_ROWS (PACK_TILE_ROWS / BLOCK_THREADS)
#define WARP_ROWS (WARP_THREADS * THREAD_ROWS)

DEVICE uint64_t first_tile_of(const CellRange &range) { return range.first_tile; }
DEVICE uint64_t first_tile_of(const PackedRange &range) { return range.source.first_tile; }
DEVICE uint64_t first_tile_of(const UnpackedRange &range) { return range.first_tile; }

// The place of the range that a tile of a launch is of.
template <class Range>
DEVICE uint32_t find_range(const Range *ranges, uint32_t count, uint32_t tile) {
    uint32_t place = 0;
    while (place + 1 < count && first_tile_of(ranges[place + 1]) <= tile) place++;
    return place;
}

// The first of this thread's rows in a tile of a range.
DEVICE uint64_t first_row(uint64_t tile) {
    return tile * PACK_TILE_ROWS + threadIdx.x / WARP_THREADS * WARP_ROWS + threadIdx.x % WARP_THREADS;
}

// The lowest 64 bits of an integer, whose sign is in all that a shorter one has not; *beyond is set if it has more than 64 bits.
DEVICE int64_t load_value(const CellRange &range, uint64_t row, uint64_t *beyond) {
    switch (range.cell_bytes) {
        case 1: return ((const uint8_t *)range.cells)[row];
        case 2: return ((const int16_t *)range.cells)[row];
        case 4: return ((const int32_t *)range.cells)[row];
        case 8: return ((const int64_t *)range.cells)[row];
        default: break;
    }
    const uint32_t halves = range.cell_bytes / sizeof(Cell16);
    const Cell16 *cell = (const Cell16 *)range.cells + row * halves;
    const uint64_t sign = (uint64_t)((int64_t)cell->low >> 63);
    *beyond |= cell->high != sign;
    if (halves > 1) *beyond |= cell[1].low != sign || cell[1].high != sign;
    return (int64_t)cell->low;
}

DEVICE bool is_valid(const CellRange &range, uint64_t row) {
    return row < range.row_count && (range.validity == 0 || ((const uint8_t *)range.validity)[row] != 0);
}

DEVICE void merge_bounds(RangeBounds *bounds, const RangeBounds &other) {
    bounds->least = other.least < bounds->least ? other.least : bounds->least;
    bounds->greatest = other.greatest > bounds->greatest ? other.greatest : bounds->greatest;
    bounds->beyond |= other.beyond;
}

DEVICE void merge_lanes(RangeBounds *bounds) {
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        const int64_t least = __shfl_xor_sync(0xffffffffu, bounds->least, distance);
        const int64_t greatest = __shfl_xor_sync(0xffffffffu, bounds->greatest, distance);
        const uint64_t beyond = __shfl_xor_sync(0xffffffffu, bounds->beyond, distance);
        merge_bounds(bounds, RangeBounds{least, greatest, beyond});
    }
}

KERNEL(measure_ranges, MeasureRanges, BLOCK_THREADS) {
    SHARED RangeBounds of_warps[WARPS];
    const uint32_t place = find_range(args.ranges, args.range_count, blockIdx.x);
    const CellRange &range = args.ranges[place];
    const uint64_t first = first_row(blockIdx.x - range.first_tile);
    const int64_t most = 0x7fffffffffffffffll;
    RangeBounds bounds = {most, -most - 1, 0};
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        if (!is_valid(range, row)) continue;
        uint64_t beyond = 0;
        const int64_t value = load_value(range, row, &beyond);
        merge_bounds(&bounds, RangeBounds{value, value, beyond});
    }
    merge_lanes(&bounds);
    if (threadIdx.x % WARP_THREADS == 0) of_warps[threadIdx.x / WARP_THREADS] = bounds;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (uint32_t warp = 1; warp < WARPS; warp++) merge_bounds(&bounds, of_warps[warp]);
    RangeBounds *all = (RangeBounds *)args.bounds + place;
    atomicMin((long long *)&all->least, (long long)bounds.least);
    atomicMax((long long *)&all->greatest, (long long)bounds.greatest);
    if (bounds.beyond) atomicMax((unsigned long long *)&all->beyond, 1ull);
}

// Sets bits that are 0 so far. No more than the value has are set beyond its place.
DEVICE void store_bits(uint32_t *words, uint32_t bit, uint64_t value, uint32_t width) {
    const uint32_t word = bit / 32, shift = bit % 32;
    atomicOr(&words[word], (uint32_t)(value << shift));
    if (shift + width > 32) atomicOr(&words[word + 1], (uint32_t)(value >> (32 - shift)));
    if (shift + width > 64) atomicOr(&words[word + 2], (uint32_t)(value >> (64 - shift)));
}

// Words of the distances of a tile.
#define TILE_WORDS_MAX (PACK_TILE_ROWS / 32 * 64)

// Grid:    the tiles of ranges whose distances have a bit at least.
KERNEL(pack_cells, PackCells, BLOCK_THREADS) {
    SHARED uint32_t words[TILE_WORDS_MAX];
    const PackedRange &packed = args.ranges[find_range(args.ranges, args.range_count, blockIdx.x)];
    const CellRange range = packed.source;
    const uint64_t tile = blockIdx.x - range.first_tile;
    const uint64_t left = range.row_count - tile * PACK_TILE_ROWS;
    const uint32_t tile_rows = left < PACK_TILE_ROWS ? (uint32_t)left : PACK_TILE_ROWS;
    const uint32_t word_count = (tile_rows * packed.width + 31) / 32;
    for (uint32_t word = threadIdx.x; word < word_count; word += BLOCK_THREADS) words[word] = 0;
    __syncthreads();
    const uint64_t first = first_row(tile);
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        // A NULL's distance is 0: whoever gets it has no other bytes of this rank's memory.
        if (!is_valid(range, row)) continue;
        uint64_t beyond;
        const uint64_t distance = (uint64_t)load_value(range, row, &beyond) - (uint64_t)packed.base;
        store_bits(words, (uint32_t)(row - tile * PACK_TILE_ROWS) * packed.width, distance, packed.width);
    }
    __syncthreads();
    uint32_t *target = (uint32_t *)packed.bits + tile * (PACK_TILE_ROWS / 32) * packed.width;
    for (uint32_t word = threadIdx.x; word < word_count; word += BLOCK_THREADS) target[word] = words[word];
}

// A value that a cell cannot hold wraps.
DEVICE void store_value(uint64_t cells, uint32_t cell_bytes, uint64_t row, int64_t value) {
    switch (cell_bytes) {
        case 1: ((uint8_t *)cells)[row] = (uint8_t)value; return;
        case 2: ((int16_t *)cells)[row] = (int16_t)value; return;
        case 4: ((int32_t *)cells)[row] = (int32_t)value; return;
        case 8: ((int64_t *)cells)[row] = value; return;
        default: break;
    }
    const uint64_t sign = (uint64_t)(value >> 63);
    const uint32_t halves = cell_bytes / sizeof(Cell16);
    Cell16 *cell = (Cell16 *)cells + row * halves;
    *cell = Cell16{(uint64_t)value, sign};
    if (halves > 1) cell[1] = Cell16{sign, sign};
}

KERNEL(unpack_cells, UnpackCells, BLOCK_THREADS) {
    const UnpackedRange &range = args.ranges[find_range(args.ranges, args.range_count, blockIdx.x)];
    const uint64_t first = first_row(blockIdx.x - range.first_tile);
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        if (row >= range.row_count) continue;
        const uint64_t distance = load_wide_bits(range.bits, row * range.width, range.width);
        store_value(range.cells, range.cell_bytes, row, (int64_t)((uint64_t)range.base + distance));
    }
}
