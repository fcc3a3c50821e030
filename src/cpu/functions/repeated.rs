//! Texts that many rows of a batch share.
//!
//! The texts of a dictionary are pointed to by equal views, and short texts are in their views. So the different values of
//! most columns that are grouped or filtered by are found without looking at a text.

use crate::datafusion::common::HashMap;
use arrow::{
    array::{Array, AsArray, StringViewArray, UInt32Array},
    compute::take,
};

/// Batches of fewer rows are not looked through.
const ROWS_MIN: usize = 256;
/// Rows that share a value, on average, at least.
const SHARING_ROWS_MIN: usize = 4;
/// Different values among the first rows, which say little.
const FIRST_VALUES: usize = 64;

/// The different values of a column.
pub(super) struct Repeated {
    pub(super) values: StringViewArray,
    /// Which of them each row has; NULL where the row is.
    pub(super) places: UInt32Array,
}

impl Repeated {
    /// `None` if the column has few rows, no value, or too many different ones.
    pub(super) fn of(column: &StringViewArray) -> Option<Self> {
        if column.len() < ROWS_MIN {
            return None;
        }
        let mut known: HashMap<u128, u32> = HashMap::new();
        let mut rows: Vec<u32> = Vec::new();
        let mut places = Vec::with_capacity(column.len());
        for (row, view) in column.views().iter().enumerate() {
            if column.is_null(row) {
                places.push(None);
                continue;
            }
            let next = u32::try_from(rows.len()).ok()?;
            let place = *known.entry(*view).or_insert(next);
            if place == next {
                rows.push(u32::try_from(row).ok()?);
                if rows.len() > FIRST_VALUES + row / SHARING_ROWS_MIN {
                    return None;
                }
            }
            places.push(Some(place));
        }
        if rows.is_empty() {
            return None;
        }
        let values = take(column, &UInt32Array::from(rows), None).ok()?;
        Some(Self { values: values.as_string_view_opt()?.clone(), places: places.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_of_many_rows_are_found() {
        let text =
            |row: usize| (!row.is_multiple_of(5)).then(|| format!("{} that has no room in a view", row % 7));
        let column = StringViewArray::from_iter((0..7).map(text));
        let indices = UInt32Array::from_iter_values((0..2000).map(|row| row % 7));
        let column = take(&column, &indices, None).unwrap();
        let column = column.as_string_view();
        let found = Repeated::of(column).unwrap();
        assert_eq!(found.values.len(), 5);
        let again = take(&found.values, &found.places, None).unwrap();
        assert_eq!(again.as_string_view(), column);
        assert!(Repeated::of(&column.slice(0, 100)).is_none());
        let different = StringViewArray::from_iter_values((0..2000).map(|row| row.to_string()));
        assert!(Repeated::of(&different).is_none());
    }
}
