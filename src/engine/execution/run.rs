//! A query on a thread of its own, and the stream of what it gives.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_plan::{
    ActivityKind, ActualRows, DeviceWork, Error, ErrorKind, QueryMetrics, QueryRequest, Result,
};
use tokio::sync::mpsc;

use super::{QueryContext, compile::compile, timeline::Timelines};
use crate::{
    ResultStream, StopFlag,
    device::{ActivityLog, NotedActivity, device_work},
    operation::{column_schema, to_arrow},
};

/// Batches that wait for the reader.
const BATCHES_AHEAD: usize = 4;

/// What a running query needs.
pub(super) struct Run {
    pub(super) request: QueryRequest,
    /// Everything that the query does on the device goes through its queue.
    pub(super) context: QueryContext,
    /// Where its timeline is put, if one is wanted.
    pub(super) timeline: Option<(Arc<ActivityLog>, Timelines)>,
    /// Dropped when the query ends.
    pub(super) guard: Box<dyn Send>,
}

/// Batches of a query that runs on a thread of its own. Dropping it stops the query.
pub(super) struct DeviceStream {
    schema: SchemaRef,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    /// The first batch, if it is known already.
    first: Option<Result<RecordBatch>>,
    stop: StopFlag,
    metrics: Arc<Mutex<QueryMetrics>>,
}

impl DeviceStream {
    /// Starts a query, and waits for its first batch or its end.
    ///
    /// # Errors
    ///
    /// What the query fails with before it has given a row.
    pub(super) async fn start(run: Run) -> Result<Self> {
        let types = output_types(&run.request)?;
        let schema = column_schema(&types);
        let (sender, mut batches) = mpsc::channel(BATCHES_AHEAD);
        let stop = run.context.stop.clone();
        let metrics = Arc::new(Mutex::new(QueryMetrics::default()));
        let worker = Worker { run, schema: schema.clone(), sender, metrics: metrics.clone() };
        std::thread::Builder::new()
            .name("pystachio-query".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || worker.work())
            .map_err(|error| Error::internal(format!("a thread can't be started: {error}")))?;
        // A stream that is dropped stops its query for good, so there is none before there is a row: the host
        // may run the query elsewhere.
        match batches.recv().await {
            Some(Err(error)) => Err(error),
            first => Ok(Self { schema, batches, first, stop, metrics }),
        }
    }
}

/// Plans are trees that code walks recursively. Address space, not memory.
const THREAD_STACK_BYTES: usize = 64 << 20;

fn output_types(request: &QueryRequest) -> Result<Vec<pystachio_plan::DataType>> {
    let columns = request.plan.root.columns();
    let type_of = |id| {
        let found = columns.iter().find(|(known, _)| *known == id).map(|(_, data_type)| data_type.clone());
        found.ok_or_else(|| Error::internal("a plan returns an unknown column"))
    };
    request.plan.outputs.iter().map(|id| type_of(*id)).collect()
}

impl Drop for DeviceStream {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

#[async_trait]
impl ResultStream for DeviceStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self.first.take() {
            Some(batch) => batch.map(Some),
            None => self.batches.recv().await.transpose(),
        }
    }

    fn metrics(&self) -> QueryMetrics {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The thread's side.
struct Worker {
    run: Run,
    schema: SchemaRef,
    sender: mpsc::Sender<Result<RecordBatch>>,
    metrics: Arc<Mutex<QueryMetrics>>,
}

impl Worker {
    fn work(self) {
        let Self { run: Run { request, mut context, timeline, guard }, schema, sender, metrics } = self;
        let started = Instant::now();
        let watched = timeline.as_ref().map(|(log, timelines)| Watched { log, timelines });
        let output = Output { request: &request, schema, sender: &sender, metrics, started, watched };
        // A panic ends the query, not the process.
        let work = AssertUnwindSafe(|| output.execute(&mut context));
        let result = catch_unwind(work).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Error::internal(format!("the engine failed while it ran the query: {text}")))
        });
        // Readers end.
        drop(context);
        if let Err(error) = result {
            // Nobody is there to hear of a query that was dropped.
            let _ = sender.blocking_send(Err(error));
        }
        drop(guard);
    }
}

