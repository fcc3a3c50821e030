// Decodes definition levels of optional columns: which rows are NULL, and which value each other row has.
//
// Grid:    one block a listed page.
// Inputs:  pages of columns that are optional and not nested, so a level is 0 (NULL) or 1.
// Outputs: words[ceil(row_count / 32)], unless the page is dense; of the page's state values_offset, value_count, dense;
//          the column's null_count, added to.
// Status:  ERROR_PAGE if levels end early; ERROR_NULL_IN_COLUMN.
// Traffic: at most 1 bit read and 2 bits written a row.
#include "../common/block.cuh"
#include "page.cuh"
#include "runs.cuh"

#define WORDS_PER_WARP (RUN_TILE_ROWS / BLOCK_THREADS)

// Where the levels' runs lie, and where the values start. Says false if they do not fit the page.
DEVICE bool open_levels(const EncodedPage &page, RunCursor *cursor, uint32_t *values_offset) {
    const bool fits = find_values(page, values_offset);
    const bool is_prefixed = page.levels_form == LEVELS_PREFIXED;
    *cursor = open_runs(page.levels, is_prefixed ? 4 : 0, is_prefixed ? *values_offset : page.levels_bytes, 1);
    return fits;
}

KERNEL(decode_levels, DecodePages, BLOCK_THREADS) {
    SHARED RunTable<RUN_TILE_ROWS> table;
    SHARED uint32_t is_uniform, uniform_value;
    const uint32_t number = listed_page(args);
    const EncodedPage page = page_at(args, number);
    const PageColumn column = column_at(args, page.column);
    PageState &state = state_at(args, number);
    const uint32_t row_count = page.row_count;
    const bool is_bits = page.levels_form == LEVELS_PACKED;
    RunCursor cursor = open_runs(0, 0, 0, 1);
    if (threadIdx.x == 0) {
        uint32_t values_offset = 0;
        bool fits = open_levels(page, &cursor, &values_offset);
        if (!fits) report_error(args.status, ERROR_PAGE, number);
        state.values_offset = values_offset;
        // Levels that can't be read count as NULL.
        is_uniform = !fits;
        uniform_value = 0;
        if (fits && !is_bits && next_run(cursor) && !cursor.packed && cursor.left >= row_count) {
            is_uniform = 1;
            uniform_value = cursor.value != 0;
        }
    }
    __syncthreads();
    uint64_t before = 0;
    if (is_uniform) {
        const uint32_t word_count = uniform_value ? 0 : row_count / WORD_ROWS + (row_count % WORD_ROWS != 0);
        for (uint32_t word = threadIdx.x; word < word_count; word += BLOCK_THREADS) {
            ((ValidityWord *)page.words)[word] = ValidityWord{0, 0};
        }
        before = uniform_value ? row_count : 0;
    } else {
        const uint32_t lane = threadIdx.x % WARP_THREADS;
        const uint32_t warp = threadIdx.x / WARP_THREADS;
        for (uint32_t tile = 0; tile < row_count; tile += RUN_TILE_ROWS) {
            const uint32_t tile_rows = row_count - tile < RUN_TILE_ROWS ? row_count - tile : RUN_TILE_ROWS;
            if (threadIdx.x == 0 && !is_bits && !list_runs(cursor, table, tile_rows)) {
                report_error(args.status, ERROR_PAGE, number);
            }
            __syncthreads();
            uint32_t masks[WORDS_PER_WARP];
            uint32_t valid_count = 0;
            for (uint32_t word = 0; word < WORDS_PER_WARP; word++) {
                uint32_t place = (warp * WORDS_PER_WARP + word) * WORD_ROWS + lane;
                bool valid = false;
                if (place < tile_rows) {
                    uint32_t row = tile + place;
                    valid = is_bits ? (load_u8(page.levels + row / 8) >> (7 - row % 8)) & 1
                                    : run_value(table, page.levels, 1, place) != 0;
                }
                masks[word] = __ballot_sync(0xffffffffu, valid);
                valid_count += valid;
            }
            uint64_t tile_total;
            uint64_t thread_before = block_exclusive_sum(valid_count, &tile_total);
            uint32_t word_before = (uint32_t)(before + __shfl_sync(0xffffffffu, thread_before, 0));
            for (uint32_t word = 0; word < WORDS_PER_WARP; word++) {
                uint32_t place = (warp * WORDS_PER_WARP + word) * WORD_ROWS;
                if (lane == 0 && place < tile_rows) {
                    ((ValidityWord *)page.words)[(tile + place) / WORD_ROWS] = ValidityWord{masks[word], word_before};
                }
                word_before += (uint32_t)__popc(masks[word]);
            }
            before += tile_total;
        }
    }
    if (threadIdx.x == 0) {
        uint32_t null_count = row_count - (uint32_t)before;
        state.value_count = (uint32_t)before;
        state.dense = null_count == 0;
        if (null_count) {
            atomicAdd((uint32_t *)column.null_count, null_count);
            if (column.flags & COLUMN_NOT_NULL) report_error(args.status, ERROR_NULL_IN_COLUMN, number);
        }
    }
}
