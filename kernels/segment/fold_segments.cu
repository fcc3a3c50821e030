// Rows of segments are added to slots, without columns between: sums of products and counts, by a few keys.
//
// Grid:    any number of blocks, whose warps stride over the blocks of rows.
// Inputs:  segments of distances; the rows that are meant. The host has proven that no addend and no sum of a thread leaves 64 bits, and
//          that every key has a place.
// Outputs: the words of slots, as accumulate_slots leaves them.
// Ordering: sums and counts do not depend on the order of rows.
// Traffic: the words of each column once.
// Source:  thread-private sums as accumulate_private_slots. We differ: addends are computed of packed values, which are staged, by a list of factors
//          that is read once for several rows.
#include "segment.cuh"
#include "../aggregate/slots.cuh"

#define FOLD_THREADS 64
#define FOLD_WARPS (FOLD_THREADS / WARP_THREADS)
// Rows of a thread at once.
#define FOLD_ROWS 8
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

// Some rows of this thread.
struct FoldRows {
    uint64_t first; // of the block's, in its segment
    uint32_t numbers[FOLD_ROWS]; // in the block
    uint32_t wanted; // those that are there
};

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
    const uint32_t ones = column.width == 32 ? 0xffffffffu : (1u << column.width) - 1;
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        const uint32_t bit = rows.numbers[item] * column.width;
        const uint64_t both = (uint64_t)words[bit / 32 + 1] << 32 | words[bit / 32];
        values[item] = (int64_t)((uint64_t)column.base + ((uint32_t)(both >> bit % 32) & ones));
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

// Adds some rows to the sums of this thread, which are WARP_THREADS apart: those of a slot follow one another.
DEVICE void fold_rows(const FoldSegments &args, const FoldColumn *columns, const FoldRows &rows, int64_t *sums) {
    uint32_t slots[FOLD_ROWS];
    find_fold_slots(args, columns, rows, slots);
#pragma unroll
    for (uint32_t item = 0; item < FOLD_ROWS; item++) {
        slots[item] *= args.sum_count * WARP_THREADS;
        sums[slots[item]] += rows.wanted >> item & 1;
    }
    int64_t addends[FOLD_ROWS] = {};
    uint32_t valid = rows.wanted;
    for (uint32_t number = 0; number < args.input_count; number++) {
        const FoldInput &input = args.inputs[number];
        valid = load_addends(input, columns, rows, valid, addends);
        if (input.null_sum) {
#pragma unroll
            for (uint32_t item = 0; item < FOLD_ROWS; item++) sums[slots[item] + input.null_sum * WARP_THREADS] += (rows.wanted & ~valid) >> item & 1;
        }
        if (input.sum) {
#pragma unroll
            for (uint32_t item = 0; item < FOLD_ROWS; item++) sums[slots[item] + input.sum * WARP_THREADS] += addends[item];
        }
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

KERNEL(fold_segments, FoldSegments, FOLD_THREADS) {
    SHARED int64_t sums[FOLD_WARPS][FOLD_SUMS_MAX][WARP_THREADS];
    SHARED FoldStage stages[FOLD_WARPS];
    SHARED FoldColumn columns[FOLD_WARPS][FOLD_COLUMNS_MAX];
    SHARED uint16_t lists[FOLD_WARPS][SEGMENT_BLOCK_ROWS];
    const uint32_t warp = threadIdx.x / WARP_THREADS, lane = lane_of_thread();
    const uint32_t sum_count = (uint32_t)args.slot_count * args.sum_count;
    for (uint32_t sum = 0; sum < sum_count; sum++) sums[warp][sum][lane] = 0;
    const uint64_t step = (uint64_t)gridDim.x * FOLD_WARPS;
    for (uint64_t block = (uint64_t)blockIdx.x * FOLD_WARPS + warp; block < args.rows.block_count; block += step) {
        const PlacedBlock placed = place_block(args.rows, block);
        uint32_t count = placed.end - placed.first;
        bool is_listed = false;
        if (args.selection.bits) {
            const uint32_t word = ((const uint32_t *)args.selection.bits)[block * SEGMENT_BLOCK_WORDS + lane];
            const uint32_t own = (uint32_t)__popc(word), sum = warp_inclusive_sum(own);
            const uint32_t selected = __shfl_sync(0xffffffffu, sum, WARP_THREADS - 1);
            if (selected == 0) continue;
            is_listed = selected < count;
            count = selected;
            __syncwarp();
            if (is_listed) list_rows(word, sum - own, lists[warp]);
        }
        load_columns(args, placed, columns[warp], &stages[warp]);
        for (uint32_t first = lane; first - lane < count; first += WARP_THREADS * FOLD_ROWS) {
            FoldRows rows;
            rows.first = placed.number * SEGMENT_BLOCK_ROWS;
            rows.wanted = 0;
#pragma unroll
            for (uint32_t item = 0; item < FOLD_ROWS; item++) {
                const uint32_t place = first + item * WARP_THREADS;
                const bool is_there = place < count;
                rows.wanted |= (uint32_t)is_there << item;
                rows.numbers[item] = !is_there ? 0 : is_listed ? lists[warp][place] : placed.first + place;
            }
            fold_rows(args, columns[warp], rows, &sums[warp][0][lane]);
        }
    }
    for (uint32_t sum = 0; sum < sum_count; sum++) {
        // In halves, which do not overflow.
        const int64_t own = sums[warp][sum][lane];
        const uint64_t low = warp_sum((uint64_t)(uint32_t)own);
        const int64_t high = warp_sum(own >> 32);
        const uint128 all = ((uint128)(int128)high << 32) + low;
        unsigned long long *words = (unsigned long long *)args.slots + (uint64_t)(sum / args.sum_count) * args.slot_words;
        if (lane == 0) add_wide(words + word_of_sum(args, sum % args.sum_count), (int128)all);
    }
}
