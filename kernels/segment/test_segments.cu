// Tests rows of segments, and says which pass: what scans ask of their rows, in one launch.
//
// Grid:    a warp has a block of rows. Tests follow one another; a block whose bounds decide a test is not read for it, and one without rows
//          left is not read any more.
// Inputs:  segments of distances, or of text for searches; the rows that are tested.
// Outputs: a bit a row, how many are set of each block, and counts of tests that ask for them.
// Traffic: the words of a column once a test, the blocks' bases and widths, a bit a row; of bitmaps and Bloom filters a sector for each row left.
// Source:  an interpreter whose steps have many values each, as Vortex's (github.com/vortex-data/vortex, vortex-cuda, dynamic dispatch). We
//          differ: a step narrows a mask of rows instead of writing values.
#include "segment.cuh"
#include "../abi/program.h"
#include "../common/keys.cuh"
#include "../expression/cell16.cuh"
#include "../filter/bloom.cuh"

#define WARPS (BLOCK_THREADS / WARP_THREADS)
// Words that a warp stages: those of distances of 32 bits, and one that is read and not used.
#define STAGED_WORDS (SEGMENT_BLOCK_ROWS + 4)
#define STAGED_WIDTH_MAX 32

struct alignas(16) Stage {
    uint32_t words[STAGED_WORDS];
};

// A column of a block.
struct BlockColumn {
    uint64_t words;
    int64_t base;
    uint32_t width;
    uint32_t lines; // of words, up to the last row that is meant
};

DEVICE BlockColumn column_of(const PlacedBlock &placed, uint32_t column, uint32_t *mask) {
    const SegmentView &view = placed.views[column];
    const SegmentBlock head = head_of(view, placed.number);
    if (view.validity) {
        *mask &= transposed_bits(((const uint32_t *)view.validity)[placed.number * SEGMENT_BLOCK_WORDS + lane_of_thread()]);
    }
    return BlockColumn{words_of(view, head), head.base, head.width, lines_of(placed.end, head.width)};
}

// Copies a block's words to a line of the stage. Every thread of the warp calls it; a barrier follows.
DEVICE void stage_words(const BlockColumn &column, uint32_t *target) {
    const Words4 *source = (const Words4 *)column.words;
    const uint32_t count = column.lines * (SEGMENT_BLOCK_WORDS / 4);
#pragma unroll 4
    for (uint32_t place = lane_of_thread(); place < count; place += WARP_THREADS) ((Words4 *)target)[place] = source[place];
}

// Staged distances of this thread's rows, which begin at the same bit of their words.
struct StagedDistances {
    const uint32_t *words;
    uint32_t width, bit, ones;

    METHOD uint32_t at(uint32_t item) const { return bits_of_words(words + item * width, bit, ones); }
};

DEVICE StagedDistances staged_distances(const uint32_t *words, uint32_t width) {
    const uint32_t bit = lane_of_thread() * width;
    return StagedDistances{words + bit / 32, width, bit, ones_of(width)};
}

DEVICE uint64_t distance_of(const BlockColumn &column, uint32_t row) {
    return load_wide_bits(column.words, (uint64_t)row * column.width, column.width);
}

// Of this thread's rows in a mask, those whose distance passes: to ask costs less than to look at the mask. Every thread of the warp calls it.
template <class Passes>
DEVICE uint32_t test_distances(const BlockColumn &column, uint32_t mask, Stage *stage, Passes passes) {
    uint32_t left = 0;
    if (column.width > STAGED_WIDTH_MAX) {
        for (uint32_t item = 0; item < THREAD_ROWS; item++) {
            if (mask >> item & 1) left |= (uint32_t)passes(distance_of(column, item * WARP_THREADS + lane_of_thread())) << item;
        }
        return left;
    }
    __syncwarp();
    stage_words(column, stage->words);
    __syncwarp();
    const StagedDistances distances = staged_distances(stage->words, column.width);
#pragma unroll
    for (uint32_t item = 0; item < THREAD_ROWS; item++) left |= (uint32_t)passes(distances.at(item)) << item;
    return left & mask;
}

