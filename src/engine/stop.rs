//! The cancel flag of a request, and its state for the host.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use pystachio_plan::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::{QueryAccount, QueryPlace};

/// Tells an engine whether the host still wants a request, and the host whether the request waits and how far it is.
/// Clones share their state.
///
/// Dropping a stream stops its query at the next point where the query waits. Loops that run long poll this flag
/// instead.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    waits_for_turn: watch::Sender<bool>,
    account: QueryAccount,
    /// The request that this is a part of.
    whole: Option<StopFlag>,
}

/// Marks a request as waiting for its turn until it is dropped.
#[derive(Debug)]
pub struct TurnWait(StopFlag);

impl StopFlag {
    /// Makes a flag for a part of the request. The part is cancelled with the whole, or by itself.
    pub fn of_part(&self) -> Self {
        Self(Arc::new(Shared { whole: Some(self.clone()), ..Shared::default() }))
    }

    /// Cancels the request.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the request is cancelled.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::new(ErrorKind::Cancelled, "the query was cancelled")),
            false => Ok(()),
        }
    }

    /// Whether the request is cancelled.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed) || self.0.whole.as_ref().is_some_and(Self::is_stopped)
    }

    /// Marks the whole request as waiting until other requests have ended or given up memory.
    pub fn wait_for_turn(&self) -> TurnWait {
        if let Some(whole) = &self.0.whole {
            return whole.wait_for_turn();
        }
        self.0.waits_for_turn.send_replace(true);
        TurnWait(self.clone())
    }

    /// Notes that an engine begins to run the request, perhaps again; of a part that it joins the engine that runs the whole.
    pub fn begin(&self, place: QueryPlace) {
        match &self.0.whole {
            Some(whole) => whole.account().join(place),
            None => self.0.account.begin(place),
        }
    }

    /// The account of the whole request.
    pub fn account(&self) -> &QueryAccount {
        match &self.0.whole {
            Some(whole) => whole.account(),
            None => &self.0.account,
        }
    }

    /// Whether the request waits for its turn, now and whenever that changes.
    pub fn turn_waits(&self) -> watch::Receiver<bool> {
        self.0.waits_for_turn.subscribe()
    }
}

impl Drop for TurnWait {
    fn drop(&mut self) {
        self.0.0.waits_for_turn.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_waits_for_the_turn_of_the_whole() {
        let whole = StopFlag::default();
        let waits = whole.turn_waits();
        let waiting = whole.of_part().of_part().wait_for_turn();
        assert!(*waits.borrow());
        drop(waiting);
        assert!(!*waits.borrow());
    }

    #[test]
    fn a_part_stops_alone_and_with_the_whole() {
        let whole = StopFlag::default();
        let parts = [whole.of_part(), whole.of_part()];
        parts[0].stop();
        assert!(parts[0].check().is_err() && !parts[1].is_stopped() && !whole.is_stopped());
        whole.stop();
        assert!(parts[1].is_stopped());
    }
}
