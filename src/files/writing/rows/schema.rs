//! The Parquet schema of rows, and their values as files hold them.
//!
//! Invariant: reading a file gives the types and values that were written (`file_type.rs`, `value_range.rs`).

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StructArray},
    compute::{CastOptions, cast_with_options},
    datatypes::{
        DataType as ArrowType, Date32Type, Field, FieldRef, Schema, SchemaRef, TimestampMicrosecondType,
    },
    error::ArrowError,
};
use parquet::{
    basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType},
    errors::ParquetError,
    schema::types::{SchemaDescriptor, Type, TypePtr},
};
use pystachio_plan::{DataType, Error, ErrorKind, RecordField, Result, WrittenColumn};

use crate::value_range::{DATE_INFINITIES, TIMESTAMP_INFINITIES};

/// Digits that an `INT32` holds.
const INT32_DIGITS_MAX: u8 = 9;
/// Digits that an `INT64` holds.
const INT64_DIGITS_MAX: u8 = 18;
/// The names of a list's groups, as the Parquet specification has them.
const LIST_GROUP: &str = "list";
const LIST_ELEMENT: &str = "element";

/// The schema of rows in a file, and in the batches that go there.
pub(super) struct RowSchema {
    /// Of the batches.
    pub(super) arrow: SchemaRef,
    /// Of the file.
    pub(super) parquet: Arc<SchemaDescriptor>,
}

impl RowSchema {
    /// The schema of these columns.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a type that files don't have; `InvalidArgument` if there is no column, or one twice.
    pub(super) fn new(columns: &[WrittenColumn]) -> Result<Self> {
        let (Some(_), None) = (columns.first(), twice(columns)) else {
            let message = match twice(columns) {
                Some(name) => format!("column \"{name}\" is written twice"),
                None => "rows without columns can't be written".to_owned(),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("Give each column of the query a name of its own."));
        };
        let fields: Vec<Field> = columns
            .iter()
            .map(|column| Field::new(&column.name, column.data_type.to_written_arrow(), !column.not_null))
            .collect();
        let types = columns.iter().map(parquet_column).collect::<Result<Vec<_>>>()?;
        let root = Type::group_type_builder("schema").with_fields(types).build();
        let root = root.map_err(|error| unexpected(&error))?;
        let parquet = Arc::new(SchemaDescriptor::new(Arc::new(root)));
        Ok(Self { arrow: Arc::new(Schema::new(fields)), parquet })
    }

    /// A batch as files hold it.
    ///
    /// # Errors
    ///
    /// `Protocol` for a batch of another schema.
    pub(super) fn stored(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(self.arrow.fields());
        let stored = columns.map(|(column, field)| stored(&as_written(column, field.data_type())?));
        stored
            .collect::<std::result::Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new(self.arrow.clone(), columns))
            .map_err(|error| {
                Error::new(
                    ErrorKind::Protocol,
                    format!("rows are not of the columns that were announced: {error}"),
                )
            })
    }
}

/// A name that two columns have.
fn twice(columns: &[WrittenColumn]) -> Option<&str> {
    let earlier = |place: usize, name: &str| columns[..place].iter().any(|column| column.name == name);
    columns
        .iter()
        .enumerate()
        .find(|(place, column)| earlier(*place, &column.name))
        .map(|(_, column)| column.name.as_str())
}

fn parquet_column(column: &WrittenColumn) -> Result<TypePtr> {
    let repetition = if column.not_null { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    parquet_field((&column.name, column.is_json), &column.data_type, column, repetition)
}

/// A field of the file: a column, a list's element, or a field of a composite type.
fn parquet_field(
    (name, is_json): (&str, bool),
    data_type: &DataType,
    column: &WrittenColumn,
    repetition: Repetition,
) -> Result<TypePtr> {
    let built = match data_type {
        // PostgreSQL's arrays have no arrays as elements.
        DataType::List(item) if !matches!(**item, DataType::List(_)) => {
            let item = parquet_field((LIST_ELEMENT, is_json), item, column, Repetition::OPTIONAL)?;
            let repeated = Type::group_type_builder(LIST_GROUP)
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![item]);
            repeated.build().and_then(|repeated| {
                Type::group_type_builder(name)
                    .with_repetition(repetition)
                    .with_logical_type(Some(LogicalType::List))
                    .with_fields(vec![Arc::new(repeated)])
                    .build()
            })
        }
        DataType::Record(fields) => {
            let field = |field: &RecordField| {
                let named = (field.name.as_str(), field.is_json);
                parquet_field(named, &field.data_type, column, Repetition::OPTIONAL)
            };
            let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
            Type::group_type_builder(name).with_repetition(repetition).with_fields(fields).build()
        }
        single => return parquet_value((name, is_json), single, column, repetition),
    };
    built.map(Arc::new).map_err(|error| unexpected(&error))
}