// The same of what is read for a distance: Filter::read(distance) for some rows at once, so that they are on their way together, and then
// Filter::passes. Every thread of the warp calls it.
template <class Filter>
DEVICE uint32_t test_memory(const BlockColumn &column, uint32_t mask, Stage *stage, const Filter &filter) {
    const bool is_staged = column.width <= STAGED_WIDTH_MAX;
    __syncwarp();
    if (is_staged) stage_words(column, stage->words);
    __syncwarp();
    const StagedDistances distances = staged_distances(stage->words, is_staged ? column.width : 0);
    uint32_t left = 0;
    for (uint32_t first = 0; first < THREAD_ROWS; first += Filter::rows) {
        uint64_t numbers[Filter::rows];
        typename Filter::Read reads[Filter::rows];
        const uint32_t asked = mask >> first;
#pragma unroll
        for (uint32_t item = 0; item < Filter::rows; item++) {
            numbers[item] = is_staged ? distances.at(first + item) : 0;
            if (!is_staged && (asked >> item & 1)) numbers[item] = distance_of(column, (first + item) * WARP_THREADS + lane_of_thread());
        }
#pragma unroll
        for (uint32_t item = 0; item < Filter::rows; item++) {
            reads[item] = asked >> item & 1 ? filter.read(numbers[item]) : typename Filter::Read{};
        }
#pragma unroll
        for (uint32_t item = 0; item < Filter::rows; item++) left |= (uint32_t)filter.passes(numbers[item], reads[item]) << (first + item);
    }
    return left & mask;
}

DEVICE uint64_t greatest_distance(uint32_t width) { return width == 0 ? 0 : ~0ull >> (64 - width); }

DEVICE uint32_t test_range(const SegmentTest &test, const PlacedBlock &placed, uint32_t mask, Stage *stage) {
    const BlockColumn column = column_of(placed, test.column, &mask);
    const uint64_t span = greatest_distance(column.width);
    if (test.greatest < column.base) return 0;
    const uint64_t least = test.least > column.base ? (uint64_t)test.least - (uint64_t)column.base : 0;
    const uint64_t greatest = (uint64_t)test.greatest - (uint64_t)column.base;
    if (least > span || test.least > test.greatest) return 0;
    if (least == 0 && greatest >= span) return mask;
    const uint64_t room = (greatest < span ? greatest : span) - least;
    if (column.width > STAGED_WIDTH_MAX) {
        return test_distances(column, mask, stage, [=](uint64_t distance) { return distance - least <= room; });
    }
    const uint32_t short_least = (uint32_t)least, short_room = (uint32_t)room;
    return test_distances(column, mask, stage, [=](uint64_t distance) { return (uint32_t)distance - short_least <= short_room; });
}

DEVICE uint32_t test_order(const SegmentTest &test, const PlacedBlock &placed, uint32_t mask, Stage *stage) {
    const BlockColumn one = column_of(placed, test.column, &mask), other = column_of(placed, test.other, &mask);
    const uint32_t lane = lane_of_thread(), orderings = test.orderings;
    const auto holds = [=](uint64_t distance, uint64_t other_distance) {
        const int64_t a = (int64_t)((uint64_t)one.base + distance), b = (int64_t)((uint64_t)other.base + other_distance);
        return ordering_holds(orderings, (a > b) - (a < b)) != 0;
    };
    uint32_t left = 0;
    if (one.width + other.width > STAGED_WIDTH_MAX) {
        for (uint32_t item = 0; item < THREAD_ROWS; item++) {
            const uint32_t row = item * WARP_THREADS + lane;
            if (mask >> item & 1) left |= (uint32_t)holds(distance_of(one, row), distance_of(other, row)) << item;
        }
        return left;
    }
    uint32_t *second = stage->words + one.lines * SEGMENT_BLOCK_WORDS;
    __syncwarp();
    stage_words(one, stage->words);
    stage_words(other, second);
    __syncwarp();
    const StagedDistances first_distances = staged_distances(stage->words, one.width), second_distances = staged_distances(second, other.width);
#pragma unroll 8
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        left |= (uint32_t)holds(first_distances.at(item), second_distances.at(item)) << item;
    }
    return left & mask;
}

