//! Row groups ruled out by statistics: conditions of a plan against bounds of a row group.
//!
//! Invariants: a row group is ruled out only if no row in it can make the conditions true. What is not
//! understood rules out nothing.
//!
//! Deliberately absent: floats, whose NaN has no place in a file's bounds; bounds of a type that is not the
//! declared one.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashSet},
    ops::RangeInclusive,
};

use parquet::file::metadata::RowGroupMetaData;
use pystachio_plan::{ColumnId, DataType, Expression, Function, Literal, ScanColumn, Value};
use pystachio_tables::{TableColumn, ValueBounds};

use crate::{
    FileFooter, bloom_filter::BloomFilter, chunk_facts::ChunkBounds, column_place::ColumnPlace,
    derived_bounds::bounds_of, statistics::ChunkStatistics,
};

/// The columns of a scan whose bounds are asked for: statistics are decoded for each row group, and most columns of most scans need none.
#[derive(Debug)]
pub struct BoundedColumns {
    /// Their places in the scan.
    places: Vec<usize>,
}

impl BoundedColumns {
    /// The columns that conditions read, and others that are wanted.
    pub fn of(
        columns: &[ScanColumn],
        conditions: &[Expression],
        is_wanted: impl Fn(ColumnId) -> bool,
    ) -> Self {
        let mut read = HashSet::new();
        for condition in conditions {
            condition.walk(&mut |part| {
                if let Expression::Column { id, .. } = part {
                    read.insert(*id);
                }
            });
        }
        let is_bounded = |column: &ScanColumn| read.contains(&column.id) || is_wanted(column.id);
        Self { places: (0..columns.len()).filter(|place| is_bounded(&columns[*place])).collect() }
    }

    /// The columns at some places in the scan.
    pub fn at(places: impl IntoIterator<Item = usize>) -> Self {
        let places: BTreeSet<usize> = places.into_iter().collect();
        Self { places: places.into_iter().collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Their bounds in a row group of a number. `columns` are those of the scan, and `places` where they are in the file.
    pub fn in_row_group(
        &self,
        footer: &FileFooter,
        row_group: usize,
        columns: &[ScanColumn],
        places: &[ColumnPlace],
    ) -> RowGroupBounds {
        let bounded = self.places.iter().map(|place| (&columns[*place], &places[*place]));
        RowGroupBounds::new(footer, row_group, bounded)
    }
}

/// What the statistics of one row group say of a scan's columns.
#[derive(Debug, Default)]
pub struct RowGroupBounds {
    columns: Vec<(ColumnId, Bounds)>,
}

/// Bounds of a column within some rows.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) data_type: DataType,
    pub(super) minimum: Option<Value>,
    pub(super) maximum: Option<Value>,
    pub(super) null_count: Option<u64>,
    pub(super) row_count: u64,
    /// Which values there may be within them.
    pub(super) members: Option<BloomFilter>,
}

impl RowGroupBounds {
    /// The bounds of columns, each with its place in the file.
    fn new<'c>(
        footer: &FileFooter,
        row_group: usize,
        columns: impl IntoIterator<Item = (&'c ScanColumn, &'c ColumnPlace)>,
    ) -> Self {
        let mut bounds = Self::default();
        let metadata = footer.metadata().row_group(row_group);
        let row_count = u64::try_from(metadata.num_rows()).unwrap_or(0);
        for (column, place) in columns {
            match place {
                ColumnPlace::Stored(place) => {
                    let leaf = footer.value_leaf(*place);
                    let stored = leaf.and_then(|leaf| Bounds::of_stored(footer, row_group, column, leaf));
                    bounds.columns.extend(stored.map(|stored| (column.id, stored)));
                }
                ColumnPlace::Constant(value) => bounds.add_constant(column, value, row_count),
                ColumnPlace::RowNumber => {
                    let rows = footer.row_numbers(metadata);
                    let numbers = Bounds {
                        data_type: DataType::Int64,
                        minimum: Some(Value::Int(rows.start)),
                        maximum: Some(Value::Int(rows.end - 1)),
                        null_count: Some(0),
                        row_count,
                        members: None,
                    };
                    bounds.columns.extend((row_count > 0).then_some((column.id, numbers)));
                }
            }
        }
        bounds
    }

