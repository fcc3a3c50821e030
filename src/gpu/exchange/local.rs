//! A network between ranks of one process, for emulated devices: it is as strict as one between GPUs, and fails as tests want it to.
//!
//! ```text
//! rank 0: region ── download on its stream ──► hub: what each rank told, mail from each to each ──► upload on its stream ── region: rank 1
//! ```
//!
//! Bytes are read when the communicator's stream has come to it and written when that has, as late as the device likes: what was offered
//! before it was written, or is read before it has come, is wrong here too. A group ends for its sender when the receivers have taken it.
//!
//! Invariants: whether work goes on follows from the seed and the calls; what threads of the host do between them is the host's.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{Awaited, Communicator, ExchangeRegion, Rank, ReceivePart, SendPart, communicator::peer_error};
use crate::device::{DeviceMemory, Event, Stream, StreamLease, StreamPriority};

/// One look in so many finds nothing, whatever there is.
const RELUCTANT_PART: u64 = 4;

/// Where a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultPoint {
    /// Before it tells what it has.
    BeforeGather,
    /// When it has told that.
    AfterGather,
    /// Before a group of transfers.
    BeforeTransfers,
    /// When half of a group's parts have been sent.
    AmidTransfers,
}

/// How a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its process ends, and the others see that.
    Death,
    /// It does nothing more, as a process that was stopped.
    Silence,
    /// It does nothing for so many looks, and then goes on.
    Delay(u32),
    /// Its device is lost: the next call says so.
    DeviceLoss,
}

/// What the ranks of one process are connected by. Cheap to clone.
#[derive(Clone)]
pub struct LocalHub {
    shared: Arc<HubShared>,
}

struct HubShared {
    rank_count: usize,
    state: Mutex<HubState>,
}

struct HubState {
    /// Gathers that not all ranks have heard, by number.
    gathers: BTreeMap<u64, Gather>,
    /// How many gathers each rank has begun.
    begun: Vec<u64>,
    /// By sender and receiver.
    mail: BTreeMap<(Rank, Rank), Mail>,
    /// Ranks that take part no more, and why.
    gone: BTreeMap<Rank, String>,
}

struct Gather {
    blocks: Vec<Option<Vec<u8>>>,
    heard: BTreeSet<Rank>,
}

/// What is on its way from one rank to another.
#[derive(Default)]
struct Mail {
    parts: VecDeque<Vec<u8>>,
    sent_count: u64,
    taken_count: u64,
}

impl LocalHub {
    /// For so many ranks.
    pub fn new(rank_count: usize) -> Self {
        let state = HubState {
            gathers: BTreeMap::new(),
            begun: vec![0; rank_count],
            mail: BTreeMap::new(),
            gone: BTreeMap::new(),
        };
        Self { shared: Arc::new(HubShared { rank_count, state: Mutex::new(state) }) }
    }