// Words of a bitmap from an integer on.
struct BitmapFilter {
    typedef uint32_t Read;
    static const uint32_t rows = 8;
    const uint32_t *words;
    uint64_t origin, slot_count;

    METHOD uint32_t read(uint64_t distance) const {
        const uint64_t bit = origin + distance;
        return bit < slot_count ? words[bit / 32] : 0;
    }
    METHOD bool passes(uint64_t distance, uint32_t word) const { return word >> ((uint32_t)(origin + distance) % 32) & 1; }
};

DEVICE uint32_t test_bitmap(const SegmentTest &test, const PlacedBlock &placed, uint32_t mask, Stage *stage) {
    const BlockColumn column = column_of(placed, test.column, &mask);
    const uint64_t origin = (uint64_t)column.base - (uint64_t)test.least, slot_count = test.slot_count;
    const bool begins_below = column.base < test.least;
    if (begins_below ? 0 - origin > greatest_distance(column.width) : origin >= slot_count) return 0;
    return test_memory(column, mask, stage, BitmapFilter{(const uint32_t *)test.words, origin, slot_count});
}

struct BloomFilter {
    typedef BloomBlock Read;
    static const uint32_t rows = 2;
    KeyFilterView view;
    uint64_t base;

    METHOD uint64_t hash_of(uint64_t distance) const { return hash_integer_row((int64_t)(base + distance)); }
    METHOD BloomBlock read(uint64_t distance) const { return *block_of(view, hash_of(distance)); }
    METHOD bool passes(uint64_t distance, const BloomBlock &block) const { return has_bits(block, hash_of(distance)); }
};

DEVICE uint32_t test_bloom(const SegmentTest &test, const PlacedBlock &placed, uint32_t mask, Stage *stage) {
    const BlockColumn column = column_of(placed, test.column, &mask);
    return test_memory(column, mask, stage, BloomFilter{{test.words, test.slot_count, 0}, (uint64_t)column.base});
}

DEVICE uint32_t test_flags(const SegmentTest &test, const PlacedBlock &placed, uint32_t mask) {
    const uint8_t *flags = (const uint8_t *)test.words;
    const int64_t origin = placed.target_origin + (int64_t)(placed.number * SEGMENT_BLOCK_ROWS) + lane_of_thread();
    uint32_t left = 0;
#pragma unroll 8
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        if (mask >> item & 1) left |= (uint32_t)(flags[origin + item * WARP_THREADS] != 0) << item;
    }
    return left;
}

// The flags of the rows that are tested, which are numbered in their order.
DEVICE uint32_t test_ranked_flags(const SegmentTest &test, const SegmentSelection &before, uint64_t block, uint32_t mask) {
    const uint8_t *flags = (const uint8_t *)test.words;
    const uint32_t word = ((const uint32_t *)before.bits)[block * SEGMENT_BLOCK_WORDS + lane_of_thread()];
    const uint32_t words_before = warp_inclusive_sum((uint32_t)__popc(word)) - (uint32_t)__popc(word);
    const uint64_t first = ((const uint64_t *)before.offsets)[block];
    uint32_t left = 0;
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint32_t of_item = __shfl_sync(0xffffffffu, word, (int)item);
        const uint32_t rank = __shfl_sync(0xffffffffu, words_before, (int)item) + (uint32_t)__popc(of_item & ((1u << lane_of_thread()) - 1));
        if (mask >> item & 1) left |= (uint32_t)(flags[first + rank] != 0) << item;
    }
    return left;
}

// Bytes of a text, which may lie in the stage.
struct SearchedText {
    const uint8_t *bytes;
    uint32_t length;
};

#define SEARCH_NOWHERE 0xffffffffu

DEVICE bool equals_at(const SearchedText &text, uint32_t place, const uint8_t *bytes, uint32_t count) {
    for (uint32_t byte = 0; byte < count; byte++) {
        if (text.bytes[place + byte] != bytes[byte]) return false;
    }
    return true;
}

// Some bytes to be found, and a mask of as many of their head as they have.
struct SoughtBytes {
    const uint8_t *bytes;
    uint32_t count, head, ones;

