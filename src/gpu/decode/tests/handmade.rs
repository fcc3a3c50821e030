//! Chunks put together by hand, in forms that the available writer does not write.

use std::{path::Path, sync::Arc};

use parquet::{
    basic::{CompressionCodec, LogicalType, Repetition, Type as PhysicalType},
    data_type::{ByteArray, ByteArrayType, DataType as ParquetType, Int96, Int96Type},
    file::{metadata::ColumnChunkMetaData, properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::{ColumnDescriptor, ColumnPath, Type},
};
use pystachio_plan::{DataType, ErrorKind, Result, ScanColumn};

use super::{
    EncodedColumnChunk, Random, Value, Values, column, column_values, decode_column, decode_row_group,
    footer, memory, oracle::read_column,
};
use crate::operation::Queue;

/// A field of a Thrift structure whose number is one above the last: an integer.
pub(super) fn integer(bytes: &mut Vec<u8>, value: u64) {
    bytes.push(0x15);
    varint(bytes, value << 1);
}

pub(super) fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A data page V1.
pub(super) fn page_v1(row_count: usize, encoding: u64, level_encoding: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    integer(&mut bytes, 0);
    integer(&mut bytes, body.len() as u64);
    integer(&mut bytes, body.len() as u64);
    bytes.push(0x2c);
    integer(&mut bytes, row_count as u64);
    integer(&mut bytes, encoding);
    integer(&mut bytes, level_encoding);
    integer(&mut bytes, level_encoding);
    bytes.extend([0, 0]);
    bytes.extend(body);
    bytes
}

/// A dictionary page of PLAIN values.
fn dictionary_page(entries: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    integer(&mut bytes, 2);
    integer(&mut bytes, body.len() as u64);
    integer(&mut bytes, body.len() as u64);
    bytes.push(0x4c);
    integer(&mut bytes, entries as u64);
    integer(&mut bytes, 0);
    bytes.extend([0, 0]);
    bytes.extend(body);
    bytes
}

fn chunk_metadata(physical: PhysicalType, optional: bool, bytes: usize) -> ColumnChunkMetaData {
    compressed_chunk_metadata(physical, optional, bytes, CompressionCodec::UNCOMPRESSED)
}

pub(super) fn compressed_chunk_metadata(
    physical: PhysicalType,
    optional: bool,
    bytes: usize,
    codec: CompressionCodec,
) -> ColumnChunkMetaData {
    let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let field = Type::primitive_type_builder("v", physical).with_repetition(repetition).build().unwrap();
    let path = ColumnPath::new(vec!["v".to_owned()]);
    let descriptor = ColumnDescriptor::new(Arc::new(field), optional.into(), 0, path);
    ColumnChunkMetaData::builder(Arc::new(descriptor))
        .set_compression_codec(codec)
        .set_data_page_offset(0)
        .set_total_compressed_size(bytes as i64)
        .build()
        .unwrap()
}

pub(super) fn decode(
    physical: PhysicalType,
    optional: bool,
    pages: &[Vec<u8>],
    column: &ScanColumn,
    rows: usize,
) -> Result<Values> {
    let bytes = pages.concat();
    let metadata = chunk_metadata(physical, optional, bytes.len());
    let memory = memory();
    let chunk =
        EncodedColumnChunk { bytes: &bytes, metadata: &metadata, column, table: "t", path: Path::new("f") };
    let columns = decode_row_group(&Queue::new(&memory)?, &[chunk], rows)?;
    Ok(column_values(&memory, &columns[0], rows))
}

/// Numbers as hybrid runs of random kinds and lengths.
fn random_runs(random: &mut Random, values: &mut [u32], width: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut done = 0;
    while done < values.len() {
        let left = values.len() - done;
        if random.chance(50) {
            let limit = *random.pick(&[3, 40, 3000]);
            let length = left.min(1 + random.below(limit) as usize);
            let value = values[done];
            values[done..done + length].fill(value);
            varint(&mut bytes, (length as u64) << 1);
            bytes.extend(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
            done += length;
        } else {
            let limit = *random.pick(&[2, 70, 500]);
            let groups = left.div_ceil(8).min(1 + random.below(limit) as usize);
            varint(&mut bytes, (groups as u64) << 1 | 1);
            let mut packed = vec![0_u8; groups * width as usize];
            for place in 0..(groups * 8).min(left) {
                for bit in 0..width {
                    if values[done + place] >> bit & 1 == 1 {
                        let at = place * width as usize + bit as usize;
                        packed[at / 8] |= 1 << (at % 8);
                    }
                }
            }
            bytes.extend(packed);
            done += (groups * 8).min(left);
        }
    }
    bytes
}

#[test]
fn runs_of_every_kind_and_width_are_read() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..300 {
        let width = random.below(18) as u32;
        let entries = 1_usize << width;
        let dictionary: Vec<u8> =
            (0..entries as i32).flat_map(|value| (value * 3 - 7).to_le_bytes()).collect();
        let rows = *random.pick(&[1_usize, 8, 1023, 1024, 1025, 4000]);
        let mut levels: Vec<u32> = (0..rows).map(|_| random.below(2) as u32).collect();
        let encoded_levels = random_runs(&mut random, &mut levels, 1);
        let count = levels.iter().filter(|level| **level == 1).count();
        let mut indexes: Vec<u32> = (0..count).map(|_| random.below(entries as u64) as u32).collect();
        let encoded_indexes = random_runs(&mut random, &mut indexes, width);
        let mut body = (encoded_levels.len() as u32).to_le_bytes().to_vec();
        body.extend(encoded_levels);
        body.push(width as u8);
        body.extend(encoded_indexes);
        // PLAIN_DICTIONARY or RLE_DICTIONARY, levels in RLE.
        let encoding = if round % 2 == 0 { 2 } else { 8 };
        let pages = [dictionary_page(entries, &dictionary), page_v1(rows, encoding, 3, &body)];
        let decoded = decode(PhysicalType::INT32, true, &pages, &column("v", DataType::Int32), rows).unwrap();
        let mut next = indexes.iter();
        let expected: Values = levels
            .iter()
            .map(|level| (*level == 1).then(|| Value::Number(i128::from(*next.next().unwrap()) * 3 - 7)))
            .collect();
        assert_eq!(decoded, expected, "round {round} width {width} rows {rows}");
    }
}

#[test]
fn runs_without_values_do_not_make_a_page_long() {
    // Eight values in two runs of four, with packed runs of no group before each.
    let runs = |empty: usize| {
        let run = |value: u8| [vec![1; empty], vec![8, value]].concat();
        [run(1), run(0)].concat()
    };
    let dictionary: Vec<u8> = (0..2_i32).flat_map(i32::to_le_bytes).collect();
    let expect = |values: [i128; 8]| values.map(|value| Some(Value::Number(value))).to_vec();
    for (empty, is_read) in [(0, true), (1, true), (2, false), (1 << 20, false)] {
        let values = [vec![1], runs(empty)].concat();
        let indexes = [dictionary_page(2, &dictionary), page_v1(8, 8, 3, &values)];
        let flags = [((2 * empty + 4) as u32).to_le_bytes().to_vec(), runs(empty)].concat();
        // Levels of which the first four say that there is a value.
        let levels = [flags.clone(), [7_i32; 4].into_iter().flat_map(i32::to_le_bytes).collect()].concat();
        let read = [
            decode(PhysicalType::INT32, false, &indexes, &column("v", DataType::Int32), 8),
            decode(
                PhysicalType::BOOLEAN,
                false,
                &[page_v1(8, 3, 3, &flags)],
                &column("v", DataType::Bool),
                8,
            ),
            decode(PhysicalType::INT32, true, &[page_v1(8, 0, 3, &levels)], &column("v", DataType::Int32), 8),
        ];
        let number = |value| Some(Value::Number(value));
        let expected = [
            expect([1, 1, 1, 1, 0, 0, 0, 0]),
            expect([1, 1, 1, 1, 0, 0, 0, 0]),
            vec![number(7), number(7), number(7), number(7), None, None, None, None],
        ];
        for (read, expected) in read.into_iter().zip(expected) {
            match read {
                Ok(values) => assert!(is_read && values == expected, "{empty}: {values:?}"),
                Err(error) => assert!(!is_read && error.kind == ErrorKind::FileCorrupt, "{empty}: {error}"),
            }
        }
    }
}

/// Integers as DELTA_BINARY_PACKED with blocks and miniblocks of any size. The last miniblock is whole, or ends with the
/// last value.
fn delta_stream(values: &[i64], block_values: usize, miniblocks: usize, cut: bool) -> Vec<u8> {
    let zigzag = |value: i64| (value << 1 ^ value >> 63) as u64;
    let mut bytes = Vec::new();
    varint(&mut bytes, block_values as u64);
    varint(&mut bytes, miniblocks as u64);
    varint(&mut bytes, values.len() as u64);
    varint(&mut bytes, zigzag(values[0]));
    let deltas: Vec<i64> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    for block in deltas.chunks(block_values) {
        let minimum = *block.iter().min().unwrap();
        varint(&mut bytes, zigzag(minimum));
        let miniblock_values = block_values / miniblocks;
        let parts: Vec<&[i64]> = block.chunks(miniblock_values).collect();
        let above = |delta: &i64| delta.wrapping_sub(minimum) as u64;
        let width_of = |part: &&[i64]| 64 - part.iter().map(above).max().unwrap().leading_zeros();
        let widths: Vec<u32> = parts.iter().map(width_of).collect();
        bytes.extend(widths.iter().map(|width| *width as u8));
        // Widths of absent miniblocks have no meaning.
        bytes.resize(bytes.len() + miniblocks - parts.len(), 0xee);
        for (part, width) in parts.iter().zip(widths) {
            let count = if cut { part.len() } else { miniblock_values };
            let mut packed = vec![0_u8; (count * width as usize).div_ceil(8)];
            for (place, delta) in part.iter().enumerate() {
                for bit in 0..width as usize {
                    let at = place * width as usize + bit;
                    packed[at / 8] |= u8::from(above(delta) >> bit & 1 == 1) << (at % 8);
                }
            }
            bytes.extend(packed);
        }
    }
    bytes
}

#[test]
fn deltas_of_every_width_in_blocks_of_any_size_are_read() {
    let seed = 11;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let shapes = [(128, 4), (256, 4), (64, 8), (2048, 256), (4096, 1), (32_768, 2), (1000, 5), (24, 1)];
    for round in 0..160 {
        let (block_values, miniblocks) = shapes[round % shapes.len()];
        let rows = *random.pick(&[1_usize, 2, 9, 129, 256, 257, 258, 2049, 5000, 40_000]);
        let mut value = random.below(1 << 40) as i64;
        let mut values = Vec::with_capacity(rows);
        let mut width = 0;
        for row in 0..rows {
            if row % 100 == 0 {
                width = random.below(65) as u32;
            }
            values.push(value);
            let step = if width == 0 { 0 } else { random.below(u64::MAX) >> (64 - width) };
            value = value.wrapping_add(step as i64);
        }
        let body = delta_stream(&values, block_values, miniblocks, round % 3 == 0);
        let pages = [page_v1(rows, 5, 3, &body)];
        let decoded =
            decode(PhysicalType::INT64, false, &pages, &column("v", DataType::Int64), rows).unwrap();
        let expected: Values = values.iter().map(|value| Some(Value::Number(i128::from(*value)))).collect();
        assert_eq!(
            decoded, expected,
            "round {round}, blocks of {block_values}, {miniblocks} miniblocks, {rows} rows"
        );
    }
}

#[test]
fn lengths_that_the_page_has_no_bytes_for_are_errors() {
    let lengths: Vec<i64> = (0..3000).map(|row| row % 7).collect();
    let bytes: usize = lengths.iter().sum::<i64>() as usize;
    let read = |lengths: &[i64], bytes: usize| {
        let mut body = delta_stream(lengths, 128, 4, false);
        body.resize(body.len() + bytes, b'a');
        let pages = [page_v1(lengths.len(), 6, 3, &body)];
        decode(PhysicalType::BYTE_ARRAY, false, &pages, &column("v", DataType::Bytea), lengths.len())
    };
    assert_eq!(read(&lengths, bytes).unwrap().len(), lengths.len());
    // Negative in the middle of a segment, at the start of one, and last; beyond the page; too few bytes.
    for (place, length) in [(300, -1), (512, -5), (2999, -1), (700, bytes as i64), (0, i64::from(i32::MAX))] {
        let mut wrong = lengths.clone();
        wrong[place] = length;
        assert_eq!(read(&wrong, bytes).unwrap_err().kind, ErrorKind::FileCorrupt, "{place}: {length}");
    }
    assert_eq!(read(&lengths, bytes - 1).unwrap_err().kind, ErrorKind::FileCorrupt);
}

#[test]
fn any_byte_beyond_ascii_among_strings_after_lengths_is_found() {
    let lengths: Vec<i64> = (0..600).map(|row| 1 + row % 5).collect();
    let bytes = lengths.iter().sum::<i64>() as usize;
    let header = delta_stream(&lengths, 128, 4, false);
    let read = |place: Option<usize>| {
        let mut body = header.clone();
        body.resize(header.len() + bytes, b'a');
        if let Some(place) = place {
            body[header.len() + place] = 0xff;
        }
        let pages = [page_v1(lengths.len(), 6, 3, &body)];
        decode(PhysicalType::BYTE_ARRAY, false, &pages, &column("v", DataType::Text), lengths.len())
    };
    assert_eq!(read(None).unwrap().len(), lengths.len());
    for place in [0, 1, 2, 3, 700, bytes - 4, bytes - 3, bytes - 2, bytes - 1] {
        let error = read(Some(place)).unwrap_err();
        assert!(error.message.starts_with("invalid byte sequence for UTF-8"), "{place}: {error}");
    }
}

#[test]
fn deltas_that_end_early_are_errors() {
    let values: Vec<i64> = (0..5000).map(|row| row * row % 977).collect();
    for (block_values, miniblocks) in [(128, 4), (4096, 1)] {
        let whole = delta_stream(&values, block_values, miniblocks, true);
        for bytes in [0, 1, 3, 40, whole.len() / 2, whole.len() - 1] {
            let pages = [page_v1(values.len(), 5, 3, &whole[..bytes])];
            let column = column("v", DataType::Int64);
            let error = decode(PhysicalType::INT64, false, &pages, &column, values.len()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::FileCorrupt, "{bytes} bytes, blocks of {block_values}");
        }
    }
}

#[test]
fn levels_packed_from_the_highest_bit_are_read() {
    let mut random = Random::new(3);
    for rows in [1_usize, 7, 8, 9, 100, 1024, 3001] {
        let levels: Vec<bool> = (0..rows).map(|_| random.chance(60)).collect();
        let mut body = vec![0_u8; rows.div_ceil(8)];
        for (row, valid) in levels.iter().enumerate() {
            body[row / 8] |= u8::from(*valid) << (7 - row % 8);
        }
        let mut expected = Vec::new();
        for (row, valid) in levels.iter().enumerate() {
            if *valid {
                body.extend((row as i64 * 11).to_le_bytes());
            }
            expected.push(valid.then_some(Value::Number(row as i128 * 11)));
        }
        let pages = [page_v1(rows, 0, 4, &body)];
        let decoded = decode(PhysicalType::INT64, true, &pages, &column("v", DataType::Int64), rows).unwrap();
        assert_eq!(decoded, expected, "rows {rows}");
    }
}

#[test]
fn indexes_beyond_the_dictionary_are_errors() {
    // Width 2, eight times index 3, of a dictionary of three.
    let dictionary: Vec<u8> = (0..3_i32).flat_map(i32::to_le_bytes).collect();
    let pages = [dictionary_page(3, &dictionary), page_v1(8, 8, 3, &[2, 16, 3])];
    let error = decode(PhysicalType::INT32, false, &pages, &column("v", DataType::Int32), 8).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileCorrupt);
    assert!(error.message.contains("\"f\"") && error.message.contains("page 1"), "{error}");
    let error =
        decode(PhysicalType::INT32, false, &pages[1..], &column("v", DataType::Int32), 8).unwrap_err();
    assert!(error.message.contains("needs a dictionary"), "{error}");
}

