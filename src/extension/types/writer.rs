//! Datums as Arrow arrays: columns of rows that are written to files.
//!
//! Invariant: a value that was written is read as the same text. A value that files can't hold is an error that names its column.
#![expect(unsafe_code, reason = "reads datums")]

use std::sync::Arc;

use arrow_array::{
    ArrayRef, ListArray, StructArray,
    builder::{
        BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
        FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder,
        StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
    },
};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Fields};
use pgrx::pg_sys::{self, Datum};
use pystachio_lower::SourceType;
use pystachio_plan::{DataType, Error, ErrorKind, RecordField, Result, WrittenColumn};

use super::{
    CompositeField,
    array::ElementLayout,
    base_type, composite_fields, data_type,
    fixed::{EPOCH_DAYS, EPOCH_MICROSECONDS},
    item_type,
    numeric::{self, Decoded, DecodedLong},
};
use crate::pg::{
    encoding, list,
    mirror::{source_type, type_name_with},
};

const UUID_BYTES: usize = 16;
/// The way out for a type that files don't have.
const CAST_OR_LEAVE_OUT: &str = "Cast the column to text, or leave it out.";

/// One column of rows that are collected.
pub struct ColumnWriter {
    name: String,
    values: Values,
    /// Bytes of the values, about.
    bytes: usize,
}