    // The first place of those whose bits are set, from one on and up to `last`, where a text has the bytes, or SEARCH_NOWHERE. `low` and
    // `high` are its words there.
    METHOD uint32_t place_in(const SearchedText &text, uint32_t low, uint32_t high, int32_t first, uint32_t wanted, uint32_t last) const {
        uint32_t equal = 0;
#pragma unroll
        for (uint32_t byte = 0; byte < 4; byte++) {
            equal |= (uint32_t)(((__funnelshift_r(low, high, 8 * byte) ^ head) & ones) == 0) << byte;
        }
        for (equal &= wanted; equal; equal &= equal - 1) {
            const uint32_t found = (uint32_t)(first + __ffs((int)equal) - 1);
            if (found > last) break;
            if (count <= 4 || equals_at(text, found + 4, bytes + 4, count - 4)) return found;
        }
        return SEARCH_NOWHERE;
    }
};

DEVICE SoughtBytes sought_bytes(const uint8_t *bytes, uint32_t count, uint32_t head) {
    return SoughtBytes{bytes, count, head, count < 4 ? (1u << 8 * count) - 1 : 0xffffffffu};
}

// How a thread searches a text by itself: it compares four places of a word at once with the head of what it seeks. It reads whole words of
// four bytes, which may begin before the text; none begins behind it.
struct ThreadSearch {
    METHOD bool has_bytes_at(const SearchedText &text, uint32_t place, const uint8_t *bytes, uint32_t count) const {
        return equals_at(text, place, bytes, count);
    }

    // The first place from one on, of those up to `last`, where the text has some bytes, or SEARCH_NOWHERE.
    METHOD uint32_t find(const SearchedText &text, uint32_t place, uint32_t last, const SoughtBytes &sought) const {
        const uint32_t skipped = (uint32_t)((uint64_t)(text.bytes + place) % 4);
        const uint32_t *words = (const uint32_t *)(text.bytes + place - skipped);
        // Places of the word that are behind the one to begin at.
        uint32_t wanted = 0xfu << skipped;
        int32_t first = (int32_t)place - (int32_t)skipped;
        for (uint32_t low = words[0]; first <= (int32_t)last; first += 4) {
            const uint32_t high = first + 4 < (int32_t)text.length ? words[1] : 0;
            const uint32_t found = sought.place_in(text, low, high, first, wanted, last);
            if (found != SEARCH_NOWHERE) return found;
            wanted = 0xfu;
            low = high;
            words++;
        }
        return SEARCH_NOWHERE;
    }
};

// How the threads of a warp search one text together: each has a word of its own of every 32.
struct WarpSearch {
    METHOD bool has_bytes_at(const SearchedText &text, uint32_t place, const uint8_t *bytes, uint32_t count) const {
        bool differs = false;
        for (uint32_t byte = lane_of_thread(); byte < count; byte += WARP_THREADS) differs = differs || text.bytes[place + byte] != bytes[byte];
        return __ballot_sync(0xffffffffu, differs) == 0;
    }

    METHOD uint32_t find(const SearchedText &text, uint32_t place, uint32_t last, const SoughtBytes &sought) const {
        const uint32_t skipped = (uint32_t)((uint64_t)(text.bytes + place) % 4);
        const uint8_t *bytes = text.bytes + place - skipped;
        uint32_t wanted = lane_of_thread() == 0 ? 0xfu << skipped : 0xfu;
        const int32_t begin = (int32_t)place - (int32_t)skipped, lane_bytes = (int32_t)lane_of_thread() * 4;
        for (int32_t line = 0; begin + line <= (int32_t)last; line += 4 * WARP_THREADS) {
            const int32_t first = begin + line + lane_bytes;
            uint32_t found = SEARCH_NOWHERE;
            if (first <= (int32_t)last) {
                const uint32_t *words = (const uint32_t *)(bytes + line + lane_bytes);
                const uint32_t high = first + 4 < (int32_t)text.length ? words[1] : 0;
                found = sought.place_in(text, words[0], high, first, wanted, last);
            }
            const uint32_t finders = __ballot_sync(0xffffffffu, found != SEARCH_NOWHERE);
            if (finders) return __shfl_sync(0xffffffffu, found, __ffs((int)finders) - 1);
            wanted = 0xfu;
        }
        return SEARCH_NOWHERE;
    }
};

