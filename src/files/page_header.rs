//! The header in front of every page.
//!
//! Invariants: no input makes the parser panic or read beyond its bytes. Fields that are not known are skipped.
//!
//! Deliberately absent: statistics of pages; what of a page only its bytes tell.
//!
//! Source: Parquet's parquet.thrift, `PageHeader`; Thrift's compact protocol.

use parquet::{
    basic::{CompressionCodec, Type as PhysicalType},
    file::metadata::ColumnChunkMetaData,
};

use crate::compact_protocol::{CompactWalk, Kind};

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Of what follows the header, once it is decompressed.
    pub uncompressed_bytes: u32,
    /// Of what follows the header in the file.
    pub compressed_bytes: u32,
    /// The CRC-32 of what follows the header, if the writer has left one. As on the CPU engine it makes no page wrong: it
    /// says which pages a library may see that promises nothing for damaged ones.
    pub checksum: Option<u32>,
    /// What the page is.
    pub kind: PageKind,
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// The values that indexes of later pages mean.
    Dictionary {
        /// Its entries.
        value_count: u32,
        /// Of the entries.
        encoding: PageEncoding,
    },
    /// Levels and values, compressed together.
    DataV1 {
        /// NULLs included.
        value_count: u32,
        /// Of the values.
        encoding: PageEncoding,
        /// Of the definition levels.
        definition_encoding: PageEncoding,
        /// Whether both kinds of levels have an encoding that the format knows, read or not.
        has_known_levels: bool,
    },
    /// Levels, then values, of which only these are compressed.
    DataV2 {
        /// NULLs included.
        value_count: u32,
        /// Of them, NULLs.
        null_count: u32,
        /// Rows, of which one may have several values or none.
        row_count: u32,
        /// Of the values.
        encoding: PageEncoding,
        /// How long the definition levels are.
        definition_bytes: u32,
        /// How long the repetition levels are.
        repetition_bytes: u32,
        /// Whether the values are compressed.
        is_compressed: bool,
    },
    /// Not read.
    Index,
}

/// How values or levels are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEncoding {
    /// Values one after another.
    Plain,
    /// `PLAIN_DICTIONARY` or `RLE_DICTIONARY`, which mean the same.
    Dictionary,
    /// Runs of one value, or of packed ones.
    Rle,
    /// Packed, as old writers do with levels.
    BitPacked,
    /// Differences of integers.
    DeltaBinaryPacked,
    /// Differences of lengths, then texts.
    DeltaLengthByteArray,
    /// Lengths of prefixes that are those of the text before, then the rest of each.
    DeltaByteArray,
    /// The first byte of every value, then the second one of each.
    ByteStreamSplit,
    /// None that the format knows.
    Unknown(
        /// Its number.
        i32,
    ),
}

impl PageEncoding {
    fn of(code: i32) -> Self {
        match code {
            0 => Self::Plain,
            2 | 8 => Self::Dictionary,
            3 => Self::Rle,
            4 => Self::BitPacked,
            5 => Self::DeltaBinaryPacked,
            6 => Self::DeltaLengthByteArray,
            7 => Self::DeltaByteArray,
            9 => Self::ByteStreamSplit,
            other => Self::Unknown(other),
        }
    }

    fn is_known(self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

impl PageHeader {
    /// The header at the start of `bytes`, and how long it is.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), &'static str> {
        let mut walk = CompactWalk { rest: bytes };
        let mut fields = HeaderFields::default();
        walk.fields(0, &mut |walk, field, kind| fields.read(walk, field, kind))?;
        let header = fields.finish()?;
        header.check()?;
        Ok((header, bytes.len() - walk.rest.len()))
    }

    /// Whether what it says can be true together. Levels of a page V2 are never compressed, so both sizes have them.
    fn check(&self) -> Result<(), &'static str> {
        let PageKind::DataV2 {
            value_count,
            null_count,
            row_count,
            definition_bytes,
            repetition_bytes,
            is_compressed,
            ..
        } = self.kind
        else {
            return Ok(());
        };
        let levels_bytes = u64::from(definition_bytes) + u64::from(repetition_bytes);
        // Nothing of a page without compressed values says how long it is but the first of the sizes.
        let least_bytes = match is_compressed {
            true => self.compressed_bytes.min(self.uncompressed_bytes),
            false => self.compressed_bytes,
        };
        if levels_bytes > u64::from(least_bytes) {
            return Err("its levels are longer than the page");
        }
        if null_count > value_count {
            return Err("a page has more NULLs than values");
        }
        if row_count > value_count {
            return Err("a page has more rows than values");
        }
        Ok(())
    }