/// A column's values so far.
enum Values {
    Bool(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal {
        builder: Decimal128Builder,
        precision: u8,
        scale: u8,
    },
    LongDecimal {
        builder: Decimal256Builder,
        precision: u8,
        scale: u8,
    },
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    /// Of UTC, which is the only zone that files have.
    TimeTz(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Text {
        builder: StringBuilder,
        is_padded: bool,
    },
    /// Of a type that PostgreSQL reads from text.
    Printed {
        builder: StringBuilder,
        output: pg_sys::Oid,
    },
    /// Of a type whose values an engine carries through.
    Sent {
        builder: BinaryBuilder,
        send: pg_sys::Oid,
    },
    Bytea(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    List(Box<ListValues>),
    Record(Box<RecordValues>),
}

/// Composite values so far.
struct RecordValues {
    descriptor: pg_sys::TupleDesc,
    /// One for each attribute; none for those that were dropped.
    fields: Vec<Option<Values>>,
    arrow: Fields,
    nulls: NullBufferBuilder,
}

/// Arrays so far.
struct ListValues {
    layout: ElementLayout,
    items: Values,
    item_type: ArrowType,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

/// How values of a type are written to a column of this name.
///
/// # Errors
///
/// `NotSupported`, naming the column and its type.
pub fn written_column(
    name: String,
    type_oid: pg_sys::Oid,
    type_modifier: i32,
    not_null: bool,
) -> Result<WrittenColumn> {
    match (data_type(type_oid, type_modifier), refusal(type_oid, type_modifier)) {
        (Some(data_type), None) => {
            let item_oid = item_type(type_oid);
            let (is_json, is_utc) = (item_oid == pg_sys::JSONOID, item_oid == pg_sys::TIMETZOID);
            Ok(WrittenColumn { name, data_type, is_json, is_utc, not_null })
        }
        (_, refusal) => {
            let message = format!(
                "column \"{name}\" of type {} can't be written to Parquet",
                type_name_with(type_oid, type_modifier)
            );
            let error = Error::new(ErrorKind::NotSupported, message);
            let error = match refusal.as_ref().and_then(|refusal| refusal.field.as_ref()) {
                Some(field) => error.with_detail(format!("It has a field {field}.")),
                None => error,
            };
            Err(error.with_hint(refusal.map_or(CAST_OR_LEAVE_OUT, |refusal| refusal.hint)))
        }
    }
}

/// How values of a type are sent to an engine, which keeps them in spill files: as [`written_column`] says, `jsonb` and enums as text, and
/// what [`is_carried`] tells of as bytes.
///
/// # Errors
///
/// As of [`written_column`].
pub fn sent_column(
    name: String,
    type_oid: pg_sys::Oid,
    type_modifier: i32,
    not_null: bool,
) -> Result<WrittenColumn> {
    let (base_oid, _) = base_type(type_oid, type_modifier);
    match source_type(base_oid) {
        SourceType::FromText(_) => {
            let data_type = DataType::Text;
            Ok(WrittenColumn { name, data_type, is_json: false, is_utc: false, not_null })
        }
        _ => match written_column(name.clone(), type_oid, type_modifier, not_null) {
            Err(_) if is_carried_type(base_oid) => Ok(WrittenColumn {
                name,
                data_type: DataType::Bytea,
                is_json: false,
                is_utc: false,
                not_null,
            }),
            written => written,
        },
    }
}

/// Whether values of a type are sent as the bytes of their type's send function, since files do not hold them: of `interval`, and of
/// `numeric` without a precision or with one that engines do not have. An engine returns the bytes, and knows no value.
pub fn is_carried(data_type: &DataType, type_oid: pg_sys::Oid) -> bool {
    *data_type == DataType::Bytea && is_carried_type(type_oid)
}

fn is_carried_type(type_oid: pg_sys::Oid) -> bool {
    matches!(type_oid, pg_sys::NUMERICOID | pg_sys::INTERVALOID)
}

/// Why values of a type can't be written.
struct WriteRefusal {
    hint: &'static str,
    /// The field of a composite type that can't be, with its type.
    field: Option<String>,
}

fn refusal(type_oid: pg_sys::Oid, type_modifier: i32) -> Option<WriteRefusal> {
    let refused = |hint| Some(WriteRefusal { hint, field: None });
    let (_, base_modifier) = base_type(type_oid, type_modifier);
    let item_oid = item_type(type_oid);
    if let Some(fields) = composite_fields(item_oid) {
        return fields.into_iter().find_map(|CompositeField { name, type_oid, type_modifier, .. }| {
            let own_refusal = match item_type(type_oid) {
                // The plan's type does not tell such fields from times without a zone.
                pg_sys::TIMETZOID => refused(CAST_OR_LEAVE_OUT),
                _ => refusal(type_oid, type_modifier),
            };
            let WriteRefusal { hint, field } = own_refusal?;
            let own = || format!("\"{name}\" of type {}", type_name_with(type_oid, type_modifier));
            Some(WriteRefusal { hint, field: field.or_else(|| Some(own())) })
        });
    }
    if item_oid == pg_sys::TIMETZOID {
        return None;
    }
    let source = source_type(item_oid);
    match source.data_type_with(base_modifier) {
        None if item_oid == pg_sys::NUMERICOID => match data_type(item_oid, base_modifier) {
            Some(_) => None,
            None => refused(
                "Files hold numeric(p,s) with p and s up to 76 and s from 0: cast the column to one, or to text.",
            ),
        },
        Some(DataType::Numeric) => {
            refused("Give it a precision and a scale, as numeric(38,10), or cast it to text.")
        }
        // A plan has values as text, which they are not where PostgreSQL has them.
        Some(_) if matches!(source, SourceType::FromText(_)) => refused(CAST_OR_LEAVE_OUT),
        None | Some(DataType::Interval) => refused(CAST_OR_LEAVE_OUT),
        Some(_) => None,
    }
}

impl ColumnWriter {
    /// A writer of values of this type to a column.
    ///
    /// # Errors
    ///
    /// `Internal` for a column that is not the type's.
    pub fn new(column: &WrittenColumn, type_oid: pg_sys::Oid, type_modifier: i32) -> Result<Self> {
        let (base_oid, _) = base_type(type_oid, type_modifier);
        Ok(Self { name: column.name.clone(), values: Values::new(&column.data_type, base_oid)?, bytes: 0 })
    }

    /// Adds a value; `None` is NULL.
    ///
    /// # Errors
    ///
    /// `NotSupported`, `NumericOutOfRange`, `DatetimeOutOfRange` or `InvalidText` for a value that files can't hold.
    ///
    /// # Safety
    ///
    /// The datum is a valid value of the writer's type.
    pub unsafe fn push(&mut self, value: Option<Datum>) -> Result<()> {
        // SAFETY: the caller says so.
        let pushed = unsafe { self.values.push(value) };
        self.bytes += pushed.map_err(|error| Error {
            message: format!("column \"{}\": {}", self.name, error.message),
            ..error
        })?;
        Ok(())
    }

    /// Bytes that the values take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values so far, which are forgotten.
    ///
    /// # Errors
    ///
    /// `Internal` if Arrow does not take them.
    pub fn take(&mut self) -> Result<ArrayRef> {
        self.bytes = 0;
        self.values.take().map_err(|error| Error::internal(format!("rows to be written: {error}")))
    }
}

impl Values {
    fn new(data_type: &DataType, type_oid: pg_sys::Oid) -> Result<Self> {
        let arrow = data_type.to_written_arrow();
        Ok(match data_type {
            DataType::Bool => Self::Bool(BooleanBuilder::new()),
            DataType::Int16 => Self::Int16(Int16Builder::new()),
            DataType::Int32 => Self::Int32(Int32Builder::new()),
            DataType::Int64 => Self::Int64(Int64Builder::new()),
            DataType::Float32 => Self::Float32(Float32Builder::new()),
            DataType::Float64 => Self::Float64(Float64Builder::new()),
            DataType::Decimal { precision, scale } if matches!(arrow, ArrowType::Decimal256(..)) => {
                Self::LongDecimal {
                    builder: Decimal256Builder::new().with_data_type(arrow),
                    precision: *precision,
                    scale: *scale,
                }
            }
            DataType::Decimal { precision, scale } => Self::Decimal {
                builder: Decimal128Builder::new().with_data_type(arrow),
                precision: *precision,
                scale: *scale,
            },
            DataType::Date => Self::Date(Date32Builder::new()),
            DataType::Time if type_oid == pg_sys::TIMETZOID => Self::TimeTz(Time64MicrosecondBuilder::new()),
            DataType::Time => Self::Time(Time64MicrosecondBuilder::new()),
            DataType::Timestamp | DataType::TimestampTz => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(arrow))
            }
            DataType::Text if matches!(source_type(type_oid), SourceType::FromText(_)) => {
                let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
                // SAFETY: a look into the catalog of types.
                unsafe { pg_sys::getTypeOutputInfo(type_oid, &raw mut output, &raw mut is_varlena) };
                Self::Printed { builder: StringBuilder::new(), output }
            }
            DataType::Text => {
                Self::Text { builder: StringBuilder::new(), is_padded: type_oid == pg_sys::BPCHAROID }
            }
            DataType::Bytea if is_carried_type(type_oid) => {
                let (mut send, mut is_varlena) = (pg_sys::InvalidOid, false);
                // SAFETY: a look into the catalog of types.
                unsafe { pg_sys::getTypeBinaryOutputInfo(type_oid, &raw mut send, &raw mut is_varlena) };
                Self::Sent { builder: BinaryBuilder::new(), send }
            }
            DataType::Bytea => Self::Bytea(BinaryBuilder::new()),
            DataType::Uuid => Self::Uuid(FixedSizeBinaryBuilder::new(UUID_BYTES as i32)),
            DataType::List(item) => {
                let layout = ElementLayout::of(type_oid)
                    .ok_or_else(|| Error::internal(format!("type {type_oid} is no array")))?;
                Self::List(Box::new(ListValues {
                    layout,
                    items: Self::new(item, base_type(layout.type_oid(), -1).0)?,
                    item_type: item.to_written_arrow(),
                    offsets: vec![0],
                    nulls: NullBufferBuilder::new(0),
                }))
            }
            DataType::Record(fields) => Self::Record(Box::new(RecordValues::new(fields, type_oid)?)),
            DataType::Numeric | DataType::Interval => {
                return Err(Error::internal(format!("type {data_type} is not written")));
            }
        })
    }

    /// Adds a value, and returns its bytes.
    unsafe fn push(&mut self, value: Option<Datum>) -> Result<usize> {
        let word = value.map(|datum| datum.value());
        match self {
            Self::Bool(builder) => builder.append_option(word.map(|word| word & 0xff != 0)),
            Self::Int16(builder) => builder.append_option(word.map(|word| word as i16)),
            Self::Int32(builder) => builder.append_option(word.map(|word| word as i32)),
            Self::Int64(builder) => builder.append_option(word.map(|word| word as i64)),
            Self::Float32(builder) => builder.append_option(word.map(|word| f32::from_bits(word as u32))),
            Self::Float64(builder) => builder.append_option(word.map(|word| f64::from_bits(word as u64))),
            Self::Decimal { builder, precision, scale } => {
                // SAFETY: as the caller says, a numeric.
                let decoded = value.map(|datum| unsafe { decimal(datum, *precision, *scale) }).transpose()?;
                builder.append_option(decoded);
                return Ok(size_of::<i128>());
            }
            Self::LongDecimal { builder, precision, scale } => {
                // SAFETY: as of shorter ones.
                let decoded =
                    value.map(|datum| unsafe { long_decimal(datum, *precision, *scale) }).transpose()?;
                builder.append_option(decoded);
                return Ok(size_of::<i256>());
            }
            Self::Date(builder) => builder.append_option(word.map(|word| match word as i32 {
                infinite @ (i32::MIN | i32::MAX) => infinite,
                days => days + EPOCH_DAYS,
            })),
            Self::Time(builder) => builder.append_option(word.map(|word| word as i64)),
            Self::TimeTz(builder) => {
                // SAFETY: as the caller says, a time with its zone.
                builder.append_option(value.map(|datum| unsafe { time_of_utc(datum) }).transpose()?);
            }
            Self::Timestamp(builder) => {
                let time = word.map(|word| match word as i64 {
                    infinite @ (i64::MIN | i64::MAX) => Ok(infinite),
                    // The greatest number stands for infinity in files.
                    time => time
                        .checked_add(EPOCH_MICROSECONDS)
                        .filter(|time| *time < i64::MAX)
                        .ok_or_else(timestamp_out_of_range),
                });
                builder.append_option(time.transpose()?);
            }
            Self::Text { builder, is_padded } => {
                let Some(datum) = value else {
                    builder.append_null();
                    return Ok(size_of::<i32>());
                };
                // SAFETY: as the caller says, a varlena, which is there until `varlena` is dropped.
                let varlena = unsafe { Varlena::of(datum) };
                let text = encoding::as_utf8(varlena.bytes()).ok_or_else(not_utf8)?;
                let text: &str = if *is_padded { text.trim_end_matches(' ') } else { &text };
                builder.append_value(text);
                return Ok(size_of::<i32>() + text.len());
            }
            Self::Printed { builder, output } => {
                let Some(datum) = value else {
                    builder.append_null();
                    return Ok(size_of::<i32>());
                };
                // SAFETY: a value of the type, which its output function prints.
                let printed = unsafe { pg_sys::OidOutputFunctionCall(*output, datum) };
                // SAFETY: a C string, which is freed below.
                let text = unsafe { std::ffi::CStr::from_ptr(printed) };
                let text = encoding::as_utf8(text.to_bytes()).ok_or_else(not_utf8)?;
                builder.append_value(&text);
                let bytes = size_of::<i32>() + text.len();
                drop(text);
                // SAFETY: just made.
                unsafe { pg_sys::pfree(printed.cast()) };
                return Ok(bytes);
            }
            Self::Sent { builder, send } => {
                let Some(datum) = value else {
                    builder.append_null();
                    return Ok(size_of::<i32>());
                };
                // SAFETY: a value of the type, whose send function makes a bytea.
                let sent = unsafe { pg_sys::OidSendFunctionCall(*send, datum) };
                // SAFETY: the bytea, which is freed below.
                let varlena = unsafe { Varlena::of(Datum::from(sent)) };
                builder.append_value(varlena.bytes());
                let bytes = size_of::<i32>() + varlena.bytes().len();
                drop(varlena);
                // SAFETY: just made.
                unsafe { pg_sys::pfree(sent.cast()) };
                return Ok(bytes);
            }
            Self::Bytea(builder) => {
                let Some(datum) = value else {
                    builder.append_null();
                    return Ok(size_of::<i32>());
                };
                // SAFETY: as of text.
                let varlena = unsafe { Varlena::of(datum) };
                builder.append_value(varlena.bytes());
                return Ok(size_of::<i32>() + varlena.bytes().len());
            }
            Self::Uuid(builder) => {
                match value {
                    // SAFETY: as the caller says, a uuid, which has 16 bytes.
                    Some(datum) => unsafe {
                        let bytes = std::slice::from_raw_parts(datum.cast_mut_ptr::<u8>(), UUID_BYTES);
                        builder.append_value(bytes).map_err(|error| unexpected(&error))?;
                    },
                    None => builder.append_null(),
                }
                return Ok(UUID_BYTES);
            }
            // SAFETY: as the caller says, an array.
            Self::List(list) => return unsafe { list.push(value) },
            // SAFETY: as the caller says, a composite value.
            Self::Record(record) => return unsafe { record.push(value) },
        }
        Ok(size_of::<u64>())
    }

    fn take(&mut self) -> std::result::Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Int16(builder) => Arc::new(builder.finish()),
            Self::Int32(builder) => Arc::new(builder.finish()),
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::Float32(builder) => Arc::new(builder.finish()),
            Self::Float64(builder) => Arc::new(builder.finish()),
            Self::Decimal { builder, .. } => Arc::new(builder.finish()),
            Self::LongDecimal { builder, .. } => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Time(builder) | Self::TimeTz(builder) => Arc::new(builder.finish()),
            Self::Timestamp(builder) => Arc::new(builder.finish()),
            Self::Text { builder, .. } | Self::Printed { builder, .. } => Arc::new(builder.finish()),
            Self::Sent { builder, .. } | Self::Bytea(builder) => Arc::new(builder.finish()),
            Self::Uuid(builder) => Arc::new(builder.finish()),
            Self::List(list) => {
                let items = list.items.take()?;
                let offsets = std::mem::replace(&mut list.offsets, vec![0]);
                let field = Arc::new(Field::new_list_field(list.item_type.clone(), true));
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(ListArray::try_new(field, offsets, items, list.nulls.finish())?)
            }
            Self::Record(record) => {
                let values = record.fields.iter_mut().flatten().map(Self::take);
                let values = values.collect::<std::result::Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new(record.arrow.clone(), values, record.nulls.finish())?)
            }
        })
    }
}

