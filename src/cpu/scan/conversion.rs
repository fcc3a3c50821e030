//! From a file's column to the column as it is declared.
//!
//! [`Conversion::plan`] decides by types alone, before anything is read; [`Conversion::apply`] runs on
//! decoded arrays and checks what only values tell: NULLs, lengths, digits, ranges. The reader gives integers of few bits
//! and decimals in byte arrays as they are stored, since it would cut them off.
//!
//! Invariants: a conversion keeps every value or is an error. It never decreases when its input
//! increases, except where [`Conversion::keeps_order`] says otherwise, so bounds of a column convert to
//! bounds of the result.

use std::{ops::RangeInclusive, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Decimal256Array, GenericListArray,
        ListArray, OffsetSizeTrait, PrimitiveArray, StringViewBuilder,
    },
    buffer::{OffsetBuffer, ScalarBuffer},
    compute::{CastOptions, cast_with_options, max, min},
    datatypes::{
        DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, Field, FieldRef, Int32Type,
        Time32MillisecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, i256,
    },
};
use pystachio_files::{
    DATE_DAYS, DATE_INFINITIES, DAY_US, TIMESTAMP_INFINITIES, TIMESTAMP_US_MIN, ValueFault, ValuePlace,
    corrupt_file,
};
use pystachio_plan::{DataType, Error, ErrorKind, Result, ScanColumn};

use crate::error::from_arrow;

/// How one file's column becomes the declared one.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    /// The column's type by its annotation. Where the reader gives the physical values instead, they are checked first.
    file_type: ArrowType,
    /// The stored numbers that the annotation allows; absent where it allows all.
    allowed: Option<RangeInclusive<i128>>,
    step: Step,
    data_type: DataType,
    not_null: bool,
    length_max: Option<u32>,
    trim_blanks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The array as it is.
    Same,
    /// Arrow's cast, which loses nothing between these types.
    Cast,
    /// A decimal to more digits after the point; `checked` where the value might have too many before it.
    Rescale { digits: u8, checked: bool },
    /// Bytes that must be UTF-8.
    Utf8,
    /// Milliseconds to microseconds.
    Milliseconds,
    /// Nanoseconds to microseconds, rounded down.
    Nanoseconds,
    /// A list's items.
    Items(Box<Step>),
}

impl Conversion {
    /// The conversion from a file's field, and the stored numbers that it allows, to a declared column; `None` if the
    /// file's type can't be read as the declared one.
    pub(crate) fn plan(
        field: &Field,
        allowed: Option<RangeInclusive<i128>>,
        column: &ScanColumn,
    ) -> Option<Self> {
        Some(Self {
            file_type: field.data_type().clone(),
            allowed,
            step: Step::plan(field.data_type(), &column.data_type)?,
            data_type: column.data_type.clone(),
            not_null: column.not_null && field.is_nullable(),
            length_max: column.length_max,
            trim_blanks: column.trim_blanks,
        })
    }

    /// Whether bounds of the file's column are bounds of the result, and every value lies within them.
    pub(crate) fn keeps_order(&self) -> bool {
        // Statistics leave NaN out; a blank sorts above control characters.
        !self.trim_blanks
            && !self.data_type.is_float()
            && !matches!(self.data_type, DataType::List(_) | DataType::Interval)
    }

    /// Bounds taken from statistics, converted without the checks of values.
    pub(crate) fn apply_to_bounds(&self, array: &ArrayRef) -> Option<ArrayRef> {
        self.step.apply(array, &self.data_type).ok()
    }

    /// The declared column's values.
    ///
    /// # Errors
    ///
    /// `NullNotAllowed`, `StringTooLong`, `NumericOutOfRange`, `DatetimeOutOfRange`, `FileCorrupt`, each
    /// naming column and file.
    pub(crate) fn apply(&self, array: &ArrayRef, place: ValuePlace<'_>) -> Result<ArrayRef> {
        if self.not_null && array.null_count() > 0 {
            return Err(ValueFault::Null.at(place));
        }
        let mut converted = annotated(array, &self.file_type, self.allowed.as_ref())
            .and_then(|array| self.step.apply(&array, &self.data_type))
            .map_err(|failure| failure.into_error(place, &self.data_type))?;
        if self.trim_blanks && converted.data_type() == &ArrowType::Utf8View {
            converted = trim_blanks(&converted);
        }
        if let Some(length_max) = self.length_max {
            check_length(&converted, length_max, self.trim_blanks, place)?;
        }
        Ok(converted)
    }
}

