//! Columns and constants as slices, and the loops over them.
//!
//! Invariants: a loop computes every slot, NULL slots included, so that it has no branch on validity; a
//! slot that failed is looked at again only if it is not NULL. The compute functions therefore must not
//! panic on any input.

use std::{borrow::Cow, sync::Arc};

use crate::datafusion::{error::DataFusionError, logical_expr::ColumnarValue};
use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewArray, PrimitiveArray, StringViewArray},
    buffer::{BooleanBuffer, NullBuffer, ScalarBuffer},
    compute::cast,
    datatypes::{ArrowNativeType, DataType as ArrowType, TimestampMicrosecondType},
};
use pystachio_plan::{DataType, Error, Result};

use crate::error::{from_arrow, from_datafusion};

/// The values of one argument.
pub(super) enum Lanes<'a, T: Copy> {
    /// One value a row.
    Column {
        /// `[rows]`; what a NULL slot holds is undefined.
        values: Cow<'a, [T]>,
        /// Which slots are not NULL; absent if all.
        nulls: Option<NullBuffer>,
    },
    /// The same value, or NULL, in every row.
    Constant(Option<T>),
}

/// Values and which of them are not NULL.
pub(super) struct Nullable<T> {
    pub(super) values: Vec<T>,
    pub(super) nulls: Option<NullBuffer>,
}

impl<'a, T: ArrowNativeType> Lanes<'a, T> {
    /// The values of an argument whose Arrow type is stored as `P`.
    pub(super) fn primitive<P: ArrowPrimitiveType<Native = T>>(argument: &'a ColumnarValue) -> Result<Self> {
        match argument {
            ColumnarValue::Array(array) => {
                let array = primitive_array::<P>(array)?;
                let values: &'a [T] = array.values();
                Ok(Self::Column { values: Cow::Borrowed(values), nulls: array.nulls().cloned() })
            }
            ColumnarValue::Scalar(scalar) => {
                let array = scalar.to_array().map_err(|error| internal(&error))?;
                let array = primitive_array::<P>(&array)?;
                Ok(Self::Constant(array.is_valid(0).then(|| array.value(0))))
            }
        }
    }
}

impl<T: Copy> Lanes<'_, T> {
    /// The value of a row, NULL or undefined slots included.
    pub(super) fn get(&self, row: usize) -> Option<T> {
        match self {
            Self::Column { values, nulls } => {
                let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                if valid { values.get(row).copied() } else { None }
            }
            Self::Constant(value) => *value,
        }
    }

    /// The same lanes with every value converted.
    pub(super) fn convert<U: Copy>(&self, convert: impl Fn(T) -> U) -> Lanes<'static, U> {
        match self {
            Self::Column { values, nulls } => Lanes::Column {
                values: Cow::Owned(values.iter().map(|value| convert(*value)).collect()),
                nulls: nulls.clone(),
            },
            Self::Constant(value) => Lanes::Constant(value.map(convert)),
        }
    }

    fn is_null_constant(&self) -> bool {
        matches!(self, Self::Constant(None))
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Self::Column { nulls, .. } => nulls.as_ref(),
            Self::Constant(_) => None,
        }
    }
}

impl<T: Copy + Default> Nullable<T> {
    /// NULL in every row.
    pub(super) fn null(rows: usize) -> Self {
        Self { values: vec![T::default(); rows], nulls: Some(NullBuffer::new_null(rows)) }
    }
}

impl<T: ArrowNativeType> Nullable<T> {
    /// As an Arrow array of type `P`.
    pub(super) fn into_array<P: ArrowPrimitiveType<Native = T>>(self) -> PrimitiveArray<P> {
        PrimitiveArray::new(ScalarBuffer::from(self.values), self.nulls)
    }
}

impl<T: Copy> Nullable<T> {
    /// As lanes, for a function of the next step.
    pub(super) fn into_lanes(self) -> Lanes<'static, T> {
        Lanes::Column { values: self.values.into(), nulls: self.nulls }
    }
}

/// Timestamps as an array of a timestamp type, with time zone or without.
pub(super) fn timestamp_array(values: Nullable<i64>, result: &DataType) -> ArrayRef {
    let array = values.into_array::<TimestampMicrosecondType>();
    match result {
        DataType::TimestampTz => Arc::new(array.with_timezone("UTC")),
        _ => Arc::new(array),
    }
}

/// A value, or a default and that it is missing.
pub(super) fn checked<T: Default>(value: Option<T>) -> (T, bool) {
    match value {
        Some(value) => (value, false),
        None => (T::default(), true),
    }
}

/// One result a row from one argument.
///
/// # Errors
///
/// What `fault` says of the first row that is not NULL and for which `compute` gave true.
pub(super) fn map_lanes<A, R, E>(
    a: &Lanes<'_, A>,
    rows: usize,
    compute: impl Fn(A) -> (R, bool),
    fault: impl Fn(A) -> E,
) -> std::result::Result<Nullable<R>, E>
where
    A: Copy,
    R: Copy + Default,
{
    zip_lanes(a, &Lanes::Constant(Some(())), rows, |a, ()| compute(a), |a, ()| fault(a))
}