    /// Adds a column that has one value in so many rows.
    pub(crate) fn add_constant(&mut self, column: &ScanColumn, value: &Value, row_count: u64) {
        let is_null = *value == Value::Null;
        let bound = (!is_null && !column.data_type.is_float()).then(|| value.clone());
        let bounds = Bounds {
            data_type: column.data_type.clone(),
            minimum: bound.clone(),
            maximum: bound,
            null_count: Some(if is_null { row_count } else { 0 }),
            row_count,
            members: None,
        };
        self.columns.push((column.id, bounds));
    }

    /// Adds what a table's log knows of a column in a file. Of a column that is declared as another type it says nothing.
    pub(crate) fn add_known(
        &mut self,
        column: &ScanColumn,
        known: &TableColumn,
        values: &ValueBounds,
        row_count: Option<u64>,
    ) {
        let Some(data_type) = known.data_type.clone() else { return };
        if !same_values(&data_type, &column.data_type) || column.trim_blanks {
            return;
        }
        let ValueBounds { minimum, maximum, null_count } = values.clone();
        let row_count = row_count.unwrap_or(0);
        let bounds = Bounds { data_type, minimum, maximum, null_count, row_count, members: None };
        self.columns.push((column.id, bounds));
    }

    /// Bounds of a column whose values are integers or counts of days or microseconds; `None` if the file tells none, which it
    /// does not if all are NULL.
    pub fn integers(&self, column: ColumnId) -> Option<RangeInclusive<i64>> {
        let (_, bounds) = self.columns.iter().find(|(known, _)| *known == column)?;
        match (&bounds.minimum, &bounds.maximum) {
            (Some(Value::Int(minimum)), Some(Value::Int(maximum))) => Some(*minimum..=*maximum),
            _ => None,
        }
    }

    /// How many values of a column are NULL, if the file tells it.
    pub fn null_count(&self, column: ColumnId) -> Option<u64> {
        let (_, bounds) = self.columns.iter().find(|(known, _)| *known == column)?;
        bounds.null_count
    }
}

/// Makes something of a column's statistics, if bounds in the file are bounds of the column as it is declared.
pub(super) fn with_statistics<T>(
    footer: &FileFooter,
    row_group: &RowGroupMetaData,
    column: &ScanColumn,
    leaf: usize,
    make: impl FnOnce(&ChunkStatistics<'_>) -> T,
) -> Option<T> {
    let file_type = footer.type_of_leaf(leaf)?;
    if !same_values(file_type.data_type.as_ref()?, &column.data_type) || column.trim_blanks {
        return None;
    }
    Some(make(&footer.statistics_of(row_group, leaf, file_type)?))
}

impl Bounds {
    /// The bounds of a stored column in a row group, as values of the declared type.
    fn of_stored(footer: &FileFooter, row_group: usize, column: &ScanColumn, leaf: usize) -> Option<Self> {
        let file_type = footer.type_of_leaf(leaf)?;
        if column.trim_blanks {
            return None;
        }
        let metadata = footer.metadata().row_group(row_group);
        let of_chunk = || {
            let ChunkBounds { minimum, maximum, null_count } = footer.chunk_bounds(leaf, row_group)?;
            let row_count = u64::try_from(metadata.num_rows()).ok()?;
            let data_type = file_type.data_type.clone()?;
            Some(Self { data_type, minimum, maximum, null_count, row_count, members: None })
        };
        match (file_type.data_type.as_ref()?, &column.data_type) {
            (file, declared) if same_values(file, declared) => of_chunk(),
            (DataType::Date, DataType::Timestamp) => of_chunk()?.to_timestamps(),
            (file, DataType::Decimal { .. }) if file.is_integer() => Some(of_chunk()?.into_decimals()),
            _ => None,
        }
    }

    fn into_decimals(self) -> Self {
        let decimal = |bound: Option<Value>| match bound {
            Some(Value::Int(value)) => Some(Value::Decimal(value.into())),
            _ => None,
        };
        // A 64-bit integer has at most 19 digits.
        let data_type = DataType::Decimal { precision: 19, scale: 0 };
        Self { data_type, minimum: decimal(self.minimum), maximum: decimal(self.maximum), ..self }
    }

    /// Those of a column of which only a Bloom filter is known.
    pub(super) fn of_values(data_type: DataType, row_count: u64, members: BloomFilter) -> Self {
        let members = Some(members);
        Self { data_type, minimum: None, maximum: None, null_count: None, row_count, members }
    }

    /// Whether no text begins so.
    fn is_without(&self, prefix: &str) -> bool {
        let is_below =
            matches!(&self.maximum, Some(Value::Text(greatest)) if greatest.as_bytes() < prefix.as_bytes());
        let is_above = matches!(&self.minimum, Some(Value::Text(least))
            if least.as_bytes() > prefix.as_bytes() && !least.starts_with(prefix));
        self.is_null() || is_below || is_above
    }

    /// Whether there are rows, and all of them are NULL.
    fn is_null(&self) -> bool {
        self.row_count > 0 && self.null_count == Some(self.row_count)
    }
}

/// Whether bounds of one type are bounds of the other.
pub(super) fn same_values(file: &DataType, declared: &DataType) -> bool {
    match (file, declared) {
        (DataType::Decimal { .. }, DataType::Decimal { .. }) => true,
        (DataType::Float32 | DataType::Float64, _) => false,
        (file, declared) => file == declared || (file.is_integer() && declared.is_integer()),
    }
}

/// Whether no row within the bounds can make all conditions true.
pub fn refutes(conditions: &[Expression], bounds: &RowGroupBounds, parameters: &[Literal]) -> bool {
    let bounds_of = |id| bounds.columns.iter().find(|(known, _)| *known == id).map(|(_, bounds)| bounds);
    refutes_within(conditions, &bounds_of, parameters)
}

/// The same, with the bounds of each column that has some.
pub(super) fn refutes_within<'a>(
    conditions: &[Expression],
    bounds_of: &dyn Fn(ColumnId) -> Option<&'a Bounds>,
    parameters: &[Literal],
) -> bool {
    conditions.iter().any(|condition| refutes_one(condition, bounds_of, parameters))
}

