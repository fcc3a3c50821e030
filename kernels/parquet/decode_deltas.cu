// Decodes integers and lengths of strings that are stored as differences, and converts them into cells.
//
// Grid:    one block a listed slice of at most SLICE_ROWS rows of a page.
// Inputs:  the page, its DeltaIndex, and its levels' words.
// Outputs: the column's cells and validity of the slice's rows. String cells point into the page.
// Status:  ERROR_PAGE if differences or lengths are not possible or too few; those of convert_values.
// Traffic: the encoded values of the slice read and a cell written a row; 16 B of index read a segment.
// Source:  Parquet's Encodings.md, "Delta encoding". A warp decodes a segment of the page's index into shared memory, of
//          which rows then take their values, so that neither NULLs nor selected rows matter to a warp.
#include "../common/block.cuh"
#include "convert.cuh"
#include "deltas.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)
static_assert(DELTA_SEGMENT_VALUES == WARP_DELTAS, "a warp takes a segment at once");
static_assert(DELTA_SEGMENT_VALUES * WARPS == SLICE_ROWS, "a warp has one segment of a slice that starts with one");

// Values of a page that a slice needs, and where they are put.
struct ValueWindow {
    uint64_t *values;
    uint32_t first, end;

    METHOD void put(uint32_t place, uint64_t value) {
        if (place >= first && place < end) values[window_place(place - first)] = value;
    }
    // Whether segments lie in it as a whole, but for the last one, which may go on past the values that are needed.
    METHOD bool has_segments() const { return first % DELTA_SEGMENT_VALUES == 0; }
    // Where the THREAD_DELTAS values from a place on go, one after another.
    METHOD uint64_t *at(uint32_t place) { return values + window_place(place - first); }
};
static_assert(THREAD_DELTAS == 8, "the values of a thread lie one after another in a window");

// Decodes the values from `first` on, THREAD_DELTAS a thread, as numbers of a type whose sums wrap around. A thread's
// values beyond the page's last have no meaning. Every thread of a warp calls it.
template <class Number>
DEVICE bool decode_segment(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, Number *values) {
    const uint32_t end = stream.count - first < DELTA_SEGMENT_VALUES ? stream.count : first + DELTA_SEGMENT_VALUES;
    uint32_t at = segment.block;
    ThreadDeltas own;
    const bool is_sound = find_deltas(stream, &at, first, end, &own);
    unpack_all_deltas(stream, own, values);
    // A difference leads to the value after its own place.
    Number sum = 0;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        const Number difference = values[item];
        values[item] = sum;
        sum += difference;
    }
    const Number before = (Number)segment.value + warp_inclusive_sum(sum) - sum;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) values[item] += before;
    return is_sound;
}

// The place of the thread's first value of a segment.
DEVICE uint32_t own_place(uint32_t first) { return first + threadIdx.x % WARP_THREADS * THREAD_DELTAS; }

template <class Number, class Signed>
DEVICE bool decode_integers(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, ValueWindow window) {
    Number values[THREAD_DELTAS];
    const bool is_sound = decode_segment(stream, segment, first, values);
    if (window.has_segments()) {
        uint64_t *own = window.at(own_place(first));
#pragma unroll
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) own[item] = (uint64_t)(int64_t)(Signed)values[item];
        return is_sound;
    }
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        window.put(own_place(first) + item, (uint64_t)(int64_t)(Signed)values[item]);
    }
    return is_sound;
}

// Strings lie one after another, the segment's first at `offset`.
DEVICE bool decode_lengths(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, uint32_t offset, ValueWindow window) {
    uint32_t lengths[THREAD_DELTAS];
    bool is_sound = decode_segment(stream, segment, first, lengths);
    uint32_t sum = 0;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        if (own_place(first) + item > stream.count) lengths[item] = 0;
        sum += lengths[item];
    }
    offset += warp_inclusive_sum(sum) - sum;
    for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
        // A negative length is longer than any page.
        if ((uint64_t)offset + lengths[item] > stream.end) is_sound = false;
        window.put(own_place(first) + item, (uint64_t)lengths[item] << 32 | offset);
        offset += lengths[item];
    }
    return is_sound;
}

// Decodes the values of a window of a page. Every thread of the block calls it.
DEVICE bool decode_window(const EncodedPage &page, uint32_t value_count, ValueWindow window) {
    const DeltaIndex index = *(const DeltaIndex *)page.index;
    const DeltaSegment *segments = (const DeltaSegment *)((const DeltaIndex *)page.index + 1);
    if (window.first >= window.end) return true;
    if (!index.is_sound || index.value_count != value_count) return false;
    const DeltaStream stream = DeltaStream{page.values,      page.values_bytes,      index.value_count - 1,
                                           index.miniblocks, index.miniblock_values, delta_width_max(page)};
    bool is_sound = true;
    uint32_t segment = window.first / DELTA_SEGMENT_VALUES + threadIdx.x / WARP_THREADS;
    for (; segment * DELTA_SEGMENT_VALUES < window.end; segment += WARPS) {
        const DeltaSegment start = segments[segment];
        const uint32_t first = segment * DELTA_SEGMENT_VALUES;
        if (page.delta_form == DELTA_LENGTHS) {
            is_sound = decode_lengths(stream, start, first, index.end + start.place, window) && is_sound;
        } else if (page.delta_form == DELTA_INT32) {
            is_sound = decode_integers<uint32_t, int32_t>(stream, start, first, window) && is_sound;
        } else {
            is_sound = decode_integers<uint64_t, int64_t>(stream, start, first, window) && is_sound;
        }
    }
    return is_sound;
}

