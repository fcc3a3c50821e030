// Groups whose key is their place: aggregates of one integer key whose values lie close together.
//
// Grid:    any number of blocks; threads stride over rows or slots.
// Ordering: sums and counts do not depend on the order of rows.
// Traffic: accumulate_slots reads the key and the inputs of a row, and adds to one slot: a sector or two at a random
//          place. take_slots reads the slots that have rows once.
// Source:  direct addressing, as joins of dense keys; a slot's words lie side by side, because the random access costs
//          more than what is added there.
#include "../abi/aggregate.h"
#include "../abi/launch.h"
#include "../common/keys.cuh"
#include "sums.cuh"

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

KERNEL(accumulate_slots, AccumulateSlots, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        uint64_t slot = args.slot_count;
        if (!cell_is_null(args.key, row)) slot = (uint64_t)key_at(args.key, row) - (uint64_t)args.least;
        unsigned long long *words = (unsigned long long *)args.slots + slot * args.slot_words;
        atomicAdd(&words[0], 1ull);
        for (uint32_t number = 0; number < args.input_count; number++) {
            const SlotInput &input = args.inputs[number];
            if (cell_is_null(input.input, row)) continue;
            atomicAdd(&words[input.count_word], 1ull);
            if (input.sum_word == 0) continue;
            const uint128 value = (uint128)integer_at(input.input, row);
            add_wide(&words[input.sum_word], (uint64_t)value, (uint64_t)(value >> 64));
        }
    }
}

KERNEL(flag_slots, TakeSlots, BLOCK_THREADS) {
    for (uint64_t slot = first_row(); slot <= args.slot_count; slot += row_step()) {
        ((uint8_t *)args.flags)[slot] = ((const uint64_t *)args.slots)[slot * args.slot_words] != 0;
    }
}

KERNEL(take_slots, TakeSlots, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        const uint64_t slot = ((const uint32_t *)args.numbers)[row];
        const uint64_t *words = (const uint64_t *)args.slots + slot * args.slot_words;
        const bool valid = slot != args.slot_count;
        const uint64_t key = valid ? (uint64_t)args.least + slot : 0;
        if (args.validity) ((uint8_t *)args.validity)[row] = valid;
        switch (args.key_bytes) {
            case 2: ((uint16_t *)args.keys)[row] = (uint16_t)key; break;
            case 4: ((uint32_t *)args.keys)[row] = (uint32_t)key; break;
            default: ((uint64_t *)args.keys)[row] = key;
        }
        for (uint32_t number = 0; number < args.output_count; number++) {
            const SlotOutput &output = args.outputs[number];
            uint64_t *target = (uint64_t *)output.target + row * output.words;
            target[0] = words[output.word];
            if (output.words == 2) target[1] = words[output.word + 1];
        }
    }
}
