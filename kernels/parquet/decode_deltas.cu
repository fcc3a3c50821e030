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
static_assert(DELTA_SEGMENT_VALUES * WARPS == SLICE_ROWS, "a warp has one segment of a slice that starts with one");

// Values of a page, as convert_rows takes them from `scratch`.
struct ValueWindow {
    uint64_t *values;
    uint32_t first, end;

    METHOD void put(uint32_t place, uint64_t value) {
        if (place >= first && place < end) values[place - first] = value;
    }
};

// Decodes a segment as numbers of the type, whose sums wrap around. Every thread of a warp calls it.
template <class Number, class Put>
DEVICE bool decode_segment(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, Put put) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const bool is_last = stream.count - first < DELTA_SEGMENT_VALUES;
    const uint32_t end = is_last ? stream.count : first + DELTA_SEGMENT_VALUES;
    Number value = (Number)segment.value;
    uint32_t at = segment.block;
    const bool is_sound = walk_deltas(stream, &at, first, end, [&](uint32_t place, bool is_there, uint64_t difference) {
        const Number sum = warp_inclusive_sum((Number)difference);
        put(place, is_there, value + sum - (Number)difference);
        value += __shfl_sync(0xffffffffu, sum, WARP_THREADS - 1);
    });
    // No difference leads on from the page's last value.
    if (is_last) put(stream.count, lane == 0, value);
    return is_sound;
}

DEVICE bool decode_integers(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, bool is_narrow, ValueWindow window) {
    if (!is_narrow) {
        return decode_segment<uint64_t>(stream, segment, first, [&](uint32_t place, bool is_there, uint64_t value) {
            if (is_there) window.put(place, value);
        });
    }
    return decode_segment<uint32_t>(stream, segment, first, [&](uint32_t place, bool is_there, uint32_t value) {
        if (is_there) window.put(place, (uint64_t)(int64_t)(int32_t)value);
    });
}

// Strings lie one after another, the segment's first at `offset`.
DEVICE bool decode_lengths(const DeltaStream &stream, const DeltaSegment &segment, uint32_t first, uint32_t offset, ValueWindow window) {
    bool fits = true;
    const bool is_sound = decode_segment<uint32_t>(stream, segment, first, [&](uint32_t place, bool is_there, uint32_t value) {
        uint32_t length = is_there ? value : 0;
        const uint32_t sum = warp_inclusive_sum(length);
        StringPlace string = StringPlace{offset + sum - length, length};
        offset += __shfl_sync(0xffffffffu, sum, WARP_THREADS - 1);
        // A negative length is longer than any page.
        if ((uint64_t)string.offset + string.length > stream.end) {
            fits = false;
            string = StringPlace{0, 0};
        }
        if (is_there) window.put(place, (uint64_t)string.length << 32 | string.offset);
    });
    return is_sound && fits;
}

// Decodes the values of a window of a page. Every thread of the block calls it.
DEVICE bool decode_window(const EncodedPage &page, uint32_t value_count, ValueWindow window) {
    const DeltaIndex index = *(const DeltaIndex *)page.deltas;
    const DeltaSegment *segments = (const DeltaSegment *)((const DeltaIndex *)page.deltas + 1);
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
        } else {
            is_sound = decode_integers(stream, start, first, page.delta_form == DELTA_INT32, window) && is_sound;
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
    slice.page.scratch = (uint64_t)values - (uint64_t)first * sizeof(uint64_t);
    // Values of a page that can't be read are not looked at.
    slice.capacity = failed ? 0 : end;
    return slice;
}

KERNEL_RESIDENT(decode_deltas, DecodePages, BLOCK_THREADS, 5) {
    SHARED uint64_t values[SLICE_ROWS];
    const PageSlice place = ((const PageSlice *)args.list)[blockIdx.x];
    const Slice slice = decoded_slice(args, place, values);
    switch (slice.column.conversion) {
        case CONVERT_BITS: convert_rows<ConvertBits>(slice, place); break;
        case CONVERT_INTEGER:
        case CONVERT_NANOSECONDS: convert_rows<ConvertInteger>(slice, place); break;
        case CONVERT_WIDE_INTEGER: convert_rows<ConvertWideInteger>(slice, place); break;
        case CONVERT_DECIMAL: convert_rows<ConvertDecimal>(slice, place); break;
        default: convert_rows<ConvertString>(slice, place);
    }
}

// decode_deltas for columns whose cells have 256 bits, which take more registers.
KERNEL(decode_large_deltas, DecodePages, BLOCK_THREADS) {
    SHARED uint64_t values[SLICE_ROWS];
    const PageSlice place = ((const PageSlice *)args.list)[blockIdx.x];
    const Slice slice = decoded_slice(args, place, values);
    if (slice.column.conversion == CONVERT_WIDE_INTEGER) {
        convert_rows<ConvertLargeInteger>(slice, place);
    } else {
        convert_rows<ConvertLargeDecimal>(slice, place);
    }
}
