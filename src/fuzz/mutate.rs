//! Damage of Parquet files: of any bytes, and of what the format is made of, re-encoded so that what reads it gets past the rest.
//!
//! - the footer, page headers and page indexes: fields changed, taken away, repeated, moved, given another type
//! - pages: bytes of levels and values; cut, lengthened, repeated, left out, exchanged with those of other files
//! - codecs: damaged values in frames of Snappy, LZ4, Gzip and Zstandard that are sound
//!
//! Invariants: what is done follows from the seed alone. A file that can't be taken apart any more gets damaged bytes.

use crate::{
    random::Random,
    thrift::{INTEGER_CODE, STRUCT_CODE, Value},
};

/// Field numbers of Parquet's parquet.thrift.
mod fields {
    pub const ROW_GROUPS: i16 = 4;
    pub const COLUMNS: i16 = 1;
    pub const META_DATA: i16 = 3;
    pub const CODEC: i16 = 4;
    pub const TOTAL_UNCOMPRESSED: i16 = 6;
    pub const TOTAL_COMPRESSED: i16 = 7;
    pub const DATA_PAGE: i16 = 9;
    pub const DICTIONARY_PAGE: i16 = 11;
    /// Offset and length of the offset index, then of the column index.
    pub const INDEXES: [i16; 4] = [4, 5, 6, 7];
    pub const PAGE_TYPE: i16 = 1;
    pub const PAGE_UNCOMPRESSED: i16 = 2;
    pub const PAGE_COMPRESSED: i16 = 3;
    pub const PAGE_CHECKSUM: i16 = 4;
    pub const PAGE_V2: i16 = 8;
}

/// Beyond so many bytes nothing is made longer.
const FILE_BYTES_MAX: usize = 256 << 10;
const PAGES_MAX: usize = 1000;
const UNCOMPRESSED: i64 = 0;

/// A file taken apart.
struct Parts {
    footer: Value,
    /// Of each row group, of each column.
    chunks: Vec<Vec<Vec<Page>>>,
}

#[derive(Clone)]
struct Page {
    header: Value,
    body: Vec<u8>,
}

/// The content with some damage; `other` is another file, whose pages may get into this one.
pub fn mutate(content: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let damaged = match random.below(10) {
        0 => None,
        1 | 2 => change_footer(content, random),
        3 => change_index(content, random),
        _ => change_pages(content, other, random),
    };
    damaged.unwrap_or_else(|| {
        let mut bytes = content.to_vec();
        change_bytes(&mut bytes, random);
        bytes
    })
}

/// Changes some bytes, more often of a part of them.
fn change_bytes(bytes: &mut [u8], random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    // Levels, lengths, widths and counts stand at the beginnings.
    let end = if random.below(3) == 0 { bytes.len().min(12) } else { bytes.len() };
    for _ in 0..=random.below(4) {
        let place = random.below(end);
        match random.below(8) {
            0 => bytes[place] = random.next() as u8,
            1 => bytes[place] ^= 1 << random.below(8),
            2 => bytes[place] = random.pick(&[0, 1, 2, 0x7f, 0x80, 0xfe, 0xff]),
            3 => bytes[place] = bytes[place].wrapping_add(random.pick(&[1, 0xff])),
            4 => {
                let count = random.below(8).min(bytes.len() - place);
                let any = random.next() as u8;
                let value = random.pick(&[0, 0xff, 0x80, any]);
                bytes[place..place + count].fill(value);
            }
            5 => {
                let from = random.below(bytes.len());
                let count = random.below(16).min(bytes.len() - from.max(place));
                bytes.copy_within(from..from + count, place);
            }
            6 if bytes.len() >= place + 4 => {
                let value = random.pick(&[0, 1, -1, i32::MAX, i32::MIN, bytes.len() as i32]);
                bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
            }
            _ => bytes[place] = bytes[random.below(bytes.len())],
        }
    }
}

