//! A device's engine with the CPU engine beside it.
//!
//! The CPU engine describes, samples and writes files, and runs what no kernel of the device has. A query
//! changes to it only before its first row, so rows come from one engine.
//!
//! Invariants: what a query ran on, and why, is in its metrics.

use std::sync::{Mutex, PoisonError};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_cpu::CpuEngine;
use pystachio_engine::{Engine, ResultStream, StopFlag, WriteProgress, execution::DeviceEngine};
use pystachio_plan::{
    CacheEntry, EngineStatus, Error, ErrorKind, FileSet, GenerateRequest, OptimizeRequest, OptimizedColumn,
    QueryMetrics, QueryRequest, QueryTimeline, Result, SampleRequest, TableDescription,
};

/// A device's engine, or why there is none, and the CPU engine.
pub struct PairedEngine {
    device_name: &'static str,
    device: Result<DeviceEngine>,
    cpu: CpuEngine,
    /// Why the last query that the device refused ran on the CPU.
    last_refusal: Mutex<Option<String>>,
}

impl PairedEngine {
    /// `device` is an error if it was asked for and is not there: queries then fail with it.
    pub fn new(device_name: &'static str, device: Result<DeviceEngine>, cpu: CpuEngine) -> Self {
        Self { device_name, device, cpu, last_refusal: Mutex::new(None) }
    }
}

/// Whether the CPU engine may run what the device refused.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotSupported | ErrorKind::OutOfMemory)
}

#[async_trait]
impl Engine for PairedEngine {
    async fn describe(&self, files: &FileSet) -> Result<TableDescription> {
        self.cpu.describe(files).await
    }

    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        let device = self.device.as_ref().map_err(Clone::clone)?;
        let refusal = match device.run(request.clone(), stop.clone()).await {
            Ok(stream) => return Ok(Box::new(NamedStream { stream, device: self.device_name.to_owned() })),
            Err(error) if is_refusal(&error) => error,
            Err(error) => return Err(error),
        };
        tracing::info!(device = self.device_name, reason = %refusal, "query runs on the CPU");
        let device = format!("cpu ({})", refusal.message);
        *self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal.message);
        Ok(Box::new(NamedStream { stream: self.cpu.run(request, stop).await?, device }))
    }

    async fn preview(&self, request: QueryRequest) -> Result<QueryMetrics> {
        self.cpu.preview(request).await
    }

    async fn sample(&self, request: SampleRequest) -> Result<Box<dyn ResultStream>> {
        self.cpu.sample(request).await
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

    fn cache(&self) -> Vec<CacheEntry> {
        let device = self.device.as_ref().map(DeviceEngine::cache_entries).unwrap_or_default();
        device.into_iter().chain(self.cpu.cache()).collect()
    }

    fn timeline(&self) -> Vec<QueryTimeline> {
        self.device.as_ref().map(DeviceEngine::timelines).unwrap_or_default()
    }

    fn status(&self) -> EngineStatus {
        let mut status = EngineStatus { device: self.device_name.to_owned(), ..self.cpu.status() };
        match &self.device {
            Ok(device) => {
                let (run, running) = device.query_counts();
                status.queries_run += run;
                status.queries_running += running;
                (status.memory_used_bytes, status.memory_max_bytes) = device.memory_bytes();
                (status.cache_used_bytes, status.cache_max_bytes) = device.cache_bytes();
            }
            Err(error) => status.last_error = Some(error.message.clone()),
        }
        status
    }
}

/// A stream whose metrics say what it ran on.
struct NamedStream {
    stream: Box<dyn ResultStream>,
    device: String,
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
        QueryMetrics { device: self.device.clone(), ..self.stream.metrics() }
    }
}