impl ListValues {
    /// Adds an array, and returns the bytes of its elements.
    unsafe fn push(&mut self, value: Option<Datum>) -> Result<usize> {
        let mut bytes = size_of::<i32>();
        let mut count = 0;
        if let Some(datum) = value {
            // SAFETY: as the caller says, an array, laid out as the catalog says.
            unsafe {
                let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
                check_shape(array)?;
                let (values, nulls, item_count) = self.layout.deconstruct(array);
                for place in 0..item_count {
                    let item = (!*nulls.add(place)).then(|| *values.add(place));
                    bytes += self.items.push(item)?;
                }
                count = item_count;
                pg_sys::pfree(values.cast());
                pg_sys::pfree(nulls.cast());
                if array.cast::<pg_sys::varlena>() != datum.cast_mut_ptr() {
                    pg_sys::pfree(array.cast());
                }
            }
        }
        let end =
            self.offsets.last().copied().unwrap_or(0).checked_add(i32::try_from(count).unwrap_or(i32::MAX));
        self.offsets
            .push(end.ok_or_else(|| Error::new(ErrorKind::NotSupported, "arrays have too many elements"))?);
        self.nulls.append(value.is_some());
        Ok(bytes)
    }
}

impl RecordValues {
    fn new(fields: &[RecordField], type_oid: pg_sys::Oid) -> Result<Self> {
        let mut known = fields.iter();
        // SAFETY: a composite type; the copy lives as long as the current memory context, which outlives the writer.
        let (descriptor, attributes) = unsafe {
            let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
            (descriptor, list::attributes(descriptor))
        };
        let values = attributes.into_iter().map(|attribute| {
            if attribute.attisdropped {
                return Ok(None);
            }
            let field = known.next().ok_or_else(|| Error::internal("a composite type was changed"))?;
            Values::new(&field.data_type, base_type(attribute.atttypid, attribute.atttypmod).0).map(Some)
        });
        let values = values.collect::<Result<_>>()?;
        let arrow = fields
            .iter()
            .map(|field| Field::new(&field.name, field.data_type.to_written_arrow(), true))
            .collect();
        Ok(Self { descriptor, fields: values, arrow, nulls: NullBufferBuilder::new(0) })
    }

