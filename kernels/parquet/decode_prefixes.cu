// Decodes strings that share a prefix with the one before: lengths of prefixes, lengths of suffixes, suffixes.
//
// decode_prefixes
//   Grid:    one block of BUILD_THREADS a listed page of DELTA_STRINGS.
//   Outputs: scratch[value_count]: StringPlace of a suffix in the page; prefixes[value_count]: the prefix's length. Of the
//            state `located`, `wide`, and string_bytes, the sum of both.
//   Status:  ERROR_PAGE if a number, a length or a prefix is not possible.
// build_strings
//   Grid:    one block of BUILD_THREADS a listed page of DELTA_STRINGS.
//   Outputs: strings[string_bytes], then PAGE_PADDING_BYTES zeros; scratch[value_count]: StringPlace in `strings`. A launch
//            goes on from built_values and built_bytes of the state for BUILD_BYTES, of which every string that it ends
//            takes BUILD_STRING_BYTES beside its own.
// Source:  Parquet's Encodings.md, "Delta Strings". Each string needs the one before, so a warp has a page.
#include "../common/block.cuh"
#include "deltas.cuh"

// Decodes `wanted` lengths, of which there is at least one, that start at *at, which moves past them. Says false if they
// can't be read. Every thread calls it.
DEVICE_CALL bool read_lengths(const EncodedPage &page, uint32_t *at, uint32_t wanted, uint64_t *lengths) {
    DeltaStream stream = DeltaStream{page.values, page.values_bytes, 0, 1, 8, delta_width_max(page)};
    uint64_t first = 0;
    uint32_t count = 0;
    if (*at > stream.end || !open_deltas(stream, at, wanted, &first, &count) || count != wanted) return false;
    uint32_t value = (uint32_t)first;
    if (threadIdx.x == 0) lengths[0] = (uint64_t)(int64_t)(int32_t)value;
    for (uint32_t start = 0; start < stream.count; start += WARP_DELTAS) {
        uint32_t differences[THREAD_DELTAS];
        ThreadDeltas own;
        if (!find_deltas(stream, at, start, stream.count - start < WARP_DELTAS ? stream.count : start + WARP_DELTAS, &own)) return false;
        unpack_deltas(stream, own, differences);
        uint32_t sum = 0;
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) sum += differences[item];
        const uint32_t sum_until = warp_inclusive_sum(sum);
        uint32_t length = value + sum_until - sum;
        for (uint32_t item = 0; item < THREAD_DELTAS; item++) {
            length += differences[item];
            const uint32_t place = start + threadIdx.x * THREAD_DELTAS + item + 1;
            if (item < own.count) lengths[place] = (uint64_t)(int64_t)(int32_t)length;
        }
        value += __shfl_sync(0xffffffffu, sum_until, BUILD_THREADS - 1);
    }
    return true;
}

// Turns lengths of suffixes into their places, from `at` on, and checks prefixes. Says false if that can't be; *bytes
// are those of all strings. Every thread calls it.
DEVICE bool place_suffixes(const EncodedPage &page, uint32_t count, uint32_t at, uint64_t *bytes) {
    const uint64_t *prefixes = (const uint64_t *)page.prefixes;
    uint64_t *lengths = (uint64_t *)page.scratch;
    uint64_t offset = at, previous = 0, total = 0;
    bool fits = true;
    for (uint32_t first = 0; first < count && fits; first += BUILD_THREADS) {
        const uint32_t place = first + threadIdx.x;
        const bool is_there = place < count;
        const uint64_t suffix = is_there ? lengths[place] : 0, prefix = is_there ? prefixes[place] : 0;
        const uint64_t end = page.values_bytes;
        // A negative length, as any beyond the page, is none; what follows one has no meaning.
        const uint64_t taken = suffix <= end ? suffix : end + 1;
        const uint64_t sum = warp_inclusive_sum(taken);
        const uint64_t length = prefix + suffix;
        uint64_t before = __shfl_up_sync(0xffffffffu, length, 1);
        if (threadIdx.x == 0) before = previous;
        const bool is_possible = offset + sum <= end && prefix <= before && before <= 0xffffffffu;
        fits = __ballot_sync(0xffffffffu, is_there && !is_possible) == 0;
        if (is_there) ((StringPlace *)lengths)[place] = StringPlace{(uint32_t)(offset + sum - taken), (uint32_t)suffix};
        offset += __shfl_sync(0xffffffffu, sum, BUILD_THREADS - 1);
        previous = __shfl_sync(0xffffffffu, length, BUILD_THREADS - 1);
        total += length;
    }
    *bytes = warp_sum(total);
    return fits && *bytes <= 0xffffffffu;
}

KERNEL(decode_prefixes, DecodePages, BUILD_THREADS) {
    const uint32_t number = listed_page(args);
    const EncodedPage page = page_at(args, number);
    PageState &state = state_at(args, number);
    const uint32_t count = state.value_count;
    if (count == 0) return;
    uint32_t at = state.values_offset;
    uint64_t string_bytes = 0;
    bool is_sound = read_lengths(page, &at, count, (uint64_t *)page.prefixes);
    is_sound = is_sound && read_lengths(page, &at, count, (uint64_t *)page.scratch);
    __syncwarp();
    is_sound = is_sound && place_suffixes(page, count, at, &string_bytes);
    if (threadIdx.x != 0) return;
    if (!is_sound) report_error(args.status, ERROR_PAGE, number);
    state.located = is_sound ? count : 0;
    state.string_bytes = is_sound ? string_bytes : 0;
    state.wide = 1;
}

KERNEL(build_strings, DecodePages, BUILD_THREADS) {
    const uint32_t number = listed_page(args);
    const EncodedPage page = page_at(args, number);
    PageState &state = state_at(args, number);
    const uint64_t *prefixes = (const uint64_t *)page.prefixes;
    StringPlace *places = (StringPlace *)page.scratch;
    uint8_t *target = (uint8_t *)page.strings;
    const uint32_t count = state.located;
    uint32_t index = state.built_values, done = state.built_bytes;
    StringPlace before = StringPlace{0, 0};
    if (index > 0) before = places[index - 1];
    uint64_t left = BUILD_BYTES;
    while (index < count && left > 0) {
        const StringPlace suffix = places[index];
        const uint32_t prefix = (uint32_t)prefixes[index];
        const uint32_t length = prefix + suffix.length, offset = before.offset + before.length;
        const uint32_t rest = length - done, end = done + (rest < left ? rest : (uint32_t)left);
        const uint8_t *previous = target + before.offset, *source = (const uint8_t *)page.values + suffix.offset;
        for (uint32_t byte = done + threadIdx.x; byte < end; byte += BUILD_THREADS) {
            target[offset + byte] = byte < prefix ? previous[byte] : source[byte - prefix];
        }
        __syncwarp();
        left -= end - done;
        done = end;
        if (end < length) break;
        before = StringPlace{offset, length};
        if (threadIdx.x == 0) places[index] = before;
        left -= left < BUILD_STRING_BYTES ? left : BUILD_STRING_BYTES;
        done = 0;
        index++;
    }
    if (threadIdx.x == 0) {
        state.built_values = index;
        state.built_bytes = done;
    }
    if (index < count) return;
    // Whole words are loaded.
    const uint32_t bytes = before.offset + before.length;
    for (uint32_t byte = threadIdx.x; byte < PAGE_PADDING_BYTES; byte += BUILD_THREADS) target[bytes + byte] = 0;
}
