// Scatters rows to their owners: one pass over the keys computes the owner of each row and counts, and one pass over all columns
// copies the rows into the memory of each owner.
//
// Grid:    ceil(row_count / SCATTER_TILE_ROWS) blocks.
// Ordering: rows of an owner stay in their order.
// Traffic: the keys read and 1 B written a row; then 1 B and the cells of a row read, and its cells written. A tile's rows are put into the
//          order of owners in shared memory first, so that neighbouring threads write neighbouring cells; what they read lies within a
//          tile, and what one takes of a sector leaves the rest in the cache for others.
// Source:  partitioning with the order of a tile in shared memory, Stehle, Jacobsen, "A Memory Bandwidth-Efficient Hybrid Radix Sort on
//          GPUs", SIGMOD 2017, section 4.4. We differ: only row numbers are staged, since a row has many columns of any width.
#include "../abi/exchange.h"
#include "../common/launch.h"
#include "../common/block.cuh"
#include "../common/keys.cuh"
#include "../common/whole_cell.cuh"
#include "partition.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)
// Rows of a tile that a warp ranks.
#define WARP_ROWS (SCATTER_TILE_ROWS / WARPS)
// Rows of a thread at once: their cells are on their way together.
#define ROWS_AT_ONCE 4
#define NO_BLOCK 0xffffffffu

// A thread an owner.
static_assert(PARTITIONS_MAX == BLOCK_THREADS, "a thread has an owner");
static_assert(SCATTER_TILE_ROWS <= 1 << 16, "a row of a tile has a number of 16 bits");

// The lanes of this warp whose rows have the same owner. Every lane calls it.
DEVICE uint32_t lanes_of_owner(uint32_t owner, uint32_t owner_count, bool is_row) {
    uint32_t lanes = __ballot_sync(0xffffffffu, is_row);
    for (uint32_t bit = 0; ((owner_count - 1) >> bit) != 0; bit++) {
        uint32_t votes = __ballot_sync(0xffffffffu, (owner >> bit) & 1);
        lanes &= (owner >> bit) & 1 ? votes : ~votes;
    }
    return lanes;
}

KERNEL(assign_owners, AssignOwners, BLOCK_THREADS) {
    SHARED uint32_t counts[PARTITIONS_MAX];
    // Each thread reads its own ones alone. They are counted after all were found, so that little is kept over calls.
    SHARED uint8_t tile_owners[SCATTER_TILE_ROWS];
    const uint64_t first = (uint64_t)blockIdx.x * SCATTER_TILE_ROWS;
    for (uint32_t item = threadIdx.x; item < SCATTER_TILE_ROWS; item += BLOCK_THREADS) {
        const uint64_t row = first + item;
        if (row >= args.row_count) break;
        bool has_null;
        uint64_t hash = hash_row(args.keys, row, &has_null);
        if (has_null && !args.nulls_match) hash = HASH_NULL;
        uint8_t owner = (uint8_t)partition_of_hash(hash, row, args.level, args.owner_count);
        if (args.staying != 0 && ((const uint8_t *)args.staying)[row] != 0) owner = (uint8_t)args.stay_owner;
        tile_owners[item] = owner;
        ((uint8_t *)args.owners)[row] = owner;
    }
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t item = threadIdx.x; item < SCATTER_TILE_ROWS; item += BLOCK_THREADS) {
        const bool is_row = first + item < args.row_count;
        const uint32_t owner = is_row ? tile_owners[item] : 0;
        const uint32_t lanes = lanes_of_owner(owner, args.owner_count, is_row);
        // One atomic a warp and owner.
        if (is_row && (lanes & ((1u << lane) - 1)) == 0) atomicAdd(&counts[owner], (uint32_t)__popc(lanes));
    }
    __syncthreads();
    if (threadIdx.x >= args.owner_count) return;
    ((uint32_t *)args.counts)[(uint64_t)threadIdx.x * args.tiles + blockIdx.x] = counts[threadIdx.x];
}

// Rows of a thread, and where they go.
struct TileRows {
    uint64_t sources[ROWS_AT_ONCE];
    uint64_t targets[ROWS_AT_ONCE]; // within the block of memory
    uint32_t blocks[ROWS_AT_ONCE];  // NO_BLOCK: nowhere
};

// The block of memory that the row at a place goes to.
DEVICE uint32_t block_of_place(const ScatterRows &args, uint64_t place) {
    uint32_t first = 0, last = args.block_count;
    while (last - first > 1) {
        const uint32_t middle = (first + last) / 2;
        if (args.blocks[middle].first_row <= place) first = middle;
        else last = middle;
    }
    const ScatterBlock &block = args.blocks[first];
    return block.first_row <= place && place < block.end_row ? first : NO_BLOCK;
}

