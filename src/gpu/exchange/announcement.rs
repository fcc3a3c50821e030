//! A number that each rank announces once for an exchange before it sends, so that every rank knows
//! the numbers of all.
//!
//! ```text
//! rank 0: announce(12) ─┐                        ┌─► [12, 40] ─► the same decision
//! rank 1: announce(40) ─┴─ the rounds' gather ───┴─► [12, 40] ─► the same decision
//! ```
//!
//! Invariants: all ranks get the same numbers. A rank that ends without an announcement counts as
//! [`NOT_ANNOUNCED`], so no rank waits for it.

use std::sync::{Arc, Condvar, Mutex, OnceLock};

use pystachio_engine::locking::{lock_whole, whole};
use pystachio_plan::Result;

use super::query::{RankExchange, STOP_INTERVAL};

/// The number of a rank that ended without an announcement.
pub const NOT_ANNOUNCED: u64 = u64::MAX;

/// The numbers of one exchange.
#[derive(Default)]
pub(super) struct Announcement {
    own: OnceLock<u64>,
    all: Mutex<Option<Vec<u64>>>,
    pub(super) changed: Condvar,
}

impl Announcement {
    /// Sets this rank's number. The first one counts.
    pub(super) fn say(&self, number: u64) {
        self.own.get_or_init(|| number);
    }

    /// This rank's number.
    pub(super) fn own(&self) -> Option<u64> {
        self.own.get().copied()
    }

    /// Whether the numbers of all ranks are known.
    pub(super) fn is_known(&self) -> bool {
        lock_whole(&self.all).is_some()
    }

    /// The numbers of all ranks, by rank.
    pub(super) fn hear(&self, numbers: Vec<u64>) {
        *lock_whole(&self.all) = Some(numbers);
        self.changed.notify_all();
    }
}

/// The announcements of one exchange. Cheap to clone.
#[derive(Clone)]
pub struct Announcements {
    pub(super) exchange: Arc<RankExchange>,
}

impl Announcements {
    /// Announces a number for this rank. The first one counts.
    pub fn say(&self, number: u64) {
        self.exchange.announcement.say(number);
        self.exchange.health.waker.wake();
    }

    /// The numbers of all ranks, by rank. Waits for them as long as the query runs.
    ///
    /// # Errors
    ///
    /// The failure of the query, and `Cancelled`.
    pub fn wait(&self) -> Result<Vec<u64>> {
        let RankExchange { announcement, health, .. } = &*self.exchange;
        let mut all = lock_whole(&announcement.all);
        loop {
            health.check()?;
            if let Some(numbers) = &*all {
                return Ok(numbers.clone());
            }
            all = whole(announcement.changed.wait_timeout(all, STOP_INTERVAL)).0;
        }
    }
}
