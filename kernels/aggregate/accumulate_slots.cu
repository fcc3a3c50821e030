// Groups whose place is computed of their keys: integers that lie close together, codes of dictionaries, group numbers.
//
// Grid:    any number of blocks; threads stride over rows or slots. In accumulate_block_slots and accumulate_private_slots a
//          block adds one input, or the rows, so that the grid is a multiple of input_count + 1.
// Ordering: sums and counts do not depend on the order of rows.
// Status:  ERROR_SLOT_RANGE for a key that has no place: it is left out. take_slots: overflow_code for a sum that does not fit
//          its cell.
// Traffic: accumulate_slots reads the keys and the inputs of a row, and adds to one slot: a sector or two at a random place.
//          The others read the keys once for every input, and add in shared memory. take_slots reads the slots that have
//          rows once.
// Source:  direct addressing, as joins of dense keys; a slot's words lie side by side, because the random access costs
//          more than what is added there. Thread-private sums for few groups as in libcudf's groupby.
#include "../abi/aggregate.h"
#include "../abi/launch.h"
#include "../abi/status.h"
#include "../common/keys.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

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

// The slot of a row, or slot_count if it has none.
DEVICE uint64_t slot_of(const AccumulateSlots &args, uint64_t row) {
    uint64_t slot = 0;
    for (uint32_t number = 0; number < args.key_count; number++) {
        const SlotKey &key = args.keys[number];
        uint64_t place = key.place_count;
        if (!cell_is_null(key.key, row)) {
            place = (uint64_t)integer_key_at(key.key, row) - (uint64_t)key.least;
            if (place >= key.place_count) {
                report_error(args.status, ERROR_SLOT_RANGE);
                return args.slot_count;
            }
        }
        slot += place * key.stride;
    }
    return slot;
}

DEVICE unsigned long long *words_of(const AccumulateSlots &args, uint64_t slot) {
    return (unsigned long long *)args.slots + slot * args.slot_words;
}

DEVICE void add_count(unsigned long long *word, uint64_t count) {
    if (count) atomicAdd(word, (unsigned long long)count);
}

KERNEL(accumulate_slots, AccumulateSlots, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        const uint64_t slot = slot_of(args, row);
        if (slot >= args.slot_count) continue;
        unsigned long long *words = words_of(args, slot);
        atomicAdd(&words[0], 1ull);
        for (uint32_t number = 0; number < args.input_count; number++) {
            const SlotInput &input = args.inputs[number];
            if (cell_is_null(input.input, row)) {
                atomicAdd(&words[input.null_word], 1ull);
            } else if (input.sum_word) {
                const uint128 value = (uint128)integer_at(input.input, row);
                add_wide(&words[input.sum_word], (uint64_t)value, (uint64_t)(value >> 64));
            }
        }
    }
}

// What a block adds: an input, or the rows.
struct Share {
    const SlotInput *input; // null: rows
    uint64_t first_row;
    uint64_t row_step;
    bool is_empty;          // no row can add anything
};

DEVICE Share share_of_block(const AccumulateSlots &args) {
    const uint32_t shares = args.input_count + 1;
    const uint32_t share = blockIdx.x % shares;
    Share found;
    found.input = share < args.input_count ? &args.inputs[share] : nullptr;
    found.first_row = (uint64_t)(blockIdx.x / shares) * BLOCK_THREADS + threadIdx.x;
    found.row_step = (uint64_t)(gridDim.x / shares) * BLOCK_THREADS;
    found.is_empty = found.input && !found.input->sum_word && !found.input->input.validity;
    return found;
}

// Whether a row's value has 64 bits. One that has more is added where all blocks add, which is rare.
DEVICE bool is_narrow(int128 value) { return value == (int128)(int64_t)value; }

DEVICE void add_to_slot(const AccumulateSlots &args, uint64_t slot, const SlotInput &input, uint64_t low, uint64_t high) {
    if (low | high) add_wide(words_of(args, slot) + input.sum_word, low, high);
}

// For at most BLOCK_SLOTS_MAX slots: sums of 96 bits in shared memory, whose atomics have 32 bits.
KERNEL(accumulate_block_slots, AccumulateSlots, BLOCK_THREADS) {
    SHARED uint32_t low_words[BLOCK_SLOTS_MAX];
    SHARED uint32_t middle_words[BLOCK_SLOTS_MAX];
    SHARED uint32_t high_words[BLOCK_SLOTS_MAX];
    SHARED uint32_t counts[BLOCK_SLOTS_MAX];
    const Share share = share_of_block(args);
    if (share.is_empty) return;
    for (uint64_t slot = threadIdx.x; slot < args.slot_count; slot += BLOCK_THREADS) {
        low_words[slot] = middle_words[slot] = high_words[slot] = counts[slot] = 0;
    }
    __syncthreads();
    for (uint64_t row = share.first_row; row < args.row_count; row += share.row_step) {
        const uint64_t slot = slot_of(args, row);
        if (slot >= args.slot_count) continue;
        if (!share.input || cell_is_null(share.input->input, row)) {
            atomicAdd(&counts[slot], 1u);
            continue;
        }
        if (!share.input->sum_word) continue;
        const int128 value = integer_at(share.input->input, row);
        if (!is_narrow(value)) {
            add_to_slot(args, slot, *share.input, (uint64_t)value, (uint64_t)((uint128)value >> 64));
            continue;
        }
        const uint32_t low = (uint32_t)value;
        const uint32_t before = atomicAdd(&low_words[slot], low);
        const uint64_t rest = (uint64_t)(uint32_t)((uint64_t)value >> 32) + ((uint32_t)(before + low) < before);
        const uint32_t middle = (uint32_t)rest;
        uint32_t high = (uint32_t)(rest >> 32) + (value < 0 ? ~0u : 0u);
        if (middle) {
            const uint32_t known = atomicAdd(&middle_words[slot], middle);
            high += (uint32_t)(known + middle) < known;
        }
        if (high) atomicAdd(&high_words[slot], high);
    }
    __syncthreads();
    for (uint64_t slot = threadIdx.x; slot < args.slot_count; slot += BLOCK_THREADS) {
        add_count(words_of(args, slot) + (share.input ? share.input->null_word : 0), counts[slot]);
        if (!share.input || !share.input->sum_word) continue;
        const uint64_t low = (uint64_t)middle_words[slot] << 32 | low_words[slot];
        add_to_slot(args, slot, *share.input, low, (uint64_t)(int64_t)(int32_t)high_words[slot]);
    }
}

