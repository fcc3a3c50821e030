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
//! Deliberately absent: addresses. The platform has an allocator.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pystachio_plan::{Error, ErrorKind, Result};

use crate::StopFlag;

/// Queries that wait for memory at once; a query beyond them is refused.
const WAITING_MAX: usize = 64;
/// How often a query that waits looks whether it is still wanted.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(10);

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

/// A query's part of an arena. What it reserves is given back when it is dropped.
pub(super) struct Account {
    arena: Arc<Arena>,
    number: u64,
}

impl Account {
    pub(super) fn new(arena: &Arc<Arena>) -> Self {
        let number = arena.next_account.fetch_add(1, Ordering::Relaxed);
        arena.lock().accounts.insert(number, AccountState::default());
        Self { arena: arena.clone(), number }
    }

    /// Waits until `minimum_bytes` are the account's, after all that wait already.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` says so, `OutOfMemory` if the arena is smaller or too many wait.
    pub(super) fn admit(&self, minimum_bytes: u64, stop: &StopFlag) -> Result<()> {
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

    pub(super) fn peak_bytes(&self) -> u64 {
        self.arena.lock().account(self.number).peak_bytes
    }

    /// What the account could still use if nobody else reserved more, and caches gave way.
    pub(super) fn available_bytes(&self) -> u64 {
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
    pub(super) fn new(account: Arc<Account>, guaranteed_bytes: u64) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1000;

    fn account(arena: &Arc<Arena>, minimum_bytes: u64) -> Arc<Account> {
        let account = Account::new(arena);
        account.admit(minimum_bytes, &StopFlag::default()).unwrap();
        Arc::new(account)
    }

    #[test]
    fn a_query_gets_what_it_has_reserved_whatever_others_use() {
        let arena = Arc::new(Arena::new(BYTES));
        let (first, second) = (account(&arena, 250), account(&arena, 250));
        // Beyond its minimum the first may have what nobody has reserved.
        arena.take(Some(&first), 750).unwrap();
        assert_eq!(arena.take(Some(&first), 1).unwrap_err().kind, ErrorKind::OutOfMemory);
        assert!(arena.take(None, 1).is_err(), "a cache took what was reserved");
        arena.take(Some(&second), 250).unwrap();
        assert!(arena.take(Some(&second), 1).is_err());
        arena.give_back(Some(&first), 700);
        arena.take(Some(&second), 500).unwrap();
        assert_eq!((first.peak_bytes(), second.peak_bytes(), arena.peak_bytes()), (750, 750, 1000));
        arena.give_back(Some(&second), 750);
        arena.give_back(Some(&first), 50);
        drop((first, second));
        arena.take(None, BYTES).unwrap();
    }

    #[test]
    fn claims_are_granted_their_guarantee_and_half_of_what_is_left() {
        let arena = Arc::new(Arena::new(BYTES));
        let first = account(&arena, 200);
        let mut claim = Claim::new(first.clone(), 50);
        assert!(claim.try_resize(50) && claim.try_resize(50 + 400));
        assert!(!claim.try_resize(50 + 401));
        assert_eq!(claim.bytes(), 450, "a refusal changed the claim");
        // Another query takes none of it, and gets a guarantee all the same.
        let second = account(&arena, 200);
        let mut other = Claim::new(second.clone(), 60);
        assert_eq!(other.resize_up_to(1000), 125);
        assert!(claim.try_resize(0));
        assert_eq!(other.resize_up_to(60 + 300), 360);
        drop((claim, other));
        assert_eq!(first.available_bytes(), 800);
    }

    #[test]
    fn while_a_query_waits_no_claim_grows() {
        let arena = Arc::new(Arena::new(BYTES));
        let first = account(&arena, 600);
        let mut claim = Claim::new(first.clone(), 100);
        assert!(claim.try_resize(150));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            // The later one has room before the earlier one, but not beside it.
            for (place, minimum_bytes) in [(1, 700), (2, 400)] {
                let (arena, admitted) = (&arena, &admitted);
                scope.spawn(move || {
                    let account = account(arena, minimum_bytes);
                    assert_eq!(admitted.fetch_add(1, Ordering::SeqCst) + 1, place, "admitted out of turn");
                    drop(account);
                });
                while arena.lock().waiting.len() < place as usize {
                    std::thread::yield_now();
                }
            }
            assert!(!claim.try_resize(160));
            assert!(claim.try_resize(100));
            drop(claim);
            drop(first);
        });
        assert_eq!(admitted.into_inner(), 2);
        assert_eq!(arena.lock().reserved_bytes, 0);
    }

    #[test]
    fn too_many_queries_that_wait_and_too_large_ones_are_refused() {
        let arena = Arc::new(Arena::new(BYTES));
        let large = Account::new(&arena).admit(BYTES + 1, &StopFlag::default()).unwrap_err();
        assert_eq!(large.kind, ErrorKind::OutOfMemory);
        let stop = StopFlag::default();
        let all = account(&arena, BYTES);
        std::thread::scope(|scope| {
            for _ in 0..WAITING_MAX {
                scope.spawn(|| {
                    let error = Account::new(&arena).admit(1, &stop).unwrap_err();
                    assert_eq!(error.kind, ErrorKind::Cancelled);
                });
            }
            while arena.lock().waiting.len() < WAITING_MAX {
                std::thread::yield_now();
            }
            let error = Account::new(&arena).admit(1, &stop).unwrap_err();
            assert!(error.message.contains("queries_waiting=64"), "{error}");
            stop.stop();
        });
        drop(all);
        assert_eq!(arena.lock().reserved_bytes, 0);
    }

    struct Cache(AtomicU64, Arc<Arena>);

    impl Reclaim for Cache {
        fn reclaim(&self, bytes: u64) {
            let given = bytes.min(self.0.load(Ordering::SeqCst));
            self.0.fetch_sub(given, Ordering::SeqCst);
            self.1.give_back(None, given);
        }
    }

    #[test]
    fn caches_give_back_what_is_missing_and_no_more() {
        let arena = Arc::new(Arena::new(BYTES));
        arena.take(None, BYTES).unwrap();
        assert_eq!(Account::new(&arena).available_bytes(), BYTES);
        let cache = Arc::new(Cache(AtomicU64::new(BYTES), arena.clone()));
        let weak: Weak<dyn Reclaim> = Arc::downgrade(&cache) as Weak<dyn Reclaim>;
        arena.add_reclaimer(weak);
        let query = account(&arena, 100);
        assert_eq!(cache.0.load(Ordering::SeqCst), 900);
        arena.take(Some(&query), 150).unwrap();
        assert_eq!(cache.0.load(Ordering::SeqCst), 850);
        let mut claim = Claim::new(query.clone(), 10);
        assert!(claim.try_resize(10 + 100));
        assert_eq!(cache.0.load(Ordering::SeqCst), 800, "what the query has reserved");
    }
}
