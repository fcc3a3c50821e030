//! A query's memory in an arena, and the claims of its operators.

use std::{
    sync::{Arc, Condvar, atomic::Ordering},
    time::Duration,
};

use pystachio_engine::{StopFlag, locking::account};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{AccountState, Arena, ArenaState};

/// Limit of queries that wait for memory; further ones are refused. As many as a server has
/// sessions.
pub(super) const WAITING_MAX: usize = 4096;
/// Queries that each count on all free memory: chunks that a query makes of it are a small part of it
/// (`execution/query/memory.rs`), and a quarter at most is decoded ahead. More queries share it.
const FREE_SHARERS: u64 = 4;
/// How often a waiting query polls whether it is still wanted. Each poll takes the arena's lock,
/// and many queries may wait.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a query reserves before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Bytes of the arena that the query has for itself.
    pub minimum_bytes: u64,
    /// The part of them that its claims share beyond their guarantees. Guarantees and pool together
    /// are less than the minimum.
    pub pool_bytes: u64,
    /// While other queries wait, claims grow into free memory as long as the query's reservation is
    /// at most this.
    pub growth_bytes: u64,
}

impl Reservation {
    /// A minimum of which claims share nothing, and beyond which they do not grow while others wait.
    pub fn of_minimum(minimum_bytes: u64) -> Self {
        Self { minimum_bytes, ..Self::default() }
    }
}

/// A query's part of an arena. Dropping it frees its reservation.
pub(in crate::device) struct Account {
    arena: Arc<Arena>,
    pub(super) number: u64,
}

impl Account {
    pub(in crate::device) fn new(arena: &Arc<Arena>) -> Self {
        let number = arena.next_account.fetch_add(1, Ordering::Relaxed);
        arena.lock().accounts.insert(number, AccountState::default());
        Self { arena: arena.clone(), number }
    }

    /// Waits until the minimum of `reservation` is the account's, after all earlier accounts.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` is set, `OutOfMemory` if the arena is smaller or too many wait.
    pub(in crate::device) fn admit(&self, reservation: Reservation, stop: &StopFlag) -> Result<()> {
        let (arena, minimum_bytes) = (&self.arena, reservation.minimum_bytes);
        let mut state = arena.lock();
        if minimum_bytes > arena.bytes_max || state.waiting.len() >= WAITING_MAX {
            let message = format!(
                "no device memory for the query: requested_bytes={minimum_bytes}, limit_bytes={}, \
                 queries_waiting={}, queries_waiting_max={WAITING_MAX}",
                arena.bytes_max,
                state.waiting.len()
            );
            return Err(Error::new(ErrorKind::OutOfMemory, message)
                .with_hint("Raise the server option device_memory, or run fewer queries at once."));
        }
        let turn = Arc::new(Condvar::new());
        state.waiting.push_back((self.number, turn.clone()));
        let is_first =
            |state: &ArenaState| state.waiting.front().is_some_and(|(first, _)| *first == self.number);
        loop {
            if stop.is_stopped() {
                state.waiting.retain(|(waiting, _)| *waiting != self.number);
                state.tell_next();
                return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
            }
            let before = state.account(self.number);
            let after = AccountState { reservation: Some(reservation), ..before };
            if is_first(&state) && state.has_room(before, after, arena.bytes_max) {
                state.put(self.number, after);
                state.admitted_count += 1;
                state.waiting.pop_front();
                state.tell_next();
                break;
            }
            let waited = turn.wait_timeout(state, STOP_POLL_INTERVAL);
            state = account(waited).0;
        }
        let surplus = state.cache_surplus(arena.bytes_max);
        drop(state);
        if surplus > 0 {
            arena.reclaim(surplus);
        }
        Ok(())
    }

    /// Whether the account's query, which waits for its reader only, is to go on without it: other
    /// queries wait for memory, and no other query makes room for them already. The account keeps
    /// this role until it ends.
    pub(in crate::device) fn yields_memory(&self) -> bool {
        let mut state = self.arena.lock();
        !state.waiting.is_empty() && *state.making_room.get_or_insert(self.number) == self.number
    }

