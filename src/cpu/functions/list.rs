//! Arrays: those that columns have, and those that aggregates make of their inputs.
//!
//! Source: PostgreSQL 15, `execExprInterp.c`, `ExecEvalScalarArrayOp`; `arraysubs.c`, `array_subscript_fetch`;
//! `varlena.c`, `string_agg_transfn`; `orderedsetaggs.c`, `percentile_cont_final_common`, `percentile_disc_final`, `mode_final`.

use std::{ops::Range, sync::Arc};

use crate::datafusion::logical_expr::ColumnarValue;
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, ListArray, StringViewBuilder,
        StructArray, UInt32Array, make_comparator,
    },
    buffer::{NullBuffer, OffsetBuffer},
    compute::{SortOptions, take},
    datatypes::{DataType as ArrowType, Field, Float32Type, Float64Type, Int32Type},
};
use pystachio_plan::{DataType, Error, ErrorKind, Function, Result};

use super::{comparison::compare, invocation::Invocation, lanes::TextLanes};
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

/// `ROW(…)`.
pub(super) fn row(call: &Invocation<'_>) -> Result<ArrayRef> {
    let ArrowType::Struct(fields) = call.result.to_arrow() else {
        return Err(Error::internal("a row is no composite value"));
    };
    let columns = (0..fields.len()).map(|place| call.array(place)).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new(fields, columns, None).map_err(|error| from_arrow(&error))?))
}

/// What `string_agg` makes of the texts of an array.
pub(super) fn join_texts(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = lists(&array)?;
    let texts = TextLanes::new(&ColumnarValue::Array(lists.values().clone()))?;
    let own = match call.argument(1)?.data_type() {
        ArrowType::List(_) => Some(call.array(1)?),
        _ => None,
    };
    let own = own.as_ref().map(self::lists).transpose()?;
    let (common, of_texts) = match own {
        Some(own) => (None, Some((own, TextLanes::new(&ColumnarValue::Array(own.values().clone()))?))),
        None => (Some(call.text(1)?), None),
    };
    let mut joined = String::new();
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        joined.clear();
        let mut is_empty = true;
        let places = if lists.is_null(row) { 0..0 } else { range(lists, row) };
        for (number, place) in places.enumerate() {
            let Some(text) = texts.get(place) else { continue };
            let delimiter = match &of_texts {
                Some((own, delimiters)) => delimiters.get(range(own, row).start + number),
                None => common.as_ref().and_then(|common| common.get(row)),
            };
            if let (false, Some(delimiter)) = (is_empty, delimiter) {
                joined.push_str(delimiter);
            }
            joined.push_str(text);
            is_empty = false;
            if joined.len() > TEXT_BYTES_MAX {
                let message = format!("string_agg makes a text of more than {TEXT_BYTES_MAX} bytes");
                return Err(Error::new(ErrorKind::StringTooLong, message));
            }
        }
        builder.append_option((!is_empty).then_some(joined.as_str()));
    }
    Ok(Arc::new(builder.finish()))
}

/// The longest text that PostgreSQL makes: a gigabyte, without its length and a zero.
const TEXT_BYTES_MAX: usize = (1 << 30) - 6;

/// `percentile_cont`.
pub(super) fn percentile_cont(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = lists(&array)?;
    let values = lists.values().as_primitive_opt::<Float64Type>();
    let values = values.ok_or_else(|| Error::internal("percentile_cont is of floats"))?;
    let value = |places: Range<usize>, fraction: f64| {
        let position = fraction * (places.len() - 1) as f64;
        let (first, second) = (position.floor(), position.ceil());
        let at = |place: f64| values.value(places.start + place as usize);
        let (low, high) = (at(first), at(second));
        if first == second { low } else { low + (position - first) * (high - low) }
    };
    let found = at_fractions(call, lists, value)?;
    as_result(call, lists, Arc::new(found.into_iter().collect::<Float64Array>()))
}

/// `percentile_disc`.
pub(super) fn percentile_disc(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = lists(&array)?;
    let place = |places: Range<usize>, fraction: f64| {
        let number = (fraction * places.len() as f64).ceil() as usize;
        (places.start + number.max(1) - 1) as u32
    };
    let found: UInt32Array = at_fractions(call, lists, place)?.into_iter().collect();
    let values = take(lists.values(), &found, None).map_err(|error| from_arrow(&error))?;
    as_result(call, lists, values)
}

/// What `of` gives for each array and each fraction, in turn: of the places of its elements that are not NULL. `None` where there are none.
fn at_fractions<T: Clone>(
    call: &Invocation<'_>,
    lists: &ListArray,
    of: impl Fn(Range<usize>, f64) -> T,
) -> Result<Vec<Option<T>>> {
    let fractions = (1..call.arguments().len()).map(|index| call.lanes::<Float64Type>(index));
    let fractions = fractions.collect::<Result<Vec<_>>>()?;
    let mut found = Vec::with_capacity(lists.len() * fractions.len());
    for row in 0..lists.len() {
        let places = filled(lists, row);
        for fraction in &fractions {
            let fraction = fraction.get(row).filter(|_| !places.is_empty());
            found.push(fraction.map(|fraction| of(places.clone(), fraction)));
        }
    }
    Ok(found)
}

/// One value for each row, or an array of one for each fraction.
fn as_result(call: &Invocation<'_>, lists: &ListArray, values: ArrayRef) -> Result<ArrayRef> {
    let DataType::List(_) = call.result else { return Ok(values) };
    let count = call.arguments().len() - 1;
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(count, lists.len()));
    let nulls: NullBuffer = (0..lists.len()).map(|row| !filled(lists, row).is_empty()).collect();
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let made = ListArray::try_new(field, offsets, values, Some(nulls)).map_err(|error| from_arrow(&error))?;
    Ok(Arc::new(made))
}

/// `mode`.
pub(super) fn mode(call: &Invocation<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = lists(&array)?;
    let values = lists.values();
    let compare = make_comparator(values.as_ref(), values.as_ref(), SortOptions::default())
        .map_err(|error| from_arrow(&error))?;
    let float = |place: usize| match values.as_primitive_opt::<Float64Type>() {
        Some(doubles) => Some(doubles.value(place)),
        None => values.as_primitive_opt::<Float32Type>().map(|singles| f64::from(singles.value(place))),
    };
    let is_equal = |a: usize, b: usize| match (float(a), float(b)) {
        (Some(a), Some(b)) => a == b || (a.is_nan() && b.is_nan()),
        _ => compare(a, b).is_eq(),
    };
    let place = |row| {
        let places = filled(lists, row);
        let (mut best, mut most) = (None, 0);
        let mut start = places.start;
        while start < places.end {
            let rest = (start + 1..places.end).find(|place| !is_equal(start, *place));
            let end = rest.unwrap_or(places.end);
            if end - start > most {
                (best, most) = (Some(start as u32), end - start);
            }
            start = end;
        }
        best
    };
    let places: UInt32Array = (0..lists.len()).map(place).collect();
    take(values, &places, None).map_err(|error| from_arrow(&error))
}

/// The places of a row's elements that are not NULL, where all NULLs are at one end.
fn filled(lists: &ListArray, row: usize) -> Range<usize> {
    if lists.is_null(row) {
        return 0..0;
    }
    let places = range(lists, row);
    let values = lists.values();
    let nulls = values.slice(places.start, places.len()).null_count();
    match nulls > 0 && values.is_null(places.start) {
        true => places.start + nulls..places.end,
        false => places.start..places.end - nulls,
    }
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