    /// Adds a value, and returns the bytes of its fields.
    unsafe fn push(&mut self, value: Option<Datum>) -> Result<usize> {
        let count = self.fields.len();
        let (mut values, mut nulls) = (vec![Datum::null(); count], vec![true; count]);
        let mut plain = std::ptr::null_mut();
        if let Some(datum) = value {
            // SAFETY: as the caller says, a composite value, of the descriptor's type. Values may lie in the copy that detoasting makes.
            unsafe {
                plain = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
                let mut tuple = pg_sys::HeapTupleData {
                    t_len: pgrx::varsize(plain) as u32,
                    t_data: plain.cast(),
                    ..pg_sys::HeapTupleData::default()
                };
                pg_sys::heap_deform_tuple(
                    &raw mut tuple,
                    self.descriptor,
                    values.as_mut_ptr(),
                    nulls.as_mut_ptr(),
                );
            }
        }
        let mut bytes = 1;
        for ((field, value), is_null) in self.fields.iter_mut().zip(values).zip(nulls) {
            if let Some(field) = field {
                // SAFETY: the value of an attribute of the field's type.
                bytes += unsafe { field.push((!is_null).then_some(value))? };
            }
        }
        self.nulls.append(value.is_some());
        if value.is_some_and(|datum| plain != datum.cast_mut_ptr()) {
            // SAFETY: the copy that detoasting made, which nothing points into any more.
            unsafe { pg_sys::pfree(plain.cast()) };
        }
        Ok(bytes)
    }
}

