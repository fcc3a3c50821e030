// Decompresses pages of LZ4 blocks: one without a frame (LZ4_RAW), or several, each after its sizes (Hadoop's, LZ4).
//
// Grid:    one block a page.
// Inputs:  pages[grid], each with the bytes it has once decompressed.
// Outputs: exactly target_bytes bytes a page.
// Status:  ERROR_COMPRESSED_PAGE if a page is not LZ4 or has another length; its output has no meaning then. Pages
//          that are not Hadoop's are refused: the format's name has stood for other frames too, which the host knows.
// Traffic: input read and output written once; copies read output, mostly from cache.
// Source:  lz4/lz4, doc/lz4_Block_format.md; apache/parquet-format, Compression.md, LZ4.
#include "lz4.cuh"

KERNEL(decompress_lz4, DecompressPages, BLOCK_THREADS) {
    const CompressedPage page = ((const CompressedPage *)args.pages)[blockIdx.x];
    const bool is_sound = decompress_page<Lz4Codec>(page);
    clear_gap(page);
    if (!is_sound && threadIdx.x == 0) report_error(args.status, ERROR_COMPRESSED_PAGE, page.page);
}

// The sizes before a block, big end first: of the output, and of the block.
#define HADOOP_SIZES_BYTES 8

DEVICE bool decompress_hadoop_page(const CompressedPage &page) {
    uint32_t at = 0, produced = 0;
    while (page.source_bytes - at >= HADOOP_SIZES_BYTES) {
        const uint64_t sizes = swap_bytes(load_u64(page.source + at));
        CompressedPage block = page;
        at += HADOOP_SIZES_BYTES;
        block.source = page.source + at;
        block.target = page.target + produced;
        block.source_bytes = (uint32_t)sizes;
        block.target_bytes = (uint32_t)(sizes >> 32);
        if (block.source_bytes > page.source_bytes - at) return false;
        if (block.target_bytes > page.target_bytes - produced) return false;
        if (!decompress_page<Lz4Codec>(block)) return false;
        at += block.source_bytes;
        produced += block.target_bytes;
    }
    return at == page.source_bytes && produced == page.target_bytes;
}

KERNEL_RESIDENT(decompress_hadoop_lz4, DecompressFrames, BLOCK_THREADS, 5) {
    const CompressedPage page = ((const CompressedPage *)args.pages)[blockIdx.x];
    const bool is_sound = decompress_hadoop_page(page);
    clear_gap(page);
    if (!is_sound && threadIdx.x == 0) ((uint32_t *)args.refused)[blockIdx.x] = 1;
}
