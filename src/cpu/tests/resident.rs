//! What queries with aggregates take of the machine's memory, against what they say they take.
//!
//! Each query runs in a process of its own, which is this test started again: what an earlier query took from the system
//! and gave back inside the process would hide what a later one takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
        Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
        TimestampMicrosecondArray,
    },
    datatypes::Schema,
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use pystachio_cpu::{CpuEngine, CpuOptions};
use pystachio_engine::{Engine, StopFlag, spill::Spilling};
use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, ColumnContent, ColumnId, DataType, DeviceSettings,
    EngineChoice, Expression, FileSet, NamedExpression, Operator, Plan, QueryRequest, Relation, ScanColumn,
    ScanExtent, SpillRequest,
};

const CASE: &str = "PYSTACHIO_RESIDENT_CASE";
const FILE: &str = "PYSTACHIO_RESIDENT_FILE";
const ROWS: i64 = 160_000;
/// Groups where they are many; a table of 500 values for each would take more than a gigabyte.
const MANY: i64 = 40_000;
const FEW: i64 = 4;
/// What a query may take beyond its memory: buffers of files, code and stacks that it is the first to touch.
const UNCOUNTED_BYTES: u64 = 96 << 20;
/// What it counts may be this much less than what its allocator takes: tables while they grow, and gaps.
const UNCOUNTED_FACTOR: u64 = 3;

/// The columns of the table, beside the two that are grouped by.
fn arguments() -> Vec<(&'static str, DataType)> {
    vec![
        ("bool", DataType::Bool),
        ("int16", DataType::Int16),
        ("int32", DataType::Int32),
        ("int64", DataType::Int64),
        ("float32", DataType::Float32),
        ("float64", DataType::Float64),
        ("decimal", DataType::Decimal { precision: 15, scale: 2 }),
        ("wide", DataType::Decimal { precision: 30, scale: 2 }),
        ("date", DataType::Date),
        ("timestamp", DataType::Timestamp),
        ("word", DataType::Text),
        ("text", DataType::Text),
        ("bytes", DataType::Bytea),
        ("uuid", DataType::Uuid),
    ]
}

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let values = || (0..ROWS).map(|row| row * 7919 % 3001);
    let text = |value: i64| format!("a text that no view has room for, {value}");
    let uuids = values().map(|value| (value as u128).to_be_bytes());
    let decimal = |precision, scale| {
        let array = Decimal128Array::from_iter_values(values().map(i128::from));
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    vec![
        ("many", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row * 13 % MANY)))),
        ("few", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row % FEW)))),
        ("bool", Arc::new(BooleanArray::from_iter(values().map(|value| Some(value % 2 == 0))))),
        ("int16", Arc::new(Int16Array::from_iter_values(values().map(|value| value as i16)))),
        ("int32", Arc::new(Int32Array::from_iter_values(values().map(|value| value as i32)))),
        ("int64", Arc::new(Int64Array::from_iter_values(values()))),
        ("float32", Arc::new(Float32Array::from_iter_values(values().map(|value| value as f32)))),
        ("float64", Arc::new(Float64Array::from_iter_values(values().map(|value| value as f64)))),
        ("decimal", decimal(15, 2)),
        ("wide", decimal(30, 2)),
        ("date", Arc::new(Date32Array::from_iter_values(values().map(|value| value as i32)))),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from_iter_values(values()))),
        ("word", Arc::new(StringArray::from_iter_values(values().map(|value| value.to_string())))),
        ("text", Arc::new(StringArray::from_iter_values(values().map(text)))),
        ("bytes", Arc::new(BinaryArray::from_iter_values(values().map(|value| text(value).into_bytes())))),
        ("uuid", Arc::new(FixedSizeBinaryArray::try_from_iter(uuids).unwrap())),
    ]
}

fn write(path: &Path) {
    let batch = RecordBatch::try_from_iter(columns()).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(50_000)).build();
    let schema: Arc<Schema> = batch.schema();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// An aggregate of a column, beside `count(*)`.
#[derive(Clone)]
struct Case {
    function: Aggregate,
    distinct: bool,
    argument: &'static str,
    data_type: DataType,
    result: DataType,
}

/// Every aggregate of every type that it takes.
fn cases() -> Vec<Case> {
    use DataType::{Bool, Decimal, Int16, Int32, Int64, Uuid};
    let mut cases = Vec::new();
    for (argument, data_type) in arguments() {
        let mut add = |function, distinct, result: &DataType| {
            let (data_type, result) = (data_type.clone(), result.clone());
            cases.push(Case { function, distinct, argument, data_type, result });
        };
        add(Aggregate::Count, false, &Int64);
        add(Aggregate::Count, true, &Int64);
        add(Aggregate::AnyValue, false, &data_type);
        let sum = match data_type {
            Int16 | Int32 => Some(Int64),
            Int64 => Some(Decimal { precision: 38, scale: 0 }),
            Decimal { scale, .. } => Some(Decimal { precision: 38, scale }),
            _ => None,
        };
        if let Some(sum) = sum {
            add(Aggregate::Sum, false, &sum);
            add(Aggregate::Sum, true, &sum);
        }
        match data_type {
            Bool => {
                add(Aggregate::BoolAnd, false, &Bool);
                add(Aggregate::BoolOr, false, &Bool);
            }
            Uuid => {}
            _ => {
                add(Aggregate::Min, false, &data_type);
                add(Aggregate::Max, false, &data_type);
            }
        }
    }
    cases
}