fn refutes_one<'a>(
    condition: &Expression,
    bounds: &dyn Fn(ColumnId) -> Option<&'a Bounds>,
    parameters: &[Literal],
) -> bool {
    let Expression::Call { function, arguments, .. } = condition else {
        return is_always(false, condition, bounds);
    };
    match (function, arguments.as_slice()) {
        (Function::And, parts) => parts.iter().any(|part| refutes_one(part, bounds, parameters)),
        (Function::Or, parts) => {
            !parts.is_empty() && parts.iter().all(|part| refutes_one(part, bounds, parameters))
        }
        (Function::Not | Function::IsFalse, [condition]) => is_always(true, condition, bounds),
        (Function::IsTrue, [condition]) => is_always(false, condition, bounds),
        (Function::Like, [Expression::Column { id, .. }, pattern]) => bounds(*id)
            .zip(literal(pattern, parameters))
            .is_some_and(|(column, pattern)| match &pattern.value {
                Value::Text(pattern) => column.is_without(pattern_prefix(pattern)),
                value => *value == Value::Null,
            }),
        (Function::StartsWith, [Expression::Column { id, .. }, prefix]) => {
            bounds(*id).zip(literal(prefix, parameters)).is_some_and(|(column, prefix)| match &prefix.value {
                Value::Text(prefix) => column.is_without(prefix),
                value => *value == Value::Null,
            })
        }
        (Function::IsNull, [Expression::Column { id, .. }]) => {
            bounds(*id).is_some_and(|column| column.null_count == Some(0))
        }
        (Function::IsNotNull, [Expression::Column { id, .. }]) => bounds(*id).is_some_and(Bounds::is_null),
        (Function::In, [Expression::Column { id, .. }, choices @ ..]) => {
            let Some(column) = bounds(*id) else { return false };
            !choices.is_empty()
                && choices.iter().all(|choice| {
                    literal(choice, parameters).is_some_and(|choice| {
                        choice.value == Value::Null || excludes(Function::Equal, column, choice)
                    })
                })
        }
        (function, [a, b]) if mirrored(*function).is_some() => {
            let (function, computed, value) = match (literal(a, parameters), literal(b, parameters)) {
                (None, Some(value)) => (Some(*function), a, value),
                (Some(value), None) => (mirrored(*function), b, value),
                _ => return false,
            };
            let computed = bounds_of(computed, bounds, parameters);
            function.zip(computed).is_some_and(|(function, computed)| excludes(function, &computed, value))
        }
        _ => false,
    }
}

/// Whether a column of truth values has this value, or NULL, in all rows.
fn is_always<'a>(
    value: bool,
    condition: &Expression,
    bounds: &dyn Fn(ColumnId) -> Option<&'a Bounds>,
) -> bool {
    let Expression::Column { id, data_type: DataType::Bool } = condition else { return false };
    bounds(*id).is_some_and(|column| {
        let bound = if value { &column.minimum } else { &column.maximum };
        column.is_null() || *bound == Some(Value::Bool(value))
    })
}