/// Cuts bytes off or away, or puts some in.
fn change_length(bytes: &mut Vec<u8>, random: &mut Random) {
    let place = random.below(bytes.len() + 1);
    match random.below(4) {
        0 => bytes.truncate(place),
        1 => {
            let end = (place + random.below(8)).min(bytes.len());
            bytes.drain(place..end);
        }
        2 => {
            let more: Vec<u8> = (0..random.below(16)).map(|_| random.next() as u8).collect();
            bytes.splice(place..place, more);
        }
        _ if bytes.len() < FILE_BYTES_MAX / 4 => {
            let again = bytes[place..].to_vec();
            bytes.extend(again);
        }
        _ => {}
    }
}

/// Changes some values of a tree.
fn change_tree(tree: &mut Value, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let number = random.below(tree.count());
        if let Some(value) = tree.nth_mut(number) {
            change_value(value, random);
        }
    }
}

fn change_value(value: &mut Value, random: &mut Random) {
    match value {
        Value::Bool(flag) => *flag = !*flag,
        Value::Byte(byte) => *byte = random.next() as u8,
        Value::Integer(code, number) => {
            *number = match random.below(8) {
                0 => number.wrapping_add(1),
                1 => number.wrapping_sub(1),
                2 => number.wrapping_neg(),
                3 => number.wrapping_mul(2),
                4 => random.pick(&[0, 1, -1, 2, 7, 8, 63, 64, 127, 255, 4096]),
                5 => random.pick(&[
                    i64::from(i32::MAX),
                    i64::from(i32::MIN),
                    i64::MAX,
                    i64::MIN,
                    1 << 32,
                    1 << 40,
                ]),
                6 => (random.next() % 40).cast_signed(),
                _ => *number ^ (1 << random.below(63)),
            };
            if *code != 6 {
                *number = i64::from(*number as i32);
            }
            if random.below(40) == 0 {
                *code = random.pick(&[4, 5, 6]);
            }
        }
        Value::Double(bytes) => *bytes = random.next().to_le_bytes(),
        Value::Binary(bytes) => match random.below(3) {
            0 => change_length(bytes, random),
            _ => change_bytes(bytes, random),
        },
        Value::List(code, items) => match random.below(5) {
            0 => {
                items.pop();
            }
            1 => items.clear(),
            2 => items.reverse(),
            3 if !items.is_empty() && items.len() < 100 => {
                let again = items[random.below(items.len())].clone();
                items.push(again);
            }
            _ if random.below(8) == 0 => *code = random.pick(&[3, 5, 6, 8, STRUCT_CODE]),
            _ => {}
        },
        Value::Struct(fields) if !fields.is_empty() => {
            let place = random.below(fields.len());
            match random.below(5) {
                0 => {
                    fields.remove(place);
                }
                1 => fields[place].0 = random.below(14) as i16 + 1,
                2 => {
                    let again = fields[place].clone();
                    fields.insert(place, again);
                }
                3 => {
                    let from = random.below(fields.len());
                    fields[place].1 = fields[from].1.clone();
                }
                _ => change_value(&mut fields[place].1, random),
            }
        }
        Value::Struct(_) => {}
    }
}

