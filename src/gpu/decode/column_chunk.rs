//! A chunk's bytes, its metadata, and the check whether kernels can decode it.

use std::path::Path;

use parquet::{
    basic::{CompressionCodec, Type as PhysicalType},
    file::metadata::ColumnChunkMetaData,
    schema::types::ColumnDescriptor,
};
use pystachio_files::PageEncoding;
use pystachio_plan::{Result, ScanColumn};

use super::{
    abi::{DeltaForm, ValueSource},
    conversion::ColumnConversion,
    fault::ColumnNames,
};
use crate::device::FrameFormat;

/// One column of one row group: its metadata and its declaration.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSource<'a> {
    /// From the footer.
    pub metadata: &'a ColumnChunkMetaData,
    /// The declared type.
    pub column: &'a ScanColumn,
    /// The foreign table, for messages.
    pub table: &'a str,
    /// The file, for messages.
    pub path: &'a Path,
}

impl ColumnSource<'_> {
    pub(super) fn names(&self) -> ColumnNames {
        ColumnNames::new(self.table, self.path, self.column)
    }
}

/// One column of one row group, as it is in its file.
#[derive(Clone, Copy, Debug)]
pub struct EncodedColumnChunk<'a> {
    /// The file's bytes in [`pystachio_files::chunk_range`].
    pub bytes: &'a [u8],
    /// From the footer.
    pub metadata: &'a ColumnChunkMetaData,
    /// The declared type.
    pub column: &'a ScanColumn,
    /// The foreign table, for messages.
    pub table: &'a str,
    /// The file, for messages.
    pub path: &'a Path,
}

impl<'a> EncodedColumnChunk<'a> {
    pub(super) fn source(&self) -> ColumnSource<'a> {
        let Self { metadata, column, table, path, .. } = *self;
        ColumnSource { metadata, column, table, path }
    }
}

/// Whether chunks of a column can be decoded as it is declared, as far as the footer tells.
///
/// # Errors
///
/// `NotSupported`, naming the column: the CPU engine must read it, or report why it can't.
pub fn check_column(descriptor: &ColumnDescriptor, column: &ScanColumn) -> Result<()> {
    ColumnConversion::plan(descriptor, column).map(|_| ())
}

/// The decompressor of a chunk's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Lz4,
    HadoopLz4,
    /// A library on the device.
    Framed(FrameFormat),
    Host,
}

impl Codec {
    /// The codec of a chunk, for a device with or without a library that decompresses; `None` if there is no decoder.
    pub(super) fn of(codec: CompressionCodec, has_library: bool) -> Option<Self> {
        Some(match codec {
            CompressionCodec::UNCOMPRESSED => Self::None,
            CompressionCodec::SNAPPY => Self::Snappy,
            CompressionCodec::LZ4_RAW => Self::Lz4,
            CompressionCodec::LZ4 => Self::HadoopLz4,
            CompressionCodec::ZSTD if has_library => Self::Framed(FrameFormat::Zstd),
            CompressionCodec::GZIP if has_library => Self::Framed(FrameFormat::Gzip),
            CompressionCodec::ZSTD | CompressionCodec::GZIP | CompressionCodec::BROTLI => Self::Host,
            _ => return None,
        })
    }
}

/// How the values of a data page are found, by their encoding and type; `None` if no kernel does.
pub(super) fn value_source(
    encoding: PageEncoding,
    physical: PhysicalType,
) -> Option<(ValueSource, DeltaForm)> {
    use PhysicalType::{BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED_LEN_BYTE_ARRAY, FLOAT, INT32, INT64};
    Some(match (encoding, physical) {
        (PageEncoding::Plain, BOOLEAN) => (ValueSource::Bits, DeltaForm::None),
        (PageEncoding::Plain, BYTE_ARRAY) => (ValueSource::Strings, DeltaForm::None),
        (PageEncoding::Plain, _) => (ValueSource::Plain, DeltaForm::None),
        (PageEncoding::Dictionary, physical) if physical != BOOLEAN => {
            (ValueSource::Indexes, DeltaForm::None)
        }
        (PageEncoding::Rle, BOOLEAN) => (ValueSource::Flags, DeltaForm::None),
        (PageEncoding::DeltaBinaryPacked, INT32) => (ValueSource::Integers, DeltaForm::Int32),
        (PageEncoding::DeltaBinaryPacked, INT64) => (ValueSource::Integers, DeltaForm::Int64),
        (PageEncoding::DeltaLengthByteArray, BYTE_ARRAY) => (ValueSource::Strings, DeltaForm::Lengths),
        (PageEncoding::DeltaByteArray, BYTE_ARRAY | FIXED_LEN_BYTE_ARRAY) => {
            (ValueSource::Strings, DeltaForm::Strings)
        }
        (PageEncoding::ByteStreamSplit, INT32 | INT64 | FLOAT | DOUBLE | FIXED_LEN_BYTE_ARRAY) => {
            (ValueSource::Split, DeltaForm::None)
        }
        _ => return None,
    })
}

impl DeltaForm {
    /// Whether a page's differences are found by an index.
    pub(super) fn is_indexed(self) -> bool {
        matches!(self, Self::Int32 | Self::Int64 | Self::Lengths)
    }
}
