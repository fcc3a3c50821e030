// Prefix sums over counts and flags in one launch: offsets, counts of rows with a flag, or their numbers.
//
// Grid:     ceil(row_count / TILE_ROWS) blocks. A block takes the next tile when it starts, so that all tiles before its own
//           are done or under way, whatever the order of blocks.
// Inputs:   counts, and a state that is all zeros.
// Outputs:  offsets, counts or row numbers in the order of rows; the sum before each tile, and the sum of all. The state is all zeros again.
// Traffic:  counts are read once, and targets written once; a word a tile.
// Source:   single-pass scan with decoupled look-back, Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
//           Look-back", NVIDIA NVR-2016-002, sections 4.1 to 4.3. We differ: the last block that ends clears the state.
#include "../abi/column_operations.h"
#include "../common/launch.h"
#include "../common/block.cuh"

#define ROWS_PER_THREAD (TILE_ROWS / BLOCK_THREADS)
static_assert(ROWS_PER_THREAD % 8 == 0, "a thread's counts of one byte are whole words");

// What a tile's word says in its highest bits: nothing yet (0), the tile's own sum, or the sum of it and all before.
#define TILE_SUM (1ull << 62)
#define TILE_PREFIX (2ull << 62)
#define TILE_KINDS (3ull << 62)

// What a block stages: a tile's counts of four bytes, then its offsets. Neighbours load and store neighbours, and a thread's own rows follow one
// another; a word is left out after those of each thread, so that threads meet in no bank.
#define STAGED_WORDS (TILE_ROWS + BLOCK_THREADS)
DEVICE uint32_t staged_place(uint32_t row) { return row + row / ROWS_PER_THREAD; }

// The counts of the thread's rows from `first` on, 0 beyond the last one; returns their sum. A flag of a row that failed has no
// meaning, and must still count as one row at most. Every thread calls it.
DEVICE uint64_t load_counts(const ScanCounts &args, uint64_t tile, uint64_t first, uint64_t *staged, uint32_t *counts) {
    uint64_t sum = 0;
    if (args.count_bytes == sizeof(uint32_t)) {
        uint32_t *words = (uint32_t *)staged;
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            const uint32_t place = item * BLOCK_THREADS + threadIdx.x;
            const uint64_t row = tile * TILE_ROWS + place;
            words[staged_place(place)] = row < args.row_count ? ((const uint32_t *)args.counts)[row] : 0;
        }
        __syncthreads();
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            counts[item] = words[staged_place(threadIdx.x * ROWS_PER_THREAD + item)];
        }
    } else if (first + ROWS_PER_THREAD <= args.row_count && args.counts % 8 == 0) {
        const uint64_t *words = (const uint64_t *)(args.counts + first);
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            counts[item] = ((words[item / 8] >> (item % 8 * 8)) & 0xff) != 0;
        }
    } else {
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            const uint64_t row = first + item;
            counts[item] = row < args.row_count && ((const uint8_t *)args.counts)[row] != 0;
        }
    }
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) sum += counts[item];
    return sum;
}

// The sum of all tiles before one, from what their blocks have said of them. Every thread of a warp calls it.
DEVICE uint64_t sum_of_tiles_before(const volatile uint64_t *tiles, uint64_t tile) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    uint64_t before = 0;
    for (uint64_t end = tile; end > 0; end = end > WARP_THREADS ? end - WARP_THREADS : 0) {
        // The lane's tile, backwards from the nearest; before the first there is nothing.
        uint64_t word = TILE_PREFIX;
        if (lane < end) {
            do {
                word = tiles[end - 1 - lane];
            } while ((word & TILE_KINDS) == 0);
        }
        const uint32_t prefixes = __ballot_sync(0xffffffffu, (word & TILE_KINDS) == TILE_PREFIX);
        const uint32_t lanes = prefixes ? (uint32_t)__ffs(prefixes) : WARP_THREADS;
        before += warp_sum(lane < lanes ? word & ~TILE_KINDS : 0);
        if (prefixes) break;
    }
    return before;
}

// What a thread knows of its place.
struct ThreadPlace {
    uint64_t first_row;
    uint64_t tile_before; // the sum of all counts before its block's
    uint64_t within;      // the sum of its block's before its own
    uint64_t tile_total;  // the sum of its block's
};

