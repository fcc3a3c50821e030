//! Which queries run, and which wait until others have ended.
//!
//! A query runs while it has a place. There are as many as the engine's memory has shares of a size with which most
//! queries come to their end, so that those that run have memory, and those that would fail for want of it wait. A
//! query whose reader has paused leaves its place to others, and takes one again before it goes on. What memory it holds
//! meanwhile it is asked to give up when others have too little (`drive.rs`).
//!
//! Invariants: waiting queries get places in order of arrival. Queries that had a place before come first, because they hold memory and
//! arrived earlier. A query that has to run alone is overtaken only while one still runs that ran when it began to wait:
//! it waits for these, and then for those that overtook it, and for no more. A place comes back however its query ends:
//! it waits for no reader, so that every wait ends when those that run do.
//!
//! Deliberately absent: what a query gets beyond its share. That is the memory pool's to decide, and a query that is
//! refused beside others runs again alone (`stream.rs`).

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use pystachio_engine::{StopFlag, locking::lock};
use pystachio_plan::{Error, ErrorKind, Result};
use tokio::sync::{Notify, oneshot};

/// Memory for each query that runs. With half of it, and so twice as many queries at once, 32 clients over TPC-H at scale
/// factor 1 on 512 MB got a fifth fewer answers a second, as more ran out of memory and had to run again; with twice as
/// much a quarter more. One run each, on cores with other load: a choice between them wants more.
const SHARE_BYTES: u64 = 128 << 20;
/// The part of a share, or of all memory if that is less, that is to be free before a query begins.
const FREE_PART: u64 = 2;
/// The part of all memory that queries whose readers have paused may keep when one is to run alone.
const KEPT_PART: u64 = 8;
/// Queries that wait at once; one beyond them is refused. As many as a server has sessions.
const WAITING_MAX: usize = 4096;
/// How often a query that waits looks whether it is still wanted.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The places of an engine.
pub(crate) struct Places {
    memory: EngineMemory,
    count_max: usize,
    state: Mutex<PlacesState>,
}

/// What places know of an engine's memory.
pub(crate) struct EngineMemory {
    /// All of it.
    pub(crate) bytes_max: u64,
    /// What queries could still have.
    pub(crate) free_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Default)]
struct PlacesState {
    next_number: u64,
    /// Those that have a place, and whether others had one meanwhile.
    holders: HashMap<u64, HadCompany>,
    /// Whether the one that has a place is to be alone.
    is_alone: bool,
    /// Those that have left their places and hold memory.
    paused: HashMap<u64, Paused>,
    /// Those that had a place before.
    returning: VecDeque<Waiting>,
    arriving: VecDeque<Waiting>,
}

type HadCompany = bool;

struct Paused {
    held_bytes: u64,
    is_asked: bool,
    ask: Arc<Notify>,
}

struct Waiting {
    number: u64,
    way: Way,
    /// The queries that had a place when one that must run alone began to wait.
    before: Vec<u64>,
    turn: oneshot::Sender<()>,
}

/// How a query takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// For the first time, with memory free.
    Arriving,
    /// With the memory that it holds.
    Returning,
    /// Only when no other query has one, nor much memory. No other query gets one before it is left.
    Alone,
}

/// What a query that has paused is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has a place.
    Go,
    /// It has none, and is to give up the memory that it holds.
    GiveUpMemory,
}

/// A query's place, or its wait for one: dropping it ends either.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    had_company: HadCompany,
    ask: Arc<Notify>,
}

impl Places {
    /// The places of an engine.
    pub(crate) fn new(memory: EngineMemory) -> Arc<Self> {
        let count = usize::try_from(memory.bytes_max / SHARE_BYTES).unwrap_or(usize::MAX);
        Arc::new(Self { memory, count_max: count.max(1), state: Mutex::default() })
    }

    /// Queries that wait.
    pub(crate) fn waiting_count(&self) -> usize {
        let state = self.lock();
        state.returning.len() + state.arriving.len()
    }

