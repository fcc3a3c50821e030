// Columns become segments: blocks of rows with a base each, and distances from it.
//
// Grid:    a warp has a block of SEGMENT_BLOCK_ROWS rows of a source.
// Inputs:  cells of integers and booleans of any width, codes, or offsets of text.
// Outputs: measure_segments: base and width of each block, and counts of NULLs. pack_segments: blocks, words and bits of each segment.
// Traffic: each reads every cell once; pack_segments writes the bits.
// Source:  frames of reference, Goldstein, Ramakrishnan, Shaft, "Compressing Relations and Indexes", ICDE 1998, section 3. We differ: a
//          block's words begin at whole lines, so that a tile of blocks is staged by wide loads.
#include "segment.cuh"

#define PACK_THREADS 128
#define NO_CODE 0xffffffffu

// A row's value: the lowest 64 bits of an integer, whose sign is in all that a shorter one has not.
struct SourceValue {
    int64_t value;
    bool is_valid;
    bool is_beyond;
};

DEVICE bool is_valid_row(const SegmentSource &source, uint64_t row) {
    return row < source.row_count && (source.validity == 0 || ((const uint8_t *)source.validity)[row] != 0);
}

DEVICE SourceValue load_value(const EncodeSegments &args, const SegmentSource &source, uint64_t row) {
    SourceValue found = {0, is_valid_row(source, row), false};
    if (args.is_text) {
        const uint64_t offset = row < source.row_count ? ((const uint64_t *)source.cells)[row] - (uint64_t)source.origin : source.text_bytes;
        found.value = (int64_t)offset;
        return found;
    }
    if (!found.is_valid || args.cell_bytes == 0) return found;
    if (args.remap) {
        const uint32_t code = ((const uint32_t *)args.remap)[((const uint32_t *)source.cells)[row]];
        found.is_valid = code != NO_CODE;
        found.value = found.is_valid ? code : 0;
        return found;
    }
    switch (args.cell_bytes) {
        case 1: found.value = ((const uint8_t *)source.cells)[row]; return found;
        case 2: found.value = ((const int16_t *)source.cells)[row]; return found;
        case 4: found.value = ((const int32_t *)source.cells)[row]; return found;
        case 8: found.value = ((const int64_t *)source.cells)[row]; return found;
        default: break;
    }
    const uint32_t words = args.cell_bytes / sizeof(uint64_t);
    const uint64_t *cell = (const uint64_t *)source.cells + row * words;
    found.value = (int64_t)cell[0];
    for (uint32_t word = 1; word < words; word++) found.is_beyond |= cell[word] != (uint64_t)((int64_t)cell[0] >> 63);
    return found;
}

// Rows of a block whose distances are stored: of text one more, where it begins behind the last.
DEVICE uint32_t stored_rows(const EncodeSegments &args, const SegmentSource &source, uint64_t number) {
    const uint64_t left = source.row_count - number * SEGMENT_BLOCK_ROWS + (args.is_text != 0);
    return left < SEGMENT_BLOCK_ROWS ? (uint32_t)left : SEGMENT_BLOCK_ROWS;
}

// What a block of a launch is of, and its number there.
DEVICE const SegmentSource &find_source(const EncodeSegments &args, uint64_t block, uint32_t *place) {
    const SegmentSource *sources = (const SegmentSource *)args.sources;
    *place = find_by_block(sources, args.source_count, block, args.block_count);
    return sources[*place];
}

