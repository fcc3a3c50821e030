//! Aggregates in two steps: partial results on each rank, merged where their groups meet.
//!
//! ```text
//! rows ─► Partial: groups, partial results ─► exchange ─► Final: groups, results
//! rows ─► Whole:   groups, results
//! ```
//!
//! Invariants: Final over the partial results of any division of the rows gives what Whole gives over all rows, errors
//! included: no partial sum overflows where the whole would not. DISTINCT and arrays have no partial results.

use serde::{Deserialize, Serialize};

use crate::{
    Aggregate, AggregateCall, ColumnId, DataType, Expression,
    types::{DECIMAL128_DIGITS_MAX, DECIMAL256_DIGITS_MAX},
};

/// What the aggregates of an operator take and give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AggregatePhase {
    /// Rows become results.
    Whole,
    /// Rows become partial results, of the types that [`partial_type`] says. Over no row and without groups it is one row of
    /// partial results that change no others: 0 for counts, NULL for the rest.
    Partial,
    /// Partial results become results. Each aggregate's argument is its partial column, without filter: counts are added up,
    /// sums too, the others are taken of each other. Groups are columns of the input. A sum that does not fit its result's type
    /// is an error here.
    Final,
}

/// Digits of a number of rows, beyond which a sum of that many addends might not fit 128 bits: up to 10¹¹ rows.
const SUM_DIGITS: u8 = 11;

/// The type of an aggregate's partial results; `data_type` is that of its result.
///
/// | aggregate | argument | partial result |
/// |---|---|---|
/// | count | any, or none | `Int64`: rows, or values that are not NULL |
/// | sum | integers, decimals of up to 27 digits | `Decimal` of 38 digits (128 bits) and the result's scale, 0 for an integer result |
/// | sum | other decimals | `Decimal` of 76 digits (256 bits) and the result's scale |
/// | sum, deviations | floats, or rows of two | `Bytea`, in a form of the engine |
/// | min, max, any value | any | the result's type, which is the argument's |
/// | bool_and, bool_or | boolean | boolean |
/// | bit_and, bit_or, bit_xor | integers | the argument's type |
///
/// All but counts are NULL where a group has no value.
pub fn partial_type(function: Aggregate, argument: Option<&DataType>, data_type: &DataType) -> DataType {
    match (function, argument) {
        (Aggregate::Count, _) => DataType::Int64,
        (Aggregate::Deviations, _) => DataType::Bytea,
        (Aggregate::Sum, Some(argument)) if argument.is_float() => DataType::Bytea,
        (Aggregate::Sum, Some(argument)) => {
            let precision = match argument {
                DataType::Decimal { precision, .. } if *precision > DECIMAL128_DIGITS_MAX - SUM_DIGITS => {
                    DECIMAL256_DIGITS_MAX
                }
                _ => DECIMAL128_DIGITS_MAX,
            };
            let scale = match data_type {
                DataType::Decimal { scale, .. } => *scale,
                _ => 0,
            };
            DataType::Decimal { precision, scale }
        }
        _ => data_type.clone(),
    }
}

impl AggregateCall {
    /// The call that gives this one's partial results, and the one that makes its results of them. `partial_id` is the id
    /// of the partial column.
    ///
    /// # Panics
    ///
    /// If the call has none, which [`AggregateCall::has_partial_results`] tells.
    pub fn in_phases(&self, partial_id: ColumnId) -> (AggregateCall, AggregateCall) {
        assert!(self.has_partial_results(), "DISTINCT and arrays have no partial results");
        let argument = self.argument.as_ref().map(Expression::data_type);
        let data_type = partial_type(self.function, argument, &self.data_type);
        let partial_column = Expression::column(partial_id, data_type.clone());
        let partial = Self { id: partial_id, data_type, distinct: false, ..self.clone() };
        let last = Self { argument: Some(partial_column), distinct: false, filter: None, ..self.clone() };
        (partial, last)
    }

