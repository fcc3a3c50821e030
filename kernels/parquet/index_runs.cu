// Finds where to begin within the runs of pages of dictionary indexes or flags, so that they can then be expanded from
// any multiple of RUN_SEGMENT_VALUES on.
//
// Grid:    one warp a page, of which one thread walks over the headers of runs.
// Inputs:  the page, with its levels.
// Outputs: the page's RunSegments, for as many values as it has rows.
// Status:  none: runs that end early do so too from where a segment says.
// Traffic: a header read a run, 16 B written a segment.
// Source:  ours.
#include "page.cuh"
#include "runs.cuh"

KERNEL(index_runs, DecodePages, WARP_THREADS) {
    if (threadIdx.x != 0) return;
    const EncodedPage page = page_at(args, blockIdx.x);
    RunSegment *segments = (RunSegment *)page.index;
    const uint32_t count = page.row_count / RUN_SEGMENT_VALUES + (page.row_count % RUN_SEGMENT_VALUES != 0);
    RunCursor cursor = open_runs(0, 0, 0, 0);
    uint32_t offset;
    bool is_sound = find_values(page, &offset) && offset <= page.values_bytes &&
                    open_indexes(page, page.values + offset, page.values_bytes - offset, &cursor);
    for (uint32_t segment = 0; segment < count; segment++) {
        segments[segment] = is_sound ? segment_of(cursor) : RunSegment{cursor.end, 0, 0, 0};
        is_sound = is_sound && skip_runs(cursor, RUN_SEGMENT_VALUES);
    }
}
