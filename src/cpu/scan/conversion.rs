//! From a file's column to the column as it is declared.
//!
//! [`Conversion::plan`] decides by types alone, before anything is read; [`Conversion::apply`] runs on
//! decoded arrays and checks what only values tell: NULLs, lengths, digits, ranges. The reader gives integers of few bits
//! and decimals in numbers and in byte arrays as they are stored (`stored_schema.rs` of the files says why).
//!
//! Invariants: a conversion keeps every value or is an error. It never decreases when its input
//! increases, except where [`Conversion::keeps_order`] says otherwise, so bounds of a column convert to
//! bounds of the result.

use std::{ops::RangeInclusive, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Decimal256Array,
        GenericListArray, ListArray, OffsetSizeTrait, PrimitiveArray, StringViewBuilder, StructArray,
        new_null_array,
    },
    buffer::{NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::{CastOptions, cast_with_options, max, min, nullif},
    datatypes::{
        DECIMAL128_MAX_PRECISION, DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, Field,
        FieldRef, Fields, Int32Type, Int64Type, Time32MillisecondType, Time64MicrosecondType,
        Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, i256,
    },
};
use pystachio_files::{
    DATE_DAYS, DATE_INFINITIES, DAY_US, FieldPlace, FileFooter, FileType, NestedForm, Storage,
    TIMESTAMP_INFINITIES, TIMESTAMP_US_MIN, ValueFault, ValuePlace, corrupt_file,
};
use pystachio_plan::{ColumnContent, DataType, Error, ErrorKind, RecordField, Result, ScanColumn};

use super::{json::JsonShape, pages::PageMemory};
use crate::error::from_arrow;
use ArrowType as A;

/// How one file's column becomes the declared one.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    form: Form,
    data_type: DataType,
    not_null: bool,
    length_max: Option<u32>,
    trim_blanks: bool,
}

/// What the file's column is.
#[derive(Clone, Debug)]
enum Form {
    /// Single values, or lists of them.
    Plain {
        /// The column's type by its annotation. Where the reader gives the physical values instead, they are checked first.
        file_type: ArrowType,
        /// The stored numbers that the annotation allows; absent where it allows all.
        allowed: Option<RangeInclusive<i128>>,
        step: Step,
    },
    /// Nested values that become JSON text.
    Json(JsonShape),
    /// Structs that become composite values, by the fields of these.
    Record(Vec<FieldForm>),
    /// Lists of structs, or maps, whose items or entries become composite values.
    Records(Box<Conversion>),
    /// Lists of structs, or maps, of which one field is read: that of items, which is so many structs deep.
    Elements { records: Box<Conversion>, depth: usize },
}

/// How the field of a composite value is found in a struct.
#[derive(Clone, Debug)]
struct FieldForm {
    /// The field's name in the file, and its conversion; a field that the file lacks is NULL.
    stored: Option<(String, Conversion)>,
    /// Its name, with those of column and fields around it, for messages.
    shown: String,
    data_type: ArrowType,
}

/// A conversion with the leaves that it reads.
pub(crate) struct PlannedConversion {
    pub(crate) conversion: Conversion,
    /// Leaves of the file, ascending.
    pub(crate) leaves: Vec<usize>,
}

/// A type of a file that can't be read as the declared one.
pub(crate) struct Mismatch {
    /// The names on the way from the column to it.
    pub(crate) path: Vec<String>,
    /// The declared type.
    pub(crate) declared: DataType,
    /// The file's, where it is not the column's.
    pub(crate) words: Option<String>,
}

/// How a column is declared, or a field of a composite type.
#[derive(Clone, Copy)]
struct Declared<'a> {
    data_type: &'a DataType,
    length_max: Option<u32>,
    trim_blanks: bool,
    is_json: bool,
}

/// Leaves of a file's column, with their numbers.
type Leaves<'a> = &'a [(usize, FileType)];

/// Plans the conversions of a column and of its fields and items, and notes the leaves that these read.
struct Planner {
    /// What the column consists of, where types of Arrow do not tell. Fields of composite values are as they tell.
    form: Option<NestedForm>,
    path: Vec<String>,
    leaves: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
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
    /// Days to microseconds.
    Days,
    /// A list's items.
    Items(Box<Step>),
}

