//! A query on a thread of its own, and the stream of its rows.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_engine::{
    Meter, ResultStream, StopFlag,
    locking::lock_whole,
    spool::{READER_STOPPED, Spool},
};
use pystachio_plan::{
    ActivityKind, ActualRows, DeviceWork, Error, ErrorKind, ExchangeChoice, ExchangeTraffic, QueryMetrics,
    QueryRequest, QueryTimeline, Result,
};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::timeline::Timelines;
use crate::{
    device::{ActivityLog, NotedActivity, device_work},
    exchange::QueryId,
    execution::{
        CountedSource,
        compile::{CompiledPlan, QueryResources, compile},
        exchange::{BROADCAST_CHOSEN, Exchanges, HEAVY_ROWS, SHUFFLE_CHOSEN},
        query::{Driver, QueryContext, WantedMinimum, failure_of_panic},
        runtime_filter::ReducedOperators,
        waiting::wait_at_most,
    },
    operation::{ArrowBatches, column_schema},
};

/// Batches that wait for the reader.
const BATCHES_AHEAD: usize = 4;

/// The parts of a running query.
pub(super) struct QueryRun {
    pub(super) request: QueryRequest,
    /// The query's own driver: no other driver runs yet.
    pub(super) driver: Driver,
    pub(super) resources: QueryResources,
    /// Whether it reserves as much memory as a query may, whatever its plan says.
    pub(super) takes_cap: bool,
    /// Where to put its timeline, if the query wants one.
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
    /// The failure of a query before its first row.
    pub(super) async fn start(run: QueryRun) -> Result<Self> {
        let types = output_types(&run.request)?;
        let schema = column_schema(&types);
        let (sender, mut batches) = mpsc::channel(BATCHES_AHEAD);
        let stop = run.driver.query.stop.clone();
        let metrics = Arc::new(Mutex::new(QueryMetrics::default()));
        let threads = run.driver.query.threads.clone();
        let worker = Worker { run, schema: schema.clone(), sender, metrics: metrics.clone() };
        // The end of the batches reports the thread's end.
        threads.start("pystachio-query", move || worker.work())?;
        // A dropped stream stops its query for good, so there is none before the first row: the
        // host may run the query elsewhere.
        match batches.recv().await {
            Some(Err(error)) => Err(error),
            first => Ok(Self { schema, batches, first, stop, metrics }),
        }
    }
}

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
        lock_whole(&self.metrics).clone()
    }
}

/// The thread's side.
struct Worker {
    run: QueryRun,
    schema: SchemaRef,
    sender: mpsc::Sender<Result<RecordBatch>>,
    metrics: Arc<Mutex<QueryMetrics>>,
}

impl Worker {
    fn work(self) {
        let Self { run, schema, sender, metrics } = self;
        let QueryRun { request, mut driver, resources, takes_cap, timeline, guard } = run;
        let started = Instant::now();
        let watched = timeline.as_ref().map(|(log, timelines)| WatchedQuery { log, timelines });
        let request = &request;
        let mut output = QueryOutput {
            request,
            resources: &resources,
            takes_cap,
            schema,
            sender: &sender,
            metrics,
            started,
            watched,
            reduced: ReducedOperators::default(),
        };
        let mut spool = Spool::new(driver.query.memory.store.space().clone());
        // A panic ends the query, not the process.
        let work = AssertUnwindSafe(|| output.execute(&mut driver, &mut spool));
        let result = catch_unwind(work).unwrap_or_else(|payload| Err(failure_of_panic(payload.as_ref())));
        // The other drivers end, then the readers; then other queries may use the memory.
        resources.end();
        drop(resources);
        drop(driver);
        // Rows before an error are given before it.
        if let Err(error) = give_spooled(spool, &sender).and(result) {
            // The send fails if the stream was dropped; then no client is waiting.
            let _ = sender.blocking_send(Err(error));
        }
        drop(guard);
    }
}

/// Gives the spooled rows as the reader takes them.
fn give_spooled(mut spool: Spool, sender: &mpsc::Sender<Result<RecordBatch>>) -> Result<()> {
    while let Some(batch) = spool.pop()? {
        sender.blocking_send(Ok(batch)).map_err(|_| cancelled())?;
    }
    Ok(())
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the query was cancelled")
}

/// The destination of the rows.
struct QueryOutput<'a> {
    request: &'a QueryRequest,
    resources: &'a QueryResources,
    takes_cap: bool,
    schema: SchemaRef,
    sender: &'a mpsc::Sender<Result<RecordBatch>>,
    metrics: Arc<Mutex<QueryMetrics>>,
    started: Instant,
    watched: Option<WatchedQuery<'a>>,
    /// Known once the plan is compiled.
    reduced: ReducedOperators,
}

