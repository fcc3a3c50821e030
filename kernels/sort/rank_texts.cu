// Ranks of long texts, a round at a time: the places that are still undecided lie group by group, and all texts of a group
// begin with the same bytes.
//
//   compare_texts       each text with its group's leader: where the two differ, and the bytes from there on
//   (a radix sort)      by what was found: group, place of the difference, bytes
//   mark_text_groups    where something else begins
//   rank_text_groups    the texts that come first in their group; which groups are undecided
//   keep_text_groups    the places of the next round
//
// Grid:    any number of blocks; threads stride over the places, warps in compare_texts.
// Ordering: by byte; of texts that begin alike the shorter first. Equal texts get the same rank.
// Traffic: over all rounds every byte of a text is compared at most once, and once more 7 bytes a round.
// Source:  a string quicksort that remembers common prefixes, Bentley, Sedgewick, "Fast Algorithms for Sorting and Searching
//          Strings", SODA 1997, section 3. We differ: the pivot is compared over a stretch of bytes at once, and all groups
//          of a round are sorted together.
#include "../common/launch.h"
#include "../abi/sort.h"
#include "../common/cell.cuh"

// Bytes that a thread compares before its warp helps.
#define ALONE_BYTES 32
// Bytes that a lane compares in a step of its warp.
#define LANE_BYTES 8

DEVICE uint64_t first_place() { return (uint64_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; }
DEVICE uint64_t place_step() { return (uint64_t)gridDim.x * BLOCK_THREADS; }

// The first of the bytes from `from` up to `end` in which two texts differ, or `end`.
DEVICE uint32_t first_difference(const uint8_t *a, const uint8_t *b, uint32_t from, uint32_t end) {
    while (from < end && a[from] == b[from]) from++;
    return from;
}

// The same by all lanes of a warp, which all call it with the same arguments.
DEVICE uint32_t first_difference_by_warp(uint64_t a, uint64_t b, uint32_t from, uint32_t end) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    for (uint64_t step = from; step < end; step += WARP_THREADS * LANE_BYTES) {
        uint64_t begin = step + lane * LANE_BYTES;
        uint64_t last = begin + LANE_BYTES < end ? begin + LANE_BYTES : end;
        uint32_t found = end;
        if (begin < last) {
            uint32_t differs = first_difference((const uint8_t *)a, (const uint8_t *)b, (uint32_t)begin, (uint32_t)last);
            if (differs < last) found = differs;
        }
        uint32_t finders = __ballot_sync(0xffffffffu, found < end);
        if (finders) return __shfl_sync(0xffffffffu, found, __ffs(finders) - 1);
    }
    return end;
}

// 7 bytes, and how many of the text's there are from there on, up to 8: positive as a signed number.
DEVICE int64_t text_word(const StringCell &text, uint32_t from) {
    uint64_t word = 0;
    for (uint32_t byte = 0; byte < TEXT_WORD_BYTES; byte++) {
        uint64_t place = (uint64_t)from + byte;
        word = (word << 8) | (place < text.length ? ((const uint8_t *)text.address)[place] : 0);
    }
    uint32_t left = text.length - from;
    return (int64_t)((word << 4) | (left > TEXT_WORD_BYTES ? TEXT_GOES_ON : left));
}

// Texts that are less by where they leave the leader, then those that do not leave it, then those that are greater: of
// the former those that leave it early come first, of the latter those that leave it late.
DEVICE uint64_t leaving_order(const StringCell &text, const StringCell &leader, uint32_t from, uint32_t differs, uint32_t bytes_max) {
    uint32_t shared = differs - from;
    bool is_cut = shared == bytes_max;
    if (is_cut || (differs == text.length && differs == leader.length)) return TEXT_STRETCH_MAX;
    bool is_less = differs == text.length;
    if (differs < text.length && differs < leader.length) {
        is_less = ((const uint8_t *)text.address)[differs] < ((const uint8_t *)leader.address)[differs];
    }
    return is_less ? shared : 2 * TEXT_STRETCH_MAX - shared;
}