fn parquet_value(
    (name, is_json): (&str, bool),
    data_type: &DataType,
    column: &WrittenColumn,
    repetition: Repetition,
) -> Result<TypePtr> {
    let timestamp = |is_adjusted_to_u_t_c| LogicalType::timestamp(is_adjusted_to_u_t_c, TimeUnit::MICROS);
    let (physical, logical) = match data_type {
        DataType::Bool => (PhysicalType::BOOLEAN, None),
        DataType::Int16 => (PhysicalType::INT32, Some(LogicalType::integer(16, true))),
        DataType::Int32 => (PhysicalType::INT32, None),
        DataType::Int64 => (PhysicalType::INT64, None),
        DataType::Float32 => (PhysicalType::FLOAT, None),
        DataType::Float64 => (PhysicalType::DOUBLE, None),
        DataType::Decimal { precision, scale } => {
            let physical = match *precision {
                digits if digits <= INT32_DIGITS_MAX => PhysicalType::INT32,
                digits if digits <= INT64_DIGITS_MAX => PhysicalType::INT64,
                _ => PhysicalType::FIXED_LEN_BYTE_ARRAY,
            };
            (physical, Some(LogicalType::decimal(i32::from(*scale), i32::from(*precision))))
        }
        DataType::Date => (PhysicalType::INT32, Some(LogicalType::Date)),
        DataType::Time => (PhysicalType::INT64, Some(LogicalType::time(column.is_utc, TimeUnit::MICROS))),
        DataType::Timestamp => (PhysicalType::INT64, Some(timestamp(false))),
        DataType::TimestampTz => (PhysicalType::INT64, Some(timestamp(true))),
        DataType::Text if is_json => (PhysicalType::BYTE_ARRAY, Some(LogicalType::Json)),
        DataType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        DataType::Bytea => (PhysicalType::BYTE_ARRAY, None),
        DataType::Uuid => (PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)),
        DataType::Numeric | DataType::Interval | DataType::List(_) | DataType::Record(_) => {
            let message = format!(
                "column \"{}\" of type {} can't be written to Parquet",
                column.name, column.data_type
            );
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
    };
    let mut builder =
        Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    if let DataType::Decimal { precision, scale } = data_type {
        builder = builder.with_precision(i32::from(*precision)).with_scale(i32::from(*scale));
        if physical == PhysicalType::FIXED_LEN_BYTE_ARRAY {
            builder = builder.with_length(decimal_bytes(*precision));
        }
    }
    if *data_type == DataType::Uuid {
        builder = builder.with_length(16);
    }
    builder.build().map(Arc::new).map_err(|error| unexpected(&error))
}

/// The least bytes that hold signed numbers of so many digits.
fn decimal_bytes(precision: u8) -> i32 {
    let bits = f64::from(precision) * 10f64.log2() + 1.0;
    (bits / 8.0).ceil() as i32
}

/// A column of a query as rows are written: text and bytes with offsets, decimals of other precisions with the declared one.
fn as_written(array: &ArrayRef, data_type: &ArrowType) -> std::result::Result<ArrayRef, ArrowError> {
    match same_values(array.data_type(), data_type) && array.data_type() != data_type {
        true => cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() }),
        false => Ok(array.clone()),
    }
}

/// Whether columns of both types hold the same values.
fn same_values(found: &ArrowType, wanted: &ArrowType) -> bool {
    match (found, wanted) {
        (ArrowType::Utf8View | ArrowType::Utf8, ArrowType::Utf8) => true,
        (ArrowType::BinaryView | ArrowType::Binary, ArrowType::Binary) => true,
        (
            ArrowType::Decimal128(_, found) | ArrowType::Decimal256(_, found),
            ArrowType::Decimal128(_, wanted) | ArrowType::Decimal256(_, wanted),
        ) => found == wanted,
        (ArrowType::List(found), ArrowType::List(wanted)) => {
            same_values(found.data_type(), wanted.data_type())
        }
        (ArrowType::Struct(found), ArrowType::Struct(wanted)) => {
            let same = |(found, wanted): (&FieldRef, &FieldRef)| {
                found.name() == wanted.name() && same_values(found.data_type(), wanted.data_type())
            };
            found.len() == wanted.len() && found.iter().zip(wanted).all(same)
        }
        (found, wanted) => found == wanted,
    }
}

/// Dates and timestamps with infinities as files have them, which are DuckDB's.
fn stored(array: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    Ok(match array.data_type() {
        ArrowType::Date32 => {
            let own =
                |value| DATE_INFINITIES.iter().find(|(_, own)| *own == value).map(|(stored, _)| *stored);
            Arc::new(
                array
                    .as_primitive::<Date32Type>()
                    .unary::<_, Date32Type>(|value| own(value).unwrap_or(value)),
            )
        }
        ArrowType::Timestamp(_, zone) => {
            let own =
                |value| TIMESTAMP_INFINITIES.iter().find(|(_, own)| *own == value).map(|(stored, _)| *stored);
            let times = array.as_primitive::<TimestampMicrosecondType>();
            let times = times.unary::<_, TimestampMicrosecondType>(|value| own(value).unwrap_or(value));
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        ArrowType::List(item) => {
            let list: &ListArray = array.as_list();
            let items = stored(list.values())?;
            Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), items, list.nulls().cloned())?)
        }
        ArrowType::Struct(fields) => {
            let record = array.as_struct();
            let values = record.columns().iter().map(stored).collect::<std::result::Result<Vec<_>, _>>()?;
            let nulls = record.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(fields.clone(), values, nulls, record.len())?)
        }
        _ => array.clone(),
    })
}

fn unexpected(error: &ParquetError) -> Error {
    Error::internal(format!("schema of a Parquet file: {error}"))
}
