//! Arrays that columns have.
//!
//! Source: PostgreSQL 15, `execExprInterp.c`, `ExecEvalScalarArrayOp`; `arraysubs.c`, `array_subscript_fetch`.

use std::{ops::Range, sync::Arc};

use crate::datafusion::logical_expr::ColumnarValue;
use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListArray, UInt32Array},
    compute::take,
    datatypes::Int32Type,
};
use pystachio_plan::{Error, Function, Result};

use super::{comparison::compare, invocation::Invocation};
use crate::error::from_arrow;

/// `x = ANY (array)`.
pub(super) fn equals_any(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(1)?;
    let lists = lists(&array)?;
    let (first, last) = ends(lists);
    let elements = lists.values().slice(first, last - first);
    let is_equal = match elements.len() {
        0 => BooleanArray::new_null(0),
        count => {
            let wanted = match call.argument(0)? {
                ColumnarValue::Array(values) => {
                    let rows = (0..lists.len()).flat_map(|row| range(lists, row).map(move |_| row as u32));
                    let rows = UInt32Array::from_iter_values(rows);
                    ColumnarValue::Array(take(values, &rows, None).map_err(|error| from_arrow(&error))?)
                }
                scalar => scalar.clone(),
            };
            compare(Function::Equal, &wanted, &ColumnarValue::Array(elements), count)?
        }
    };
    let of_row = |row| {
        let range = range(lists, row);
        if lists.is_null(row) {
            return None;
        }
        let mut of_elements = (range.start - first..range.end - first)
            .map(|place| is_equal.is_valid(place).then(|| is_equal.value(place)));
        let is_found = of_elements.clone().any(|is_equal| is_equal == Some(true));
        (is_found || of_elements.all(|is_equal| is_equal.is_some())).then_some(is_found)
    };
    Ok(Arc::new((0..lists.len()).map(of_row).collect::<BooleanArray>()))
}

/// `cardinality(array)`.
pub(super) fn cardinality(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = lists(&array)?;
    let count = |row| lists.is_valid(row).then(|| lists.value_length(row));
    Ok(Arc::new((0..lists.len()).map(count).collect::<Int32Array>()))
}

/// `array[n]`.
pub(super) fn element(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = lists(&array)?;
    let numbers = call.array(1)?;
    let numbers = numbers.as_primitive::<Int32Type>();
    let place = |row| {
        if lists.is_null(row) || numbers.is_null(row) {
            return None;
        }
        let before = usize::try_from(numbers.value(row).checked_sub(1)?).ok()?;
        let range = range(lists, row);
        range.start.checked_add(before).filter(|place| *place < range.end).map(|place| place as u32)
    };
    let places: UInt32Array = (0..lists.len()).map(place).collect();
    take(lists.values(), &places, None).map_err(|error| from_arrow(&error))
}

fn lists(array: &ArrayRef) -> Result<&ListArray> {
    array.as_list_opt::<i32>().ok_or_else(|| Error::internal("an array has another form"))
}

/// The first element of all rows, and the end of the last.
fn ends(lists: &ListArray) -> (usize, usize) {
    let offsets = lists.value_offsets();
    let end = |offset: Option<&i32>| offset.map_or(0, |offset| *offset as usize);
    (end(offsets.first()), end(offsets.last()))
}

/// The elements of a row.
fn range(lists: &ListArray, row: usize) -> Range<usize> {
    let offsets = lists.value_offsets();
    offsets[row] as usize..offsets[row + 1] as usize
}

#[cfg(test)]
mod tests {
    use arrow::{array::Int64Array, datatypes::Int64Type};
    use pystachio_plan::DataType;

    use super::*;
    use crate::datafusion::common::ScalarValue;

    /// NULL, empty, 1 and NULL, 2 and 3, cut out of a longer array.
    fn array() -> ColumnarValue {
        let rows = [
            Some(vec![Some(9)]),
            None,
            Some(vec![]),
            Some(vec![Some(1), None]),
            Some(vec![Some(2), Some(3)]),
            Some(vec![Some(8)]),
        ];
        ColumnarValue::Array(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows).slice(1, 4)))
    }

    fn number(value: Option<i64>) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Int64(value))
    }

    #[test]
    fn membership_is_unknown_where_null_decides() {
        let found = |wanted: ColumnarValue| {
            let arguments = [wanted, array()];
            let found = equals_any(&Invocation::new(&arguments, 4, &DataType::Bool)).unwrap();
            found.as_boolean().iter().collect::<Vec<_>>()
        };
        assert_eq!(found(number(Some(1))), [None, Some(false), Some(true), Some(false)]);
        assert_eq!(found(number(Some(3))), [None, Some(false), None, Some(true)]);
        assert_eq!(found(number(None)), [None, Some(false), None, None]);
        let of_rows = Int64Array::from(vec![Some(9), None, Some(1), Some(2)]);
        let found_by_row = found(ColumnarValue::Array(Arc::new(of_rows)));
        assert_eq!(found_by_row, [None, Some(false), Some(true), Some(true)]);
    }

    #[test]
    fn elements_are_counted_and_found_from_one() {
        let arguments = [array()];
        let counts = cardinality(&Invocation::new(&arguments, 4, &DataType::Int32)).unwrap();
        let counts: Vec<_> = counts.as_primitive::<Int32Type>().iter().collect();
        assert_eq!(counts, [None, Some(0), Some(2), Some(2)]);
        for (number, elements) in [
            (Some(1), [None, None, Some(1), Some(2)]),
            (Some(2), [None, None, None, Some(3)]),
            (Some(3), [None; 4]),
            (Some(0), [None; 4]),
            (Some(i32::MIN), [None; 4]),
            (None, [None; 4]),
        ] {
            let arguments = [array(), ColumnarValue::Scalar(ScalarValue::Int32(number))];
            let found = element(&Invocation::new(&arguments, 4, &DataType::Int64)).unwrap();
            assert_eq!(found.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), elements, "{number:?}");
        }
    }
}