fn plan(case: &Case, path: &Path, group: Option<&str>, expected: i64) -> Plan {
    let column = |id, name: &str, data_type: DataType| ScanColumn {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    };
    let mut columns = vec![column(2, case.argument, case.data_type.clone())];
    columns.extend(group.map(|name| column(1, name, DataType::Int64)));
    let scan = Operator::Scan {
        table: "t".to_owned(),
        files: FileSet::parquet(vec![path.to_str().unwrap().to_owned()]),
        columns,
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    let call = |id, function, argument, distinct, data_type| AggregateCall {
        id: ColumnId(id),
        function,
        argument,
        distinct,
        filter: None,
        data_type,
        order: Vec::new(),
    };
    let argument = Expression::column(ColumnId(2), case.data_type.clone());
    let groups = group.map(|_| NamedExpression {
        id: ColumnId(1),
        expression: Expression::column(ColumnId(1), DataType::Int64),
    });
    let aggregate = Operator::Aggregate {
        input: Relation::new(scan, ROWS as f64),
        groups: groups.into_iter().collect(),
        aggregates: vec![
            call(3, case.function, Some(argument), case.distinct, case.result.clone()),
            call(4, Aggregate::Count, None, false, DataType::Int64),
        ],
        phase: AggregatePhase::Whole,
    };
    Plan { root: Relation::new(aggregate, expected as f64), outputs: vec![ColumnId(3), ColumnId(4)] }
}

/// A line of `/proc/self/status`, in bytes.
fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kibibytes: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes << 10
}

async fn rows_of(engine: &CpuEngine, plan: Plan) -> (u64, u64) {
    let request = QueryRequest {
        access: pystachio_plan::StoreAccess::default(),
        plan,
        planned_files: Vec::new(),
        parameters: Vec::new(),
        with_metrics: false,
        batch_rows_max: 1000,
        spill: SpillRequest::default(),
        device: DeviceSettings::default(),
        engine: EngineChoice::Cpu,
        role: 0,
    };
    let mut stream = engine.run(request, StopFlag::default()).await.unwrap();
    let mut rows = 0;
    while let Some(batch) = stream.next_batch().await.unwrap() {
        rows += batch.num_rows() as u64;
    }
    (rows, stream.metrics().memory_peak_bytes)
}

/// Runs a case, and holds what the process took against what the query said.
async fn check(Run { case, group, expected }: &Run, path: &Path) {
    let group = *group;
    let spill_directory = path.with_extension(format!("spill{}", std::process::id()));
    std::fs::create_dir_all(&spill_directory).unwrap();
    let options = CpuOptions {
        threads: 2,
        memory_bytes: 1 << 30,
        cache_bytes: 0,
        rank_count: 1,
        spill: Spilling::to(&spill_directory),
    };
    let engine = CpuEngine::new(options).unwrap();
    // Threads, tables of functions and code are there after this.
    let first = Case {
        function: Aggregate::Max,
        distinct: false,
        argument: "int64",
        data_type: DataType::Int64,
        result: DataType::Int64,
    };
    rows_of(&engine, plan(&first, path, Some("few"), FEW)).await;
    let before = status_bytes("VmRSS");
    let (rows, said) = rows_of(&engine, plan(case, path, group, *expected)).await;
    let group_count = match group {
        Some("many") => MANY as u64,
        Some(_) => FEW as u64,
        None => 1,
    };
    assert_eq!(rows, group_count);
    let took = status_bytes("VmHWM").saturating_sub(before);
    assert!(
        took <= UNCOUNTED_FACTOR * said + UNCOUNTED_BYTES,
        "{:?} (distinct {}) of {} by {group:?}, {expected} groups expected, took {} MB and said {} MB",
        case.function,
        case.distinct,
        case.argument,
        took >> 20,
        said >> 20
    );
}

struct Run {
    case: Case,
    group: Option<&'static str>,
    /// Groups that the planner expects, rightly or not.
    expected: i64,
}

/// Every case with many groups, and with few and none those of some types.
fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for case in cases() {
        let mut add = |group, expected| runs.push(Run { case: case.clone(), group, expected });
        add(Some("many"), MANY);
        if case.distinct {
            add(Some("many"), FEW);
        }
        if ["int64", "text", "uuid"].contains(&case.argument) {
            add(Some("few"), FEW);
            add(None, 1);
        }
    }
    runs
}

#[test]
fn aggregates_take_about_the_memory_that_they_count() {
    let runs = runs();
    if let (Ok(number), Some(path)) = (std::env::var(CASE), std::env::var_os(FILE)) {
        let run = &runs[number.parse::<usize>().unwrap()];
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(run, &PathBuf::from(path)));
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("t.parquet");
    write(&path);
    let mut failures = Vec::new();
    for number in 0..runs.len() {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "aggregates_take_about_the_memory_that_they_count", "--nocapture"])
            .env(CASE, number.to_string())
            .env(FILE, &path)
            .output()
            .unwrap();
        if !run.status.success() {
            failures.push(String::from_utf8_lossy(&run.stderr).into_owned());
        }
    }
    assert!(failures.is_empty(), "{} queries failed:\n{}", failures.len(), failures.join("\n"));
}
