// Groups whose place is computed of their keys: integers that lie close together, codes of dictionaries, group numbers.
//
// Grid:    any number of blocks, in accumulate_block_slots and accumulate_private_slots a multiple of share_count; threads stride
//          over the rows, SLOT_ROWS at once.
// Ordering: sums and counts do not depend on the order of rows.
// Status:  ERROR_SLOT_RANGE for a key that has no place: it is left out.
// Traffic: accumulate_slots reads the keys and the inputs of a row, and adds to one slot: a sector or two at a random place, once
//          for rows of the same slot that a thread has one after another. The others read the keys once a share, mostly once,
//          and add in shared memory.
// Source:  direct addressing, as joins of dense keys; a slot's words lie side by side, because the random access costs
//          more than what is added there. Thread-private sums for few groups as in libcudf's groupby. We differ: sums in shared
//          memory have 64 bits whatever the addends are, and the thread that overflows one counts that beside it. The sums are
//          exact without a bound on the addends, which statistics of files could state wrongly.
#include "../abi/aggregate.h"
#include "../common/launch.h"
#include "../common/block.cuh"
#include "slots.cuh"

// The rows, of those in `placed`, after which a thread has another slot, or no more rows. `values` of those before are added to
// them.
template <class Value>
DEVICE uint32_t join_runs(const uint32_t (&slots)[SLOT_ROWS], uint32_t placed, Value (&values)[SLOT_ROWS]) {
    uint32_t ends = placed;
#pragma unroll
    for (uint32_t item = 0; item + 1 < SLOT_ROWS; item++) {
        if (!SlotRows::has(placed & placed >> 1, item) || slots[item] != slots[item + 1]) continue;
        values[item + 1] += values[item];
        ends &= ~(1u << item);
    }
    return ends;
}

// Adds one to a word of the slots of some rows.
DEVICE void add_counts(const AccumulateSlots &args, const uint32_t (&slots)[SLOT_ROWS], uint32_t counted, uint32_t word) {
    uint32_t counts[SLOT_ROWS];
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) counts[item] = 1;
    const uint32_t ends = join_runs(slots, counted, counts);
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) {
        if (SlotRows::has(ends, item)) atomicAdd(words_of(args, slots[item]) + word, (unsigned long long)counts[item]);
    }
}

KERNEL(accumulate_slots, AccumulateSlots, BLOCK_THREADS) {
    const uint64_t step = (uint64_t)gridDim.x * BLOCK_THREADS * SLOT_ROWS;
    uint64_t first = ((uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) * SLOT_ROWS;
    for (; first < args.row_count; first += step) {
        const SlotRows rows = slot_rows(first, 1, args.row_count);
        uint32_t slots[SLOT_ROWS];
        const uint32_t placed = find_slots(args, rows, slots);
        add_counts(args, slots, placed, 0);
        for (uint32_t number = 0; number < args.input_count; number++) {
            const SlotInput &input = args.inputs[number];
            const uint32_t valid = placed & valid_rows(input.input, rows);
            if (valid != placed) add_counts(args, slots, placed & ~valid, input.null_word);
            if (!input.sum_word) continue;
            int128 values[SLOT_ROWS];
            if (input.input.cell_type == CELL_INT128) {
                load_cells<int128>(input.input, rows, valid, values);
            } else {
                load_integers(input.input, rows, valid, values);
            }
            const uint32_t ends = join_runs(slots, placed, values);
#pragma unroll
            for (uint32_t item = 0; item < SLOT_ROWS; item++) {
                if (SlotRows::has(ends, item)) add_wide(words_of(args, slots[item]) + input.sum_word, values[item]);
            }
        }
    }
}

// What a block adds: the inputs of its share, and the rows if that is the first.
struct Share {
    uint32_t number;
    uint32_t first_index; // of the cells that it adds to slots, and the end of them: cells are [cell_count][slot_count]
    uint32_t index_count;
};

// Finds a block's share and, for all threads once they meet, which words its cells are added to.
DEVICE Share share_of_block(const AccumulateSlots &args, uint32_t *cell_words) {
    const uint32_t number = blockIdx.x % args.share_count;
    uint32_t cell_count = 1;
    if (threadIdx.x == 0) cell_words[0] = 0;
    for (uint32_t place = 0; place < args.input_count; place++) {
        const SlotInput &input = args.inputs[place];
        if (input.share != number) continue;
        if (input.null_cell) cell_count = input.null_cell + 1;
        if (input.sum_cell) cell_count = input.sum_cell + 1;
        if (threadIdx.x > 0) continue;
        if (input.null_cell) cell_words[input.null_cell] = input.null_word;
        if (input.sum_cell) cell_words[input.sum_cell] = input.sum_word;
    }
    const uint32_t slot_count = (uint32_t)args.slot_count;
    return Share{number, number ? slot_count : 0, cell_count * slot_count};
}

// Adds what a block has in a cell to the slots.
DEVICE void add_index(const AccumulateSlots &args, const uint32_t *cell_words, uint32_t index, int128 sum) {
    const uint32_t slot_count = (uint32_t)args.slot_count;
    add_wide(words_of(args, index % slot_count) + cell_words[index / slot_count], sum);
}

// The addends of some rows. One that 64 bits do not hold, which is rare, is added to its slot and zero here.
DEVICE void load_addends(const AccumulateSlots &args, const SlotInput &input, const SlotRows &rows, uint32_t valid,
                         const uint32_t (&slots)[SLOT_ROWS], int64_t (&values)[SLOT_ROWS]) {
    if (input.input.cell_type != CELL_INT128) return load_integers(input.input, rows, valid, values);
    int128 cells[SLOT_ROWS];
    load_cells<int128>(input.input, rows, valid, cells);
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) {
        values[item] = (int64_t)cells[item];
        if (cells[item] == values[item]) continue;
        values[item] = 0;
        add_wide(words_of(args, slots[item]) + input.sum_word, cells[item]);
    }
}