/// Why values do not convert.
enum Failure {
    Range,
    Utf8,
    /// A decimal without bytes.
    NoBytes,
    Other(Error),
}

impl Failure {
    fn into_error(self, place: ValuePlace<'_>, data_type: &DataType) -> Error {
        match self {
            Self::Range => ValueFault::OutOfRange(data_type).at(place),
            Self::Utf8 => ValueFault::NotUtf8.at(place),
            Self::NoBytes => {
                corrupt_file(place.file, &format!("column \"{}\": a decimal has no bytes", place.column))
            }
            Self::Other(error) => error,
        }
    }
}

impl Step {
    fn plan(file: &ArrowType, declared: &DataType) -> Option<Self> {
        use ArrowType as A;
        let step = match (declared, file) {
            (DataType::Bool, A::Boolean)
            | (DataType::Int16, A::Int16)
            | (DataType::Int32, A::Int32)
            | (DataType::Int64, A::Int64)
            | (DataType::Float32, A::Float32)
            | (DataType::Float64, A::Float64)
            | (DataType::Date, A::Date32)
            | (DataType::Time, A::Time64(TimeUnit::Microsecond))
            | (DataType::Timestamp, A::Timestamp(TimeUnit::Microsecond, None))
            | (DataType::Text, A::Utf8View)
            | (DataType::Bytea, A::BinaryView)
            | (DataType::Uuid, A::FixedSizeBinary(16)) => Self::Same,
            (DataType::Int16, A::Int8 | A::UInt8)
            | (DataType::Int32, A::Int8 | A::UInt8 | A::Int16 | A::UInt16)
            | (DataType::Int64, A::Int8 | A::UInt8 | A::Int16 | A::UInt16 | A::Int32 | A::UInt32)
            | (DataType::Float32, A::Float16)
            | (DataType::Float64, A::Float16 | A::Float32)
            | (DataType::Bytea, A::Binary | A::LargeBinary | A::FixedSizeBinary(_))
            | (DataType::Text, A::Utf8 | A::LargeUtf8)
            | (DataType::TimestampTz, A::Timestamp(TimeUnit::Microsecond, Some(_))) => Self::Cast,
            (DataType::Text, A::BinaryView) => Self::Utf8,
            (DataType::Time, A::Time32(TimeUnit::Millisecond)) => Self::Milliseconds,
            (DataType::Time, A::Time64(TimeUnit::Nanosecond)) => Self::Nanoseconds,
            (DataType::Timestamp, A::Timestamp(unit, None))
            | (DataType::TimestampTz, A::Timestamp(unit, Some(_))) => match unit {
                // No Parquet type has seconds.
                TimeUnit::Second => return None,
                TimeUnit::Millisecond => Self::Milliseconds,
                TimeUnit::Microsecond => Self::Same,
                TimeUnit::Nanosecond => Self::Nanoseconds,
            },
            (DataType::Decimal { precision, scale }, file) => {
                return Self::plan_decimal(file, *precision, *scale);
            }
            (DataType::List(item), A::List(field) | A::LargeList(field)) => {
                Self::Items(Box::new(Self::plan(field.data_type(), item)?))
            }
            _ => return None,
        };
        Some(step)
    }

    fn plan_decimal(file: &ArrowType, precision: u8, scale: u8) -> Option<Self> {
        let (file_precision, file_scale) = match file {
            ArrowType::Decimal128(precision, scale) | ArrowType::Decimal256(precision, scale) => {
                (*precision, u8::try_from(*scale).ok()?)
            }
            ArrowType::Int8 | ArrowType::UInt8 => (3, 0),
            ArrowType::Int16 | ArrowType::UInt16 => (5, 0),
            ArrowType::Int32 | ArrowType::UInt32 => (10, 0),
            ArrowType::Int64 => (19, 0),
            ArrowType::UInt64 => (20, 0),
            _ => return None,
        };
        let digits = scale.checked_sub(file_scale)?;
        let checked = file_precision.saturating_sub(file_scale) > precision.saturating_sub(scale);
        // A file may store few digits in many bytes, which are read as the wider type.
        let same = *file == DataType::Decimal { precision, scale }.to_arrow();
        Some(if same { Self::Same } else { Self::Rescale { digits, checked } })
    }

