//! When the emulated device does the work that is enqueued on its streams.
//!
//! At once by default. With a seed, as late as a GPU might, and in orders that a GPU might choose:
//! only awaited work, all other streams first, or streams by turns. Code that reads a result too
//! early, or frees memory too early, then finds other bytes there.
//!
//! ```text
//! stream 0   copy ─ kernel ─ event a ─ kernel …          a step is done by whichever thread waits, one of a stream at a time
//! stream 1   kernel ─ after a ─ kernel …
//! ```
//!
//! Invariants: the steps of one stream run in order, and work ordered after an event runs after it.
//! The seed chooses the order of steps among streams; the order in which host threads enqueue them
//! is the host's.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{STEP, mix};
use crate::device::{Event, Stream};

/// Limit of a stream's delayed steps: bytes copied from the host are kept for them.
const STEPS_LEFT_MAX: usize = 4096;
/// A thread that enqueues runs a step one time in so many.
const EAGER_PART: u64 = 8;

/// A piece of work on a stream.
type StreamWork = Box<dyn FnOnce() -> Result<()> + Send>;

/// The streams of an emulated device.
pub(super) struct Schedule {
    started: Instant,
    next_stream: AtomicU64,
    /// Absent if everything happens at once.
    late: Option<LateStreams>,
}

struct LateStreams {
    state: Mutex<LateState>,
    changed: Condvar,
}

struct LateState {
    random: u64,
    streams: BTreeMap<u64, StreamSteps>,
    events: HashMap<u64, EventState>,
    next_event: u64,
    /// The error of the first step that failed: the device is lost then.
    fault: Option<Error>,
}

#[derive(Default)]
struct StreamSteps {
    left: VecDeque<StreamStep>,
    is_running: bool,
    enqueued: u64,
    done: u64,
}

enum StreamStep {
    Work(StreamWork),
    /// Waits until so many steps of another stream are done.
    After(u64, u64),
    Reached(u64),
}

struct EventState {
    stream: u64,
    /// Delayed steps of the stream.
    count: u64,
    at: Option<Instant>,
}

/// The work that happens while the host waits for a stream.
#[derive(Clone, Copy)]
enum LateOrder {
    /// Only the awaited work, and the work that it is ordered after.
    OnlyWaitedFor,
    /// All possible work of other streams, before it.
    OthersFirst,
    /// Any stream's next step.
    ByTurns,
}

impl Schedule {
    /// Streams whose work happens when it is enqueued, or late and in a seeded order.
    pub(super) fn new(seed: Option<u64>) -> Self {
        let late = seed.map(|seed| LateStreams {
            state: Mutex::new(LateState {
                random: seed,
                streams: BTreeMap::new(),
                events: HashMap::new(),
                next_event: 0,
                fault: None,
            }),
            changed: Condvar::new(),
        });
        Self { started: Instant::now(), next_stream: AtomicU64::new(0), late }
    }