// Adds the rows of a block's share to what `sums` has for it: count(cell, slots, counted) and add(cell, slots, values), where
// zeros change nothing. A cell is the index of its first slot.
template <uint32_t THREADS, class Sums>
DEVICE void add_share(const AccumulateSlots &args, const Share &share, Sums &sums) {
    const uint32_t slot_count = (uint32_t)args.slot_count;
    const uint64_t step = (uint64_t)(gridDim.x / args.share_count) * THREADS * SLOT_ROWS;
    uint64_t tile = (uint64_t)(blockIdx.x / args.share_count) * THREADS * SLOT_ROWS;
    for (; tile < args.row_count; tile += step) {
        const SlotRows rows = slot_rows(tile + threadIdx.x, THREADS, args.row_count);
        uint32_t slots[SLOT_ROWS];
        const uint32_t placed = find_slots(args, rows, slots);
        sums.count(0, slots, placed);
        for (uint32_t place = 0; place < args.input_count; place++) {
            const SlotInput &input = args.inputs[place];
            if (input.share != share.number) continue;
            const uint32_t valid = placed & valid_rows(input.input, rows);
            if (input.null_cell) sums.count(input.null_cell * slot_count, slots, placed & ~valid);
            if (!input.sum_cell) continue;
            int64_t values[SLOT_ROWS];
            load_addends(args, input, rows, valid, slots, values);
            sums.add(input.sum_cell * slot_count, slots, values);
        }
    }
}

// Sums of a block, each in copies that different threads add to. Shared memory's atomics have 32 bits.
struct BlockSums {
    const AccumulateSlots &args;
    uint32_t *low_words; // [index][copies]
    uint32_t *high_words;
    const uint32_t *cell_words;
    uint32_t copies; // a power of two

    METHOD uint32_t place(uint32_t index) const { return index * copies + threadIdx.x % copies; }

    METHOD void count(uint32_t cell, const uint32_t (&slots)[SLOT_ROWS], uint32_t counted) {
#pragma unroll
        for (uint32_t item = 0; item < SLOT_ROWS; item++) {
            if (SlotRows::has(counted, item)) atomicAdd(&low_words[place(cell + slots[item])], 1u);
        }
    }

    METHOD void add(uint32_t cell, const uint32_t (&slots)[SLOT_ROWS], const int64_t (&values)[SLOT_ROWS]) {
#pragma unroll
        for (uint32_t item = 0; item < SLOT_ROWS; item++) {
            const uint32_t low = (uint32_t)values[item], index = cell + slots[item];
            if (!values[item]) continue;
            const uint32_t before = atomicAdd(&low_words[place(index)], low);
            const int64_t rest = (values[item] >> 32) + (before + low < before);
            if (!rest) continue;
            const int64_t high = (int64_t)(int32_t)atomicAdd(&high_words[place(index)], (uint32_t)rest) + rest;
            if (high != (int32_t)high) add_index(args, cell_words, index, (int128)(high < 0 ? -1 : 1) << 64);
        }
    }

    METHOD int128 sum(uint32_t index) const {
        int128 sum = 0;
        // Each lane begins with another copy: copies of one number lie in one bank.
        for (uint32_t item = 0; item < copies; item++) {
            const uint32_t place = index * copies + (threadIdx.x + item) % copies;
            sum += (int64_t)((uint64_t)high_words[place] << 32 | low_words[place]);
        }
        return sum;
    }
};