/// Files hold lists from the first element on.
///
/// # Safety
///
/// The array is valid, and detoasted.
unsafe fn check_shape(array: *const pg_sys::ArrayType) -> Result<()> {
    // SAFETY: the caller says so. Sizes and lower bounds of the dimensions follow the header.
    let (dimensions, lower) = unsafe {
        let dimensions = (*array).ndim;
        let sizes = array.add(1).cast::<i32>();
        (dimensions, if dimensions == 1 { *sizes.add(1) } else { 1 })
    };
    if dimensions > 1 || lower != 1 {
        let message = match dimensions {
            1 => format!("an array that begins at {lower} can't be written to Parquet"),
            _ => format!("an array of {dimensions} dimensions can't be written to Parquet"),
        };
        return Err(Error::new(ErrorKind::NotSupported, message)
            .with_hint("Files hold arrays of one dimension that begin at 1. Cast the column to text, or rebuild the array."));
    }
    Ok(())
}

/// A numeric as an integer with the column's scale.
///
/// # Safety
///
/// The datum is a valid numeric.
unsafe fn decimal(datum: Datum, precision: u8, scale: u8) -> Result<i128> {
    // SAFETY: the caller says so.
    let decoded = unsafe { numeric::decode(Varlena::of(datum).bytes()) };
    let value = match decoded {
        Decoded::Finite { unscaled, scale: own } => scale
            .checked_sub(own)
            .and_then(|zeroes| unscaled.checked_mul(10i128.checked_pow(u32::from(zeroes))?))
            .filter(|value| value.unsigned_abs() < 10u128.pow(u32::from(precision))),
        Decoded::TooLong => None,
        Decoded::Special => return Err(special_number()),
    };
    value.ok_or_else(|| number_out_of_range(precision, scale))
}

