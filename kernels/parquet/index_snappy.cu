// Finds where elements of pages of Snappy start, and the output that comes before them, so that several blocks can decompress a page.
//
// Grid:    one block a section of a page that has some; the last one to end of a page's puts its sections together.
// Inputs:  the pages.
// Outputs: of each page whether it `is_indexed`, and if so its ChainSections and their ChainPieces, whose weight is output.
// Status:  none: a page that is not Snappy or has another length is not indexed.
// Traffic: input read once, 8 B a piece written.
// Source:  chain.cuh. Any byte may start an element, but walks from different bytes soon meet, since elements are short. A section has some
//          pieces more in front, from which a walk leads to its own. Long literals are where walks do not meet; a section behind one is
//          walked over again.
#include "chain.cuh"
#include "snappy.cuh"

#define LEAD_BYTES (SNAPPY_LEAD_PIECES * CHAIN_PIECE_BYTES)
// Bytes of an element behind its section that are looked at.
#define HEADER_BYTES_MAX 5
#define STAGED_WORDS ((CHAIN_SECTION_BYTES + HEADER_BYTES_MAX + 3) / 4)

// A page and its places.
struct SnappyPlaces {
    uint64_t words; // its first aligned word
    uint32_t first; // of the first element
    uint32_t end;
};

struct SnappyChain {
    uint64_t source; // so that a place added is that of the staged byte
    SnappyPlaces places;

    METHOD bool step(uint32_t *at, uint32_t *bytes) const {
        Element element;
        if (SnappyCodec().read(source, *at, places.end, false, &element) != READ_WHOLE) return false;
        *at += element.encoded_bytes;
        *bytes += element.literal_bytes + element.copy_bytes;
        return true;
    }

    // Where a walk leads to from the piece before, or from the first element; or the piece's own first byte.
    METHOD uint32_t guess(uint32_t first, uint32_t staged_first, uint32_t last) const {
        if (last <= places.first) return CHAIN_NONE;
        if (first <= places.first) return places.first;
        uint32_t from = first - staged_first < CHAIN_PIECE_BYTES ? first : first - CHAIN_PIECE_BYTES;
        if (from < places.first) from = places.first;
        const uint32_t end = walk_piece(*this, from, first).end;
        return end < last ? end : CHAIN_NONE;
    }
};

// Walks over a section and leaves its pieces. `start`: where its first element is known to start, or CHAIN_NONE. Says false if rounds do not
// suffice. Every thread calls it.
DEVICE_CALL bool find_elements(const SnappyPlaces &places, uint32_t number, uint32_t start, uint32_t *staged, ChainPiece *pieces, ChainWalk *all) {
    const uint32_t own_first = number * SNAPPY_SECTION_BYTES, end = end_of_part(number, SNAPPY_SECTION_BYTES, places.end);
    const uint32_t lead = number == 0 ? 0 : LEAD_BYTES, staged_first = own_first - lead;
    const uint32_t *words = (const uint32_t *)(places.words + staged_first);
    const uint32_t left = (places.end - staged_first + 3) / 4, count = left < STAGED_WORDS ? left : STAGED_WORDS;
#pragma unroll 8
    for (uint32_t word = threadIdx.x; word < count; word += BLOCK_THREADS) staged[word] = words[word];
    __syncthreads();
    const SnappyChain chain = {(uint64_t)staged - staged_first, places};
    const uint32_t begin = staged_first + threadIdx.x * CHAIN_PIECE_BYTES;
    const uint32_t piece_end = begin >= end || end - begin < CHAIN_PIECE_BYTES ? end : begin + CHAIN_PIECE_BYTES;
    uint32_t guess = begin < end ? chain.guess(begin, staged_first, piece_end) : CHAIN_NONE;
    if (start != CHAIN_NONE) {
        if (piece_end <= start) guess = CHAIN_NONE;
        else if (begin <= start) guess = start;
    }
    ChainWalk walk;
    const bool is_sound = walk_section(chain, guess, begin, piece_end, &walk);
    if (begin < own_first) walk = no_walk();
    uint32_t before;
    *all = sum_walks(walk, &before);
    pieces[threadIdx.x] = ChainPiece{walk.start, before};
    return is_sound;
}

// Puts sections together one after another, and walks again over those that have been guessed wrong. Says false if that can't be done.
// Every thread calls it.
DEVICE bool relink_sections(const SnappyPlaces &places, uint32_t count, ChainSection *sections, ChainPiece *pieces, uint32_t *staged,
                            uint64_t *output) {
    uint32_t at = places.first;
    *output = 0;
    for (uint32_t number = 0; number < count; number++) {
        volatile ChainSection *section = sections + number;
        ChainWalk walk = {section->start, section->end, section->weight};
        const bool is_empty = at >= end_of_part(number, SNAPPY_SECTION_BYTES, places.end);
        __syncthreads();
        if (!is_empty && walk.start != at) {
            if (!find_elements(places, number, at, staged, pieces + (uint64_t)number * CHAIN_SECTION_PIECES, &walk)) return false;
            if (threadIdx.x == 0) section->weight = walk.weight;
        }
        if (threadIdx.x == 0) section->weight_before = is_empty ? CHAIN_NONE : (uint32_t)*output;
        if (!is_empty) {
            *output += walk.weight;
            at = walk.end;
        }
    }
    return at == places.end;
}

KERNEL(index_snappy, DecompressSnappy, BLOCK_THREADS) {
    SHARED uint32_t staged[STAGED_WORDS];
    const PagePart part = ((const PagePart *)args.list)[blockIdx.x];
    SnappyPage &target = ((SnappyPage *)args.pages)[part.page];
    const CompressedPage page = target.page;
    const uint32_t count = target.section_count, skipped = (uint32_t)(page.source & 3);
    ChainSection *sections = (ChainSection *)args.sections + target.first_section;
    ChainPiece *pieces = (ChainPiece *)args.pieces + (uint64_t)target.first_section * CHAIN_SECTION_PIECES;
    uint32_t header = 0;
    if (!SnappyCodec().open(page, &header) || header >= page.source_bytes) return;
    const SnappyPlaces places = {page.source - skipped, skipped + header, skipped + page.source_bytes};
    ChainWalk all;
    if (!find_elements(places, part.number, CHAIN_NONE, staged, pieces + (uint64_t)part.number * CHAIN_SECTION_PIECES, &all)) all = no_walk();
    if (!end_section(sections, part.number, count, all, &target.ended_sections)) return;
    uint64_t output;
    bool is_linked = link_sections(sections, count, SNAPPY_SECTION_BYTES, places.first, places.end, &output);
    if (!is_linked) is_linked = relink_sections(places, count, sections, pieces, staged, &output);
    if (threadIdx.x == 0) target.is_indexed = is_linked && output == page.target_bytes;
}