/// What a text that matches the pattern begins with.
fn pattern_prefix(pattern: &str) -> &str {
    pattern.split(['%', '_', '\\']).next().unwrap_or_default()
}

fn mirrored(function: Function) -> Option<Function> {
    match function {
        Function::Equal => Some(Function::Equal),
        Function::NotEqual => Some(Function::NotEqual),
        Function::Less => Some(Function::Greater),
        Function::LessEqual => Some(Function::GreaterEqual),
        Function::Greater => Some(Function::Less),
        Function::GreaterEqual => Some(Function::LessEqual),
        _ => None,
    }
}

pub(super) fn literal<'a>(expression: &'a Expression, parameters: &'a [Literal]) -> Option<&'a Literal> {
    match expression {
        Expression::Literal(literal) => Some(literal),
        Expression::Parameter { index, .. } => parameters.get(*index as usize),
        _ => None,
    }
}

/// Whether no value within the bounds compares so with `value`.
fn excludes(function: Function, column: &Bounds, value: &Literal) -> bool {
    let against = |bound: &Option<Value>| {
        bound.as_ref().and_then(|bound| order(bound, &column.data_type, &value.value, &value.data_type))
    };
    let (minimum, maximum) = (|| against(&column.minimum), || against(&column.maximum));
    match function {
        // A comparison with NULL is not true.
        Function::Equal
        | Function::NotEqual
        | Function::Less
        | Function::LessEqual
        | Function::Greater
        | Function::GreaterEqual
            if column.is_null() =>
        {
            true
        }
        Function::Equal => {
            minimum() == Some(Ordering::Greater)
                || maximum() == Some(Ordering::Less)
                || column.members.as_ref().is_some_and(|members| members.lacks(value))
        }
        Function::NotEqual => minimum() == Some(Ordering::Equal) && maximum() == Some(Ordering::Equal),
        Function::Less => matches!(minimum(), Some(Ordering::Greater | Ordering::Equal)),
        Function::LessEqual => minimum() == Some(Ordering::Greater),
        Function::Greater => matches!(maximum(), Some(Ordering::Less | Ordering::Equal)),
        Function::GreaterEqual => maximum() == Some(Ordering::Less),
        _ => false,
    }
}