/// One result a row from two arguments. Strict.
///
/// # Errors
///
/// What `fault` says of the first row in which nothing is NULL and for which `compute` gave true.
pub(super) fn zip_lanes<A, B, R, E>(
    a: &Lanes<'_, A>,
    b: &Lanes<'_, B>,
    rows: usize,
    compute: impl Fn(A, B) -> (R, bool),
    fault: impl Fn(A, B) -> E,
) -> std::result::Result<Nullable<R>, E>
where
    A: Copy,
    B: Copy,
    R: Copy + Default,
{
    if a.is_null_constant() || b.is_null_constant() {
        return Ok(Nullable::null(rows));
    }
    let mut failed = false;
    let mut keep = |(result, bad): (R, bool)| {
        failed |= bad;
        result
    };
    let values: Vec<R> = match (a, b) {
        (Lanes::Column { values: a, .. }, Lanes::Column { values: b, .. }) => {
            a.iter().zip(b.iter()).map(|(a, b)| keep(compute(*a, *b))).collect()
        }
        (Lanes::Column { values: a, .. }, Lanes::Constant(Some(b))) => {
            a.iter().map(|a| keep(compute(*a, *b))).collect()
        }
        (Lanes::Constant(Some(a)), Lanes::Column { values: b, .. }) => {
            b.iter().map(|b| keep(compute(*a, *b))).collect()
        }
        (Lanes::Constant(Some(a)), Lanes::Constant(Some(b))) => vec![keep(compute(*a, *b)); rows],
        _ => return Ok(Nullable::null(rows)),
    };
    if failed {
        for row in 0..rows {
            if let (Some(a), Some(b)) = (a.get(row), b.get(row))
                && compute(a, b).1
            {
                return Err(fault(a, b));
            }
        }
    }
    Ok(Nullable { values, nulls: NullBuffer::union(a.nulls(), b.nulls()) })
}

/// One boolean a row from two arguments. Strict.
pub(super) fn test_lanes<A: Copy, B: Copy>(
    a: &Lanes<'_, A>,
    b: &Lanes<'_, B>,
    rows: usize,
    test: impl Fn(A, B) -> bool,
) -> (BooleanBuffer, Option<NullBuffer>) {
    let values = match (a, b) {
        (Lanes::Column { values: a, .. }, Lanes::Column { values: b, .. }) => {
            BooleanBuffer::collect_bool(rows, |row| test(a[row], b[row]))
        }
        (Lanes::Column { values: a, .. }, Lanes::Constant(Some(b))) => {
            BooleanBuffer::collect_bool(rows, |row| test(a[row], *b))
        }
        (Lanes::Constant(Some(a)), Lanes::Column { values: b, .. }) => {
            BooleanBuffer::collect_bool(rows, |row| test(*a, b[row]))
        }
        (Lanes::Constant(Some(a)), Lanes::Constant(Some(b))) => {
            let value = test(*a, *b);
            BooleanBuffer::collect_bool(rows, |_| value)
        }
        _ => return (BooleanBuffer::new_unset(rows), Some(NullBuffer::new_null(rows))),
    };
    (values, NullBuffer::union(a.nulls(), b.nulls()))
}

/// The values of a text argument.
pub(super) enum TextLanes {
    /// One value a row.
    Column(StringViewArray),
    /// The same value, or NULL, in every row.
    Constant(Option<String>),
}

impl TextLanes {
    /// The values of an argument of any of Arrow's text types.
    pub(super) fn new(argument: &ColumnarValue) -> Result<Self> {
        match argument {
            ColumnarValue::Array(array) => Ok(Self::Column(text_array(array)?)),
            ColumnarValue::Scalar(scalar) => match scalar.try_as_str() {
                Some(value) => Ok(Self::Constant(value.map(str::to_owned))),
                None if scalar.is_null() => Ok(Self::Constant(None)),
                None => Err(Error::internal(format!("a text was expected, not {scalar:?}"))),
            },
        }
    }

    /// The value of a row.
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Self::Column(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Constant(value) => value.as_deref(),
        }
    }
}

/// The values of an argument of bytes, or of text as bytes.
pub(super) struct ByteLanes {
    array: BinaryViewArray,
    /// Every row has the first value.
    is_constant: bool,
}

impl ByteLanes {
    /// The values of an argument of any of Arrow's types of bytes and text.
    pub(super) fn new(argument: &ColumnarValue) -> Result<Self> {
        let is_constant = matches!(argument, ColumnarValue::Scalar(_));
        let array = match argument {
            ColumnarValue::Array(array) => Arc::clone(array),
            ColumnarValue::Scalar(scalar) => scalar.to_array().map_err(|error| internal(&error))?,
        };
        let array = cast(&array, &ArrowType::BinaryView).map_err(|error| from_arrow(&error))?;
        let array = array.as_binary_view_opt().cloned();
        let array = array.ok_or_else(|| Error::internal("bytes were expected"))?;
        Ok(Self { array, is_constant })
    }

    /// The value of a row.
    pub(super) fn get(&self, row: usize) -> Option<&[u8]> {
        let row = if self.is_constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// The array as a view array; other text types are converted.
pub(super) fn text_array(array: &ArrayRef) -> Result<StringViewArray> {
    if let Some(array) = array.as_string_view_opt() {
        return Ok(array.clone());
    }
    let array = cast(array, &ArrowType::Utf8View).map_err(|error| from_arrow(&error))?;
    array.as_string_view_opt().cloned().ok_or_else(|| Error::internal("a text was expected"))
}

fn primitive_array<P: ArrowPrimitiveType>(array: &ArrayRef) -> Result<&PrimitiveArray<P>> {
    array.as_primitive_opt::<P>().ok_or_else(|| {
        Error::internal(format!("an array of {} was expected, not of {}", P::DATA_TYPE, array.data_type()))
    })
}

/// An error of DataFusion inside a function.
pub(super) fn internal(error: &DataFusionError) -> Error {
    from_datafusion(error)
}
