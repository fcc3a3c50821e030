//! Plans over small Parquet files, run by the whole engine.

mod actual_rows;
mod aggregates;
mod cache;
mod collections;
mod conversions;
mod empty_groups;
mod faults;
mod forms;
mod joins;
mod memory;
mod mutants;
mod orders;
mod page_headers;
mod page_indexes;
mod scarce_scans;
mod semi;
mod shared;
mod statistics;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    util::display::{ArrayFormatter, FormatOptions},
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use pystachio_engine::{Engine, StopFlag, spill::Spilling};
use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, ColumnContent, ColumnId, DataType, DescribeExtent,
    DeviceSettings, EngineChoice, Error, Expression, FileSet, Function, Literal, NamedExpression, Operator,
    Plan, QueryMetrics, QueryRequest, Relation, ScanColumn, ScanExtent, SpillRequest, StoreAccess,
    TableDescription, Value,
};
use tempfile::TempDir;

use crate::{
    CpuEngine, CpuOptions,
    lowering::PlanForm,
    spill::{OperatorFiles, tests::FullDisk},
};

/// An engine and a folder of files for it.
struct Fixture {
    folder: TempDir,
    engine: CpuEngine,
    /// Whether each query is run with operators that spill too, for the same rows.
    in_both_forms: bool,
}

/// What a query gave.
struct Answer {
    rows: Vec<Vec<String>>,
    metrics: QueryMetrics,
}

impl Fixture {
    /// With the column cache on.
    fn new() -> Self {
        Self { in_both_forms: true, ..Self::with_memory(1 << 30, 64 << 20) }
    }

    fn with_memory(memory_bytes: u64, cache_bytes: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let engine = CpuEngine::new(options(&folder, memory_bytes, cache_bytes)).unwrap();
        Self { folder, engine, in_both_forms: false }
    }

    /// With one thread, and so with one partition: which row groups are read depends on no other.
    fn with_one_thread() -> Self {
        let folder = TempDir::new().unwrap();
        let options = CpuOptions { threads: 1, ..options(&folder, 1 << 30, 64 << 20) };
        Self { engine: CpuEngine::new(options).unwrap(), folder, in_both_forms: false }
    }

    /// Nothing can be written where queries spill to.
    fn with_full_disk(memory_bytes: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let engine = CpuEngine::with_spill_files(options(&folder, memory_bytes, 0), |spill| {
            Arc::new(FullDisk(OperatorFiles::new(spill)))
        });
        let engine = engine.unwrap();
        Self { folder, engine, in_both_forms: false }
    }

    /// Describes a table of one file.
    async fn describe(&self, path: &Path) -> Result<TableDescription, Error> {
        let files = FileSet::parquet(vec![path.display().to_string()]);
        let request = (&StoreAccess::default(), &StopFlag::default());
        self.engine.describe(&files, DescribeExtent::All, request).await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.parquet"))
    }

    /// Writes a table in row groups of `row_group_rows`.
    fn write(&self, name: &str, columns: Vec<(&str, ArrayRef)>, row_group_rows: usize) -> PathBuf {
        let path = self.path(name);
        write_file(&path, columns, row_group_rows);
        path
    }

    async fn run(&self, root: Arc<Relation>, outputs: &[u32]) -> Result<Answer, Error> {
        self.run_with(root, outputs, Vec::new()).await
    }

    fn request(&self, root: Arc<Relation>, outputs: &[u32]) -> QueryRequest {
        let plan = Plan { root, outputs: outputs.iter().copied().map(ColumnId).collect() };
        QueryRequest {
            access: pystachio_plan::StoreAccess::default(),
            plan: pystachio_plan::prune_columns(&plan),
            planned_files: Vec::new(),
            parameters: Vec::new(),
            with_metrics: true,
            batch_rows_max: 1000,
            spill: SpillRequest::default(),
            device: DeviceSettings::default(),
            engine: EngineChoice::Cpu,
            role: 0,
        }
    }

    async fn run_with(
        &self,
        root: Arc<Relation>,
        outputs: &[u32],
        parameters: Vec<Literal>,
    ) -> Result<Answer, Error> {
        let request = QueryRequest { parameters, ..self.request(root, outputs) };
        let answer = self.run_in_form(request.clone(), PlanForm::Fast).await?;
        if self.in_both_forms {
            let again = self.run_in_form(request, PlanForm::Spilling).await.unwrap();
            assert_eq!(again.sorted(), answer.sorted(), "operators that spill give other rows");
        }
        Ok(answer)
    }

    async fn run_in_form(&self, request: QueryRequest, form: PlanForm) -> Result<Answer, Error> {
        let mut stream = self.engine.run_in_form(request, Vec::new(), StopFlag::default(), form).await?;
        let schema = stream.schema();
        let mut rows = Vec::new();
        while let Some(batch) = stream.next_batch().await? {
            assert_eq!(batch.schema(), schema);
            assert!((1..=1000).contains(&batch.num_rows()));
            rows.extend(batch_rows(&batch));
        }
        let metrics = stream.metrics();
        assert_eq!(metrics.row_count as usize, rows.len());
        Ok(Answer { rows, metrics })
    }
}

fn options(folder: &TempDir, memory_bytes: u64, cache_bytes: u64) -> CpuOptions {
    let spill = folder.path().join("spill");
    std::fs::create_dir_all(&spill).unwrap();
    let spill = Spilling::to(&spill);
    CpuOptions { threads: 2, memory_bytes, cache_bytes, rank_count: 1, spill }
}

impl Answer {
    /// The rows without their order, a line each.
    fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.sort();
        lines
    }

    fn lines(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.join("|")).collect()
    }
}

fn write_file(path: &Path, columns: Vec<(&str, ArrayRef)>, row_group_rows: usize) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(row_group_rows)).build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn batch_rows(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::new().with_null("NULL");
    let formatters: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| formatters.iter().map(|formatter| formatter.value(row).to_string()).collect())
        .collect()
}

fn int64s(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn scan_column(id: u32, name: &str, data_type: DataType) -> ScanColumn {
    ScanColumn {
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
    }
}

fn scan(path: &Path, columns: &[(u32, &str, DataType)]) -> Arc<Relation> {
    let columns =
        columns.iter().map(|(id, name, data_type)| scan_column(*id, name, data_type.clone())).collect();
    scan_declared(path, columns, Vec::new())
}

fn scan_declared(path: &Path, columns: Vec<ScanColumn>, filters: Vec<Expression>) -> Arc<Relation> {
    let files = FileSet::parquet(vec![path.to_str().unwrap().to_owned()]);
    Relation::new(
        Operator::Scan { table: "t".to_owned(), files, columns, filters, extent: ScanExtent::Whole },
        1000.0,
    )
}

fn column(id: u32) -> Expression {
    Expression::column(ColumnId(id), DataType::Int64)
}

fn int(value: i64) -> Expression {
    Expression::literal(Value::Int(value), DataType::Int64)
}

fn compare(function: Function, left: Expression, right: Expression) -> Expression {
    Expression::predicate(function, vec![left, right])
}

fn named(id: u32, expression: Expression) -> NamedExpression {
    NamedExpression { id: ColumnId(id), expression }
}

fn call(id: u32, function: Aggregate, argument: Option<Expression>, data_type: DataType) -> AggregateCall {
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