/// The same for numbers of more than 38 digits.
///
/// # Safety
///
/// As of [`decimal`].
unsafe fn long_decimal(datum: Datum, precision: u8, scale: u8) -> Result<i256> {
    // SAFETY: the caller says so.
    match unsafe { numeric::decode_long(Varlena::of(datum).bytes(), scale) } {
        // A precision of 76 has a bound that the type still holds.
        DecodedLong::Finite(value)
            if value.wrapping_abs() < i256::from_i128(10).wrapping_pow(u32::from(precision)) =>
        {
            Ok(value)
        }
        DecodedLong::Special => Err(special_number()),
        _ => Err(number_out_of_range(precision, scale)),
    }
}

/// The microseconds of a time of UTC.
///
/// # Safety
///
/// The datum is a valid `timetz`.
unsafe fn time_of_utc(datum: Datum) -> Result<i64> {
    // SAFETY: the caller says so; the function returns a C string.
    unsafe {
        let time = &*datum.cast_mut_ptr::<pg_sys::TimeTzADT>();
        if time.zone == 0 {
            return Ok(time.time);
        }
        let text =
            list::string(pg_sys::OidOutputFunctionCall(pg_sys::Oid::from(pg_sys::F_TIMETZ_OUT), datum));
        let message = format!("the time {text} can't be written to Parquet: its zone is not UTC");
        Err(Error::new(ErrorKind::NotSupported, message)
            .with_detail("Files hold times of UTC, and times without a zone.")
            .with_hint("Write it AT TIME ZONE 'UTC', which is the same time, or cast the column to text."))
    }
}

