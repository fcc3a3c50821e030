//! Queries on the emulated device, with memory for all data and for a sixteenth of it and less.
//!
//! - `scan`, `join`, `aggregate`, `sorts.rs`, `windows.rs`, `repeats.rs`: the same rows with any memory, as plain loops compute them
//! - `expressions`: text that comes as codes
//! - `query`, `engine`: devices that are late or fail, concurrent queries, and their statistics
//! - `ranks`: several devices that share a query
//! - `watched.rs`: a device whose calls are counted, and may fail
//!
//! Every table is made of a seed, which is printed.

mod aggregate;
mod engine;
mod expressions;
mod join;
mod query;
mod ranks;
mod repeats;
mod scan;
mod shared;
mod sorts;
mod watched;
mod windows;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    util::display::{ArrayFormatter, FormatOptions},
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use pystachio_engine::{StopFlag, spill::Spilling};
use pystachio_plan::{
    Aggregate, AggregateCall, ColumnContent, ColumnId, DataType, DeviceSettings, EngineChoice, Expression,
    FileSet, JoinKind, Operator, Plan, QueryMetrics, QueryRequest, Relation, Result, ScanColumn, ScanExtent,
    SpillRequest,
};

use self::watched::Watched;
use super::{DeviceEngine, DeviceOptions};
use crate::{
    affinity::Affinity,
    device::{EmulatedPlatform, Platform},
};

/// Memory for everything.
const PLENTY_BYTES: u64 = 1 << 30;
/// Rows of a row group: the least that a scan decodes.
const ROW_GROUP_ROWS: usize = 60;

/// Every kind of join.
const JOIN_KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
    JoinKind::NullAwareAnti,
];

/// Repeatable numbers: xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit.max(1)
    }
}

/// A row of a table: a key that may be NULL, a text that may be, a number that may be, and its own number.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Option<i64>,
    text: Option<String>,
    value: Option<i64>,
    number: i64,
}

/// The parameters of a table.
#[derive(Clone, Copy, Debug)]
struct Shape {
    seed: u64,
    row_count: usize,
    /// Different keys.
    key_count: u64,
    /// Of a hundred rows, those with one and the same key.
    repeated_percent: u64,
    null_percent: u64,
}

impl Shape {
    fn rows(self) -> Vec<Row> {
        let mut random = Random::new(self.seed);
        let mut rows = Vec::with_capacity(self.row_count);
        for number in 0..self.row_count as i64 {
            let key = match random.below(100) {
                chance if chance < self.null_percent => None,
                chance if chance < self.null_percent + self.repeated_percent => Some(7),
                _ => Some(random.below(self.key_count) as i64),
            };
            let word = random.below(200);
            let text = (random.below(10) > 0).then(|| "ä€x".repeat((word % 7) as usize) + &word.to_string());
            let value = (random.below(10) > 0).then(|| random.below(1000) as i64 - 500);
            rows.push(Row { key, text, value, number });
        }
        rows
    }
}

/// A table in a file.
struct Table {
    path: PathBuf,
    rows: Vec<Row>,
    _folder: tempfile::TempDir,
}

impl Table {
    fn new(rows: Vec<Row>) -> Self {
        Self::new_in(std::env::temp_dir(), rows)
    }

    fn new_in(folder: impl AsRef<std::path::Path>, rows: Vec<Row>) -> Self {
        let properties =
            WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build();
        Self::written(folder, rows, properties)
    }

