// Decompresses pages of Snappy.
//
// Grid:    one block a page, or one for each SNAPPY_PART_BYTES of output of an indexed page: a writer compresses these one by one, so copies
//          do not reach from one to another. Where one does, the last block to end of the page's decompresses all of it.
// Inputs:  the pages, each with the bytes it has once decompressed, and the index of those that have one.
// Outputs: exactly target_bytes bytes a page.
// Status:  ERROR_COMPRESSED_PAGE if a page is not Snappy or has another length; its output has no meaning then.
// Traffic: input read and output written once; copies read output, mostly from cache.
// Source:  google/snappy, format_description.txt; for the blocks of a writer, kBlockSize of its snappy.h.
#include "chain.cuh"
#include "snappy.cuh"

// Where the element begins whose output begins at a byte, from the page's first on; CHAIN_NONE if none does. Every thread calls it.
DEVICE uint32_t find_start(const SnappyPage &target, const ChainSection *sections, const ChainPiece *pieces, uint32_t byte) {
    SHARED uint32_t found_section, found_start;
    if (threadIdx.x == 0) found_section = found_start = CHAIN_NONE;
    __syncthreads();
    for (uint32_t number = threadIdx.x; number < target.section_count; number += BLOCK_THREADS) {
        const ChainSection section = sections[number];
        const bool is_before = section.weight_before != CHAIN_NONE && section.weight_before <= byte;
        if (is_before && byte - section.weight_before < section.weight) found_section = number;
    }
    __syncthreads();
    if (found_section == CHAIN_NONE) return CHAIN_NONE;
    const ChainPiece piece = pieces[(uint64_t)found_section * CHAIN_SECTION_PIECES + threadIdx.x];
    const uint32_t piece_byte = sections[found_section].weight_before + piece.weight_before;
    uint32_t last;
    block_exclusive_max(piece.start != CHAIN_NONE && piece_byte <= byte ? threadIdx.x + 1 : 0, &last);
    if (threadIdx.x + 1 == last) {
        const CompressedPage &page = target.page;
        uint32_t at = piece.start - (uint32_t)(page.source & 3), before = piece_byte;
        Element element;
        while (before < byte && at < page.source_bytes) {
            if (SnappyCodec().read(page.source, at, page.source_bytes, false, &element) != READ_WHOLE) break;
            at += element.encoded_bytes;
            before += element.literal_bytes + element.copy_bytes;
        }
        if (before == byte) found_start = at;
    }
    __syncthreads();
    return found_start;
}

// Decompresses a part of a page and says whether that ends the page. Every thread calls it.
DEVICE bool decompress_indexed(const DecompressSnappy &args, SnappyPage &target, uint32_t number) {
    SHARED uint32_t is_last;
    const CompressedPage page = target.page;
    const ChainSection *sections = (const ChainSection *)args.sections + target.first_section;
    const ChainPiece *pieces = (const ChainPiece *)args.pieces + (uint64_t)target.first_section * CHAIN_SECTION_PIECES;
    const uint32_t first = number * SNAPPY_PART_BYTES, last = end_of_part(number, SNAPPY_PART_BYTES, page.target_bytes);
    const uint32_t start = find_start(target, sections, pieces, first);
    const bool is_sound = start != CHAIN_NONE && decompress_part(SnappyCodec(), page, start, first, last);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        if (!is_sound) atomicOr(&target.has_faults, 1u);
        __threadfence();
        is_last = atomicAdd(&target.ended_parts, 1u) == (page.target_bytes - 1) / SNAPPY_PART_BYTES;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

KERNEL(decompress_snappy, DecompressSnappy, BLOCK_THREADS) {
    const PagePart part = ((const PagePart *)args.list)[blockIdx.x];
    SnappyPage &target = ((SnappyPage *)args.pages)[part.page];
    const CompressedPage page = target.page;
    bool is_done = false;
    if (target.is_indexed) {
        if (!decompress_indexed(args, target, part.number)) return;
        is_done = ((volatile SnappyPage &)target).has_faults == 0;
    } else if (part.number > 0) {
        return;
    }
    if (!is_done) is_done = decompress_page<SnappyCodec>(page);
    clear_gap(page);
    if (!is_done && threadIdx.x == 0) report_error(args.status, ERROR_COMPRESSED_PAGE, page.page);
}