// For at most PRIVATE_SLOTS_MAX slots: threads that add to the same few slots would wait for one another.
KERNEL(accumulate_private_slots, AccumulateSlots, BLOCK_THREADS) {
    SHARED uint64_t low_words[PRIVATE_SLOTS_MAX][BLOCK_THREADS];
    SHARED uint32_t high_words[PRIVATE_SLOTS_MAX][BLOCK_THREADS];
    SHARED uint32_t counts[PRIVATE_SLOTS_MAX][BLOCK_THREADS];
    const uint32_t thread = threadIdx.x;
    const Share share = share_of_block(args);
    if (share.is_empty) return;
    for (uint32_t slot = 0; slot < args.slot_count; slot++) {
        low_words[slot][thread] = 0;
        high_words[slot][thread] = 0;
        counts[slot][thread] = 0;
    }
    for (uint64_t row = share.first_row; row < args.row_count; row += share.row_step) {
        const uint64_t slot = slot_of(args, row);
        if (slot >= args.slot_count) continue;
        if (!share.input || cell_is_null(share.input->input, row)) {
            counts[slot][thread]++;
            continue;
        }
        if (!share.input->sum_word) continue;
        const int128 value = integer_at(share.input->input, row);
        if (!is_narrow(value)) {
            add_to_slot(args, slot, *share.input, (uint64_t)value, (uint64_t)((uint128)value >> 64));
            continue;
        }
        const uint64_t low = low_words[slot][thread] + (uint64_t)value;
        high_words[slot][thread] += (low < (uint64_t)value) + (value < 0 ? ~0u : 0u);
        low_words[slot][thread] = low;
    }
    for (uint32_t width = BLOCK_THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (thread >= width) continue;
        for (uint32_t slot = 0; slot < args.slot_count; slot++) {
            const uint64_t other = low_words[slot][thread + width];
            const uint64_t low = low_words[slot][thread] + other;
            high_words[slot][thread] += high_words[slot][thread + width] + (low < other);
            low_words[slot][thread] = low;
            counts[slot][thread] += counts[slot][thread + width];
        }
    }
    __syncthreads();
    if (thread >= args.slot_count) return;
    add_count(words_of(args, thread) + (share.input ? share.input->null_word : 0), counts[thread][0]);
    if (!share.input || !share.input->sum_word) return;
    add_to_slot(args, thread, *share.input, low_words[thread][0], (uint64_t)(int64_t)(int32_t)high_words[thread][0]);
}

KERNEL(flag_slots, TakeSlots, BLOCK_THREADS) {
    for (uint64_t slot = first_row(); slot < args.slot_count; slot += row_step()) {
        ((uint8_t *)args.flags)[slot] = ((const uint64_t *)args.slots)[slot * args.slot_words] != 0;
    }
}

DEVICE void write_key(const SlotKeyTarget &key, uint64_t slot, uint64_t row) {
    const uint64_t place = slot / key.stride % (key.place_count + key.null_places);
    const bool valid = place != key.place_count;
    const uint64_t value = valid ? (uint64_t)key.least + place : 0;
    if (key.validity) ((uint8_t *)key.validity)[row] = valid;
    switch (key.cell_bytes) {
        case 2: ((uint16_t *)key.target)[row] = (uint16_t)value; break;
        case 4: ((uint32_t *)key.target)[row] = (uint32_t)value; break;
        default: ((uint64_t *)key.target)[row] = value;
    }
}

DEVICE void write_output(const TakeSlots &args, const SlotOutput &output, const uint64_t *words, uint64_t row) {
    const uint64_t count = words[0] - (output.null_word ? words[output.null_word] : 0);
    if (!output.sum_word) {
        ((uint64_t *)output.target)[row] = count;
        return;
    }
    ((uint8_t *)output.validity)[row] = count != 0;
    const uint64_t low = words[output.sum_word], high = words[output.sum_word + 1];
    const int128 sum = (int128)(((uint128)high << 64) | low);
    switch (output.cell_bytes) {
        case 32: ((int256 *)output.target)[row] = int256_of(sum); break;
        case 16: ((int128 *)output.target)[row] = sum; break;
        default:
            ((uint64_t *)output.target)[row] = low;
            if (!is_narrow(sum)) report_error(args.status, output.overflow_code, output.overflow_detail);
    }
}

KERNEL(take_slots, TakeSlots, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        const uint64_t slot = args.numbers ? ((const uint32_t *)args.numbers)[row] : row;
        const uint64_t *words = (const uint64_t *)args.slots + slot * args.slot_words;
        for (uint32_t number = 0; number < args.key_count; number++) write_key(args.keys[number], slot, row);
        for (uint32_t number = 0; number < args.output_count; number++) {
            write_output(args, args.outputs[number], words, row);
        }
    }
}
