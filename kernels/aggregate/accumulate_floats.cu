// Adds floats, or states of such sums, to the words of their groups. Head of float_sums.cuh.
//
// Grid:    any number of blocks; threads stride over the rows.
// Inputs:  rows from first_row to end_row, at most FLOAT_ADDENDS_MAX. words: what the launches before added, with their carries taken out.
// Status:  ERROR_FLOAT_STATE for bytes that are no state: a bug.
// Traffic: a cell, a group number and, of the group, a place a row; measure_floats reads a group's bounds and changes them seldom.
//          accumulate_floats has an atomic addition for each word that a value changes. accumulate_private_floats, for at most
//          FLOAT_PRIVATE_WORDS_MAX words, and accumulate_block_floats, for at most FLOAT_BLOCK_WORDS_MAX, add in shared memory:
//          threads that add to the same few words would wait for one another.
#include "float_sums.cuh"
#include "../common/block.cuh"

DEVICE uint64_t first_row(const AccumulateFloats &args) {
    return args.first_row + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * blockDim.x; }

DEVICE uint32_t group_at(const AccumulateFloats &args, uint64_t row) {
    return args.groups ? ((const uint32_t *)args.groups)[row] : 0;
}

// Most rows find that their group knows as much already, and only look.
DEVICE void note_greatest(uint32_t *known, uint32_t value) {
    if (*(volatile uint32_t *)known < value) atomicMax(known, value);
}
DEVICE void note_window(uint32_t *before, uint32_t *end, const FloatWindow &window) {
    if (!window.end) return;
    note_greatest(before, FLOAT_WORDS_MAX - window.first);
    note_greatest(end, window.end);
}

DEVICE FloatWindow state_window(uint32_t first, uint32_t count) { return FloatWindow{first, count ? first + count : 0}; }

KERNEL(measure_floats, AccumulateFloats, BLOCK_THREADS) {
    const bool has_states = args.input.cell_type == CELL_STRING;
    for (uint64_t row = first_row(args); row < args.end_row; row += row_step()) {
        if (cell_is_null(args.input, row)) continue;
        FloatGroup *group = (FloatGroup *)args.measured + group_at(args, row);
        uint32_t marks;
        FloatWindow sum, squares;
        if (has_states) {
            FloatState state;
            if (!read_state(args, row, &state)) {
                report_error(args.status, ERROR_FLOAT_STATE);
                continue;
            }
            marks = state.marks;
            sum = state_window(state.first_word, state.word_count);
            squares = state_window(state.first_square_word, state.square_word_count);
        } else {
            const FloatParts parts = float_parts_at(args.input, row);
            marks = parts.marks;
            sum = value_window(parts);
            squares = square_window(parts);
        }
        if ((*(volatile uint32_t *)&group->marks & marks) != marks) atomicOr(&group->marks, marks);
        note_window(&group->words_before, &group->words_end, sum);
        if (args.deviates) note_window(&group->square_words_before, &group->square_words_end, squares);
    }
}

// Adds the words of a number that is shifted, from a place on: those that are not 0.
template <uint32_t COUNT, class Sums>
DEVICE void add_words(Sums &sums, uint64_t index, const uint64_t (&words)[COUNT], bool is_negative) {
#pragma unroll
    for (uint32_t word = 0; word < COUNT; word++) {
        if (words[word]) sums.add(index + word, is_negative ? 0 - words[word] : words[word]);
    }
}

// The words of a state; the last has the sign.
template <class Sums>
DEVICE void add_state_words(Sums &sums, uint64_t index, uint64_t address, uint32_t count) {
    for (uint32_t word = 0; word < count; word++) {
        const uint32_t bits = load_u32(address + 4 * word);
        const uint64_t value = word + 1 == count ? (uint64_t)(int64_t)(int32_t)bits : bits;
        if (value) sums.add(index + word, value);
    }
}

