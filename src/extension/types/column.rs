//! One column of the result batches as datums.

use std::ops::Range;

use arrow_array::{
    Array, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, LargeBinaryArray, ListArray, RecordBatch, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType as ArrowType, TimeUnit};
use pgrx::pg_sys;
use pystachio_lower::SourceType;
use pystachio_plan::{Error, Result};

use super::{
    array::{ArrayReader, ElementLayout},
    base_type,
    block::Cells,
    composite_fields,
    domain::DomainCheck,
    fixed,
    input::InputReader,
    numeric::{self, NumericScratch, Scales},
    record::RecordReader,
    text::{self, TextScratch},
};
use crate::{pg::mirror::source_type, scan_private::DisplayScale};

/// Where a column's values come from, and as what PostgreSQL sees them.
#[derive(Clone, Debug)]
pub struct ColumnSource {
    /// The place in the batches; `None` reads as NULL.
    pub output_index: Option<usize>,
    /// How many digits a `numeric` shows after the point.
    pub display_scale: DisplayScale,
    /// The PostgreSQL type.
    pub type_oid: pg_sys::Oid,
    /// Its modifier; -1 of a domain.
    pub type_modifier: i32,
}

/// Converts one column, and holds the memory of its values.
pub struct ColumnReader {
    source: ColumnSource,
    family: Family,
    domain: Option<DomainCheck>,
    numeric: NumericScratch,
    text: TextScratch,
}

enum Family {
    Bool,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Numeric,
    Date,
    Time,
    TimeTz,
    Timestamp,
    Interval,
    Text { pad_to: Option<usize> },
    Input(InputReader),
    Carried(InputReader),
    Bytea,
    Uuid,
    Array(Box<ArrayReader>),
    Record(Box<RecordReader>),
}

impl ColumnReader {
    /// A reader for a column.
    ///
    /// # Errors
    ///
    /// `Internal` for a PostgreSQL type that nothing is read as.
    pub fn new(source: ColumnSource) -> Result<Self> {
        let (type_oid, type_modifier) = base_type(source.type_oid, source.type_modifier);
        let family = Family::of(type_oid, type_modifier)?;
        let domain = DomainCheck::of(source.type_oid);
        Ok(Self { source, family, domain, numeric: NumericScratch::default(), text: TextScratch::default() })
    }

    /// A reader for a column that engines carried through as bytes.
    pub fn of_carried(source: ColumnSource) -> Self {
        let (type_oid, _) = base_type(source.type_oid, source.type_modifier);
        let family = Family::Carried(InputReader::receiving(type_oid));
        let domain = DomainCheck::of(source.type_oid);
        Self { source, family, domain, numeric: NumericScratch::default(), text: TextScratch::default() }
    }

    /// Sets the cells of these rows.
    ///
    /// # Errors
    ///
    /// A value is outside its PostgreSQL type, or the batch has another type than was planned.
    pub fn fill(&mut self, batch: &RecordBatch, rows: Range<usize>, cells: &mut Cells<'_>) -> Result<()> {
        let Some(index) = self.source.output_index else {
            cells.fill_null(rows.len());
            return Ok(());
        };
        let array = batch
            .columns()
            .get(index)
            .ok_or_else(|| Error::internal(format!("result has no column {index}")))?;
        let scales = match self.source.display_scale {
            DisplayScale::OfType => Scales::OfType,
            DisplayScale::Fixed(scale) => Scales::Fixed(scale),
            DisplayScale::Output(index) => Scales::Column(
                batch
                    .columns()
                    .get(index as usize)
                    .and_then(|array| array.as_any().downcast_ref::<Int32Array>())
                    .ok_or_else(|| Error::internal(format!("result column {index} is no display scale")))?,
            ),
        };
        self.fill_array(array.as_ref(), &scales, rows, cells)
    }

