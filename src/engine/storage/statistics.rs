//! Column statistics of footers and of column indexes as plan values.
//!
//! Invariants: a bound is a bound in PostgreSQL's order of the column's type, or it is not given. A value
//! that is missing or can't be trusted in one row group is missing for the column.
//!
//! Deliberately absent: pruning. `scan` rules out row groups by itself.

use arrow::datatypes::{ArrowPrimitiveType, Float16Type};
use parquet::{
    basic::{ColumnOrder, SortOrder, Type as PhysicalType},
    file::{
        metadata::{ColumnChunkMetaData, FileMetaData},
        statistics::Statistics,
    },
};
use pystachio_plan::{DataType, Value};

use super::file_type::{FileType, Storage};

/// Longer text and bytes are cut in a least value and left out as a greatest one.
const BOUND_BYTES_MAX: usize = 256;
const MICROSECONDS_A_MILLISECOND: i64 = 1_000;
const NANOSECONDS_A_MICROSECOND: i64 = 1_000;

/// What the row groups seen so far say about one column.
#[derive(Clone, Debug)]
pub struct ColumnSummary {
    null_count: Option<u64>,
    minimum: Bound,
    maximum: Bound,
}

#[derive(Clone, Debug)]
enum Bound {
    /// No row group with a value yet.
    Unset,
    Known(Value),
    /// A row group with values did not tell.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Minimum,
    Maximum,
}

/// Where a column chunk is, and what its column is.
pub struct ChunkStatistics<'a> {
    /// Of the file.
    pub file: &'a FileMetaData,
    /// The column's leaf.
    pub leaf_index: usize,
    /// The leaf in one row group.
    pub chunk: &'a ColumnChunkMetaData,
    /// What the column is.
    pub file_type: &'a FileType,
    /// Whether the file declares that it has no NULL.
    pub required: bool,
    /// Rows of the row group.
    pub row_count: u64,
}

impl ColumnSummary {
    /// No row group seen.
    pub fn new() -> Self {
        Self { null_count: Some(0), minimum: Bound::Unset, maximum: Bound::Unset }
    }

    /// Nothing can be said, for lists and groups.
    pub fn unknown() -> Self {
        Self { null_count: None, minimum: Bound::Unknown, maximum: Bound::Unknown }
    }

    /// Adds what a row group says.
    pub fn add(&mut self, part: &ChunkStatistics<'_>) {
        if part.row_count == 0 {
            return;
        }
        let statistics = part.chunk.statistics();
        let null_count =
            if part.required { Some(0) } else { statistics.and_then(Statistics::null_count_opt) };
        self.null_count = self.null_count.zip(null_count).and_then(|(sum, count)| sum.checked_add(count));
        if null_count == Some(part.row_count) {
            return;
        }
        let trusted = statistics.filter(|statistics| is_trusted(part, statistics.is_min_max_deprecated()));
        let least = trusted.and_then(Statistics::min_bytes_opt);
        let greatest = trusted.and_then(Statistics::max_bytes_opt);
        self.minimum.add(least.and_then(|bytes| bound_value(bytes, part, Side::Minimum)), Side::Minimum);
        self.maximum.add(greatest.and_then(|bytes| bound_value(bytes, part, Side::Maximum)), Side::Maximum);
    }

    /// NULLs, if every row group tells.
    pub fn null_count(&self) -> Option<u64> {
        self.null_count
    }

    /// The least value or a bound below it.
    pub fn minimum(&self) -> Option<Value> {
        self.minimum.value()
    }

    /// The greatest value or a bound above it.
    pub fn maximum(&self) -> Option<Value> {
        self.maximum.value()
    }
}

impl Bound {
    fn add(&mut self, value: Option<Value>, side: Side) {
        *self = match (std::mem::replace(self, Self::Unknown), value) {
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            (Self::Unset, Some(value)) => Self::Known(value),
            (Self::Known(known), Some(value)) => {
                let replace =
                    if side == Side::Minimum { is_less(&value, &known) } else { is_less(&known, &value) };
                Self::Known(if replace { value } else { known })
            }
        };
    }

    fn value(&self) -> Option<Value> {
        match self {
            Self::Known(value) => Some(value.clone()),
            Self::Unset | Self::Unknown => None,
        }
    }
}

/// Whether the first is less; both are of one column.
fn is_less(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Bool(first), Value::Bool(second)) => first < second,
        (Value::Int(first), Value::Int(second)) => first < second,
        (Value::Float(first), Value::Float(second)) => first < second,
        (Value::Decimal(first), Value::Decimal(second)) => first < second,
        (Value::Text(first), Value::Text(second)) => first.as_bytes() < second.as_bytes(),
        (Value::Bytes(first), Value::Bytes(second)) => first < second,
        _ => false,
    }
}

/// The least and the greatest value of a page of a chunk, or bounds outside of them, from the encoded bounds of its
/// column index.
pub fn page_bounds(
    part: &ChunkStatistics<'_>,
    least: &[u8],
    greatest: &[u8],
) -> (Option<Value>, Option<Value>) {
    if !is_trusted(part, false) {
        return (None, None);
    }
    (bound_value(least, part, Side::Minimum), bound_value(greatest, part, Side::Maximum))
}

/// Whether integers tell a decimal's digits.
fn is_integer(physical: PhysicalType) -> bool {
    matches!(physical, PhysicalType::INT32 | PhysicalType::INT64)
}

