//! A scan that is asked for the rows of one key after another: after some of them it reads all its rows once, and finds
//! those of a key in memory.
//!
//! PostgreSQL runs a correlated subquery that it could not flatten, and the inner side of a nested loop, once for every
//! row around it: `(SELECT name FROM names WHERE names.id = sales.id)`. A heap table has an index for that. An engine
//! would be asked as often, and each time costs a round trip.
//!
//! Invariants: only a plan that is one scan is looked up in, and only if its parameters are nothing but keys (`column =
//! parameter`) of types whose equality is that of their bytes. What else it tests can't fail: it is tested for more
//! rows than before. The rows take no more memory than PostgreSQL gives a hash table.
//!
//! Deliberately absent: scans that are asked again with nothing changed, see [`super::kept_rows`].

use std::collections::HashMap;

use arrow_array::{
    Array, BinaryArray, BinaryViewArray, Date32Array, FixedSizeBinaryArray, Int16Array, Int32Array,
    Int64Array, LargeBinaryArray, RecordBatch, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use pystachio_plan::{
    ColumnId, DataType, Expression, Function, Literal, Operator, Plan, Relation, Value, could_fail,
};

/// Queries for single keys before all rows are read.
pub const QUERIES_MAX: u32 = 16;

/// How to read the rows of all keys.
pub struct LookupPlan {
    /// The scan without its conditions on keys. Its outputs are the plan's, and then the key columns.
    pub plan: Plan,
    keys: Vec<LookupKey>,
}

/// A column that must equal a parameter.
struct LookupKey {
    parameter_index: usize,
    /// The column's place among the outputs.
    output_index: usize,
}

impl LookupPlan {
    /// The plan of a scan with so many parameters; `None` if it can't be looked up in.
    pub fn of(plan: &Plan, parameter_count: usize) -> Option<Self> {
        let Operator::Scan { table, files, columns, filters, extent } = &plan.root.operator else {
            return None;
        };
        let mut outputs = plan.outputs.clone();
        let mut keys: Vec<LookupKey> = Vec::new();
        let mut rest = Vec::new();
        for filter in filters {
            let Some((id, parameter_index)) = as_key(filter) else {
                if has_parameters(filter) || could_fail(filter, &|_| false) {
                    return None;
                }
                rest.push(filter.clone());
                continue;
            };
            let output_index = outputs.iter().position(|known| *known == id).unwrap_or_else(|| {
                outputs.push(id);
                outputs.len() - 1
            });
            keys.push(LookupKey { parameter_index, output_index });
        }
        let is_given = |index| keys.iter().any(|key| key.parameter_index == index);
        if keys.is_empty() || !(0..parameter_count).all(is_given) {
            return None;
        }
        let scan = Operator::Scan {
            table: table.clone(),
            files: files.clone(),
            columns: columns.clone(),
            filters: rest,
            extent: extent.clone(),
        };
        Some(Self { plan: Plan { root: Relation::new(scan, plan.root.estimate.rows), outputs }, keys })
    }
}

/// The column and the parameter of `column = parameter`.
fn as_key(filter: &Expression) -> Option<(ColumnId, usize)> {
    let Expression::Call { function: Function::Equal, arguments, .. } = filter else { return None };
    let [a, b] = arguments.as_slice() else { return None };
    let (a, b) = (before_widening(a), before_widening(b));
    let (column, parameter) = if matches!(a, Expression::Parameter { .. }) { (b, a) } else { (a, b) };
    let Expression::Parameter { index, data_type } = parameter else { return None };
    let Expression::Column { id, data_type: column_type } = column else { return None };
    let is_same = column_type == data_type || (column_type.is_integer() && data_type.is_integer());
    let is_exact = data_type.is_integer()
        || matches!(
            data_type,
            DataType::Date
                | DataType::Time
                | DataType::Timestamp
                | DataType::TimestampTz
                | DataType::Text
                | DataType::Bytea
                | DataType::Uuid
        );
    (is_same && is_exact).then_some((*id, *index as usize))
}

/// An integer is the same number in a wider type.
fn before_widening(expression: &Expression) -> &Expression {
    match expression {
        Expression::Call { function: Function::Cast, arguments, .. }
            if !could_fail(expression, &|_| false) =>
        {
            let is_integer = |part: &&Expression| part.data_type().is_integer();
            arguments.first().filter(|_| is_integer(&expression)).filter(is_integer).unwrap_or(expression)
        }
        _ => expression,
    }
}

fn has_parameters(expression: &Expression) -> bool {
    let mut found = false;
    expression.walk(&mut |part| found = found || matches!(part, Expression::Parameter { .. }));
    found
}

/// All rows of a scan, by their keys.
pub struct LookupTable {
    keys: Vec<LookupKey>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    bytes_max: usize,
    places: HashMap<Vec<u8>, Vec<RowPlace>>,
}

/// A batch and a row of it.
type RowPlace = (usize, usize);

impl LookupTable {
    /// A table without rows yet, of so many bytes at most.
    pub fn new(plan: LookupPlan, bytes_max: usize) -> (Plan, Self) {
        let table =
            Self { keys: plan.keys, batches: Vec::new(), bytes: 0, bytes_max, places: HashMap::new() };
        (plan.plan, table)
    }

    /// Adds rows. False if they are too many, or of a type that is not looked up.
    pub fn add(&mut self, batch: RecordBatch) -> bool {
        /// About what an entry takes beside its key.
        const ENTRY_BYTES: usize = 96;
        self.bytes += batch.get_array_memory_size();
        let batch_index = self.batches.len();
        for row in 0..batch.num_rows() {
            let mut key = Vec::new();
            let mut is_null = false;
            for part in &self.keys {
                let Some(column) = batch.columns().get(part.output_index) else { return false };
                is_null = is_null || column.is_null(row);
                if !is_null && !append_cell(column.as_ref(), row, &mut key) {
                    return false;
                }
            }
            if !is_null {
                self.bytes += key.len() + ENTRY_BYTES;
                self.places.entry(key).or_default().push((batch_index, row));
            }
            if self.bytes > self.bytes_max {
                return false;
            }
        }
        self.batches.push(batch);
        true
    }

    /// The `number`-th row for which the keys are the parameters' values; NULL equals nothing.
    pub fn row(&self, parameters: &[Literal], number: usize) -> Option<RecordBatch> {
        let mut key = Vec::new();
        for part in &self.keys {
            append_value(&parameters.get(part.parameter_index)?.value, &mut key)?;
        }
        let (batch, row) = *self.places.get(&key)?.get(number)?;
        Some(self.batches.get(batch)?.slice(row, 1))
    }
}

fn append_integer(value: i64, key: &mut Vec<u8>) {
    key.extend(value.to_le_bytes());
}

fn append_bytes(value: &[u8], key: &mut Vec<u8>) {
    append_integer(value.len() as i64, key);
    key.extend(value);
}

fn append_value(value: &Value, key: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Int(value) => append_integer(*value, key),
        Value::Text(value) => append_bytes(value.as_bytes(), key),
        Value::Bytes(value) => append_bytes(value, key),
        _ => return None,
    }
    Some(())
}