    pub(super) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    pub(super) fn create_stream(&self) -> Stream {
        Stream(self.next_stream.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs work on a stream, now or later.
    ///
    /// # Errors
    ///
    /// Errors of the work, if it runs now.
    pub(super) fn enqueue(
        &self,
        stream: Stream,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        match &self.late {
            None => work(),
            Some(late) => {
                late.enqueue(stream, StreamStep::Work(Box::new(work)));
                Ok(())
            }
        }
    }

    pub(super) fn record_event(&self, stream: Stream) -> Event {
        match &self.late {
            None => Event(self.started.elapsed().as_nanos() as u64),
            Some(late) => late.record_event(stream),
        }
    }

    pub(super) fn release_event(&self, event: Event) {
        if let Some(late) = &self.late {
            late.lock().events.remove(&event.0);
        }
    }

    pub(super) fn order_after(&self, stream: Stream, event: Event) {
        if let Some(late) = &self.late {
            let known = late.lock().events.get(&event.0).map(|known| (known.stream, known.count));
            if let Some((other, count)) = known {
                late.enqueue(stream, StreamStep::After(other, count));
            }
        }
    }

    pub(super) fn has_reached(&self, event: Event) -> bool {
        self.late.as_ref().is_none_or(|late| late.has_reached(event))
    }

    /// Waits for the work enqueued on a stream.
    pub(super) fn wait(&self, stream: Stream) -> Result<()> {
        let Some(late) = &self.late else { return Ok(()) };
        let count = late.lock().streams.get(&stream.0).map_or(0, |steps| steps.enqueued);
        late.wait(stream.0, count)
    }

    pub(super) fn wait_event(&self, event: Event) -> Result<()> {
        let Some(late) = &self.late else { return Ok(()) };
        let known = late.lock().events.get(&event.0).map(|known| (known.stream, known.count));
        known.map_or(Ok(()), |(stream, count)| late.wait(stream, count))
    }

    /// Nanoseconds from the device's start to an event that was reached.
    pub(super) fn nanoseconds(&self, event: Event) -> Result<f64> {
        let Some(late) = &self.late else { return Ok(event.0 as f64) };
        let at = late.lock().events.get(&event.0).and_then(|known| known.at);
        let at = at.ok_or_else(|| Error::internal("an event that has not been reached"))?;
        Ok(at.saturating_duration_since(self.started).as_nanos() as f64)
    }
}

impl Drop for Schedule {
    /// Runs all remaining steps: they return slots and guards.
    fn drop(&mut self) {
        if let Some(late) = &self.late {
            let mut state = late.lock();
            while let Some(stream) = state.any_ready(None) {
                state = late.step(state, stream);
            }
        }
    }
}

impl LateStreams {
    fn lock(&self) -> MutexGuard<'_, LateState> {
        lock_whole(&self.state)
    }

    fn enqueue(&self, stream: Stream, step: StreamStep) {
        let mut state = self.lock();
        let steps = state.streams.entry(stream.0).or_default();
        steps.left.push_back(step);
        steps.enqueued += 1;
        let is_full = steps.left.len() > STEPS_LEFT_MAX;
        let count = match (is_full, state.random() % EAGER_PART) {
            (true, _) => STEPS_LEFT_MAX / 2,
            (false, 0) => 1 + (state.random() % 4) as usize,
            (false, _) => 0,
        };
        for _ in 0..count {
            let Some(ready) = state.any_ready(None) else { break };
            state = self.step(state, ready);
        }
    }

    fn record_event(&self, stream: Stream) -> Event {
        let mut state = self.lock();
        state.next_event += 1;
        let number = state.next_event;
        let steps = state.streams.entry(stream.0).or_default();
        steps.left.push_back(StreamStep::Reached(number));
        steps.enqueued += 1;
        let count = steps.enqueued;
        state.events.insert(number, EventState { stream: stream.0, count, at: None });
        Event(number)
    }

    /// Whether an event is reached. Repeated polls make it so at some time.
    fn has_reached(&self, event: Event) -> bool {
        let mut state = self.lock();
        let Some((stream, count)) = state.events.get(&event.0).map(|known| (known.stream, known.count))
        else {
            return true;
        };
        if state.done(stream) < count
            && state.random().is_multiple_of(2)
            && let Some(ready) = state.any_ready(None)
        {
            state = self.step(state, ready);
        }
        state.done(stream) >= count
    }

    fn wait(&self, stream: u64, count: u64) -> Result<()> {
        let mut state = self.lock();
        let order = match state.random() % 3 {
            0 => LateOrder::OnlyWaitedFor,
            1 => LateOrder::OthersFirst,
            _ => LateOrder::ByTurns,
        };
        while state.done(stream) < count {
            let next = match order {
                LateOrder::OnlyWaitedFor => state.needed_for(stream),
                LateOrder::OthersFirst => state.any_ready(Some(stream)).or_else(|| state.needed_for(stream)),
                LateOrder::ByTurns => state.any_ready(None),
            };
            state = match next {
                Some(ready) => self.step(state, ready),
                // Other threads are working on steps that this one waits for.
                None if state.streams.values().any(|steps| steps.is_running) => {
                    whole(self.changed.wait(state))
                }
                None => return Err(Error::internal("streams of the emulated device wait for each other")),
            };
        }
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    /// Does the next step of a stream, which is ready.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, LateState>, stream: u64) -> MutexGuard<'a, LateState> {
        let Some(steps) = state.streams.get_mut(&stream) else { return state };
        let failure = match steps.left.pop_front() {
            None => return state,
            Some(StreamStep::After(..)) => None,
            Some(StreamStep::Reached(event)) => {
                if let Some(known) = state.events.get_mut(&event) {
                    known.at = Some(Instant::now());
                }
                None
            }
            Some(StreamStep::Work(work)) => {
                steps.is_running = true;
                drop(state);
                let done = work();
                state = self.lock();
                done.err()
            }
        };
        if let Some(steps) = state.streams.get_mut(&stream) {
            steps.is_running = false;
            steps.done += 1;
        }
        if let Some(error) = failure {
            state.fault.get_or_insert(Error::new(ErrorKind::Device, error.message));
        }
        self.changed.notify_all();
        state
    }
}

impl LateState {
    /// The next number of the seeded sequence (SplitMix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(STEP);
        mix(self.random)
    }