    /// Whether what it says can be true of a page of a chunk: what the page decompresses to and the entries of a dictionary
    /// are reserved before anything else can tell.
    pub fn check_sizes(&self, chunk: &ColumnChunkMetaData) -> Result<(), &'static str> {
        let (levels_bytes, is_compressed) = match self.kind {
            PageKind::DataV2 { definition_bytes, repetition_bytes, is_compressed, .. } => {
                (u64::from(definition_bytes) + u64::from(repetition_bytes), is_compressed)
            }
            _ => (0, true),
        };
        let page_bytes = match is_compressed && chunk.compression_codec() != CompressionCodec::UNCOMPRESSED {
            true => {
                let compressed_bytes = u64::from(self.compressed_bytes).saturating_sub(levels_bytes);
                let values_bytes = u64::from(self.uncompressed_bytes).saturating_sub(levels_bytes);
                if values_bytes > uncompressed_bytes_max(chunk, compressed_bytes) {
                    return Err("it is too short for its decompressed size");
                }
                self.uncompressed_bytes
            }
            false => self.compressed_bytes,
        };
        match self.kind {
            PageKind::Dictionary { value_count, .. }
                if dictionary_bytes_min(chunk, value_count) > u64::from(page_bytes) =>
            {
                Err("a dictionary has more entries than bytes for them")
            }
            _ => Ok(()),
        }
    }

    /// Bytes that decompressing the page takes.
    pub fn decompressed_bytes(&self, chunk: &ColumnChunkMetaData) -> u32 {
        let is_plain = matches!(self.kind, PageKind::DataV2 { is_compressed: false, .. })
            || chunk.compression_codec() == CompressionCodec::UNCOMPRESSED;
        if is_plain { 0 } else { self.uncompressed_bytes }
    }

    /// Bytes of the page when all of it is decompressed, levels included, in a chunk that is compressed.
    pub fn whole_bytes(&self) -> u32 {
        match self.kind {
            PageKind::DataV2 { is_compressed: false, .. } => self.compressed_bytes,
            _ => self.uncompressed_bytes,
        }
    }

    /// Values of a data page, NULLs included; `None` for other pages.
    pub fn value_count(&self) -> Option<u32> {
        match self.kind {
            PageKind::DataV1 { value_count, .. } | PageKind::DataV2 { value_count, .. } => Some(value_count),
            PageKind::Dictionary { .. } | PageKind::Index => None,
        }
    }
}

/// The most bytes that compressed bytes of a chunk can stand for.
fn uncompressed_bytes_max(chunk: &ColumnChunkMetaData, compressed_bytes: u64) -> u64 {
    match chunk.compression_codec() {
        // A copy of 64 bytes takes three, and the length at most five.
        CompressionCodec::SNAPPY => compressed_bytes.saturating_mul(22),
        // A byte of a length's extension stands for 255 bytes; 15 and 19 come without one.
        CompressionCodec::LZ4 | CompressionCodec::LZ4_RAW => {
            compressed_bytes.saturating_mul(255).saturating_add(64)
        }
        // A block of a repeated byte takes four and stands for 128 kB.
        CompressionCodec::ZSTD => compressed_bytes.saturating_mul(1 << 15),
        // A copy of 258 bytes takes two bits.
        CompressionCodec::GZIP => compressed_bytes.saturating_mul(4 * 258),
        // A few bytes can repeat something without an end that matters; the chunk has one.
        _ => u64::try_from(chunk.uncompressed_size()).unwrap_or(0),
    }
}

/// The fewest bytes that so many entries of a dictionary, which are plain, take.
fn dictionary_bytes_min(chunk: &ColumnChunkMetaData, value_count: u32) -> u64 {
    let value_bytes = match chunk.column_type() {
        PhysicalType::BOOLEAN => return u64::from(value_count.div_ceil(8)),
        PhysicalType::INT32 | PhysicalType::FLOAT | PhysicalType::BYTE_ARRAY => 4,
        PhysicalType::INT64 | PhysicalType::DOUBLE => 8,
        PhysicalType::INT96 => 12,
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(chunk.column_descr().type_length()).unwrap_or(0).max(1)
        }
    };
    value_bytes * u64::from(value_count)
}

#[derive(Default)]
struct HeaderFields {
    page_type: Option<i32>,
    uncompressed_bytes: Option<i32>,
    compressed_bytes: Option<i32>,
    checksum: Option<i32>,
    data: Option<KindFields>,
    dictionary: Option<KindFields>,
    data_v2: Option<KindFields>,
}

/// Integers and the one boolean of a header of some kind, by number of the field.
#[derive(Clone, Copy)]
struct KindFields {
    integers: [Option<i32>; 8],
    is_compressed: bool,
}

