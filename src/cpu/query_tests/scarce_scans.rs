//! Scans whose partitions together need more memory than there is.

use std::collections::BTreeSet;

use super::*;
use crate::{
    cache::ColumnCache,
    datafusion::{
        error::Result as DataFusionResult,
        execution::{
            SendableRecordBatchStream, TaskContext, memory_pool::MemoryPool, runtime_env::RuntimeEnvBuilder,
        },
        logical_expr::Operator as Comparison,
        physical_expr::{
            PhysicalExpr,
            expressions::{BinaryExpr, Column, lit},
        },
        physical_plan::ExecutionPlan,
    },
    error::from_datafusion,
    metrics::QueryPool,
    pool::{EnginePool, PoolFiles},
    scan::{RowGroupScanExec, ScanContext, ScanRequest},
};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::StreamExt;
use parquet::basic::Compression;
use pystachio_files::{FileCatalog, QueryFiles, ScanConditions};
use pystachio_plan::ErrorKind;

const PARTITIONS: usize = 4;
const ROW_GROUPS: usize = 8;

/// A table of numbers from 0 on, of their places in their row groups, and of texts.
fn write_table(path: &Path, row_group_rows: usize, text: impl Fn(usize) -> String) {
    let rows = 0..ROW_GROUPS * row_group_rows;
    let numbers: Vec<_> = rows.clone().map(|row| Some(row as i64)).collect();
    let places: Vec<_> = rows.clone().map(|row| Some((row % row_group_rows) as i64)).collect();
    let words: Vec<String> = rows.map(|row| text(row % row_group_rows)).collect();
    let words: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
    let columns = [("v", int64s(&numbers)), ("k", int64s(&places)), ("w", texts(&words))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group_rows))
        .set_compression(Compression::SNAPPY)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Rows of a row group of [`write_noise`].
const NOISE_ROWS: usize = 40_000;
/// A partition that reads one batch by batch holds some 11 MB, of which 7 MB are what it reads. One whose texts are decoded
/// whole needs 14 MB.
const NOISE_MEMORY_BYTES: usize = 13 << 20;

/// Row groups that do not become smaller by compression.
fn write_noise(path: &Path) {
    let noise = |row: usize| {
        let mut state = row as u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        };
        (0..10).map(|_| format!("{:016x}", next())).collect()
    };
    write_table(path, NOISE_ROWS, noise);
}

/// A scan of such a table in [`PARTITIONS`] partitions, and the memory for it.
struct ScarceScan {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    pool: Arc<dyn MemoryPool>,
    cache: Arc<ColumnCache>,
    /// What the footers take that the plan holds.
    footer_bytes: usize,
}

impl ScarceScan {
    /// The rows whose place in their row group is `first_place` or greater.
    fn new(path: &Path, memory_bytes: usize, cache_bytes: usize, first_place: usize) -> Self {
        let filter = (first_place > 0).then(|| place(Comparison::GtEq, first_place));
        Self::with_filter(path, memory_bytes, cache_bytes, filter)
    }

