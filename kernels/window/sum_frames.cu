// Sums of frames, as the difference of the sums before their ends.
//
// Grid:    sum_tiles, write_sums: ceil(row_count / TILE_ROWS) blocks; sum_frames: any number, threads stride over the rows.
// Ordering: sums wrap and so do differences: the sum of a frame is right if it fits its bits, whatever those before each row do.
// Status:  sum_frames: overflow_code for a sum that does not fit its cell.
// Traffic: addends are read twice, and a sum a row is written; sum_frames reads two of them a row.
// Source:  scan.cuh; differences instead of a tree of partial sums, which Leis et al., VLDB 2015, section 4.4, have for any aggregate.
#include "../common/cell.cuh"
#include "../common/report_error.cuh"
#include "frame.cuh"
#include "scan.cuh"

DEVICE int128 narrow_addend(const ColumnView &column, uint64_t row) {
    switch (column.cell_type) {
        case CELL_INT16: return cell_at<int16_t>(column, row);
        case CELL_INT32: return cell_at<int32_t>(column, row);
        case CELL_INT64: return cell_at<int64_t>(column, row);
        default: return cell_at<int128>(column, row);
    }
}

// Sums of 128 bits.
struct NarrowSums {
    typedef uint128 Value;
    const ColumnView &addends;

    METHOD Value none() const { return 0; }
    METHOD Value at(uint64_t row) const { return cell_is_null(addends, row) ? 0 : (uint128)narrow_addend(addends, row); }
    METHOD Value join(Value before, Value own) const { return before + own; }
};

// Sums of 256 bits.
struct LargeSums {
    typedef uint256 Value;
    const ColumnView &addends;

    METHOD Value none() const { return uint256{0, 0}; }
    METHOD Value at(uint64_t row) const {
        if (cell_is_null(addends, row)) return none();
        if (addends.cell_type == CELL_INT256) return bits_of(cell_at<int256>(addends, row));
        return bits_of(int256_of(narrow_addend(addends, row)));
    }
    METHOD Value join(const Value &before, const Value &own) const { return before + own; }
};

template <class Sums>
DEVICE void sum_tile(const SumRows &args) {
    const Sums sums{args.addends};
    typename Sums::Value total;
    join_threads(sums, join_rows(sums, args.row_count), &total);
    if (threadIdx.x == 0) ((typename Sums::Value *)args.tile_sums)[blockIdx.x] = total;
}

template <class Sums>
DEVICE void write_tile(const SumRows &args) {
    const Sums sums{args.addends};
    typename Sums::Value total, sum = join_threads(sums, join_rows(sums, args.row_count), &total);
    if (args.sums_above) sum = sums.join(((const typename Sums::Value *)args.sums_above)[blockIdx.x], sum);
    typename Sums::Value *target = (typename Sums::Value *)args.sums;
    const uint64_t first = scanned_row();
    if (first == 0) target[0] = sums.none();
    for (uint32_t item = 0; item < SCAN_THREAD_ROWS && first + item < args.row_count; item++) {
        sum = sums.join(sum, sums.at(first + item));
        target[first + item + 1] = sum;
    }
}

KERNEL(sum_tiles, SumRows, BLOCK_THREADS) { sum_tile<NarrowSums>(args); }
KERNEL(write_sums, SumRows, BLOCK_THREADS) { write_tile<NarrowSums>(args); }
KERNEL(sum_large_tiles, SumRows, BLOCK_THREADS) { sum_tile<LargeSums>(args); }
KERNEL(write_large_sums, SumRows, BLOCK_THREADS) { write_tile<LargeSums>(args); }

// Writes a sum as a cell of so many bytes; returns whether it fits.
DEVICE bool write_cell(uint64_t cell, uint32_t cell_bytes, uint128 sum) {
    if (cell_bytes == 8) {
        *(int64_t *)cell = (int64_t)sum;
        return (int128)sum == (int128)(int64_t)sum;
    }
    *(uint128 *)cell = sum;
    return true;
}

DEVICE bool write_cell(uint64_t cell, uint32_t cell_bytes, const uint256 &sum) {
    if (cell_bytes == 32) {
        *(uint256 *)cell = sum;
        return true;
    }
    // The upper words repeat the sign of the 128 bits.
    const bool fits = sum.high == ((int128)sum.low < 0 ? ~(uint128)0 : (uint128)0);
    return write_cell(cell, cell_bytes, sum.low) && fits;
}

template <class Sum>
DEVICE void sum_rows_of_frames(const SumFrames &args, Sum none) {
    const Sum *before = (const Sum *)args.sums;
    for (uint64_t row = first_row(); row < args.frames.row_count; row += row_step()) {
        const FrameParts frame = parts_of_frame(args.frames, row);
        const bool has_addends = count_of_frame(frame, args.filled) > 0;
        ((uint8_t *)args.validity)[row] = has_addends;
        Sum sum = none;
#pragma unroll
        for (uint32_t place = 0; place < FRAME_PARTS; place++) {
            const Span &part = frame.parts[place];
            if (part.count()) sum = sum + (before[part.end] - before[part.first]);
        }
        const bool fits = write_cell(args.values + row * args.cell_bytes, args.cell_bytes, sum);
        if (has_addends && !fits) report_error(args.status, args.overflow_code, args.overflow_detail);
    }
}

KERNEL(sum_frames, SumFrames, BLOCK_THREADS) { sum_rows_of_frames<uint128>(args, 0); }
KERNEL(sum_large_frames, SumFrames, BLOCK_THREADS) { sum_rows_of_frames<uint256>(args, uint256{0, 0}); }
