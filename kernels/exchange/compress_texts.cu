// Text in pieces that are each an LZ4 block, and back.
//
// Grid:    the pieces of all texts of a launch, one a block: a warp compresses a piece, a block of BLOCK_THREADS decompresses one.
// Status:  decompress_texts sets refused if a piece is no LZ4 block, or not of the bytes that it is to have; its text has no meaning then.
// Traffic: text read and blocks written once, or the other way round; matches are read again, mostly from cache.
// Source:  lz4/lz4, doc/lz4_Block_format.md: its greedy search with a table of the last places of hashes. We differ: a warp looks at 32
//          places at once, and takes the first that has a match among the places before them.
#include "../abi/exchange.h"
#include "../parquet/lz4.cuh"

#define HASH_BITS 12
// A copy is no shorter.
#define COPY_BYTES_MIN 4
// What the format asks for: so many bytes at the end are literal, and no copy begins among so many.
#define LAST_LITERAL_BYTES 5
#define LAST_COPY_BYTES 12
// What four bits of a token hold; longer lengths go on behind it.
#define TOKEN_LENGTH_MAX 15
static_assert(TEXT_PIECE_BYTES <= 1 << 16, "a distance has 16 bits");

DEVICE uint32_t hash_slot(uint32_t word) { return word * 2654435761u >> (32 - HASH_BITS); }
DEVICE uint32_t least_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

// The text of a launch that a piece is of.
template <class Text>
DEVICE const Text &find_text(const Text *texts, uint32_t count, uint32_t piece) {
    uint32_t place = 0;
    while (place + 1 < count && texts[place + 1].first_piece <= piece) place++;
    return texts[place];
}

// The bytes of a text's piece.
DEVICE uint32_t piece_bytes(uint64_t bytes, uint64_t piece) {
    const uint64_t left = bytes - piece * TEXT_PIECE_BYTES;
    return left < TEXT_PIECE_BYTES ? (uint32_t)left : TEXT_PIECE_BYTES;
}

// Literal bytes from a place on, then a copy from a distance; the last one has none.
struct Sequence {
    uint32_t literal, literal_bytes, copy_bytes, copy_distance;
};

DEVICE uint32_t extension_bytes(uint32_t length) { return length < TOKEN_LENGTH_MAX ? 0 : (length - TOKEN_LENGTH_MAX) / 255 + 1; }

DEVICE uint32_t sequence_bytes(const Sequence &sequence) {
    const uint32_t literals = 1 + extension_bytes(sequence.literal_bytes) + sequence.literal_bytes;
    return literals + (sequence.copy_bytes ? 2 + extension_bytes(sequence.copy_bytes - COPY_BYTES_MIN) : 0);
}

// What a length has beyond the token. The lanes of a warp write it together, as all that follows.
DEVICE uint8_t *store_extension(uint8_t *target, uint32_t length) {
    const uint32_t count = extension_bytes(length);
    for (uint32_t place = threadIdx.x; place < count; place += WARP_THREADS) {
        target[place] = place + 1 < count ? 255 : (uint8_t)((length - TOKEN_LENGTH_MAX) % 255);
    }
    return target + count;
}

DEVICE void store_sequence(const uint8_t *text, const Sequence &sequence, uint8_t *target) {
    const uint32_t copied = sequence.copy_bytes ? sequence.copy_bytes - COPY_BYTES_MIN : 0;
    if (threadIdx.x == 0) {
        target[0] = (uint8_t)(least_of(sequence.literal_bytes, TOKEN_LENGTH_MAX) << 4 | least_of(copied, TOKEN_LENGTH_MAX));
    }
    target = store_extension(target + 1, sequence.literal_bytes);
    for (uint32_t place = threadIdx.x; place < sequence.literal_bytes; place += WARP_THREADS) {
        target[place] = text[sequence.literal + place];
    }
    if (sequence.copy_bytes == 0) return;
    target += sequence.literal_bytes;
    if (threadIdx.x < 2) target[threadIdx.x] = (uint8_t)(sequence.copy_distance >> 8 * threadIdx.x);
    store_extension(target + 2, copied);
}

// How far two places of a text are equal, the later of which is to leave the last literal bytes.
DEVICE uint32_t measure_copy(const uint8_t *text, uint32_t bytes, uint32_t origin, uint32_t start) {
    for (uint32_t length = COPY_BYTES_MIN;; length += WARP_THREADS) {
        const uint32_t place = length + threadIdx.x;
        const bool is_equal = start + place < bytes - LAST_LITERAL_BYTES && text[origin + place] == text[start + place];
        const uint32_t different = ~__ballot_sync(0xffffffffu, is_equal);
        if (different) return length + __ffs(different) - 1;
    }
}

