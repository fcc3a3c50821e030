//! A scan that PostgreSQL starts for one key after another: it reads the rows of many keys at once,
//! and finds the rows of each key in memory.
//!
//! PostgreSQL runs a correlated subquery that it could not flatten, and the inner side of a nested
//! loop, once for every row around it: `(SELECT name FROM names WHERE names.id = sales.id)`. A heap
//! table has an index for that. An engine would get a query each time, and each query costs a round
//! trip.
//!
//! - Where the keys come from another scan of ours, that scan has the next of them already (see [`super::coming`]). The
//!   rows of these are read, first of a few keys, then of more.
//! - Otherwise the rows of all keys are read after some queries, if they are few enough.
//!
//! Invariants: rows are looked up only if [`by_keys`] can make one plan for many keys of the scan's. They take no more memory
//! than PostgreSQL gives a hash table. If the plan for many keys fails, each key is asked for by itself, and fails where
//! PostgreSQL would.
//!
//! Deliberately absent: scans that are asked again with nothing changed, see [`super::kept_rows`].

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    rc::Rc,
};

use arrow_array::{
    Array, BinaryArray, BinaryViewArray, Date32Array, FixedSizeBinaryArray, Int16Array, Int32Array,
    Int64Array, LargeBinaryArray, RecordBatch, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use pystachio_plan::{Literal, Plan, Value};

use super::by_keys::{KeyValues, KeyedPlan, OutputKey, by_keys};

/// Queries, for one key or for several, before the rows of all are read.
pub const QUERIES_MAX: u32 = 16;
/// Keys of the first query for several. Each further query is for this many times the keys of the one before.
const KEYS_FIRST: usize = 16;
const KEYS_FACTOR: usize = 4;
const KEYS_MAX: usize = 1024;
/// About what a row of a table takes beside its key and its values.
const ENTRY_BYTES: usize = 96;
/// Room for most keys.
const KEY_BYTES: usize = 32;

/// How far a scan that is asked for one key after another is.
pub struct Lookup {
    /// Queries so far: each was for other parameters than the one before.
    pub query_count: u32,
    /// The rows that were read for several keys.
    pub table: Option<LookupTable>,
    /// The key whose rows of the table are given, if the scan has started and they are there.
    pub sought: Option<Sought>,
    /// Keys of the next query for several; 0 if they can't be read together.
    pub keys_max: usize,
    /// Whether the rows of all keys can't be read together.
    pub is_whole_unfit: bool,
}

/// The rows of one key, and how many of them were given.
pub struct Sought {
    /// Its place among the table's keys; `None`: what the plan gives over no rows.
    key: Option<usize>,
    given: usize,
}

/// Some rows of a batch.
pub type BatchRows = (Rc<RecordBatch>, Range<usize>);

/// The values of a key's parameters, by the parameters' numbers, as bytes.
type Key = Vec<u8>;

/// A batch and a row of it.
type RowPlace = (usize, usize);

/// How many rows a table of so many bytes has room for at most.
pub fn rows_max(bytes_max: usize) -> u64 {
    (bytes_max / ENTRY_BYTES) as u64
}

impl Default for Lookup {
    fn default() -> Self {
        Self { query_count: 0, table: None, sought: None, keys_max: KEYS_FIRST, is_whole_unfit: false }
    }
}

impl Lookup {
    /// The rows of several keys were read. The next query is for more.
    pub fn grow(&mut self) {
        self.keys_max = (self.keys_max * KEYS_FACTOR).min(KEYS_MAX);
    }

    /// The rows of several keys were too many. The next query is for fewer.
    pub fn shrink(&mut self) {
        self.keys_max /= KEYS_FACTOR;
        if self.keys_max <= 1 {
            self.keys_max = 0;
        }
    }
}

/// Some keys whose rows are to be read.
#[derive(Default)]
pub struct WantedKeys {
    keys: HashSet<Key>,
    values: KeyValues,
    known: HashSet<(u32, Key)>,
}

impl WantedKeys {
    /// Adds a key, unless its rows are here or it has a NULL, which equals nothing. The parameters are in order.
    pub fn add(&mut self, key: &[(u32, Value)], table: Option<&LookupTable>) {
        let mut bytes = Key::new();
        let is_key = key.iter().all(|(_, value)| append_value(value, &mut bytes).is_some());
        if !is_key || table.is_some_and(|table| table.has(&bytes)) || !self.keys.insert(bytes) {
            return;
        }
        for (parameter, value) in key {
            let mut bytes = Key::new();
            if append_value(value, &mut bytes).is_some() && self.known.insert((*parameter, bytes)) {
                self.values.entry(*parameter).or_default().push(value.clone());
            }
        }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

/// Rows of a scan, by their keys.
pub struct LookupTable {
    /// By their parameters.
    keys: Vec<OutputKey>,
    offset: usize,
    count: usize,
    has_rows_over_nothing: bool,
    /// The parameters' values for which the rows were read; `None` in the place of a key's.
    others: Vec<Option<Literal>>,
    /// The keys whose rows are read.
    wanted: Option<HashSet<Key>>,
    /// The keys whose rows are here; `None`: all.
    covered: Option<HashSet<Key>>,
    rows: Rows,
    /// What the plan gives over no rows, once that was needed.
    over_nothing: Option<Vec<Rc<RecordBatch>>>,
    bytes_max: usize,
}

#[derive(Default)]
struct Rows {
    batches: Vec<Rc<RecordBatch>>,
    /// The keys that have rows, by their places in `of_keys`.
    keys: HashMap<Key, usize>,
    of_keys: Vec<Vec<RowPlace>>,
    bytes: usize,
}

impl LookupTable {
    /// The plan that reads the rows of some keys, or of all, and a table of so many bytes at most, without rows yet. `None` if
    /// they can't be read together.
    pub fn new(
        plan: &Plan,
        is_key: &dyn Fn(u32) -> bool,
        wanted: Option<WantedKeys>,
        parameters: &[Literal],
        bytes_max: usize,
    ) -> Option<(Plan, Self)> {
        let values = wanted.as_ref().map(|wanted| &wanted.values);
        let KeyedPlan { plan, mut keys, offset, count, has_rows_over_nothing } =
            by_keys(plan, is_key, values, parameters)?;
        keys.sort_by_key(|key| key.parameter);
        let is_found = |parameter: u32| keys.iter().any(|key| key.parameter == parameter);
        if values.is_some_and(|values| values.keys().any(|parameter| !is_found(*parameter))) {
            return None;
        }
        let others = (0..).zip(parameters);
        let others = others.map(|(index, literal)| (!is_found(index)).then(|| literal.clone())).collect();
        let limit = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        let table = Self {
            keys,
            offset: limit(offset),
            count: count.map_or(usize::MAX, limit),
            has_rows_over_nothing,
            others,
            covered: wanted.as_ref().map(|_| HashSet::new()),
            wanted: wanted.map(|wanted| wanted.keys),
            rows: Rows::default(),
            over_nothing: None,
            bytes_max,
        };
        Some((plan, table))
    }

    /// Takes over the rows of an earlier table of the same scan, if these leave room for others.
    pub fn take_over(&mut self, earlier: Self) {
        let is_same = self.others == earlier.others && self.keys == earlier.keys;
        if is_same && earlier.covered.is_some() && earlier.rows.bytes < self.bytes_max / 2 {
            self.covered = earlier.covered;
            self.rows = earlier.rows;
            self.over_nothing = earlier.over_nothing;
        }
    }

    /// Adds rows, in their order. False if they are too many, or of a type that is not looked up.
    pub fn add(&mut self, batch: RecordBatch) -> bool {
        self.rows.bytes += batch.get_array_memory_size();
        let batch_index = self.rows.batches.len();
        for row in 0..batch.num_rows() {
            let Ok(key) = self.key_of(&batch, row) else { return false };
            // Keys of several parameters that were not wanted together come too.
            let Some(key) = key.filter(|key| self.wanted.as_ref().is_none_or(|wanted| wanted.contains(key)))
            else {
                continue;
            };
            self.rows.bytes += key.len() + ENTRY_BYTES;
            let next = self.rows.of_keys.len();
            let place = *self.rows.keys.entry(key).or_insert(next);
            if place == next {
                self.rows.of_keys.push(Vec::new());
            }
            self.rows.of_keys[place].push((batch_index, row));
            if self.rows.bytes > self.bytes_max {
                return false;
            }
        }
        self.rows.batches.push(Rc::new(batch));
        true
    }

    /// The key of a row, `None` if it equals none; an error if its type is not looked up.
    fn key_of(&self, batch: &RecordBatch, row: usize) -> Result<Option<Key>, ()> {
        let mut key = Key::new();
        let mut last: Option<(u32, Key)> = None;
        for part in &self.keys {
            let column = batch.columns().get(part.output_index).ok_or(())?;
            if column.is_null(row) {
                return Ok(None);
            }
            let mut cell = Key::new();
            if !append_cell(column.as_ref(), row, &mut cell) {
                return Err(());
            }
            match &last {
                // Two columns that equal one parameter.
                Some((parameter, known)) if *parameter == part.parameter => {
                    if *known != cell {
                        return Ok(None);
                    }
                }
                _ => {
                    key.extend(&cell);
                    last = Some((part.parameter, cell));
                }
            }
        }
        Ok(Some(key))
    }

    /// All rows that were wanted are here.
    pub fn finish(&mut self) {
        if let (Some(covered), Some(wanted)) = (&mut self.covered, self.wanted.take()) {
            covered.extend(wanted);
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.covered.as_ref().is_none_or(|covered| covered.contains(key))
    }

    /// The rows for which the keys are the parameters' values; `None` if they are not here.
    pub fn seek(&self, parameters: &[Literal]) -> Option<Sought> {
        let is_same = self.others.len() == parameters.len()
            && self
                .others
                .iter()
                .zip(parameters)
                .all(|(known, now)| known.as_ref().is_none_or(|known| known == now));
        if !is_same {
            return None;
        }
        let mut key = Key::with_capacity(KEY_BYTES);
        let mut last = None;
        for part in &self.keys {
            if last == Some(part.parameter) {
                continue;
            }
            last = Some(part.parameter);
            let value = &parameters.get(part.parameter as usize)?.value;
            if *value == Value::Null {
                return Some(Sought { key: None, given: 0 });
            }
            append_value(value, &mut key)?;
        }
        // Only rows of keys that are here are kept.
        match self.rows.keys.get(&key) {
            Some(place) => Some(Sought { key: Some(*place), given: 0 }),
            None => self.has(&key).then_some(Sought { key: None, given: 0 }),
        }
    }

    /// Whether what the plan gives over no rows is sought, and not here yet.
    pub fn lacks(&self, sought: &Sought) -> bool {
        sought.key.is_none() && self.has_rows_over_nothing && self.over_nothing.is_none()
    }

    /// The parameters of keys, as they are where no row is looked for.
    pub fn nothing(&self, parameters: &[Literal]) -> Vec<Literal> {
        let of = |(known, now): (&Option<Literal>, &Literal)| match known {
            Some(_) => now.clone(),
            None => Literal::new(Value::Null, now.data_type.clone()),
        };
        self.others.iter().zip(parameters).map(of).collect()
    }

    /// Keeps what the plan gives over no rows.
    pub fn keep_over_nothing(&mut self, batches: Vec<Rc<RecordBatch>>) {
        self.over_nothing = Some(batches);
    }

    /// The next rows that are sought.
    pub fn next_rows(&self, sought: &mut Sought) -> Option<BatchRows> {
        let Some(key) = sought.key else {
            let batch = self.over_nothing.as_ref()?.get(sought.given)?;
            sought.given += 1;
            return Some((batch.clone(), 0..batch.num_rows()));
        };
        let places = self.rows.of_keys.get(key)?.get(self.offset..)?;
        let places = &places[..places.len().min(self.count)];
        let (batch, row) = *places.get(sought.given)?;
        let next = places[sought.given..].iter().zip(row..);
        let length = next.take_while(|(place, row)| **place == (batch, *row)).count();
        sought.given += length;
        Some((self.rows.batches.get(batch)?.clone(), row..row + length))
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

    use pystachio_plan::{
        ColumnContent, ColumnId, DataType, Expression, FileSet, Function, Operator, Relation, ScanColumn,
        ScanExtent,
    };

    use super::*;

    fn plan() -> Plan {
        let scanned = |id: u32| ScanColumn {
            id: ColumnId(id),
            name: format!("c{id}"),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        let parameter = Expression::Parameter { index: 0, data_type: DataType::Int32 };
        let column = Expression::column(ColumnId(1), DataType::Int32);
        let scan = Operator::Scan {
            table: "t".into(),
            files: FileSet::parquet(Vec::new()),
            columns: vec![scanned(1), scanned(2)],
            filters: vec![Expression::predicate(Function::Equal, vec![column, parameter])],
            extent: ScanExtent::Whole,
        };
        Plan { root: Relation::new(scan, 1.0), outputs: vec![ColumnId(2)] }
    }

    fn key(value: Value) -> [Literal; 1] {
        [Literal::new(value, DataType::Int32)]
    }

    fn table(wanted: Option<&[i64]>, bytes_max: usize) -> LookupTable {
        let wanted = wanted.map(|values| {
            let mut wanted = WantedKeys::default();
            values.iter().for_each(|value| wanted.add(&[(0, Value::Int(*value))], None));
            wanted
        });
        LookupTable::new(&plan(), &|_| true, wanted, &key(Value::Null), bytes_max).unwrap().1
    }

    fn batch(cells: &[(i32, Option<i32>)]) -> RecordBatch {
        let values: Arc<dyn Array> = Arc::new(cells.iter().map(|cell| Some(cell.0)).collect::<Int32Array>());
        let keys: Arc<dyn Array> = Arc::new(cells.iter().map(|cell| cell.1).collect::<Int32Array>());
        RecordBatch::try_from_iter_with_nullable([("v", values, true), ("k", keys, true)]).unwrap()
    }

    fn rows(table: &LookupTable, value: Value) -> Option<Vec<i32>> {
        let mut sought = table.seek(&key(value))?;
        let mut found = Vec::new();
        while let Some(rows) = table.next_rows(&mut sought) {
            let (batch, rows) = rows;
            let values = batch.column(0).as_any().downcast_ref::<Int32Array>().unwrap().values();
            found.extend(&values[rows]);
        }
        Some(found)
    }

    #[test]
    fn rows_are_found_by_their_keys_and_nulls_are_not() {
        let mut table = table(None, 1 << 20);
        assert!(table.add(batch(&[(10, Some(1)), (20, None), (30, Some(2)), (40, Some(1)), (50, Some(1))])));
        table.finish();
        assert_eq!(rows(&table, Value::Int(1)), Some(vec![10, 40, 50]));
        assert_eq!(rows(&table, Value::Int(7)), Some(Vec::new()));
        assert_eq!(rows(&table, Value::Null), Some(Vec::new()));
    }

    #[test]
    fn rows_of_some_keys_add_up_and_others_are_not_here() {
        let mut first = table(Some(&[1, 3]), 1 << 20);
        assert!(first.add(batch(&[(10, Some(1)), (20, Some(2))])));
        first.finish();
        assert_eq!(rows(&first, Value::Int(1)), Some(vec![10]));
        assert_eq!(rows(&first, Value::Int(3)), Some(Vec::new()));
        assert_eq!(rows(&first, Value::Int(2)), None);
        let mut wanted = WantedKeys::default();
        [1, 2].into_iter().for_each(|value| wanted.add(&[(0, Value::Int(value))], Some(&first)));
        assert_eq!(wanted.count(), 1);
        let mut second = table(Some(&[2]), 1 << 20);
        second.take_over(first);
        assert!(second.add(batch(&[(30, Some(2))])));
        second.finish();
        assert_eq!(rows(&second, Value::Int(1)), Some(vec![10]));
        assert_eq!(rows(&second, Value::Int(2)), Some(vec![30]));
    }

    #[test]
    fn too_many_rows_are_not_kept() {
        let cells: Vec<_> = (0..1000).map(|cell| (cell, Some(cell))).collect();
        assert!(!table(None, 1000).add(batch(&cells)));
    }
}
