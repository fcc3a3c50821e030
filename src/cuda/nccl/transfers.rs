//! Transfers of parts between GPUs over NCCL.

use std::{collections::VecDeque, sync::Arc};

use pystachio_gpu::{
    device::{Event, Platform, Stream, StreamLease, StreamPriority},
    exchange::{ExchangeRegion, Rank, ReceivePart, SendPart, Transfers},
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    NcclId, NcclOptions, check_environment,
    connection::{Connection, Membership, abort},
    library::NcclLibrary,
};
use crate::platform::CudaPlatform;

/// One rank's end of a connection over NCCL.
pub struct NcclTransfers {
    membership: Membership,
    platform: Arc<CudaPlatform>,
    /// Absent after it was given up.
    connection: Option<Connection>,
    is_registered: bool,
    /// The stream of groups.
    lease: Option<StreamLease>,
    /// The stream of copies within this device, which need no other rank.
    local_lease: Option<StreamLease>,
    stream: Stream,
    groups: VecDeque<Group>,
    groups_over: u64,
}

/// A group that has not ended.
struct Group {
    sends: Vec<SendPart>,
    receives: Vec<ReceivePart>,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    /// NCCL is busy with an earlier group.
    Waiting,
    /// NCCL is enqueuing it. The parts of this device have been copied when the event is reached.
    Enqueuing(Option<Event>),
    /// It has ended when the event is reached.
    Running(Event),
}

impl NcclTransfers {
    /// Connects with all ranks that use the same id, to move parts of a region of the platform's
    /// memory. Waits for them.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the library is missing or too old, or the process lacks the
    /// [`super::ENVIRONMENT`] of a rank; `Peer` if a rank is late; faults of the device.
    ///
    /// # Panics
    ///
    /// If the rank is not one of that number of ranks.
    pub fn connect(
        platform: &Arc<CudaPlatform>,
        region: &ExchangeRegion,
        id: &NcclId,
        (rank, rank_count): (Rank, usize),
        options: NcclOptions,
    ) -> Result<Self> {
        assert!(rank.place() < rank_count, "a rank of a communicator");
        check_environment(|name| std::env::var(name).ok())?;
        let library = NcclLibrary::get()?;
        let membership = Membership { rank, rank_count };
        platform.use_context()?;
        let memory = region.memory();
        let lease = memory.lease_stream(StreamPriority::High)?;
        let local_lease = memory.lease_stream(StreamPriority::High)?;
        let connection = Connection::open(library, id, membership, options.connect_max)?;
        let registered = match options.registers_region {
            true => connection.register(region.range()),
            false => Ok(false),
        };
        let is_registered = match registered {
            Ok(is_registered) => is_registered,
            Err(error) => {
                abort(connection);
                return Err(error);
            }
        };
        Ok(Self {
            membership,
            platform: platform.clone(),
            connection: Some(connection),
            is_registered,
            stream: lease.stream(),
            lease: Some(lease),
            local_lease: Some(local_lease),
            groups: VecDeque::new(),
            groups_over: 0,
        })
    }

    /// Whether the exchange region is registered with the library.
    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Enqueues groups that have not been enqueued, in their order.
    fn enqueue_groups(&mut self) -> Result<()> {
        let Some(connection) = &self.connection else { return Err(aborted()) };
        let rank = self.membership.rank;
        for group in &mut self.groups {
            if let Phase::Waiting = group.phase {
                let local = copy_local(&self.platform, rank, group, self.local_lease.as_ref())?;
                let sends: Vec<SendPart> =
                    group.sends.iter().copied().filter(|part| part.to != rank).collect();
                let receives: Vec<ReceivePart> =
                    group.receives.iter().copied().filter(|part| part.from != rank).collect();
                if !sends.is_empty() || !receives.is_empty() {
                    connection.begin_group(&sends, &receives, self.stream)?;
                }
                group.phase = Phase::Enqueuing(local);
            }
            if let Phase::Enqueuing(local) = group.phase {
                if !connection.is_ready()? {
                    break;
                }
                if let Some(copied) = local {
                    self.platform.order_after(self.stream, copied)?;
                    self.platform.release_event(copied);
                }
                group.phase = Phase::Running(self.platform.record_event(self.stream)?);
            }
        }
        Ok(())
    }