impl HeaderFields {
    fn read(&mut self, walk: &mut CompactWalk<'_>, field: i64, kind: Kind) -> Result<(), &'static str> {
        match (field, kind) {
            (1, Kind::Integer) => self.page_type = Some(walk.signed32()?),
            (2, Kind::Integer) => self.uncompressed_bytes = Some(walk.signed32()?),
            (3, Kind::Integer) => self.compressed_bytes = Some(walk.signed32()?),
            (4, Kind::Integer) => self.checksum = Some(walk.signed32()?),
            (5, Kind::Struct) => self.data = Some(KindFields::read(walk)?),
            (7, Kind::Struct) => self.dictionary = Some(KindFields::read(walk)?),
            (8, Kind::Struct) => self.data_v2 = Some(KindFields::read(walk)?),
            _ => walk.skip(kind, 0)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<PageHeader, &'static str> {
        let kind = match self.page_type.ok_or(INCOMPLETE)? {
            0 => {
                let fields = self.data.ok_or(INCOMPLETE)?;
                PageKind::DataV1 {
                    value_count: fields.count(1)?,
                    encoding: fields.encoding(2)?,
                    definition_encoding: fields.encoding(3)?,
                    has_known_levels: [3, 4]
                        .into_iter()
                        .all(|field| fields.encoding(field).is_ok_and(PageEncoding::is_known)),
                }
            }
            1 => PageKind::Index,
            2 => {
                let fields = self.dictionary.ok_or(INCOMPLETE)?;
                PageKind::Dictionary { value_count: fields.count(1)?, encoding: fields.encoding(2)? }
            }
            3 => {
                let fields = self.data_v2.ok_or(INCOMPLETE)?;
                PageKind::DataV2 {
                    value_count: fields.count(1)?,
                    null_count: fields.count(2)?,
                    row_count: fields.count(3)?,
                    encoding: fields.encoding(4)?,
                    definition_bytes: fields.count(5)?,
                    repetition_bytes: fields.count(6)?,
                    is_compressed: fields.is_compressed,
                }
            }
            _ => return Err("a page is of unknown type"),
        };
        Ok(PageHeader {
            uncompressed_bytes: unsigned(self.uncompressed_bytes)?,
            compressed_bytes: unsigned(self.compressed_bytes)?,
            checksum: self.checksum.map(i32::cast_unsigned),
            kind,
        })
    }
}

impl KindFields {
    fn read(walk: &mut CompactWalk<'_>) -> Result<Self, &'static str> {
        let mut result = Self { integers: [None; 8], is_compressed: true };
        walk.fields(1, &mut |walk, field, kind| {
            match (usize::try_from(field).ok().and_then(|field| result.integers.get_mut(field)), kind) {
                (Some(_), Kind::Bool(value)) if field == 7 => result.is_compressed = value,
                (Some(slot), Kind::Integer) => *slot = Some(walk.signed32()?),
                _ => walk.skip(kind, 1)?,
            }
            Ok(())
        })?;
        Ok(result)
    }

    fn count(&self, field: usize) -> Result<u32, &'static str> {
        unsigned(self.integers.get(field).copied().flatten())
    }

    fn encoding(&self, field: usize) -> Result<PageEncoding, &'static str> {
        self.integers.get(field).copied().flatten().map(PageEncoding::of).ok_or(INCOMPLETE)
    }
}

fn unsigned(value: Option<i32>) -> Result<u32, &'static str> {
    u32::try_from(value.ok_or(INCOMPLETE)?).map_err(|_| "a page header has a negative number")
}

const INCOMPLETE: &str = "a page header lacks a field";

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of 7 values, PLAIN with RLE levels; 300 bytes, 200 compressed; statistics and a checksum.
    const DATA_V1: [u8; 26] = [
        0x15, 0, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x15, 0x05, 0x1c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c,
        0x18, 1, b'x', 0, 0, 0,
    ];

    #[test]
    fn headers_with_statistics_and_checksums_are_read() {
        let mut bytes = DATA_V1.to_vec();
        bytes.extend([1, 2, 3]);
        let (header, header_bytes) = PageHeader::parse(&bytes).unwrap();
        assert_eq!(header_bytes, DATA_V1.len());
        let kind = PageKind::DataV1 {
            value_count: 7,
            encoding: PageEncoding::Plain,
            definition_encoding: PageEncoding::Rle,
            has_known_levels: true,
        };
        assert_eq!(
            header,
            PageHeader {
                uncompressed_bytes: 300,
                compressed_bytes: 200,
                checksum: Some((-3i32).cast_unsigned()),
                kind
            }
        );
    }

    #[test]
    fn every_truncated_header_is_an_error() {
        for end in 0..DATA_V1.len() {
            assert!(PageHeader::parse(&DATA_V1[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        // Field 9, a structure with field 1, a structure, and so on.
        let mut bytes = vec![0x9c];
        bytes.extend([0x1c; 1000]);
        assert_eq!(PageHeader::parse(&bytes), Err("a structure is nested too deeply"));
        let mut lists = vec![0x99];
        lists.extend([0x19; 1000]);
        assert_eq!(PageHeader::parse(&lists), Err("a structure is nested too deeply"));
    }

    #[test]
    fn random_bytes_never_panic() {
        let seed = 20_260_101_u64;
        println!("seed {seed}");
        // xorshift.
        let mut state = seed;
        let mut below = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % limit
        };
        let mut parsed = 0;
        for round in 0..200_000 {
            let mut bytes = vec![0; below(64)];
            bytes.fill_with(|| below(256) as u8);
            if round % 2 == 0 {
                // Mostly right.
                bytes = DATA_V1.to_vec();
                for _ in 0..below(4) {
                    let place = below(bytes.len());
                    bytes[place] = below(256) as u8;
                }
            }
            if let Ok((_, header_bytes)) = PageHeader::parse(&bytes) {
                assert!(header_bytes <= bytes.len());
                parsed += 1;
            }
        }
        assert!(parsed > 1000, "{parsed}");
    }
}
