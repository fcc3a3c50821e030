//! Adds checksums to the pages of files, since the available writer does not. Used by the tests of
//! src/cuda too.
//!
//! Source: Parquet's parquet.thrift, `PageHeader`; Thrift's compact protocol; RFC 1952, section 8, for the CRC-32.

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

/// The same file with a checksum in every page's header, and its metadata; there is no footer.
pub fn with_checksums(file: &[u8], metadata: &ParquetMetaData) -> (Vec<u8>, ParquetMetaData) {
    let mut bytes = b"PAR1".to_vec();
    let row_groups =
        metadata.row_groups().iter().map(|row_group| rewrite(row_group, file, &mut bytes)).collect();
    (bytes, ParquetMetaData::new(metadata.file_metadata().clone(), row_groups))
}

/// Positions of the pages of a chunk, without their headers.
pub fn page_bodies(chunk: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut bodies, mut at) = (Vec::new(), 0);
    while at < chunk.len() {
        let page = Page::parse(&chunk[at..]);
        let start = at + page.header.len();
        at = start + page.body.len();
        bodies.push(start..at);
    }
    bodies
}

fn rewrite(row_group: &RowGroupMetaData, file: &[u8], bytes: &mut Vec<u8>) -> RowGroupMetaData {
    let mut columns = Vec::new();
    for column in row_group.columns() {
        let (start, length) = column.byte_range();
        let mut rest = &file[start as usize..(start + length) as usize];
        let first = bytes.len();
        let (mut dictionary, mut data) = (None, None);
        while !rest.is_empty() {
            let place = bytes.len() as i64;
            let page = Page::parse(rest);
            match page.is_dictionary {
                true => dictionary = Some(place),
                false => data = data.or(Some(place)),
            }
            page.write(bytes);
            rest = &rest[page.header.len() + page.body.len()..];
        }
        let builder = column.clone().into_builder();
        let builder = builder
            .set_dictionary_page_offset(dictionary)
            .set_data_page_offset(data.unwrap_or(first as i64))
            .set_total_compressed_size((bytes.len() - first) as i64)
            .set_offset_index_offset(None)
            .set_column_index_offset(None);
        columns.push(builder.build().expect("a column chunk"));
    }
    row_group.clone().into_builder().set_column_metadata(columns).build().expect("a row group")
}

struct Page<'a> {
    header: &'a [u8],
    /// Where its fourth field would be.
    fourth: usize,
    is_dictionary: bool,
    body: &'a [u8],
}

impl<'a> Page<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        let mut walk = Walk { bytes, at: 0 };
        let [page_type, _, body_bytes] = [(); 3].map(|()| {
            assert_eq!(walk.byte(), 0x15, "three integers come first");
            walk.varint() >> 1
        });
        let fourth = walk.at;
        walk.skip_fields();
        let (header, rest) = bytes.split_at(walk.at);
        Self { header, fourth, is_dictionary: page_type == 2, body: &rest[..body_bytes as usize] }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let next = self.header[self.fourth];
        assert!(next >> 4 > 1, "there is no checksum yet");
        bytes.extend(&self.header[..self.fourth]);
        bytes.push(0x15);
        let checksum = crc32(self.body).cast_signed();
        let mut zigzag = u64::from((checksum << 1 ^ checksum >> 31).cast_unsigned());
        while zigzag >= 0x80 {
            bytes.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        bytes.push(zigzag as u8);
        // Field numbers are stored as differences from the last.
        bytes.push(next - 0x10);
        bytes.extend(&self.header[self.fourth + 1..]);
        bytes.extend(self.body);
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn skip_fields(&mut self) {
        loop {
            let field = self.byte();
            if field == 0 {
                return;
            }
            assert!(field >> 4 != 0, "fields are in order");
            match field & 0xf {
                1 | 2 => {}
                4..=6 => {
                    self.varint();
                }
                8 => self.at += self.varint() as usize,
                12 => self.skip_fields(),
                kind => panic!("a page header has a field of kind {kind}"),
            }
        }
    }
}

/// The checksum of gzip, and of Parquet's pages.
pub fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
