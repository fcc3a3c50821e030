//! A rank that fails on purpose in tests, with any communicator.

use std::{collections::BTreeMap, os::fd::BorrowedFd};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{Communicator, Rank, ReceivePart, SendPart, Transfers};
use crate::device::Stream;

/// The point at which a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultPoint {
    /// Before it sends its control block.
    BeforeGather,
    /// After it has sent it.
    AfterGather,
    /// Before a group of transfers.
    BeforeTransfers,
    /// When a group has begun.
    AmidTransfers,
}

/// The way in which a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its process ends, and the others see that.
    Death,
    /// It does nothing more, like a stopped process.
    Silence,
    /// It does nothing for so many polls, and then goes on.
    Delay(u32),
    /// Its device is lost: the next call reports it.
    DeviceLoss,
}

/// A communicator with faults.
pub(crate) struct FaultyCommunicator {
    /// Absent once its process has ended.
    inner: Option<Box<dyn Communicator>>,
    rank: Rank,
    rank_count: usize,
    stream: Stream,
    faults: Vec<(FaultPoint, u64, Fault)>,
    /// How often each point was passed.
    points: BTreeMap<FaultPoint, u64>,
    state: State,
    /// A group has begun and was not polled yet.
    is_amid: bool,
    groups_over: u64,
}

enum State {
    Well,
    Delayed(u32),
    Silent,
    Failed(Error),
}

impl FaultyCommunicator {
    /// A communicator that fails when it has passed a point so many times.
    pub(crate) fn new(inner: Box<dyn Communicator>, faults: Vec<(FaultPoint, u64, Fault)>) -> Self {
        Self {
            rank: inner.rank(),
            rank_count: inner.rank_count(),
            stream: inner.stream(),
            inner: Some(inner),
            faults,
            points: BTreeMap::new(),
            state: State::Well,
            is_amid: false,
            groups_over: 0,
        }
    }

    /// Passes a point, and may fail there; returns the communicator if it goes on.
    fn pass(&mut self, point: FaultPoint) -> Result<Option<&mut (dyn Communicator + 'static)>> {
        let passed = self.points.entry(point).or_default();
        let number = *passed;
        *passed += 1;
        let fault = self.faults.iter().find(|(of, after, _)| *of == point && *after == number);
        match fault.map(|(_, _, fault)| *fault) {
            None => {}
            Some(Fault::Delay(looks)) => self.state = State::Delayed(looks),
            Some(Fault::Silence) => self.state = State::Silent,
            Some(Fault::Death) => {
                self.inner = None;
                self.state = State::Failed(Error::internal("this rank was told to die"));
            }
            Some(Fault::DeviceLoss) => {
                self.state = State::Failed(Error::new(ErrorKind::Device, "the device is lost"));
            }
        }
        match &self.state {
            State::Failed(error) => Err(error.clone()),
            State::Silent => Ok(None),
            State::Well | State::Delayed(_) => Ok(self.inner.as_deref_mut()),
        }
    }

    /// The communicator for this poll, unless the poll does nothing.
    fn active(&mut self) -> Result<Option<&mut (dyn Communicator + 'static)>> {
        match &mut self.state {
            State::Well => {}
            State::Silent => return Ok(None),
            State::Failed(error) => return Err(error.clone()),
            State::Delayed(0) => self.state = State::Well,
            State::Delayed(looks) => {
                *looks -= 1;
                return Ok(None);
            }
        }
        Ok(self.inner.as_deref_mut())
    }
}

impl Transfers for FaultyCommunicator {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn rank_count(&self) -> usize {
        self.rank_count
    }

    fn stream(&self) -> Stream {
        self.stream
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        self.is_amid = true;
        match self.pass(FaultPoint::BeforeTransfers)? {
            Some(inner) => inner.begin_transfers(sends, receives),
            None => Ok(()),
        }
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        if std::mem::take(&mut self.is_amid) {
            self.pass(FaultPoint::AmidTransfers)?;
        }
        if let Some(inner) = self.active()? {
            self.groups_over = inner.poll_transfers()?;
        }
        Ok(self.groups_over)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.as_ref().map(|inner| inner.descriptors()).unwrap_or_default()
    }

    fn missing_in_group(&self) -> Vec<Rank> {
        self.inner.as_ref().map(|inner| inner.missing_in_group()).unwrap_or_default()
    }

    fn abort(&mut self, reason: &Error) {
        // A stopped process sends no closing message.
        if let (Some(inner), false) = (&mut self.inner, matches!(self.state, State::Silent)) {
            inner.abort(reason);
        }
    }
}

impl Communicator for FaultyCommunicator {
    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        if let Some(inner) = self.pass(FaultPoint::BeforeGather)? {
            inner.begin_gather(block)?;
        }
        self.pass(FaultPoint::AfterGather).map(drop)
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.active()?.map_or(Ok(None), |inner| inner.poll_gather())
    }

    fn is_awaited(&mut self) -> bool {
        self.inner.as_mut().is_some_and(|inner| inner.is_awaited())
    }

    fn missing_in_gather(&self) -> Vec<Rank> {
        self.inner.as_ref().map(|inner| inner.missing_in_gather()).unwrap_or_default()
    }
}

impl Drop for FaultyCommunicator {
    fn drop(&mut self) {
        if matches!(self.state, State::Silent) {
            std::mem::forget(self.inner.take());
        }
    }
}
