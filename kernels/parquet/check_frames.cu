// What comes before and after a library decompresses pages: whether it may see them, and whether to believe it.
//
// The library promises nothing for frames that are corrupt: it may read beyond them, or not end. And its reading of rare
// forms is its own. So pages are refused, for the host to decompress, unless
//
//   - the page's bytes have the checksum that its writer has left, or such damage is a risk that is taken;
//   - a Zstandard page is one frame without dictionary and checksum, whose blocks end where the page ends;
//   - a gzip page is one member of the plainest header, of the page's length and checksum;
//   - the library has found no fault and has written as many bytes as the page has.
//
// Source:  RFC 8878, section 3.1.1; RFC 1952, section 2.3. The checksum of a whole from those of its parts: zlib, crc32.c.
#include "decompress.cuh"

#define ZSTD_MAGIC 0xfd2fb528u
#define ZSTD_BLOCK_BYTES_MAX (128u << 10)
#define ZSTD_BLOCK_REPEATED 1
#define ZSTD_BLOCK_COMPRESSED 2
// ID, compression method, flags, time, extra flags, system; then the checksum and the length.
#define GZIP_HEADER_BYTES 10
#define GZIP_TRAILER_BYTES 8
// ID and method, and that no optional part of a header follows.
#define GZIP_MAGIC 0x00088b1fu
// Above these the library's numbers are no longer sizes.
#define FRAME_BYTES_MAX 0x7fffffffu

// Whether a page is one frame whose blocks lie one after another until its end.
DEVICE bool is_plain_zstd(const CompressedPage &page) {
    const uint32_t end = page.source_bytes;
    if (end < 6 || load_u32(page.source) != ZSTD_MAGIC) return false;
    const uint32_t descriptor = load_u8(page.source + 4);
    const bool has_window = (descriptor & 0x20) == 0;
    // A dictionary's number, a checksum, a bit that means nothing yet.
    if (descriptor & 0x0f) return false;
    const uint32_t size_code = descriptor >> 6;
    const uint32_t size_bytes = size_code == 0 ? (has_window ? 0 : 1) : 1u << size_code;
    uint32_t at = 5 + (has_window ? 1 : 0);
    if (size_bytes > end - at) return false;
    if (size_bytes != 0) {
        uint64_t size = 0;
        for (uint32_t byte = 0; byte < size_bytes; byte++) size |= (uint64_t)load_u8(page.source + at + byte) << (8 * byte);
        if (size_bytes == 2) size += 256;
        if (size != page.target_bytes) return false;
    }
    at += size_bytes;
    uint64_t plain_bytes = 0;
    while (end - at >= 3) {
        const uint32_t header = load_u32(page.source + at) & 0xffffff;
        const uint32_t type = header >> 1 & 3, bytes = header >> 3;
        if (type > ZSTD_BLOCK_COMPRESSED || bytes > ZSTD_BLOCK_BYTES_MAX) return false;
        at += 3;
        const uint32_t stored = type == ZSTD_BLOCK_REPEATED ? 1 : bytes;
        if (stored > end - at) return false;
        at += stored;
        if (type != ZSTD_BLOCK_COMPRESSED) plain_bytes += bytes;
        if (plain_bytes > page.target_bytes) return false;
        if (header & 1) return at == end;
    }
    return false;
}

DEVICE bool is_plain_gzip(const CompressedPage &page) {
    if (page.source_bytes <= GZIP_HEADER_BYTES + GZIP_TRAILER_BYTES) return false;
    return load_u32(page.source) == GZIP_MAGIC && load_u32(page.source + page.source_bytes - 4) == page.target_bytes;
}

// A bit a power of x, the highest for x^0.
#define CRC32_POLYNOMIAL 0xedb88320u
#define CRC32_ONE 0x80000000u
#define CRC32_BYTE 0x00800000u // x^8

DEVICE uint32_t crc32_multiply(uint32_t left, uint32_t right) {
    uint32_t product = 0;
    for (uint32_t bit = CRC32_ONE; bit != 0; bit >>= 1) {
        if (left & bit) product ^= right;
        right = right & 1 ? right >> 1 ^ CRC32_POLYNOMIAL : right >> 1;
    }
    return product;
}

// x^(8 * bytes): what a checksum is multiplied by if so many bytes follow.
DEVICE uint32_t crc32_shift(uint32_t bytes) {
    uint32_t power = CRC32_ONE;
    for (uint32_t square = CRC32_BYTE; bytes != 0; bytes >>= 1) {
        if (bytes & 1) power = crc32_multiply(power, square);
        square = crc32_multiply(square, square);
    }
    return power;
}

