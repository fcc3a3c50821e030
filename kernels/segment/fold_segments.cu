// Rows of segments are added to slots, without columns between: sums of products and counts, by a few keys.
//
// Grid:    any number of blocks, whose warps stride over the blocks of rows.
// Inputs:  segments of distances; the rows that are meant. The host has proven that no addend and no sum of a warp leaves 64 bits, and
//          that every key has a place.
// Outputs: the words of slots, as accumulate_slots leaves them.
// Ordering: sums and counts do not depend on the order of rows.
// Traffic: the words of each column once.
// Source:  ours. The rows of a block are listed by slot, and those of one slot are added up in registers, so that a warp keeps one sum of each
//          kind, and not each thread; addends are computed of packed values, which are staged, by a list of factors that is read once for
//          several rows.
#include "segment.cuh"
#include "../aggregate/slots.cuh"

#define FOLD_THREADS 128
#define FOLD_WARPS (FOLD_THREADS / WARP_THREADS)
// Rows of a thread at once.
#define FOLD_ROWS 4
#define FOLD_STEP (FOLD_ROWS * WARP_THREADS)
// Bits of a slot's number.
#define SLOT_BITS 6
static_assert(FOLD_SUMS_MAX <= 1 << SLOT_BITS, "a slot has a sum at least");
// If fewer rows of a block are meant, they are listed.
#define LISTED_ROWS_MAX (SEGMENT_BLOCK_ROWS / 2)
// Lines of a block's words that are staged, of all columns, and words behind them that are read and not used.
#define STAGED_LINES 48
#define STAGED_WORDS (STAGED_LINES * SEGMENT_BLOCK_WORDS + 4)

// A column of a block of rows.
struct FoldColumn {
    uint64_t words;    // staged or not
    uint64_t validity; // bits of the segment, or 0
    int64_t base;
    uint32_t width;
    uint32_t reserved;
};

struct alignas(16) FoldStage {
    uint32_t words[STAGED_WORDS];
};

// Rows of a block: a list, or those of each thread's mask.
struct MeantRows {
    const uint16_t *listed;
    uint32_t mask;
    uint32_t places; // how long the list is, or all rows of the block
};

// Some rows of this thread.
struct FoldRows {
    uint64_t first; // of the block's, in its segment
    uint32_t numbers[FOLD_ROWS]; // in the block
    uint32_t wanted; // those that are there
};

// The rows at the places of a step.
DEVICE FoldRows rows_of_step(const PlacedBlock &placed, const MeantRows &meant, uint32_t step) {
    FoldRows rows;
    rows.first = placed.number * SEGMENT_BLOCK_ROWS;
    rows.wanted = 0;
    const uint32_t mask = meant.mask >> step * FOLD_ROWS;
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        const uint32_t place = step * FOLD_STEP + item * WARP_THREADS + lane_of_thread();
        const bool is_there = meant.listed ? place < meant.places : mask >> item & 1;
        rows.wanted |= (uint32_t)is_there << item;
        rows.numbers[item] = !is_there ? 0 : meant.listed ? meant.listed[place] : place;
    }
    return rows;
}

// Every thread of the warp calls it.
DEVICE void load_columns(const FoldSegments &args, const PlacedBlock &placed, FoldColumn *columns, FoldStage *stage) {
    const uint32_t lane = lane_of_thread();
    uint32_t staged = 0;
    __syncwarp();
    for (uint32_t number = 0; number < args.column_count; number++) {
        const SegmentView &view = placed.views[args.columns[number]];
        const SegmentBlock head = head_of(view, placed.number);
        const uint32_t lines = lines_of(placed.end, head.width);
        uint64_t words = words_of(view, head);
        if (staged + lines <= STAGED_LINES) {
            Words4 *target = (Words4 *)(stage->words + staged * SEGMENT_BLOCK_WORDS);
            const Words4 *source = (const Words4 *)words;
#pragma unroll 4
            for (uint32_t place = lane; place < lines * (SEGMENT_BLOCK_WORDS / 4); place += WARP_THREADS) target[place] = source[place];
            words = (uint64_t)target;
            staged += lines;
        }
        if (lane == 0) columns[number] = FoldColumn{words, view.validity, head.base, head.width, 0};
    }
    __syncwarp();
}

// Of some rows those that have a value of a column.
DEVICE uint32_t valid_rows(const FoldColumn &column, const FoldRows &rows) {
    if (!column.validity) return rows.wanted;
    uint32_t valid = 0;
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        if (rows.wanted >> item & 1) valid |= (uint32_t)bit_of(column.validity, rows.first + rows.numbers[item]) << item;
    }
    return valid;
}

DEVICE void load_values(const FoldColumn &column, const FoldRows &rows, int64_t (&values)[FOLD_ROWS]) {
    if (column.width > 32) {
#pragma unroll
        for (uint32_t item = 0; item < FOLD_ROWS; item++) {
            values[item] = (int64_t)((uint64_t)column.base + load_wide_bits(column.words, rows.numbers[item] * column.width, column.width));
        }
        return;
    }
    const uint32_t *words = (const uint32_t *)column.words;
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        values[item] = (int64_t)((uint64_t)column.base + short_distance(words, rows.numbers[item], column.width));
    }
}

