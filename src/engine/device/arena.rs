//! Who may use how much of a device's memory.
//!
//! ```text
//! arena ── bytes_max
//!   ├ no account: caches; they give way (`Reclaim`)
//!   ├ query: reserved = max(used, minimum + excess of its claims)
//!   │   ├ working memory: chunks on their way
//!   │   ├ claim of a join:  guaranteed part, and what it was granted beyond it
//!   │   └ claim of a sort:  …
//!   └ query: …
//! ```
//!
//! Invariants: what queries have reserved and what caches use never exceeds `bytes_max`, so a query gets what
//! it has reserved. A query that waits for its minimum is admitted in the order of arrival, and while one
//! waits nobody's claim grows. Claims get at most half of what a query could have beyond its minimum, so that
//! its chunks have room too. Caches are asked to give way before anything is refused.
//!
//! - `account.rs`: what a query has of it, and what an operator of the query claims
//!
//! Deliberately absent: addresses. The platform has an allocator.

mod account;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicU64},
};

use pystachio_plan::{Error, ErrorKind, Result};

pub(super) use account::Account;
pub use account::Claim;

/// Who holds memory that it can do without.
pub trait Reclaim: Send + Sync {
    /// Gives memory back: `bytes` of it if that much is held. Called by whichever thread needs memory, which
    /// holds no lock of the arena's.
    fn reclaim(&self, bytes: u64);
}

/// The memory of a device as numbers.
pub(super) struct Arena {
    bytes_max: u64,
    state: Mutex<ArenaState>,
    /// Memory has become free.
    freed: Condvar,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
    next_account: AtomicU64,
}

#[derive(Default)]
struct ArenaState {
    /// What queries have reserved and what others use.
    reserved_bytes: u64,
    used_bytes: u64,
    /// What caches use, and give back when they are asked.
    cached_bytes: u64,
    peak_bytes: u64,
    accounts: BTreeMap<u64, AccountState>,
    /// Accounts that wait for their minimum.
    waiting: VecDeque<u64>,
}

#[derive(Clone, Copy, Default)]
struct AccountState {
    minimum_bytes: u64,
    /// Granted to claims beyond what they are guaranteed.
    excess_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
}

impl AccountState {
    fn reserved_bytes(&self) -> u64 {
        self.used_bytes.max(self.minimum_bytes + self.excess_bytes)
    }
}

impl Arena {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            state: Mutex::default(),
            freed: Condvar::new(),
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

    pub(super) fn peak_bytes(&self) -> u64 {
        self.lock().peak_bytes
    }

    pub(super) fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = self.reclaimers.lock().unwrap_or_else(PoisonError::into_inner);
        reclaimers.retain(|known| known.strong_count() > 0);
        reclaimers.push(reclaimer);
    }

    fn lock(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks caches for memory.
    pub(super) fn reclaim(&self, bytes: u64) {
        let reclaimers: Vec<Arc<dyn Reclaim>> = {
            let known = self.reclaimers.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        for reclaimer in reclaimers {
            reclaimer.reclaim(bytes);
        }
    }

    /// Tries something, and once more after caches have given back what was missing.
    fn attempt(&self, attempt: impl Fn(&mut ArenaState) -> std::result::Result<(), u64>) -> bool {
        let missing = match attempt(&mut self.lock()) {
            Ok(()) => return true,
            Err(missing) => missing,
        };
        if missing == 0 {
            return false;
        }
        self.reclaim(missing);
        attempt(&mut self.lock()).is_ok()
    }

    /// Counts memory that is about to be allocated.
    pub(super) fn take(&self, account: Option<&Account>, bytes: u64) -> Result<()> {
        let is_taken = match account {
            Some(account) => self.attempt(|state| {
                let before = state.account(account.number);
                let mut after = before;
                after.used_bytes += bytes;
                after.peak_bytes = after.peak_bytes.max(after.used_bytes);
                state.check(before, after, self.bytes_max)?;
                state.put(account.number, after);
                state.add_used(bytes);
                Ok(())
            }),
            // Nobody gives way to a cache.
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

    /// Makes memory that counted for an account nobody's, as what caches hold is. Says whether there is room:
    /// the account keeps what it has reserved.
    pub(super) fn try_disown(&self, account: &Account, bytes: u64) -> bool {
        let mut state = self.lock();
        let before = state.account(account.number);
        let after = AccountState { used_bytes: before.used_bytes - bytes, ..before };
        let reserved = state.reserved_bytes - before.reserved_bytes() + after.reserved_bytes() + bytes;
        let has_room = reserved <= self.bytes_max && state.waiting.is_empty();
        if has_room {
            state.put(account.number, after);
            state.reserved_bytes += bytes;
            state.cached_bytes += bytes;
        }
        has_room
    }

    pub(super) fn give_back(&self, account: Option<&Account>, bytes: u64) {
        let mut state = self.lock();
        state.used_bytes -= bytes;
        match account {
            None => {
                state.reserved_bytes -= bytes;
                state.cached_bytes -= bytes;
            }
            Some(account) => {
                let mut after = state.account(account.number);
                after.used_bytes -= bytes;
                state.put(account.number, after);
            }
        }
        if !state.waiting.is_empty() {
            self.freed.notify_all();
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

    /// Whether an account may change; otherwise the bytes that are missing.
    fn check(
        &self,
        before: AccountState,
        after: AccountState,
        bytes_max: u64,
    ) -> std::result::Result<(), u64> {
        let reserved = self.reserved_bytes - before.reserved_bytes() + after.reserved_bytes();
        match reserved.saturating_sub(bytes_max) {
            missing if missing > 0 && after.reserved_bytes() > before.reserved_bytes() => Err(missing),
            _ => Ok(()),
        }
    }

    fn take_unaccounted(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let is_free = self.reserved_bytes + bytes <= bytes_max;
        if is_free {
            self.reserved_bytes += bytes;
            self.cached_bytes += bytes;
            self.add_used(bytes);
        }
        is_free
    }

    fn add_used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
    }
}
