//! What a query has of an arena, and what its operators claim.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{AccountState, Arena};
use crate::StopFlag;

/// Queries that wait for memory at once; a query beyond them is refused.
pub(super) const WAITING_MAX: usize = 64;
/// How often a query that waits looks whether it is still wanted.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A query's part of an arena. What it reserves is given back when it is dropped.
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

    /// Waits until `minimum_bytes` are the account's, after all that wait already.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` says so, `OutOfMemory` if the arena is smaller or too many wait.
    pub(in crate::device) fn admit(&self, minimum_bytes: u64, stop: &StopFlag) -> Result<()> {
        let arena = &self.arena;
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
        state.waiting.push_back(self.number);
        loop {
            if stop.is_stopped() {
                state.waiting.retain(|waiting| *waiting != self.number);
                arena.freed.notify_all();
                return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
            }
            if state.waiting.front() == Some(&self.number) {
                let before = state.account(self.number);
                let after = AccountState { minimum_bytes, ..before };
                let Err(missing) = state.check(before, after, arena.bytes_max) else {
                    state.put(self.number, after);
                    state.waiting.pop_front();
                    arena.freed.notify_all();
                    return Ok(());
                };
                drop(state);
                arena.reclaim(missing);
                state = arena.lock();
                if state.check(before, after, arena.bytes_max).is_ok() {
                    continue;
                }
            }
            state = arena
                .freed
                .wait_timeout(state, STOP_POLL_INTERVAL)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    pub(in crate::device) fn peak_bytes(&self) -> u64 {
        self.arena.lock().account(self.number).peak_bytes
    }

    /// What the account could still use if nobody else reserved more, and caches gave way.
    pub(in crate::device) fn available_bytes(&self) -> u64 {
        let state = self.arena.lock();
        let own = state.account(self.number);
        let free = self.arena.bytes_max.saturating_sub(state.reserved_bytes) + state.cached_bytes;
        (own.reserved_bytes() - own.used_bytes) + free
    }

    /// Changes what claims have beyond their guarantees; says whether that was granted.
    fn change_excess(&self, before: u64, after: u64) -> bool {
        let bytes_max = self.arena.bytes_max;
        self.arena.attempt(|state| {
            let own = state.account(self.number);
            let changed = AccountState { excess_bytes: own.excess_bytes - before + after, ..own };
            if after > before {
                if !state.waiting.is_empty() {
                    return Err(0);
                }
                // Caches keep what the claim leaves them: they give way only where the reservation needs it.
                let others = state.reserved_bytes - own.reserved_bytes() - state.cached_bytes;
                let room = bytes_max.saturating_sub(others + own.minimum_bytes);
                if 2 * changed.excess_bytes > room {
                    return Err(0);
                }
                state.check(own, changed, bytes_max)?;
            }
            state.put(self.number, changed);
            if !state.waiting.is_empty() {
                self.arena.freed.notify_all();
            }
            Ok(())
        })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut state = self.arena.lock();
        if let Some(own) = state.accounts.remove(&self.number) {
            state.reserved_bytes -= own.reserved_bytes();
        }
        self.arena.freed.notify_all();
    }
}

/// What an operator may hold from one chunk to the next. Given back when it is dropped.
pub struct Claim {
    account: Arc<Account>,
    guaranteed_bytes: u64,
    bytes: u64,
}

impl Claim {
    pub(in crate::device) fn new(account: Arc<Account>, guaranteed_bytes: u64) -> Self {
        Self { account, guaranteed_bytes, bytes: 0 }
    }

    /// What the operator holds, or is about to.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says how much the operator is about to hold. What was guaranteed is always granted; more is as far as
    /// the arena has it and no query waits. A refusal changes nothing, and the operator has to spill.
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        let excess = |bytes: u64| bytes.saturating_sub(self.guaranteed_bytes);
        let granted = self.account.change_excess(excess(self.bytes), excess(bytes));
        if granted {
            self.bytes = bytes;
        }
        granted
    }

    /// Takes as much as there is, up to `bytes`, and returns what that is. At least what was guaranteed.
    pub fn resize_up_to(&mut self, bytes: u64) -> u64 {
        let mut wanted = bytes.max(self.guaranteed_bytes);
        while !self.try_resize(wanted) {
            // Others may take some meanwhile; the guarantee ends this.
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