    /// Waits for a place, behind all that wait already.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` says so, `OutOfMemory` if too many wait.
    pub(crate) async fn take(self: &Arc<Self>, stop: &StopFlag) -> Result<Place> {
        let waiting_count = self.waiting_count();
        if waiting_count >= WAITING_MAX {
            let message = format!(
                "too many queries wait for memory: queries_waiting={waiting_count}, queries_waiting_max={WAITING_MAX}"
            );
            return Err(Error::new(ErrorKind::OutOfMemory, message).with_hint(
                "Increase the option \"memory\" of the foreign server, or run fewer queries at once.",
            ));
        }
        let number = {
            let mut state = self.lock();
            state.next_number += 1;
            state.next_number
        };
        let place = Place { places: self.clone(), number, had_company: false, ask: Arc::default() };
        let turn = place.request(Way::Arriving);
        wait(turn, stop).await?;
        Ok(place)
    }

    fn lock(&self) -> MutexGuard<'_, PlacesState> {
        lock(&self.state)
    }

    /// Gives places to those that wait, in their order, as far as there are any.
    fn give(&self, state: &mut PlacesState) {
        while let Some(Waiting { number, way, turn, .. }) = self.take_next(state) {
            state.paused.remove(&number);
            state.is_alone = way == Way::Alone;
            state.holders.values_mut().for_each(|had_company| *had_company = true);
            let has_company = !state.holders.is_empty() || !state.paused.is_empty();
            state.holders.insert(number, has_company);
            // If the receiver is gone, the place is about to be dropped.
            let _ = turn.send(());
        }
    }

    /// Takes the next one out of those that wait, if it may have a place now.
    fn take_next(&self, state: &mut PlacesState) -> Option<Waiting> {
        for index in 0..state.returning.len() {
            let way = state.returning[index].way;
            if self.has_room(state, way) {
                return state.returning.remove(index);
            }
            if !state.lets_others_pass(&state.returning[index]) {
                return None;
            }
        }
        let way = state.arriving.front()?.way;
        if self.has_room(state, way) { state.arriving.pop_front() } else { None }
    }

    /// Whether the query that waits first may have a place now. If it needs memory that others hold for nothing, these
    /// are asked for it.
    fn has_room(&self, state: &mut PlacesState, way: Way) -> bool {
        let is_place_free = !state.is_alone && state.holders.len() < self.count_max;
        match way {
            Way::Returning => is_place_free,
            Way::Arriving if is_place_free && !state.paused.is_empty() => {
                let wanted_bytes = self.memory.bytes_max.min(SHARE_BYTES) / FREE_PART;
                !state.ask(wanted_bytes.saturating_sub((self.memory.free_bytes)()))
            }
            Way::Arriving => is_place_free,
            Way::Alone => {
                let held_bytes: u64 = state.paused.values().map(|paused| paused.held_bytes).sum();
                let is_asked = state.ask(held_bytes.saturating_sub(self.memory.bytes_max / KEPT_PART));
                state.holders.is_empty() && !is_asked
            }
        }
    }
}

impl PlacesState {
    /// Whether those behind this one may have places although it gets none: it has to wait for others anyway.
    fn lets_others_pass(&self, waiting: &Waiting) -> bool {
        waiting.before.iter().any(|number| self.holders.contains_key(number))
    }

    /// Asks paused queries for so much memory, the largest first. Returns false if no query is left to wait for.
    fn ask(&mut self, wanted_bytes: u64) -> bool {
        let mut paused: Vec<&mut Paused> =
            self.paused.values_mut().filter(|paused| paused.held_bytes > 0).collect();
        paused.sort_unstable_by_key(|paused| Reverse((paused.is_asked, paused.held_bytes)));
        let mut asked_bytes = 0;
        for paused in paused {
            if asked_bytes >= wanted_bytes {
                break;
            }
            if !paused.is_asked {
                paused.is_asked = true;
                paused.ask.notify_one();
            }
            asked_bytes += paused.held_bytes;
        }
        asked_bytes > 0
    }

    fn remove(&mut self, place: &mut Place) {
        if let Some(had_company) = self.holders.remove(&place.number) {
            place.had_company |= had_company;
            self.is_alone = false;
        }
        self.paused.remove(&place.number);
        self.returning.retain(|waiting| waiting.number != place.number);
        self.arriving.retain(|waiting| waiting.number != place.number);
    }
}

/// Waits until a place is given.
///
/// # Errors
///
/// `Cancelled` when `stop` says so.
async fn wait(mut turn: oneshot::Receiver<()>, stop: &StopFlag) -> Result<()> {
    if turn.try_recv().is_ok() {
        return Ok(());
    }
    let _waits = stop.wait_for_turn();
    while turn.try_recv().is_err() {
        if stop.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        if tokio::time::timeout(STOP_POLL_INTERVAL, &mut turn).await.is_ok() {
            break;
        }
    }
    Ok(())
}

