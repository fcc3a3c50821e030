//! A rank that fails where a test wants it, as [`LocalCommunicator`] does by itself.

use std::{collections::BTreeMap, os::fd::BorrowedFd};

use pystachio_plan::ErrorKind;

use super::*;
use crate::device::Stream;

/// A communicator with faults.
pub(super) struct FaultyCommunicator<C> {
    /// Absent once its process has ended.
    inner: Option<C>,
    rank: Rank,
    rank_count: usize,
    stream: Stream,
    faults: Vec<(FaultPoint, u64, Fault)>,
    /// How often each point was passed.
    points: BTreeMap<FaultPoint, u64>,
    state: State,
    /// A group has begun of which no look was taken.
    is_amid: bool,
    groups_over: u64,
}

enum State {
    Well,
    Delayed(u32),
    Silent,
    Failed(Error),
}

impl<C: Communicator> FaultyCommunicator<C> {
    pub(super) fn new(inner: C, faults: Vec<(FaultPoint, u64, Fault)>) -> Self {
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

    /// Passes a point, where it may fail; what goes on, if that does.
    fn pass(&mut self, point: FaultPoint) -> Result<Option<&mut C>> {
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
            State::Well | State::Delayed(_) => Ok(self.inner.as_mut()),
        }
    }

    /// What this look is taken with, if it does something.
    fn active(&mut self) -> Result<Option<&mut C>> {
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
        Ok(self.inner.as_mut())
    }
}

impl<C: Communicator> Communicator for FaultyCommunicator<C> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn rank_count(&self) -> usize {
        self.rank_count
    }

    fn stream(&self) -> Stream {
        self.stream
    }

    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        if let Some(inner) = self.pass(FaultPoint::BeforeGather)? {
            inner.begin_gather(block)?;
        }
        self.pass(FaultPoint::AfterGather).map(drop)
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.active()?.map_or(Ok(None), Communicator::poll_gather)
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

    fn is_awaited(&mut self) -> bool {
        self.inner.as_mut().is_some_and(Communicator::is_awaited)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.as_ref().map(Communicator::descriptors).unwrap_or_default()
    }

    fn missing_ranks(&mut self, awaited: Awaited) -> Vec<Rank> {
        self.inner.as_mut().map(|inner| inner.missing_ranks(awaited)).unwrap_or_default()
    }

    fn abort(&mut self, reason: &Error) {
        // Nobody hears of it from a process that was stopped.
        if let (Some(inner), false) = (&mut self.inner, matches!(self.state, State::Silent)) {
            inner.abort(reason);
        }
    }
}

impl<C> Drop for FaultyCommunicator<C> {
    fn drop(&mut self) {
        if matches!(self.state, State::Silent) {
            std::mem::forget(self.inner.take());
        }
    }
}