    fn written(folder: impl AsRef<std::path::Path>, rows: Vec<Row>, properties: WriterProperties) -> Self {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = folder.path().join("t.parquet");
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>())),
            ("text", Arc::new(rows.iter().map(|row| row.text.clone()).collect::<StringArray>())),
            ("value", Arc::new(rows.iter().map(|row| row.value).collect::<Int64Array>())),
            ("number", Arc::new(rows.iter().map(|row| Some(row.number)).collect::<Int64Array>())),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        Self { path, rows, _folder: folder }
    }

    fn made(shape: Shape) -> Self {
        Self::new(shape.rows())
    }

    /// Bytes of the rows on the device.
    fn bytes(&self) -> u64 {
        let text: usize = self.rows.iter().flat_map(|row| &row.text).map(String::len).sum();
        (text + self.rows.len() * (8 + 16 + 8 + 8 + 3)) as u64
    }

    /// A scan whose columns have ids from `first` on: key, text, value, number.
    fn scan(&self, first: u32) -> Arc<Relation> {
        self.filtered(first, &[])
    }

    /// The same, of the rows that meet conditions.
    fn filtered(&self, first: u32, conditions: &[Expression]) -> Arc<Relation> {
        self.scanned(first, conditions, false)
    }

    /// The same, optionally without trailing blanks of text.
    fn scanned(&self, first: u32, conditions: &[Expression], trim_blanks: bool) -> Arc<Relation> {
        let column = |(place, (name, data_type)): (u32, (&str, DataType))| ScanColumn {
            id: ColumnId(first + place),
            name: name.to_owned(),
            data_type,
            not_null: false,
            length_max: None,
            trim_blanks: trim_blanks && name == "text",
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        let columns = [
            ("key", DataType::Int64),
            ("text", DataType::Text),
            ("value", DataType::Int64),
            ("number", DataType::Int64),
        ];
        let operator = Operator::Scan {
            table: "t".to_owned(),
            files: FileSet::parquet(vec![self.path.display().to_string()]),
            columns: (0..).zip(columns).map(column).collect(),
            filters: conditions.to_vec(),
            extent: ScanExtent::Whole,
        };
        Relation::new(operator, self.rows.len() as f64)
    }
}

fn int64(id: u32) -> Expression {
    Expression::column(ColumnId(id), DataType::Int64)
}

fn text(id: u32) -> Expression {
    Expression::column(ColumnId(id), DataType::Text)
}

/// An aggregate over all rows of its groups.
fn aggregate_call(
    id: u32,
    function: Aggregate,
    argument: Option<Expression>,
    data_type: DataType,
) -> AggregateCall {
    AggregateCall {
        id: ColumnId(id),
        function,
        argument,
        distinct: false,
        filter: None,
        data_type,
        order: Vec::new(),
    }
}

/// A plan that returns all columns of a relation.
fn plan(root: Arc<Relation>) -> Plan {
    let outputs = root.columns().into_iter().map(|(id, _)| id).collect();
    Plan { root, outputs }
}

/// An engine with its folder for spill files.
struct Fixture {
    engine: Arc<DeviceEngine>,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

/// The result of a query.
#[derive(Debug)]
struct Answer {
    rows: Vec<Vec<String>>,
    metrics: QueryMetrics,
}

/// The counts of all operators together.
fn counter(answer: &Answer, name: &str) -> u64 {
    let all = answer.metrics.operators.iter().flat_map(|operator| &operator.counters);
    all.filter(|(known, _)| known == name).map(|(_, count)| *count).sum()
}

impl Fixture {
    fn new(memory_bytes: u64) -> Self {
        Self::over(Arc::new(EmulatedPlatform::new()), memory_bytes)
    }

    fn over(platform: Arc<dyn Platform>, memory_bytes: u64) -> Self {
        Self::caching(platform, memory_bytes, (0, 0))
    }

    /// With so much for column chunks on the device and on the host.
    fn caching(platform: Arc<dyn Platform>, memory_bytes: u64, cache: (u64, u64)) -> Self {
        Self::adapted(platform, memory_bytes, cache, |engine| engine)
    }

