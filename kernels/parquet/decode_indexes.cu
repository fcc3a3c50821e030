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

// Rows of a lane at once: their indexes, and then their entries, are on their way together.
#define INDEX_ROWS 4

// Rows of a lane, WARP_THREADS apart.
struct IndexRows {
    uint64_t target; // the row of the column that the first one becomes
    uint32_t entries[INDEX_ROWS]; // 0 for NULL
    bool is_there[INDEX_ROWS];
    bool is_valid[INDEX_ROWS];
};

template <class T, class Cell>
DEVICE void store_rows(const IndexRows &rows, uint64_t values, Cell cell) {
    T cells[INDEX_ROWS];
#pragma unroll
    for (uint32_t item = 0; item < INDEX_ROWS; item++) cells[item] = rows.is_there[item] && rows.is_valid[item] ? (T)cell(item) : T{};
#pragma unroll
    for (uint32_t item = 0; item < INDEX_ROWS; item++) {
        if (rows.is_there[item]) ((T *)values)[rows.target + item * WARP_THREADS] = cells[item];
    }
}

template <class T>
DEVICE void copy_cells_as(const PageColumn &column, const IndexRows &rows) {
    store_rows<T>(rows, column.values, [&](uint32_t item) { return ((const T *)column.dictionary)[rows.entries[item]]; });
}

// A NULL's cell is zero, because copies of whole columns include it.
DEVICE void copy_cells(const PageColumn &column, const IndexRows &rows) {
    switch (column.cell_bytes) {
        case 1: copy_cells_as<uint8_t>(column, rows); break;
        case 2: copy_cells_as<uint16_t>(column, rows); break;
        case 4: copy_cells_as<uint32_t>(column, rows); break;
        case 8: copy_cells_as<uint64_t>(column, rows); break;
        case 32: copy_cells_as<Cell32>(column, rows); break;
        default: copy_cells_as<Cell16>(column, rows);
    }
}

// Four blocks a multiprocessor: other warps expand while one reads headers, and a lane has registers for several rows.
KERNEL_RESIDENT(decode_indexes, DecodePages, BLOCK_THREADS, 4) {
    SHARED RunTable<WARP_ROWS> tables[BLOCK_THREADS / WARP_THREADS];
    SHARED SliceWork work;
    take_slice(args, work);
    const PageSlice slice = work.slice;
    const uint32_t lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    const uint32_t first = warp * WARP_ROWS;
    if (first >= slice.row_count) return;
    const uint32_t end = slice.row_count - first < WARP_ROWS ? slice.row_count : first + WARP_ROWS;
    const uint32_t number = slice.page;
    const EncodedPage page = work.page;
    const PageColumn column = work.column;
    const PageState state = work.state;
    const uint32_t dense = state.dense, value_count = state.value_count;
    const uint64_t data = page.values + state.values_offset;
    const bool is_flags = page.source == SOURCE_FLAGS;
    const bool is_codes = column.flags & COLUMN_CODES;
    const bool has_faults = !is_flags && column.faults && state_at(args, column.dictionary_page).faulty;
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
    for (uint32_t start = first + lane; start < end; start += INDEX_ROWS * WARP_THREADS) {
        IndexRows rows;
        rows.target = (uint64_t)slice.target_row + start;
#pragma unroll
        for (uint32_t item = 0; item < INDEX_ROWS; item++) {
            const uint32_t within = start + item * WARP_THREADS;
            uint32_t index = 0;
            rows.is_there[item] = within < end;
            rows.is_valid[item] = rows.is_there[item] && find_value(page, dense, slice.first_row + within, &index);
            rows.entries[item] = rows.is_valid[item] ? run_value(table, data, width, index - before) : 0;
        }
#pragma unroll
        for (uint32_t item = 0; item < INDEX_ROWS; item++) {
            if (column.validity && rows.is_there[item]) ((uint8_t *)column.validity)[rows.target + item * WARP_THREADS] = rows.is_valid[item];
            if (!is_flags && rows.is_valid[item] && rows.entries[item] >= column.dictionary_count) {
                report_error(args.status, ERROR_DICTIONARY_INDEX, number);
                rows.is_there[item] = false;
            }
        }
        if (is_flags) {
            store_rows<uint8_t>(rows, column.values, [&](uint32_t item) { return rows.entries[item] != 0; });
            continue;
        }
        if (!is_codes) {
            copy_cells(column, rows);
        } else {
#pragma unroll
            for (uint32_t item = 0; item < INDEX_ROWS; item++) {
                const uint32_t code = rows.is_valid[item] ? column.first_code + rows.entries[item] : column.null_code;
                if (rows.is_there[item]) ((uint32_t *)column.values)[rows.target + item * WARP_THREADS] = code;
            }
        }
        for (uint32_t item = 0; has_faults && item < INDEX_ROWS; item++) {
            const bool is_used = rows.is_there[item] && rows.is_valid[item];
            const uint8_t fault = is_used ? ((const uint8_t *)column.faults)[rows.entries[item]] : 0;
            if (fault) report_error(args.status, fault, number);
        }
    }
}
