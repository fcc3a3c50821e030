//! The limits of a device's memory for each user.
//!
//! ```text
//! arena ── bytes_max
//!   ├ no account: caches; they use idle memory, and give way (`Reclaim`)
//!   ├ query: reserved = max(used, minimum + what its claims have beyond the minimum's part for them)
//!   │   ├ working memory: chunks on their way
//!   │   ├ claims' part of the minimum: a guarantee of each claim, and a pool that all of them share
//!   │   ├ claim of a join:  guarantee, and what it was granted beyond it: of the pool, then of free memory
//!   │   └ claim of a sort:  …
//!   └ query: …
//! ```
//!
//! Caches may use half of the memory that queries have reserved and do not use. Otherwise, if the
//! running queries had reserved the whole arena, each would read all of its files again, even if it
//! used little of the memory.
//!
//! Invariants: the reservations of queries never exceed `bytes_max`, nor does the use of queries
//! and caches together. A query gets its reservation: caches give way, and the query waits a moment
//! until readers have finished decoding the chunks that the cache has just evicted. Queries that
//! wait for their minimum are admitted in the order of arrival, whatever their size, so none
//! overtakes a larger one. A claim grows beyond the query's minimum only into free memory, and while
//! a query waits only up to a limit. An admitted query waits for no other one, so it ends, and the
//! first that waits is admitted at the latest when all that run have ended. Claims get at most half of
//! the memory that a query could have beyond its minimum, so that its chunks have room too.
//!
//! - `account.rs`: the memory of a query, and the claims of its operators
//!
//! Deliberately absent: addresses. The pool (`memory/pool.rs`) places buffers.

mod account;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic::AtomicU64},
    time::{Duration, Instant},
};

use pystachio_engine::locking::{account as unbroken, lock, lock_whole};
use pystachio_plan::{Error, ErrorKind, Result};

pub(super) use account::Account;
pub use account::{Claim, Reservation};

/// The part of the queries' reservations that caches leave free.
const RESERVED_PART_LEFT: u64 = 2;
/// How long a query waits for reserved memory that a cache has evicted: as long as a reader may
/// still decode those chunks.
const RELEASE_WAIT_MAX: Duration = Duration::from_millis(200);

/// An owner of memory that it can do without.
pub trait Reclaim: Send + Sync {
    /// Frees `bytes`, or all if it holds less. Any thread that needs memory may call this; it holds
    /// no lock of the arena.
    fn reclaim(&self, bytes: u64);

    /// Its buffers that nothing else uses: the start and the bytes of each.
    fn idle_buffers(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Frees those of them that touch these ranges. Called as [`Reclaim::reclaim`] is.
    fn reclaim_ranges(&self, _ranges: &[Range<u64>]) {}
}

/// The memory of a device as numbers.
pub(super) struct Arena {
    bytes_max: u64,
    state: Mutex<ArenaState>,
    /// Signals that evicted memory has become free.
    released: Condvar,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
    next_account: AtomicU64,
}

#[derive(Default)]
struct ArenaState {
    /// Reserved by queries.
    reserved_bytes: u64,
    /// Used by queries and caches.
    used_bytes: u64,
    /// Used by caches, which free it on request.
    cached_bytes: u64,
    peak_bytes: u64,
    accounts: BTreeMap<u64, AccountState>,
    /// Accounts that have their minimum.
    admitted_count: u64,
    /// Accounts that wait for their minimum, and the signal for the first of them.
    waiting: VecDeque<(u64, Arc<Condvar>)>,
    /// The account whose query goes on without its reader, to free memory for those that wait.
    making_room: Option<u64>,
    /// Queries that wait for evicted memory.
    release_waiters: usize,
}

/// The outcome of taking memory.
enum TakeResult {
    Yes,
    /// Caches have this much of it, or readers that still use evicted chunks.
    Missing(u64),
    /// Queries have all of it.
    No,
}

#[derive(Clone, Copy, Default)]
struct AccountState {
    /// Absent before it is admitted.
    reservation: Option<Reservation>,
    /// Granted to claims beyond their guarantees.
    excess_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
}

impl AccountState {
    fn reserved_bytes(&self) -> u64 {
        self.used_bytes.max(self.reservation().minimum_bytes + self.beyond_bytes())
    }

