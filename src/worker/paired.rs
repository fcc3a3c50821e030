//! A device's engine, of one rank or several, beside the CPU engine.
//!
//! The CPU engine describes, samples and writes files. It runs the queries that it is expected to
//! run faster (`choice.rs`), and those that the device's engine refuses. A query changes engines
//! only before its first row, so all rows come from one engine.
//!
//! If the device has no kernel for a part of a query, the query may be divided (`divided.rs`): the
//! device computes the parts that have kernels, and the CPU engine the operators above. That
//! happens if it is expected to be faster than the CPU engine alone.
//!
//! Invariants: a query's metrics say which engine ran it, and why.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_cpu::CpuEngine;
use pystachio_engine::{Engine, ResultStream, RowWriter, StopFlag, WriteProgress};
use pystachio_files::{FileIdentity, ScanSize};
use pystachio_gpu::execution::RankedEngine;
use pystachio_plan::{
    CacheEntry, CatalogView, DescribeExtent, EngineChoice, EngineEstimates, EngineStatus, Error, ErrorKind,
    FileSet, GenerateRequest, OptimizeRequest, OptimizedColumn, QueryMetrics, QueryRequest, QueryTimeline,
    Relation, Result, SampleRequest, StoreAccess, StoreName, TableDescription, WriteRequest,
};

use crate::{
    RankWatch,
    choice::{Resources, Times, expected_time_divided, expected_times},
    divided::{device_parts, first_rows, given_part},
    machine::MachineTimes,
};

/// The name of the CPU engine in metrics.
const CPU_NAME: &str = "cpu";

/// A device's engine, or why there is none, and the CPU engine.
pub struct PairedEngine {
    device_name: &'static str,
    device: Result<Arc<RankedEngine>>,
    cpu: CpuEngine,
    /// The processes of other ranks, if there are any.
    ranks: Option<Arc<RankWatch>>,
    times: MachineTimes,
}

/// The choice of an engine for a query, and the expected times if they decided it.
struct Decision {
    is_device: bool,
    expected: Option<Expectation>,
}

/// What scans have to read, and how long a query takes with it.
struct Expectation {
    sizes: Vec<ScanSize>,
    resources: Resources,
    times: Times,
}

impl PairedEngine {
    /// `device` is an error if the options ask for a device that is missing. Every query then fails with it. The ranks share the
    /// CPU engine's catalog, so each engine finds the footers that the other has read.
    pub fn new(device_name: &'static str, device: Result<RankedEngine>, cpu: CpuEngine) -> Self {
        Self { device_name, device: device.map(Arc::new), cpu, ranks: None, times: MachineTimes::REFERENCE }
    }

    /// Measures how fast the machine is, if its device is real.
    pub fn measured(mut self) -> Self {
        if let ("cuda", Ok(device)) = (self.device_name, &self.device) {
            self.times = MachineTimes::measure(device.first().memory());
        }
        self
    }

    /// Adds the processes of the other ranks, whose state is reported too.
    pub fn with_ranks(self, ranks: Option<Arc<RankWatch>>) -> Self {
        Self { ranks, ..self }
    }

    async fn decide(&self, request: &QueryRequest, stop: &StopFlag) -> Decision {
        let device_overhead_us = match request.engine {
            EngineChoice::Cpu => return Decision { is_device: false, expected: None },
            EngineChoice::Device => return Decision { is_device: true, expected: None },
            EngineChoice::Auto { device_overhead_us } => device_overhead_us,
        };
        // The engine that runs the query reports errors of the files.
        let Ok(sizes) = self.scan_sizes(request, stop).await else {
            return Decision { is_device: true, expected: None };
        };
        let resources = self.resources(device_overhead_us);
        let times = expected_times(&request.plan, &sizes, &resources);
        let is_device = times.device_us <= times.cpu_us;
        Decision { is_device, expected: Some(Expectation { sizes, resources, times }) }
    }

    fn estimates(&self, expected: Option<&Expectation>) -> Option<EngineEstimates> {
        expected.map(|Expectation { times, .. }| EngineEstimates {
            cpu_us: times.cpu_us as u64,
            device_us: times.device_us as u64,
            device: self.device_name.to_owned(),
        })
    }

