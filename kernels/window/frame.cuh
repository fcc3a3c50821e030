// Runs of rows, and the parts of a row's frame.
#pragma once

#include "../abi/window.h"
#include "../common/launch.h"

// Rows side by side.
struct Span {
    uint32_t first, end;

    METHOD uint32_t count() const { return end - first; }
};

DEVICE uint64_t first_row() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t row_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

DEVICE uint32_t run_of(const RowRuns &runs, uint64_t row) {
    return runs.numbers ? ((const uint32_t *)runs.numbers)[row + 1] - 1 : 0;
}

DEVICE Span span_of_run(const RowRuns &runs, uint32_t run, uint64_t row_count) {
    if (!runs.numbers) return Span{0, (uint32_t)row_count};
    const uint32_t *starts = (const uint32_t *)runs.starts;
    return Span{starts[run], run + 1 < runs.run_count ? starts[run + 1] : (uint32_t)row_count};
}

DEVICE uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
DEVICE uint32_t greatest(uint32_t a, uint32_t b) { return a < b ? b : a; }

#define FRAME_PARTS 3

// What a frame consists of, in order; some may be empty.
struct FrameParts {
    Span parts[FRAME_PARTS];

    METHOD bool is_empty() const { return !(parts[0].count() | parts[1].count() | parts[2].count()); }
};

DEVICE FrameParts parts_of_frame(const WindowFrames &frames, uint64_t row) {
    const Span frame{((const uint32_t *)frames.starts)[row], ((const uint32_t *)frames.ends)[row]};
    if (frames.exclusion == EXCLUDE_NOTHING) return FrameParts{{frame, Span{0, 0}, Span{0, 0}}};
    const uint32_t own = (uint32_t)row;
    Span hole{own, own + 1};
    if (frames.exclusion != EXCLUDE_ROW) hole = span_of_run(frames.peers, run_of(frames.peers, row), frames.row_count);
    const bool keeps_own = frames.exclusion == EXCLUDE_TIES && frame.first <= own && own < frame.end;
    return FrameParts{{Span{frame.first, greatest(least(frame.end, hole.first), frame.first)},
                       keeps_own ? Span{own, own + 1} : Span{0, 0},
                       Span{least(greatest(frame.first, hole.end), frame.end), frame.end}}};
}

// Rows of a frame that count, by how many there are before each row.
DEVICE uint32_t count_of_frame(const FrameParts &frame, uint64_t filled) {
    const uint32_t *before = (const uint32_t *)filled;
    uint32_t count = 0;
#pragma unroll
    for (uint32_t place = 0; place < FRAME_PARTS; place++) {
        const Span &part = frame.parts[place];
        if (part.count()) count += before ? before[part.end] - before[part.first] : part.count();
    }
    return count;
}