    pub(in crate::device) fn peak_bytes(&self) -> u64 {
        self.arena.lock().account(self.number).peak_bytes
    }

    pub(in crate::device) fn used_bytes(&self) -> u64 {
        self.arena.lock().account(self.number).used_bytes
    }

    /// The bytes that the account may count on if caches give way: what it has reserved and does not
    /// use, and its share of what no account has reserved.
    pub(in crate::device) fn available_bytes(&self) -> u64 {
        let state = self.arena.lock();
        let own = state.account(self.number);
        let free = self.arena.bytes_max.saturating_sub(state.reserved_bytes);
        (own.reserved_bytes() - own.used_bytes) + free / state.admitted_count.div_ceil(FREE_SHARERS).max(1)
    }

    /// Changes the claims' use beyond their guarantees; returns whether that was granted. Caches
    /// give way to a growing claim. A shrinking claim, even while it is dropped, waits for nothing.
    fn change_excess(&self, before: u64, after: u64) -> bool {
        let bytes_max = self.arena.bytes_max;
        let mut state = self.arena.lock();
        let Some(changed) = self.granted(&state, before, after) else { return false };
        state.put(self.number, changed);
        state.tell_next();
        let surplus = if after > before { state.cache_surplus(bytes_max) } else { 0 };
        drop(state);
        if surplus > 0 {
            self.arena.reclaim(surplus);
        }
        true
    }

    /// The account after that change; `None` if claims may not grow so.
    fn granted(&self, state: &ArenaState, before: u64, after: u64) -> Option<AccountState> {
        let own = state.account(self.number);
        let changed = AccountState { excess_bytes: own.excess_bytes - before + after, ..own };
        (after <= before || state.grants(own, changed, self.arena.bytes_max)).then_some(changed)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut state = self.arena.lock();
        if let Some(own) = state.accounts.remove(&self.number) {
            state.reserved_bytes -= own.reserved_bytes();
            state.admitted_count -= u64::from(own.reservation.is_some());
        }
        state.making_room.take_if(|account| *account == self.number);
        state.tell_next();
    }
}

/// An operator's allowance from one chunk to the next. Freed when it is dropped.
pub struct Claim {
    account: Arc<Account>,
    guaranteed_bytes: u64,
    bytes: u64,
}

impl Claim {
    pub(in crate::device) fn new(account: Arc<Account>, guaranteed_bytes: u64) -> Self {
        Self { account, guaranteed_bytes, bytes: 0 }
    }

    /// The bytes that the operator holds, or is about to.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the bytes that the operator is about to hold. The guarantee is always granted, and so is
    /// what other claims leave of the pool; more only if the arena has it, see
    /// [`Reservation::growth_bytes`]. A refusal changes nothing, and the operator has to spill.
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        let granted = self.account.change_excess(self.excess(self.bytes), self.excess(bytes));
        if granted {
            self.bytes = bytes;
        }
        granted
    }

    /// The bytes that are always granted.
    pub fn guaranteed_bytes(&self) -> u64 {
        self.guaranteed_bytes
    }

    /// Whether the bytes would be granted now.
    pub fn has_room(&self, bytes: u64) -> bool {
        let state = self.account.arena.lock();
        self.account.granted(&state, self.excess(self.bytes), self.excess(bytes)).is_some()
    }

    /// How much of so many bytes is beyond the guarantee.
    fn excess(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.guaranteed_bytes)
    }

    /// Claims as much as possible, up to `bytes`, and returns the result. At least the guarantee.
    pub fn resize_up_to(&mut self, bytes: u64) -> u64 {
        let mut wanted = bytes.max(self.guaranteed_bytes);
        while !self.try_resize(wanted) {
            // Other claims may grow meanwhile; the guarantee ends this loop.
            wanted = (wanted / 2).max(self.guaranteed_bytes);
        }
        wanted
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.try_resize(0);
    }
}