// A slice with its values in `values`. Every thread of the block calls it.
DEVICE Slice decoded_slice(const DecodePages &args, const PageSlice &place, uint64_t *values) {
    SHARED uint32_t failed;
    uint32_t first, end;
    if (threadIdx.x == 0) failed = 0;
    __syncthreads();
    {
        const EncodedPage &page = page_at(args, place.page);
        const PageState state = state_at(args, place.page);
        first = values_before(page, state.dense, state.value_count, place.first_row);
        end = values_before(page, state.dense, state.value_count, place.first_row + place.row_count);
        if (!decode_window(page, state.value_count, ValueWindow{values, first, end})) failed = 1;
    }
    __syncthreads();
    Slice slice = slice_of(args, place);
    slice.wide = ((const DeltaIndex *)slice.page.index)->wide;
    slice.window = values;
    slice.window_first = first;
    // Values of a page that can't be read are not looked at.
    slice.capacity = failed ? 0 : end;
    return slice;
}

// convert_rows<ConvertInteger> for a slice without NULLs and cells of the type, whose values are all there.
template <class Cell>
DEVICE void convert_integers(const Slice &slice, const PageSlice &place) {
    const PageColumn &column = slice.column;
    const int64_t least = (int64_t)column.least[0], greatest = (int64_t)column.greatest[0], factor = (int64_t)column.factor[0];
    const uint32_t shift = column.shift;
    const bool is_unsigned = column.flags & COLUMN_UNSIGNED;
    Cell *cells = (Cell *)column.values + place.target_row;
    uint8_t *validity = column.validity ? (uint8_t *)column.validity + place.target_row : nullptr;
    const uint64_t *window = slice.window + window_place(threadIdx.x);
#pragma unroll
    for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
        const uint32_t within = item * BLOCK_THREADS + threadIdx.x;
        if (within >= place.row_count) break;
        uint64_t bits = window[item * (BLOCK_THREADS + BLOCK_THREADS / 8)];
        if (shift) bits = is_unsigned ? bits << shift >> shift : (uint64_t)((int64_t)(bits << shift) >> shift);
        int64_t value = (int64_t)bits;
        if (value < least || value > greatest) {
            fail_value(slice, (uint64_t)place.target_row + within, ERROR_VALUE_RANGE);
            value = 0;
        }
        cells[within] = (Cell)(factor == 1 ? value : value * factor);
        if (validity) validity[within] = 1;
    }
}

KERNEL_RESIDENT(decode_deltas, DecodePages, BLOCK_THREADS, 4) {
    SHARED uint64_t values[WINDOW_WORDS];
    const PageSlice place = ((const PageSlice *)args.list)[blockIdx.x];
    const Slice slice = decoded_slice(args, place, values);
    const uint32_t conversion = slice.column.conversion, cell_bytes = slice.column.cell_bytes;
    const bool is_integer = conversion == CONVERT_BITS || conversion == CONVERT_INTEGER;
    if (is_integer && slice.state.dense && slice.capacity && cell_bytes == 4) {
        convert_integers<int32_t>(slice, place);
    } else if (is_integer && slice.state.dense && slice.capacity && cell_bytes == 8) {
        convert_integers<int64_t>(slice, place);
    } else if (is_integer || conversion == CONVERT_NANOSECONDS) {
        convert_rows<ConvertInteger>(slice, place);
    } else if (conversion == CONVERT_WIDE_INTEGER) {
        convert_rows<ConvertWideInteger>(slice, place);
    } else if (conversion == CONVERT_DECIMAL) {
        convert_rows<ConvertDecimal>(slice, place);
    } else {
        convert_rows<ConvertString>(slice, place);
    }
}

// decode_deltas for columns whose cells have 256 bits, which take more registers.
KERNEL_RESIDENT(decode_large_deltas, DecodePages, BLOCK_THREADS, 4) {
    SHARED uint64_t values[WINDOW_WORDS];
    const PageSlice place = ((const PageSlice *)args.list)[blockIdx.x];
    const Slice slice = decoded_slice(args, place, values);
    if (slice.column.conversion == CONVERT_WIDE_INTEGER) {
        convert_rows<ConvertLargeInteger>(slice, place);
    } else {
        convert_rows<ConvertLargeDecimal>(slice, place);
    }
}