impl Conversion {
    fn of(form: Form, declared: Declared<'_>) -> Self {
        let Declared { data_type, length_max, trim_blanks, is_json: _ } = declared;
        Self { form, data_type: data_type.clone(), not_null: false, length_max, trim_blanks }
    }

    /// The conversion from a file's field to a declared column.
    ///
    /// `form`: as of [`pystachio_files::TableFile::nested_form`].
    ///
    /// # Errors
    ///
    /// The file's type can't be read as the declared one.
    pub(crate) fn plan(
        footer: &FileFooter,
        place: FieldPlace,
        column: &ScanColumn,
        form: Option<&NestedForm>,
    ) -> std::result::Result<PlannedConversion, Mismatch> {
        let field = footer.field(place);
        let leaves: Vec<_> = footer.leaves_of(place).zip(footer.leaf_types(place)).collect();
        let declared = Declared {
            data_type: &column.data_type,
            length_max: column.length_max,
            trim_blanks: column.trim_blanks,
            is_json: column.content == ColumnContent::Json,
        };
        let form = form.cloned();
        let mut planner = Planner { form, path: vec![column.name.clone()], leaves: Vec::new() };
        let read_type = column.read_type();
        let mut conversion = match column.within.len() {
            depth if depth > 0 && matches!(column.data_type, DataType::List(_)) => {
                let of_records =
                    Declared { data_type: &read_type, length_max: None, trim_blanks: false, ..declared };
                let records = Box::new(planner.plan(field.data_type(), &leaves, of_records)?);
                let whole = Declared { length_max: None, trim_blanks: false, ..declared };
                Conversion::of(Form::Elements { records, depth }, whole)
            }
            _ => planner.plan(field.data_type(), &leaves, declared)?,
        };
        conversion.not_null = column.not_null && field.is_nullable();
        let mut leaves = planner.leaves;
        if leaves.is_empty() {
            // Whether the whole is NULL, any leaf tells.
            leaves.extend(footer.leaves_of(place).next());
        }
        Ok(PlannedConversion { conversion, leaves })
    }

    /// Whether bounds of the file's column are bounds of the result, and every value lies within them.
    pub(crate) fn keeps_order(&self) -> bool {
        // Statistics leave NaN out; a blank sorts above control characters.
        matches!(self.form, Form::Plain { .. })
            && !self.trim_blanks
            && !self.data_type.is_float()
            && !self.data_type.is_nested()
            && self.data_type != DataType::Interval
    }

    /// Bounds taken from statistics, converted without the checks of values.
    pub(crate) fn apply_to_bounds(&self, array: &ArrayRef) -> Option<ArrayRef> {
        match &self.form {
            Form::Plain { step, .. } => step.apply(array, &self.data_type).ok(),
            Form::Json(_) | Form::Record(_) | Form::Records(_) | Form::Elements { .. } => None,
        }
    }

    /// The declared column's values.
    ///
    /// # Errors
    ///
    /// `NullNotAllowed`, `StringTooLong`, `NumericOutOfRange`, `DatetimeOutOfRange`, `FileCorrupt`, each
    /// naming column and file; `OutOfMemory` where texts are made.
    pub(crate) fn apply(
        &self,
        array: &ArrayRef,
        place: ValuePlace<'_>,
        memory: &PageMemory,
    ) -> Result<ArrayRef> {
        if self.not_null && array.null_count() > 0 {
            return Err(ValueFault::Null.at(place));
        }
        let mut converted = match &self.form {
            Form::Json(shape) => return shape.texts(array, place, memory),
            Form::Record(fields) => return self.record(fields, array, place, memory),
            Form::Records(item) => return self.records(item, array, place, memory),
            Form::Elements { records, depth } => {
                return field_of_items(&records.apply(array, place, memory)?, *depth);
            }
            Form::Plain { file_type, allowed, step } => annotated(array, file_type, allowed.as_ref())
                .and_then(|array| step.apply(&array, &self.data_type))
                .map_err(|failure| failure.into_error(place, &self.data_type))?,
        };
        if self.trim_blanks && converted.data_type() == &ArrowType::Utf8View {
            converted = trim_blanks(&converted);
        }
        if let Some(length_max) = self.length_max {
            check_length(&converted, length_max, self.trim_blanks, place)?;
        }
        Ok(converted)
    }

