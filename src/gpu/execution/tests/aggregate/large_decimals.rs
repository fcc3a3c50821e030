//! Plans on the emulated device.

use std::{fs::File, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, Decimal256Array, RecordBatch},
    datatypes::{Decimal256Type, Int64Type, i256},
};
use parquet::arrow::ArrowWriter;
use pystachio_engine::{StopFlag, spill::Spilling};
use pystachio_plan::{
    Aggregate, AggregatePhase, ColumnContent, ColumnId, DataType, DeviceSettings, EngineChoice, Expression,
    FileSet, Function, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Plan, QueryRequest, Relation,
    ScanColumn, ScanExtent, SortKey, SpillRequest, Value,
};

use super::aggregate_call;
use crate::{
    affinity::Affinity,
    device::EmulatedPlatform,
    execution::{DeviceEngine, DeviceOptions},
};

const KEY: u32 = 1;
const VALUE: u32 = 2;
const SUM: u32 = 3;
const COUNT: u32 = 4;
const LEAST: u32 = 5;
const AVERAGE: u32 = 6;
const OTHER_KEY: u32 = 7;

fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

fn key_type() -> DataType {
    decimal(40, 2)
}

fn column(id: u32, data_type: DataType) -> Expression {
    Expression::column(ColumnId(id), data_type)
}

/// A file of decimals, deleted with the table, and a scan of it.
struct DecimalTable {
    scan: Arc<Relation>,
    _folder: tempfile::TempDir,
}

/// A column's id, its precision and scale, and its values.
type DecimalColumn = (u32, (u8, i8), Vec<Option<i128>>);

impl DecimalTable {
    /// A table of columns, each with its id, precision, scale and values.
    fn new(columns: &[DecimalColumn]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let array = |(id, (precision, scale), values): &(u32, (u8, i8), Vec<Option<i128>>)| {
            let values: Decimal256Array = values.iter().map(|value| value.map(i256::from)).collect();
            let values = values.with_precision_and_scale(*precision, *scale).unwrap();
            (format!("c{id}"), Arc::new(values) as ArrayRef)
        };
        let batch = RecordBatch::try_from_iter(columns.iter().map(array)).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let column = |(id, (precision, scale), _): &(u32, (u8, i8), Vec<Option<i128>>)| ScanColumn {
            id: ColumnId(*id),
            name: format!("c{id}"),
            data_type: decimal(*precision, *scale as u8),
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        let operator = Operator::Scan {
            table: "t".to_owned(),
            files: FileSet::parquet(vec![path.display().to_string()]),
            columns: columns.iter().map(column).collect(),
            filters: Vec::new(),
            extent: ScanExtent::Whole,
        };
        Self { scan: Relation::new(operator, batch.num_rows() as f64), _folder: folder }
    }
}

/// Rows of a key of 40 digits and a value of 38.
fn values(rows: &[(Option<i128>, Option<i128>)]) -> DecimalTable {
    let (keys, values) = rows.iter().copied().unzip();
    DecimalTable::new(&[(KEY, (40, 2), keys), (VALUE, (38, 2), values)])
}

/// The rows of several relations: a chunk each.
fn union(inputs: &[DecimalTable]) -> Arc<Relation> {
    let columns = vec![(ColumnId(KEY), key_type()), (ColumnId(VALUE), decimal(38, 2))];
    let inputs =
        inputs.iter().map(|input| (input.scan.clone(), vec![ColumnId(KEY), ColumnId(VALUE)])).collect();
    Relation::new(Operator::UnionAll { inputs, columns }, 10.0)
}

fn run(root: Arc<Relation>, outputs: &[u32]) -> Vec<arrow::array::RecordBatch> {
    let options = DeviceOptions {
        affinity: Affinity::default(),
        memory_bytes: 1 << 28,
        cache_bytes: 0,
        pinned_cache_bytes: 0,
        host_bytes: 0,
        spill: Spilling::to(&std::env::temp_dir()),
    };
    let engine = DeviceEngine::new(Arc::new(EmulatedPlatform::new()), &options);
    let plan = Plan { root, outputs: outputs.iter().map(|id| ColumnId(*id)).collect() };
    let request = QueryRequest {
        access: pystachio_plan::StoreAccess::default(),
        plan,
        planned_files: Vec::new(),
        parameters: Vec::new(),
        with_metrics: false,
        batch_rows_max: 1000,
        spill: SpillRequest::default(),
        device: DeviceSettings::default(),
        engine: EngineChoice::Device,
        role: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut stream = engine.run(request, StopFlag::default()).await.unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = stream.next_batch().await.unwrap() {
            batches.push(batch);
        }
        batches
    })
}

