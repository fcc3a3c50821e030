//! Column statistics of footers and of column indexes as plan values: the one place that decides which of them may be
//! used at all.
//!
//! ```text
//! footer, column index ─► ChunkStatistics: by writer, order and what they say of each other ─► pruning, runtime filters
//!                                                                                           ─► descriptions, min and max
//! ```
//!
//! Invariants: a bound is a bound in PostgreSQL's order of the column's type, or it is not given. A value
//! that is missing or can't be trusted in one row group is missing for the column.
//!
//! Deliberately absent: pruning (`pruning.rs`, and the CPU engine's scan); which writers were wrong (`writer.rs`).
//!
//! Source: parquet.thrift, `Statistics` and `ColumnOrder`; LogicalTypes.md.

use arrow::datatypes::{ArrowPrimitiveType, Float16Type};
use parquet::{
    basic::{ColumnOrder, SortOrder, TimeUnit, Type as PhysicalType},
    file::{metadata::ColumnChunkMetaData, statistics::Statistics},
};
use pystachio_plan::{DataType, Value};

use crate::{
    file_type::{FileType, Storage},
    value_range::{date_value, time_value, timestamp_value},
    writer::{ValueOrder, Writer},
};

/// Longer text and bytes are cut in a least value and left out as a greatest one.
const BOUND_BYTES_MAX: usize = 256;

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

/// A column chunk's statistics, and what must be known to believe them: made by [`super::FileFooter::statistics_of`].
pub struct ChunkStatistics<'a> {
    /// The writer of the file.
    pub(super) writer: &'a Writer,
    /// The order that the file states for bounds of the column.
    pub(super) order: ColumnOrder,
    /// The column in one row group.
    pub(super) chunk: &'a ColumnChunkMetaData,
    /// What the column is.
    pub(super) file_type: &'a FileType,
    /// Whether the file declares that it has no NULL.
    pub(super) required: bool,
    /// Rows of the row group.
    pub(super) row_count: u64,
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
        let null_count = part.null_count();
        self.null_count = self.null_count.zip(null_count).and_then(|(sum, count)| sum.checked_add(count));
        if null_count == Some(part.row_count) {
            return;
        }
        let (least, greatest) = part.bounds();
        self.minimum.add(least, Side::Minimum);
        self.maximum.add(greatest, Side::Maximum);
    }

    /// Adds the bounds of another summary, converted. One that is not known there, or does not convert, is not known any more.
    pub fn add_bounds(&mut self, other: &Self, convert: impl Fn(Value) -> Option<Value>) {
        let add = |bound: &mut Bound, other: &Bound, side| match other {
            Bound::Unset => {}
            Bound::Unknown => bound.add(None, side),
            Bound::Known(value) => bound.add(convert(value.clone()), side),
        };
        add(&mut self.minimum, &other.minimum, Side::Minimum);
        add(&mut self.maximum, &other.maximum, Side::Maximum);
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
pub(crate) fn is_less(first: &Value, second: &Value) -> bool {
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

/// Bounds of values, or of values outside of them.
pub(super) type ValueBounds = (Option<Value>, Option<Value>);

impl ChunkStatistics<'_> {
    /// How many of the rows are NULL, if that can be believed.
    pub fn null_count(&self) -> Option<u64> {
        if self.required {
            return Some(0);
        }
        let statistics = self.statistics()?;
        let null_count = self.believed_nulls(statistics.null_count_opt()?, self.row_count)?;
        // Bounds are of values: there can't be any where all are NULL.
        let has_bounds = statistics.min_bytes_opt().is_some() || statistics.max_bytes_opt().is_some();
        (null_count < self.row_count || !has_bounds).then_some(null_count)
    }

    /// The least and the greatest value, or bounds outside of them, as far as they can be believed.
    pub fn bounds(&self) -> ValueBounds {
        let Some(statistics) = self.statistics() else { return (None, None) };
        let claims_no_value = !self.required && statistics.null_count_opt() == Some(self.row_count);
        if claims_no_value || !self.is_ordered(statistics.is_min_max_deprecated()) {
            return (None, None);
        }
        self.values_of(statistics.min_bytes_opt(), statistics.max_bytes_opt())
    }

    /// Whether the encoded bounds are bounds, of values of whatever length. [`ChunkStatistics::bounds`] leaves long text
    /// out.
    pub fn has_bounds(&self) -> bool {
        self.bounds().0.is_some()
    }

    /// The least and the greatest value of a page of the chunk, or bounds outside of them, from the encoded bounds of its
    /// column index.
    pub(super) fn page_bounds(&self, least: &[u8], greatest: &[u8]) -> ValueBounds {
        match self.is_ordered(false) {
            true => self.values_of(Some(least), Some(greatest)),
            false => (None, None),
        }
    }

    /// How many of a page's rows are NULL, from its column index, if that can be believed.
    pub(super) fn page_null_count(&self, null_count: u64, row_count: u64) -> Option<u64> {
        self.believed_nulls(null_count, row_count)
    }

    /// A value of the column that is stored so.
    pub(super) fn value(&self, bytes: &[u8]) -> Option<Value> {
        bound_value(bytes, self, Side::Minimum)
    }

    /// What the footer says, if it can be of these rows.
    fn statistics(&self) -> Option<&Statistics> {
        let value_count = u64::try_from(self.chunk.num_values()).ok();
        self.chunk.statistics().filter(|_| value_count == Some(self.row_count))
    }

    fn believed_nulls(&self, null_count: u64, row_count: u64) -> Option<u64> {
        let is_byte_array = self.chunk.column_type() == PhysicalType::BYTE_ARRAY;
        let is_right = null_count <= row_count && self.writer.counts_nulls(is_byte_array);
        is_right.then_some(null_count)
    }

    /// Whether bounds are in the order in which the column's type compares. Bounds in the older fields are in the order
    /// of signed numbers, whatever the type; those in the newer ones are in the order that the file states, or in none,
    /// except that early releases of DuckDB do not state it.
    fn is_ordered(&self, is_deprecated: bool) -> bool {
        let Some(order) = self.value_order() else { return false };
        let is_stated = match self.order {
            ColumnOrder::UNKNOWN | ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::UNDEFINED) => false,
            ColumnOrder::TYPE_DEFINED_ORDER(_) => true,
            ColumnOrder::UNDEFINED => is_deprecated || self.writer.orders_without_saying(),
        };
        is_stated && (order == ValueOrder::Signed || !is_deprecated) && self.writer.has_right_bounds(order)
    }

    fn value_order(&self) -> Option<ValueOrder> {
        Some(match (self.file_type.storage?, self.chunk.column_type()) {
            (Storage::Signed | Storage::Milliseconds | Storage::Nanoseconds, _) => ValueOrder::Signed,
            (Storage::Bool | Storage::Float, _) => ValueOrder::Signed,
            (Storage::Unsigned, _) => ValueOrder::Unsigned,
            (Storage::Decimal, PhysicalType::INT32 | PhysicalType::INT64) => ValueOrder::Signed,
            (Storage::Decimal, PhysicalType::FIXED_LEN_BYTE_ARRAY) => ValueOrder::FixedDecimal,
            (Storage::Decimal, _) => ValueOrder::VariableDecimal,
            (Storage::Text | Storage::Bytes, _) => ValueOrder::Bytes,
            // Written in no useful order.
            (Storage::Int96, _) => return None,
        })
    }

    fn values_of(&self, least: Option<&[u8]>, greatest: Option<&[u8]>) -> ValueBounds {
        // A bound that no value can be is none.
        if ![least, greatest].into_iter().flatten().all(|bytes| self.is_possible(bytes)) {
            return (None, None);
        }
        let minimum = least.and_then(|bytes| bound_value(bytes, self, Side::Minimum));
        let maximum = greatest.and_then(|bytes| bound_value(bytes, self, Side::Maximum));
        let crossed = match (self.file_type.storage, least, greatest) {
            // Before they are cut.
            (Some(Storage::Text | Storage::Bytes), Some(least), Some(greatest)) => greatest < least,
            _ => matches!((&minimum, &maximum), (Some(least), Some(greatest)) if is_less(greatest, least)),
        };
        if crossed { (None, None) } else { (minimum, maximum) }
    }
}