    fn reservation(&self) -> Reservation {
        self.reservation.unwrap_or_default()
    }

    /// What claims have beyond the minimum.
    fn beyond_bytes(&self) -> u64 {
        self.excess_bytes.saturating_sub(self.reservation().pool_bytes)
    }
}

impl Arena {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            state: Mutex::default(),
            released: Condvar::new(),
            reclaimers: Mutex::default(),
            next_account: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes
    }

    /// Queries that wait for memory.
    pub(super) fn waiting_count(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Queries that have their minimum.
    pub(super) fn admitted_count(&self) -> u64 {
        self.lock().admitted_count
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.lock().peak_bytes
    }

    pub(super) fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = lock_whole(&self.reclaimers);
        reclaimers.retain(|known| known.strong_count() > 0);
        reclaimers.push(reclaimer);
    }

    /// The most that caches may use beyond their present use.
    pub(super) fn cache_room(&self) -> u64 {
        let state = self.lock();
        state.cache_bytes_max(self.bytes_max).saturating_sub(state.cached_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, ArenaState> {
        lock(&self.state)
    }

    fn reclaimers(&self) -> Vec<Arc<dyn Reclaim>> {
        lock_whole(&self.reclaimers).iter().filter_map(Weak::upgrade).collect()
    }

    /// Requests memory from caches.
    pub(super) fn reclaim(&self, bytes: u64) {
        self.reclaimers().iter().for_each(|reclaimer| reclaimer.reclaim(bytes));
    }

    /// The buffers of caches that nothing else uses: the start and the bytes of each.
    pub(super) fn idle_buffers(&self) -> Vec<(u64, u64)> {
        self.reclaimers().iter().flat_map(|reclaimer| reclaimer.idle_buffers()).collect()
    }

    /// Requests from caches the memory in some ranges.
    pub(super) fn reclaim_ranges(&self, ranges: &[Range<u64>]) {
        self.reclaimers().iter().for_each(|reclaimer| reclaimer.reclaim_ranges(ranges));
    }

    /// Counts memory that is about to be allocated.
    pub(super) fn take(&self, account: Option<&Account>, bytes: u64) -> Result<()> {
        let is_taken = match account {
            Some(account) => self.take_reserved(account, bytes),
            // No other cache gives way to a cache.
            None => self.lock().take_unaccounted(bytes, self.bytes_max),
        };
        if is_taken {
            return Ok(());
        }
        let (used, reserved) = {
            let state = self.lock();
            (state.used_bytes, state.reserved_bytes)
        };
        let message = format!(
            "device memory is used up: used_bytes={used}, reserved_bytes={reserved}, requested_bytes={bytes}, \
             limit_bytes={}",
            self.bytes_max
        );
        Err(Error::new(ErrorKind::OutOfMemory, message)
            .with_hint("Raise the server option device_memory, or run fewer queries at once."))
    }

    /// Counts memory of an account, for which caches give way.
    fn take_reserved(&self, account: &Account, bytes: u64) -> bool {
        let mut deadline = None;
        loop {
            let missing = match self.lock().take_accounted(account.number, bytes, self.bytes_max) {
                TakeResult::Yes => return true,
                TakeResult::No => return false,
                TakeResult::Missing(missing) => missing,
            };
            self.reclaim(missing);
            let mut state = self.lock();
            match state.take_accounted(account.number, bytes, self.bytes_max) {
                TakeResult::Yes => return true,
                TakeResult::No => return false,
                TakeResult::Missing(_) => {}
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + RELEASE_WAIT_MAX);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.release_waiters += 1;
            let waited = self.released.wait_timeout(state, left);
            unbroken(waited).0.release_waiters -= 1;
        }
    }

    /// Moves memory from an account to the memory without one, like that of caches. Returns whether
    /// there is room: the account keeps its reservation.
    pub(super) fn try_detach(&self, account: &Account, bytes: u64) -> bool {
        let mut state = self.lock();
        let before = state.account(account.number);
        state.put(account.number, AccountState { used_bytes: before.used_bytes - bytes, ..before });
        let has_room = state.cached_bytes + bytes <= state.cache_bytes_max(self.bytes_max);
        match has_room {
            true => state.cached_bytes += bytes,
            false => state.put(account.number, before),
        }
        state.tell_next();
        has_room
    }

    pub(super) fn give_back(&self, account: Option<&Account>, bytes: u64) {
        let mut state = self.lock();
        state.used_bytes -= bytes;
        match account {
            None => state.cached_bytes -= bytes,
            Some(account) => {
                let before = state.account(account.number);
                let after = AccountState { used_bytes: before.used_bytes - bytes, ..before };
                state.put(account.number, after);
                if after.reserved_bytes() < before.reserved_bytes() {
                    state.tell_next();
                }
            }
        }
        if state.release_waiters > 0 {
            self.released.notify_all();
        }
    }
}

impl ArenaState {
    fn account(&self, number: u64) -> AccountState {
        self.accounts.get(&number).copied().unwrap_or_default()
    }

    fn put(&mut self, account: u64, after: AccountState) {
        let before = self.accounts.insert(account, after).unwrap_or_default();
        self.reserved_bytes = self.reserved_bytes - before.reserved_bytes() + after.reserved_bytes();
    }

    /// Whether an account may grow.
    fn has_room(&self, before: AccountState, after: AccountState, bytes_max: u64) -> bool {
        let reserved = self.reserved_bytes - before.reserved_bytes() + after.reserved_bytes();
        reserved <= bytes_max || after.reserved_bytes() <= before.reserved_bytes()
    }

    /// Whether claims may grow so that their account changes from `before` to `after`.
    fn grants(&self, before: AccountState, after: AccountState, bytes_max: u64) -> bool {
        if after.beyond_bytes() == 0 {
            return true;
        }
        let others = self.reserved_bytes - before.reserved_bytes();
        let room = bytes_max.saturating_sub(others + before.reservation().minimum_bytes);
        let may_grow = self.waiting.is_empty() || after.reserved_bytes() <= after.reservation().growth_bytes;
        may_grow && 2 * after.beyond_bytes() <= room && self.has_room(before, after, bytes_max)
    }

    /// The most that caches may use beside the queries' reservations.
    fn cache_bytes_max(&self, bytes_max: u64) -> u64 {
        bytes_max - (self.reserved_bytes / RESERVED_PART_LEFT).min(bytes_max)
    }

    /// The use of caches beyond that limit.
    fn cache_surplus(&self, bytes_max: u64) -> u64 {
        self.cached_bytes.saturating_sub(self.cache_bytes_max(bytes_max))
    }

    fn take_accounted(&mut self, account: u64, bytes: u64, bytes_max: u64) -> TakeResult {
        let before = self.account(account);
        let used_bytes = before.used_bytes + bytes;
        let after = AccountState { used_bytes, peak_bytes: before.peak_bytes.max(used_bytes), ..before };
        if !self.has_room(before, after, bytes_max) {
            return TakeResult::No;
        }
        match (self.used_bytes + bytes).saturating_sub(bytes_max) {
            0 => {
                self.put(account, after);
                self.add_used(bytes);
                TakeResult::Yes
            }
            missing => TakeResult::Missing(missing),
        }
    }

    fn take_unaccounted(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let is_free = self.used_bytes + bytes <= bytes_max
            && self.cached_bytes + bytes <= self.cache_bytes_max(bytes_max);
        if is_free {
            self.cached_bytes += bytes;
            self.add_used(bytes);
        }
        is_free
    }

    fn add_used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
    }

    /// Wakes the account that has waited the longest, to check whether it has room.
    fn tell_next(&self) {
        if let Some((_, turn)) = self.waiting.front() {
            turn.notify_one();
        }
    }
}