/// The timeline of the device's activity, and where to put it.
struct WatchedQuery<'a> {
    log: &'a ActivityLog,
    timelines: &'a Timelines,
}

impl WatchedQuery<'_> {
    /// Summarises the activity and keeps it. All drivers have ended.
    fn finish(&self, driver: &Driver, shared: Option<QueryId>, elapsed: Duration) {
        let noted = self.log.take();
        let query = &driver.query;
        let mut metrics = lock_whole(&query.metrics);
        for NotedActivity { operator, activity } in &noted {
            if let Some(operator) = metrics.operators.get_mut(*operator as usize)
                && matches!(activity.kind, ActivityKind::Kernel | ActivityKind::Copy)
            {
                operator.count("gpu_us", activity.elapsed_us);
            }
        }
        let work = device_work(&noted);
        let read_rate_max = self.timelines.note_reading(metrics.bytes_read, work.read_us);
        let memory_max_bytes = driver.queue.memory().bytes_max();
        metrics.device_work = Some(DeviceWork { read_rate_max, memory_max_bytes, ..work });
        let activities = noted.into_iter().map(|noted| noted.activity).collect();
        self.timelines.add(QueryTimeline {
            query: query.number,
            shared: shared.map(|query| query.0),
            role: query.role,
            started_unix_us: self.log.started_unix_us(),
            elapsed_us: elapsed.as_micros() as u64,
            activities,
        });
    }
}

impl QueryOutput<'_> {
    fn execute(&mut self, driver: &mut Driver, spool: &mut Spool) -> Result<()> {
        let exchanges = &self.resources.exchanges;
        let result = self.give_rows(driver, spool);
        let result = driver.first_failure(result);
        // A failure of another rank counts first; the other ranks are told of this one's.
        let result = result.map_err(|error| exchanges.fail(error));
        self.resources.end();
        // An earlier or later message reports this error already.
        let ended = driver.queue.wait();
        driver.merge_metrics();
        count_moved(exchanges, &driver.query);
        if let Some(watched) = &self.watched {
            watched.finish(driver, exchanges.shared_query(), self.started.elapsed());
        }
        result?;
        ended?;
        self.publish(driver, 0);
        Ok(())
    }

    /// Compiles the plan into sources.
    fn compile(&mut self, driver: &mut Driver) -> Result<CountedSource> {
        let query = Arc::get_mut(&mut driver.query);
        let query = query.ok_or_else(|| Error::internal("a query runs before its plan is compiled"))?;
        let compiled = compile(&self.request.plan, query, self.resources);
        let CompiledPlan { root, reduced } = compiled.map_err(|refused| refused.error)?;
        self.reduced = reduced;
        query.metrics_mut().prepare_us = self.started.elapsed().as_micros() as u64;
        query.meter.show(&query.stop);
        Ok(root)
    }

    fn give_rows(&mut self, driver: &mut Driver, spool: &mut Spool) -> Result<()> {
        let QueryResources { exchanges, fragments, .. } = self.resources;
        let mut root = self.compile(driver).inspect_err(|error| exchanges.refuse(error))?;
        let query = driver.query.clone();
        let share = exchanges.await_start(&query.files)?;
        {
            let _waits = query.stop.wait_for_turn();
            let wanted = match share {
                Some(share) => WantedMinimum::Share(share),
                None if self.takes_cap => WantedMinimum::Cap,
                None => WantedMinimum::OfPlan { exchange_count: exchanges.planned_count() },
            };
            query.memory.admit(wanted, &query.stop)?;
        }
        exchanges.open(&query.files, query.memory.share())?;
        exchanges.begin(&query)?;
        fragments.begin(&query);
        let batch_rows = (self.request.batch_rows_max as usize).max(1);
        while let Some(chunk) = root.next_chunk(driver)? {
            if chunk.row_count == 0 {
                continue;
            }
            driver.check_faults()?;
            let mut batches = ArrowBatches::new(&driver.queue, chunk, &self.schema)?;
            while let Some(batch) = batches.next(&driver.queue)? {
                self.publish(driver, batch.num_rows());
                for first in (0..batch.num_rows()).step_by(batch_rows) {
                    let part = batch.slice(first, batch_rows.min(batch.num_rows() - first));
                    self.send(driver, spool, part)?;
                }
            }
        }
        // Even if no row of the chunk passed.
        driver.check_faults()?;
        drop(root);
        driver.while_waiting(|_| exchanges.finish())
    }

    /// Gives a batch to the reader; or to the spool, if earlier batches are there, or if the reader
    /// has stopped and other queries wait for memory.
    fn send(&self, driver: &Driver, spool: &mut Spool, batch: RecordBatch) -> Result<()> {
        while !spool.is_empty() {
            match self.sender.try_reserve() {
                Ok(room) => {
                    if let Some(earlier) = spool.pop()? {
                        room.send(Ok(earlier));
                    }
                }
                Err(TrySendError::Full(())) => return spool.push(&batch),
                Err(TrySendError::Closed(())) => return Err(cancelled()),
            }
        }
        let mut room = pin!(self.sender.reserve());
        loop {
            match wait_at_most(room.as_mut(), READER_STOPPED) {
                Some(room) => {
                    room.map_err(|_| cancelled())?.send(Ok(batch));
                    return Ok(());
                }
                None if driver.query.memory.yields_memory() => return spool.push(&batch),
                None => {}
            }
        }
    }

    /// Updates the query's cost so far, and adds this many rows.
    fn publish(&self, driver: &mut Driver, row_count: usize) {
        let with_operators = self.request.with_metrics;
        driver.merge_metrics();
        let query = &driver.query;
        let counted = {
            let mut counted = lock_whole(&query.metrics);
            counted.row_count += row_count as u64;
            counted.clone()
        };
        let actual_rows = if with_operators { actual_rows(&self.reduced, &counted) } else { Vec::new() };
        let mut metrics = lock_whole(&self.metrics);
        *metrics = counted;
        if !with_operators {
            metrics.operators.clear();
            metrics.exchanges.clear();
        }
        metrics.actual_rows = actual_rows;
        metrics.elapsed_us = self.started.elapsed().as_micros() as u64;
        metrics.memory_peak_bytes = driver.queue.memory().peak_bytes();
        metrics.spilled_bytes = query.memory.store.written_bytes();
        metrics.temp_file_bytes = query.memory.store.space().spill().taken_bytes();
        metrics.bytes_expected = query.meter.progress().bytes_expected;
    }
}