impl ChunkStatistics<'_> {
    /// Whether the column may have a value that is stored so.
    fn is_possible(&self, bytes: &[u8]) -> bool {
        let physical = self.chunk.column_type();
        let length = usize::try_from(self.chunk.column_descr().type_length());
        let is_fixed_number = physical == PhysicalType::FIXED_LEN_BYTE_ARRAY
            && matches!(self.file_type.storage, Some(Storage::Decimal | Storage::Float));
        if is_fixed_number && length.is_ok_and(|length| length != bytes.len()) {
            return false;
        }
        if let Some(allowed) = &self.file_type.allowed {
            let number = if is_integer(physical) { signed(bytes).map(i128::from) } else { big_endian(bytes) };
            return number.is_some_and(|number| allowed.contains(&number));
        }
        match self.file_type.data_type {
            Some(DataType::Date | DataType::Time | DataType::Timestamp | DataType::TimestampTz) => {
                bound_value(bytes, self, Side::Minimum).is_some()
            }
            _ => true,
        }
    }
}

/// Whether integers tell a decimal's digits.
fn is_integer(physical: PhysicalType) -> bool {
    matches!(physical, PhysicalType::INT32 | PhysicalType::INT64)
}

fn bound_value(bytes: &[u8], part: &ChunkStatistics<'_>, side: Side) -> Option<Value> {
    let file_type = part.file_type;
    let storage = file_type.storage?;
    if let Some(unit) = unit_of(storage) {
        let moment = match file_type.data_type.as_ref()? {
            DataType::Date => Some(date_value(signed(bytes)?)),
            DataType::Time => Some(time_value(signed(bytes)?, &unit)),
            DataType::Timestamp | DataType::TimestampTz => Some(timestamp_value(signed(bytes)?, &unit)),
            _ => None,
        };
        if let Some(moment) = moment {
            return moment.map(Value::Int);
        }
    }
    match storage {
        Storage::Bool => bytes.first().map(|byte| Value::Bool(*byte != 0)),
        Storage::Signed | Storage::Milliseconds | Storage::Nanoseconds => signed(bytes).map(Value::Int),
        Storage::Unsigned => unsigned_value(bytes, file_type.data_type.as_ref()?),
        Storage::Decimal if is_integer(part.chunk.column_type()) => {
            Some(Value::Decimal(signed(bytes)?.into()))
        }
        Storage::Decimal => big_endian(bytes).map(Value::Decimal),
        // NaN is PostgreSQL's greatest value, and writers leave it out of statistics.
        Storage::Float if side == Side::Maximum => None,
        Storage::Float => float(bytes).filter(|value| !value.is_nan()).map(Value::Float),
        Storage::Int96 => None,
        Storage::Text => text(bytes, side).map(Value::Text),
        Storage::Bytes => bounded_bytes(bytes, side).map(|bytes| Value::Bytes(bytes.to_vec())),
    }
}

/// What a stored date, time or timestamp counts.
fn unit_of(storage: Storage) -> Option<TimeUnit> {
    match storage {
        Storage::Signed => Some(TimeUnit::MICROS),
        Storage::Milliseconds => Some(TimeUnit::MILLIS),
        Storage::Nanoseconds => Some(TimeUnit::NANOS),
        _ => None,
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
mod tests;