    fn with_filter(
        path: &Path,
        memory_bytes: usize,
        cache_bytes: usize,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> Self {
        let cache = Arc::new(ColumnCache::new(cache_bytes));
        let engine: Arc<dyn MemoryPool> = Arc::new(EnginePool::new(memory_bytes));
        let footers = PoolFiles::footers(&engine, cache.clone());
        let catalog = Arc::new(FileCatalog::new(Arc::new(footers), memory_bytes as u64));
        let files = QueryFiles::new(catalog.clone(), Vec::new());
        let columns = [("v", DataType::Int64), ("k", DataType::Int64), ("w", DataType::Text)];
        let columns: Vec<_> =
            (1..).zip(columns).map(|(id, (name, data_type))| scan_column(id, name, data_type)).collect();
        let request = ScanRequest {
            table: "t",
            files: &FileSet::parquet(vec![path.to_str().unwrap().to_owned()]),
            conditions: ScanConditions { columns: &columns, ..ScanConditions::default() },
            output: &BTreeSet::from([ColumnId(1), ColumnId(3)]),
            estimate_rows: 1000.0,
            with_bounds: false,
        };
        let scans = ScanContext { files, cache: cache.clone(), threads: PARTITIONS };
        let plan = RowGroupScanExec::try_new(&scans, &request, |_| Ok(filter.into_iter().collect())).unwrap();
        let pool = QueryPool::new(engine, cache.clone(), catalog, StopFlag::default());
        let pool: Arc<dyn MemoryPool> = Arc::new(pool);
        let environment = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc().unwrap();
        let context = Arc::new(TaskContext::default().with_runtime(environment));
        let footer_bytes = pool.reserved();
        Self { plan: Arc::new(plan), context, pool, cache, footer_bytes }
    }

    fn streams(&self) -> Vec<SendableRecordBatchStream> {
        assert_eq!(self.plan.properties().partitioning.partition_count(), PARTITIONS);
        (0..PARTITIONS).map(|partition| self.plan.execute(partition, self.context.clone()).unwrap()).collect()
    }

    /// Reads all partitions, a batch of each in turn: the numbers in ascending order.
    async fn read_in_turns(&self) -> DataFusionResult<Vec<i64>> {
        let mut streams = self.streams();
        let mut numbers = Vec::new();
        while !streams.is_empty() {
            let mut unended = Vec::new();
            for mut stream in streams {
                if let Some(batch) = stream.next().await {
                    numbers.extend(numbers_of(&batch?));
                    unended.push(stream);
                }
            }
            streams = unended;
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn bytes_read(&self) -> usize {
        self.plan.metrics().unwrap().sum_by_name("bytes_read").unwrap().as_usize()
    }

    /// No partition has left anything reserved.
    fn assert_released(&self) {
        assert_eq!(self.pool.reserved(), self.footer_bytes + self.cache.used_bytes());
    }
}

/// The place in the row group compared with a number.
fn place(comparison: Comparison, number: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(Arc::new(Column::new("c2", 1)), comparison, lit(number as i64)))
}

fn numbers_of(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// The numbers of rows whose place in their row group is `first_place` or greater.
fn numbers_from(first_place: usize, row_group_rows: usize) -> Vec<i64> {
    let rows = 0..ROW_GROUPS * row_group_rows;
    rows.filter(|row| row % row_group_rows >= first_place).map(|row| row as i64).collect()
}

#[tokio::test]
async fn as_many_partitions_read_as_there_is_memory_for() {
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write_noise(&path);
    let scan = ScarceScan::new(&path, NOISE_MEMORY_BYTES, 0, 0);
    assert_eq!(scan.read_in_turns().await.unwrap(), numbers_from(0, NOISE_ROWS));
    scan.assert_released();
}

#[tokio::test]
async fn chunks_without_memory_are_read_batch_by_batch() {
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write_noise(&path);
    // With a condition texts are needed in the middle of a row group only.
    for first_place in [0, 12_000] {
        let scan = ScarceScan::new(&path, NOISE_MEMORY_BYTES, 2 * NOISE_MEMORY_BYTES, first_place);
        assert_eq!(scan.read_in_turns().await.unwrap(), numbers_from(first_place, NOISE_ROWS));
        scan.assert_released();
    }
}

#[tokio::test]
async fn columns_are_read_from_the_first_row_that_a_condition_leaves() {
    const ROW_GROUP_ROWS: usize = 9 * crate::scan::BATCH_ROWS;
    const MEMORY_BYTES: usize = 1 << 30;
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write_table(&path, ROW_GROUP_ROWS, |place| format!("{place} of a row group"));
    let all = ScarceScan::new(&path, MEMORY_BYTES, 0, 0);
    assert_eq!(all.read_in_turns().await.unwrap(), numbers_from(0, ROW_GROUP_ROWS));
    // Every row is compared, as statistics say nothing of this condition; none is left.
    let never = |place: Arc<dyn PhysicalExpr>| {
        let other = Arc::new(BinaryExpr::new(place, Comparison::Multiply, lit(2_i64)));
        Arc::new(BinaryExpr::new(other, Comparison::Eq, lit(1_i64))) as Arc<dyn PhysicalExpr>
    };
    let none = never(Arc::new(Column::new("c2", 1)));
    let none = ScarceScan::with_filter(&path, MEMORY_BYTES, 0, Some(none));
    assert_eq!(none.read_in_turns().await.unwrap(), [0; 0]);
    assert!(none.bytes_read() > 0 && none.bytes_read() < all.bytes_read() / 2);
    none.assert_released();
    // Batches between those that are read: few are decoded, more are skipped.
    for last_batch in [2, 3, 5, 8] {
        let last = last_batch * crate::scan::BATCH_ROWS + 10;
        let or = |one, other| Arc::new(BinaryExpr::new(one, Comparison::Or, other)) as Arc<dyn PhysicalExpr>;
        let filter = or(place(Comparison::Lt, 10), place(Comparison::Eq, last));
        let scan = ScarceScan::with_filter(&path, MEMORY_BYTES, 0, Some(filter));
        let is_wanted = |number: &i64| {
            let place = *number as usize % ROW_GROUP_ROWS;
            place < 10 || place == last
        };
        let wanted: Vec<i64> = numbers_from(0, ROW_GROUP_ROWS).into_iter().filter(is_wanted).collect();
        assert_eq!(scan.read_in_turns().await.unwrap(), wanted);
        scan.assert_released();
    }
}

#[tokio::test]
async fn what_is_left_of_a_row_group_is_read_by_others() {
    const ROW_GROUP_ROWS: usize = 60_000;
    const FIRST_LONG: usize = 7 * crate::scan::BATCH_ROWS;
    let fixture = Fixture::new();
    let path = fixture.path("t");
    let text = |place: usize| match place {
        0..FIRST_LONG => String::new(),
        _ => format!("{place} {}", "x".repeat(2000)),
    };
    write_table(&path, ROW_GROUP_ROWS, text);
    let roomy = ScarceScan::new(&path, 1 << 30, 0, 0);
    assert_eq!(roomy.read_in_turns().await.unwrap(), numbers_from(0, ROW_GROUP_ROWS));
    // There is memory for two at the beginning, and for one at the end.
    let scan = ScarceScan::new(&path, 13 << 20, 0, 0);
    assert_eq!(scan.read_in_turns().await.unwrap(), numbers_from(0, ROW_GROUP_ROWS));
    assert!(scan.bytes_read() > roomy.bytes_read());
    scan.assert_released();
}

#[tokio::test]
async fn a_limit_counts_rows_of_what_was_given_back() {
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write_noise(&path);
    let mut scan = ScarceScan::new(&path, NOISE_MEMORY_BYTES, 0, 0);
    scan.plan = scan.plan.with_fetch(Some(70_001)).unwrap();
    let numbers = scan.read_in_turns().await.unwrap();
    assert_eq!(numbers.len(), 70_001);
    assert_eq!(BTreeSet::from_iter(numbers).len(), 70_001);
}

#[tokio::test]
async fn a_partition_that_is_alone_without_memory_is_an_error() {
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write_noise(&path);
    for cache_bytes in [0, 2 << 20] {
        let scan = ScarceScan::new(&path, 2 << 20, cache_bytes, 0);
        let error = from_datafusion(&scan.read_in_turns().await.unwrap_err());
        assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
        assert!(
            error.detail.as_ref().is_some_and(|detail| detail.contains("what a scan reads")),
            "{error:?}"
        );
        scan.assert_released();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn partitions_that_are_refused_at_once_lose_no_row() {
    let fixture = Fixture::new();
    let path = fixture.path("t");
    write_noise(&path);
    for round in 0..24 {
        let cache_bytes = if round % 2 == 0 { 0 } else { 2 * NOISE_MEMORY_BYTES };
        let scan = ScarceScan::new(&path, NOISE_MEMORY_BYTES, cache_bytes, 0);
        let partitions = scan.streams().into_iter().map(|mut stream| {
            tokio::spawn(async move {
                let mut numbers = Vec::new();
                while let Some(batch) = stream.next().await {
                    numbers.extend(numbers_of(&batch.unwrap()));
                }
                numbers
            })
        });
        let mut numbers: Vec<i64> = Vec::new();
        for partition in futures::future::join_all(partitions).await {
            numbers.extend(partition.unwrap());
        }
        numbers.sort_unstable();
        assert_eq!(numbers, numbers_from(0, NOISE_ROWS));
        scan.assert_released();
    }
}