/// The order of two values, if it is known.
fn order(left: &Value, left_type: &DataType, right: &Value, right_type: &DataType) -> Option<Ordering> {
    match (left, right) {
        (Value::Decimal(left), Value::Decimal(right)) => {
            let (left_scale, right_scale) = (scale(left_type)?, scale(right_type)?);
            let scale = left_scale.max(right_scale);
            let widen = |value: i128, from: u8| {
                10i128.checked_pow(u32::from(scale - from)).and_then(|factor| value.checked_mul(factor))
            };
            Some(widen(*left, left_scale)?.cmp(&widen(*right, right_scale)?))
        }
        (Value::Int(left), Value::Int(right))
            if left_type == right_type || (left_type.is_integer() && right_type.is_integer()) =>
        {
            Some(left.cmp(right))
        }
        (Value::Text(left), Value::Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn scale(data_type: &DataType) -> Option<u8> {
    match data_type {
        DataType::Decimal { scale, .. } => Some(*scale),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ColumnId = ColumnId(1);

    fn bounds(data_type: DataType, minimum: Value, maximum: Value) -> RowGroupBounds {
        let bounds = Bounds {
            data_type,
            minimum: Some(minimum),
            maximum: Some(maximum),
            null_count: Some(0),
            row_count: 10,
            members: None,
        };
        RowGroupBounds { columns: vec![(ID, bounds)] }
    }

    fn condition(function: Function, data_type: &DataType, values: &[Value]) -> Expression {
        let mut arguments = vec![Expression::column(ID, data_type.clone())];
        arguments.extend(values.iter().map(|value| Expression::literal(value.clone(), data_type.clone())));
        Expression::predicate(function, arguments)
    }

    #[test]
    fn a_row_group_is_ruled_out_only_where_no_value_can_match() {
        let within = bounds(DataType::Int32, Value::Int(10), Value::Int(20));
        let cases = [
            (Function::Equal, 9, true),
            (Function::Equal, 10, false),
            (Function::Equal, 21, true),
            (Function::Less, 10, true),
            (Function::Less, 11, false),
            (Function::LessEqual, 9, true),
            (Function::LessEqual, 10, false),
            (Function::Greater, 20, true),
            (Function::Greater, 19, false),
            (Function::GreaterEqual, 21, true),
            (Function::GreaterEqual, 20, false),
            (Function::NotEqual, 10, false),
            (Function::NotEqual, 15, false),
        ];
        for (function, value, refuted) in cases {
            let condition = condition(function, &DataType::Int32, &[Value::Int(value)]);
            assert_eq!(refutes(&[condition], &within, &[]), refuted, "{function:?} {value}");
        }
    }

    #[test]
    fn a_column_of_one_value_rules_out_what_differs_from_it() {
        let within = bounds(DataType::Int32, Value::Int(10), Value::Int(10));
        let differs = |value| condition(Function::NotEqual, &DataType::Int32, &[Value::Int(value)]);
        assert!(refutes(&[differs(10)], &within, &[]));
        assert!(!refutes(&[differs(11)], &within, &[]));
    }

    #[test]
    fn truth_values_are_ruled_out_by_their_bounds() {
        let column = || Expression::column(ID, DataType::Bool);
        let not = |function| Expression::predicate(function, vec![column()]);
        for (least, greatest) in [(false, false), (false, true), (true, true)] {
            let within = bounds(DataType::Bool, Value::Bool(least), Value::Bool(greatest));
            for (condition, refuted) in [
                (column(), !greatest),
                (not(Function::IsTrue), !greatest),
                (not(Function::Not), least),
                (not(Function::IsFalse), least),
                (not(Function::IsNotTrue), false),
                (not(Function::IsNotFalse), false),
            ] {
                assert_eq!(refutes(std::slice::from_ref(&condition), &within, &[]), refuted, "{condition:?}");
            }
        }
    }

    #[test]
    fn patterns_are_ruled_out_by_what_they_begin_with() {
        let text = |value: &str| Value::Text(value.to_owned());
        let within = bounds(DataType::Text, text("bird"), text("cat"));
        let cases = [
            ("bi%", false),
            ("birds%", false),
            ("b_z", false),
            ("ca%", false),
            ("cats", true),
            ("d%", true),
            ("ant%", true),
            ("bir\\d", false),
            ("bia%", true),
            ("%", false),
            ("", false),
            ("_at", false),
        ];
        for (pattern, refuted) in cases {
            let like = condition(Function::Like, &DataType::Text, &[text(pattern)]);
            assert_eq!(refutes(&[like], &within, &[]), refuted, "{pattern}");
            if !pattern.contains(['%', '_', '\\']) {
                let starts = condition(Function::StartsWith, &DataType::Text, &[text(pattern)]);
                assert_eq!(refutes(&[starts], &within, &[]), refuted, "{pattern}");
            }
        }
    }

    #[test]
    fn lists_are_ruled_out_as_a_whole_and_alternatives_one_by_one() {
        let within = bounds(DataType::Int32, Value::Int(10), Value::Int(20));
        let outside =
            condition(Function::In, &DataType::Int32, &[Value::Int(1), Value::Null, Value::Int(30)]);
        let inside = condition(Function::In, &DataType::Int32, &[Value::Int(1), Value::Int(15)]);
        assert!(refutes(std::slice::from_ref(&outside), &within, &[]));
        assert!(!refutes(std::slice::from_ref(&inside), &within, &[]));
        let either = Expression::predicate(Function::Or, vec![outside.clone(), inside.clone()]);
        assert!(!refutes(&[either], &within, &[]));
        let both = Expression::predicate(Function::And, vec![outside, inside]);
        assert!(refutes(&[both], &within, &[]));
    }

    #[test]
    fn decimals_of_other_scales_are_compared_by_value() {
        let type_of = |scale| DataType::Decimal { precision: 15, scale };
        let within = bounds(type_of(2), Value::Decimal(100), Value::Decimal(200));
        let less = |value, scale| {
            let column = Expression::column(ID, type_of(2));
            let literal = Expression::literal(Value::Decimal(value), type_of(scale));
            Expression::predicate(Function::Less, vec![column, literal])
        };
        assert!(refutes(&[less(1, 0)], &within, &[]));
        assert!(!refutes(&[less(10001, 4)], &within, &[]));
    }
}
