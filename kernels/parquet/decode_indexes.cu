// Expands runs of dictionary indexes into the dictionary's cells or into codes, and runs of flags into booleans.
//
// Grid:    one block a listed slice of at most SLICE_ROWS rows of a page of source SOURCE_INDEXES or SOURCE_FLAGS.
// Inputs:  the page, its RunSegments, its state, and the dictionary's cells.
// Outputs: the column's cells and validity of the slice's rows.
// Status:  ERROR_PAGE if runs end early; ERROR_DICTIONARY_INDEX; the fault of a dictionary's entry that is used.
// Traffic: bit width of an index read, a cell read from the dictionary (mostly from cache) and written a row.
// Source:  one walker and many expanders, as libcudf's page decoder; here every warp has a walker, which begins near the
//          warp's rows, at a place that index_runs has found, so that a page is expanded by many warps at once.
#include "page.cuh"
#include "runs.cuh"

// Rows of a warp.
#define WARP_ROWS (SLICE_ROWS / (BLOCK_THREADS / WARP_THREADS))

template <class T>
DEVICE void copy_cell_as(const PageColumn &column, bool valid, uint64_t entry, uint64_t row) {
    ((T *)column.values)[row] = valid ? ((const T *)column.dictionary)[entry] : T{};
}

// A NULL's cell is zeros: whoever copies whole columns copies it too.
DEVICE void copy_cell(const PageColumn &column, bool valid, uint32_t entry, uint64_t row) {
    switch (column.cell_bytes) {
        case 1: copy_cell_as<uint8_t>(column, valid, entry, row); break;
        case 2: copy_cell_as<uint16_t>(column, valid, entry, row); break;
        case 4: copy_cell_as<uint32_t>(column, valid, entry, row); break;
        case 8: copy_cell_as<uint64_t>(column, valid, entry, row); break;
        default: { // 16 or 32
            const uint32_t parts = column.cell_bytes / 16;
            for (uint32_t part = 0; part < parts; part++) {
                copy_cell_as<Cell16>(column, valid, (uint64_t)entry * parts + part, row * parts + part);
            }
        }
    }
}

// Five blocks a multiprocessor: other warps expand while one reads headers.
KERNEL_RESIDENT(decode_indexes, DecodePages, BLOCK_THREADS, 5) {
    SHARED RunTable<WARP_ROWS> tables[BLOCK_THREADS / WARP_THREADS];
    const PageSlice slice = ((const PageSlice *)args.list)[blockIdx.x];
    const uint32_t lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    const uint32_t first = warp * WARP_ROWS;
    if (first >= slice.row_count) return;
    const uint32_t end = slice.row_count - first < WARP_ROWS ? slice.row_count : first + WARP_ROWS;
    const uint32_t number = slice.page;
    const EncodedPage page = page_at(args, number);
    const PageColumn column = column_at(args, page.column);
    const PageState state = state_at(args, number);
    const uint32_t dense = state.dense, value_count = state.value_count;
    const uint64_t data = page.values + state.values_offset;
    const bool is_flags = page.source == SOURCE_FLAGS;
    const bool is_codes = column.flags & COLUMN_CODES;
    const bool has_faults = !is_flags && state_at(args, column.dictionary_page).faulty;
    // Values of the page before the warp's rows, and before their end. A page has less than 2^31 rows.
    const uint32_t before = values_before(page, dense, value_count, slice.first_row + first);
    const uint32_t after = values_before(page, dense, value_count, slice.first_row + end);
    RunTable<WARP_ROWS> &table = tables[warp];
    uint32_t width = 0, failed = 0;
    // Rows without values need not have runs.
    if (lane == 0 && after > before) {
        RunCursor cursor = open_runs(0, 0, 0, 0);
        failed = !open_indexes(page, data, value_bytes(page, state), &cursor);
        if (!failed) {
            resume_runs(cursor, ((const RunSegment *)page.index)[before / RUN_SEGMENT_VALUES]);
            failed = !skip_runs(cursor, before % RUN_SEGMENT_VALUES) || !list_runs(cursor, table, after - before);
        }
        width = cursor.width;
        if (failed) report_error(args.status, ERROR_PAGE, number);
    }
    width = __shfl_sync(0xffffffffu, width, 0);
    if (__shfl_sync(0xffffffffu, failed, 0)) return;
    __syncwarp();
    for (uint32_t within = first + lane; within < end; within += WARP_THREADS) {
        const uint64_t target = (uint64_t)slice.target_row + within;
        uint32_t index;
        const bool valid = find_value(page, dense, slice.first_row + within, &index);
        const uint32_t entry = valid ? run_value(table, data, width, index - before) : 0;
        if (column.validity) ((uint8_t *)column.validity)[target] = valid;
        if (is_flags) {
            ((uint8_t *)column.values)[target] = entry != 0;
        } else if (valid && entry >= column.dictionary_count) {
            report_error(args.status, ERROR_DICTIONARY_INDEX, number);
        } else {
            if (is_codes) {
                ((uint32_t *)column.values)[target] = valid ? column.first_code + entry : column.null_code;
            } else {
                copy_cell(column, valid, entry, target);
            }
            uint8_t fault = has_faults && valid ? ((const uint8_t *)column.faults)[entry] : 0;
            if (fault) report_error(args.status, fault, number);
        }
    }
}