    /// Whether it sums floats, without rounding before the last step.
    pub fn is_of_floats(&self) -> bool {
        let is_float = self.argument.as_ref().is_some_and(|argument| argument.data_type().is_float());
        matches!(self.function, Aggregate::Sum | Aggregate::Deviations)
            && (is_float || self.data_type.is_float())
    }

    /// Whether equal inputs count once and that makes a difference: it makes none to the least and the greatest value.
    pub fn counts_distinct(&self) -> bool {
        self.distinct && matches!(self.function, Aggregate::Count | Aggregate::Sum | Aggregate::BitXor)
    }

    /// Whether results of parts of a group's rows make that of the group. Arrays are made where all rows of a group are.
    pub fn has_partial_results(&self) -> bool {
        !self.counts_distinct() && self.function != Aggregate::Array
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_sums_are_as_wide_as_the_sum_of_many_addends() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        let sum = |argument: DataType, result| partial_type(Aggregate::Sum, Some(&argument), &result);
        assert_eq!(sum(DataType::Int32, DataType::Int64), decimal(38, 0));
        assert_eq!(sum(DataType::Int64, decimal(38, 0)), decimal(38, 0));
        assert_eq!(sum(decimal(27, 4), decimal(38, 4)), decimal(38, 4));
        assert_eq!(sum(decimal(28, 4), decimal(38, 4)), decimal(76, 4));
        assert_eq!(sum(decimal(60, 2), decimal(76, 2)), decimal(76, 2));
        assert_eq!(sum(DataType::Float32, DataType::Float32), DataType::Bytea);
        let pair = DataType::Record(Vec::new());
        assert_eq!(partial_type(Aggregate::Deviations, Some(&pair), &DataType::Float64), DataType::Bytea);
    }

    #[test]
    fn counts_are_added_up_and_the_rest_is_taken_as_it_is() {
        let text = DataType::Text;
        assert_eq!(partial_type(Aggregate::Count, Some(&text), &DataType::Int64), DataType::Int64);
        assert_eq!(partial_type(Aggregate::Count, None, &DataType::Int64), DataType::Int64);
        for function in [Aggregate::Min, Aggregate::Max, Aggregate::AnyValue] {
            assert_eq!(partial_type(function, Some(&text), &text), text);
        }
        assert_eq!(partial_type(Aggregate::BoolOr, Some(&DataType::Bool), &DataType::Bool), DataType::Bool);
    }

    #[test]
    fn arrays_and_what_counts_different_values_have_no_partial_results() {
        let call = |function, distinct| AggregateCall {
            id: ColumnId(5),
            function,
            argument: Some(Expression::column(ColumnId(1), DataType::Int32)),
            distinct,
            filter: None,
            data_type: DataType::Int32,
            order: Vec::new(),
        };
        assert!(!call(Aggregate::Array, false).has_partial_results());
        for (function, of_distinct) in [
            (Aggregate::BitXor, false),
            (Aggregate::BitOr, true),
            (Aggregate::Count, false),
            (Aggregate::Max, true),
        ] {
            assert!(call(function, false).has_partial_results());
            assert_eq!(call(function, true).has_partial_results(), of_distinct, "{function:?}");
        }
    }

    #[test]
    fn filters_stay_with_the_partial_results() {
        let filter = Expression::column(ColumnId(2), DataType::Bool);
        let call = AggregateCall {
            id: ColumnId(5),
            function: Aggregate::Max,
            argument: Some(Expression::column(ColumnId(1), DataType::Int32)),
            distinct: true,
            filter: Some(filter.clone()),
            data_type: DataType::Int32,
            order: Vec::new(),
        };
        let (partial, last) = call.in_phases(ColumnId(9));
        assert_eq!((partial.id, &partial.filter, partial.distinct), (ColumnId(9), &Some(filter), false));
        assert_eq!((last.id, &last.filter, last.distinct), (ColumnId(5), &None, false));
        assert_eq!(last.argument, Some(Expression::column(ColumnId(9), DataType::Int32)));
    }
}