// The slots of some rows; those that are not there have any.
DEVICE void find_fold_slots(const FoldSegments &args, const FoldColumn *columns, const FoldRows &rows, uint32_t (&slots)[FOLD_ROWS]) {
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) slots[item] = 0;
    for (uint32_t number = 0; number < args.key_count; number++) {
        const FoldKey &key = args.keys[number];
        const FoldColumn column = columns[key.column];
        const uint32_t valid = valid_rows(column, rows);
        int64_t values[FOLD_ROWS];
        load_values(column, rows, values);
#pragma unroll
        for (uint32_t item = 0; item < FOLD_ROWS; item++) {
            const uint64_t place = valid >> item & 1 ? (uint64_t)values[item] - (uint64_t)key.least : key.place_count;
            slots[item] += (uint32_t)place * (uint32_t)key.stride;
        }
    }
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        if (!(rows.wanted >> item & 1) || slots[item] >= args.slot_count) slots[item] = 0;
    }
}

// The addends of some rows, and which of these have one; zero for others. `addends` and `valid` are of the input before.
DEVICE uint32_t load_addends(const FoldInput &input, const FoldColumn *columns, const FoldRows &rows, uint32_t valid, int64_t (&addends)[FOLD_ROWS]) {
    if (input.shared == 0) valid = rows.wanted;
    for (uint32_t number = input.shared; number < input.factor_count; number++) {
        const FoldFactor &factor = input.factors[number];
        const FoldColumn column = columns[factor.column];
        valid &= valid_rows(column, rows);
        if (!input.sum_word) continue;
        int64_t values[FOLD_ROWS];
        load_values(column, rows, values);
        if (factor.coefficient != 1 || factor.constant != 0) {
#pragma unroll
            for (uint32_t item = 0; item < FOLD_ROWS; item++) {
                values[item] = (int64_t)((uint64_t)factor.constant + (uint64_t)factor.coefficient * (uint64_t)values[item]);
            }
        }
#pragma unroll
        for (uint32_t item = 0; item < FOLD_ROWS; item++) {
            addends[item] = number == 0 ? values[item] : (int64_t)((uint64_t)addends[item] * (uint64_t)values[item]);
        }
    }
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        if (!(valid >> item & 1)) addends[item] = 0;
    }
    return valid;
}

// Adds rows of one slot to the sums that this warp has of it. Every thread of the warp calls it.
DEVICE void fold_rows(const FoldSegments &args, const FoldColumn *columns, const PlacedBlock &placed, const MeantRows &meant, int64_t *sums) {
    for (uint32_t number = 0; number < args.input_count;) {
        // Inputs whose products continue one another are computed together.
        uint32_t chain = 1;
        while (chain < FOLD_FACTORS_MAX && number + chain < args.input_count && args.inputs[number + chain].shared) chain++;
        int64_t added[FOLD_FACTORS_MAX] = {};
        uint32_t nulls[FOLD_FACTORS_MAX] = {};
        for (uint32_t step = 0; step * FOLD_STEP < meant.places; step++) {
            const FoldRows rows = rows_of_step(placed, meant, step);
            int64_t addends[FOLD_ROWS] = {};
            uint32_t valid = rows.wanted;
#pragma unroll
            for (uint32_t link = 0; link < FOLD_FACTORS_MAX; link++) {
                if (link >= chain) continue;
                valid = load_addends(args.inputs[number + link], columns, rows, valid, addends);
                nulls[link] += (uint32_t)__popc(rows.wanted & ~valid);
#pragma unroll
                for (uint32_t item = 0; item < FOLD_ROWS; item++) added[link] += addends[item];
            }
        }
#pragma unroll
        for (uint32_t link = 0; link < FOLD_FACTORS_MAX; link++) {
            if (link >= chain) continue;
            const FoldInput &input = args.inputs[number + link];
            const uint32_t null_count = input.null_sum ? warp_sum(nulls[link]) : 0;
            const int64_t sum = input.sum ? (int64_t)warp_sum((uint64_t)added[link]) : 0;
            if (lane_of_thread() != 0) continue;
            if (input.null_sum) sums[input.null_sum] += null_count;
            if (input.sum) sums[input.sum] += sum;
        }
        number += chain;
    }
}

