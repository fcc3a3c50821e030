// Finds the strings of pages of PLAIN byte arrays, each of which starts where the one before it ends.
//
// Grid:    locate_strings: one block a section of a listed page; the last one to end of a page's puts its sections together.
//          write_places: one block a section of pages of several.
// Inputs:  the pages and their states.
// Outputs: scratch[value_count], a StringPlace each; of the state `located`, and `wide` if a byte of the values is not ASCII (a length of
//          more than 127 counts as one).
// Status:  ERROR_PAGE if a string ends after the page.
// Traffic: the page's bytes read once, 8 B written a value, 8 B a piece written and read; and a sector of the page read for each value or
//          two. Where guesses have been wrong one thread walks, at a load from shared memory a value.
// Source:  chain.cuh. A string's length says where it may start: few bytes of text are four that make a length, and of what does begin
//          with one, the next few lengths tell.
#include "../common/bits.cuh"
#include "chain.cuh"
#include "page.cuh"

#define LENGTH_BYTES 4
// Longer strings are not guessed.
#define GUESSED_LENGTH_MAX 0xffff
// Strings with bytes that follow a guess before it is believed: lengths of 0 are what zeros look like.
#define GUESS_STRINGS 4
// Strings that a thread follows to guess, in all.
#define GUESS_STEPS_MAX 96
// So few strings of a page of one section one thread finds while others would guess.
#define WALKED_STRINGS_MAX 128

// One word more, for a length that ends behind the section.
#define STAGED_WORDS (CHAIN_SECTION_BYTES / 4 + 1)

// A window of the page that one thread walks over, in the same memory.
#define WINDOW_WORDS 512
#define WINDOW_BYTES (WINDOW_WORDS * 4)
struct Window {
    // One word more, for a window that starts within a word.
    uint32_t words[WINDOW_WORDS + 2];
    StringPlace places[WINDOW_BYTES / LENGTH_BYTES];
};
static_assert(sizeof(Window) <= STAGED_WORDS * 4, "a window fits the stage");

struct StringChain {
    const uint32_t *staged;
    uint32_t begin, staged_end; // of the section
    uint32_t end;               // of the page

    METHOD uint32_t length_at(uint32_t at) const {
        const uint32_t word = (at - begin) / 4;
        return __funnelshift_r(staged[word], staged[word + 1], at % 4 * 8);
    }

    METHOD bool step(uint32_t *at, uint32_t *strings) const {
        if (end - *at < LENGTH_BYTES) return false;
        const uint32_t length = length_at(*at);
        if (length > end - *at - LENGTH_BYTES) return false;
        *at += LENGTH_BYTES + length;
        ++*strings;
        return true;
    }

    // Whether a string that may start at a place is followed by others.
    METHOD bool is_likely(uint32_t at, uint32_t *steps) const {
        uint32_t strings = 0, with_bytes = 0;
        while (with_bytes < GUESS_STRINGS && at < staged_end && at < end) {
            const uint32_t before = at;
            if (*steps == GUESS_STEPS_MAX || !step(&at, &strings)) return false;
            ++*steps;
            with_bytes += at - before > LENGTH_BYTES;
        }
        return true;
    }

    // The first likely place of a piece, which begins with a word, or one of those that share its length's bytes if the string is shorter: the byte before a short
    // length makes a longer one with it.
    METHOD uint32_t guess(uint32_t first, uint32_t last) const {
        uint32_t best = CHAIN_NONE, best_length = GUESSED_LENGTH_MAX + 1, steps = 0;
        uint32_t low = 0, high = staged[(first - begin) / 4];
        for (uint32_t at = first; at < last && at + LENGTH_BYTES <= end; at++) {
            if (at % 4 == 0) {
                low = high;
                high = staged[(at - begin) / 4 + 1];
            }
            const uint32_t length = __funnelshift_r(low, high, at % 4 * 8);
            if (length < best_length && is_likely(at, &steps)) {
                if (best == CHAIN_NONE && at + LENGTH_BYTES < last) last = at + LENGTH_BYTES;
                best = at;
                best_length = length;
            }
        }
        return best;
    }
};