/// Adds the exchanges' counts of moved rows.
fn count_moved(exchanges: &Exchanges, query: &QueryContext) {
    let (rank, moved) = (exchanges.place(), exchanges.take_moved());
    let mut metrics = lock_whole(&query.metrics);
    let QueryMetrics { operators, exchanges, .. } = &mut *metrics;
    for (place, moved) in moved {
        let Some(operator) = operators.get_mut(place) else { continue };
        let kept_rows = operator.counter("rows_kept");
        exchanges.push(ExchangeTraffic {
            rank: rank.map_or(0, |place| place.rank.0.into()),
            exchange: operator.description.clone(),
            choice: match (operator.counter(BROADCAST_CHOSEN), operator.counter(SHUFFLE_CHOSEN)) {
                (0, 0) => None,
                (0, _) => Some(ExchangeChoice::Shuffle),
                _ => Some(ExchangeChoice::Broadcast),
            },
            sent_rows: operator.counter("rows_sent"),
            kept_rows,
            heavy_rows: operator.counter(HEAVY_ROWS),
            sent_bytes: moved.sent_bytes,
            sent_wide_bytes: moved.sent_wide_bytes,
            partners: moved.partners as u32,
            received_rows: operator.row_count.unwrap_or(0).saturating_sub(kept_rows),
            received_bytes: moved.received_bytes,
            moving_us: moved.moving_us,
            send_wait_us: moved.producers_waited_us,
            receive_wait_us: moved.consumers_waited_us,
        });
        operator.count("bytes_sent", moved.sent_bytes);
        operator.count("blocks_sent", moved.sent_blocks);
        operator.count("bytes_received", moved.received_bytes);
        operator.count("send_wait_us", moved.producers_waited_us);
        operator.count("receive_wait_us", moved.consumers_waited_us);
    }
}

/// Rows of the plan's operators, which are described in the plan's order. A limit stops the
/// operators below it; joins drop rows of those that they filter.
fn actual_rows(reduced: &ReducedOperators, metrics: &QueryMetrics) -> Vec<Option<ActualRows>> {
    let mut limit_depth: Option<u32> = None;
    let rows = metrics.operators.iter().enumerate().map(|(place, operator)| {
        if limit_depth.is_some_and(|depth| operator.depth <= depth) {
            limit_depth = None;
        }
        let is_reduced = limit_depth.is_some() || reduced.contains(place);
        if operator.description == "Limit" && limit_depth.is_none() {
            limit_depth = Some(operator.depth);
        }
        operator.row_count.map(|row_count| ActualRows { row_count, is_reduced })
    });
    rows.collect()
}