// Sums up the tiles, of which the block takes one: its threads' counts go to `counts`. `staged`: STAGED_WORDS for counts of four bytes.
// Every thread calls it.
DEVICE ThreadPlace scan_tile(const ScanCounts &args, uint64_t *staged, uint32_t *counts) {
    SHARED uint64_t block_tile, tile_before;
    ScanState *state = (ScanState *)args.state;
    volatile uint64_t *tiles = (volatile uint64_t *)(state + 1);
    if (threadIdx.x == 0) block_tile = atomicAdd((unsigned long long *)&state->started, 1ull);
    __syncthreads();
    const uint64_t tile = block_tile, tile_count = gridDim.x;
    const uint64_t first = tile * TILE_ROWS + threadIdx.x * ROWS_PER_THREAD;
    uint64_t total;
    const uint64_t within = block_exclusive_sum(load_counts(args, tile, first, staged, counts), &total);
    if (threadIdx.x < WARP_THREADS) {
        if (threadIdx.x == 0) tiles[tile] = (tile == 0 ? TILE_PREFIX : TILE_SUM) | total;
        const uint64_t before = sum_of_tiles_before(tiles, tile);
        if (threadIdx.x == 0) {
            tiles[tile] = TILE_PREFIX | (before + total);
            uint64_t *sums = (uint64_t *)args.tile_sums;
            sums[tile] = before;
            if (tile + 1 == tile_count) sums[tile_count] = before + total;
            tile_before = before;
            __threadfence();
            block_tile = atomicAdd((unsigned long long *)&state->ended, 1ull);
        }
    }
    __syncthreads();
    // No block reads the state any more.
    if (block_tile + 1 == tile_count) {
        for (uint64_t place = threadIdx.x; place < tile_count; place += BLOCK_THREADS) tiles[place] = 0;
        if (threadIdx.x == 0) *state = ScanState{0, 0};
    }
    return ThreadPlace{first, tile_before, within, total};
}

KERNEL(write_offsets, ScanCounts, BLOCK_THREADS) {
    SHARED uint64_t staged[STAGED_WORDS];
    uint32_t counts[ROWS_PER_THREAD];
    const ThreadPlace place = scan_tile(args, staged, counts);
    uint64_t offset = place.tile_before + place.within;
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        staged[staged_place(threadIdx.x * ROWS_PER_THREAD + item)] = offset;
        offset += counts[item];
    }
    __syncthreads();
    const uint64_t first = place.first_row - threadIdx.x * ROWS_PER_THREAD;
    for (uint32_t item = threadIdx.x; item < TILE_ROWS && first + item < args.row_count; item += BLOCK_THREADS) {
        ((uint64_t *)args.target)[first + item] = staged[staged_place(item)];
    }
}

KERNEL(count_before, ScanCounts, BLOCK_THREADS) {
    SHARED uint64_t staged[STAGED_WORDS];
    uint32_t counts[ROWS_PER_THREAD];
    const ThreadPlace place = scan_tile(args, staged, counts);
    uint32_t before = (uint32_t)(place.tile_before + place.within);
    uint32_t *target = (uint32_t *)args.target + place.first_row;
    for (uint32_t item = 0; item < ROWS_PER_THREAD && place.first_row + item < args.row_count; item++) {
        target[item] = before;
        before += counts[item];
        if (place.first_row + item + 1 == args.row_count) target[item + 1] = before;
    }
}

KERNEL(select_rows, ScanCounts, BLOCK_THREADS) {
    // The rows are staged when the counts are not needed any more.
    SHARED uint64_t staged[STAGED_WORDS];
    uint32_t *selected = (uint32_t *)staged;
    uint32_t counts[ROWS_PER_THREAD];
    const ThreadPlace place = scan_tile(args, staged, counts);
    uint32_t next = (uint32_t)place.within;
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        if (counts[item]) selected[next++] = (uint32_t)place.first_row + item;
    }
    __syncthreads();
    // Neighbours write to neighbours.
    uint32_t *target = (uint32_t *)args.target + place.tile_before;
    for (uint32_t item = threadIdx.x; item < place.tile_total; item += BLOCK_THREADS) target[item] = selected[item];
}