#[test]
fn averages_of_wide_decimals_by_a_large_key_are_merged_over_chunks() {
    let (wide, large) = (10_i128.pow(38) - 1, i128::MAX);
    let chunks = vec![
        values(&[(Some(large), Some(wide)), (None, Some(5)), (Some(7), None)]),
        values(&[(Some(large), Some(wide)), (Some(-large), Some(-wide)), (None, Some(7))]),
        values(&[(Some(large), Some(wide)), (Some(-large), Some(-wide)), (Some(7), None)]),
    ];
    let value = || Some(column(VALUE, decimal(38, 2)));
    let aggregates = vec![
        aggregate_call(SUM, Aggregate::Sum, value(), decimal(76, 2)),
        aggregate_call(COUNT, Aggregate::Count, value(), DataType::Int64),
        aggregate_call(LEAST, Aggregate::Min, value(), decimal(38, 2)),
    ];
    let groups = vec![NamedExpression { id: ColumnId(KEY), expression: column(KEY, key_type()) }];
    let grouped = Relation::new(
        Operator::Aggregate { input: union(&chunks), groups, aggregates, phase: AggregatePhase::Whole },
        4.0,
    );
    let count = Expression::call(Function::Cast, vec![column(COUNT, DataType::Int64)], decimal(13, 0));
    let is_counted = Expression::predicate(
        Function::Greater,
        vec![column(COUNT, DataType::Int64), Expression::literal(Value::Int(0), DataType::Int64)],
    );
    let counted = Relation::new(Operator::Filter { input: grouped, predicate: is_counted }, 3.0);
    let division = vec![column(SUM, decimal(76, 2)), count, Expression::int32(20)];
    let average = Expression::call(Function::DivideDecimal, division, decimal(76, 36));
    let same = |id, data_type| NamedExpression { id: ColumnId(id), expression: column(id, data_type) };
    let expressions = vec![
        same(KEY, key_type()),
        same(SUM, decimal(76, 2)),
        same(COUNT, DataType::Int64),
        NamedExpression { id: ColumnId(AVERAGE), expression: average },
    ];
    let averaged = Relation::new(Operator::Project { input: counted, expressions }, 3.0);
    let keys =
        vec![SortKey { expression: column(AVERAGE, decimal(76, 36)), descending: true, nulls_first: false }];
    let sorted = Relation::new(Operator::Sort { input: averaged, keys }, 3.0);
    let batches = run(sorted, &[KEY, SUM, COUNT, AVERAGE]);
    let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
    let decimals = |index: usize| {
        batch.column(index).as_primitive::<Decimal256Type>().iter().collect::<Vec<Option<i256>>>()
    };
    let number = |value: i128| Some(i256::from(value));
    let times = |value: i128, factor: i128| number(value).and_then(|value| value.checked_mul(factor.into()));
    assert_eq!(decimals(0), [number(large), None, number(-large)]);
    assert_eq!(decimals(1), [times(wide, 3), number(12), times(wide, -2)]);
    let counts: Vec<i64> = batch.column(2).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(counts, [3, 2, 2]);
    let unit = 10_i128.pow(34);
    assert_eq!(decimals(3), [times(wide, unit), times(6, unit), times(wide, -unit)]);
}

#[test]
fn keys_of_more_than_38_digits_are_joined_by_value() {
    let left = values(&[(Some(250), Some(1)), (Some(i128::MAX), Some(2)), (None, Some(3))]);
    // 2.5 at another scale, and a number of fewer digits.
    let right = DecimalTable::new(&[(OTHER_KEY, (20, 3), vec![Some(2_500), Some(1), Some(2_500)])]);
    let keys = vec![JoinKey { left: column(KEY, key_type()), right: column(OTHER_KEY, decimal(20, 3)) }];
    let joined = Operator::Join {
        kind: JoinKind::Inner,
        left: left.scan.clone(),
        right: right.scan.clone(),
        keys,
        residual: None,
        build: JoinSide::Right,
    };
    let batches = run(Relation::new(joined, 2.0), &[KEY, VALUE]);
    let rows: Vec<Option<i256>> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Decimal256Type>().iter().collect::<Vec<_>>())
        .collect();
    assert_eq!(rows, [Some(i256::from(250)), Some(i256::from(250))]);
}
