//! Arguments and structures of the kernels in kernels/parquet, laid out as in
//! kernels/abi/parquet.h.

use bytemuck::{Pod, Zeroable};

/// Rows that a block that writes cells handles.
pub(super) const SLICE_ROWS: u32 = 2048;
/// Values from one [`DeltaSegment`] to the next.
pub(super) const DELTA_SEGMENT_VALUES: u32 = 256;
/// Values from one [`RunSegment`] to the next.
pub(super) const RUN_SEGMENT_VALUES: u32 = 512;
/// Rows of a validity word.
pub(super) const WORD_ROWS: u32 = 32;
/// Bytes after a page's last that may be read.
pub(super) const PAGE_PADDING_BYTES: u64 = 64;
/// Bytes of strings that a launch of `build_strings` writes of a page at most.
pub(super) const BUILD_BYTES: u64 = 4 << 20;
/// The cost of a string against that limit, besides its own bytes.
pub(super) const BUILD_STRING_BYTES: u64 = 64;

/// Decompressed pages start at multiples of this.
pub(super) const PAGE_ALIGNMENT: u64 = 16;

/// `ValueSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ValueSource {
    Plain = 0,
    Split = 1,
    Integers = 2,
    Strings = 3,
    Bits = 4,
    Indexes = 5,
    Flags = 6,
}

/// `LevelsForm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum LevelsForm {
    None = 0,
    Prefixed = 1,
    Runs = 2,
    Packed = 3,
}

/// `DeltaForm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum DeltaForm {
    None = 0,
    Int32 = 1,
    Int64 = 2,
    Lengths = 3,
    Strings = 4,
}

impl DeltaForm {
    /// Whether a page's differences are found by an index.
    pub(super) fn is_indexed(self) -> bool {
        matches!(self, Self::Int32 | Self::Int64 | Self::Lengths)
    }
}

/// `Conversion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ConversionCode {
    Bits = 0,
    Integer = 1,
    Nanoseconds = 2,
    WideInteger = 3,
    Decimal = 4,
    FloatToDouble = 5,
    HalfToFloat = 6,
    HalfToDouble = 7,
    Int96 = 8,
    Flag = 9,
    String = 10,
}

/// Bits of [`PageColumn::flags`].
pub(super) mod column_flags {
    pub(in crate::decode) const NOT_NULL: u32 = 1;
    pub(in crate::decode) const UTF8: u32 = 2;
    pub(in crate::decode) const TRIM_BLANKS: u32 = 4;
    pub(in crate::decode) const UNSIGNED: u32 = 8;
    pub(in crate::decode) const CODES: u32 = 16;
    pub(in crate::decode) const DICTIONARY: u32 = 32;
    pub(in crate::decode) const INFINITIES: u32 = 64;
}

/// `ErrorCode`, as far as the kernels in kernels/parquet report it.
pub(super) mod error_code {
    pub(in crate::decode) const TEXT_TOO_LONG: u32 = 15;
    pub(in crate::decode) const NULL_IN_COLUMN: u32 = 16;
    pub(in crate::decode) const PAGE: u32 = 32;
    pub(in crate::decode) const DICTIONARY_INDEX: u32 = 33;
    pub(in crate::decode) const COMPRESSED_PAGE: u32 = 34;
    pub(in crate::decode) const INVALID_UTF8: u32 = 35;
    pub(in crate::decode) const VALUE_RANGE: u32 = 36;
}

/// Where to begin to decode a segment of a page's deltas.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DeltaSegment {
    pub(super) value: u64,
    pub(super) block: u32,
    pub(super) place: u32,
}
const _: () = assert!(size_of::<DeltaSegment>() == 16);

/// The results of `index_deltas` for a page; its segments follow.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DeltaIndex {
    pub(super) value_count: u32,
    pub(super) miniblocks: u32,
    pub(super) miniblock_values: u32,
    pub(super) end: u32,
    pub(super) is_sound: u32,
    pub(super) wide: u32,
    pub(super) reserved: [u32; 2],
}
const _: () = assert!(size_of::<DeltaIndex>() == 32);

/// Where to begin to walk over a segment of a page's runs.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RunSegment {
    pub(super) header: u32,
    pub(super) data: u32,
    pub(super) left: u32,
    pub(super) form: u32,
}
const _: () = assert!(size_of::<RunSegment>() == 16);

/// A page, decompressed.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct EncodedPage {
    pub(super) levels: u64,
    pub(super) values: u64,
    pub(super) words: u64,
    pub(super) scratch: u64,
    pub(super) prefixes: u64,
    pub(super) strings: u64,
    pub(super) index: u64,
    pub(super) levels_bytes: u32,
    pub(super) values_bytes: u32,
    pub(super) row_count: u32,
    pub(super) column: u32,
    pub(super) source: u32,
    pub(super) levels_form: u32,
    pub(super) delta_form: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<EncodedPage>() == 88);