// The bytes of a piece as an LZ4 block; as many as it has if that is not shorter.
DEVICE uint32_t compress_piece(const uint8_t *text, uint32_t bytes, uint8_t *target, uint32_t *places) {
    uint32_t anchor = 0, position = 0, written = 0;
    while (position + LAST_COPY_BYTES <= bytes) {
        const uint32_t place = position + threadIdx.x;
        const bool is_place = place + LAST_COPY_BYTES <= bytes;
        const uint32_t word = is_place ? load_u32((uint64_t)(text + place)) : 0;
        // One more than the last place of the hash; 0 if there is none.
        const uint32_t known = is_place ? places[hash_slot(word)] : 0;
        const bool matches = known != 0 && load_u32((uint64_t)(text + known - 1)) == word;
        const uint32_t matching = __ballot_sync(0xffffffffu, matches);
        const uint32_t first = matching ? __ffs(matching) - 1 : WARP_THREADS - 1;
        // No place behind the next one to look at is known before.
        if (is_place && threadIdx.x <= first) atomicMax(&places[hash_slot(word)], place + 1);
        __syncwarp();
        if (matching == 0) {
            position += WARP_THREADS;
            continue;
        }
        const uint32_t start = position + first, origin = __shfl_sync(0xffffffffu, known, first) - 1;
        const uint32_t length = measure_copy(text, bytes, origin, start);
        const Sequence sequence = {anchor, start - anchor, length, start - origin};
        if (written + sequence_bytes(sequence) >= bytes) return bytes;
        store_sequence(text, sequence, target + written);
        written += sequence_bytes(sequence);
        anchor = position = start + length;
    }
    const Sequence last = {anchor, bytes - anchor, 0, 0};
    if (written + sequence_bytes(last) >= bytes) return bytes;
    store_sequence(text, last, target + written);
    return written + sequence_bytes(last);
}

KERNEL(compress_texts, CompressTexts, WARP_THREADS) {
    SHARED uint32_t places[1 << HASH_BITS];
    const TextRange &range = find_text(args.texts, args.text_count, blockIdx.x);
    const uint64_t piece = blockIdx.x - range.first_piece;
    for (uint32_t slot = threadIdx.x; slot < 1 << HASH_BITS; slot += WARP_THREADS) places[slot] = 0;
    __syncwarp();
    const uint8_t *text = (const uint8_t *)range.text + piece * TEXT_PIECE_BYTES;
    uint8_t *target = (uint8_t *)range.slots + piece * TEXT_PIECE_BYTES;
    const uint32_t size = compress_piece(text, piece_bytes(range.bytes, piece), target, places);
    if (threadIdx.x == 0) ((uint32_t *)range.sizes)[piece] = size;
}

DEVICE bool decompress_piece(const CompressedText &text, uint64_t piece, uint32_t bytes) {
    const uint32_t *ends = (const uint32_t *)text.source;
    const uint64_t table_bytes = (text.bytes + TEXT_PIECE_BYTES - 1) / TEXT_PIECE_BYTES * sizeof(uint32_t);
    const uint32_t start = piece ? ends[piece - 1] : 0, end = ends[piece];
    if (start > end || end > text.source_bytes - table_bytes || end - start > bytes) return false;
    const uint64_t source = text.source + table_bytes + start, target = text.target + piece * TEXT_PIECE_BYTES;
    if (end - start < bytes) return decompress_page<Lz4Codec>(CompressedPage{source, target, end - start, bytes, 0, 0});
    for (uint32_t place = threadIdx.x; place < bytes; place += BLOCK_THREADS) {
        ((uint8_t *)target)[place] = ((const uint8_t *)source)[place];
    }
    return true;
}

KERNEL(decompress_texts, DecompressTexts, BLOCK_THREADS) {
    const CompressedText &text = find_text(args.texts, args.text_count, blockIdx.x);
    const uint64_t piece = blockIdx.x - text.first_piece;
    const bool is_sound = decompress_piece(text, piece, piece_bytes(text.bytes, piece));
    if (!is_sound && threadIdx.x == 0) atomicMax((uint32_t *)args.refused, 1u);
}
