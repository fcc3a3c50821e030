// Finds the strings of a page of PLAIN byte arrays, each of which starts where the one before it ends.
//
// Grid:    one block of LOCATE_THREADS a listed page. The block loads a window of the page; one thread walks it.
// Inputs:  the page and its state.
// Outputs: scratch[value_count], a StringPlace each; of the state `located`, and `wide` if a byte of the values is
//          not ASCII (a length of more than 127 counts as one).
// Status:  ERROR_PAGE if a string ends after the page.
// Traffic: the page's bytes read once, 8 B written a value. The walk costs one load from shared memory a value.
#include "../common/bits.cuh"
#include "page.cuh"

#define WINDOW_WORDS 512
#define WINDOW_BYTES (WINDOW_WORDS * 4)

KERNEL(locate_strings, DecodePages, LOCATE_THREADS) {
    // One word more, for a window that starts within a word.
    SHARED uint32_t window[WINDOW_WORDS + 1];
    SHARED StringPlace places[WINDOW_BYTES / 4];
    SHARED uint32_t place_count, next_offset, failed;
    const uint32_t number = listed_page(args);
    const EncodedPage page = page_at(args, number);
    PageState &state = state_at(args, number);
    const uint32_t wanted = state.value_count;
    const uint32_t end = page.values_bytes;
    uint32_t offset = state.values_offset;
    uint32_t located = 0;
    uint32_t high_bits = 0;
    while (located < wanted) {
        const uint64_t start = page.values + offset;
        const uint32_t skipped = (uint32_t)(start & 3);
        const uint32_t bytes = offset >= end ? 0 : (end - offset < WINDOW_BYTES ? end - offset : WINDOW_BYTES);
        for (uint32_t word = threadIdx.x; word * 4 < bytes + skipped; word += LOCATE_THREADS) {
            window[word] = ((const uint32_t *)(start - skipped))[word];
            high_bits |= window[word];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t at = 0, count = 0;
            failed = 0;
            while (located + count < wanted && at + 4 <= bytes) {
                uint32_t byte = skipped + at;
                uint32_t shift = byte % 4 * 8;
                uint32_t length = window[byte / 4] >> shift;
                if (shift) length |= window[byte / 4 + 1] << (32 - shift);
                at += 4;
                if (length > end - offset - at) {
                    failed = 1;
                    break;
                }
                places[count++] = StringPlace{offset + at, length};
                if (length >= WINDOW_BYTES - at) {
                    // The rest of the string is not looked at.
                    if (length > bytes - at) high_bits = 0x80;
                    at += length;
                    break;
                }
                at += length;
            }
            if (count == 0) failed = 1;
            place_count = count;
            next_offset = offset + at;
        }
        __syncthreads();
        StringPlace *target = (StringPlace *)page.scratch + located;
        for (uint32_t place = threadIdx.x; place < place_count; place += LOCATE_THREADS) target[place] = places[place];
        located += place_count;
        offset = next_offset;
        if (failed) {
            if (threadIdx.x == 0) report_error(args.status, ERROR_PAGE, number);
            break;
        }
        __syncthreads();
    }
    if (high_bits & 0x80808080u) state.wide = 1;
    if (threadIdx.x == 0) state.located = located;
}
