//! A query's result as the host sees it.
//!
//! A task of the engine's runtime drives the query and hands batches over through a short queue, so that
//! the host may poll from any runtime, and a panic anywhere in the query becomes an error. Dropping the
//! stream aborts that task, which drops the operators and with them the tasks and memory they hold; the
//! query's flag ends what is in the middle of a poll.
//!
//! A query that runs out of memory before its first row runs again when it is alone: if it had others beside it as it was,
//! and then with operators that spill (`preparation.rs`). It fails only if these have too little in the engine's
//! whole memory. A query whose client has stopped leaves its place to others (`places.rs`).

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::datafusion::execution::{TaskContext, memory_pool::MemoryReservation};
use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
};
use async_trait::async_trait;
use pystachio_engine::{Meter, ResultStream, StopFlag, from_panic, spill::SpillSpace};
use pystachio_plan::{Error, ErrorKind, QueryMetrics, Result};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use crate::{
    drive::{BatchLayout, HeldBatch, Output, drive},
    lowering::PlanForm,
    metrics::{MeasuredPlan, QueryPool},
    places::Place,
};

/// Batches that wait for the host. The query stops producing when they are not taken.
const QUEUE_BATCHES: usize = 2;
/// How often a query that is to run again looks whether its first run has ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long that is waited for at most. A poll is shorter by far.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// Makes a query from its start.
pub(crate) type Prepare = Arc<dyn Fn(PlanForm) -> Result<RunningQuery> + Send + Sync>;

/// How a query runs. Out of memory, it goes on with a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Beside others.
    First,
    /// Alone, with the same operators.
    Alone,
    /// Alone, with operators that spill.
    Spilling,
}

/// What a running query is.
pub(crate) struct RunningQuery {
    pub(crate) plan: Arc<MeasuredPlan>,
    /// What the plan gives has these columns.
    pub(crate) plan_schema: SchemaRef,
    pub(crate) context: Arc<TaskContext>,
    pub(crate) pool: Arc<QueryPool>,
    pub(crate) output_types: Vec<pystachio_plan::DataType>,
    pub(crate) batch_rows_max: usize,
    pub(crate) batch_bytes_max: usize,
    /// The file for rows when the client has stopped reading.
    pub(crate) spool: Arc<SpillSpace>,
    pub(crate) started: Instant,
    /// Set when the result is not wanted any more.
    pub(crate) stop: StopFlag,
    pub(crate) prepare_us: u64,
    /// The query's meter for monitoring, while the query exists.
    pub(crate) _meter: Arc<dyn Meter>,
    /// Whatever ends with the query.
    pub(crate) _guard: Arc<dyn Send + Sync>,
}

/// The result of a query that runs.
pub(crate) struct QueryStream {
    query: RunningQuery,
    prepare: Prepare,
    attempt: Attempt,
    runtime: Handle,
    schema: SchemaRef,
    run: QueryTask,
    /// The memory of the batch that was given last: it is on its way until the next one is asked for.
    handed: Option<MemoryReservation>,
    row_count: u64,
    elapsed_us: Option<u64>,
}

/// The task that drives a query, and what it gives. Dropping it ends the task.
struct QueryTask {
    batches: mpsc::Receiver<Result<HeldBatch>>,
    task: Option<JoinHandle<Place>>,
    abort: AbortHandle,
}

