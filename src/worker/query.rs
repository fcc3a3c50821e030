//! An engine's answer to one request, as frames.
//!
//! Invariants: exactly one part is marked as the last. Dropping the receiver of the parts stops the
//! work. If the last part reports a failed device, the host is told.

use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use futures::FutureExt;
use pystachio_engine::{ResultStream, RowWriter, StopFlag, WriteProgress, locking::lock_whole};
use pystachio_plan::{
    DescribeExtent, Error, ErrorKind, FileSet, GenerateRequest, OptimizeRequest, QueryMetrics, QueryRequest,
    Response, Result, SampleRequest, StoreAccess, WriteRequest, catalog_names,
};
use tokio::sync::{
    mpsc::{Sender, error::TrySendError},
    watch,
};

use crate::{
    BatchEncoder, Frame, Host,
    queries::{Asker, LoggedQuery},
};

/// Frames that are to be had at once are sent together up to this size: a small result with its end is one message.
const HELD_BYTES_MAX: usize = 64 << 10;
/// The schema goes out alone if no rows come so soon.
const SCHEMA_WAIT: Duration = Duration::from_millis(5);
/// The session reports a query's wait for its turn after so long.
const WAIT_TOLD_AFTER: Duration = Duration::from_millis(10);

/// The session reports what a query has spilled so often, if it is more.
const SPILL_TOLD_EVERY: Duration = Duration::from_millis(100);

/// A writer whose files are complete, until the client has taken them.
pub type KeptWriter = Arc<Mutex<Option<Box<dyn RowWriter>>>>;

/// A piece of an answer.
#[derive(Debug)]
pub struct Part {
    /// The frames to send.
    pub frames: Vec<Frame>,
    /// Whether the answer ends with it.
    pub is_last: bool,
}

/// Answers one request.
pub struct Answer {
    host: Arc<Host>,
    parts: Sender<Part>,
    started: Instant,
    /// The client, if the request runs a query.
    role: Option<u32>,
    /// The entry of the query in the list of queries, if the request runs one.
    logged: Option<Arc<LoggedQuery>>,
    /// The flag of the query, if the request runs one.
    stop: Option<StopFlag>,
    /// Bytes of spill files that the client knows of.
    spill_told: AtomicU64,
    /// Frames of rows that go out with what comes next.
    held: Mutex<Vec<Frame>>,
}

impl Answer {
    /// An answer of which nothing is sent yet.
    pub fn new(host: Arc<Host>, parts: Sender<Part>) -> Self {
        Self {
            host,
            parts,
            started: Instant::now(),
            role: None,
            logged: None,
            stop: None,
            spill_told: AtomicU64::new(0),
            held: Mutex::default(),
        }
    }

    /// Runs a plan, for as long as it is wanted.
    pub async fn run(self, request: QueryRequest, asker: Asker, stop: StopFlag) {
        let role = request.role;
        self.answer_query(role, asker, stop.clone(), async |answer| {
            let flag = stop.clone();
            let mut metrics = answer.send_rows(answer.host.engine().run(request, stop).await?).await?;
            metrics.has_changed_files = flag.account().has_changed_files();
            Ok(Response::Finished(Box::new(metrics)))
        })
        .await;
    }

    /// Runs a plan and writes its rows, for as long as they are wanted. Leaves the writer in `kept` for the session, which drops
    /// it unless the client takes the files.
    pub async fn write_query(
        self,
        write: WriteRequest,
        request: QueryRequest,
        asker: Asker,
        stop: StopFlag,
        kept: KeptWriter,
    ) {
        let role = request.role;
        self.answer_query(role, asker, stop.clone(), async |answer| {
            let mut writer = answer.host.engine().begin_write(write).await?;
            let stream = answer.host.engine().run(request, stop).await?;
            let mut stream = WatchedStream { stream, logged: answer.logged.clone() };
            while let Some(batch) = stream.stream.next_batch().await? {
                stream.note_rows(batch.num_rows());
                writer.write(batch).await?;
            }
            let rows = writer.finish().await?;
            *lock_whole(&kept) = Some(writer);
            Ok(Response::Written(rows))
        })
        .await;
    }

    /// Answers a request that runs a query, by `work`.
    async fn answer_query(
        mut self,
        role: u32,
        asker: Asker,
        stop: StopFlag,
        work: impl AsyncFnOnce(&Self) -> Result<Response>,
    ) {
        self.role = Some(role);
        let running = self.host.counters().start_query();
        self.logged = Some(Arc::new(self.host.queries().begin(asker, &stop)));
        let turn_waits = stop.turn_waits();
        self.stop = Some(stop);
        let last = tokio::select! {
            biased;
            last = settle(work(&self)) => last,
            error = self.tell_waits(turn_waits) => Err(error),
            never = self.tell_spill() => match never {},
        };
        // The client may look at the counters as soon as it has the last part.
        if let Some(logged) = self.logged.take() {
            logged.note_end(last.as_ref().err());
        }
        drop(running);
        self.finish(last).await;
    }

