//! Counters of the process: requests, queries and their errors.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{EngineStatus, Error, ErrorKind};

/// Counts since the process started.
#[derive(Debug, Default)]
pub struct Counters {
    queries_run: AtomicU64,
    queries_running: AtomicU64,
    /// The error, with the role that ran the query.
    last_error: Mutex<Option<(String, Option<u32>)>>,
}

/// The requests that take time: queries, planning, writing.
#[derive(Debug, Default)]
pub struct Requests {
    begun: AtomicU64,
    running: AtomicU64,
}

/// A request that is answered as long as this is held.
#[derive(Debug)]
pub struct RunningRequest(Arc<Requests>);

impl Requests {
    /// Counts a request in; dropping the result counts it out.
    pub fn begin(self: &Arc<Self>) -> RunningRequest {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        RunningRequest(self.clone())
    }

    /// How many requests have begun, and how many of them run.
    pub fn counts(&self) -> (u64, u64) {
        (self.begun.load(Ordering::SeqCst), self.running.load(Ordering::SeqCst))
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A query that runs as long as this is held.
#[derive(Debug)]
pub struct RunningQuery(Arc<Counters>);

impl Counters {
    /// Counts a query in; dropping the result counts it out, however it ends.
    pub fn start_query(self: &Arc<Self>) -> RunningQuery {
        self.queries_running.fetch_add(1, Ordering::Relaxed);
        RunningQuery(self.clone())
    }

    /// Keeps the error of a failed request and its role. A cancelled request did not fail.
    pub fn record_error(&self, error: &Error, role: Option<u32>) {
        if error.kind != ErrorKind::Cancelled {
            let error = (error.message.clone(), role);
            *lock_whole(&self.last_error) = Some(error);
        }
    }

    /// The counts of queries that have ended, and of queries that run or wait.
    pub fn queries(&self) -> (u64, u64) {
        (self.queries_run.load(Ordering::Relaxed), self.queries_running.load(Ordering::Relaxed))
    }

    /// Fills in the counts. Queries that wait in the engine don't run.
    pub fn fill_status(&self, status: &mut EngineStatus) {
        status.queries_run = self.queries_run.load(Ordering::Relaxed);
        let started = self.queries_running.load(Ordering::Relaxed);
        status.queries_running = started.saturating_sub(status.queries_waiting);
        // Otherwise it is what the engine says, such as that its device is not there.
        if let Some((message, role)) = lock_whole(&self.last_error).clone() {
            (status.last_error, status.last_error_role) = (Some(message), role);
        }
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.0.queries_running.fetch_sub(1, Ordering::Relaxed);
        self.0.queries_run.fetch_add(1, Ordering::Relaxed);
    }
}
