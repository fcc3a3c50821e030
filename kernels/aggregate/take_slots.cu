// What slots hold becomes columns: which of them have rows, their keys, their counts and sums.
//
// Grid:    any number of blocks; threads stride over the slots, or over those that are taken.
// Status:  take_slots: overflow_code for a sum that does not fit its cell.
// Traffic: flag_slots reads a word a slot; take_slots reads the slots that are taken once, and writes their columns.
#include "../abi/aggregate.h"
#include "../common/launch.h"
#include "../common/int256.cuh"
#include "../common/report_error.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

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
            if (sum != (int128)(int64_t)low) report_error(args.status, output.overflow_code, output.overflow_detail);
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