/// Appends a cell that is not NULL as [`append_value`] appends its value; false for another type.
fn append_cell(array: &dyn Array, row: usize, key: &mut Vec<u8>) -> bool {
    let any = array.as_any();
    macro_rules! first_of {
        ($($array:ty => $append:expr),* $(,)?) => {
            $(if let Some(array) = any.downcast_ref::<$array>() {
                $append(array.value(row), key);
                return true;
            })*
        };
    }
    first_of!(
        Int16Array => |value: i16, key: &mut Vec<u8>| append_integer(value.into(), key),
        Int32Array => |value: i32, key: &mut Vec<u8>| append_integer(value.into(), key),
        Int64Array => append_integer,
        Date32Array => |value: i32, key: &mut Vec<u8>| append_integer(value.into(), key),
        Time64MicrosecondArray => append_integer,
        TimestampMicrosecondArray => append_integer,
        BinaryViewArray => append_bytes,
        BinaryArray => append_bytes,
        LargeBinaryArray => append_bytes,
        FixedSizeBinaryArray => append_bytes,
    );
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pystachio_plan::{FileSet, ScanColumn, ScanExtent};

    use super::*;

    fn column(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int32)
    }

    fn parameter() -> Expression {
        Expression::Parameter { index: 0, data_type: DataType::Int32 }
    }

    fn plan(filters: Vec<Expression>) -> Plan {
        let scanned = |id: u32| ScanColumn {
            id: ColumnId(id),
            name: format!("c{id}"),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            common: Vec::new(),
        };
        let files = FileSet { paths: Vec::new() };
        let scan = Operator::Scan {
            table: "t".into(),
            files,
            columns: vec![scanned(1), scanned(2)],
            filters,
            extent: ScanExtent::Whole,
        };
        Plan { root: Relation::new(scan, 1.0), outputs: vec![ColumnId(2)] }
    }

    fn is_key() -> Expression {
        Expression::predicate(Function::Equal, vec![column(1), parameter()])
    }

    #[test]
    fn a_scan_whose_parameters_are_keys_is_looked_up_in() {
        let found = LookupPlan::of(&plan(vec![is_key()]), 1).unwrap();
        assert_eq!(found.plan.outputs, [ColumnId(2), ColumnId(1)]);
        let less = Expression::predicate(Function::Less, vec![column(1), parameter()]);
        assert!(LookupPlan::of(&plan(vec![less.clone()]), 1).is_none());
        assert!(LookupPlan::of(&plan(vec![is_key(), less]), 1).is_none());
        assert!(LookupPlan::of(&plan(vec![is_key()]), 2).is_none());
        let quotient =
            Expression::call(Function::Divide, vec![Expression::int32(1), column(2)], DataType::Int32);
        let fails = Expression::predicate(Function::Less, vec![quotient, Expression::int32(1)]);
        assert!(LookupPlan::of(&plan(vec![is_key(), fails]), 1).is_none());
    }

    #[test]
    fn rows_are_found_by_their_keys_and_nulls_are_not() {
        let plan = LookupPlan::of(&plan(vec![is_key()]), 1).unwrap();
        let (_, mut table) = LookupTable::new(plan, 1 << 20);
        let values: Arc<dyn Array> = Arc::new(Int32Array::from(vec![10, 20, 30, 40]));
        let keys: Arc<dyn Array> = Arc::new(Int32Array::from(vec![Some(1), None, Some(2), Some(1)]));
        let batch =
            RecordBatch::try_from_iter_with_nullable([("v", values, true), ("k", keys, true)]).unwrap();
        assert!(table.add(batch));
        let key = |value| [Literal::new(value, DataType::Int32)];
        let value = |number| {
            let row = table.row(&key(Value::Int(1)), number)?;
            Some(row.column(0).as_any().downcast_ref::<Int32Array>()?.value(0))
        };
        assert_eq!((value(0), value(1), value(2)), (Some(10), Some(40), None));
        assert!(table.row(&key(Value::Int(7)), 0).is_none());
        assert!(table.row(&key(Value::Null), 0).is_none());
    }

    #[test]
    fn too_many_rows_are_not_kept() {
        let plan = LookupPlan::of(&plan(vec![is_key()]), 1).unwrap();
        let (_, mut table) = LookupTable::new(plan, 1000);
        let cells: Arc<dyn Array> = Arc::new(Int32Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("v", cells.clone()), ("k", cells)]).unwrap();
        assert!(!table.add(batch));
    }
}