    /// As [`ColumnReader::fill`], from an array by itself.
    pub(super) fn fill_array(
        &mut self,
        array: &dyn Array,
        scales: &Scales<'_>,
        rows: Range<usize>,
        cells: &mut Cells<'_>,
    ) -> Result<()> {
        let row_count = rows.len();
        let any = array.as_any();
        match (&mut self.family, array.data_type()) {
            (Family::Bool, ArrowType::Boolean) => fixed::fill_bool(cast::<BooleanArray>(any)?, rows, cells),
            (Family::Int16, ArrowType::Int16) => fixed::fill_int16(cast::<Int16Array>(any)?, rows, cells),
            (Family::Int32, ArrowType::Int32) => fixed::fill_int32(cast::<Int32Array>(any)?, rows, cells),
            (Family::Int64, ArrowType::Int64) => fixed::fill_int64(cast::<Int64Array>(any)?, rows, cells),
            (Family::Float32, ArrowType::Float32) => {
                fixed::fill_float32(cast::<Float32Array>(any)?, rows, cells);
            }
            (Family::Float64, ArrowType::Float64) => {
                fixed::fill_float64(cast::<Float64Array>(any)?, rows, cells);
            }
            (Family::Date, ArrowType::Date32) => {
                fixed::fill_date(cast::<Date32Array>(any)?, rows, cells)?;
            }
            (Family::Time, ArrowType::Time64(TimeUnit::Microsecond)) => {
                fixed::fill_time(cast::<Time64MicrosecondArray>(any)?, rows, cells)?;
            }
            (Family::TimeTz, ArrowType::Time64(TimeUnit::Microsecond)) => {
                let array = cast::<Time64MicrosecondArray>(any)?;
                fixed::fill_time_of_utc(array, rows, cells, &mut self.text)?;
            }
            (Family::Timestamp, ArrowType::Timestamp(TimeUnit::Microsecond, _)) => {
                fixed::fill_timestamp(cast::<TimestampMicrosecondArray>(any)?, rows, cells)?;
            }
            (Family::Interval, ArrowType::Interval(_)) => {
                let array = cast::<IntervalMonthDayNanoArray>(any)?;
                fixed::fill_interval(array, rows, cells, &mut self.text);
            }
            (Family::Uuid, ArrowType::FixedSizeBinary(16)) => {
                fixed::fill_uuid(cast::<FixedSizeBinaryArray>(any)?, rows, cells);
            }
            (Family::Numeric, ArrowType::Decimal128(_, scale)) => {
                let array = cast::<Decimal128Array>(any)?;
                numeric::fill_decimal128(array, *scale, scales, rows, cells, &mut self.numeric)?;
            }
            (Family::Numeric, ArrowType::Decimal256(_, scale)) => {
                let array = cast::<Decimal256Array>(any)?;
                numeric::fill_decimal256(array, *scale, scales, rows, cells, &mut self.numeric)?;
            }
            (Family::Text { pad_to }, _) => {
                fill_text(array, *pad_to, rows, cells, &mut self.text)?;
            }
            (Family::Input(reader), _) => {
                fill_text(array, None, rows, cells, &mut self.text)?;
                reader.read(cells, row_count);
            }
            (Family::Carried(reader), _) => {
                fill_bytea(array, rows, cells, &mut self.text)?;
                reader.read(cells, row_count);
            }
            (Family::Bytea, _) => fill_bytea(array, rows, cells, &mut self.text)?,
            (Family::Array(reader), ArrowType::List(_)) => {
                reader.fill(cast::<ListArray>(any)?, rows, cells)?;
            }
            (Family::Record(reader), ArrowType::Struct(_)) => {
                reader.fill(cast::<StructArray>(any)?, rows, cells)?;
            }
            (_, other) => return Err(wrong_type(other)),
        }
        if let Some(domain) = &mut self.domain {
            domain.check(cells, row_count);
        }
        Ok(())
    }
}

impl Family {
    fn of(type_oid: pg_sys::Oid, type_modifier: i32) -> Result<Self> {
        Ok(match type_oid {
            pg_sys::BOOLOID => Self::Bool,
            pg_sys::INT2OID => Self::Int16,
            pg_sys::INT4OID => Self::Int32,
            pg_sys::INT8OID => Self::Int64,
            pg_sys::FLOAT4OID => Self::Float32,
            pg_sys::FLOAT8OID => Self::Float64,
            pg_sys::NUMERICOID => Self::Numeric,
            pg_sys::DATEOID => Self::Date,
            pg_sys::TIMEOID => Self::Time,
            pg_sys::TIMETZOID => Self::TimeTz,
            pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => Self::Timestamp,
            pg_sys::INTERVALOID => Self::Interval,
            pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::JSONOID => Self::Text { pad_to: None },
            pg_sys::BPCHAROID => Self::Text { pad_to: usize::try_from(type_modifier - 4).ok() },
            pg_sys::JSONBOID => Self::Input(InputReader::new(type_oid, type_modifier)),
            pg_sys::BYTEAOID => Self::Bytea,
            pg_sys::UUIDOID => Self::Uuid,
            other => match ElementLayout::of(other) {
                Some(layout) => Self::Array(Box::new(ArrayReader::new(layout, type_modifier)?)),
                None if composite_fields(other).is_some() => {
                    Self::Record(Box::new(RecordReader::new(other)?))
                }
                None if matches!(source_type(other), SourceType::FromText(_)) => {
                    Self::Input(InputReader::new(other, type_modifier))
                }
                None => return Err(Error::internal(format!("nothing is read as type {other}"))),
            },
        })
    }
}

/// Text comes as bytes: that it is UTF-8 was checked where the files were read.
fn fill_text(
    array: &dyn Array,
    pad_to: Option<usize>,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) -> Result<()> {
    let any = array.as_any();
    match array.data_type() {
        ArrowType::BinaryView => {
            let array = cast::<BinaryViewArray>(any)?;
            text::fill_text(array, |row| array.value(row), pad_to, rows, cells, scratch)
        }
        ArrowType::Binary => {
            let array = cast::<BinaryArray>(any)?;
            text::fill_text(array, |row| array.value(row), pad_to, rows, cells, scratch)
        }
        ArrowType::LargeBinary => {
            let array = cast::<LargeBinaryArray>(any)?;
            text::fill_text(array, |row| array.value(row), pad_to, rows, cells, scratch)
        }
        other => Err(wrong_type(other)),
    }
}

fn fill_bytea(
    array: &dyn Array,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) -> Result<()> {
    let any = array.as_any();
    match array.data_type() {
        ArrowType::BinaryView => {
            let array = cast::<BinaryViewArray>(any)?;
            text::fill_bytes(array, |row| array.value(row), rows, cells, scratch)
        }
        ArrowType::Binary => {
            let array = cast::<BinaryArray>(any)?;
            text::fill_bytes(array, |row| array.value(row), rows, cells, scratch)
        }
        ArrowType::LargeBinary => {
            let array = cast::<LargeBinaryArray>(any)?;
            text::fill_bytes(array, |row| array.value(row), rows, cells, scratch)
        }
        other => Err(wrong_type(other)),
    }
}

fn cast<T: 'static>(array: &dyn std::any::Any) -> Result<&T> {
    array.downcast_ref().ok_or_else(|| Error::internal("result column is not of the type it says"))
}

fn wrong_type(found: &ArrowType) -> Error {
    Error::internal(format!("result column has an unexpected type: {found}"))
}
