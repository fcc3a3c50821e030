// Rows on their way to slots: their places, and the integers that are added there.
#pragma once

#include "../abi/aggregate.h"
#include "../common/launch.h"
#include "../common/cell.cuh"
#include "../common/report_error.cuh"

// Rows of a thread at once, so that their cells are on their way together. Sets of them are bits, the first row's lowest.
struct SlotRows {
    uint64_t first;
    uint64_t step;  // from a row to the next
    uint32_t there; // those before the last row's end

    METHOD uint64_t row(uint32_t item) const { return first + item * step; }
    METHOD static bool has(uint32_t set, uint32_t item) { return set >> item & 1; }
};

DEVICE SlotRows slot_rows(uint64_t first, uint64_t step, uint64_t row_count) {
    SlotRows rows{first, step, 0};
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) rows.there |= (uint32_t)(rows.row(item) < row_count) << item;
    return rows;
}

// The rows in which a column is not NULL.
DEVICE uint32_t valid_rows(const ColumnView &column, const SlotRows &rows) {
    if (!column.validity) return rows.there;
    const uint8_t *flags = (const uint8_t *)column.validity;
    uint32_t valid = 0;
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) {
        if (SlotRows::has(rows.there, item)) valid |= (uint32_t)(flags[rows.row(item)] != 0) << item;
    }
    return valid;
}

// The cells of the rows in `valid`, and zero for others.
template <class T, class Integer>
DEVICE void load_cells(const ColumnView &column, const SlotRows &rows, uint32_t valid, Integer (&values)[SLOT_ROWS]) {
    T cells[SLOT_ROWS];
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) {
        cells[item] = SlotRows::has(valid, item) ? cell_at<T>(column, rows.row(item)) : T{};
    }
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) values[item] = cells[item];
}

// The same of integers of up to 64 bits.
template <class Integer>
DEVICE void load_integers(const ColumnView &column, const SlotRows &rows, uint32_t valid, Integer (&values)[SLOT_ROWS]) {
    switch (column.cell_type) {
        case CELL_BOOL: load_cells<uint8_t>(column, rows, valid, values); break;
        case CELL_INT16: load_cells<int16_t>(column, rows, valid, values); break;
        case CELL_INT32: load_cells<int32_t>(column, rows, valid, values); break;
        default: load_cells<int64_t>(column, rows, valid, values);
    }
}

// The slots of some rows. Returns which have one; others are in slot 0.
DEVICE uint32_t find_slots(const AccumulateSlots &args, const SlotRows &rows, uint32_t (&slots)[SLOT_ROWS]) {
    uint32_t placed = rows.there;
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) slots[item] = 0;
    for (uint32_t number = 0; number < args.key_count; number++) {
        const SlotKey &key = args.keys[number];
        const uint32_t valid = valid_rows(key.key, rows);
        int64_t values[SLOT_ROWS];
        load_integers(key.key, rows, valid, values);
#pragma unroll
        for (uint32_t item = 0; item < SLOT_ROWS; item++) {
            uint64_t place = key.place_count;
            if (SlotRows::has(valid, item)) {
                place = (uint64_t)values[item] - (uint64_t)key.least;
                if (place >= key.place_count) placed &= ~(1u << item);
            }
            // There are fewer slots than 32 bits count.
            slots[item] += (uint32_t)place * (uint32_t)key.stride;
        }
    }
    if (placed != rows.there) report_error(args.status, ERROR_SLOT_RANGE);
#pragma unroll
    for (uint32_t item = 0; item < SLOT_ROWS; item++) {
        if (!SlotRows::has(placed, item)) slots[item] = 0;
    }
    return placed;
}

DEVICE unsigned long long *words_of(const AccumulateSlots &args, uint32_t slot) {
    return (unsigned long long *)args.slots + (uint64_t)slot * args.slot_words;
}

// Adds to a 128-bit sum that other threads add to. The order of additions does not change the sum, and a sum that
// overflows wraps; callers prove from the number of rows that it can't, or check the high word.
DEVICE void add_wide(unsigned long long *words, int128 value) {
    const uint64_t low = (uint64_t)value;
    uint64_t high = (uint64_t)((uint128)value >> 64);
    if (!(low | high)) return;
    const uint64_t before = atomicAdd(&words[0], (unsigned long long)low);
    high += before + low < before;
    if (high) atomicAdd(&words[1], (unsigned long long)high);
}
