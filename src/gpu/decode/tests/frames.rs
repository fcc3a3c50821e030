//! Pages decompressed by a library: the host's values whatever the library does, and the host's own
//! errors.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use arrow::datatypes::DataType as ArrowType;
use parquet::basic::{Compression, CompressionCodec, Encoding, GzipLevel, Type as PhysicalType, ZstdLevel};
use pystachio_cases::Sample;
use pystachio_plan::{DataType, DeviceSettings, Result};

use super::{
    super::abi::{CompressedPage, FramedPages, PAGE_PADDING_BYTES},
    EncodedColumnChunk, MEMORY_BYTES_MAX, Random, Value, Values,
    checksums::{page_bodies, with_checksums},
    column, column_values,
    corrupt::{DamagedFile, sample},
    decode_columns_in, decode_row_group, footer,
    handmade::{compressed_chunk_metadata, integer},
    host_library::{HostLibrary, LibraryFault},
    matrix::random_file,
    memory,
    oracle::read_column,
};
use crate::{
    device::{DeviceMemory, EmulatedPlatform, FrameFormat, Kernel, MemoryTechniques},
    operation::Queue,
};

const FAULTS: [LibraryFault; 6] = [
    LibraryFault::None,
    LibraryFault::FindsFaults,
    LibraryFault::StopsEarly,
    LibraryFault::IsBlind,
    LibraryFault::TakesNothing,
    LibraryFault::DoesNothing,
];

/// Memory of a device with a library, which gets pages without a checksum too; and the count of
/// frames that it got.
fn memory_with(fault: LibraryFault) -> (DeviceMemory, Arc<AtomicUsize>) {
    let (memory, frames) = checking_memory_with(fault);
    let settings = DeviceSettings { nvcomp_unchecked: true, ..DeviceSettings::default() };
    (memory.with_techniques(MemoryTechniques::of(settings)), frames)
}

/// The same, except that the library gets no page without a checksum.
fn checking_memory_with(fault: LibraryFault) -> (DeviceMemory, Arc<AtomicUsize>) {
    let (library, frames) = HostLibrary::new(fault);
    (DeviceMemory::new(Arc::new(EmulatedPlatform::with_decompressor(library)), MEMORY_BYTES_MAX), frames)
}

#[test]
fn a_library_sees_pages_that_have_a_checksum() {
    let (mut frames_with, mut frames_without) = (0, 0);
    let mut chosen = Sample::of("a_library_sees_pages_that_have_a_checksum");
    for seed in chosen.take(300..380) {
        let file = random_file(seed);
        if !file.context.contains("ZSTD") && !file.context.contains("GZIP") {
            continue;
        }
        let metadata = footer(&file.bytes);
        let (checked, checked_metadata) = with_checksums(&file.bytes, &metadata);
        for (bytes, of, count) in
            [(&checked, &checked_metadata, &mut frames_with), (&file.bytes, &metadata, &mut frames_without)]
        {
            let (memory, frames) = checking_memory_with(LibraryFault::None);
            let decoded = decode_columns_in(&memory, bytes, of, &file.columns);
            let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error}", file.context));
            for ((number, column), values) in file.columns.iter().zip(decoded) {
                let expected = read_column(&file.bytes, &metadata, *number, &column.data_type).unwrap();
                assert!(values == expected, "{} {}", file.context, file.choices[*number]);
            }
            *count += frames.load(Ordering::Relaxed);
        }
    }
    assert_eq!(frames_without, 0);
    assert!(!chosen.is_whole() || frames_with > 100, "{frames_with} {frames_without}");
}