/// A data page V2 whose header has these sizes, the counts of values, NULLs and rows, the bytes of
/// definition and repetition levels. Its body has the levels of eight rows with a value, in one
/// run, and the values.
fn page_v2(sizes: [i64; 2], counts: [i64; 3], levels: [i64; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let signed = |bytes: &mut Vec<u8>, value: i64| {
        bytes.push(0x15);
        varint(bytes, (value << 1 ^ value >> 63) as u64);
    };
    [3].into_iter().chain(sizes).for_each(|value| signed(&mut bytes, value));
    bytes.push(0x5c);
    counts.into_iter().chain([0]).chain(levels).for_each(|value| signed(&mut bytes, value));
    // Not compressed.
    bytes.extend([0x12, 0, 0, 16, 1]);
    bytes.extend((0..8_i32).flat_map(i32::to_le_bytes));
    bytes
}

#[test]
fn headers_that_can_not_be_are_errors() {
    let column = column("v", DataType::Int32);
    let read = |page: Vec<u8>| decode(PhysicalType::INT32, true, &[page], &column, 8);
    let (sizes, counts, levels) = ([34, 34], [8, 0, 8], [2, 0]);
    assert_eq!(read(page_v2(sizes, counts, levels)).unwrap().len(), 8);
    let bad = [
        ("a negative number", page_v2([34, -1], counts, levels)),
        ("a negative number", page_v2([-34, 34], counts, levels)),
        ("a negative number", page_v2(sizes, [-8, 0, 8], levels)),
        ("a negative number", page_v2(sizes, [8, -1, 8], levels)),
        ("a negative number", page_v2(sizes, [8, 0, -8], levels)),
        ("a negative number", page_v2(sizes, counts, [-2, 0])),
        ("a negative number", page_v2(sizes, counts, [2, -2])),
        ("more NULLs", page_v2(sizes, [8, 9, 8], levels)),
        ("more rows", page_v2(sizes, [8, 0, 9], levels)),
        ("more values", page_v2(sizes, [9, 0, 8], levels)),
        ("ends after", page_v2([34, 35], counts, levels)),
        ("levels are longer", page_v2(sizes, counts, [35, 0])),
        ("levels are longer", page_v2(sizes, counts, [2, 33])),
        ("levels are longer", page_v2([34, 1], counts, levels)),
    ];
    for (reason, page) in bad {
        let error = read(page).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileCorrupt, "{reason}: {error}");
        let names = ["\"f\"", "column \"v\", page 0", reason];
        assert!(names.iter().all(|name| error.message.contains(name)), "{reason}: {error}");
    }
}