    fn done(&self, stream: u64) -> u64 {
        self.streams.get(&stream).map_or(0, |steps| steps.done)
    }

    fn is_ready(&self, steps: &StreamSteps) -> bool {
        let is_reached = match steps.left.front() {
            None => false,
            Some(StreamStep::After(other, count)) => self.done(*other) >= *count,
            Some(StreamStep::Work(_) | StreamStep::Reached(_)) => true,
        };
        is_reached && !steps.is_running
    }

    /// Some stream whose next step can be done, but for one.
    fn any_ready(&mut self, but: Option<u64>) -> Option<u64> {
        let ready: Vec<u64> = self
            .streams
            .iter()
            .filter(|(stream, steps)| but != Some(**stream) && self.is_ready(steps))
            .map(|(stream, _)| *stream)
            .collect();
        let place = (self.random() % (ready.len().max(1) as u64)) as usize;
        ready.get(place).copied()
    }

    /// The stream whose next step must be done first so that one goes on.
    fn needed_for(&self, stream: u64) -> Option<u64> {
        let mut needed = stream;
        // The order among streams has no cycle, or no step would be ready.
        for _ in 0..=self.streams.len() {
            let steps = self.streams.get(&needed)?;
            match steps.left.front() {
                Some(StreamStep::After(other, count)) if self.done(*other) < *count => needed = *other,
                _ => return self.is_ready(steps).then_some(needed),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Two streams with three steps each, the second one's last after the first one's second.
    fn order_of(seed: u64) -> Vec<u32> {
        let schedule = Schedule::new(Some(seed));
        let done: Arc<Mutex<Vec<u32>>> = Arc::default();
        let streams = [schedule.create_stream(), schedule.create_stream()];
        let enqueue = |stream: Stream, number| {
            let done = done.clone();
            let work = move || {
                done.lock().unwrap().push(number);
                Ok(())
            };
            schedule.enqueue(stream, work).unwrap();
        };
        enqueue(streams[1], 10);
        enqueue(streams[0], 0);
        enqueue(streams[0], 1);
        let event = schedule.record_event(streams[0]);
        enqueue(streams[0], 2);
        enqueue(streams[1], 11);
        schedule.order_after(streams[1], event);
        schedule.release_event(event);
        enqueue(streams[1], 12);
        schedule.wait(streams[1]).unwrap();
        done.lock().unwrap().clone()
    }

    #[test]
    fn a_seed_chooses_an_order_that_streams_allow_and_repeats_it() {
        let orders: Vec<Vec<u32>> = (0..100).map(order_of).collect();
        for order in &orders {
            let place = |number| order.iter().position(|done| *done == number);
            assert!(place(0) < place(1) && place(10) < place(11) && place(11) < place(12), "{order:?}");
            assert!(place(12).is_some() && place(1) < place(12), "{order:?}");
            assert!(place(2).is_none() || place(1) < place(2), "{order:?}");
        }
        assert_eq!(orders, (0..100).map(order_of).collect::<Vec<_>>());
        let mut different = orders.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 8, "{different:?}");
        // Work that is never awaited need not happen.
        assert!(
            orders.iter().any(|order| !order.contains(&2)) && orders.iter().any(|order| order.contains(&2))
        );
    }

    #[test]
    fn a_step_that_fails_is_a_fault_of_the_device() {
        let schedule = Schedule::new(Some(7));
        let stream = schedule.create_stream();
        schedule.enqueue(stream, || Err(Error::internal("no such address"))).unwrap();
        let error = schedule.wait(stream).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Device, "no such address"));
    }
}