// The checksum of bytes, which every thread gets. Every thread of the block calls it.
DEVICE uint32_t block_crc32(uint64_t address, uint32_t bytes) {
    SHARED uint32_t remainders[BLOCK_THREADS];
    SHARED uint32_t sums[BLOCK_THREADS];
    uint32_t remainder = threadIdx.x;
    for (uint32_t bit = 0; bit < 8; bit++) remainder = remainder & 1 ? remainder >> 1 ^ CRC32_POLYNOMIAL : remainder >> 1;
    remainders[threadIdx.x] = remainder;
    __syncthreads();
    const uint32_t part = bytes / BLOCK_THREADS + 1;
    const uint32_t first = threadIdx.x * part < bytes ? threadIdx.x * part : bytes;
    const uint32_t last = part < bytes - first ? first + part : bytes;
    // Ones before the first byte, as the format has it.
    uint32_t sum = threadIdx.x == 0 ? 0xffffffffu : 0;
    for (uint32_t at = first; at < last; at++) sum = remainders[(sum ^ load_u8(address + at)) & 0xff] ^ sum >> 8;
    sums[threadIdx.x] = crc32_multiply(sum, crc32_shift(bytes - last));
    __syncthreads();
    for (uint32_t half = BLOCK_THREADS / 2; half != 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] ^= sums[threadIdx.x + half];
        __syncthreads();
    }
    return ~sums[0];
}

// Fills the library's arrays.
//
// Grid:    one block a page.
// Inputs:  pages, checksums [page_count].
// Outputs: sources, source_bytes, targets, target_bytes, refused [page_count]; produced_bytes and statuses as they are
//          before the library has done anything.
// Traffic: the pages, read once; of Zstandard frames a sector a block more.
KERNEL(prepare_frames, FramedPages, BLOCK_THREADS) {
    const uint32_t number = blockIdx.x;
    const CompressedPage page = ((const CompressedPage *)args.pages)[number];
    const PageChecksum known = ((const PageChecksum *)args.checksums)[number];
    bool is_plain = page.source_bytes <= FRAME_BYTES_MAX && page.target_bytes <= FRAME_BYTES_MAX;
    is_plain = is_plain && (known.is_known || args.takes_unchecked);
    is_plain = is_plain && (args.format == FRAME_ZSTD ? is_plain_zstd(page) : is_plain_gzip(page));
    if (is_plain && known.is_known) {
        is_plain = block_crc32(page.source - known.lead_bytes, page.source_bytes + known.lead_bytes) == known.checksum;
    }
    if (threadIdx.x != 0) return;
    ((uint32_t *)args.refused)[number] = is_plain ? 0 : 1;
    ((uint64_t *)args.sources)[number] = is_plain ? page.source : args.stand_in;
    ((uint64_t *)args.source_bytes)[number] = is_plain ? page.source_bytes : args.stand_in_bytes;
    ((uint64_t *)args.targets)[number] = page.target;
    ((uint64_t *)args.target_bytes)[number] = page.target_bytes;
    ((uint64_t *)args.produced_bytes)[number] = 0;
    ((int32_t *)args.statuses)[number] = -1;
}

// Refuses pages that the library has not decompressed, or to something else.
//
// Grid:    one block a page.
// Inputs:  pages, produced_bytes, statuses [page_count].
// Outputs: refused[page_count], where it is not 1 yet.
// Traffic: the output of gzip pages, read once.
KERNEL(check_frames, FramedPages, BLOCK_THREADS) {
    const CompressedPage page = ((const CompressedPage *)args.pages)[blockIdx.x];
    uint32_t *refused = (uint32_t *)args.refused + blockIdx.x;
    clear_gap(page);
    if (*refused != 0) return;
    bool is_sound = ((const int32_t *)args.statuses)[blockIdx.x] == 0;
    is_sound = is_sound && ((const uint64_t *)args.produced_bytes)[blockIdx.x] == page.target_bytes;
    if (is_sound && args.format == FRAME_GZIP) {
        const uint64_t trailer = page.source + page.source_bytes - GZIP_TRAILER_BYTES;
        is_sound = block_crc32(page.target, page.target_bytes) == load_u32(trailer);
    }
    if (!is_sound && threadIdx.x == 0) *refused = 1;
}
