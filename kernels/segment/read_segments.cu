// Rows of segments become cells, or codes: all rows of some ranges, or those of a selection after one another, in their order.
//
// Grid:    a warp has a block of rows.
// Inputs:  segments of any form; bits of the rows, and how many are before each block.
// Outputs: a cell or a code a row; one byte for its validity.
// Traffic: the words of the rows' distances, a cell a row; of text and of entries no bytes, which cells point to.
#include "segment.cuh"
#include "../common/whole_cell.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)

// The rows of a block that are read: numbers in a list, or those from `first` on.
struct ReadRows {
    const uint16_t *listed;
    uint32_t first;
    uint32_t count;
    uint64_t target; // where the first one goes
};

DEVICE uint32_t row_at(const ReadRows &rows, uint32_t place) { return rows.listed ? rows.listed[place] : rows.first + place; }

// Rows whose words a thread has on their way at once.
#define READ_ROWS 4

// Distances of at most 32 bits of the rows: store(row, target, distance).
template <class Store>
DEVICE void each_short(uint64_t address, uint32_t width, const ReadRows &rows, Store store) {
    const uint32_t *words = (const uint32_t *)address;
    for (uint32_t first = lane_of_thread(); first < rows.count; first += WARP_THREADS * READ_ROWS) {
        uint32_t numbers[READ_ROWS], distances[READ_ROWS];
#pragma unroll
        for (uint32_t item = 0; item < READ_ROWS; item++) {
            const uint32_t place = first + item * WARP_THREADS;
            if (place >= rows.count) continue;
            numbers[item] = row_at(rows, place);
            distances[item] = short_distance(words, numbers[item], width);
        }
#pragma unroll
        for (uint32_t item = 0; item < READ_ROWS; item++) {
            const uint32_t place = first + item * WARP_THREADS;
            if (place < rows.count) store(numbers[item], rows.target + place, (uint64_t)distances[item]);
        }
    }
}

template <class Store>
DEVICE void each_distance(uint64_t words, uint32_t width, const ReadRows &rows, Store store) {
    if (width <= 32) return each_short(words, width, rows, store);
    for (uint32_t place = lane_of_thread(); place < rows.count; place += WARP_THREADS) {
        const uint32_t row = row_at(rows, place);
        store(row, rows.target + place, load_wide_bits(words, row * width, width));
    }
}

// Copies cells of 2 to 32 bytes, whose alignment is that of their halves at least.
DEVICE void copy_cell(const SegmentRead &read, uint64_t source, uint64_t row, uint64_t target) {
    switch (read.cell_bytes) {
        case 1: ((uint8_t *)read.values)[target] = ((const uint8_t *)source)[row]; return;
        case 2: ((uint16_t *)read.values)[target] = ((const uint16_t *)source)[row]; return;
        case 4: ((uint32_t *)read.values)[target] = ((const uint32_t *)source)[row]; return;
        default: break;
    }
    const uint32_t words = read.cell_bytes / sizeof(uint64_t);
    for (uint32_t word = 0; word < words; word++) {
        ((uint64_t *)read.values)[target * words + word] = ((const uint64_t *)source)[row * words + word];
    }
}

DEVICE void read_distances(const SegmentRead &read, const SegmentView &view, const SegmentBlock &head, uint64_t number, const ReadRows &rows) {
    const uint64_t words = words_of(view, head), values = read.values, base = (uint64_t)head.base;
    if (read.kind == READ_CODES) {
        const uint64_t validity = view.validity, first = number * SEGMENT_BLOCK_ROWS;
        const uint32_t null_code = read.null_code;
        return each_distance(words, head.width, rows, [=](uint32_t row, uint64_t target, uint64_t distance) {
            const bool is_valid = !validity || bit_of(validity, first + row);
            ((uint32_t *)values)[target] = is_valid ? (uint32_t)(base + distance) : null_code;
        });
    }
    if (view.texts) {
        const StringCell *entries = (const StringCell *)view.texts;
        return each_distance(words, head.width, rows, [=](uint32_t, uint64_t target, uint64_t distance) {
            ((StringCell *)values)[target] = entries[base + distance];
        });
    }
    switch (read.cell_bytes) {
        case 1:
            return each_distance(words, head.width, rows, [=](uint32_t, uint64_t target, uint64_t distance) {
                ((uint8_t *)values)[target] = (uint8_t)(base + distance);
            });
        case 2:
            return each_distance(words, head.width, rows, [=](uint32_t, uint64_t target, uint64_t distance) {
                ((uint16_t *)values)[target] = (uint16_t)(base + distance);
            });
        case 4:
            return each_distance(words, head.width, rows, [=](uint32_t, uint64_t target, uint64_t distance) {
                ((uint32_t *)values)[target] = (uint32_t)(base + distance);
            });
        case 8:
            return each_distance(words, head.width, rows, [=](uint32_t, uint64_t target, uint64_t distance) {
                ((uint64_t *)values)[target] = base + distance;
            });
        default: break;
    }
    const uint32_t halves = read.cell_bytes / sizeof(Cell16);
    each_distance(words, head.width, rows, [=](uint32_t, uint64_t target, uint64_t distance) {
        const uint64_t value = base + distance, sign = (uint64_t)((int64_t)value >> 63);
        Cell16 *cell = (Cell16 *)values + target * halves;
        cell[0] = Cell16{value, sign};
        if (halves > 1) cell[1] = Cell16{sign, sign};
    });
}