// A page and its places.
struct StringPage {
    EncodedPage page;
    uint64_t words;  // its first aligned word
    uint32_t skipped; // bytes of that before the page
    uint32_t first;  // of the first string
    uint32_t end;
    uint32_t wanted;
};

DEVICE StringPage open_strings(const EncodedPage &page, const PageState &state) {
    const uint32_t skipped = (uint32_t)(page.values & 3);
    return StringPage{page, page.values - skipped, skipped, skipped + state.values_offset, skipped + page.values_bytes, state.value_count};
}

// Levels may take all bytes of a page.
DEVICE bool has_strings(const StringPage &strings) { return strings.wanted > 0 && strings.first < strings.end; }

// Stages a section, and says whether a byte of it is not ASCII, as far as the thread has seen it. A barrier must follow.
DEVICE bool stage_section(const StringPage &strings, uint32_t begin, uint32_t *staged) {
    const uint32_t *words = (const uint32_t *)(strings.words + begin);
    const uint32_t left = (strings.end - begin + 3) / 4, count = left < STAGED_WORDS ? left : STAGED_WORDS;
    const uint32_t skipped = strings.first > begin ? (strings.first - begin) / 4 : 0;
    uint32_t high_bits = 0;
#pragma unroll 8
    for (uint32_t word = threadIdx.x; word < count; word += BLOCK_THREADS) {
        const uint32_t bytes = words[word];
        staged[word] = bytes;
        if (word >= skipped) high_bits |= bytes;
    }
    return (high_bits & 0x80808080u) != 0;
}

// Writes the places of a piece's strings, if it has any; the first has a row.
DEVICE void write_piece(const StringPage &strings, uint32_t start, uint32_t end, uint32_t row) {
    StringPlace *target = (StringPlace *)strings.page.scratch;
    for (uint32_t at = start; at < end && row < strings.wanted && strings.end - at >= LENGTH_BYTES; row++) {
        const uint32_t length = load_u32(strings.words + at);
        at += LENGTH_BYTES;
        if (length > strings.end - at) break;
        target[row] = StringPlace{at - strings.skipped, length};
        at += length;
    }
}

// Walks from a string to the first that starts at `stop` or later, and writes the places. Says false if a string ends after the page.
// Every thread calls it.
DEVICE bool walk_strings(const StringPage &strings, uint32_t *staged, uint32_t stop, uint32_t *from, uint32_t *row) {
    SHARED uint32_t place_count, next_place, failed;
    Window &window = *(Window *)staged;
    while (*from < stop && *row < strings.wanted) {
        const uint32_t offset = *from, skipped = offset % 4, left = strings.end - offset;
        const uint32_t bytes = left < WINDOW_BYTES ? left : WINDOW_BYTES;
        for (uint32_t word = threadIdx.x; word * 4 < bytes + skipped; word += BLOCK_THREADS) {
            window.words[word] = ((const uint32_t *)(strings.words + offset - skipped))[word];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t at = 0, count = 0;
            failed = 0;
            while (*row + count < strings.wanted && offset + at < stop && at + LENGTH_BYTES <= bytes) {
                const uint32_t byte = skipped + at;
                const uint32_t length = __funnelshift_r(window.words[byte / 4], window.words[byte / 4 + 1], byte % 4 * 8);
                at += LENGTH_BYTES;
                if (length > left - at) {
                    failed = 1;
                    break;
                }
                window.places[count++] = StringPlace{offset + at - strings.skipped, length};
                at += length;
            }
            if (count == 0) failed = 1;
            place_count = count;
            next_place = offset + at;
        }
        __syncthreads();
        StringPlace *target = (StringPlace *)strings.page.scratch + *row;
        for (uint32_t place = threadIdx.x; place < place_count; place += BLOCK_THREADS) target[place] = window.places[place];
        *row += place_count;
        *from = next_place;
        const bool is_bad = failed;
        __syncthreads();
        if (is_bad) return false;
    }
    return true;
}