KERNEL(compare_texts, CompareTexts, BLOCK_THREADS) {
    const uint32_t lane = threadIdx.x % WARP_THREADS;
    const StringCell *cells = (const StringCell *)args.cells;
    const uint32_t *rows = (const uint32_t *)args.rows;
    uint32_t *shared = (uint32_t *)args.shared;
    // Whole warps.
    for (uint64_t base = first_place() - lane; base < args.count; base += place_step()) {
        uint64_t place = base + lane;
        bool is_place = place < args.count;
        StringCell text = {}, leader = {};
        uint32_t from = 0, differs = 0, end = 0;
        if (is_place) {
            uint64_t other = args.leaders ? ((const uint32_t *)args.leaders)[place] : args.count / 2;
            text = cells[rows[place]];
            leader = cells[rows[other]];
            from = args.leaders ? shared[place] : 0;
            end = text.length < leader.length ? text.length : leader.length;
            end = end - from > args.bytes_max ? from + args.bytes_max : end;
            uint32_t alone_end = end - from > ALONE_BYTES ? from + ALONE_BYTES : end;
            differs = text.address == leader.address
                          ? end
                          : first_difference((const uint8_t *)text.address, (const uint8_t *)leader.address, from, alone_end);
        }
        bool is_open = is_place && differs < end && differs - from == ALONE_BYTES;
        for (uint32_t open = __ballot_sync(0xffffffffu, is_open); open; open &= open - 1) {
            int owner = __ffs(open) - 1;
            uint64_t a = __shfl_sync(0xffffffffu, text.address, owner);
            uint64_t b = __shfl_sync(0xffffffffu, leader.address, owner);
            uint32_t begin = __shfl_sync(0xffffffffu, differs, owner);
            uint32_t found = first_difference_by_warp(a, b, begin, __shfl_sync(0xffffffffu, end, owner));
            if ((int)lane == owner) differs = found;
        }
        if (!is_place) continue;
        uint64_t group = args.leaders ? ((const uint32_t *)args.groups)[place] : 0;
        uint64_t leaving = leaving_order(text, leader, from, differs, args.bytes_max);
        ((int64_t *)args.group_words)[place] = (int64_t)((group << TEXT_LEAVING_BITS) | leaving);
        ((int64_t *)args.text_words)[place] = text_word(text, differs);
        shared[place] = differs;
    }
}

KERNEL(mark_text_groups, TextGroups, BLOCK_THREADS) {
    const uint32_t *order = (const uint32_t *)args.order;
    const int64_t *group_words = (const int64_t *)args.group_words, *text_words = (const int64_t *)args.text_words;
    for (uint64_t number = first_place(); number < args.count; number += place_step()) {
        bool starts = number == 0;
        if (!starts) {
            uint32_t place = order[number], before = order[number - 1];
            starts = group_words[place] != group_words[before] || text_words[place] != text_words[before];
        }
        ((uint8_t *)args.starts)[number] = starts;
    }
}

struct TextGroup {
    uint64_t first, end;
};

// The group in which a place of the new order is.
DEVICE TextGroup group_of(const TextGroups &args, uint64_t number) {
    const uint32_t *firsts = (const uint32_t *)args.firsts;
    uint64_t group = ((const uint64_t *)args.starts_before)[number] + ((const uint8_t *)args.starts)[number] - 1;
    return {firsts[group], group + 1 < args.group_count ? firsts[group + 1] : args.count};
}

KERNEL(rank_text_groups, TextGroups, BLOCK_THREADS) {
    for (uint64_t number = first_place(); number < args.count; number += place_step()) {
        uint32_t place = ((const uint32_t *)args.order)[number];
        TextGroup group = group_of(args, number);
        uint64_t old_first = args.groups ? ((const uint32_t *)args.groups)[place] : 0;
        ((int64_t *)args.ranks)[((const uint32_t *)args.rows)[place]] += (int64_t)(group.first - old_first);
        bool goes_on = (((const int64_t *)args.text_words)[place] & 15) == TEXT_GOES_ON;
        ((uint8_t *)args.kept)[number] = goes_on && group.end - group.first > 1;
    }
}

KERNEL(keep_text_groups, TextGroups, BLOCK_THREADS) {
    const uint64_t *kept_before = (const uint64_t *)args.kept_before;
    for (uint64_t next = first_place(); next < args.kept_count; next += place_step()) {
        uint32_t number = ((const uint32_t *)args.kept_places)[next];
        uint32_t place = ((const uint32_t *)args.order)[number];
        TextGroup group = group_of(args, number);
        uint64_t first = kept_before[group.first];
        ((uint32_t *)args.kept_rows)[next] = ((const uint32_t *)args.rows)[place];
        ((uint32_t *)args.kept_groups)[next] = (uint32_t)first;
        ((uint32_t *)args.kept_leaders)[next] = (uint32_t)(first + (group.end - group.first) / 2);
        ((uint32_t *)args.kept_shared)[next] = ((const uint32_t *)args.shared)[place] + TEXT_WORD_BYTES;
    }
}
