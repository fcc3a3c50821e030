//! The activities of a query: reads, copies, kernels and movements between ranks on one clock.
//!
//! ```text
//! storage  ├─ read ─┤├─ read ─┤                       start and end are known at once
//! network                     ├─ send ─┤              the same
//! stream 1      ├─ copy ─┤├─ decode ─┤                an event after each: it starts when the one before has ended,
//! stream 0                        ├─ probe ─┤         or when it was enqueued
//! ```
//!
//! Invariants: a log has at most [`ACTIVITIES_MAX`] activities; further ones are counted, not kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{Activity, ActivityKind, DeviceWork, Result};

use super::{Platform, Stream, TimedEvent};

/// Limit of the activities that a log keeps.
const ACTIVITIES_MAX: usize = 1 << 16;
/// The first [`Activity::lane`] of streams.
const FIRST_STREAM_LANE: u32 = 2;

/// The activities of one query. Filled by all its threads.
pub struct ActivityLog {
    platform: Arc<dyn Platform>,
    origin: Instant,
    /// The same instant on the clock that processes share.
    origin_time: SystemTime,
    origin_event: TimedEvent,
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    entries: Vec<LoggedActivity>,
    /// The number of dropped activities.
    missed: u64,
}

struct LoggedActivity {
    /// The operator that it belongs to, as
    /// [`DeviceMemory::attribute`](super::DeviceMemory::attribute) set it.
    operator: u32,
    kind: ActivityKind,
    name: &'static str,
    bytes: u64,
    /// The time when it began or was enqueued, in microseconds since the log's origin.
    begun_us: f64,
    end: End,
}

enum End {
    /// The host did it.
    Host(f64),
    /// It ends when the event is reached.
    Device(Stream, TimedEvent),
}

impl ActivityLog {
    /// A log whose clock starts now; waits for the stream.
    ///
    /// # Errors
    ///
    /// Errors of the platform.
    pub fn start(platform: Arc<dyn Platform>, stream: Stream) -> Result<Self> {
        let origin_event = platform.record_timed_event(stream)?;
        platform.wait(stream)?;
        let (origin, origin_time) = (Instant::now(), SystemTime::now());
        Ok(Self { platform, origin, origin_time, origin_event, state: Mutex::default() })
    }