DEVICE void read_text(const SegmentRead &read, const SegmentView &view, const SegmentBlock &head, uint64_t number, const ReadRows &rows) {
    const uint64_t words = words_of(view, head);
    const uint64_t end = (uint64_t)head_of(view, number + 1).base - (uint64_t)head.base;
    for (uint32_t place = lane_of_thread(); place < rows.count; place += WARP_THREADS) {
        const uint32_t row = row_at(rows, place);
        const uint64_t start = load_wide_bits(words, row * head.width, head.width);
        const uint64_t next = row + 1 < SEGMENT_BLOCK_ROWS ? load_wide_bits(words, (row + 1) * head.width, head.width) : end;
        const uint64_t address = view.texts + (uint64_t)head.base + start;
        ((StringCell *)read.values)[rows.target + place] = StringCell{address, (uint32_t)(next - start), 0};
    }
}

DEVICE void read_column(const SegmentRead &read, const PlacedBlock &placed, const ReadRows &rows) {
    const uint64_t first = placed.number * SEGMENT_BLOCK_ROWS;
    if (read.kind == READ_PLACES) {
        for (uint32_t place = lane_of_thread(); place < rows.count; place += WARP_THREADS) {
            ((uint32_t *)read.values)[rows.target + place] = (uint32_t)(placed.target_origin + (int64_t)(first + row_at(rows, place)));
        }
        return;
    }
    const SegmentView &view = placed.views[read.column];
    if (view.form == SEGMENT_CELLS) {
        for (uint32_t place = lane_of_thread(); place < rows.count; place += WARP_THREADS) {
            copy_cell(read, view.words, first + row_at(rows, place), rows.target + place);
        }
    } else {
        const SegmentBlock head = head_of(view, placed.number);
        if (view.form == SEGMENT_TEXT) {
            read_text(read, view, head, placed.number, rows);
        } else {
            read_distances(read, view, head, placed.number, rows);
        }
    }
    if (!read.validity) return;
    for (uint32_t place = lane_of_thread(); place < rows.count; place += WARP_THREADS) {
        ((uint8_t *)read.validity)[rows.target + place] = !view.validity || bit_of(view.validity, first + row_at(rows, place));
    }
}

KERNEL_RESIDENT(read_segments, ReadSegments, BLOCK_THREADS, 3) {
    SHARED uint16_t lists[WARPS][SEGMENT_BLOCK_ROWS];
    const uint32_t warp = threadIdx.x / WARP_THREADS;
    const uint64_t block = (uint64_t)blockIdx.x * WARPS + warp;
    if (block >= args.rows.block_count) return;
    ReadRows rows = {nullptr, 0, 0, 0};
    if (args.selection.bits) {
        const uint32_t word = ((const uint32_t *)args.selection.bits)[block * SEGMENT_BLOCK_WORDS + lane_of_thread()];
        const uint32_t own = (uint32_t)__popc(word), sum = warp_inclusive_sum(own);
        rows.count = __shfl_sync(0xffffffffu, sum, WARP_THREADS - 1);
        if (rows.count == 0) return;
        rows.target = ((const uint64_t *)args.selection.offsets)[block];
        if (rows.count < SEGMENT_BLOCK_ROWS) {
            list_rows(word, sum - own, lists[warp]);
            rows.listed = lists[warp];
        }
    }
    const PlacedBlock placed = place_block(args.rows, block);
    if (!args.selection.bits) {
        rows.first = placed.first;
        rows.count = placed.end - placed.first;
        rows.target = (uint64_t)(placed.target_origin + (int64_t)(placed.number * SEGMENT_BLOCK_ROWS + placed.first));
    }
    for (uint32_t place = 0; place < args.read_count; place++) read_column(args.reads[place], placed, rows);
}