// For at most BLOCK_SLOTS_MAX slots.
KERNEL_RESIDENT(accumulate_block_slots, AccumulateSlots, BLOCK_THREADS, 5) {
    SHARED uint32_t low_words[SLOT_CELLS_MAX];
    SHARED uint32_t high_words[SLOT_CELLS_MAX];
    SHARED uint32_t cell_words[SHARE_CELLS_MAX];
    const Share share = share_of_block(args, cell_words);
    uint32_t copies = WARP_THREADS;
    while (share.index_count * copies > SLOT_CELLS_MAX) copies /= 2;
    for (uint32_t place = threadIdx.x; place < share.index_count * copies; place += BLOCK_THREADS) {
        low_words[place] = high_words[place] = 0;
    }
    __syncthreads();
    BlockSums sums{args, low_words, high_words, cell_words, copies};
    add_share<BLOCK_THREADS>(args, share, sums);
    __syncthreads();
    for (uint32_t index = share.first_index + threadIdx.x; index < share.index_count; index += BLOCK_THREADS) {
        add_index(args, cell_words, index, sums.sum(index));
    }
}

// Sums of a thread. A thread that overflows one sets the block's flag.
struct PrivateSums {
    int64_t *sums;     // [index][PRIVATE_SLOT_THREADS]
    uint32_t *carries; // [index]: by how much the sums are too small, in 2^64

    METHOD int64_t &sum(uint32_t index) { return sums[index * PRIVATE_SLOT_THREADS + threadIdx.x]; }

    METHOD void count(uint32_t cell, const uint32_t (&slots)[SLOT_ROWS], uint32_t counted) {
#pragma unroll
        for (uint32_t item = 0; item < SLOT_ROWS; item++) sum(cell + slots[item]) += SlotRows::has(counted, item);
    }

    METHOD void add(uint32_t cell, const uint32_t (&slots)[SLOT_ROWS], const int64_t (&values)[SLOT_ROWS]) {
        uint32_t overflows = 0;
#pragma unroll
        for (uint32_t item = 0; item < SLOT_ROWS; item++) {
            int64_t &known = sum(cell + slots[item]);
            const int64_t before = known;
            const int64_t after = (int64_t)((uint64_t)before + (uint64_t)values[item]);
            known = after;
            overflows |= (uint32_t)(((before ^ after) & (values[item] ^ after)) < 0) << item;
        }
        if (!overflows) return;
#pragma unroll
        for (uint32_t item = 0; item < SLOT_ROWS; item++) {
            if (SlotRows::has(overflows, item)) atomicAdd(&carries[cell + slots[item]], values[item] < 0 ? ~0u : 1u);
        }
    }
};

// For at most PRIVATE_SLOTS_MAX slots: threads that add to the same few slots would wait for one another.
KERNEL(accumulate_private_slots, AccumulateSlots, PRIVATE_SLOT_THREADS) {
    SHARED int64_t sums[SLOT_CELLS_MAX];
    SHARED uint32_t carries[SLOT_CELLS_MAX / PRIVATE_SLOT_THREADS];
    SHARED uint32_t cell_words[SHARE_CELLS_MAX];
    const Share share = share_of_block(args, cell_words);
    for (uint32_t index = 0; index < share.index_count; index++) sums[index * PRIVATE_SLOT_THREADS + threadIdx.x] = 0;
    if (threadIdx.x < share.index_count) carries[threadIdx.x] = 0;
    __syncthreads();
    PrivateSums private_sums{sums, carries};
    add_share<PRIVATE_SLOT_THREADS>(args, share, private_sums);
    __syncthreads();
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warps = PRIVATE_SLOT_THREADS / WARP_THREADS;
    for (uint32_t index = share.first_index + threadIdx.x / WARP_THREADS; index < share.index_count; index += warps) {
        // In halves, which do not overflow.
        uint64_t low = 0;
        int64_t high = 0;
        for (uint32_t thread = lane; thread < PRIVATE_SLOT_THREADS; thread += WARP_THREADS) {
            const int64_t sum = sums[index * PRIVATE_SLOT_THREADS + thread];
            low += (uint32_t)sum;
            high += sum >> 32;
        }
        low = warp_sum(low);
        high = warp_sum(high);
        const uint128 carried = (uint128)(int128)(int32_t)carries[index] << 64;
        const uint128 sum = carried + ((uint128)(int128)high << 32) + low;
        if (lane == 0) add_index(args, cell_words, index, (int128)sum);
    }
}