#[test]
fn a_library_sees_no_page_that_is_not_as_its_checksum_says() {
    let mut random = Random::new(6);
    let mut chosen = Sample::of("a_library_sees_no_page_that_is_not_as_its_checksum_says");
    for compression in [Compression::ZSTD(ZstdLevel::default()), Compression::GZIP(GzipLevel::default())] {
        let mut failed = 0;
        for data_type in [ArrowType::Utf8, ArrowType::Int64] {
            let mut sample = sample(&mut random, &data_type, Some(Encoding::PLAIN), compression);
            (sample.file, sample.metadata) = with_checksums(&sample.file, &sample.metadata);
            let (start, bytes) = sample.metadata.row_group(0).column(0).byte_range();
            sample.chunk = start as usize..(start + bytes) as usize;
            let page_count = {
                let (memory, frames) = checking_memory_with(LibraryFault::None);
                outcome(&memory, &sample, &sample.file).unwrap();
                frames.load(Ordering::Relaxed)
            };
            let places = bodies(&sample);
            let marks = chosen.marks(places.len());
            for (place, is_chosen) in places.into_iter().zip(marks) {
                let mut file = sample.file.clone();
                file[place] ^= *random.pick(&[0xff, 0x80, 1, 2, 0x10]);
                if !is_chosen {
                    continue;
                }
                // A library that would accept it.
                let (memory_with_library, frames) = checking_memory_with(LibraryFault::IsBlind);
                let found = outcome(&memory_with_library, &sample, &file);
                assert_eq!(found, outcome(&memory(), &sample, &file), "{} byte {place}", sample.words);
                assert_eq!(frames.load(Ordering::Relaxed), page_count - 1, "{} byte {place}", sample.words);
                failed += usize::from(found.is_err());
            }
        }
        assert!(!chosen.is_whole() || failed > 100, "{compression:?} {failed}");
    }
}

#[test]
fn files_are_read_as_the_reader_does_whatever_the_library_does() {
    let mut frame_counts = [0; FAULTS.len()];
    let mut places = (0..FAULTS.len()).cycle();
    let mut chosen = Sample::of("files_are_read_as_the_reader_does_whatever_the_library_does");
    for seed in chosen.take(300..380) {
        let file = random_file(seed);
        if !file.context.contains("ZSTD") && !file.context.contains("GZIP") {
            continue;
        }
        let metadata = footer(&file.bytes);
        let place = places.next().unwrap();
        let (memory, frames) = memory_with(FAULTS[place]);
        let decoded = decode_columns_in(&memory, &file.bytes, &metadata, &file.columns);
        let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error}", file.context));
        for ((number, column), values) in file.columns.iter().zip(decoded) {
            let expected = read_column(&file.bytes, &metadata, *number, &column.data_type).unwrap();
            assert!(values == expected, "{:?} {} {}", FAULTS[place], file.context, file.choices[*number]);
        }
        frame_counts[place] += frames.load(Ordering::Relaxed);
    }
    // The last two decompress nothing.
    assert!(!chosen.is_whole() || frame_counts[..4].iter().all(|count| *count > 20), "{frame_counts:?}");
    assert_eq!(frame_counts[4..], [0, 0]);
}

/// The values, or the error message, of a file on a device.
fn outcome(
    memory: &DeviceMemory,
    sample: &DamagedFile,
    file: &[u8],
) -> std::result::Result<Vec<Values>, String> {
    let columns = [(0, sample.column.clone())];
    decode_columns_in(memory, file, &sample.metadata, &columns).map_err(|error| error.to_string())
}

/// Positions of the pages' bytes, without their headers.
fn bodies(sample: &DamagedFile) -> Vec<usize> {
    let bodies = page_bodies(&sample.file[sample.chunk.clone()]);
    bodies.into_iter().flatten().map(|place| sample.chunk.start + place).collect()
}

#[test]
fn damaged_pages_fail_in_the_same_words_as_without_a_library() {
    let mut random = Random::new(4);
    let mut chosen = Sample::of("damaged_pages_fail_in_the_same_words_as_without_a_library");
    let cases = [
        (Compression::ZSTD(ZstdLevel::default()), LibraryFault::None),
        (Compression::GZIP(GzipLevel::default()), LibraryFault::None),
        // Only gzip's own checksum shows that the library was wrong.
        (Compression::GZIP(GzipLevel::default()), LibraryFault::IsBlind),
    ];
    for (compression, fault) in cases {
        let (mut failed, mut changed) = (0, 0);
        for data_type in [ArrowType::Utf8, ArrowType::Int64, ArrowType::Int64] {
            let sample = sample(&mut random, &data_type, Some(Encoding::PLAIN), compression);
            let good = outcome(&memory(), &sample, &sample.file).unwrap();
            let places = bodies(&sample);
            let marks = chosen.marks(places.len());
            for (place, is_chosen) in places.into_iter().zip(marks) {
                let mut file = sample.file.clone();
                file[place] ^= *random.pick(&[0xff, 0x80, 1, 2, 0x10]);
                if !is_chosen {
                    continue;
                }
                let (memory_with_library, _) = memory_with(fault);
                let found = outcome(&memory_with_library, &sample, &file);
                assert_eq!(found, outcome(&memory(), &sample, &file), "{} byte {place}", sample.words);
                failed += usize::from(found.is_err());
                changed += usize::from(found.is_ok_and(|values| values != good));
            }
        }
        assert!(!chosen.is_whole() || failed > 100, "{compression:?} {fault:?} {failed} {changed}");
    }
}