/// Whether the writer ordered the values as the column's type orders them. Old writers compared unsigned
/// numbers and bytes as signed ones.
fn is_trusted(part: &ChunkStatistics<'_>, is_deprecated: bool) -> bool {
    let signed = matches!(
        part.file_type.storage,
        Some(Storage::Signed | Storage::Milliseconds | Storage::Nanoseconds)
    ) || (part.file_type.storage == Some(Storage::Decimal)
        && is_integer(part.chunk.column_type()));
    match part.file.column_order(part.leaf_index) {
        ColumnOrder::UNKNOWN | ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::UNDEFINED) => false,
        ColumnOrder::TYPE_DEFINED_ORDER(_) => signed || !is_deprecated,
        ColumnOrder::UNDEFINED => signed,
    }
}

fn bound_value(bytes: &[u8], part: &ChunkStatistics<'_>, side: Side) -> Option<Value> {
    let file_type = part.file_type;
    let storage = file_type.storage?;
    match storage {
        Storage::Bool => bytes.first().map(|byte| Value::Bool(*byte != 0)),
        Storage::Signed => signed(bytes).map(Value::Int),
        Storage::Unsigned => unsigned_value(bytes, file_type.data_type.as_ref()?),
        Storage::Milliseconds => signed(bytes)?.checked_mul(MICROSECONDS_A_MILLISECOND).map(Value::Int),
        Storage::Nanoseconds => Some(Value::Int(signed(bytes)?.div_euclid(NANOSECONDS_A_MICROSECOND))),
        Storage::Decimal if is_integer(part.chunk.column_type()) => {
            Some(Value::Decimal(signed(bytes)?.into()))
        }
        Storage::Decimal => big_endian(bytes).map(Value::Decimal),
        // NaN is PostgreSQL's greatest value, and writers leave it out of statistics.
        Storage::Float if side == Side::Maximum => None,
        Storage::Float => float(bytes).filter(|value| !value.is_nan()).map(Value::Float),
        // Written in no useful order.
        Storage::Int96 => None,
        Storage::Text => text(bytes, side).map(Value::Text),
        Storage::Bytes => bounded_bytes(bytes, side).map(|bytes| Value::Bytes(bytes.to_vec())),
    }
}

fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(|bytes| i32::from_le_bytes(bytes).into()),
        8 => bytes.try_into().ok().map(i64::from_le_bytes),
        _ => None,
    }
}

fn unsigned_value(bytes: &[u8], data_type: &DataType) -> Option<Value> {
    let value = match bytes.len() {
        4 => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        8 => u64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    if data_type.is_decimal() {
        Some(Value::Decimal(value.into()))
    } else {
        value.try_into().ok().map(Value::Int)
    }
}

/// A big-endian number in two's complement of any length whose value fits.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let fill = if *bytes.first()? >= 0x80 { 0xff } else { 0 };
    let excess = bytes.len().saturating_sub(16);
    let (head, tail) = bytes.split_at(excess);
    let mut number = [fill; 16];
    number[16 - tail.len()..].copy_from_slice(tail);
    let value = i128::from_be_bytes(number);
    let fits = head.iter().all(|byte| *byte == fill) && (value < 0) == (fill != 0);
    fits.then_some(value)
}

fn float(bytes: &[u8]) -> Option<f64> {
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    match bytes.len() {
        2 => bytes.try_into().ok().map(|bytes| Half::from_le_bytes(bytes).to_f64()),
        4 => bytes.try_into().ok().map(|bytes| f32::from_le_bytes(bytes).into()),
        8 => bytes.try_into().ok().map(f64::from_le_bytes),
        _ => None,
    }
}

fn text(bytes: &[u8], side: Side) -> Option<String> {
    let bytes = bounded_bytes(bytes, side)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text.to_owned()),
        // A cut inside a character leaves a bound below.
        Err(error) if side == Side::Minimum => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok().map(str::to_owned)
        }
        Err(_) => None,
    }
}

fn bounded_bytes(bytes: &[u8], side: Side) -> Option<&[u8]> {
    match side {
        Side::Minimum => Some(&bytes[..bytes.len().min(BOUND_BYTES_MAX)]),
        Side::Maximum => (bytes.len() <= BOUND_BYTES_MAX).then_some(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_endian_numbers_of_any_length_are_read() {
        assert_eq!(big_endian(&[0xff]), Some(-1));
        assert_eq!(big_endian(&[0, 0xff]), Some(255));
        assert_eq!(big_endian(&[0xff; 20]), Some(-1));
        assert_eq!(big_endian(&[]), None);
        let mut large = [0; 17];
        large[1] = 0x80;
        assert_eq!(big_endian(&large), None);
    }

    #[test]
    fn a_row_group_that_does_not_tell_leaves_nothing_known() {
        let mut bound = Bound::Unset;
        bound.add(Some(Value::Int(3)), Side::Minimum);
        bound.add(Some(Value::Int(2)), Side::Minimum);
        assert_eq!(bound.value(), Some(Value::Int(2)));
        bound.add(None, Side::Minimum);
        bound.add(Some(Value::Int(1)), Side::Minimum);
        assert_eq!(bound.value(), None);
    }

    #[test]
    fn text_bounds_are_cut_only_downwards() {
        let long = "é".repeat(BOUND_BYTES_MAX);
        assert!(text(long.as_bytes(), Side::Minimum).is_some_and(|text| long.starts_with(&text)));
        assert_eq!(text(long.as_bytes(), Side::Maximum), None);
        assert_eq!(text(&[b'a', 0xc3], Side::Minimum).as_deref(), Some("a"));
        assert_eq!(text(&[b'a', 0xff], Side::Maximum), None);
    }
}