/// Results about a page, written on the device.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct PageState {
    pub(super) values_offset: u32,
    pub(super) value_count: u32,
    pub(super) dense: u32,
    pub(super) located: u32,
    pub(super) wide: u32,
    pub(super) faulty: u32,
    pub(super) string_bytes: u64,
    pub(super) built_values: u32,
    pub(super) built_bytes: u32,
}
const _: () = assert!(size_of::<PageState>() == 40);

/// A column, or a dictionary, that pages are decoded into.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct PageColumn {
    pub(super) values: u64,
    pub(super) validity: u64,
    pub(super) dictionary: u64,
    pub(super) faults: u64,
    pub(super) null_count: u64,
    pub(super) least: [u64; 4],
    pub(super) greatest: [u64; 4],
    pub(super) factor: [u64; 4],
    pub(super) conversion: u32,
    pub(super) cell_bytes: u32,
    pub(super) source_bytes: u32,
    pub(super) dictionary_count: u32,
    pub(super) dictionary_page: u32,
    pub(super) length_max: u32,
    pub(super) flags: u32,
    pub(super) shift: u32,
    pub(super) first_code: u32,
    pub(super) null_code: u32,
}
const _: () = assert!(size_of::<PageColumn>() == 176);

/// Arguments of the decoding kernels that do not write cells.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DecodePages {
    pub(super) pages: u64,
    pub(super) columns: u64,
    pub(super) states: u64,
    pub(super) list: u64,
    pub(super) status: u64,
}
const _: () = assert!(size_of::<DecodePages>() == 40);

/// Rows of a page, and the places of their cells.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct PageSlice {
    pub(super) page: u32,
    pub(super) first_row: u32,
    pub(super) row_count: u32,
    pub(super) target_row: u32,
}
const _: () = assert!(size_of::<PageSlice>() == 16);

/// Rows of a chunk whose descriptors stay on the device.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DecodeRange {
    pub(super) pages: u64,
    pub(super) states: u64,
    pub(super) column: u64,
    pub(super) slices: u64,
    pub(super) values: u64,
    pub(super) first_slice: u32,
    pub(super) first_block: u32,
    pub(super) first_row: u32,
    pub(super) end_row: u32,
    pub(super) target_row: u32,
    pub(super) first_code: u32,
    pub(super) null_code: u32,
    pub(super) flags: u32,
}
const _: () = assert!(size_of::<DecodeRange>() == 72);

/// Ranges passed with the launch.
pub(super) const LAUNCH_RANGES: usize = 32;

/// Arguments of the kernels that write cells.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DecodeCells {
    pub(super) pages: DecodePages,
    pub(super) more_ranges: u64,
    pub(super) range_count: u32,
    pub(super) reserved: u32,
    pub(super) ranges: [DecodeRange; LAUNCH_RANGES],
}
const _: () = assert!(size_of::<DecodeCells>() == 2360);

/// A page, or a part of one, to decompress.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CompressedPage {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) source_bytes: u32,
    pub(super) target_bytes: u32,
    pub(super) page: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<CompressedPage>() == 32);

/// Arguments of the kernels that decompress.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DecompressPages {
    pub(super) pages: u64,
    pub(super) status: u64,
}
const _: () = assert!(size_of::<DecompressPages>() == 16);

/// Arguments of `decompress_hadoop_lz4`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DecompressFrames {
    pub(super) pages: u64,
    pub(super) refused: u64,
}
const _: () = assert!(size_of::<DecompressFrames>() == 16);

/// The expected bytes of a page, levels included, before a library sees it.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct PageChecksum {
    pub(super) checksum: u32,
    pub(super) is_known: u32,
    pub(super) lead_bytes: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<PageChecksum>() == 16);

/// Arguments of the kernels before and after a library decompresses pages.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct FramedPages {
    pub(super) pages: u64,
    pub(super) refused: u64,
    pub(super) sources: u64,
    pub(super) source_bytes: u64,
    pub(super) targets: u64,
    pub(super) target_bytes: u64,
    pub(super) produced_bytes: u64,
    pub(super) statuses: u64,
    pub(super) stand_in: u64,
    pub(super) checksums: u64,
    pub(super) stand_in_bytes: u32,
    pub(super) format: u32,
    pub(super) page_count: u32,
    pub(super) takes_unchecked: u32,
}
const _: () = assert!(size_of::<FramedPages>() == 96);