    /// The time when its clock started, in microseconds since 1970.
    pub fn started_unix_us(&self) -> u64 {
        let since = self.origin_time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Records an activity that has just been enqueued on a stream.
    pub(super) fn add_enqueued(&self, what: What, stream: Stream) {
        let begun_us = self.now_us();
        // A failure here must not fail the query: without an event there is no entry.
        if let Ok(event) = self.platform.record_timed_event(stream) {
            self.add(what.entry(begun_us, End::Device(stream, event)));
        }
    }

    /// Records bytes moved between this rank and another one from `begun` until now, for an
    /// operator.
    pub(crate) fn add_moved(&self, operator: u32, kind: ActivityKind, bytes: u64, begun: Instant) {
        let name = if kind == ActivityKind::Send { "send" } else { "receive" };
        self.add_done(What { operator, kind, name, bytes }, begun);
    }

    /// Records an activity of the host from `begun` until now.
    pub(super) fn add_done(&self, what: What, begun: Instant) {
        let begun_us = begun.saturating_duration_since(self.origin).as_secs_f64() * 1e6;
        self.add(what.entry(begun_us, End::Host(self.now_us())));
    }

    fn now_us(&self) -> f64 {
        self.origin.elapsed().as_secs_f64() * 1e6
    }

    fn add(&self, entry: LoggedActivity) {
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
        lock_whole(&self.state)
    }

    fn release(&self, entry: &LoggedActivity) {
        if let End::Device(_, event) = entry.end {
            self.platform.release_timed_event(event);
        }
    }

    /// The activities, in the order of their start. The streams' work must have ended; the log is
    /// empty then.
    pub fn take(&self) -> Vec<NotedActivity> {
        let entries = std::mem::take(&mut self.lock().entries);
        // The end of the previous activity, by stream.
        let mut ended: HashMap<Stream, f64> = HashMap::new();
        // Streams are numbered in the order of their first activity.
        let mut lanes: HashMap<Stream, u32> = HashMap::new();
        let mut activities = Vec::with_capacity(entries.len());
        for entry in &entries {
            let (lane, started_us, ended_us) = match entry.end {
                End::Host(ended_us) => (host_lane(entry.kind), entry.begun_us, ended_us),
                End::Device(stream, event) => {
                    let next_lane = lanes.len() as u32 + FIRST_STREAM_LANE;
                    let lane = *lanes.entry(stream).or_insert(next_lane);
                    let Ok(ended_us) = self.platform.elapsed_us(self.origin_event, event) else { continue };
                    let before = ended.insert(stream, ended_us).unwrap_or(0.0);
                    (lane, before.max(entry.begun_us).min(ended_us), ended_us)
                }
            };
            activities.push(NotedActivity {
                operator: entry.operator,
                activity: Activity {
                    rank: 0,
                    kind: entry.kind,
                    name: entry.name.to_owned(),
                    lane,
                    started_us: started_us.max(0.0) as u64,
                    elapsed_us: (ended_us - started_us).max(0.0) as u64,
                    bytes: entry.bytes,
                },
            });
        }
        entries.iter().for_each(|entry| self.release(entry));
        activities.sort_by_key(|noted| noted.activity.started_us);
        activities
    }
}

/// An activity without its times.
pub(super) struct What {
    pub(super) operator: u32,
    pub(super) kind: ActivityKind,
    pub(super) name: &'static str,
    pub(super) bytes: u64,
}

impl What {
    fn entry(self, begun_us: f64, end: End) -> LoggedActivity {
        let Self { operator, kind, name, bytes } = self;
        LoggedActivity { operator, kind, name, bytes, begun_us, end }
    }
}

/// An activity and the operator that it belongs to.
pub struct NotedActivity {
    /// Its place among the query's operators.
    pub operator: u32,
    /// The activity.
    pub activity: Activity,
}

/// The lane of the host's activities.
fn host_lane(kind: ActivityKind) -> u32 {
    u32::from(moves_between_ranks(kind))
}

fn moves_between_ranks(kind: ActivityKind) -> bool {
    matches!(kind, ActivityKind::Send | ActivityKind::Receive)
}

/// Sums of all activities, except those between ranks. The caller adds the rate of reading and the
/// arena.
pub fn device_work(activities: &[NotedActivity]) -> DeviceWork {
    let spans = |is_wanted: &dyn Fn(ActivityKind) -> bool| {
        let wanted =
            activities.iter().map(|noted| &noted.activity).filter(|activity| is_wanted(activity.kind));
        union(
            wanted.map(|activity| (activity.started_us, activity.started_us + activity.elapsed_us)).collect(),
        )
    };
    let reads = spans(&|kind| kind == ActivityKind::Read);
    let busy = spans(&|kind| kind != ActivityKind::Read && !moves_between_ranks(kind));
    DeviceWork {
        kernel_us: length(&spans(&|kind| matches!(kind, ActivityKind::Kernel | ActivityKind::Copy))),
        copy_us: length(&spans(&|kind| matches!(kind, ActivityKind::Upload | ActivityKind::Download))),
        read_us: length(&reads),
        overlap_us: shared_length(&reads, &busy),
        ..DeviceWork::default()
    }
}

/// Spans that do not touch, in order, which together cover the same moments.
fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some((_, last_end)) if start <= *last_end => *last_end = (*last_end).max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

fn length(spans: &[(u64, u64)]) -> u64 {
    spans.iter().map(|(start, end)| end - start).sum()
}

/// The time that both cover.
fn shared_length(a: &[(u64, u64)], b: &[(u64, u64)]) -> u64 {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut shared = 0;
    while let (Some((a_start, a_end)), Some((b_start, b_end))) = (a.peek(), b.peek()) {
        shared += a_end.min(b_end).saturating_sub(*a_start.max(b_start));
        if a_end < b_end {
            a.next();
        } else {
            b.next();
        }
    }
    shared
}

impl Drop for ActivityLog {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.lock().entries);
        entries.iter().for_each(|entry| self.release(entry));
        self.platform.release_timed_event(self.origin_event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::EmulatedPlatform;

    fn what(kind: ActivityKind, name: &'static str) -> What {
        What { operator: 3, kind, name, bytes: 10 }
    }

    #[test]
    fn activities_of_a_stream_follow_one_another() {
        let platform = Arc::new(EmulatedPlatform::new());
        let log = ActivityLog::start(platform.clone(), Stream(0)).unwrap();
        log.add_done(what(ActivityKind::Read, "read"), Instant::now());
        log.add_enqueued(what(ActivityKind::Kernel, "probe"), Stream(7));
        log.add_enqueued(what(ActivityKind::Kernel, "gather"), Stream(7));
        log.add_enqueued(what(ActivityKind::Upload, "upload"), Stream(9));
        [7, 9].into_iter().for_each(|stream| platform.wait(Stream(stream)).unwrap());
        let noted = log.take();
        assert!(noted.iter().all(|noted| noted.operator == 3 && noted.activity.bytes == 10));
        assert_eq!(noted.len(), 4);
        let of_stream: Vec<&Activity> =
            noted.iter().map(|noted| &noted.activity).filter(|activity| activity.lane == 2).collect();
        assert_eq!(of_stream.len(), 2);
        assert!(of_stream[0].started_us + of_stream[0].elapsed_us <= of_stream[1].started_us + 1);
        assert!(log.take().is_empty());
    }

    #[test]
    fn storage_network_and_streams_have_lanes_of_their_own() {
        let platform = Arc::new(EmulatedPlatform::new());
        let log = ActivityLog::start(platform.clone(), Stream(0)).unwrap();
        let begun = Instant::now();
        log.add_done(what(ActivityKind::Read, "read"), begun);
        log.add_moved(5, ActivityKind::Send, 70, begun);
        log.add_moved(5, ActivityKind::Receive, 80, begun);
        log.add_enqueued(what(ActivityKind::Kernel, "probe"), Stream(7));
        platform.wait(Stream(7)).unwrap();
        let noted = log.take();
        let of = |kind| noted.iter().find(|noted| noted.activity.kind == kind).unwrap();
        let lanes = [ActivityKind::Read, ActivityKind::Send, ActivityKind::Receive, ActivityKind::Kernel];
        assert_eq!(lanes.map(|kind| of(kind).activity.lane), [0, 1, 1, 2]);
        let sent = of(ActivityKind::Send);
        assert_eq!((sent.operator, sent.activity.name.as_str(), sent.activity.bytes), (5, "send", 70));
    }

    #[test]
    fn moments_are_counted_once() {
        let noted = |kind, started_us, elapsed_us| NotedActivity {
            operator: 0,
            activity: Activity {
                rank: 0,
                kind,
                name: String::new(),
                lane: 0,
                started_us,
                elapsed_us,
                bytes: 0,
            },
        };
        let work = device_work(&[
            noted(ActivityKind::Read, 0, 10),
            noted(ActivityKind::Read, 5, 10),
            noted(ActivityKind::Upload, 12, 6),
            noted(ActivityKind::Kernel, 14, 10),
            noted(ActivityKind::Kernel, 20, 10),
            noted(ActivityKind::Download, 40, 1),
            // Movements between ranks are no work of this device.
            noted(ActivityKind::Send, 0, 50),
            noted(ActivityKind::Receive, 3, 50),
        ]);
        let found = (work.read_us, work.copy_us, work.kernel_us, work.overlap_us);
        assert_eq!(found, (15, 7, 16, 3));
    }
}
