// Integers as distances from a base, or from one another, in as many bits as the greatest distance has, each or once a run, and back: frames of
// reference, packed.
//
// Grid:    the tiles of all ranges of a launch, one a block. A range is some rows of a column that follow one another.
// Traffic: measure_ranges reads every cell; pack_cells reads it and writes its bits; unpack_cells reads the bits and writes the cell.
// Source:  frames of reference, Goldstein, Ramakrishnan, Shaft, "Compressing Relations and Indexes", ICDE 1998, section 3. Distances lie one
//          after another, lowest bit first, as in Parquet's bit-packed runs; ranges have any count of them. Deltas as in Lemire, Boytsov, "Decoding
//          billions of integers per second through vectorization", Software: Practice and Experience 45(1), 2015, section 3. We differ: each
//          miniblock begins with a value, so that a warp finds its values by a sum of its own.
#include "../abi/exchange.h"
#include "../common/launch.h"
#include "../common/bits.cuh"
#include "../common/block.cuh"
#include "../common/whole_cell.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)
// Rows of a thread: every 32nd of its warp's share.
#define THREAD_ROWS (PACK_TILE_ROWS / BLOCK_THREADS)
static_assert(MINIBLOCK_ROWS == WARP_THREADS * THREAD_ROWS, "a warp has a miniblock");

DEVICE uint64_t first_tile_of(const CellRange &range) { return range.first_tile; }
DEVICE uint64_t first_tile_of(const PackedRange &range) { return range.source.first_tile; }
DEVICE uint64_t first_tile_of(const RunRange &range) { return range.source.first_tile; }
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
    return tile * PACK_TILE_ROWS + threadIdx.x / WARP_THREADS * MINIBLOCK_ROWS + threadIdx.x % WARP_THREADS;
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

// This thread's part of a miniblock as deltas see it: a NULL, and a row behind the last one, has the value before it; if there is none the first
// value of the miniblock, and if there is none of that 0.
struct Miniblock {
    int64_t values[THREAD_ROWS];
    uint32_t valid[THREAD_ROWS]; // a bit a lane
    uint64_t beyond;
};

// Every thread of the warp calls it.
DEVICE void load_miniblock(const CellRange &range, uint64_t first, Miniblock *block) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    block->beyond = 0;
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        const bool is_value = is_valid(range, row);
        block->values[item] = is_value ? load_value(range, row, &block->beyond) : 0;
        block->valid[item] = __ballot_sync(0xffffffffu, is_value);
    }
    int64_t before = 0;
    for (uint32_t item = THREAD_ROWS; item-- > 0;) {
        const uint32_t valid = block->valid[item];
        const int64_t value = __shfl_sync(0xffffffffu, block->values[item], valid ? __ffs(valid) - 1 : 0);
        before = valid ? value : before;
    }
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint32_t valid = block->valid[item] & (0xffffffffu >> (WARP_THREADS - 1 - lane));
        const int64_t value = __shfl_sync(0xffffffffu, block->values[item], valid ? WARP_THREADS - 1 - __clz(valid) : 0);
        block->values[item] = valid ? value : before;
        before = __shfl_sync(0xffffffffu, block->values[item], WARP_THREADS - 1);
    }
}

// What is between each value of a miniblock and the one before; 0 for the first. Every thread of the warp calls it.
DEVICE void find_deltas(const Miniblock &block, int64_t *deltas) {
    int64_t last = __shfl_sync(0xffffffffu, block.values[0], 0);
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const int64_t value = block.values[item];
        const int64_t beside = __shfl_up_sync(0xffffffffu, value, 1);
        const int64_t before = threadIdx.x % WARP_THREADS == 0 ? last : beside;
        deltas[item] = (int64_t)((uint64_t)value - (uint64_t)before);
        last = __shfl_sync(0xffffffffu, value, WARP_THREADS - 1);
    }
}

DEVICE void merge_bounds(RangeBounds *bounds, const RangeBounds &other) {
    bounds->least = other.least < bounds->least ? other.least : bounds->least;
    bounds->greatest = other.greatest > bounds->greatest ? other.greatest : bounds->greatest;
    bounds->least_delta = other.least_delta < bounds->least_delta ? other.least_delta : bounds->least_delta;
    bounds->greatest_delta = other.greatest_delta > bounds->greatest_delta ? other.greatest_delta : bounds->greatest_delta;
    bounds->beyond |= other.beyond;
    bounds->run_count += other.run_count;
}