    fn apply(&self, array: &ArrayRef, declared: &DataType) -> std::result::Result<ArrayRef, Failure> {
        let converted = self.convert(array, declared)?;
        Ok(in_range(&converted, declared)?.unwrap_or(converted))
    }

    fn convert(&self, array: &ArrayRef, declared: &DataType) -> std::result::Result<ArrayRef, Failure> {
        match self {
            Self::Same => Ok(array.clone()),
            Self::Cast => cast(array, &declared.to_arrow()),
            Self::Utf8 => cast(array, &ArrowType::Utf8View).map_err(|_| Failure::Utf8),
            Self::Rescale { digits, checked } => rescale(array, declared, *digits, *checked),
            Self::Milliseconds => match array.data_type() {
                ArrowType::Time32(_) => {
                    let values = array.as_primitive::<Time32MillisecondType>();
                    Ok(Arc::new(values.unary::<_, Time64MicrosecondType>(|value| i64::from(value) * 1000)))
                }
                _ => milliseconds_to_microseconds(array, declared),
            },
            Self::Nanoseconds => match array.data_type() {
                ArrowType::Time64(_) => {
                    let values = array.as_primitive::<Time64NanosecondType>();
                    Ok(Arc::new(values.unary::<_, Time64MicrosecondType>(|value| value.div_euclid(1000))))
                }
                _ => {
                    let values = array.as_primitive::<TimestampNanosecondType>();
                    let values = values.unary::<_, TimestampMicrosecondType>(|value| value.div_euclid(1000));
                    Ok(Arc::new(values.with_data_type(declared.to_arrow())))
                }
            },
            Self::Items(step) => {
                let DataType::List(item) = declared else {
                    return Err(Failure::Other(Error::internal("a list is declared as something else")));
                };
                match array.data_type() {
                    ArrowType::LargeList(_) => convert_items(array.as_list::<i64>(), step, item),
                    _ => convert_items(array.as_list::<i32>(), step, item),
                }
            }
        }
    }
}

/// Stored values as the file's annotation means them, of which none may be beyond what it allows.
fn annotated(
    array: &ArrayRef,
    file_type: &ArrowType,
    allowed: Option<&RangeInclusive<i128>>,
) -> std::result::Result<ArrayRef, Failure> {
    use ArrowType as A;
    let Some(allowed) = allowed else { return Ok(array.clone()) };
    match (array.data_type(), file_type) {
        (A::List(_), A::List(item)) => annotated_items(array.as_list::<i32>(), item, allowed),
        (A::LargeList(_), A::LargeList(item)) => annotated_items(array.as_list::<i64>(), item, allowed),
        (A::Int32, _) => {
            let bounds = [*allowed.start(), *allowed.end()].map(i32::try_from);
            let [Ok(least), Ok(greatest)] = bounds else { return cast(array, file_type) };
            match is_within(array.as_primitive::<Int32Type>(), least, greatest) {
                true => cast(array, file_type),
                false => Err(Failure::Range),
            }
        }
        (A::BinaryView, A::Decimal128(..)) => {
            let values = array.as_binary_view().iter();
            let values = values.map(|bytes| bytes.map(decimal_of).transpose());
            let values: Decimal128Array = values.collect::<std::result::Result<_, Failure>>()?;
            annotated(
                &(Arc::new(values.with_data_type(file_type.clone())) as ArrayRef),
                file_type,
                Some(allowed),
            )
        }
        (A::Decimal128(..), _) => {
            match is_within(array.as_primitive::<Decimal128Type>(), *allowed.start(), *allowed.end()) {
                true => Ok(array.clone()),
                false => Err(Failure::Range),
            }
        }
        (A::Decimal256(..), _) => {
            let (least, greatest) = (i256::from(*allowed.start()), i256::from(*allowed.end()));
            match is_within(array.as_primitive::<Decimal256Type>(), least, greatest) {
                true => Ok(array.clone()),
                false => Err(Failure::Range),
            }
        }
        _ => Ok(array.clone()),
    }
}

