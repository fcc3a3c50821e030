//! What was done for a query and when: reads, copies and kernels on one clock.
//!
//! ```text
//! host     ├─ read ─┤├─ read ─┤                       start and end are known at once
//! stream 1      ├─ copy ─┤├─ decode ─┤                a mark after each: it starts when the one before has ended,
//! stream 0                        ├─ probe ─┤         or when it was enqueued
//! ```
//!
//! Invariants: a log has at most [`ACTIVITIES_MAX`] activities; further ones are counted, not kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use pystachio_plan::{Activity, ActivityKind, Result};

use super::{Mark, Platform, Stream};

/// Activities that a log keeps.
const ACTIVITIES_MAX: usize = 1 << 16;

/// The activities of one query. Filled by all its threads.
pub struct ActivityLog {
    platform: Arc<dyn Platform>,
    origin: Instant,
    origin_mark: Mark,
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    entries: Vec<Entry>,
    /// How many were not kept.
    missed: u64,
}

struct Entry {
    kind: ActivityKind,
    name: &'static str,
    bytes: u64,
    /// When it was begun or enqueued, in microseconds since the log's origin.
    begun_us: f64,
    end: End,
}

enum End {
    /// The host did it.
    Host(f64),
    /// It is over when the mark is reached.
    Device(Stream, Mark),
}

impl ActivityLog {
    /// A log whose clock starts now; waits for the stream.
    ///
    /// # Errors
    ///
    /// Those of the platform.
    pub fn start(platform: Arc<dyn Platform>, stream: Stream) -> Result<Self> {
        let origin_mark = platform.mark(stream)?;
        platform.wait(stream)?;
        Ok(Self { platform, origin: Instant::now(), origin_mark, state: Mutex::default() })
    }

    /// Notes what has just been enqueued on a stream.
    pub(super) fn add_enqueued(&self, kind: ActivityKind, name: &'static str, bytes: u64, stream: Stream) {
        let begun_us = self.now_us();
        // Watching must not fail what is watched: without a mark there is no entry.
        if let Ok(mark) = self.platform.mark(stream) {
            self.add(Entry { kind, name, bytes, begun_us, end: End::Device(stream, mark) });
        }
    }

    /// Notes what the host did from `begun` until now.
    pub(super) fn add_done(&self, kind: ActivityKind, name: &'static str, bytes: u64, begun: Instant) {
        let begun_us = begun.saturating_duration_since(self.origin).as_secs_f64() * 1e6;
        self.add(Entry { kind, name, bytes, begun_us, end: End::Host(self.now_us()) });
    }

    fn now_us(&self) -> f64 {
        self.origin.elapsed().as_secs_f64() * 1e6
    }

    fn add(&self, entry: Entry) {
        let mut state = self.lock();
        if state.entries.len() < ACTIVITIES_MAX {
            state.entries.push(entry);
        } else {
            state.missed += 1;
            drop(state);
            self.release(&entry);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, entry: &Entry) {
        if let End::Device(_, mark) = entry.end {
            self.platform.release_mark(mark);
        }
    }

    /// What was done, in the order of its start. The streams' work must be over; the log is empty then.
    pub fn take(&self) -> Vec<Activity> {
        let entries = std::mem::take(&mut self.lock().entries);
        // Where the activity before ended, by stream.
        let mut ended: HashMap<Stream, f64> = HashMap::new();
        // Streams are numbered in the order of their first activity.
        let mut lanes: HashMap<Stream, u32> = HashMap::new();
        let mut activities = Vec::with_capacity(entries.len());
        for entry in &entries {
            let (lane, started_us, ended_us) = match entry.end {
                End::Host(ended_us) => (0, entry.begun_us, ended_us),
                End::Device(stream, mark) => {
                    let next_lane = lanes.len() as u32 + 1;
                    let lane = *lanes.entry(stream).or_insert(next_lane);
                    let Ok(ended_us) = self.platform.elapsed_us(self.origin_mark, mark) else { continue };
                    let before = ended.insert(stream, ended_us).unwrap_or(0.0);
                    (lane, before.max(entry.begun_us).min(ended_us), ended_us)
                }
            };
            activities.push(Activity {
                kind: entry.kind,
                name: entry.name.to_owned(),
                lane,
                started_us: started_us.max(0.0) as u64,
                elapsed_us: (ended_us - started_us).max(0.0) as u64,
                bytes: entry.bytes,
            });
        }
        entries.iter().for_each(|entry| self.release(entry));
        activities.sort_by_key(|activity| activity.started_us);
        activities
    }
}

impl Drop for ActivityLog {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.lock().entries);
        entries.iter().for_each(|entry| self.release(entry));
        self.platform.release_mark(self.origin_mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::EmulatedPlatform;

    #[test]
    fn activities_of_a_stream_follow_one_another() {
        let log = ActivityLog::start(Arc::new(EmulatedPlatform::new()), Stream(0)).unwrap();
        log.add_done(ActivityKind::Read, "read", 10, Instant::now());
        log.add_enqueued(ActivityKind::Kernel, "probe", 0, Stream(7));
        log.add_enqueued(ActivityKind::Kernel, "gather", 0, Stream(7));
        log.add_enqueued(ActivityKind::Upload, "upload", 5, Stream(9));
        let activities = log.take();
        let lanes: Vec<u32> = activities.iter().map(|activity| activity.lane).collect();
        assert_eq!(lanes.iter().filter(|lane| **lane == 1).count(), 2);
        assert_eq!(activities.len(), 4);
        let of_stream: Vec<_> = activities.iter().filter(|activity| activity.lane == 1).collect();
        assert!(of_stream[0].started_us + of_stream[0].elapsed_us <= of_stream[1].started_us + 1);
        assert!(log.take().is_empty());
    }
}