#[test]
fn a_query_that_does_without_the_library_does_not_call_it() {
    let mut random = Random::new(5);
    let compression = Compression::GZIP(GzipLevel::default());
    let sample = sample(&mut random, &ArrowType::Int64, Some(Encoding::PLAIN), compression);
    let settings = DeviceSettings { nvcomp: false, ..DeviceSettings::default() };
    let (memory, frames) = memory_with(LibraryFault::None);
    let without = memory.with_techniques(MemoryTechniques::of(settings));
    let expected = outcome(&memory, &sample, &sample.file).unwrap();
    let frames_with = frames.load(Ordering::Relaxed);
    assert_eq!(outcome(&without, &sample, &sample.file).unwrap(), expected);
    assert!(frames_with > 0 && frames.load(Ordering::Relaxed) == frames_with);
}

/// Values of a chunk of one page of plain integers, in some compressed form; and the number of
/// frames that the library got.
fn decode_page(codec: CompressionCodec, values: &[i32], body: &[u8]) -> (Result<Values>, usize) {
    let mut bytes = Vec::new();
    integer(&mut bytes, 0);
    integer(&mut bytes, 4 * values.len() as u64);
    integer(&mut bytes, body.len() as u64);
    bytes.push(0x2c);
    integer(&mut bytes, values.len() as u64);
    integer(&mut bytes, 0);
    integer(&mut bytes, 3);
    integer(&mut bytes, 3);
    bytes.extend([0, 0]);
    bytes.extend(body);
    let metadata = compressed_chunk_metadata(PhysicalType::INT32, false, bytes.len(), codec);
    let (memory, frames) = memory_with(LibraryFault::IsBlind);
    let column = column("v", DataType::Int32);
    let (bytes, path) = (&bytes, Path::new("f"));
    let chunk = EncodedColumnChunk { bytes, metadata: &metadata, column: &column, table: "t", path };
    let decoded = decode_row_group(&Queue::new(&memory).unwrap(), &[chunk], values.len())
        .map(|columns| column_values(&memory, &columns[0], values.len()));
    (decoded, frames.load(Ordering::Relaxed))
}

/// Checks that a page has these values, and whether the library gets it.
fn check_page(codec: CompressionCodec, values: &[i32], body: &[u8], is_for_library: bool, what: &str) {
    let (decoded, frames) = decode_page(codec, values, body);
    let expected: Values = values.iter().map(|value| Some(Value::Number((*value).into()))).collect();
    assert_eq!(decoded.unwrap_or_else(|error| panic!("{what}: {error}")), expected, "{what}");
    assert_eq!(frames > 0, is_for_library, "{what}");
}

/// A Zstandard frame of plain blocks, with its size in so many bytes.
fn zstd_frame(content: &[u8], size_bytes: usize) -> Vec<u8> {
    let (descriptor, size) = match size_bytes {
        0 => (0x00, 0),
        1 => (0x20, content.len()),
        2 => (0x60, content.len() - 256),
        4 => (0xa0, content.len()),
        _ => (0xe0, content.len()),
    };
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, descriptor];
    // A window of a kilobyte, where the frame is not one segment.
    frame.extend((size_bytes == 0).then_some(0));
    frame.extend(&(size as u64).to_le_bytes()[..size_bytes]);
    let blocks: Vec<&[u8]> = content.chunks(300).collect();
    for (number, block) in blocks.iter().enumerate() {
        let header = block.len() << 3 | usize::from(number + 1 == blocks.len());
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(*block);
    }
    frame
}