// A NULL's cell is zero, so that the receiver sees no other bytes of this rank's memory.
template <class T>
DEVICE void scatter_cells(const ScatterRows &args, uint32_t column, const TileRows &rows) {
    const ColumnView &source = args.columns[column];
    const uint8_t *validity = (const uint8_t *)source.validity;
    T cells[ROWS_AT_ONCE];
    bool is_valid[ROWS_AT_ONCE];
#pragma unroll
    for (uint32_t item = 0; item < ROWS_AT_ONCE; item++) {
        const bool is_there = rows.blocks[item] != NO_BLOCK;
        is_valid[item] = is_there && (!validity || validity[rows.sources[item]]);
        cells[item] = is_there ? ((const T *)source.values)[rows.sources[item]] : T{};
    }
#pragma unroll
    for (uint32_t item = 0; item < ROWS_AT_ONCE; item++) {
        if (rows.blocks[item] == NO_BLOCK) continue;
        const ScatterBlock &block = args.blocks[rows.blocks[item]];
        const ScatterPart part = block.parts[column];
        T *values = (T *)(block.address + (uint64_t)part.values * SCATTER_PART_ALIGNMENT);
        values[rows.targets[item]] = is_valid[item] ? cells[item] : T{};
        if (!validity) continue;
        ((uint8_t *)(block.address + (uint64_t)part.validity * SCATTER_PART_ALIGNMENT))[rows.targets[item]] = is_valid[item];
    }
}

DEVICE void scatter_columns(const ScatterRows &args, const TileRows &rows) {
    for (uint32_t column = 0; column < args.column_count; column++) {
        switch (args.columns[column].cell_bytes) {
            case 1: scatter_cells<uint8_t>(args, column, rows); break;
            case 2: scatter_cells<uint16_t>(args, column, rows); break;
            case 4: scatter_cells<uint32_t>(args, column, rows); break;
            case 8: scatter_cells<uint64_t>(args, column, rows); break;
            case 32: scatter_cells<Cell32>(args, column, rows); break;
            default: scatter_cells<Cell16>(args, column, rows);
        }
    }
}

KERNEL(scatter_rows, ScatterRows, BLOCK_THREADS) {
    // Rows of each warp by owner; then where in the tile's order the next of them goes.
    SHARED uint32_t next[WARPS][PARTITIONS_MAX];
    SHARED uint16_t order[SCATTER_TILE_ROWS];
    // From a place in the tile's order to the one among all rows.
    SHARED uint64_t distances[PARTITIONS_MAX];
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    const uint64_t first = (uint64_t)blockIdx.x * SCATTER_TILE_ROWS;
    const uint64_t left = args.row_count - first;
    const uint32_t tile_rows = left < SCATTER_TILE_ROWS ? (uint32_t)left : SCATTER_TILE_ROWS;
    const uint8_t *owners = (const uint8_t *)args.owners + first;
    for (uint32_t other = 0; other < WARPS; other++) next[other][threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t item = 0; item < WARP_ROWS; item += WARP_THREADS) {
        const uint32_t row = warp * WARP_ROWS + item + lane;
        const bool is_row = row < tile_rows;
        const uint32_t owner = is_row ? owners[row] : 0;
        const uint32_t lanes = lanes_of_owner(owner, args.owner_count, is_row);
        if (is_row && (lanes & ((1u << lane) - 1)) == 0) next[warp][owner] += __popc(lanes);
        __syncwarp();
    }
    __syncthreads();
    uint64_t owned = 0, all;
    for (uint32_t other = 0; other < WARPS; other++) owned += next[other][threadIdx.x];
    const uint64_t before = block_exclusive_sum(owned, &all);
    uint32_t place = (uint32_t)before;
    for (uint32_t other = 0; other < WARPS; other++) {
        const uint32_t count = next[other][threadIdx.x];
        next[other][threadIdx.x] = place;
        place += count;
    }
    if (threadIdx.x < args.owner_count) {
        distances[threadIdx.x] = ((const uint64_t *)args.offsets)[(uint64_t)threadIdx.x * args.tiles + blockIdx.x] - before;
    }
    __syncthreads();
    for (uint32_t item = 0; item < WARP_ROWS; item += WARP_THREADS) {
        const uint32_t row = warp * WARP_ROWS + item + lane;
        const bool is_row = row < tile_rows;
        const uint32_t owner = is_row ? owners[row] : 0;
        const uint32_t lanes = lanes_of_owner(owner, args.owner_count, is_row);
        const uint32_t rank = __popc(lanes & ((1u << lane) - 1));
        if (is_row) order[next[warp][owner] + rank] = (uint16_t)row;
        __syncwarp();
        if (is_row && rank == 0) next[warp][owner] += __popc(lanes);
        __syncwarp();
    }
    __syncthreads();
    for (uint32_t base = threadIdx.x; base < tile_rows; base += ROWS_AT_ONCE * BLOCK_THREADS) {
        TileRows rows;
#pragma unroll
        for (uint32_t item = 0; item < ROWS_AT_ONCE; item++) {
            const uint32_t ordered = base + item * BLOCK_THREADS;
            rows.blocks[item] = NO_BLOCK;
            if (ordered >= tile_rows) continue;
            const uint32_t row = order[ordered];
            const uint64_t target = distances[owners[row]] + ordered;
            const uint32_t block = block_of_place(args, target);
            rows.sources[item] = first + row;
            rows.blocks[item] = block;
            if (block != NO_BLOCK) rows.targets[item] = target - args.blocks[block].first_row;
        }
        scatter_columns(args, rows);
    }
}