DEVICE void merge_lanes(RangeBounds *bounds) {
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        RangeBounds other;
        other.least = __shfl_xor_sync(0xffffffffu, bounds->least, distance);
        other.greatest = __shfl_xor_sync(0xffffffffu, bounds->greatest, distance);
        other.least_delta = __shfl_xor_sync(0xffffffffu, bounds->least_delta, distance);
        other.greatest_delta = __shfl_xor_sync(0xffffffffu, bounds->greatest_delta, distance);
        other.beyond = __shfl_xor_sync(0xffffffffu, bounds->beyond, distance);
        other.run_count = __shfl_xor_sync(0xffffffffu, bounds->run_count, distance);
        merge_bounds(bounds, other);
    }
}

// Whether a row is the first of a run: it is the first of its tile, or it has another value than the one before, or that one is NULL.
DEVICE bool starts_run(const CellRange &range, uint64_t row) {
    if (row >= range.row_count) return false;
    if (row % PACK_TILE_ROWS == 0) return true;
    if (!is_valid(range, row)) return false;
    uint64_t beyond = 0;
    return !is_valid(range, row - 1) || load_value(range, row, &beyond) != load_value(range, row - 1, &beyond);
}

KERNEL(measure_ranges, MeasureRanges, BLOCK_THREADS) {
    SHARED RangeBounds of_warps[WARPS];
    const uint32_t place = find_range(args.ranges, args.range_count, blockIdx.x);
    const CellRange &range = args.ranges[place];
    const uint64_t first = first_row(blockIdx.x - range.first_tile);
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    Miniblock block;
    load_miniblock(range, first, &block);
    int64_t deltas[THREAD_ROWS];
    find_deltas(block, deltas);
    const int64_t most = 0x7fffffffffffffffll;
    RangeBounds bounds = {most, -most - 1, most, -most - 1, block.beyond, 0};
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const bool is_value = block.valid[item] >> lane & 1;
        const bool has_delta = first + item * WARP_THREADS < range.row_count && (item > 0 || lane > 0);
        RangeBounds other = {most, -most - 1, most, -most - 1, 0, 0};
        other.run_count = starts_run(range, first + item * WARP_THREADS);
        if (is_value) other.least = other.greatest = block.values[item];
        if (has_delta) other.least_delta = other.greatest_delta = deltas[item];
        merge_bounds(&bounds, other);
    }
    merge_lanes(&bounds);
    if (threadIdx.x % WARP_THREADS == 0) of_warps[threadIdx.x / WARP_THREADS] = bounds;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (uint32_t warp = 1; warp < WARPS; warp++) merge_bounds(&bounds, of_warps[warp]);
    RangeBounds *all = (RangeBounds *)args.bounds + place;
    atomicMin((long long *)&all->least, (long long)bounds.least);
    atomicMax((long long *)&all->greatest, (long long)bounds.greatest);
    atomicMin((long long *)&all->least_delta, (long long)bounds.least_delta);
    atomicMax((long long *)&all->greatest_delta, (long long)bounds.greatest_delta);
    atomicAdd((unsigned long long *)&all->run_count, (unsigned long long)bounds.run_count);
    if (bounds.beyond) atomicMax((unsigned long long *)&all->beyond, 1ull);
}

// Which of this warp's rows start runs, a bit a lane, and how many do in the warps before this one and in *total. Every thread calls it.
DEVICE uint32_t find_runs(const CellRange &range, uint64_t first, uint32_t *starts, uint32_t *total) {
    SHARED uint32_t counts[WARPS];
    uint32_t count = 0;
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        starts[item] = __ballot_sync(0xffffffffu, starts_run(range, first + item * WARP_THREADS));
        count += __popc(starts[item]);
    }
    if (threadIdx.x % WARP_THREADS == 0) counts[threadIdx.x / WARP_THREADS] = count;
    __syncthreads();
    uint32_t before = 0;
    *total = 0;
    for (uint32_t warp = 0; warp < WARPS; warp++) {
        if (warp < threadIdx.x / WARP_THREADS) before += counts[warp];
        *total += counts[warp];
    }
    return before;
}

KERNEL(count_runs, CollectRuns, BLOCK_THREADS) {
    const CellRange &range = args.ranges[find_range(args.ranges, args.range_count, blockIdx.x)].source;
    uint32_t starts[THREAD_ROWS], total;
    find_runs(range, first_row(blockIdx.x - range.first_tile), starts, &total);
    if (threadIdx.x == 0) ((uint32_t *)args.counts)[blockIdx.x] = total;
}

// Traffic: cells and the counts of runs read, 16 B a run written.
KERNEL(collect_runs, CollectRuns, BLOCK_THREADS) {
    const RunRange &runs = args.ranges[find_range(args.ranges, args.range_count, blockIdx.x)];
    const uint64_t first = first_row(blockIdx.x - runs.source.first_tile);
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    uint32_t starts[THREAD_ROWS], total;
    const uint64_t *offsets = (const uint64_t *)args.offsets;
    uint64_t number = find_runs(runs.source, first, starts, &total);
    number += offsets[blockIdx.x] - offsets[runs.source.first_tile];
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        if (starts[item] >> lane & 1) {
            const uint64_t place = number + __popc(starts[item] & ((1u << lane) - 1));
            uint64_t beyond = 0;
            ((int64_t *)runs.values)[place] = is_valid(runs.source, row) ? load_value(runs.source, row, &beyond) : runs.base;
            ((uint64_t *)runs.starts)[place] = row;
        }
        number += __popc(starts[item]);
    }
}

