//! One connection: requests in, answers out.
//!
//! ```text
//!             ┌───────────── Cancel: stop the job, end the answer ───────────┐
//! request ──► job on its own task ──parts──► written to the socket ──► last part ──► next request
//!             └───────────── closed: stop the job, end the session ──────────┘
//!
//! Write ──► Writing ──► batches ──► WriteEnd ──► Written ──► Keep ──► next request
//!             └──────── closed, or anything else: remove the files ────────┘
//!
//! Of objects in a store, Complete comes before Keep, when the transaction commits.
//! ```
//!
//! Invariants: the session reads the socket while it writes an answer, so it sees a cancel or a closed connection
//! at once, even if the client has stopped reading. Rows that come to be written wait in the socket: at most two batches are here.

use std::{pin::pin, sync::Arc, time::Duration};

use pystachio_engine::{RowWriter, StopFlag, locking::lock_whole};
use pystachio_plan::{
    ANSWER_TO_OLDER, EngineStatus, Error, ErrorKind, FrameKind, Greeting, QueryOrigin, QueryRequest, Request,
    Response, Result, WriteRequest, decode_message,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc::{Receiver, channel},
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    BatchDecoder, Frame, FrameReader, Host, VERSION,
    frames::connection_lost,
    process::resident_bytes,
    queries::Asker,
    query::{Answer, KeptWriter, Part, cancelled},
};

/// Parts of an answer that may wait for the socket. A job with more waits.
const PARTS_WAITING_MAX: usize = 1;

/// What a connection that is closed has said last is there already.
const LAST_WORD_WAIT: Duration = Duration::from_millis(50);

/// Serves a connection until it is closed.
pub async fn serve(stream: UnixStream, host: Arc<Host>) {
    let (source, target) = stream.into_split();
    let mut session = Session { reader: FrameReader::new(source), target, host, backend_pid: 0 };
    match session.serve().await {
        Ok(()) => tracing::debug!("connection closed"),
        Err(error) if error.kind == ErrorKind::Unavailable => tracing::debug!(%error, "connection lost"),
        Err(error) => {
            tracing::warn!(%error, "connection ended");
            // The other side may be past reading.
            let _ = session.send(&Response::Failed(error)).await;
        }
    }
}

struct Session {
    reader: FrameReader<OwnedReadHalf>,
    target: OwnedWriteHalf,
    host: Arc<Host>,
    /// The client, as it introduced itself.
    backend_pid: u32,
}

/// What a session does next.
enum Next {
    /// It answers this.
    Request(Box<Request>),
    /// It tells the client that the engine ends, and ends.
    Retired,
    /// It ends.
    Closed,
}

/// A task that stops when this is dropped.
struct Job {
    task: AbortHandle,
    stop: StopFlag,
}