#[test]
fn entries_of_a_dictionary_that_nothing_uses_may_be_out_of_range() {
    let dictionary: Vec<u8> = [5, i32::MAX - 1].into_iter().flat_map(i32::to_le_bytes).collect();
    let page = |index| [dictionary_page(2, &dictionary), page_v1(8, 8, 3, &[1, 16, index])];
    let date = column("v", DataType::Date);
    let field_of = |pages: &[Vec<u8>]| {
        let bytes = pages.concat();
        let field = Type::primitive_type_builder("v", PhysicalType::INT32)
            .with_logical_type(Some(LogicalType::Date))
            .with_repetition(Repetition::REQUIRED)
            .build()
            .unwrap();
        let descriptor = ColumnDescriptor::new(Arc::new(field), 0, 0, ColumnPath::from("v"));
        let metadata = ColumnChunkMetaData::builder(Arc::new(descriptor)).build().unwrap();
        let memory = memory();
        let chunk = EncodedColumnChunk {
            bytes: &bytes,
            metadata: &metadata,
            column: &date,
            table: "t",
            path: Path::new("f"),
        };
        decode_row_group(&Queue::new(&memory)?, &[chunk], 8)
            .map(|columns| column_values(&memory, &columns[0], 8))
    };
    assert_eq!(field_of(&page(0)).unwrap(), vec![Some(Value::Number(5)); 8]);
    let error = field_of(&page(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DatetimeOutOfRange);
    assert!(error.message.starts_with("date out of range: a value of column \"v\""), "{error}");
}

#[test]
fn chunks_with_too_few_or_too_many_rows_are_errors() {
    let body: Vec<u8> = (0..4_i32).flat_map(i32::to_le_bytes).collect();
    let pages = [page_v1(4, 0, 3, &body)];
    for (rows, reason) in [(3, "more values"), (5, "fewer values")] {
        let error =
            decode(PhysicalType::INT32, false, &pages, &column("v", DataType::Int32), rows).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileCorrupt);
        assert!(error.message.contains(reason), "{error}");
    }
    let short = [page_v1(4, 0, 3, &body[..15])];
    let error = decode(PhysicalType::INT32, false, &short, &column("v", DataType::Int32), 4).unwrap_err();
    assert!(error.message.contains("column \"v\", page 0"), "{error}");
}