// Whether a search finds a text. Every thread of the warp calls it for the same text if they search together.
template <class Searcher>
DEVICE bool finds(const SegmentSearch &search, const SearchedText &text) {
    const Searcher searcher;
    const uint8_t *bytes = search.bytes;
    uint32_t part = 0, place = 0, end = text.length;
    if (search.begins) {
        const uint32_t count = search.part_bytes[0];
        if (text.length < count || !searcher.has_bytes_at(text, 0, bytes, count)) return false;
        if (search.ends && search.part_count == 1) return text.length == count;
        place = count;
        bytes += count;
        part = 1;
    }
    const uint32_t parts = search.part_count - (search.ends != 0);
    if (search.ends) {
        const uint8_t *last = search.bytes;
        for (uint32_t before = 0; before < parts; before++) last += search.part_bytes[before];
        const uint32_t count = search.part_bytes[parts];
        if (end - place < count || !searcher.has_bytes_at(text, end - count, last, count)) return false;
        end -= count;
    }
    for (; part < parts; part++) {
        const uint32_t count = search.part_bytes[part];
        if (end - place < count) return false;
        place = searcher.find(text, place, end - count, sought_bytes(bytes, count, search.heads[part]));
        if (place == SEARCH_NOWHERE) return false;
        place += count;
        bytes += count;
    }
    return true;
}

// Texts of 32 rows are staged if they have at most so many bytes together.
#define STAGED_TEXT_BYTES (SEGMENT_BLOCK_ROWS * sizeof(uint32_t) - sizeof(Words4))
// Of texts that are not, the threads of a warp search those from so many bytes on together, unless only ends are looked at. On one H200 texts of
// 2 to 8 KB took 0.8 of the time so, and texts of 300 to 1,000 bytes 1.2.
#define SHARED_TEXT_BYTES 1024

// Where a row's text ends, when the text of all rows of the block has so many bytes.
DEVICE uint64_t text_end(const BlockColumn &column, const PlacedBlock &placed, uint32_t row, uint64_t all_bytes) {
    return row + 1 < SEGMENT_BLOCK_ROWS && row < placed.end ? distance_of(column, row + 1) : all_bytes;
}

// Whether a search finds a text. Every thread of the warp calls it. It is not inlined, for rows of other tests have the registers.
DEVICE_CALL bool finds_together(const SegmentSearch &search, uint64_t bytes, uint32_t length) {
    return finds<WarpSearch>(search, SearchedText{(const uint8_t *)bytes, length});
}

DEVICE uint32_t test_search(const SegmentTest &test, const PlacedBlock &placed, uint32_t mask, Stage *stage) {
    const uint32_t lane = lane_of_thread();
    const SegmentView &view = placed.views[test.column];
    const BlockColumn column = column_of(placed, test.column, &mask);
    const uint64_t all_bytes = (uint64_t)head_of(view, placed.number + 1).base - (uint64_t)column.base;
    const uint64_t texts = view.texts + (uint64_t)column.base;
    const SegmentSearch &search = *(const SegmentSearch *)test.words;
    const uint32_t shared_bytes = search.part_count > search.begins + search.ends ? SHARED_TEXT_BYTES : 0xffffffffu;
    uint32_t found = 0, shared = 0;
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        const uint32_t row = item * WARP_THREADS + lane;
        const bool is_asked = mask >> item & 1;
        if (__ballot_sync(0xffffffffu, is_asked) == 0) continue;
        // Rows behind the last one are where the text ends.
        const uint64_t start = row < placed.end ? distance_of(column, row) : all_bytes;
        const uint64_t next = text_end(column, placed, row, all_bytes);
        const uint64_t first = __shfl_sync(0xffffffffu, start, 0), last = __shfl_sync(0xffffffffu, next, WARP_THREADS - 1);
        SearchedText text = {(const uint8_t *)(texts + start), (uint32_t)(next - start)};
        if (last - first <= STAGED_TEXT_BYTES) {
            const uint64_t address = texts + first, aligned = address & ~(uint64_t)(sizeof(Words4) - 1);
            const uint32_t count = (uint32_t)((address - aligned + last - first + sizeof(Words4) - 1) / sizeof(Words4));
            __syncwarp();
            for (uint32_t place = lane; place < count; place += WARP_THREADS) ((Words4 *)stage->words)[place] = ((const Words4 *)aligned)[place];
            __syncwarp();
            text.bytes = (const uint8_t *)stage->words + (texts + start - aligned);
        } else if (is_asked && text.length >= shared_bytes) {
            shared |= 1u << item;
            continue;
        }
        if (is_asked) found |= (uint32_t)finds<ThreadSearch>(search, text) << item;
    }
    for (uint32_t item = 0; item < THREAD_ROWS; item++) {
        for (uint32_t owners = __ballot_sync(0xffffffffu, shared >> item & 1); owners; owners &= owners - 1) {
            const uint32_t owner = (uint32_t)__ffs((int)owners) - 1, row = item * WARP_THREADS + owner;
            const uint64_t start = distance_of(column, row);
            const bool is_found = finds_together(search, texts + start, (uint32_t)(text_end(column, placed, row, all_bytes) - start));
            if (lane == owner) found |= (uint32_t)is_found << item;
        }
    }
    return (search.negated ? ~found : found) & mask;
}