    /// How much each scan has to read. A device of several ranks has as much on each as on the first.
    async fn scan_sizes(&self, request: &QueryRequest, stop: &StopFlag) -> Result<Vec<ScanSize>> {
        let device = self.device.as_ref().ok().cloned();
        let held = move |file: &FileIdentity, leaf: usize| {
            device.as_ref().map_or(0, |device| device.first().cached_chunks(file, leaf) * device.rank_count())
        };
        self.cpu.scan_sizes(request, stop, held).await
    }

    fn resources(&self, device_overhead_us: u32) -> Resources {
        Resources {
            threads: self.cpu.threads(),
            device_overhead_us,
            cpu_cache_bytes: self.cpu.status().cache_max_bytes,
            device_cache_bytes: self.device.as_ref().map_or(0, |device| device.first().cache_bytes().1),
            times: self.times,
        }
    }

    /// The parts of a refused query that the device is to compute for the CPU engine; empty if it is to compute none.
    async fn parts_of_device(
        &self,
        device: &Arc<RankedEngine>,
        (request, expected): (&QueryRequest, Option<&Expectation>),
        stop: &StopFlag,
    ) -> Vec<Arc<Relation>> {
        let (asked, flag, engine) = (request.clone(), stop.clone(), device.clone());
        let parts = tokio::task::spawn_blocking(move || device_parts(engine.first(), &asked, &flag)).await;
        let parts = parts.unwrap_or_default();
        if !matches!(request.engine, EngineChoice::Auto { .. }) {
            return parts;
        }
        let Some(Expectation { sizes, resources, times }) = expected else { return Vec::new() };
        let addresses = parts.iter().map(|part| Arc::as_ptr(part) as usize).collect();
        let divided_us = expected_time_divided(&request.plan, sizes, resources, &addresses);
        if divided_us < times.cpu_us { parts } else { Vec::new() }
    }