// Adds the rows of a block to the sums of their slots, one slot after another. `slot_rows` has room for a list of the rows that are meant. Every
// thread of the warp calls it.
DEVICE void fold_slots(const FoldSegments &args, const FoldColumn *columns, const PlacedBlock &placed, const MeantRows &meant,
                       uint16_t *slot_rows, int64_t *sums) {
    // Of each row of this thread a bit of its slot's number.
    uint32_t bits[SLOT_BITS] = {}, there = 0;
    for (uint32_t step = 0; step * FOLD_STEP < meant.places; step++) {
        const FoldRows rows = rows_of_step(placed, meant, step);
        uint32_t slots[FOLD_ROWS];
        find_fold_slots(args, columns, rows, slots);
        there |= rows.wanted << step * FOLD_ROWS;
#pragma unroll
        for (uint32_t item = 0; item < FOLD_ROWS; item++) {
#pragma unroll
            for (uint32_t bit = 0; bit < SLOT_BITS; bit++) bits[bit] |= (slots[item] >> bit & 1) << (step * FOLD_ROWS + item);
        }
    }
    for (uint32_t slot = 0; slot < args.slot_count; slot++) {
        uint32_t own = there;
#pragma unroll
        for (uint32_t bit = 0; bit < SLOT_BITS; bit++) own &= slot >> bit & 1 ? bits[bit] : ~bits[bit];
        const uint32_t own_count = (uint32_t)__popc(own), up_to_own = warp_inclusive_sum(own_count);
        const uint32_t count = __shfl_sync(0xffffffffu, up_to_own, WARP_THREADS - 1);
        if (count == 0) continue;
        uint32_t target = up_to_own - own_count;
        for (uint32_t rest = own; rest; rest &= rest - 1) {
            const uint32_t place = ((uint32_t)__ffs((int)rest) - 1) * WARP_THREADS + lane_of_thread();
            slot_rows[target++] = meant.listed ? meant.listed[place] : (uint16_t)place;
        }
        __syncwarp();
        int64_t *slot_sums = sums + slot * args.sum_count;
        if (lane_of_thread() == 0) slot_sums[0] += count;
        fold_rows(args, columns, placed, MeantRows{slot_rows, 0, count}, slot_sums);
        __syncwarp();
    }
}

// The word of a slot that a sum is added to.
DEVICE uint32_t word_of_sum(const FoldSegments &args, uint32_t sum) {
    for (uint32_t number = 0; number < args.input_count; number++) {
        if (sum == 0) break;
        if (args.inputs[number].null_sum == sum) return args.inputs[number].null_word;
        if (args.inputs[number].sum == sum) return args.inputs[number].sum_word;
    }
    return 0;
}

KERNEL_RESIDENT(fold_segments, FoldSegments, FOLD_THREADS, 5) {
    SHARED int64_t sums[FOLD_WARPS][FOLD_SUMS_MAX];
    SHARED FoldStage stages[FOLD_WARPS];
    SHARED FoldColumn columns[FOLD_WARPS][FOLD_COLUMNS_MAX];
    SHARED uint16_t lists[FOLD_WARPS][SEGMENT_BLOCK_ROWS];
    const uint32_t warp = threadIdx.x / WARP_THREADS, lane = lane_of_thread();
    const uint32_t sum_count = (uint32_t)args.slot_count * args.sum_count;
    for (uint32_t sum = lane; sum < sum_count; sum += WARP_THREADS) sums[warp][sum] = 0;
    const uint64_t step = (uint64_t)gridDim.x * FOLD_WARPS;
    for (uint64_t block = (uint64_t)blockIdx.x * FOLD_WARPS + warp; block < args.rows.block_count; block += step) {
        const PlacedBlock placed = place_block(args.rows, block);
        MeantRows meant{nullptr, rows_between(placed.first, placed.end), SEGMENT_BLOCK_ROWS};
        uint32_t count = placed.end - placed.first;
        uint16_t *slot_rows = lists[warp];
        __syncwarp();
        if (args.selection.bits) {
            const uint32_t word = ((const uint32_t *)args.selection.bits)[block * SEGMENT_BLOCK_WORDS + lane];
            const uint32_t own = (uint32_t)__popc(word), up_to_own = warp_inclusive_sum(own);
            count = __shfl_sync(0xffffffffu, up_to_own, WARP_THREADS - 1);
            if (count == 0) continue;
            if (count <= LISTED_ROWS_MAX) {
                list_rows(word, up_to_own - own, lists[warp]);
                meant = MeantRows{lists[warp], 0, count};
                slot_rows += LISTED_ROWS_MAX;
            } else {
                meant.mask &= transposed_bits(word);
            }
        }
        load_columns(args, placed, columns[warp], &stages[warp]);
        if (args.slot_count > 1) {
            fold_slots(args, columns[warp], placed, meant, slot_rows, sums[warp]);
            continue;
        }
        if (lane == 0) sums[warp][0] += count;
        fold_rows(args, columns[warp], placed, meant, sums[warp]);
    }
    __syncwarp();
    for (uint32_t sum = lane; sum < sum_count; sum += WARP_THREADS) {
        unsigned long long *words = (unsigned long long *)args.slots + (uint64_t)(sum / args.sum_count) * args.slot_words;
        add_wide(words + word_of_sum(args, sum % args.sum_count), (int128)sums[warp][sum]);
    }
}