impl QueryStream {
    /// Starts the query on `runtime`, in the place that it has.
    pub(crate) fn start(query: RunningQuery, place: Place, prepare: Prepare, runtime: &Handle) -> Self {
        let fields: Vec<Field> = query
            .plan_schema
            .fields()
            .iter()
            .zip(&query.output_types)
            .map(|(field, data_type)| Field::new(field.name(), data_type.to_arrow(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let run = QueryTask::start(&query, &schema, place, runtime);
        Self {
            query,
            prepare,
            attempt: Attempt::First,
            runtime: runtime.clone(),
            schema,
            run,
            handed: None,
            row_count: 0,
            elapsed_us: None,
        }
    }

    async fn finish(&mut self) -> Result<Option<Place>> {
        self.elapsed_us = Some(micros(self.query.started));
        self.run.batches.close();
        let Some(task) = self.run.task.take() else { return Ok(None) };
        match task.await {
            Ok(place) => Ok(Some(place)),
            Err(failure) => match failure.try_into_panic() {
                Ok(payload) => Err(from_panic(payload.as_ref())),
                Err(_) => Err(Error::new(ErrorKind::Cancelled, "the query was cancelled")),
            },
        }
    }

    /// Runs the query once more, alone, unless that could make no difference; gives `error` then.
    async fn run_again(&mut self, error: Error) -> Result<()> {
        let place = self.finish().await.unwrap_or_default();
        let is_refused = error.kind == ErrorKind::OutOfMemory && self.row_count == 0;
        let Some(mut place) = place.filter(|_| is_refused) else { return Err(error) };
        let Some(attempt) = self.attempt.next(place.had_company()) else { return Err(error) };
        tracing::info!(reason = %error, ?attempt, "query waits until it can run alone");
        let stop = self.query.stop.clone();
        place.take_alone(&stop).await?;
        let (prepare, before) = (self.prepare.clone(), self.query.pool.clone());
        self.query = run_blocking(&self.runtime, move || prepare(attempt.form())).await?;
        self.attempt = attempt;
        // Tasks of the first run may be in the middle of a poll, and hold memory until its end.
        let waiting = Instant::now();
        while before.is_used() && !stop.is_stopped() && waiting.elapsed() < END_WAIT_MAX {
            tokio::time::sleep(END_POLL_INTERVAL).await;
        }
        self.run = QueryTask::start(&self.query, &self.schema, place, &self.runtime);
        self.elapsed_us = None;
        Ok(())
    }
}

impl Attempt {
    /// The one after this, if that could make a difference.
    fn next(self, had_company: bool) -> Option<Self> {
        match self {
            Self::First if had_company => Some(Self::Alone),
            Self::First | Self::Alone => Some(Self::Spilling),
            Self::Spilling => None,
        }
    }

    fn form(self) -> PlanForm {
        match self {
            Self::First | Self::Alone => PlanForm::Fast,
            Self::Spilling => PlanForm::Spilling,
        }
    }
}

/// Runs `work`, and turns its panic into an error.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|payload| Err(from_panic(payload.as_ref())))
}

/// Runs `work` where it may block, and turns its panic into an error.
pub(crate) async fn run_blocking<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match runtime.spawn_blocking(work).await {
        Ok(result) => result,
        Err(failure) => match failure.try_into_panic() {
            Ok(payload) => Err(from_panic(payload.as_ref())),
            Err(_) => Err(Error::new(ErrorKind::Cancelled, "the engine is shutting down")),
        },
    }
}

impl QueryTask {
    fn start(query: &RunningQuery, schema: &SchemaRef, place: Place, runtime: &Handle) -> Self {
        let (sender, batches) = mpsc::channel(QUEUE_BATCHES);
        let output = Output::new(sender, place, query.pool.clone(), query.spool.clone(), query.stop.clone());
        let layout = BatchLayout {
            schema: schema.clone(),
            rows_max: query.batch_rows_max,
            bytes_max: query.batch_bytes_max,
        };
        let (plan, context) = (query.plan.clone(), query.context.clone());
        let task = runtime.spawn(async move {
            let started = plan.execute(context);
            drive(plan, started, layout, output).await
        });
        let abort = task.abort_handle();
        Self { batches, task: Some(task), abort }
    }
}

impl Drop for QueryTask {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl Drop for QueryStream {
    fn drop(&mut self) {
        self.query.stop.stop();
    }
}

#[async_trait]
impl ResultStream for QueryStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.handed = None;
        loop {
            match self.run.batches.recv().await {
                Some(Ok(HeldBatch { batch, memory })) => {
                    self.row_count += batch.num_rows() as u64;
                    self.handed = Some(memory);
                    return Ok(Some(batch));
                }
                Some(Err(error)) => self.run_again(error).await?,
                None => return self.finish().await.map(|_| None),
            }
        }
    }

    fn metrics(&self) -> QueryMetrics {
        // Those of parts that another engine computed.
        let counted = self.query.plan.metrics();
        QueryMetrics {
            row_count: self.row_count,
            elapsed_us: self.elapsed_us.unwrap_or_else(|| micros(self.query.started)),
            prepare_us: self.query.prepare_us,
            memory_peak_bytes: counted.memory_peak_bytes + self.query.pool.peak_bytes(),
            bytes_expected: counted.bytes_expected + self.query.plan.scan_bytes().0,
            temp_file_bytes: counted.temp_file_bytes + self.query.spool.spill().taken_bytes(),
            ..counted
        }
    }
}

pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