    /// Composite values of structs. NULL stays apart from a struct of NULLs.
    fn record(
        &self,
        fields: &[FieldForm],
        array: &ArrayRef,
        place: ValuePlace<'_>,
        memory: &PageMemory,
    ) -> Result<ArrayRef> {
        let unexpected = || Error::internal("a composite value is read from something else than a struct");
        let (record, A::Struct(declared)) =
            (array.as_struct_opt().ok_or_else(unexpected)?, self.data_type.to_arrow())
        else {
            return Err(unexpected());
        };
        let values = fields.iter().map(|FieldForm { stored, shown, data_type }| {
            let Some((name, conversion)) = stored else { return Ok(new_null_array(data_type, record.len())) };
            // Other columns may read other fields of the same struct.
            let values = record.column_by_name(name).ok_or_else(unexpected)?;
            let values = conversion.apply(values, ValuePlace { column: shown, ..place }, memory)?;
            match values.data_type() == data_type {
                true => Ok(values),
                false => {
                    cast(&values, data_type).map_err(|failure| failure.into_error(place, &self.data_type))
                }
            }
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let record =
            StructArray::try_new_with_length(declared, values, record.nulls().cloned(), record.len());
        record.map(|record| Arc::new(record) as ArrayRef).map_err(|error| from_arrow(&error))
    }

    /// Arrays of composite values.
    fn records(
        &self,
        item: &Conversion,
        array: &ArrayRef,
        place: ValuePlace<'_>,
        memory: &PageMemory,
    ) -> Result<ArrayRef> {
        let convert = |items: &ArrayRef| item.apply(items, place, memory).map_err(Failure::Other);
        let converted = match array.data_type() {
            A::LargeList(_) => {
                let list = array.as_list::<i64>();
                list_of(list.offsets(), list.nulls(), convert(list.values()))
            }
            A::Map(..) => {
                let map = array.as_map();
                let entries: ArrayRef = Arc::new(map.entries().clone());
                list_of(map.offsets(), map.nulls(), convert(&entries))
            }
            _ => {
                let list = array.as_list::<i32>();
                list_of(list.offsets(), list.nulls(), convert(list.values()))
            }
        };
        converted.map_err(|failure| failure.into_error(place, &self.data_type))
    }
}

/// Lists of structs with one field as lists of that field, which is so many structs deep. It is NULL where a struct is.
fn field_of_items(lists: &ArrayRef, depth: usize) -> Result<ArrayRef> {
    let unexpected = || Error::internal("a field of elements is read from something else than structs");
    let lists = lists.as_list_opt::<i32>().ok_or_else(unexpected)?;
    let mut items = lists.values().clone();
    for _ in 0..depth {
        let record = items.as_struct_opt().ok_or_else(unexpected)?;
        let field = record.columns().first().ok_or_else(unexpected)?;
        items = match record.nulls() {
            Some(nulls) if nulls.null_count() > 0 => {
                let is_null = BooleanArray::new(!nulls.inner(), None);
                nullif(field, &is_null).map_err(|error| from_arrow(&error))?
            }
            _ => field.clone(),
        };
    }
    let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let lists = ListArray::try_new(item, lists.offsets().clone(), items, lists.nulls().cloned());
    lists.map(|lists| Arc::new(lists) as ArrayRef).map_err(|error| from_arrow(&error))
}

impl Planner {
    fn plan(
        &mut self,
        file: &ArrowType,
        leaves: Leaves<'_>,
        declared: Declared<'_>,
    ) -> std::result::Result<Conversion, Mismatch> {
        let form = match (file, declared.data_type) {
            (file, DataType::Text) if file.is_nested() && declared.is_json => {
                let types = leaves.iter().map(|(_, file_type)| file_type.clone()).collect();
                let form = self.form.as_ref().filter(|_| self.path.len() == 1);
                let shape = JsonShape::plan(file, types, form);
                Form::Json(shape.ok_or_else(|| self.mismatch(file, leaves, declared.data_type))?)
            }
            (A::Struct(stored), DataType::Record(fields)) => {
                return Ok(Conversion::of(Form::Record(self.fields(stored, leaves, fields)?), declared));
            }
            (A::List(entry) | A::LargeList(entry) | A::Map(entry, _), DataType::List(item))
                if matches!(**item, DataType::Record(_)) =>
            {
                let item = Declared { data_type: item, ..declared };
                let item = self.plan(entry.data_type(), leaves, item)?;
                return Ok(Conversion::of(Form::Records(Box::new(item)), declared));
            }
            (file, data_type) => {
                let step = match (leaves, data_type) {
                    ([(_, FileType { storage: Some(Storage::Int96), .. })], DataType::TimestampTz) => {
                        Step::plan_instant(file)
                    }
                    _ => Step::plan(file, data_type),
                };
                Form::Plain {
                    file_type: file.clone(),
                    allowed: leaves.first().and_then(|(_, leaf)| leaf.allowed.clone()),
                    step: step.ok_or_else(|| self.mismatch(file, leaves, data_type))?,
                }
            }
        };
        self.leaves.extend(leaves.iter().map(|(leaf, _)| leaf));
        Ok(Conversion::of(form, declared))
    }

    /// The fields of a composite type among those of a struct.
    fn fields(
        &mut self,
        stored: &Fields,
        leaves: Leaves<'_>,
        fields: &[RecordField],
    ) -> std::result::Result<Vec<FieldForm>, Mismatch> {
        // Where the leaves of each begin, and where they end.
        let mut ends = vec![0];
        for field in stored {
            ends.push(ends[ends.len() - 1] + leaf_count(field.data_type()));
        }
        let mut forms = Vec::with_capacity(fields.len());
        for RecordField { name, data_type, length_max, trim_blanks, is_json } in fields {
            self.path.push(name.clone());
            let declared =
                Declared { data_type, length_max: *length_max, trim_blanks: *trim_blanks, is_json: *is_json };
            let found = find_field(stored, name).map(|place| (&stored[place], ends[place]..ends[place + 1]));
            let stored = match found {
                Some((field, range)) => match leaves.get(range) {
                    Some([(_, FileType { is_null: true, .. })]) | None => None,
                    Some(leaves) => {
                        Some((field.name().clone(), self.plan(field.data_type(), leaves, declared)?))
                    }
                },
                None => None,
            };
            forms.push(FieldForm { stored, shown: self.path.join("."), data_type: data_type.to_arrow() });
            self.path.pop();
        }
        self.leaves.sort_unstable();
        Ok(forms)
    }

    fn mismatch(&self, file: &ArrowType, leaves: Leaves<'_>, declared: &DataType) -> Mismatch {
        let words = match (file, leaves) {
            _ if self.path.len() == 1 => None,
            (A::Struct(_), _) => Some("struct".to_owned()),
            (A::List(_) | A::LargeList(_), _) => Some("list".to_owned()),
            (A::Map(..), _) => Some("map".to_owned()),
            (_, leaves) => leaves.first().map(|(_, leaf)| leaf.words.clone()),
        };
        Mismatch { path: self.path.clone(), declared: declared.clone(), words }
    }
}

/// The place of a field by its name, as of columns: exactly, and then without regard to case.
fn find_field(fields: &Fields, name: &str) -> Option<usize> {
    fields.iter().position(|field| field.name() == name).or_else(|| {
        let name = name.to_lowercase();
        fields.iter().position(|field| field.name().to_lowercase() == name)
    })
}

/// The leaves below an Arrow type of the reader.
pub(super) fn leaf_count(data_type: &ArrowType) -> usize {
    match data_type {
        A::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        A::List(item) | A::LargeList(item) | A::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}

/// Why values do not convert.
pub(super) enum Failure {
    Range,
    Utf8,
    /// A decimal without bytes.
    NoBytes,
    Other(Error),
}

impl Failure {
    pub(super) fn into_error(self, place: ValuePlace<'_>, data_type: &DataType) -> Error {
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
    pub(super) fn plan(file: &ArrowType, declared: &DataType) -> Option<Self> {
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
            (DataType::Timestamp, A::Date32) => Self::Days,
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

    /// INT96, which says no zone, as times of UTC: writers of other times are rare.
    fn plan_instant(file: &ArrowType) -> Option<Self> {
        match file {
            ArrowType::Timestamp(TimeUnit::Microsecond, None) => Some(Self::Cast),
            ArrowType::Timestamp(TimeUnit::Nanosecond, None) => Some(Self::Nanoseconds),
            _ => None,
        }
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
        // A file may store few digits in many bytes, which are read as the wider type. Of more digits than 128 bits hold there is no
        // other check.
        let same = *file == DataType::Decimal { precision, scale }.to_arrow()
            && precision <= DECIMAL128_MAX_PRECISION;
        Some(if same { Self::Same } else { Self::Rescale { digits, checked } })
    }

    pub(super) fn apply(
        &self,
        array: &ArrayRef,
        declared: &DataType,
    ) -> std::result::Result<ArrayRef, Failure> {
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
            Self::Days => {
                let days = in_range(array, &DataType::Date)?.unwrap_or_else(|| array.clone());
                let microseconds = days
                    .as_primitive::<Date32Type>()
                    .try_unary::<_, TimestampMicrosecondType, Failure>(|days| match days {
                        // As it is stored.
                        i32::MIN => Ok(-i64::MAX),
                        i32::MAX => Ok(i64::MAX),
                        days => i64::from(days).checked_mul(DAY_US).ok_or(Failure::Range),
                    })?;
                Ok(Arc::new(microseconds.with_data_type(declared.to_arrow())))
            }
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
pub(super) fn annotated(
    array: &ArrayRef,
    file_type: &ArrowType,
    allowed: Option<&RangeInclusive<i128>>,
) -> std::result::Result<ArrayRef, Failure> {
    let Some(allowed) = allowed else { return Ok(array.clone()) };
    match (array.data_type(), file_type) {
        (A::List(_), A::List(item)) => annotated_items(array.as_list::<i32>(), item, allowed),
        (A::LargeList(_), A::LargeList(item)) => annotated_items(array.as_list::<i64>(), item, allowed),
        (A::Int32, A::Decimal128(..)) => {
            annotated_decimals(array.as_primitive::<Int32Type>(), file_type, allowed)
        }
        (A::Int64, A::Decimal128(..)) => {
            annotated_decimals(array.as_primitive::<Int64Type>(), file_type, allowed)
        }
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

/// Decimals that are stored as numbers without their point.
fn annotated_decimals<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    file_type: &ArrowType,
    allowed: &RangeInclusive<i128>,
) -> std::result::Result<ArrayRef, Failure>
where
    T::Native: PartialOrd + Into<i64> + Into<i128> + TryFrom<i128>,
{
    // The bits of all magnitudes, less one of negative numbers: quicker than looking for the least and the greatest.
    let bits = array.values().iter().fold(0, |bits, value| {
        let value: i64 = (*value).into();
        bits | (value ^ (value >> (i64::BITS - 1)))
    });
    let is_surely_allowed = -*allowed.end() >= *allowed.start() && i128::from(bits) < *allowed.end();
    let bound = |value: i128| T::Native::try_from(value).ok();
    // Bounds that the stored type doesn't reach hold of all its values.
    let is_allowed = || {
        bound(*allowed.start()).is_none_or(|least| min(array).is_none_or(|value| value >= least))
            && bound(*allowed.end()).is_none_or(|greatest| max(array).is_none_or(|value| value <= greatest))
    };
    if !is_surely_allowed && !is_allowed() {
        return Err(Failure::Range);
    }
    let decimals: Decimal128Array = array.unary(Into::into);
    Ok(Arc::new(decimals.with_data_type(file_type.clone())))
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
    list_of(list.offsets(), list.nulls(), Ok(values))
}

/// A list of items, with offsets of 32 bits.
fn list_of<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    nulls: Option<&NullBuffer>,
    items: std::result::Result<ArrayRef, Failure>,
) -> std::result::Result<ArrayRef, Failure> {
    let offsets = offsets
        .iter()
        .map(|offset| i32::try_from(offset.as_usize()))
        .collect::<std::result::Result<Vec<i32>, _>>()
        .map_err(|_| {
            Failure::Other(Error::new(ErrorKind::NotSupported, "a batch of lists has more than 2^31 items"))
        })?;
    let items = items?;
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    ListArray::try_new(field, offsets, items, nulls.cloned())
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