fn annotated_items<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    allowed: &RangeInclusive<i128>,
) -> std::result::Result<ArrayRef, Failure> {
    let values = annotated(list.values(), item.data_type(), Some(allowed))?;
    GenericListArray::try_new(item.clone(), list.offsets().clone(), values, list.nulls().cloned())
        .map(|list| Arc::new(list) as ArrayRef)
        .map_err(|error| Failure::Other(from_arrow(&error)))
}

/// A big-endian number in two's complement, of any length.
fn decimal_of(bytes: &[u8]) -> std::result::Result<i128, Failure> {
    let fill = if *bytes.first().ok_or(Failure::NoBytes)? >= 0x80 { 0xff } else { 0 };
    let (head, tail) = bytes.split_at(bytes.len().saturating_sub(size_of::<i128>()));
    let mut number = [fill; size_of::<i128>()];
    number[size_of::<i128>() - tail.len()..].copy_from_slice(tail);
    let value = i128::from_be_bytes(number);
    let fits = head.iter().all(|byte| *byte == fill) && (value < 0) == (fill != 0);
    if fits { Ok(value) } else { Err(Failure::Range) }
}

fn cast(array: &ArrayRef, target: &ArrowType) -> std::result::Result<ArrayRef, Failure> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, target, &options).map_err(|error| Failure::Other(from_arrow(&error)))
}

fn milliseconds_to_microseconds(
    array: &ArrayRef,
    declared: &DataType,
) -> std::result::Result<ArrayRef, Failure> {
    let scaled = array
        .as_primitive::<TimestampMillisecondType>()
        .try_unary::<_, TimestampMicrosecondType, Failure>(|value| {
            let infinity = TIMESTAMP_INFINITIES.iter().find(|(stored, _)| *stored == value);
            infinity.map(|(stored, _)| *stored).or(value.checked_mul(1000)).ok_or(Failure::Range)
        })?;
    Ok(Arc::new(scaled.with_data_type(declared.to_arrow())))
}

fn rescale(
    array: &ArrayRef,
    declared: &DataType,
    digits: u8,
    checked: bool,
) -> std::result::Result<ArrayRef, Failure> {
    let DataType::Decimal { precision, scale } = *declared else {
        return Err(Failure::Other(Error::internal("a decimal is declared as something else")));
    };
    // Integers become decimals of scale 0 first.
    let array = match array.data_type() {
        ArrowType::Decimal128(..) | ArrowType::Decimal256(..) => array.clone(),
        _ => cast(array, &ArrowType::Decimal128(20, 0))?,
    };
    match (array.data_type(), declared.to_arrow()) {
        (ArrowType::Decimal128(..), target @ ArrowType::Decimal128(..)) => {
            let factor = 10i128.checked_pow(digits.into()).ok_or(Failure::Range)?;
            let bound = 10i128.checked_pow(precision.into()).ok_or(Failure::Range)?;
            let values: &Decimal128Array = array.as_primitive::<Decimal128Type>();
            let values: Decimal128Array = if digits == 0 && !checked {
                values.clone()
            } else {
                values.try_unary::<_, Decimal128Type, Failure>(|value| {
                    let scaled = value.checked_mul(factor).ok_or(Failure::Range)?;
                    if scaled > -bound && scaled < bound { Ok(scaled) } else { Err(Failure::Range) }
                })?
            };
            Ok(Arc::new(values.with_data_type(target)))
        }
        (ArrowType::Decimal256(_, file_scale), ArrowType::Decimal128(..)) if digits == 0 => {
            let values: &Decimal256Array = array.as_primitive::<Decimal256Type>();
            let bound = 10i128.checked_pow(precision.into()).ok_or(Failure::Range)?;
            debug_assert_eq!(*file_scale, scale as i8);
            let values = values.try_unary::<_, Decimal128Type, Failure>(|value| {
                let value = value.to_i128().ok_or(Failure::Range)?;
                if value > -bound && value < bound { Ok(value) } else { Err(Failure::Range) }
            })?;
            Ok(Arc::new(values.with_data_type(declared.to_arrow())))
        }
        (_, target) => {
            let wide = cast(&array, &ArrowType::Decimal256(76, decimal_scale(&array)))?;
            let factor = i256::from_i128(10).checked_pow(digits.into()).ok_or(Failure::Range)?;
            let bound = i256::from_i128(10).checked_pow(precision.into()).ok_or(Failure::Range)?;
            let values =
                wide.as_primitive::<Decimal256Type>().try_unary::<_, Decimal256Type, Failure>(|value| {
                    let scaled = value.checked_mul(factor).ok_or(Failure::Range)?;
                    if scaled > -bound && scaled < bound { Ok(scaled) } else { Err(Failure::Range) }
                })?;
            let values: ArrayRef = Arc::new(values.with_data_type(ArrowType::Decimal256(76, scale as i8)));
            cast(&values, &target).map_err(|_| Failure::Range)
        }
    }
}

