// Numbers of rows in their partitions, rows that are found by their place, and counts of frames.
//
// Grid:    any number of blocks; threads stride over the rows.
// Traffic: reads the runs or the frame of each row and writes its result; count_frames also reads the counts before the frame's first
//          row and behind its last one.
#include "frame.cuh"

// The part, from 1, of a row's place if so many rows are divided into so many parts; the first ones have a row more.
DEVICE uint32_t part_of(uint32_t place, uint32_t row_count, uint32_t parts) {
    const uint32_t each = row_count / parts, longer = row_count % parts;
    const uint32_t in_longer = longer * (each + 1);
    return 1 + (place < in_longer ? place / (each + 1) : longer + (place - in_longer) / each);
}

KERNEL(number_rows, NumberRows, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        const Span partition = span_of_run(args.partitions, run_of(args.partitions, row), args.row_count);
        const uint32_t group = run_of(args.peers, row), rows = partition.count();
        const Span own = span_of_run(args.peers, group, args.row_count);
        int64_t *numbers = (int64_t *)args.target;
        double *shares = (double *)args.target;
        switch (args.kind) {
            case NUMBER_ROW: numbers[row] = row - partition.first + 1; break;
            case NUMBER_RANK: numbers[row] = own.first - partition.first + 1; break;
            case NUMBER_DENSE_RANK: numbers[row] = group - run_of(args.peers, partition.first) + 1; break;
            case NUMBER_PERCENT_RANK:
                shares[row] = rows == 1 ? 0.0 : (double)(own.first - partition.first) / (double)(rows - 1);
                break;
            case NUMBER_CUME_DIST: shares[row] = (double)(own.end - partition.first) / (double)rows; break;
            default: ((int32_t *)args.target)[row] = (int32_t)part_of((uint32_t)row - partition.first, rows, args.parts);
        }
    }
}

// The row of a frame with a number, from 1.
DEVICE uint32_t nth_row(const FrameParts &frame, int64_t number) {
    uint32_t found = NO_ROW;
#pragma unroll
    for (uint32_t place = 0; place < FRAME_PARTS; place++) {
        const Span &part = frame.parts[place];
        if (found == NO_ROW && number > 0 && number <= part.count()) found = part.first + (uint32_t)(number - 1);
        number -= part.count();
    }
    return found;
}

DEVICE uint32_t last_row(const FrameParts &frame) {
    uint32_t found = NO_ROW;
#pragma unroll
    for (uint32_t place = 0; place < FRAME_PARTS; place++) {
        if (frame.parts[place].count()) found = frame.parts[place].end - 1;
    }
    return found;
}

DEVICE uint32_t row_before(const FindRows &args, uint64_t row) {
    const Span partition = span_of_run(args.partitions, run_of(args.partitions, row), args.row_count);
    const int64_t place = (int64_t)row - args.number;
    return partition.first <= place && place < partition.end ? (uint32_t)place : NO_ROW;
}

KERNEL(find_rows, FindRows, BLOCK_THREADS) {
    uint32_t *rows = (uint32_t *)args.rows;
    for (uint64_t row = first_row(); row < args.row_count; row += row_step()) {
        switch (args.kind) {
            case FIND_LAG: rows[row] = row_before(args, row); break;
            case FIND_FIRST: rows[row] = nth_row(parts_of_frame(args.frames, row), 1); break;
            case FIND_LAST: rows[row] = last_row(parts_of_frame(args.frames, row)); break;
            default: rows[row] = nth_row(parts_of_frame(args.frames, row), args.number);
        }
    }
}

KERNEL(count_frames, CountFrames, BLOCK_THREADS) {
    for (uint64_t row = first_row(); row < args.frames.row_count; row += row_step()) {
        ((int64_t *)args.target)[row] = count_of_frame(parts_of_frame(args.frames, row), args.filled);
    }
}
