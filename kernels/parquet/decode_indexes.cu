// Expands runs of dictionary indexes into the dictionary's cells, and runs of flags into booleans.
//
// Grid:    one block a listed slice of a page of source SOURCE_INDEXES or SOURCE_FLAGS.
// Inputs:  the page, its state, and the dictionary's cells.
// Outputs: the column's cells and validity of the slice's rows.
// Status:  ERROR_PAGE if runs end early; ERROR_DICTIONARY_INDEX; the fault of a dictionary's entry that is used.
// Traffic: bit width of an index read, a cell read from the dictionary (mostly from cache) and written a row.
// Source:  one walker and many expanders, as libcudf's page decoder; the walker here is one tile ahead, so that the
//          other warps do not wait for it.
#include "page.cuh"
#include "runs.cuh"

#define ROWS_PER_THREAD (RUN_TILE_ROWS / BLOCK_THREADS)

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

// Where the runs lie. Says false if they do not fit the page.
DEVICE bool open_indexes(const EncodedPage &page, uint64_t data, uint32_t bytes, RunCursor *cursor) {
    if (page.source == SOURCE_FLAGS) {
        if (bytes < 4) return false;
        uint32_t length = load_u32(data);
        *cursor = open_runs(data, 4, length > bytes - 4 ? bytes : 4 + length, 1);
        return length <= bytes - 4;
    }
    if (bytes < 1) return false;
    uint32_t width = load_u8(data);
    *cursor = open_runs(data, 1, bytes, width);
    return width <= 32;
}

// Five blocks a multiprocessor: other warps work while a walker reads headers.
KERNEL_RESIDENT(decode_indexes, DecodePages, BLOCK_THREADS, 5) {
    SHARED RunTable tables[2];
    SHARED uint32_t width, failed;
    const PageSlice slice = ((const PageSlice *)args.list)[blockIdx.x];
    const uint32_t number = slice.page;
    const EncodedPage page = page_at(args, number);
    const PageColumn column = column_at(args, page.column);
    const PageState state = state_at(args, number);
    const uint32_t dense = state.dense, value_count = state.value_count;
    const uint64_t data = page.values + state.values_offset;
    const bool is_flags = page.source == SOURCE_FLAGS;
    const bool has_faults = !is_flags && state_at(args, column.dictionary_page).faulty;
    // Values of the page before a row of the slice, or before its end. A page has less than 2^31 rows.
    const auto values_until = [&](uint32_t row) {
        return values_before(page, dense, value_count, slice.first_row + (row < slice.row_count ? row : slice.row_count));
    };
    uint32_t before = values_until(0);
    RunCursor cursor = open_runs(0, 0, 0, 0);
    if (threadIdx.x == 0) {
        uint32_t wanted = values_until(RUN_TILE_ROWS) - before;
        // A page without values need not have runs.
        failed = value_count != 0 && !(open_indexes(page, data, value_bytes(page, state), &cursor) &&
                                             skip_runs(cursor, before) &&
                                             (wanted == 0 || list_runs(cursor, tables[0], wanted)));
        width = cursor.width;
        if (failed) report_error(args.status, ERROR_PAGE, number);
    }
    __syncthreads();
    if (failed) return;
    for (uint32_t tile = 0; tile < slice.row_count; tile += RUN_TILE_ROWS) {
        const uint32_t after = values_until(tile + RUN_TILE_ROWS);
        if (threadIdx.x == 0) {
            uint32_t wanted = values_until(tile + 2 * RUN_TILE_ROWS) - after;
            RunTable &table = tables[(tile / RUN_TILE_ROWS + 1) % 2];
            if (wanted && !list_runs(cursor, table, wanted)) report_error(args.status, ERROR_PAGE, number);
        }
        const RunTable &table = tables[tile / RUN_TILE_ROWS % 2];
        for (uint32_t item = 0; item < ROWS_PER_THREAD; item++) {
            const uint32_t within = tile + item * BLOCK_THREADS + threadIdx.x;
            if (within >= slice.row_count) break;
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
                copy_cell(column, valid, entry, target);
                uint8_t fault = has_faults && valid ? ((const uint8_t *)column.faults)[entry] : 0;
                if (fault) report_error(args.status, fault, number);
            }
        }
        before = after;
        __syncthreads();
    }
}