// Words of the distances of a tile.
#define TILE_WORDS_MAX (PACK_TILE_ROWS / 32 * 64)

// Writes the first value of this warp's miniblock, and sets the bits of its deltas in the words of a tile. Every thread of the warp calls it.
DEVICE void pack_deltas(const PackedRange &packed, uint64_t first, uint32_t tile_row, uint32_t *words) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    Miniblock block;
    load_miniblock(packed.source, first, &block);
    int64_t deltas[THREAD_ROWS];
    find_deltas(block, deltas);
    if (lane == 0 && first < packed.source.row_count) ((int64_t *)packed.firsts)[first / MINIBLOCK_ROWS] = block.values[0];
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        if (first + item * WARP_THREADS >= packed.source.row_count || (item == 0 && lane == 0)) continue;
        const uint64_t distance = (uint64_t)deltas[item] - (uint64_t)packed.base;
        store_bits(words, (tile_row + item * WARP_THREADS) * packed.width, distance, packed.width);
    }
}

// A NULL's distance is 0, so that the receiver sees no other bytes of this rank's memory.
DEVICE void pack_distances(const PackedRange &packed, uint64_t first, uint32_t tile_row, uint32_t *words) {
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        if (!is_valid(packed.source, row)) continue;
        uint64_t beyond = 0;
        const uint64_t distance = (uint64_t)load_value(packed.source, row, &beyond) - (uint64_t)packed.base;
        store_bits(words, (tile_row + item * WARP_THREADS) * packed.width, distance, packed.width);
    }
}

KERNEL(pack_cells, PackCells, BLOCK_THREADS) {
    SHARED uint32_t words[TILE_WORDS_MAX];
    const PackedRange &packed = args.ranges[find_range(args.ranges, args.range_count, blockIdx.x)];
    const uint64_t tile = blockIdx.x - packed.source.first_tile;
    const uint64_t left = packed.source.row_count - tile * PACK_TILE_ROWS;
    const uint32_t tile_rows = left < PACK_TILE_ROWS ? (uint32_t)left : PACK_TILE_ROWS;
    const uint32_t word_count = (tile_rows * packed.width + 31) / 32;
    for (uint32_t word = threadIdx.x; word < word_count; word += BLOCK_THREADS) words[word] = 0;
    __syncthreads();
    const uint64_t first = first_row(tile);
    const uint32_t tile_row = (uint32_t)(first - tile * PACK_TILE_ROWS);
    if (packed.form == FORM_DELTAS) {
        pack_deltas(packed, first, tile_row, words);
    } else {
        pack_distances(packed, first, tile_row, words);
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

// Every thread of the warp calls it.
DEVICE void unpack_deltas(const UnpackedRange &range, uint64_t first) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    if (first - lane >= range.row_count) return;
    uint64_t value = ((const uint64_t *)range.marks)[first / MINIBLOCK_ROWS];
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        uint64_t delta = 0;
        if (row < range.row_count && (item > 0 || lane > 0)) {
            delta = (uint64_t)range.base + load_wide_bits(range.bits, row * range.width, range.width);
        }
        const uint64_t sum = warp_inclusive_sum(delta);
        if (row < range.row_count) store_value(range.cells, range.cell_bytes, row, (int64_t)(value + sum));
        value += __shfl_sync(0xffffffffu, sum, WARP_THREADS - 1);
    }
}

// The run that a row is in: the last one that starts no later, of those that a search finds if they are in no order.
DEVICE uint64_t find_run(const UnpackedRange &range, uint64_t row) {
    uint64_t low = 0, high = range.run_count;
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        if (load_bits(range.marks, middle * range.start_width, range.start_width) <= row) low = middle;
        else high = middle;
    }
    return low;
}

KERNEL(unpack_cells, UnpackCells, BLOCK_THREADS) {
    const UnpackedRange &range = args.ranges[find_range(args.ranges, args.range_count, blockIdx.x)];
    const uint64_t first = first_row(blockIdx.x - range.first_tile);
    if (range.form == FORM_DELTAS) {
        unpack_deltas(range, first);
        return;
    }
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        if (row >= range.row_count) continue;
        const uint64_t place = range.form == FORM_RUNS ? find_run(range, row) : row;
        const uint64_t distance = load_wide_bits(range.bits, place * range.width, range.width);
        store_value(range.cells, range.cell_bytes, row, (int64_t)((uint64_t)range.base + distance));
    }
}