#[test]
fn a_library_is_given_zstandard_pages_of_one_plain_frame_only() {
    let values: Vec<i32> = (0..200).map(|value| value * 77 - 5000).collect();
    let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let check = |body: &[u8], is_for_library, what| {
        check_page(CompressionCodec::ZSTD, &values, body, is_for_library, what);
    };
    for size_bytes in [0, 2, 4, 8] {
        check(&zstd_frame(&content, size_bytes), true, "one frame");
    }
    check_page(
        CompressionCodec::ZSTD,
        &values[..40],
        &zstd_frame(&content[..160], 1),
        true,
        "a size of one byte",
    );
    let (first, second) = content.split_at(400);
    check(&[zstd_frame(first, 2), zstd_frame(second, 4)].concat(), false, "two frames");
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    check(&[skippable.to_vec(), zstd_frame(&content, 2)].concat(), false, "a skippable frame first");
    check(&[zstd_frame(&content, 2), skippable.to_vec()].concat(), false, "a skippable frame last");
    let mut with_checksum = zstd_frame(&content, 2);
    with_checksum[4] |= 4;
    with_checksum.extend([0; 4]);
    let wrong = [
        (with_checksum, "a wrong checksum"),
        ([zstd_frame(&content, 2), vec![0]].concat(), "a byte after the frame"),
        (zstd_frame(&content[..796], 2), "a shorter frame"),
        (zstd_frame(&content, 2)[..500].to_vec(), "the frame's start"),
    ];
    for (body, what) in wrong {
        let (decoded, frames) = decode_page(CompressionCodec::ZSTD, &values, &body);
        let error = decoded.expect_err(what);
        assert!(error.message.contains("\"v\", page 0: "), "{error}");
        assert_eq!(frames, 0, "{what}");
    }
}

/// The checksum of gzip, a bit at a time.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}

/// A member of stored blocks, with flags and what they stand for.
fn gzip_member(content: &[u8], flags: u8, optional: &[u8]) -> Vec<u8> {
    let mut member = vec![0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 0xff];
    member.extend(optional);
    let blocks: Vec<&[u8]> = content.chunks(60_000).collect();
    for (number, block) in blocks.iter().enumerate() {
        let length = block.len() as u16;
        member.push(u8::from(number + 1 == blocks.len()));
        member.extend(length.to_le_bytes());
        member.extend((!length).to_le_bytes());
        member.extend(*block);
    }
    member.extend(crc32(content).to_le_bytes());
    member.extend((content.len() as u32).to_le_bytes());
    member
}

#[test]
fn a_library_is_given_gzip_pages_of_one_plain_member_only() {
    let values: Vec<i32> = (0..200).map(|value| value * 77 - 5000).collect();
    let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let check = |body: &[u8], is_for_library, what| {
        check_page(CompressionCodec::GZIP, &values, body, is_for_library, what);
    };
    check(&gzip_member(&content, 0, &[]), true, "one member");
    check(&gzip_member(&content, 8, b"name\0"), false, "a name");
    let (first, second) = content.split_at(400);
    check(&[gzip_member(first, 0, &[]), gzip_member(second, 0, &[])].concat(), false, "two members");
    check(
        &[gzip_member(&content, 0, &[]), gzip_member(&[], 0, &[1, 0, 0, 0xff, 0xff])].concat(),
        false,
        "nothing last",
    );
    let mut wrong = gzip_member(&content, 0, &[]);
    let place = wrong.len() - 8;
    wrong[place] ^= 1;
    let (decoded, frames) = decode_page(CompressionCodec::GZIP, &values, &wrong);
    assert!(decoded.expect_err("a wrong checksum").message.contains("\"v\", page 0: "));
    assert_eq!(frames, 1);
}

#[test]
fn checksums_of_pages_of_any_length_are_those_of_gzip() {
    let mut random = Random::new(6);
    let lengths = [1, 2, 63, 64, 65, 255, 256, 257, 1000, 4096, 40_000, 262_144, 262_145];
    for length in lengths {
        let values: Vec<i32> = (0..length).map(|_| random.next() as i32).collect();
        let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        check_page(CompressionCodec::GZIP, &values, &gzip_member(&content, 0, &[]), true, "a page");
        assert_eq!(finds_checksum_right(&content, crc32(&content)), Some(true), "{length}");
        assert_eq!(finds_checksum_right(&content, !crc32(&content)), Some(false), "{length}");
    }
}