fn special_number() -> Error {
    Error::new(ErrorKind::NotSupported, "NaN and infinity of numeric can't be written to Parquet")
        .with_hint("Write NULL in their place, or cast the column to double precision or text.")
}

fn number_out_of_range(precision: u8, scale: u8) -> Error {
    Error::new(
        ErrorKind::NumericOutOfRange,
        format!("a number does not fit into numeric({precision},{scale})"),
    )
}

/// The content of a varlena, wherever it is stored.
pub(super) struct Varlena {
    given: *mut pg_sys::varlena,
    plain: *mut pg_sys::varlena,
}

impl Varlena {
    /// # Safety
    ///
    /// The datum is a valid varlena, and is there as long as this is.
    pub(super) unsafe fn of(datum: Datum) -> Self {
        let given = datum.cast_mut_ptr();
        // SAFETY: the caller says so.
        Self { given, plain: unsafe { pg_sys::pg_detoast_datum_packed(given) } }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: a varlena with its length.
        unsafe {
            let length = pgrx::varsize_any_exhdr(self.plain);
            std::slice::from_raw_parts(pgrx::vardata_any(self.plain).cast::<u8>(), length)
        }
    }
}

impl Drop for Varlena {
    fn drop(&mut self) {
        if self.plain != self.given {
            // SAFETY: a copy that detoasting made.
            unsafe { pg_sys::pfree(self.plain.cast()) };
        }
    }
}

fn timestamp_out_of_range() -> Error {
    Error::new(
        ErrorKind::DatetimeOutOfRange,
        "a timestamp after 294247-01-10 04:00:54 can't be written to Parquet",
    )
    .with_detail("Files hold microseconds since 1970 in 64 bits.")
    .with_hint("Write infinity or NULL in its place, or cast the column to text.")
}

fn not_utf8() -> Error {
    Error::new(ErrorKind::InvalidText, "a text can't be written to Parquet: it has no equivalent in UTF-8")
        .with_hint("Write it as bytea.")
}

fn unexpected(error: &ArrowError) -> Error {
    Error::internal(format!("rows to be written: {error}"))
}