/// Where the footer begins.
fn footer_start(content: &[u8]) -> Option<usize> {
    let length = content.get(content.len().checked_sub(8)?..content.len() - 4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    (content.len() - 8).checked_sub(length).filter(|start| *start >= 4)
}

fn read_footer(content: &[u8]) -> Option<(Value, usize)> {
    let start = footer_start(content)?;
    let (footer, _) = Value::parse(&content[start..content.len() - 8])?;
    Some((footer, start))
}

fn with_footer(mut bytes: Vec<u8>, footer: &Value) -> Vec<u8> {
    let footer = footer.encode();
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    bytes
}

fn change_footer(content: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (mut footer, start) = read_footer(content)?;
    change_tree(&mut footer, random);
    Some(with_footer(content[..start].to_vec(), &footer))
}

/// Changes the offset index or the column index of a column chunk, which then stands behind the others.
fn change_index(content: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (mut footer, start) = read_footer(content)?;
    let row_groups = footer.field_mut(fields::ROW_GROUPS)?.items_mut();
    let count = row_groups.len();
    let columns = row_groups.get_mut(random.below(count))?.field_mut(fields::COLUMNS)?.items_mut();
    let count = columns.len();
    let column = columns.get_mut(random.below(count))?;
    let [offset, length] = random.pick(&[[4, 5], [6, 7]]);
    let place = usize::try_from(column.integer(offset)?).ok()?;
    let (mut index, _) = Value::parse(content.get(place..start)?)?;
    change_tree(&mut index, random);
    let index = index.encode();
    let mut bytes = content[..start].to_vec();
    column.set_integer(offset, bytes.len() as i64);
    column.set_integer(length, index.len() as i64);
    bytes.extend(index);
    Some(with_footer(bytes, &footer))
}

fn change_pages(content: &[u8], other: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut parts = take_apart(content)?;
    for _ in 0..=random.below(2) {
        let group = random.below(parts.chunks.len());
        let column = random.below(parts.chunks.get(group)?.len());
        let pages = parts.chunks[group].get_mut(column).filter(|pages| !pages.is_empty())?;
        let place = random.below(pages.len());
        match random.below(12) {
            0..=2 => change_tree(&mut pages[place].header, random),
            3..=5 => {
                change_bytes(&mut pages[place].body, random);
                settle_checksum(&mut pages[place], random);
            }
            6 => {
                change_length(&mut pages[place].body, random);
                settle_lengths(&mut pages[place], random);
            }
            7 => {
                let again = pages[place].clone();
                pages.insert(random.below(pages.len() + 1), again);
            }
            8 => {
                pages.remove(place);
            }
            9 => {
                let with = random.below(pages.len());
                pages.swap(place, with);
            }
            10 => {
                let mut others =
                    take_apart(other)?.chunks.into_iter().flatten().flatten().collect::<Vec<_>>();
                let theirs = others.swap_remove(random.below(others.len()).min(others.len().checked_sub(1)?));
                if random.below(2) == 0 {
                    pages[place].body = theirs.body;
                    settle_lengths(&mut pages[place], random);
                } else {
                    pages[place] = theirs;
                }
            }
            _ => frame_chunk(&mut parts, group, column, random)?,
        }
    }
    Some(parts.put_together())
}

/// A checksum that no longer holds stays so half the times.
fn settle_checksum(page: &mut Page, random: &mut Random) {
    if random.below(2) == 0 {
        page.header.set_integer(fields::PAGE_CHECKSUM, i64::from(checksum(&page.body).cast_signed()));
    }
}

/// The header says the body's length, most times.
fn settle_lengths(page: &mut Page, random: &mut Random) {
    if random.below(8) > 0 {
        let length = page.body.len() as i64;
        let before = page.header.integer(fields::PAGE_COMPRESSED);
        if before == page.header.integer(fields::PAGE_UNCOMPRESSED) {
            page.header.set_integer(fields::PAGE_UNCOMPRESSED, length);
        }
        page.header.set_integer(fields::PAGE_COMPRESSED, length);
    }
    settle_checksum(page, random);
}

/// Puts the pages of a column chunk that is not compressed into frames of a codec, damaged or not.
fn frame_chunk(parts: &mut Parts, group: usize, column: usize, random: &mut Random) -> Option<()> {
    let place = parts.footer.field_mut(fields::ROW_GROUPS)?.items_mut().get_mut(group)?;
    let meta = place.field_mut(fields::COLUMNS)?.items_mut().get_mut(column)?.field_mut(fields::META_DATA)?;
    if meta.integer(fields::CODEC)? != UNCOMPRESSED {
        return None;
    }
    let codec = random.pick(&[1, 2, 6, 7]);
    meta.set_integer(fields::CODEC, codec);
    let pages = parts.chunks.get_mut(group)?.get_mut(column)?;
    let damaged = random.below(pages.len());
    for (number, page) in pages.iter_mut().enumerate() {
        let levels = match page.header.field(fields::PAGE_V2) {
            Some(header) => [5, 6].iter().filter_map(|field| header.integer(*field)).sum::<i64>(),
            None => 0,
        };
        let levels = usize::try_from(levels).ok()?.min(page.body.len());
        let (levels, values) = page.body.split_at(levels);
        let mut values = values.to_vec();
        if number == damaged && random.below(2) == 0 {
            change_bytes(&mut values, random);
        }
        let mut frame = frame(codec, &values);
        if number == damaged && random.below(2) == 0 {
            change_bytes(&mut frame, random);
        }
        page.body = [levels, &frame].concat();
        page.header.set_integer(fields::PAGE_COMPRESSED, page.body.len() as i64);
        settle_checksum(page, random);
    }
    Some(())
}

/// Bytes as a sound frame of a codec that compresses nothing.
fn frame(codec: i64, bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    match codec {
        1 => {
            // Snappy: the length, and literals of up to 60 bytes.
            let mut length = bytes.len();
            while length >= 0x80 {
                framed.push(length as u8 | 0x80);
                length >>= 7;
            }
            framed.push(length as u8);
            for literal in bytes.chunks(60) {
                framed.push(((literal.len() - 1) as u8) << 2);
                framed.extend(literal);
            }
        }
        2 => {
            // Gzip: stored blocks, the checksum and the length.
            framed.extend([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
            let mut blocks = bytes.chunks(0xffff).peekable();
            if bytes.is_empty() {
                framed.extend([1, 0, 0, 0xff, 0xff]);
            }
            while let Some(block) = blocks.next() {
                framed.push(u8::from(blocks.peek().is_none()));
                framed.extend((block.len() as u16).to_le_bytes());
                framed.extend((!(block.len() as u16)).to_le_bytes());
                framed.extend(block);
            }
            framed.extend(checksum(bytes).to_le_bytes());
            framed.extend((bytes.len() as u32).to_le_bytes());
        }
        6 => {
            // Zstandard: a frame without a length or a checksum, of raw blocks.
            framed.extend([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58]);
            let mut blocks = bytes.chunks(0xffff).peekable();
            if bytes.is_empty() {
                framed.extend([1, 0, 0]);
            }
            while let Some(block) = blocks.next() {
                let head = (block.len() as u32) << 3 | u32::from(blocks.peek().is_none());
                framed.extend(&head.to_le_bytes()[..3]);
                framed.extend(block);
            }
        }
        _ => {
            // LZ4: one sequence of literals.
            framed.push((bytes.len().min(15) as u8) << 4);
            if let Some(mut rest) = bytes.len().checked_sub(15) {
                while rest >= 255 {
                    framed.push(255);
                    rest -= 255;
                }
                framed.push(rest as u8);
            }
            framed.extend(bytes);
        }
    }
    framed
}

/// The same file with a checksum in every page's header.
pub fn with_checksums(content: &[u8]) -> Option<Vec<u8>> {
    let mut parts = take_apart(content)?;
    for page in parts.chunks.iter_mut().flatten().flatten() {
        let checksum = Value::Integer(INTEGER_CODE, i64::from(checksum(&page.body).cast_signed()));
        let Value::Struct(header) = &mut page.header else { continue };
        header.retain(|(id, _)| *id != fields::PAGE_CHECKSUM);
        let place = header.partition_point(|(id, _)| *id < fields::PAGE_CHECKSUM);
        header.insert(place, (fields::PAGE_CHECKSUM, checksum));
    }
    Some(parts.put_together())
}

/// Whether a page's header has a checksum that its bytes don't.
pub fn has_failing_checksum(content: &[u8]) -> bool {
    let pages = take_apart(content).map(|parts| parts.chunks).unwrap_or_default();
    pages.iter().flatten().flatten().any(|page| {
        let told = page.header.integer(fields::PAGE_CHECKSUM);
        told.is_some_and(|told| told as u32 != checksum(&page.body))
    })
}

/// CRC-32, as Gzip has it and Parquet's page headers do.
pub fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |state, byte| {
        (0..8).fold(state ^ u32::from(*byte), |state, _| {
            (state >> 1) ^ (0xedb8_8320 & (state & 1).wrapping_neg())
        })
    })
}

fn take_apart(content: &[u8]) -> Option<Parts> {
    let (footer, start) = read_footer(content)?;
    let mut chunks = Vec::new();
    for row_group in footer.field(fields::ROW_GROUPS)?.items() {
        let mut columns = Vec::new();
        for column in row_group.field(fields::COLUMNS)?.items() {
            columns.push(pages_of(content.get(..start)?, column.field(fields::META_DATA)?)?);
        }
        chunks.push(columns);
    }
    (!chunks.is_empty()).then_some(Parts { footer, chunks })
}

fn pages_of(content: &[u8], meta: &Value) -> Option<Vec<Page>> {
    let data = meta.integer(fields::DATA_PAGE)?;
    let first = meta
        .integer(fields::DICTIONARY_PAGE)
        .filter(|place| *place > 0)
        .map_or(data, |place| place.min(data));
    let first = usize::try_from(first).ok()?;
    let length = usize::try_from(meta.integer(fields::TOTAL_COMPRESSED)?).ok()?;
    let mut rest = content.get(first..first.checked_add(length)?)?;
    let mut pages = Vec::new();
    while !rest.is_empty() && pages.len() < PAGES_MAX {
        let (header, header_bytes) = Value::parse(rest)?;
        let body_bytes = usize::try_from(header.integer(fields::PAGE_COMPRESSED)?).ok()?;
        let end = header_bytes.checked_add(body_bytes)?;
        pages.push(Page { header, body: rest.get(header_bytes..end)?.to_vec() });
        rest = &rest[end..];
    }
    Some(pages)
}

impl Parts {
    /// The file, with places and lengths as they are now, and without page indexes.
    fn put_together(mut self) -> Vec<u8> {
        let mut bytes = b"PAR1".to_vec();
        let row_groups = self.footer.field_mut(fields::ROW_GROUPS).map(Value::items_mut).unwrap_or_default();
        for (row_group, columns) in row_groups.iter_mut().zip(&self.chunks) {
            let places = row_group.field_mut(fields::COLUMNS).map(Value::items_mut).unwrap_or_default();
            for (column, pages) in places.iter_mut().zip(columns) {
                column.remove(&fields::INDEXES);
                let Some(meta) = column.field_mut(fields::META_DATA) else { continue };
                let (first, mut data, mut uncompressed) = (bytes.len(), None, 0);
                for page in pages {
                    if page.header.integer(fields::PAGE_TYPE) != Some(2) {
                        data = data.or(Some(bytes.len()));
                    }
                    let header = page.header.encode();
                    uncompressed +=
                        header.len() as i64 + page.header.integer(fields::PAGE_UNCOMPRESSED).unwrap_or(0);
                    bytes.extend(header);
                    bytes.extend(&page.body);
                }
                meta.set_integer(fields::DICTIONARY_PAGE, first as i64);
                meta.set_integer(fields::DATA_PAGE, data.unwrap_or(first) as i64);
                meta.set_integer(fields::TOTAL_COMPRESSED, (bytes.len() - first) as i64);
                meta.set_integer(fields::TOTAL_UNCOMPRESSED, uncompressed);
            }
        }
        with_footer(bytes, &self.footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_taken_apart_and_put_together_reads_the_same() {
        let data = std::path::Path::new("../../regress/data");
        for name in ["edge_int4", "form_dictionary", "form_page_v2", "t1", "edge_text_array"] {
            let content = std::fs::read(data.join(format!("{name}.parquet"))).unwrap();
            let (footer, start) = read_footer(&content).unwrap();
            assert_eq!(with_footer(content[..start].to_vec(), &footer), content, "{name}");
            let once = take_apart(&content).unwrap().put_together();
            let twice = take_apart(&once).unwrap().put_together();
            assert_eq!(once, twice, "{name}");
        }
    }

    #[test]
    fn a_checksum_holds_until_a_page_is_damaged() {
        let data = std::path::Path::new("../../regress/data");
        let content = std::fs::read(data.join("form_page_v2.parquet")).unwrap();
        assert!(!has_failing_checksum(&content));
        let mut with = with_checksums(&content).unwrap();
        assert!(with.len() > content.len() - 500 && !has_failing_checksum(&with));
        let page = take_apart(&with).unwrap().chunks[0][0].pop().unwrap();
        let place = with.windows(page.body.len()).position(|window| window == page.body).unwrap();
        with[place] ^= 1;
        assert!(has_failing_checksum(&with));
    }

    #[test]
    fn checksums_are_those_of_gzip() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }
}