// Adds some rows to sums: add(index, value) adds to a word, in two's complement.
template <class Sums>
DEVICE void add_rows(const AccumulateFloats &args, Sums &sums) {
    const bool has_states = args.input.cell_type == CELL_STRING;
    for (uint64_t row = first_row(args); row < args.end_row; row += row_step()) {
        if (cell_is_null(args.input, row)) continue;
        const uint32_t number = group_at(args, row);
        const FloatGroup &group = ((const FloatGroup *)args.measured)[number];
        const uint64_t counted = ((const uint64_t *)args.offsets)[number];
        const FloatWindow sum = sum_of_group(group), squares = squares_of_group(group);
        const uint64_t sum_index = counted + args.deviates, squares_index = sum_index + sum.width();
        if (has_states) {
            FloatState state;
            if (!read_state(args, row, &state)) continue;
            add_state_words(sums, sum_index + state.first_word - sum.first, state.words, state.word_count);
            if (!args.deviates) continue;
            sums.add(counted, state.count);
            add_state_words(sums, squares_index + state.first_square_word - squares.first, state.words + 4 * state.word_count,
                            state.square_word_count);
            continue;
        }
        const FloatParts parts = float_parts_at(args.input, row);
        if (args.deviates) sums.add(counted, 1);
        if (!parts.digits) continue;
        const uint128 value = (uint128)parts.digits << (parts.place % 32);
        const uint64_t words[3] = {(uint32_t)value, (uint32_t)(value >> 32), (uint64_t)(value >> 64)};
        add_words(sums, sum_index + value_window(parts).first - sum.first, words, parts.is_negative);
        if (!args.deviates) continue;
        const uint128 square = (uint128)parts.digits * parts.digits;
        const uint32_t bit = 2 * parts.place % 32;
        const uint128 low = (uint128)(uint64_t)square << bit, high = (square >> 64) << bit;
        const uint64_t square_words[5] = {(uint32_t)low, (uint32_t)(low >> 32), (uint64_t)(low >> 64) + (uint32_t)high,
                                          (uint32_t)(high >> 32), (uint64_t)(high >> 64)};
        add_words(sums, squares_index + square_window(parts).first - squares.first, square_words, false);
    }
}

// Words in the device's memory.
struct DeviceWords {
    uint64_t words;

    METHOD void add(uint64_t index, uint64_t value) { atomicAdd((unsigned long long *)words + index, (unsigned long long)value); }
};

KERNEL(accumulate_floats, AccumulateFloats, BLOCK_THREADS) {
    DeviceWords words{args.words};
    add_rows(args, words);
}

// Words of a block, each in copies that different threads add to. Shared memory's atomics have 32 bits.
struct BlockWords {
    uint32_t *low_halves; // [index][copies]
    uint32_t *high_halves;
    uint32_t copies; // a power of two

    METHOD void add(uint64_t index, uint64_t value) {
        const uint32_t place = (uint32_t)index * copies + threadIdx.x % copies, low = (uint32_t)value;
        const uint32_t before = atomicAdd(&low_halves[place], low);
        const uint32_t high = (uint32_t)(value >> 32) + (before + low < before);
        if (high) atomicAdd(&high_halves[place], high);
    }
};

KERNEL(accumulate_block_floats, AccumulateFloats, BLOCK_THREADS) {
    SHARED uint32_t low_halves[FLOAT_BLOCK_WORDS_MAX];
    SHARED uint32_t high_halves[FLOAT_BLOCK_WORDS_MAX];
    const uint32_t word_count = (uint32_t)args.word_count;
    uint32_t copies = WARP_THREADS;
    while (word_count * copies > FLOAT_BLOCK_WORDS_MAX) copies /= 2;
    for (uint32_t place = threadIdx.x; place < word_count * copies; place += BLOCK_THREADS) low_halves[place] = high_halves[place] = 0;
    __syncthreads();
    BlockWords words{low_halves, high_halves, copies};
    add_rows(args, words);
    __syncthreads();
    DeviceWords all{args.words};
    for (uint32_t index = threadIdx.x; index < word_count; index += BLOCK_THREADS) {
        uint64_t sum = 0;
        // Each lane begins with another copy: copies of one number lie in one bank.
        for (uint32_t item = 0; item < copies; item++) {
            const uint32_t place = index * copies + (threadIdx.x + item) % copies;
            sum += (uint64_t)high_halves[place] << 32 | low_halves[place];
        }
        if (sum) all.add(index, sum);
    }
}

// Words of a thread.
struct PrivateWords {
    uint64_t *words; // [index][FLOAT_PRIVATE_THREADS]

    METHOD void add(uint64_t index, uint64_t value) { words[index * FLOAT_PRIVATE_THREADS + threadIdx.x] += value; }
};

KERNEL(accumulate_private_floats, AccumulateFloats, FLOAT_PRIVATE_THREADS) {
    SHARED uint64_t words[FLOAT_PRIVATE_WORDS_MAX * FLOAT_PRIVATE_THREADS];
    const uint32_t word_count = (uint32_t)args.word_count;
    for (uint32_t index = 0; index < word_count; index++) words[index * FLOAT_PRIVATE_THREADS + threadIdx.x] = 0;
    PrivateWords own{words};
    add_rows(args, own);
    __syncthreads();
    DeviceWords all{args.words};
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const uint32_t warps = FLOAT_PRIVATE_THREADS / WARP_THREADS;
    for (uint32_t index = threadIdx.x / WARP_THREADS; index < word_count; index += warps) {
        uint64_t sum = 0;
        for (uint32_t thread = lane; thread < FLOAT_PRIVATE_THREADS; thread += WARP_THREADS) {
            sum += words[index * FLOAT_PRIVATE_THREADS + thread];
        }
        sum = warp_sum(sum);
        if (lane == 0 && sum) all.add(index, sum);
    }
}