/// A file of one column, written without Arrow.
fn write_values<T: ParquetType>(
    field: Type,
    values: &[T::T],
    levels: Option<&[i16]>,
    dictionary: bool,
) -> Vec<u8> {
    let schema = Type::group_type_builder("schema").with_fields(vec![Arc::new(field)]).build().unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(dictionary).build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::new(properties)).unwrap();
    let mut row_group = writer.next_row_group().unwrap();
    let mut chunk = row_group.next_column().unwrap().unwrap();
    chunk.typed::<T>().write_batch(values, levels, None).unwrap();
    chunk.close().unwrap();
    row_group.close().unwrap();
    writer.close().unwrap();
    file
}

#[test]
fn int96_timestamps_are_read() {
    let mut random = Random::new(5);
    for dictionary in [false, true] {
        let values: Vec<Int96> = (0..500)
            .map(|_| {
                let nanoseconds = random.below(86_400_000_000_000);
                let mut value = Int96::new();
                value.set_data(
                    nanoseconds as u32,
                    (nanoseconds >> 32) as u32,
                    random.below(4_000_000) as u32,
                );
                value
            })
            .collect();
        let field = Type::primitive_type_builder("v", PhysicalType::INT96)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .unwrap();
        let levels: Vec<i16> = (0..750).map(|row| i16::from(row % 3 != 1)).collect();
        let file = write_values::<Int96Type>(field, &values, Some(&levels), dictionary);
        let decoded = decode_column(&file, 0, &column("v", DataType::Timestamp)).unwrap();
        assert_eq!(decoded, read_column(&file, &footer(&file), 0, &DataType::Timestamp).unwrap());
    }
}