    /// Answers what a query would read.
    pub async fn preview(self, request: QueryRequest, stop: StopFlag) {
        let work =
            async { Ok(Response::Finished(Box::new(self.host.engine().preview(request, stop).await?))) };
        self.finish(settle(work).await).await;
    }

    /// Reads a sample.
    pub async fn sample(self, request: SampleRequest, stop: StopFlag) {
        let work = async {
            let metrics = self.send_rows(self.host.engine().sample(request, stop).await?).await?;
            Ok(Response::Finished(Box::new(metrics)))
        };
        self.finish(settle(work).await).await;
    }

    /// Describes tables.
    pub async fn describe(
        self,
        tables: Vec<FileSet>,
        extent: DescribeExtent,
        (access, stop): (StoreAccess, StopFlag),
    ) {
        let work = async {
            let mut described = Vec::with_capacity(tables.len());
            for table in &tables {
                described.push(self.host.engine().describe(table, extent, (&access, &stop)).await);
            }
            Ok(Response::Described(described))
        };
        self.finish(settle(work).await).await;
    }

    /// Answers the current identity of tables' files.
    pub async fn identify(self, tables: Vec<FileSet>, (access, stop): (StoreAccess, StopFlag)) {
        let work = async {
            let mut identities = Vec::with_capacity(tables.len());
            for table in &tables {
                identities.push(self.host.engine().identify(table, (&access, &stop)).await);
            }
            Ok(Response::Identified(identities))
        };
        self.finish(settle(work).await).await;
    }

    /// Lists a folder of a store.
    pub async fn names(self, folder: String, (access, stop): (StoreAccess, StopFlag)) {
        let work = async { Ok(Response::Names(self.host.engine().names(&folder, (&access, &stop)).await?)) };
        self.finish(settle(work).await).await;
    }

    /// Lists the views of a namespace of a catalog.
    pub async fn views(self, folder: String, wants_texts: bool, (access, stop): (StoreAccess, StopFlag)) {
        let work = async {
            let namespace = catalog_names(&folder);
            let namespace =
                namespace.ok_or_else(|| Error::internal("views of a path that is no namespace"))?;
            let views = self.host.engine().views(&namespace, wants_texts, (&access, &stop)).await?;
            Ok(Response::Views(views))
        };
        self.finish(settle(work).await).await;
    }

    /// Removes objects of stores.
    pub async fn remove(self, paths: Vec<String>, (access, stop): (StoreAccess, StopFlag)) {
        let work = async { Ok(Response::Removed(self.host.engine().remove(paths, (&access, &stop)).await?)) };
        self.finish(settle(work).await).await;
    }

    /// Writes the TPC-H tables.
    pub async fn generate(self, request: GenerateRequest) {
        let progress = |progress| self.report(progress);
        let work = async {
            Ok(Response::Generated { tables: self.host.engine().generate(request, &progress).await? })
        };
        let last = settle(work).await;
        self.finish(last).await;
    }

    /// Rewrites files for reading on a GPU.
    pub async fn optimize(self, request: OptimizeRequest) {
        let progress = |progress| self.report(progress);
        let work = async { Ok(Response::Optimized(self.host.engine().optimize(request, &progress).await?)) };
        let last = settle(work).await;
        self.finish(last).await;
    }

    /// Tells the client when the query waits for its turn, and when it goes on. Returns only with an error.
    async fn tell_waits(&self, mut turn_waits: watch::Receiver<bool>) -> Error {
        let mut told = false;
        loop {
            if turn_waits.changed().await.is_err() {
                // The request has no waiting state any more.
                return std::future::pending().await;
            }
            tokio::time::sleep(WAIT_TOLD_AFTER).await;
            let is_awaited = *turn_waits.borrow_and_update();
            if is_awaited == told {
                continue;
            }
            let frame = Frame::message(&Response::Turn { is_awaited });
            let sent = async { self.send(vec![frame?]).await };
            if let Err(error) = sent.await {
                return error;
            }
            told = is_awaited;
        }
    }

    /// Tells the client what the query has spilled, so that it knows if it ends the query. Never returns.
    async fn tell_spill(&self) -> Infallible {
        loop {
            tokio::time::sleep(SPILL_TOLD_EVERY).await;
            let Ok(place) = self.parts.try_reserve() else {
                // The part that waits, or the next one, tells it.
                continue;
            };
            if let Some(frame) = self.spill_frame() {
                place.send(Part { frames: vec![frame], is_last: false });
            }
        }
    }

    /// What tells the client of bytes in spill files that it does not know of.
    fn spill_frame(&self) -> Option<Frame> {
        let temp_file_bytes = self.stop.as_ref()?.account().temp_file_bytes();
        let known = self.spill_told.fetch_max(temp_file_bytes, Ordering::Relaxed);
        let frame = || Frame::message(&Response::Spilled { temp_file_bytes }).ok();
        (temp_file_bytes > known).then(frame).flatten()
    }