/// Whether the kernel accepts a page's checksum.
fn finds_checksum_right(content: &[u8], checksum: u32) -> Option<bool> {
    let platform = Arc::new(EmulatedPlatform::new());
    let queue = Queue::new(&DeviceMemory::new(platform, MEMORY_BYTES_MAX)).ok()?;
    let target = queue.upload(&[content, &[0; PAGE_PADDING_BYTES as usize]].concat()).ok()?;
    let source = [&[0; 24], &checksum.to_le_bytes()[..], &(content.len() as u32).to_le_bytes()].concat();
    let source = queue.upload(&source).ok()?;
    let task = CompressedPage {
        source: source.address(),
        target: target.address(),
        source_bytes: 32,
        target_bytes: content.len() as u32,
        page: 0,
        reserved: 0,
    };
    let pages = queue.upload(&[task]).ok()?;
    let produced = queue.upload(&[content.len() as u64]).ok()?;
    let flags = queue.upload(&[0_u32; 2]).ok()?;
    let arguments = FramedPages {
        pages: pages.address(),
        refused: flags.address(),
        produced_bytes: produced.address(),
        statuses: flags.address() + 4,
        format: FrameFormat::Gzip as u32,
        page_count: 1,
        ..FramedPages::default()
    };
    queue.launch_moving(Kernel::CheckFrames, 1, &arguments, || 0).ok()?;
    queue.download::<u32>(&flags, 1).ok().map(|flags| flags[0] == 0)
}

/// A block of LZ4 that is literal bytes, after its sizes.
fn hadoop_block(content: &[u8]) -> Vec<u8> {
    let block = lz4_block(content);
    [&(content.len() as u32).to_be_bytes()[..], &(block.len() as u32).to_be_bytes(), &block].concat()
}

fn lz4_block(content: &[u8]) -> Vec<u8> {
    let mut block = vec![0xf0];
    let mut rest = content.len() - 15;
    while rest >= 255 {
        block.push(255);
        rest -= 255;
    }
    block.push(rest as u8);
    block.extend(content);
    block
}

#[test]
fn pages_of_lz4_are_blocks_after_their_sizes_or_what_writers_of_old_took_it_for() {
    let values: Vec<i32> = (0..200).map(|value| value * 77 - 5000).collect();
    let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let check = |body: &[u8], what| check_page(CompressionCodec::LZ4, &values, body, false, what);
    check(&hadoop_block(&content), "one block");
    let (first, second) = content.split_at(300);
    check(&[hadoop_block(first), hadoop_block(second)].concat(), "two blocks");
    check(&lz4_block(&content), "a block without sizes");
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0];
    let block = lz4_block(&content);
    frame.extend((block.len() as u32).to_le_bytes());
    frame.extend(block);
    frame.extend([0; 4]);
    check(&frame, "a frame");
    let wrong = [
        (hadoop_block(&content[..796]), "a shorter page"),
        ([hadoop_block(&content), vec![0]].concat(), "a byte after the blocks"),
        (hadoop_block(&content)[..700].to_vec(), "the page's start"),
    ];
    for (body, what) in wrong {
        let error = decode_page(CompressionCodec::LZ4, &values, &body).0.expect_err(what);
        assert!(error.message.contains("\"v\", page 0: "), "{error}");
    }
}

#[test]
fn checksums_change_nothing_else() {
    for seed in Sample::of("checksums_change_nothing_else").take(400..460) {
        let file = random_file(seed);
        let metadata = footer(&file.bytes);
        let (checked, checked_metadata) = with_checksums(&file.bytes, &metadata);
        let decoded = decode_columns_in(&memory(), &checked, &checked_metadata, &file.columns);
        let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error}", file.context));
        for ((number, column), values) in file.columns.iter().zip(decoded) {
            let expected = read_column(&file.bytes, &metadata, *number, &column.data_type).unwrap();
            assert!(values == expected, "{} {}", file.context, file.choices[*number]);
        }
    }
}