impl Job {
    fn stop(&self) {
        // Dropping the handle stops the task only where it waits; the flag stops its running loops.
        self.stop.stop();
        self.task.abort();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Session {
    async fn serve(&mut self) -> Result<()> {
        let retirement = self.host.retired().clone();
        let is_understood = tokio::select! {
            biased;
            // A connection that is closed before its greeting has no requests yet.
            () = retirement.cancelled() => return Ok(()),
            greeted = self.greet() => greeted?,
        };
        match is_understood {
            true => tracing::debug!(backend_pid = self.backend_pid, "connection opened"),
            false => return Ok(()),
        }
        loop {
            let request = match self.next_unless_ending().await? {
                Next::Request(request) => *request,
                Next::Closed => return Ok(()),
                Next::Retired => return self.send(&Response::Failed(retired())).await,
            };
            match request {
                // Its request had already ended.
                Request::Cancel | Request::Enough => {}
                Request::Status => self.send(&Response::Status(self.status())).await?,
                Request::Cache => self.send(&Response::Cache(self.host.engine().cache().await)).await?,
                Request::Timeline => {
                    self.send(&Response::Timeline(self.host.engine().timeline().await)).await?;
                }
                Request::Queries => self.send(&Response::Queries(self.host.queries().entries())).await?,
                Request::Statistics => {
                    self.send(&Response::Statistics(self.host.queries().statistics())).await?;
                }
                Request::ResetStatistics => {
                    self.host.queries().reset_statistics();
                    self.send(&Response::Statistics(Vec::new())).await?;
                }
                Request::Write(request) => {
                    let _running = self.host.requests().begin();
                    if !self.write_rows(request).await? {
                        return Ok(());
                    }
                }
                Request::WriteQuery(write, request, origin) => {
                    let _running = self.host.requests().begin();
                    if !self.write_query(write, *request, origin).await? {
                        return Ok(());
                    }
                }
                Request::WriteEnd | Request::Complete | Request::Keep | Request::Undo => {
                    return Err(protocol("no rows are written"));
                }
                request => {
                    let _running = self.host.requests().begin();
                    let (job, parts) = self.start(request);
                    if !self.answer(job, parts).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The next request. When the device is lost the connection counts as closed: the backend finds another engine then.
    async fn next_unless_ending(&mut self) -> Result<Next> {
        let host = self.host.clone();
        tokio::select! {
            biased;
            () = host.device_lost().cancelled() => Ok(Next::Closed),
            // A request that has come in part is dropped with the connection. Its backend sends it to the next engine.
            () = host.retired().cancelled() => Ok(Next::Retired),
            request = next_request(&mut self.reader) => Ok(request?.map_or(Next::Closed, |request| Next::Request(Box::new(request)))),
        }
    }

    async fn send(&mut self, response: &Response) -> Result<()> {
        Frame::message(response)?.write(&mut self.target).await
    }

    /// Exchanges greetings. Returns whether both sides speak the same protocol; if not, the backend tells its user.
    async fn greet(&mut self) -> Result<bool> {
        let greeting = match self.reader.greeting().await {
            Ok(Some(greeting)) => greeting,
            Ok(None) => return Ok(false),
            Err(error) if error.kind == ErrorKind::Protocol => {
                tracing::warn!(%error, engine_version = VERSION, "a connection of an older version");
                // It may be gone.
                let _ = self.target.write_all(&ANSWER_TO_OLDER).await;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let own = Greeting::own(VERSION);
        self.target.write_all(&own.encode()).await.map_err(|error| connection_lost(&error.to_string()))?;
        if !greeting.is_understood() {
            tracing::warn!(
                backend_pid = greeting.pid,
                extension_version = greeting.version,
                extension_protocol = greeting.protocol_version,
                engine_version = VERSION,
                engine_protocol = own.protocol_version,
                "extension and engine are of different versions"
            );
        }
        self.backend_pid = greeting.pid;
        Ok(greeting.is_understood())
    }

    fn status(&self) -> EngineStatus {
        let mut status = self.host.engine().status();
        self.host.counters().fill_status(&mut status);
        status.engine_pid = std::process::id();
        status.resident_bytes = resident_bytes();
        status.libraries = self.host.libraries().to_vec();
        status
    }

    fn start(&self, request: Request) -> (Job, Receiver<Part>) {
        let (sender, parts) = channel(PARTS_WAITING_MAX);
        let answer = Answer::new(self.host.clone(), sender);
        let compute = self.host.compute();
        let stop = StopFlag::default();
        let task = match request {
            Request::Run(request, origin) => {
                let asker = Asker { backend_pid: self.backend_pid, role: request.role, origin };
                compute.spawn(answer.run(*request, asker, stop.clone()))
            }
            Request::Sample(request) => compute.spawn(answer.sample(request, stop.clone())),
            Request::Generate(request) => compute.spawn(answer.generate(request)),
            Request::Optimize(request) => compute.spawn(answer.optimize(request)),
            // Not among the queries, so that planning does not wait for them.
            Request::Preview(request) => compute.spawn(answer.preview(*request, stop.clone())),
            Request::Describe { tables, extent, access } => {
                tokio::spawn(answer.describe(tables, extent, (access, stop.clone())))
            }
            Request::Remove { paths, access } => tokio::spawn(answer.remove(paths, (access, stop.clone()))),
            Request::Views { folder, wants_texts, access } => {
                tokio::spawn(answer.views(folder, wants_texts, (access, stop.clone())))
            }
            Request::Names { folder, access } => tokio::spawn(answer.names(folder, (access, stop.clone()))),
            Request::Identify { tables, access } => {
                tokio::spawn(answer.identify(tables, (access, stop.clone())))
            }
            Request::Write(_)
            | Request::WriteQuery(..)
            | Request::WriteEnd
            | Request::Complete
            | Request::Keep
            | Request::Undo
            | Request::Status
            | Request::Cache
            | Request::Timeline
            | Request::Queries
            | Request::Statistics
            | Request::ResetStatistics
            | Request::Cancel
            | Request::Enough => {
                unreachable!("answered without a job")
            }
        };
        (Job { task: task.abort_handle(), stop }, parts)
    }

    /// Writes the rows that the client sends. Returns whether the connection is still open. A client whose rows can't be written
    /// reads why when it looks, or when it can send no more.
    async fn write_rows(&mut self, request: WriteRequest) -> Result<bool> {
        match self.receive_rows(request).await {
            Ok(is_open) => Ok(is_open),
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Protocol) => Err(error),
            Err(error) => {
                self.host.counters().record_error(&error, None);
                self.send(&Response::Failed(error)).await?;
                Ok(false)
            }
        }
    }

    async fn receive_rows(&mut self, request: WriteRequest) -> Result<bool> {
        let host = self.host.clone();
        // It may have to wait for memory.
        let mut writer = tokio::select! {
            begun = host.engine().begin_write(request) => begun?,
            request = next_request(&mut self.reader) => return match request? {
                None => Ok(false),
                Some(_) => Err(protocol("a request before the last one was answered")),
            },
        };
        self.send(&Response::Writing).await?;
        let mut decoder = BatchDecoder::default();
        loop {
            match self.reader.next().await? {
                None => return Ok(false),
                Some((FrameKind::Batch, body)) => {
                    for batch in decoder.decode(body)? {
                        writer.write(batch).await?;
                    }
                }
                Some((FrameKind::Message, body)) => match decode_message(&body)? {
                    Request::WriteEnd => break,
                    _ => return Err(protocol("a request before the rows were complete")),
                },
                Some((kind, _)) => return Err(unexpected_frame(kind)),
            }
        }
        // Files for GPUs are written anew, which takes a while.
        let written = tokio::select! {
            written = writer.finish() => written?,
            request = next_request(&mut self.reader) => return match request? {
                None => Ok(false),
                Some(_) => Err(protocol("a request before the last one was answered")),
            },
        };
        self.send(&Response::Written(written)).await?;
        self.hand_over(writer).await
    }

    /// Runs a plan and writes its rows. Returns whether the connection is still open.
    async fn write_query(
        &mut self,
        write: WriteRequest,
        request: QueryRequest,
        origin: QueryOrigin,
    ) -> Result<bool> {
        let (sender, parts) = channel(PARTS_WAITING_MAX);
        let answer = Answer::new(self.host.clone(), sender);
        let (stop, kept) = (StopFlag::default(), KeptWriter::default());
        let asker = Asker { backend_pid: self.backend_pid, role: request.role, origin };
        let work = answer.write_query(write, request, asker, stop.clone(), kept.clone());
        let job = Job { task: self.host.compute().spawn(work).abort_handle(), stop };
        if !self.answer(job, parts).await? {
            return Ok(false);
        }
        let writer = lock_whole(&kept).take();
        match writer {
            Some(writer) => self.hand_over(writer).await,
            None => Ok(true),
        }
    }

    /// Leaves complete files to the client, when it says that it has noted them. Otherwise they are removed.
    async fn hand_over(&mut self, mut writer: Box<dyn RowWriter>) -> Result<bool> {
        let request = next_request(&mut self.reader).await?;
        if request == Some(Request::Complete) {
            let completed = tokio::select! {
                completed = writer.complete() => completed,
                request = next_request(&mut self.reader) => return match request? {
                    None => Ok(false),
                    Some(_) => Err(protocol("a request before the last one was answered")),
                },
            };
            if let Err(error) = completed {
                self.host.counters().record_error(&error, None);
                self.send(&Response::Failed(error)).await?;
                return Ok(false);
            }
            let answered = self.send(&Response::Completed).await;
            return match answered.and(next_request(&mut self.reader).await) {
                Ok(Some(Request::Undo)) => Ok(false),
                // The transaction may have committed: objects that are visible stay.
                other => {
                    writer.keep();
                    Ok(matches!(other?, Some(Request::Keep)))
                }
            };
        }
        match request {
            Some(Request::Keep) => {
                writer.keep();
                Ok(true)
            }
            // The query that has read them has ended.
            Some(Request::Undo) => Ok(true),
            // It came too late: the answer was complete.
            Some(Request::Cancel | Request::Enough) => Ok(false),
            Some(_) => Err(protocol("a request before the written files were taken")),
            None => Ok(false),
        }
    }

    /// Writes an answer to its end. Returns whether the connection is still open.
    async fn answer(&mut self, job: Job, mut parts: Receiver<Part>) -> Result<bool> {
        let stop = CancellationToken::new();
        let Self { reader, target, host, .. } = self;
        let mut writing = pin!(write_answer(target, &mut parts, &stop, host));
        loop {
            tokio::select! {
                written = &mut writing => {
                    // A reader that has closed the connection may have said before that it has enough. The job does not see yet that
                    // its parts are not wanted.
                    if written.is_err()
                        && let Ok(Ok(Some(Request::Enough))) =
                            tokio::time::timeout(LAST_WORD_WAIT, next_request(reader)).await
                    {
                        job.stop.account().note_enough();
                    }
                    return written.map(|()| true);
                }
                request = next_request(reader) => match request? {
                    Some(ending @ (Request::Cancel | Request::Enough)) => {
                        if ending == Request::Enough {
                            job.stop.account().note_enough();
                        }
                        job.stop();
                        stop.cancel();
                    }
                    Some(_) => return Err(protocol("a request before the last one was answered")),
                    None => return Ok(false),
                },
            }
        }
    }
}

/// Writes parts as they come. After `stop`, or when the server ends, completes the frame that is half written and ends
/// the answer.
async fn write_answer<W: AsyncWrite + Unpin>(
    target: &mut W,
    parts: &mut Receiver<Part>,
    stop: &CancellationToken,
    host: &Host,
) -> Result<()> {
    let mut given_up = pin!(host.given_up());
    loop {
        let part = tokio::select! {
            biased;
            () = stop.cancelled() => return Frame::message(&Response::Failed(cancelled()))?.write(target).await,
            error = &mut given_up => return Frame::message(&Response::Failed(error))?.write(target).await,
            part = parts.recv() => part,
        };
        let Some(part) = part else {
            let error = Error::internal("the engine ended a request without an answer");
            return Frame::message(&Response::Failed(error))?.write(target).await;
        };
        Frame::write_all(&part.frames, target).await?;
        if part.is_last {
            return Ok(());
        }
    }
}

async fn next_request(reader: &mut FrameReader<OwnedReadHalf>) -> Result<Option<Request>> {
    match reader.next().await? {
        None => Ok(None),
        Some((FrameKind::Message, body)) => decode_message(&body).map(Some),
        Some((kind, _)) => Err(unexpected_frame(kind)),
    }
}

fn unexpected_frame(kind: FrameKind) -> Error {
    protocol(&format!("a frame of another kind than a backend may send here: frame_kind={kind:?}"))
}

/// What a client reads whose request has not begun.
fn retired() -> Error {
    Error::new(ErrorKind::Retired, "the engine ends, and takes no more requests")
        .with_hint("Run the query again: the next engine starts by itself.")
}

fn protocol(message: &str) -> Error {
    Error::new(ErrorKind::Protocol, message)
}