fn decimal_scale(array: &ArrayRef) -> i8 {
    match array.data_type() {
        ArrowType::Decimal128(_, scale) | ArrowType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

fn convert_items<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    step: &Step,
    item: &DataType,
) -> std::result::Result<ArrayRef, Failure> {
    let values = step.apply(list.values(), item)?;
    let values =
        if values.data_type() == &item.to_arrow() { values } else { cast(&values, &item.to_arrow())? };
    let offsets = list
        .offsets()
        .iter()
        .map(|offset| i32::try_from(offset.as_usize()))
        .collect::<std::result::Result<Vec<i32>, _>>()
        .map_err(|_| {
            Failure::Other(Error::new(ErrorKind::NotSupported, "a batch of lists has more than 2^31 items"))
        })?;
    let field = Arc::new(Field::new_list_field(item.to_arrow(), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    ListArray::try_new(field, offsets, values, list.nulls().cloned())
        .map(|list| Arc::new(list) as ArrayRef)
        .map_err(|error| Failure::Other(from_arrow(&error)))
}

fn trim_blanks(array: &ArrayRef) -> ArrayRef {
    let texts = array.as_string_view();
    if !texts.iter().flatten().any(|text| text.ends_with(' ')) {
        return array.clone();
    }
    let mut builder = StringViewBuilder::with_capacity(texts.len());
    for text in texts {
        builder.append_option(text.map(|text| text.trim_end_matches(' ')));
    }
    Arc::new(builder.finish())
}

fn check_length(array: &ArrayRef, length_max: u32, trim_blanks: bool, place: ValuePlace<'_>) -> Result<()> {
    if array.data_type() != &ArrowType::Utf8View {
        return Ok(());
    }
    let texts = array.as_string_view();
    let limit = length_max as usize;
    // A text has at most as many characters as bytes, so only long ones are counted.
    let too_long = texts.iter().flatten().any(|text| text.len() > limit && text.chars().count() > limit);
    if too_long {
        return Err(ValueFault::TooLong { length_max, trim_blanks }.at(place));
    }
    Ok(())
}

/// The values that PostgreSQL has for dates, times and timestamps, where they are not those of the array.
fn in_range(array: &ArrayRef, data_type: &DataType) -> std::result::Result<Option<ArrayRef>, Failure> {
    match data_type {
        DataType::Date => own_values(array.as_primitive::<Date32Type>(), &DATE_DAYS, DATE_INFINITIES),
        DataType::Time => own_values(array.as_primitive::<Time64MicrosecondType>(), &(0..=DAY_US), []),
        DataType::Timestamp | DataType::TimestampTz => own_values(
            array.as_primitive::<TimestampMicrosecondType>(),
            &(TIMESTAMP_US_MIN..=i64::MAX),
            TIMESTAMP_INFINITIES,
        ),
        _ => Ok(None),
    }
}

/// The array with PostgreSQL's infinities in place of stored ones, if it has any.
fn own_values<T: ArrowPrimitiveType, const N: usize>(
    array: &PrimitiveArray<T>,
    range: &RangeInclusive<T::Native>,
    infinities: [(T::Native, T::Native); N],
) -> std::result::Result<Option<ArrayRef>, Failure>
where
    T::Native: PartialOrd,
{
    if is_within(array, *range.start(), *range.end()) {
        return Ok(None);
    }
    let own = array.try_unary::<_, T, Failure>(|value| {
        let infinity = infinities.iter().find(|(stored, _)| *stored == value).map(|(_, own)| *own);
        infinity.or(range.contains(&value).then_some(value)).ok_or(Failure::Range)
    })?;
    Ok(Some(Arc::new(own.with_data_type(array.data_type().clone()))))
}

fn is_within<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, least: T::Native, greatest: T::Native) -> bool
where
    T::Native: PartialOrd,
{
    min(array).is_none_or(|value| value >= least) && max(array).is_none_or(|value| value <= greatest)
}