    /// Runs a query that the device has refused: on both engines, or on the CPU engine alone.
    async fn run_refused(
        &self,
        device: &Arc<RankedEngine>,
        (request, stop): (QueryRequest, StopFlag),
        refusal: &Error,
        expected: Option<&Expectation>,
    ) -> Result<Box<dyn ResultStream>> {
        let estimates = self.estimates(expected);
        if refusal.kind == ErrorKind::NotSupported {
            let parts = self.parts_of_device(device, (&request, expected), &stop).await;
            if !parts.is_empty() {
                tracing::info!(device = self.device_name, parts = parts.len(), reason = %refusal, "query runs on both engines");
                let given = parts.into_iter().map(|part| given_part(device, part, &request, &stop)).collect();
                match first_rows(self.cpu.run_above(request.clone(), given, stop.of_part()).await).await {
                    Ok(stream) => {
                        let device = divided_name(self.device_name, refusal);
                        return Ok(Box::new(NamedStream { stream: Box::new(stream), device, estimates }));
                    }
                    Err(error) if is_refusal(&error) => {
                        tracing::info!(reason = %error, "query runs on the CPU");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        tracing::info!(device = self.device_name, reason = %refusal, "query runs on the CPU");
        stop.account().note_refusal();
        self.run_on_cpu(request, stop, refused_name(refusal), estimates).await
    }

    async fn run_on_cpu(
        &self,
        request: QueryRequest,
        stop: StopFlag,
        device: String,
        estimates: Option<EngineEstimates>,
    ) -> Result<Box<dyn ResultStream>> {
        Ok(Box::new(NamedStream { stream: self.cpu.run(request, stop).await?, device, estimates }))
    }
}

/// Whether the CPU engine may run a query that the device refused.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotSupported | ErrorKind::OutOfMemory)
}

/// The metrics of a query that the CPU engine ran because the device refused it.
fn refused_name(refusal: &Error) -> String {
    format!("{CPU_NAME} ({})", refusal.message)
}

/// The metrics of a query that both engines ran because the device refused some of it.
fn divided_name(device: &str, refusal: &Error) -> String {
    format!("{device}, and {CPU_NAME} above it ({})", refusal.message)
}

#[async_trait]
impl Engine for PairedEngine {
    async fn describe(
        &self,
        files: &FileSet,
        extent: DescribeExtent,
        request: (&StoreAccess, &StopFlag),
    ) -> Result<TableDescription> {
        self.cpu.describe(files, extent, request).await
    }

    async fn identify(&self, files: &FileSet, request: (&StoreAccess, &StopFlag)) -> Result<u64> {
        self.cpu.identify(files, request).await
    }

    async fn names(&self, folder: &str, request: (&StoreAccess, &StopFlag)) -> Result<Vec<StoreName>> {
        self.cpu.names(folder, request).await
    }

    async fn views(
        &self,
        namespace: &[String],
        wants_texts: bool,
        request: (&StoreAccess, &StopFlag),
    ) -> Result<Vec<CatalogView>> {
        self.cpu.views(namespace, wants_texts, request).await
    }

    async fn remove(
        &self,
        paths: Vec<String>,
        request: (&StoreAccess, &StopFlag),
    ) -> Result<Vec<(String, Error)>> {
        self.cpu.remove(paths, request).await
    }

    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        if request.engine == EngineChoice::Cpu {
            return self.run_on_cpu(request, stop, CPU_NAME.to_owned(), None).await;
        }
        let device = self.device.as_ref().map_err(Clone::clone)?;
        let Decision { is_device, expected } = self.decide(&request, &stop).await;
        let estimates = self.estimates(expected.as_ref());
        if !is_device {
            return self.run_on_cpu(request, stop, CPU_NAME.to_owned(), estimates).await;
        }
        match device.run(request.clone(), stop.clone()).await {
            Ok(stream) => {
                let device = self.device_name.to_owned();
                Ok(Box::new(NamedStream { stream, device, estimates }))
            }
            Err(refusal) if is_refusal(&refusal) => {
                self.run_refused(device, (request, stop), &refusal, expected.as_ref()).await
            }
            Err(error) => Err(error),
        }
    }

    async fn preview(&self, request: QueryRequest, stop: StopFlag) -> Result<QueryMetrics> {
        let Decision { is_device, expected } = self.decide(&request, &stop).await;
        let metrics = self.cpu.preview(request.clone(), stop.clone()).await?;
        let mut ranks = None;
        let device = match &self.device {
            Ok(device) if is_device => {
                let (engine, asked, flag) = (device.clone(), request.clone(), stop.clone());
                // Footers may have to be read.
                let preview = tokio::task::spawn_blocking(move || engine.preview(&asked, &flag)).await;
                match preview {
                    Ok(Err(refusal)) if is_refusal(&refusal) => {
                        let asked = (&request, expected.as_ref());
                        match self.parts_of_device(device, asked, &stop).await.is_empty() {
                            true => refused_name(&refusal),
                            false => divided_name(self.device_name, &refusal),
                        }
                    }
                    Ok(Ok(preview)) => {
                        ranks = preview.ranks;
                        self.device_name.to_owned()
                    }
                    _ => self.device_name.to_owned(),
                }
            }
            _ if is_device => self.device_name.to_owned(),
            _ => CPU_NAME.to_owned(),
        };
        Ok(QueryMetrics { device, estimates: self.estimates(expected.as_ref()), ranks, ..metrics })
    }

    async fn sample(&self, request: SampleRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        self.cpu.sample(request, stop).await
    }

    async fn generate(
        &self,
        request: GenerateRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>> {
        self.cpu.generate(request, progress).await
    }

    async fn optimize(
        &self,
        request: OptimizeRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<OptimizedColumn>> {
        self.cpu.optimize(request, progress).await
    }

    async fn begin_write(&self, request: WriteRequest) -> Result<Box<dyn RowWriter>> {
        self.cpu.begin_write(request).await
    }

    async fn cache(&self) -> Vec<CacheEntry> {
        let device = match &self.device {
            Ok(device) => device.cache_entries().await,
            Err(_) => Vec::new(),
        };
        device.into_iter().chain(self.cpu.cache().await).collect()
    }

    async fn timeline(&self) -> Vec<QueryTimeline> {
        match &self.device {
            Ok(device) => device.timelines().await,
            Err(_) => Vec::new(),
        }
    }

    fn status(&self) -> EngineStatus {
        let mut status = EngineStatus { device: self.device_name.to_owned(), ..self.cpu.status() };
        match &self.device {
            Ok(device) => {
                let device = device.first();
                let (run, running) = device.query_counts();
                status.queries_run += run;
                status.queries_running += running;
                status.queries_waiting += device.waiting_count();
                status.device_memory = Some(device.memory_status());
                (status.cache_used_bytes, status.cache_max_bytes) = device.cache_bytes();
                status.storage_paths = device.storage_paths();
            }
            Err(error) => status.last_error = Some(error.message.clone()),
        }
        if let Some(ranks) = &self.ranks {
            let (generation, ranks) = ranks.statuses();
            (status.generation, status.ranks) = (Some(generation), ranks);
        }
        status
    }
}

/// A stream whose metrics name the engine.
struct NamedStream {
    stream: Box<dyn ResultStream>,
    device: String,
    estimates: Option<EngineEstimates>,
}

#[async_trait]
impl ResultStream for NamedStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.stream.next_batch().await
    }

    fn metrics(&self) -> QueryMetrics {
        QueryMetrics {
            device: self.device.clone(),
            estimates: self.estimates.clone(),
            ..self.stream.metrics()
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::{array::AsArray, datatypes::Int64Type};
    use pystachio_cpu::CpuOptions;
    use pystachio_engine::spill::Spilling;
    use pystachio_gpu::{
        affinity::Affinity,
        device::EmulatedPlatform,
        execution::{DeviceEngine, DeviceOptions},
    };
    use pystachio_plan::{
        Aggregate, AggregateCall, AggregatePhase, ColumnContent, ColumnId, DataType, DeviceSettings,
        Expression, Function, JoinKind, JoinSide, NamedExpression, Operator, Plan, ScanColumn, ScanExtent,
        SpillRequest, WindowCall, WindowFrame, WindowFunction,
    };

    use super::*;

    const PATH: &str = "../../regress/data/t1.parquet";
    /// Rows of the file.
    const ROWS: u64 = 120;

    /// Both engines, the device's with so much memory. To be called in a runtime.
    fn paired(folder: &tempfile::TempDir, device_bytes: u64) -> PairedEngine {
        let cpu = CpuOptions {
            threads: 1,
            memory_bytes: 1 << 30,
            cache_bytes: 0,
            rank_count: 1,
            spill: Spilling::to(folder.path()),
        };
        let device = DeviceOptions {
            memory_bytes: device_bytes,
            cache_bytes: 0,
            pinned_cache_bytes: 0,
            host_bytes: 1 << 24,
            spill: Spilling::to(folder.path()),
            affinity: Affinity::default(),
        };
        let cpu = CpuEngine::new(cpu).unwrap();
        let device = DeviceEngine::new(Arc::new(EmulatedPlatform::new()), &device);
        let device = RankedEngine::alone(device.with_catalog(cpu.catalog().clone()));
        PairedEngine::new("emulated", Ok(device), cpu)
    }

    #[tokio::test]
    async fn a_footer_is_read_once_for_both_engines() {
        let folder = tempfile::tempdir().unwrap();
        let paired = paired(&folder, 1 << 24);
        let files = FileSet::parquet(vec![PATH.to_owned()]);
        let request = (&StoreAccess::default(), &StopFlag::default());
        paired.describe(&files, DescribeExtent::All, request).await.unwrap();
        let device = paired.device.as_ref().unwrap();
        let [by_cpu, by_device] = [paired.cpu.catalog(), device.first().catalog()]
            .map(|catalog| catalog.open_all(&files).unwrap().remove(0).footer);
        assert!(Arc::ptr_eq(&by_cpu, &by_device));
    }

    fn int64(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int64)
    }

    /// The file's numbers from 1 on, as a column with this id.
    fn scan(id: u32) -> Arc<Relation> {
        let column = ScanColumn {
            id: ColumnId(id),
            name: "id".to_owned(),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        let operator = Operator::Scan {
            table: "t1".to_owned(),
            files: FileSet::parquet(vec![PATH.to_owned()]),
            columns: vec![column],
            filters: Vec::new(),
            extent: ScanExtent::Whole,
        };
        Relation::new(operator, ROWS as f64)
    }

    /// All combinations of so many rows of the file.
    fn combinations(count: u32) -> Arc<Relation> {
        (1..count).fold(scan(0), |left, id| {
            let rows = left.estimate.rows * ROWS as f64;
            let (keys, residual, build) = (Vec::new(), None, JoinSide::Right);
            let (kind, right) = (JoinKind::Inner, scan(id));
            Relation::new(Operator::Join { kind, left, right, keys, residual, build }, rows)
        })
    }

    /// A function that no kernel computes, of the greatest value of a column.
    fn above(input: Arc<Relation>, column: u32) -> Plan {
        let greatest = AggregateCall {
            id: ColumnId(100),
            function: Aggregate::Max,
            argument: Some(int64(column)),
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let (groups, phase) = (Vec::new(), AggregatePhase::Whole);
        let aggregates = vec![greatest];
        let input = Relation::new(Operator::Aggregate { input, groups, aggregates, phase }, 1.0);
        let arguments = vec![int64(100), int64(100)];
        let expression = Expression::call(Function::GreatestCommonDivisor, arguments, DataType::Int64);
        let expressions = vec![NamedExpression { id: ColumnId(101), expression }];
        let root = Relation::new(Operator::Project { input, expressions }, 1.0);
        Plan { root, outputs: vec![ColumnId(101)] }
    }

    fn request(plan: Plan) -> QueryRequest {
        QueryRequest {
            access: StoreAccess::default(),
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

    /// The one number that a query gives, and what ran it.
    async fn number(paired: &PairedEngine, plan: Plan) -> (i64, String) {
        let mut stream = paired.run(request(plan), StopFlag::default()).await.unwrap();
        let batch = stream.next_batch().await.unwrap().unwrap();
        let column = batch.column(0).as_primitive::<Int64Type>();
        assert_eq!(column.len(), 1);
        let number = column.value(0);
        assert!(stream.next_batch().await.unwrap().is_none());
        (number, stream.metrics().device)
    }

    /// The rows of a relation, numbered without any order: all of them are one partition, which can't be divided.
    fn numbered(input: Arc<Relation>) -> Arc<Relation> {
        let rows = input.estimate.rows;
        let call = WindowCall {
            id: ColumnId(50),
            function: WindowFunction::RowNumber,
            argument: None,
            frame: WindowFrame::whole(),
            data_type: DataType::Int64,
        };
        let (partition, order, calls) = (Vec::new(), Vec::new(), vec![call]);
        Relation::new(Operator::Window { input, partition, order, calls }, rows)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_part_without_device_memory_leaves_the_query_to_the_cpu() {
        let folder = tempfile::tempdir().unwrap();
        let plan = || above(numbered(combinations(3)), 50);
        let all = (ROWS * ROWS * ROWS) as i64;
        let plenty = paired(&folder, 1 << 30);
        let (found, device) = number(&plenty, plan()).await;
        assert_eq!(found, all);
        assert!(device.starts_with("emulated, and cpu above it ("), "{device}");
        let little = paired(&folder, 1 << 24);
        let preview = little.preview(request(plan()), StopFlag::default()).await.unwrap();
        assert!(preview.device.starts_with("emulated, and cpu above it ("), "{}", preview.device);
        let (found, device) = number(&little, plan()).await;
        assert_eq!(found, all);
        assert!(device.starts_with("cpu ("), "{device}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_that_is_stopped_ends_its_part() {
        let folder = tempfile::tempdir().unwrap();
        let paired = Arc::new(paired(&folder, 1 << 28));
        let cast = |id| {
            Expression::call(
                Function::Cast,
                vec![Expression::column(ColumnId(id), DataType::Int32)],
                DataType::Int64,
            )
        };
        // 120 to the fifth: more than the emulated device computes before it is asked to stop.
        let input = combinations(5);
        let rows = input.estimate.rows;
        let expressions = vec![NamedExpression { id: ColumnId(50), expression: cast(0) }];
        let plan = above(Relation::new(Operator::Project { input, expressions }, rows), 50);
        let stop = StopFlag::default();
        let (asked, flag) = (paired.clone(), stop.clone());
        let running = tokio::spawn(async move {
            let mut stream = asked.run(request(plan), flag).await?;
            stream.next_batch().await.map(|_| ())
        });
        let device = || paired.device.as_ref().unwrap().first().query_counts().1;
        let cpu = || paired.cpu.status().queries_running;
        while device() + cpu() < 2 {
            tokio::task::yield_now().await;
        }
        stop.stop();
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Cancelled, "{error}");
        while device() + cpu() > 0 {
            tokio::task::yield_now().await;
        }
        // The engines go on.
        let (found, _) = number(&paired, above(numbered(combinations(2)), 50)).await;
        assert_eq!(found, (ROWS * ROWS) as i64);
    }
}