    fn report(&self, progress: WriteProgress) {
        let WriteProgress { name, rows_done, rows_total } = progress;
        if let Ok(frame) = Frame::message(&Response::Progress { name, rows_done, rows_total }) {
            // Where the last report is still unread, this one is not missed.
            let _ = self.parts.try_send(Part { frames: vec![frame], is_last: false });
        }
    }

    async fn send_rows(&self, stream: Box<dyn ResultStream>) -> Result<QueryMetrics> {
        let mut stream = WatchedStream { stream, logged: self.logged.clone() };
        let (mut encoder, schema) = BatchEncoder::try_new(&stream.stream.schema())?;
        *lock_whole(&self.held) = vec![schema];
        let (mut blocked, mut row_count) = (Duration::ZERO, 0);
        loop {
            let next = {
                let mut next = std::pin::pin!(stream.stream.next_batch());
                match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
                    Poll::Ready(batch) => batch,
                    // Rows do not wait for others.
                    Poll::Pending if row_count > 0 => {
                        blocked += self.send_held().await?;
                        next.await
                    }
                    Poll::Pending => match tokio::time::timeout(SCHEMA_WAIT, next.as_mut()).await {
                        Ok(batch) => batch,
                        Err(_) => {
                            blocked += self.send_held().await?;
                            next.await
                        }
                    },
                }
            };
            let Some(batch) = next? else { break };
            row_count += batch.num_rows() as u64;
            stream.note_rows(0);
            for frame in encoder.encode(&batch)? {
                if self.hold(frame) > HELD_BYTES_MAX {
                    blocked += self.send_held().await?;
                }
            }
            stream.note_rows(batch.num_rows());
        }
        Ok(QueryMetrics {
            row_count,
            elapsed_us: self.started.elapsed().as_micros() as u64,
            blocked_us: blocked.as_micros() as u64,
            ..stream.stream.metrics()
        })
    }

    /// Keeps a frame for the next message. Returns the bytes of all that are kept.
    fn hold(&self, frame: Frame) -> usize {
        let mut held = lock_whole(&self.held);
        held.push(frame);
        held.iter().map(Frame::body_bytes).sum()
    }

    /// Sends the frames that are kept.
    async fn send_held(&self) -> Result<Duration> {
        let frames = std::mem::take(&mut *lock_whole(&self.held));
        match frames.is_empty() {
            true => Ok(Duration::ZERO),
            // A client that has these rows may want no more.
            false => self.send(self.spill_frame().into_iter().chain(frames).collect()).await,
        }
    }

    /// Sends frames and returns how long it waited for the client.
    async fn send(&self, frames: Vec<Frame>) -> Result<Duration> {
        let part = match self.parts.try_send(Part { frames, is_last: false }) {
            Ok(()) => return Ok(Duration::ZERO),
            Err(TrySendError::Full(part)) => part,
            Err(TrySendError::Closed(_)) => return Err(cancelled()),
        };
        let started = Instant::now();
        self.note_reader_wait(true);
        let sent = self.parts.send(part).await;
        self.note_reader_wait(false);
        sent.map_err(|_| cancelled())?;
        Ok(started.elapsed())
    }

    fn note_reader_wait(&self, waits: bool) {
        if let Some(logged) = &self.logged {
            logged.note_reader_wait(waits);
        }
    }

    async fn finish(&self, last: Result<Response>) {
        let is_device_lost = matches!(&last, Err(error) if error.kind == ErrorKind::Device);
        let mut frames = std::mem::take(&mut *lock_whole(&self.held));
        let response = last.unwrap_or_else(|error| {
            self.host.counters().record_error(&error, self.role);
            tracing::debug!(kind = ?error.kind, message = error.message, "request failed");
            Response::Failed(error)
        });
        let frame = Frame::message(&response).or_else(|error| Frame::message(&Response::Failed(error)));
        if let Ok(frame) = frame {
            frames.extend(self.spill_frame().filter(|_| matches!(response, Response::Failed(_))));
            // A reader that is gone needs no end.
            frames.push(frame);
            let _ = self.parts.send(Part { frames, is_last: true }).await;
        }
        if is_device_lost {
            self.host.device_lost().cancel();
        }
    }
}

/// Sends the rows of a query. Notes the metrics at the end, whether after the last row, an error or a cancel.
struct WatchedStream {
    stream: Box<dyn ResultStream>,
    logged: Option<Arc<LoggedQuery>>,
}

impl WatchedStream {
    fn note_rows(&self, row_count: usize) {
        if let Some(logged) = &self.logged {
            logged.note_rows(row_count);
        }
    }
}

impl Drop for WatchedStream {
    fn drop(&mut self) {
        if let Some(logged) = &self.logged {
            logged.note_costs(self.stream.metrics());
        }
    }
}

/// The error of a cancelled request.
pub fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "request was cancelled")
}

/// Runs work to its end; a panic becomes an error.
async fn settle(work: impl Future<Output = Result<Response>>) -> Result<Response> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let reason = panic_text(panic.as_ref());
        tracing::error!(reason, "engine panicked");
        Err(Error::internal(format!("engine panicked: {reason}"))
            .with_hint("This is a bug in pystachio. Please report it with the query and the engine's log."))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}
