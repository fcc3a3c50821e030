//! CASE whose conditions and results are at hand for every row: all are evaluated, and each row takes its own.
//!
//! DataFusion evaluates a result for the rows of its branch alone. It copies what the branches read to batches of their
//! own for that, which costs more than a result that is a column or a constant.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray},
    buffer::{BooleanBuffer, NullBuffer, ScalarBuffer},
    datatypes::{
        ArrowNativeType, DataType as ArrowType, Date32Type, Decimal128Type, Decimal256Type, Float32Type,
        Float64Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit,
        TimestampMicrosecondType,
    },
};
use pystachio_plan::{DataType, Error, Result};

use super::{invocation::Invocation, lanes::Lanes};

/// Whether values of the type can be selected.
pub(super) fn is_selectable(data_type: &DataType) -> bool {
    use DataType::{Date, Decimal, Float32, Float64, Int16, Int32, Int64, Time, Timestamp, TimestampTz};
    matches!(
        data_type,
        Int16 | Int32 | Int64 | Float32 | Float64 | Decimal { .. } | Date | Time | Timestamp | TimestampTz
    )
}

/// `(condition, result)` for each branch and, if the arguments are odd, ELSE: the first result whose condition is true.
///
/// # Errors
///
/// `Internal` for types that are not selectable, and of other arguments.
pub(super) fn select(call: &Invocation<'_>) -> Result<ArrayRef> {
    let data_type = call.result.to_arrow();
    match &data_type {
        ArrowType::Int16 => select_primitive::<Int16Type>(call, &data_type),
        ArrowType::Int32 => select_primitive::<Int32Type>(call, &data_type),
        ArrowType::Int64 => select_primitive::<Int64Type>(call, &data_type),
        ArrowType::Float32 => select_primitive::<Float32Type>(call, &data_type),
        ArrowType::Float64 => select_primitive::<Float64Type>(call, &data_type),
        ArrowType::Decimal128(..) => select_primitive::<Decimal128Type>(call, &data_type),
        ArrowType::Decimal256(..) => select_primitive::<Decimal256Type>(call, &data_type),
        ArrowType::Date32 => select_primitive::<Date32Type>(call, &data_type),
        ArrowType::Time64(TimeUnit::Microsecond) => {
            select_primitive::<Time64MicrosecondType>(call, &data_type)
        }
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => {
            select_primitive::<TimestampMicrosecondType>(call, &data_type)
        }
        other => Err(Error::internal(format!("values of type {other} are not selected"))),
    }
}

fn select_primitive<P: ArrowPrimitiveType>(call: &Invocation<'_>, data_type: &ArrowType) -> Result<ArrayRef> {
    let (branch_count, rows) = (call.arguments().len() / 2, call.rows);
    let otherwise = match call.arguments().len() % 2 {
        0 => Lanes::Constant(None),
        _ => call.lanes::<P>(2 * branch_count)?,
    };
    let (mut values, mut valid) = match otherwise {
        Lanes::Column { values, nulls } => (values.into_owned(), nulls.map(NullBuffer::into_inner)),
        Lanes::Constant(Some(value)) => (vec![value; rows], None),
        Lanes::Constant(None) => (vec![P::Native::usize_as(0); rows], Some(BooleanBuffer::new_unset(rows))),
    };
    for branch in (0..branch_count).rev() {
        let condition = call.array(2 * branch)?;
        let condition = condition.as_boolean();
        let is_true = match condition.nulls() {
            Some(nulls) => condition.values() & nulls.inner(),
            None => condition.values().clone(),
        };
        match call.lanes::<P>(2 * branch + 1)? {
            Lanes::Column { values: results, nulls } => {
                assign(&mut values, &is_true, |row| results[row]);
                valid = merge(valid, &is_true, nulls.as_ref().map(NullBuffer::inner));
            }
            Lanes::Constant(Some(result)) => {
                assign(&mut values, &is_true, |_| result);
                valid = merge(valid, &is_true, None);
            }
            Lanes::Constant(None) => {
                let others = !&is_true;
                valid = Some(valid.map_or_else(|| others.clone(), |valid| &valid & &others));
            }
        }
    }
    let array = PrimitiveArray::<P>::new(ScalarBuffer::from(values), valid.map(NullBuffer::new));
    Ok(Arc::new(array.with_data_type(data_type.clone())))
}

fn assign<T: Copy>(values: &mut [T], is_true: &BooleanBuffer, result: impl Fn(usize) -> T) {
    for (chunk, (bits, values)) in
        is_true.bit_chunks().iter_padded().zip(values.chunks_mut(u64::BITS as usize)).enumerate()
    {
        if bits == 0 {
            continue;
        }
        let first = chunk * u64::BITS as usize;
        for (place, value) in values.iter_mut().enumerate() {
            if (bits >> place) & 1 == 1 {
                *value = result(first + place);
            }
        }
    }
}

/// Which rows are not NULL: those of a branch where its condition is true, and those so far elsewhere.
fn merge(
    valid: Option<BooleanBuffer>,
    is_true: &BooleanBuffer,
    of_branch: Option<&BooleanBuffer>,
) -> Option<BooleanBuffer> {
    match (valid, of_branch) {
        (None, None) => None,
        (Some(valid), None) => Some(&valid | is_true),
        (None, Some(of_branch)) => Some(of_branch | &!is_true),
        (Some(valid), Some(of_branch)) => Some(&(of_branch & is_true) | &(&valid & &!is_true)),
    }
}