    fn adapted(
        platform: Arc<dyn Platform>,
        memory_bytes: u64,
        (cache_bytes, pinned_cache_bytes): (u64, u64),
        adapt: impl FnOnce(DeviceEngine) -> DeviceEngine,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = DeviceOptions {
            cache_bytes,
            pinned_cache_bytes,
            memory_bytes,
            // Little enough that some spilled rows go on to the file.
            host_bytes: memory_bytes,
            spill: Spilling::to(folder.path()),
            affinity: Affinity::default(),
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let engine = Arc::new(adapt(DeviceEngine::new(platform, &options)));
        Self { engine, runtime, _folder: folder }
    }

    fn run(&self, plan: Plan) -> Result<Answer> {
        self.run_until(plan, StopFlag::default())
    }

    fn run_until(&self, plan: Plan, stop: StopFlag) -> Result<Answer> {
        self.answer(request(plan), stop)
    }

    fn run_with(&self, plan: Plan, device: DeviceSettings) -> Result<Answer> {
        self.answer(QueryRequest { device, ..request(plan) }, StopFlag::default())
    }

    fn answer(&self, request: QueryRequest, stop: StopFlag) -> Result<Answer> {
        let answer = self.runtime.block_on(async {
            let mut stream = self.engine.run(request, stop).await?;
            let mut rows = Vec::new();
            while let Some(batch) = stream.next_batch().await? {
                rows.extend(batch_rows(&batch));
            }
            Ok(Answer { rows, metrics: stream.metrics() })
        });
        self.wait_idle();
        let (cached_bytes, _) = self.engine.cache_bytes();
        assert_eq!(self.engine.memory().used_bytes(), cached_bytes, "device memory is left over");
        answer
    }

    /// Waits for the threads of answered queries.
    fn wait_idle(&self) {
        while self.engine.query_counts().1 > 0 {
            std::thread::yield_now();
        }
    }
}

fn request(plan: Plan) -> QueryRequest {
    QueryRequest {
        access: pystachio_plan::StoreAccess::default(),
        plan,
        planned_files: Vec::new(),
        parameters: Vec::new(),
        with_metrics: true,
        batch_rows_max: 1000,
        spill: SpillRequest::default(),
        device: DeviceSettings::default(),
        engine: EngineChoice::Device,
        role: 0,
    }
}

fn batch_rows(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    let row = |row: usize| columns.iter().map(|column| column.value(row).to_string()).collect();
    (0..batch.num_rows()).map(row).collect()
}

fn shown<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "NULL".to_owned(), T::to_string)
}

fn shown_row(row: &Row) -> Vec<String> {
    vec![shown(&row.key), shown(&row.text), shown(&row.value), row.number.to_string()]
}

fn nulls() -> Vec<String> {
    vec!["NULL".to_owned(); 4]
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort_unstable();
    rows
}

/// How a plan is checked.
struct Run<'a> {
    /// Fractions of the data to limit memory to, besides memory for all of it.
    parts: &'a [u64],
    in_order: bool,
    context: &'a str,
}

/// Runs a plan with memory for all of the data and for parts of it, and compares with the rows that are expected.
fn check(make: impl Fn() -> Plan, data_bytes: u64, expected: Vec<Vec<String>>, run: Run<'_>) {
    let Run { parts, in_order, context } = run;
    let expected = if in_order { expected } else { sorted(expected) };
    let memories = parts.iter().map(|part| (data_bytes / part, true));
    for (memory_bytes, must_spill) in [(PLENTY_BYTES, false)].into_iter().chain(memories) {
        let context = format!("{context}, memory {memory_bytes} of {data_bytes}");
        let answer =
            Fixture::new(memory_bytes).run(make()).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = if in_order { answer.rows } else { sorted(answer.rows) };
        assert_eq!(found.len(), expected.len(), "{context}");
        if let Some(place) = (0..found.len()).find(|place| found[*place] != expected[*place]) {
            panic!("{context}: row {place} is {:?} and not {:?}", found[place], expected[place]);
        }
        assert!(answer.metrics.memory_peak_bytes <= memory_bytes, "{context}");
        assert!(answer.metrics.memory_peak_bytes > 0, "{context}");
        assert_eq!(answer.metrics.spilled_bytes > 0, must_spill, "{context}");
    }
}