KERNEL(measure_segments, EncodeSegments, BLOCK_THREADS) {
    const uint64_t block = (uint64_t)blockIdx.x * (BLOCK_THREADS / WARP_THREADS) + threadIdx.x / WARP_THREADS;
    if (block >= args.block_count) return;
    uint32_t place;
    const SegmentSource &source = find_source(args, block, &place);
    const uint64_t first = (block - source.first_block) * SEGMENT_BLOCK_ROWS + lane_of_thread();
    const int64_t most = 0x7fffffffffffffffll;
    int64_t least = most, greatest = -most - 1;
    uint32_t null_count = 0;
    bool is_beyond = false;
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint64_t row = first + item * WARP_THREADS;
        const SourceValue found = load_value(args, source, row);
        null_count += row < source.row_count && !found.is_valid;
        is_beyond |= found.is_beyond;
        if (!found.is_valid && !args.is_text) continue;
        least = found.value < least ? found.value : least;
        greatest = found.value > greatest ? found.value : greatest;
    }
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2) {
        const int64_t other_least = __shfl_xor_sync(0xffffffffu, least, distance);
        const int64_t other_greatest = __shfl_xor_sync(0xffffffffu, greatest, distance);
        least = other_least < least ? other_least : least;
        greatest = other_greatest > greatest ? other_greatest : greatest;
    }
    null_count = warp_sum(null_count);
    const uint32_t beyond = __ballot_sync(0xffffffffu, is_beyond);
    if (lane_of_thread() != 0) return;
    const bool has_value = least <= greatest;
    const uint64_t span = has_value ? (uint64_t)greatest - (uint64_t)least : 0;
    const uint32_t width = 64 - (uint32_t)__clzll((long long)span);
    ((SegmentBlock *)args.blocks)[block] = SegmentBlock{has_value ? least : 0, 0, width};
    ((uint32_t *)args.lines)[block] = lines_of(stored_rows(args, source, block - source.first_block), width);
    SegmentMeasure *measure = (SegmentMeasure *)args.measures + place;
    if (has_value) {
        atomicMin((long long *)&measure->least, (long long)least);
        atomicMax((long long *)&measure->greatest, (long long)greatest);
    }
    if (null_count) atomicAdd((unsigned long long *)&measure->null_count, (unsigned long long)null_count);
    if (beyond) atomicMax((unsigned long long *)&measure->beyond, 1ull);
}

KERNEL(pack_segments, EncodeSegments, PACK_THREADS) {
    SHARED uint32_t staged[PACK_THREADS / WARP_THREADS][SEGMENT_BLOCK_ROWS * 2];
    const uint32_t warp = threadIdx.x / WARP_THREADS, lane = lane_of_thread();
    const uint64_t block = (uint64_t)blockIdx.x * (PACK_THREADS / WARP_THREADS) + warp;
    if (block >= args.block_count) return;
    uint32_t place;
    const SegmentSource &source = find_source(args, block, &place);
    const uint64_t number = block - source.first_block, *offsets = (const uint64_t *)args.offsets;
    SegmentBlock head = ((const SegmentBlock *)args.blocks)[block];
    head.first_line = (uint32_t)(offsets[block] - offsets[source.first_block]);
    const uint32_t row_count = stored_rows(args, source, number), word_count = lines_of(row_count, head.width) * SEGMENT_BLOCK_WORDS;
    uint32_t *words = staged[warp];
    if (source.words) {
        for (uint32_t word = lane; word < word_count; word += WARP_THREADS) words[word] = 0;
    }
    __syncwarp();
    uint32_t valid = 0;
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint32_t row = item * WARP_THREADS + lane;
        const SourceValue found = load_value(args, source, number * SEGMENT_BLOCK_ROWS + row);
        valid |= (uint32_t)found.is_valid << item;
        const bool is_stored = source.words && head.width > 0 && row < row_count && (found.is_valid || args.is_text);
        if (is_stored) store_bits(words, row * head.width, (uint64_t)found.value - (uint64_t)head.base, head.width);
    }
    __syncwarp();
    const uint32_t bits = transposed_bits(valid);
    if (source.bits) ((uint32_t *)source.bits)[number * SEGMENT_BLOCK_WORDS + lane] = bits;
    if (!source.words) return;
    uint32_t *target = (uint32_t *)source.words + (uint64_t)head.first_line * SEGMENT_BLOCK_WORDS;
    for (uint32_t word = lane; word < word_count; word += WARP_THREADS) target[word] = words[word];
    if (lane != 0) return;
    SegmentBlock *heads = (SegmentBlock *)source.blocks;
    heads[number] = head;
    const bool is_last = (number + 1) * SEGMENT_BLOCK_ROWS >= source.row_count;
    if (args.is_text && is_last) heads[number + 1] = SegmentBlock{(int64_t)source.text_bytes, 0, 0};
}