// Puts sections together one after another, and walks over those that have been guessed wrong. Returns how many strings there are, up to
// those wanted. Every thread calls it.
DEVICE uint32_t repair_sections(const StringPage &strings, uint32_t *staged, ChainSection *sections, uint32_t count) {
    uint32_t at = strings.first, row = 0;
    for (uint32_t number = 0; number < count; number++) {
        volatile ChainSection *section = sections + number;
        const uint32_t start = section->start, section_last = section->end, weight = section->weight;
        const uint32_t end = end_of_part(number, CHAIN_SECTION_BYTES, strings.end);
        const bool is_known = at < end && row < strings.wanted && start == at;
        __syncthreads();
        if (threadIdx.x == 0) section->weight_before = is_known ? row : CHAIN_NONE;
        if (is_known) {
            row += weight;
            at = section_last;
        } else if (at < end && !walk_strings(strings, staged, end, &at, &row)) {
            at = CHAIN_BROKEN;
        }
    }
    return row;
}

KERNEL(locate_strings, LocateStrings, BLOCK_THREADS) {
    SHARED uint32_t staged[STAGED_WORDS];
    const PageSection section = ((const PageSection *)args.list)[blockIdx.x];
    PageState &state = ((PageState *)args.states)[section.page];
    const StringPage strings = open_strings(((const EncodedPage *)args.pages)[section.page], state);
    if (strings.wanted == 0) return;
    uint64_t located = 0;
    if (has_strings(strings)) {
        const uint32_t begin = section.number * CHAIN_SECTION_BYTES, end = end_of_part(section.number, CHAIN_SECTION_BYTES, strings.end);
        if (stage_section(strings, begin, staged)) state.wide = 1;
        __syncthreads();
        const uint32_t own = begin + threadIdx.x * CHAIN_PIECE_BYTES;
        const uint32_t own_end = own >= end || end - own < CHAIN_PIECE_BYTES ? end : own + CHAIN_PIECE_BYTES;
        ChainWalk walk = no_walk(), all = no_walk();
        uint32_t before = 0;
        bool is_sound = false;
        if (section.count > 1 || strings.wanted > WALKED_STRINGS_MAX) {
            const StringChain chain = {staged, begin, end, strings.end};
            uint32_t guess = CHAIN_NONE;
            if (strings.first < own) guess = chain.guess(own, own_end);
            else if (strings.first < own_end) guess = strings.first;
            is_sound = walk_section(chain, guess, own, own_end, &walk);
            all = sum_walks(walk, &before);
        }
        if (section.count == 1) {
            uint32_t at = strings.first, row = 0;
            if (is_sound) {
                write_piece(strings, walk.start, own_end, before);
                row = all.weight;
            } else {
                walk_strings(strings, staged, strings.end, &at, &row);
            }
            located = row;
        } else {
            ChainSection *sections = (ChainSection *)args.sections + section.first;
            ChainPiece *pieces = (ChainPiece *)args.pieces + (uint64_t)(section.first + section.number) * CHAIN_SECTION_PIECES;
            pieces[threadIdx.x] = ChainPiece{walk.start, before};
            // It can't be what the section before ends with.
            if (!is_sound) all = no_walk();
            if (!end_section(sections, section.number, section.count, all, &state.ended_sections)) return;
            if (!link_sections(sections, section.count, CHAIN_SECTION_BYTES, strings.first, strings.end, &located)) {
                located = repair_sections(strings, staged, sections, section.count);
            }
        }
    }
    if (threadIdx.x != 0) return;
    state.located = located < strings.wanted ? (uint32_t)located : strings.wanted;
    if (located < strings.wanted) report_error(args.status, ERROR_PAGE, section.page);
}

KERNEL(write_places, LocateStrings, BLOCK_THREADS) {
    const PageSection section = ((const PageSection *)args.list)[blockIdx.x];
    const StringPage strings = open_strings(((const EncodedPage *)args.pages)[section.page], ((const PageState *)args.states)[section.page]);
    if (!has_strings(strings)) return;
    const uint32_t number = section.first + section.number;
    const uint32_t before = ((const ChainSection *)args.sections)[number].weight_before;
    if (before == CHAIN_NONE) return;
    const ChainPiece piece = ((const ChainPiece *)args.pieces)[(uint64_t)number * CHAIN_SECTION_PIECES + threadIdx.x];
    const uint32_t end = section.number * CHAIN_SECTION_BYTES + (threadIdx.x + 1) * CHAIN_PIECE_BYTES;
    write_piece(strings, piece.start, end, before + piece.weight_before);
}