DEVICE uint32_t run_test(const TestSegments &args, const SegmentTest &test, const PlacedBlock &placed, uint64_t block, uint32_t mask,
                         Stage *stage) {
    switch (test.kind) {
        case TEST_RANGE: return test_range(test, placed, mask, stage);
        case TEST_ORDER: return test_order(test, placed, mask, stage);
        case TEST_BITMAP: return test_bitmap(test, placed, mask, stage);
        case TEST_BLOOM: return test_bloom(test, placed, mask, stage);
        case TEST_FLAGS: return test_flags(test, placed, mask);
        case TEST_SEARCH: return test_search(test, placed, mask, stage);
        default: return test_ranked_flags(test, args.before, block, mask);
    }
}

KERNEL(test_segments, TestSegments, BLOCK_THREADS) {
    SHARED Stage stages[WARPS];
    SHARED uint32_t tested[SEGMENT_TESTS_MAX], passed[SEGMENT_TESTS_MAX];
    if (threadIdx.x < SEGMENT_TESTS_MAX) tested[threadIdx.x] = passed[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t warp = threadIdx.x / WARP_THREADS, lane = lane_of_thread();
    const uint64_t block = (uint64_t)blockIdx.x * WARPS + warp;
    if (block < args.rows.block_count) {
        const PlacedBlock placed = place_block(args.rows, block);
        uint32_t mask = rows_between(placed.first, placed.end);
        if (args.before.bits) mask &= transposed_bits(((const uint32_t *)args.before.bits)[block * SEGMENT_BLOCK_WORDS + lane]);
        for (uint32_t place = 0; place < args.test_count; place++) {
            if (__ballot_sync(0xffffffffu, mask != 0) == 0) break;
            const SegmentTest &test = args.tests[place];
            const uint32_t left = run_test(args, test, placed, block, mask, &stages[warp]);
            if (test.counts) {
                const uint32_t asked = warp_sum((uint32_t)__popc(mask)), kept = warp_sum((uint32_t)__popc(left));
                if (lane == 0) {
                    atomicAdd(&tested[place], asked);
                    atomicAdd(&passed[place], kept);
                }
            }
            mask = left;
        }
        const uint32_t word = transposed_bits(mask);
        ((uint32_t *)args.bits)[block * SEGMENT_BLOCK_WORDS + lane] = word;
        const uint32_t count = warp_sum((uint32_t)__popc(word));
        if (lane == 0) ((uint32_t *)args.counts)[block] = count;
    }
    __syncthreads();
    if (threadIdx.x >= args.test_count || args.tests[threadIdx.x].counts == 0 || tested[threadIdx.x] == 0) return;
    FilterCounts *counts = (FilterCounts *)args.tests[threadIdx.x].counts;
    atomicAdd((unsigned long long *)&counts->tested, (unsigned long long)tested[threadIdx.x]);
    atomicAdd((unsigned long long *)&counts->passed, (unsigned long long)passed[threadIdx.x]);
}