impl Place {
    /// Leaves it, with no memory held any more.
    pub(crate) fn leave(&mut self) {
        let places = self.places.clone();
        let mut state = places.lock();
        state.remove(self);
        places.give(&mut state);
    }

    /// Leaves it to others for as long as the query does nothing but hold so much memory.
    pub(crate) fn pause(&mut self, held_bytes: u64) {
        let places = self.places.clone();
        let mut state = places.lock();
        state.remove(self);
        // What an earlier pause was asked for is no matter of this one.
        self.ask = Arc::default();
        state.paused.insert(self.number, Paused { held_bytes, is_asked: false, ask: self.ask.clone() });
        places.give(&mut state);
    }

    /// Waits until a query that has paused is asked to give up its memory. It must do so then, and leave.
    pub(crate) async fn memory_wanted(&self) {
        self.ask.notified().await;
    }

    /// Takes a place again after a pause, before all that have had none yet, unless the memory is wanted first.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` says so.
    pub(crate) async fn take_again(&self, stop: &StopFlag) -> Result<Turn> {
        let turn = self.request(Way::Returning);
        tokio::select! {
            biased;
            waited = wait(turn, stop) => waited.map(|()| Turn::Go),
            () = self.memory_wanted() => Ok(self.withdraw()),
        }
    }

    /// Ends the wait for a place, unless it was given meanwhile.
    fn withdraw(&self) -> Turn {
        let mut state = self.places.lock();
        if state.holders.contains_key(&self.number) {
            return Turn::Go;
        }
        state.returning.retain(|waiting| waiting.number != self.number);
        self.places.give(&mut state);
        Turn::GiveUpMemory
    }

    /// Takes a place again when no other query has one, and keeps others from getting one meanwhile. The query has given up its memory.
    ///
    /// # Errors
    ///
    /// As of [`Self::take_again`].
    pub(crate) async fn take_alone(&mut self, stop: &StopFlag) -> Result<()> {
        self.leave();
        self.had_company = false;
        wait(self.request(Way::Alone), stop).await
    }

    /// Whether other queries ran, or held memory, while this one had its place.
    pub(crate) fn had_company(&self) -> bool {
        self.had_company || self.places.lock().holders.get(&self.number).copied().unwrap_or_default()
    }

    fn request(&self, way: Way) -> oneshot::Receiver<()> {
        let (turn, told) = oneshot::channel();
        let mut state = self.places.lock();
        let before = if way == Way::Alone { state.holders.keys().copied().collect() } else { Vec::new() };
        let queue = if way == Way::Arriving { &mut state.arriving } else { &mut state.returning };
        queue.push_back(Waiting { number: self.number, way, before, turn });
        self.places.give(&mut state);
        told
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::Future,
        pin::{Pin, pin},
        sync::atomic::{AtomicU64, Ordering},
        task::Poll,
    };

    const MEMORY_BYTES: u64 = 1 << 30;

    fn places(count_max: usize) -> Arc<Places> {
        places_with(count_max, Arc::new(AtomicU64::new(MEMORY_BYTES)))
    }

    /// Places of an engine of which so much memory is free.
    fn places_with(count_max: usize, free_bytes: Arc<AtomicU64>) -> Arc<Places> {
        let free_bytes = Box::new(move || free_bytes.load(Ordering::Relaxed));
        let memory = EngineMemory { bytes_max: MEMORY_BYTES, free_bytes };
        Arc::new(Places { memory, count_max, state: Mutex::default() })
    }