    /// A rank's end of it, which moves what is in a region. The seed chooses which looks find nothing.
    ///
    /// # Errors
    ///
    /// Those of [`crate::device::Platform::create_stream`].
    pub fn connect(&self, rank: Rank, region: &ExchangeRegion, seed: u64) -> Result<LocalCommunicator> {
        let memory = region.memory().clone();
        let lease = memory.lease_stream(StreamPriority::High)?;
        Ok(LocalCommunicator {
            hub: self.clone(),
            rank,
            memory,
            lease,
            gather_count: 0,
            is_gathering: false,
            groups: VecDeque::new(),
            groups_over: 0,
            faults: Vec::new(),
            points: BTreeMap::new(),
            random: seed ^ (u64::from(rank.0) << 32),
            state: RankState::Well,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        lock_whole(&self.shared.state)
    }
}

/// One rank's end of a [`LocalHub`].
pub struct LocalCommunicator {
    hub: LocalHub,
    rank: Rank,
    memory: DeviceMemory,
    lease: StreamLease,
    /// Gathers that it has begun.
    gather_count: u64,
    is_gathering: bool,
    groups: VecDeque<LocalGroup>,
    groups_over: u64,
    faults: Vec<(FaultPoint, u64, Fault)>,
    /// How often each point was passed.
    points: BTreeMap<FaultPoint, u64>,
    random: u64,
    state: RankState,
}

/// How a rank is.
enum RankState {
    Well,
    /// It does nothing for so many looks.
    Delayed(u32),
    Silent,
    /// Every call fails so.
    Failed(Error),
}

struct LocalGroup {
    sends: Vec<SendPart>,
    receives: VecDeque<ReceivePart>,
    phase: GroupPhase,
}

enum GroupPhase {
    /// Nothing has been read.
    Begun,
    /// So many parts have been sent since the first one, by receiver; not all receives have come.
    Moving(BTreeMap<Rank, u64>),
    /// All that comes has come, and is written when the event is reached.
    Arriving(BTreeMap<Rank, u64>, Event),
}

impl LocalCommunicator {
    /// Lets it fail when it has passed a point so many times.
    pub fn fail_at(&mut self, point: FaultPoint, after: u64, fault: Fault) {
        self.faults.push((point, after, fault));
    }

    /// Passes a point, where it may fail. Says whether it goes on.
    fn pass(&mut self, point: FaultPoint) -> Result<bool> {
        let passed = self.points.entry(point).or_default();
        let number = *passed;
        *passed += 1;
        let fault = self.faults.iter().find(|(of, after, _)| *of == point && *after == number);
        match fault.map(|(_, _, fault)| *fault) {
            None => {}
            Some(Fault::Delay(looks)) => self.state = RankState::Delayed(looks),
            Some(Fault::Silence) => self.state = RankState::Silent,
            Some(Fault::Death) => {
                self.leave("is gone");
                self.state = RankState::Failed(Error::internal("this rank was told to die"));
            }
            Some(Fault::DeviceLoss) => {
                self.state = RankState::Failed(Error::new(ErrorKind::Device, "the device is lost"));
            }
        }
        match &self.state {
            RankState::Failed(error) => Err(error.clone()),
            RankState::Silent => Ok(false),
            RankState::Well | RankState::Delayed(_) => Ok(true),
        }
    }

    /// Whether this look does something.
    fn is_active(&mut self) -> Result<bool> {
        match &mut self.state {
            RankState::Well => {}
            RankState::Silent => return Ok(false),
            RankState::Failed(error) => return Err(error.clone()),
            RankState::Delayed(0) => self.state = RankState::Well,
            RankState::Delayed(looks) => {
                *looks -= 1;
                return Ok(false);
            }
        }
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Ok(!(self.random >> 33).is_multiple_of(RELUCTANT_PART))
    }

    fn leave(&self, reason: &str) {
        self.hub.lock().gone.entry(self.rank).or_insert_with(|| reason.to_owned());
    }

    /// # Errors
    ///
    /// `Peer` for another rank that takes part no more.
    fn check_gone(&self) -> Result<()> {
        match self.hub.lock().gone.iter().find(|(rank, _)| **rank != self.rank) {
            Some((rank, reason)) => Err(peer_error(*rank, reason)),
            None => Ok(()),
        }
    }

    /// Goes on with the oldest group. Says whether it is over.
    fn work_on_group(&mut self) -> Result<bool> {
        let Some(mut group) = self.groups.pop_front() else { return Ok(false) };
        let is_over = self.work_on(&mut group);
        if !matches!(is_over, Ok(true)) {
            self.groups.push_front(group);
        }
        is_over
    }

    fn work_on(&mut self, group: &mut LocalGroup) -> Result<bool> {
        match &group.phase {
            GroupPhase::Begun => {
                if !self.pass(FaultPoint::BeforeTransfers)? {
                    return Ok(false);
                }
                if let Some(sent) = self.send(&group.sends)? {
                    group.phase = GroupPhase::Moving(sent);
                }
                Ok(false)
            }
            GroupPhase::Moving(sent) => {
                while let Some(receive) = group.receives.front() {
                    if !self.receive(receive)? {
                        return Ok(false);
                    }
                    group.receives.pop_front();
                }
                let event = self.memory.platform().record_event(self.stream())?;
                group.phase = GroupPhase::Arriving(sent.clone(), event);
                Ok(false)
            }
            GroupPhase::Arriving(sent, event) => {
                if !self.memory.platform().has_reached(*event)? || !self.untaken(sent).is_empty() {
                    return Ok(false);
                }
                self.memory.platform().release_event(*event);
                Ok(true)
            }
        }
    }

    /// Reads what a group sends, and sends it. `None` if the rank falls silent meanwhile.
    fn send(&mut self, sends: &[SendPart]) -> Result<Option<BTreeMap<Rank, u64>>> {
        let mut sent = BTreeMap::new();
        for (place, part) in sends.iter().enumerate() {
            if place == sends.len() / 2 && !self.pass(FaultPoint::AmidTransfers)? {
                return Ok(None);
            }
            let bytes: Vec<u8> =
                self.memory.download_from(part.address, part.bytes as usize, self.lease.stream())?;
            let mut state = self.hub.lock();
            let mail = state.mail.entry((self.rank, part.to)).or_default();
            mail.parts.push_back(bytes);
            mail.sent_count += 1;
            sent.insert(part.to, mail.sent_count);
        }
        Ok(Some(sent))
    }

    /// Takes a part, if it is there.
    fn receive(&self, part: &ReceivePart) -> Result<bool> {
        let taken = {
            let mut state = self.hub.lock();
            let Some(mail) = state.mail.get_mut(&(part.from, self.rank)) else { return Ok(false) };
            let taken = mail.parts.pop_front();
            mail.taken_count += u64::from(taken.is_some());
            taken
        };
        let Some(bytes) = taken else { return Ok(false) };
        if bytes.len() as u64 != part.bytes {
            let message =
                format!("rank {} sent {} bytes where {} were expected", part.from, bytes.len(), part.bytes);
            return Err(Error::internal(message));
        }
        self.memory.upload_to(&bytes, part.address, self.lease.stream())?;
        Ok(true)
    }

    /// Receivers that have not taken what was sent to them.
    fn untaken(&self, sent: &BTreeMap<Rank, u64>) -> Vec<Rank> {
        let state = self.hub.lock();
        let has_taken = |to: Rank, count: u64| {
            state.mail.get(&(self.rank, to)).is_some_and(|mail| mail.taken_count >= count)
        };
        sent.iter().filter(|(to, count)| !has_taken(**to, **count)).map(|(to, _)| *to).collect()
    }
}

impl Communicator for LocalCommunicator {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn rank_count(&self) -> usize {
        self.hub.shared.rank_count
    }

    fn stream(&self) -> Stream {
        self.lease.stream()
    }

    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        assert!(!self.is_gathering, "two gathers at once");
        self.is_gathering = true;
        self.gather_count += 1;
        if !self.pass(FaultPoint::BeforeGather)? {
            return Ok(());
        }
        {
            let mut state = self.hub.lock();
            let rank_count = self.hub.shared.rank_count;
            let gather = state
                .gathers
                .entry(self.gather_count)
                .or_insert_with(|| Gather { blocks: vec![None; rank_count], heard: BTreeSet::new() });
            if let Some(place) = gather.blocks.get_mut(self.rank.place()) {
                *place = Some(block.to_vec());
            }
            if let Some(begun) = state.begun.get_mut(self.rank.place()) {
                *begun = self.gather_count;
            }
        }
        self.pass(FaultPoint::AfterGather)?;
        Ok(())
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        if !self.is_active()? {
            return Ok(None);
        }
        let mut state = self.hub.lock();
        let told = state.gathers.get_mut(&self.gather_count).and_then(|gather| {
            let told: Option<Vec<Vec<u8>>> = gather.blocks.iter().cloned().collect();
            if told.is_some() {
                gather.heard.insert(self.rank);
            }
            told
        });
        let rank_count = self.hub.shared.rank_count;
        state.gathers.retain(|_, gather| gather.heard.len() < rank_count);
        drop(state);
        match told {
            Some(told) => {
                self.is_gathering = false;
                Ok(Some(told))
            }
            None => self.check_gone().map(|()| None),
        }
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        let (sends, receives) = (sends.to_vec(), receives.iter().copied().collect());
        self.groups.push_back(LocalGroup { sends, receives, phase: GroupPhase::Begun });
        Ok(())
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        if self.is_active()? {
            while self.work_on_group()? {
                self.groups_over += 1;
            }
            if !self.groups.is_empty() {
                self.check_gone()?;
            }
        }
        Ok(self.groups_over)
    }

    fn is_awaited(&mut self) -> bool {
        self.hub.lock().begun.iter().any(|begun| *begun > self.gather_count)
    }

    fn missing_ranks(&mut self, awaited: Awaited) -> Vec<Rank> {
        let all = (0..self.hub.shared.rank_count).map(|place| Rank(place as u16));
        match awaited {
            Awaited::Gather => {
                let state = self.hub.lock();
                let is_missing = |rank: &Rank| {
                    state.begun.get(rank.place()).is_some_and(|begun| *begun < self.gather_count)
                };
                all.filter(is_missing).collect()
            }
            Awaited::Transfers => {
                let Some(group) = self.groups.front() else { return Vec::new() };
                let mut missing: BTreeSet<Rank> = group.receives.iter().map(|part| part.from).collect();
                if let GroupPhase::Moving(sent) | GroupPhase::Arriving(sent, _) = &group.phase {
                    missing.extend(self.untaken(sent));
                }
                missing.into_iter().collect()
            }
        }
    }

    fn abort(&mut self, reason: &Error) {
        // Nobody hears of it from a process that was stopped.
        if !matches!(self.state, RankState::Silent) {
            self.leave(&format!("has given up: {reason}"));
        }
        for group in self.groups.drain(..) {
            if let GroupPhase::Arriving(_, event) = group.phase {
                self.memory.platform().release_event(event);
            }
        }
    }
}

impl Drop for LocalCommunicator {
    fn drop(&mut self) {
        // What others find when a connection ends.
        if !matches!(self.state, RankState::Silent) {
            self.leave("is gone");
        }
    }
}