#[test]
fn decimals_in_byte_arrays_are_read() {
    let mut random = Random::new(9);
    for (precision, length_max) in [(18, 8), (38, 16)] {
        let bound = 10_i128.pow(precision);
        let numbers: Vec<i128> = (0..400)
            .map(|_| {
                let bits = (i128::from(random.next() as i64) << 64 | i128::from(random.next())) % bound;
                bits >> random.below(100)
            })
            .collect();
        let values: Vec<ByteArray> = numbers
            .iter()
            .map(|number| {
                // As few bytes as hold it, or a few more.
                let bytes = number.to_be_bytes();
                let bits = if *number < 0 { (!number).leading_zeros() } else { number.leading_zeros() };
                let least = 16 - (bits as usize - 1) / 8;
                let length = (least + random.below(3) as usize).min(length_max);
                ByteArray::from(bytes[16 - length..].to_vec())
            })
            .collect();
        let field = Type::primitive_type_builder("v", PhysicalType::BYTE_ARRAY)
            .with_logical_type(Some(LogicalType::decimal(3, precision as i32)))
            .with_precision(precision as i32)
            .with_scale(3)
            .with_repetition(Repetition::REQUIRED)
            .build()
            .unwrap();
        let file = write_values::<ByteArrayType>(field, &values, None, precision == 18);
        let declared = DataType::Decimal { precision: precision as u8, scale: 3 };
        let decoded = decode_column(&file, 0, &column("v", declared)).unwrap();
        let expected: Values = numbers.iter().map(|number| Some(Value::Number(*number))).collect();
        assert_eq!(decoded, expected);
    }
}

#[test]
fn nested_columns_are_left_to_the_cpu_engine() {
    let item = Type::primitive_type_builder("item", PhysicalType::INT32)
        .with_repetition(Repetition::OPTIONAL)
        .build()
        .unwrap();
    let path = ColumnPath::new(vec!["list".to_owned(), "item".to_owned()]);
    let descriptor = ColumnDescriptor::new(Arc::new(item), 2, 1, path);
    let error = super::super::check_column(&descriptor, &column("list", DataType::Int32)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotSupported);
    assert!(error.message.contains("\"list\""), "{error}");
}