    /// Whether a wait is over; it goes on otherwise.
    async fn is_ready<T>(wait: &mut (impl Future<Output = T> + Unpin)) -> bool {
        futures::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *wait).poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_arrival() {
        let (places, stop) = (places(2), StopFlag::default());
        let first = places.take(&stop).await.unwrap();
        let second = places.take(&stop).await.unwrap();
        let (mut third, mut fourth) = (pin!(places.take(&stop)), pin!(places.take(&stop)));
        assert!(!is_ready(&mut third).await && !is_ready(&mut fourth).await);
        assert_eq!(places.waiting_count(), 2);
        drop(second);
        assert!(!is_ready(&mut fourth).await);
        let third = third.await.unwrap();
        drop(first);
        let fourth = fourth.await.unwrap();
        assert!(third.had_company() && fourth.had_company());
        drop((third, fourth));
        assert!(!places.take(&stop).await.unwrap().had_company());
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_or_stopped_takes_nothing() {
        let (places, stop) = (places(1), StopFlag::default());
        let first = places.take(&stop).await.unwrap();
        assert!(!*stop.turn_waits().borrow());
        let stopped = StopFlag::default();
        let mut second = Box::pin(places.take(&stop));
        let mut third = Box::pin(places.take(&stopped));
        let mut fourth = Box::pin(places.take(&stop));
        assert!(!is_ready(&mut second).await && !is_ready(&mut third).await && !is_ready(&mut fourth).await);
        assert!(*stop.turn_waits().borrow() && *stopped.turn_waits().borrow());
        stopped.stop();
        assert_eq!(third.await.err().unwrap().kind, ErrorKind::Cancelled);
        assert!(!*stopped.turn_waits().borrow());
        // The second is given the place, and is dropped before it knows.
        drop(first);
        drop(second);
        fourth.await.unwrap();
        assert_eq!(places.waiting_count(), 0);
        assert!(places.lock().holders.is_empty());
    }

    #[tokio::test]
    async fn a_paused_query_leaves_its_place_and_is_first_to_get_one() {
        let (places, stop) = (places(1), StopFlag::default());
        let mut paused = places.take(&stop).await.unwrap();
        paused.pause(1 << 20);
        let second = places.take(&stop).await.unwrap();
        let mut third = Box::pin(places.take(&stop));
        assert!(!is_ready(&mut third).await);
        {
            let mut again = Box::pin(paused.take_again(&stop));
            assert!(!is_ready(&mut again).await);
            drop(second);
            assert_eq!(again.await.unwrap(), Turn::Go);
        }
        assert!(!is_ready(&mut third).await);
        drop(paused);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn who_is_to_be_alone_is_overtaken_only_while_those_run_that_ran_before() {
        let (places, stop) = (places(3), StopFlag::default());
        let mut alone = places.take(&stop).await.unwrap();
        let other = places.take(&stop).await.unwrap();
        assert!(alone.had_company());
        {
            let mut taking = Box::pin(alone.take_alone(&stop));
            assert!(!is_ready(&mut taking).await);
            // It has to wait for the other one anyway.
            let overtaking = [places.take(&stop).await.unwrap(), places.take(&stop).await.unwrap()];
            let mut late = Box::pin(places.take(&stop));
            assert!(!is_ready(&mut late).await, "all places are taken");
            drop(other);
            assert!(!is_ready(&mut late).await, "it would never have its turn");
            assert!(!is_ready(&mut taking).await);
            drop(late);
            let [first, second] = overtaking;
            drop(first);
            let mut late = Box::pin(places.take(&stop));
            assert!(!is_ready(&mut late).await);
            drop(late);
            drop(second);
            taking.await.unwrap();
        }
        let mut late = Box::pin(places.take(&stop));
        assert!(!is_ready(&mut late).await);
        assert!(!alone.had_company());
        drop(alone);
        late.await.unwrap();
    }

    #[tokio::test]
    async fn the_largest_that_pause_are_asked_for_their_memory() {
        let free_bytes = Arc::new(AtomicU64::new(MEMORY_BYTES));
        let (places, stop) = (places_with(3, free_bytes.clone()), StopFlag::default());
        let mut paused = Vec::new();
        for held_bytes in [10 << 20, 30 << 20, 0] {
            paused.push(places.take(&stop).await.unwrap());
            paused.last_mut().unwrap().pause(held_bytes);
        }
        // 24 MB are missing to half a share.
        free_bytes.store(40 << 20, Ordering::Relaxed);
        let mut arriving = Box::pin(places.take(&stop));
        assert!(!is_ready(&mut arriving).await);
        assert!(!is_ready(&mut pin!(paused[0].memory_wanted())).await);
        // A query that goes on before it learns of the request gets its place first.
        assert_eq!(paused[1].take_again(&stop).await.unwrap(), Turn::Go);
        paused[1].pause(30 << 20);
        assert!(!is_ready(&mut arriving).await);
        paused[1].memory_wanted().await;
        paused[1].leave();
        assert!(!is_ready(&mut arriving).await);
        paused[0].memory_wanted().await;
        paused[0].leave();
        // No query holds the memory that it needs any more.
        assert!(arriving.await.unwrap().had_company());
    }
}