    /// The number of ended groups.
    fn look_at_groups(&mut self) -> Result<u64> {
        if self.groups.is_empty() {
            // Asks for faults that the library has found since then.
            self.connection.as_ref().ok_or_else(aborted)?.is_ready()?;
            return Ok(self.groups_over);
        }
        self.platform.use_context()?;
        self.enqueue_groups()?;
        while let Some(Group { phase: Phase::Running(event), .. }) = self.groups.front() {
            let event = *event;
            if !self.platform.has_reached(event)? {
                break;
            }
            self.platform.release_event(event);
            self.groups.pop_front();
            self.groups_over += 1;
        }
        Ok(self.groups_over)
    }

    /// An error that names the lost rank, if known: the library only reports that one is lost.
    fn named(&self, error: Error) -> Error {
        if error.kind != ErrorKind::Peer {
            return error;
        }
        match self.missing_in_group().as_slice() {
            [rank] => Error { message: format!("rank {rank} is gone: {}", error.message), ..error },
            _ => error,
        }
    }

    /// The other ranks of a group's parts.
    fn others_of(&self, group: &Group) -> Vec<Rank> {
        let sends = group.sends.iter().map(|part| part.to);
        let mut ranks: Vec<Rank> = sends.chain(group.receives.iter().map(|part| part.from)).collect();
        ranks.sort();
        ranks.dedup();
        ranks.retain(|rank| *rank != self.membership.rank);
        ranks
    }
}

/// Copies a group's parts from this rank to itself. Returns the event of their end.
fn copy_local(
    platform: &CudaPlatform,
    rank: Rank,
    group: &Group,
    lease: Option<&StreamLease>,
) -> Result<Option<Event>> {
    let Some(lease) = lease else { return Err(aborted()) };
    let mut sends = group.sends.iter().filter(|part| part.to == rank);
    let mut receives = group.receives.iter().filter(|part| part.from == rank);
    let mut is_copied = false;
    loop {
        match (sends.next(), receives.next()) {
            (None, None) => break,
            (Some(send), Some(receive)) if send.bytes == receive.bytes => {
                platform.copy(send.address, receive.address, send.bytes, lease.stream())?;
                is_copied = true;
            }
            (send, receive) => {
                let message = format!("parts from rank {rank} to itself do not match: {send:?}, {receive:?}");
                return Err(Error::internal(message));
            }
        }
    }
    is_copied.then(|| platform.record_event(lease.stream())).transpose()
}

impl Transfers for NcclTransfers {
    fn rank(&self) -> Rank {
        self.membership.rank
    }

    fn rank_count(&self) -> usize {
        self.membership.rank_count
    }

    fn stream(&self) -> Stream {
        self.stream
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        self.platform.use_context()?;
        let (sends, receives) = (sends.to_vec(), receives.to_vec());
        self.groups.push_back(Group { sends, receives, phase: Phase::Waiting });
        self.enqueue_groups().map_err(|error| self.named(error))
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        self.look_at_groups().map_err(|error| self.named(error))
    }

    /// A group is one launch, and NCCL does not report which of several ranks it waits for.
    fn missing_in_group(&self) -> Vec<Rank> {
        let others = self.groups.front().map_or_else(Vec::new, |group| self.others_of(group));
        if others.len() == 1 { others } else { Vec::new() }
    }

    fn abort(&mut self, reason: &Error) {
        let Some(connection) = self.connection.take() else { return };
        tracing::debug!(rank = self.membership.rank.0, "a connection is given up: {reason}");
        let has_ended = abort(connection);
        for group in self.groups.drain(..) {
            if let Phase::Enqueuing(Some(event)) | Phase::Running(event) = group.phase {
                self.platform.release_event(event);
            }
        }
        if !has_ended {
            // Work enqueued there may never end.
            std::mem::forget((self.lease.take(), self.local_lease.take()));
        }
    }
}

/// The error of a communicator that was given up.
fn aborted() -> Error {
    Error::internal("a communicator that was given up")
}

impl Drop for NcclTransfers {
    fn drop(&mut self) {
        self.abort(&Error::internal("the communicator is dropped"));
    }
}