/// Where the rows go.
struct Output<'a> {
    request: &'a QueryRequest,
    schema: SchemaRef,
    sender: &'a mpsc::Sender<Result<RecordBatch>>,
    metrics: Arc<Mutex<QueryMetrics>>,
    started: Instant,
    watched: Option<Watched<'a>>,
}

/// Where it is noted what the device does, and where that goes.
struct Watched<'a> {
    log: &'a ActivityLog,
    timelines: &'a Timelines,
}

impl Watched<'_> {
    /// Sums up what was done, and keeps it.
    fn finish(&self, context: &mut QueryContext, elapsed: Duration) {
        let noted = self.log.take();
        let metrics = &mut context.metrics;
        for NotedActivity { operator, activity } in &noted {
            if let Some(operator) = metrics.operators.get_mut(*operator as usize)
                && matches!(activity.kind, ActivityKind::Kernel | ActivityKind::Copy)
            {
                operator.count("gpu_us", activity.elapsed_us);
            }
        }
        let work = device_work(&noted);
        let read_rate_max = self.timelines.note_reading(metrics.bytes_read, work.read_us);
        let memory_max_bytes = context.queue.memory().bytes_max();
        metrics.device_work = Some(DeviceWork { read_rate_max, memory_max_bytes, ..work });
        let activities = noted.into_iter().map(|noted| noted.activity).collect();
        self.timelines.add(context.number, context.role, activities, elapsed);
    }
}

impl Output<'_> {
    fn execute(&self, context: &mut QueryContext) -> Result<()> {
        let result = self.give_rows(context);
        // What came first counts: what follows from a fault may fail in other ways.
        let result = match result {
            Err(error) if !matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Device) => {
                context.check_faults().and(Err(error))
            }
            result => result,
        };
        // An error of this has been heard already, or comes with the last word.
        let ended = context.queue.wait();
        if let Some(watched) = &self.watched {
            watched.finish(context, self.started.elapsed());
        }
        result?;
        ended?;
        self.publish(context);
        Ok(())
    }

    fn give_rows(&self, context: &mut QueryContext) -> Result<()> {
        let request = self.request;
        let mut root = compile(&request.plan, context)?;
        context.metrics.prepare_us = self.started.elapsed().as_micros() as u64;
        context.memory.admit(&context.stop)?;
        let batch_rows = (request.batch_rows_max as usize).max(1);
        while let Some(chunk) = root.next_chunk(context)? {
            if chunk.row_count == 0 {
                continue;
            }
            context.check_faults()?;
            let batch = to_arrow(&context.queue, &chunk, &self.schema)?;
            drop(chunk);
            context.metrics.row_count += batch.num_rows() as u64;
            self.publish(context);
            for first in (0..batch.num_rows()).step_by(batch_rows) {
                let part = batch.slice(first, batch_rows.min(batch.num_rows() - first));
                if self.sender.blocking_send(Ok(part)).is_err() {
                    return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
                }
            }
        }
        // Also of chunks of which no row was left.
        context.check_faults()
    }

    /// Notes what the query has cost so far.
    fn publish(&self, context: &QueryContext) {
        let with_operators = self.request.with_metrics;
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        *metrics = context.metrics.clone();
        if !with_operators {
            metrics.operators.clear();
        }
        metrics.actual_rows = if with_operators { actual_rows(context) } else { Vec::new() };
        metrics.elapsed_us = self.started.elapsed().as_micros() as u64;
        metrics.memory_peak_bytes = context.queue.memory().peak_bytes();
        metrics.spilled_bytes = context.memory.store.written_bytes();
    }
}

/// Rows of the plan's operators: sources are described in the plan's order. A limit stops what is below it; joins
/// drop rows of what they filter.
fn actual_rows(context: &QueryContext) -> Vec<Option<ActualRows>> {
    let mut limit_depth: Option<u32> = None;
    let rows = context.metrics.operators.iter().enumerate().map(|(place, operator)| {
        if limit_depth.is_some_and(|depth| operator.depth <= depth) {
            limit_depth = None;
        }
        let is_reduced = limit_depth.is_some() || context.reduced.contains(place);
        if operator.description == "Limit" && limit_depth.is_none() {
            limit_depth = Some(operator.depth);
        }
        operator.row_count.map(|row_count| ActualRows { row_count, is_reduced })
    });
    rows.collect()
}
