//! Device memory, counted in its arena before it is allocated.
//!
//! - `buffer.rs`: handles to it, and the streams that use it; `pool.rs`: its placement

mod buffer;
mod pool;
#[cfg(test)]
mod tests;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use bytemuck::{Pod, cast_slice};
use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{ActivityKind, DeviceSettings, ErrorKind, Result};

use self::{
    buffer::{Allocation, BufferUses, Origin},
    pool::MemoryPool,
};
pub use self::{
    buffer::{Buffer, StreamLease},
    pool::{Lifetime, PoolUse},
};
use super::{
    ActivityLog, HostBudget, HostThreads, Platform, Stream, StreamPriority,
    activity::What,
    arena::{Account, Arena, Claim, Reclaim, Reservation},
    mailbox::{Mailbox, READBACK_BYTES_MAX, Readback},
};

/// The memory of one device and access to it: the whole arena, or a query's account of it. Cheap to
/// clone.
///
/// A handle from [`DeviceMemory::watched`] records its work in a log.
#[derive(Clone)]
pub struct DeviceMemory {
    shared: Arc<DeviceMemoryInner>,
    /// The account that allocations count for; absent for memory without one.
    account: Option<Arc<Account>>,
    watch: Option<Watch>,
    techniques: MemoryTechniques,
    /// Stops work when the query is no longer wanted.
    stop: StopFlag,
    host_budget: HostBudget,
    host_threads: HostThreads,
}

/// What of a platform a query makes use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTechniques {
    /// The platform's [`Decompressor`](super::Decompressor) is used.
    pub has_decompressor: bool,
    /// And for pages without a checksum too; for damaged ones it may do anything.
    pub takes_unchecked_pages: bool,
}

impl Default for MemoryTechniques {
    fn default() -> Self {
        Self::of(DeviceSettings::default())
    }
}

impl MemoryTechniques {
    /// The techniques of a query.
    pub fn of(settings: DeviceSettings) -> Self {
        Self { has_decompressor: settings.nvcomp, takes_unchecked_pages: settings.nvcomp_unchecked }
    }
}

/// The log, and the operator that recorded work belongs to.
#[derive(Clone)]
struct Watch {
    log: Arc<ActivityLog>,
    operator: Arc<AtomicU32>,
}

/// How often caches empty a range for a buffer: another thread may take a part of the range first.
const RANGE_TRIES_MAX: usize = 8;

/// The place of work without an operator.
const NO_OPERATOR: u32 = u32::MAX;

struct DeviceMemoryInner {
    platform: Arc<dyn Platform>,
    arena: Arc<Arena>,
    pool: MemoryPool,
    mailbox: Arc<Mailbox>,
    /// Idle streams. There are never more than were in use at once.
    idle_streams: Mutex<Vec<(StreamPriority, Stream)>>,
}

impl DeviceMemory {
    /// Memory of a platform, of which at most `bytes_max` are used.
    pub fn new(platform: Arc<dyn Platform>, bytes_max: u64) -> Self {
        let shared = DeviceMemoryInner {
            arena: Arc::new(Arena::new(bytes_max)),
            pool: MemoryPool::new(platform.clone(), bytes_max),
            mailbox: Arc::new(Mailbox::new(platform.clone())),
            platform,
            idle_streams: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            account: None,
            watch: None,
            techniques: MemoryTechniques::default(),
            stop: StopFlag::default(),
            host_budget: HostBudget::new(u64::MAX),
            host_threads: HostThreads::of_host(),
        }
    }

    /// The same memory, with a budget for the host's.
    pub fn with_host_budget(self, host_budget: HostBudget) -> Self {
        Self { host_budget, ..self }
    }

    /// The budget of the device's work for host memory that is not page-locked.
    pub fn host_budget(&self) -> &HostBudget {
        &self.host_budget
    }

    /// Helper threads of the host for readers.
    pub fn host_threads(&self) -> &HostThreads {
        &self.host_threads
    }

    /// The same memory; a handle with these techniques.
    pub fn with_techniques(&self, techniques: MemoryTechniques) -> Self {
        Self { techniques, ..self.clone() }
    }

    /// The same memory, for a query: when `stop` is set, copies stop waiting for shared resources,
    /// and queues over it refuse further work.
    pub fn until(&self, stop: StopFlag) -> Self {
        Self { stop, ..self.clone() }
    }

    /// The query's stop flag.
    pub(crate) fn stop(&self) -> &StopFlag {
        &self.stop
    }

    /// The techniques in use through this handle.
    pub fn techniques(&self) -> MemoryTechniques {
        self.techniques
    }

    /// The same memory with an account of its own for allocations. It reserves nothing before
    /// [`DeviceMemory::admit`], and ends with the last clone and the last buffer.
    pub fn open_account(&self) -> Self {
        let account = Account::new(&self.shared.arena);
        Self { account: Some(Arc::new(account)), ..self.clone() }
    }

    /// Waits until the account has its reservation of the arena for itself, in the order of
    /// arrival.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` is set, `OutOfMemory` if the arena is smaller or too many queries
    /// wait.
    pub fn admit(&self, reservation: Reservation, stop: &StopFlag) -> Result<()> {
        self.account.as_ref().map_or(Ok(()), |account| account.admit(reservation, stop))
    }

    /// Whether a query whose reader has stopped is to go on without it, so that others get its memory.
    pub fn yields_memory(&self) -> bool {
        self.account.as_ref().is_some_and(|account| account.yields_memory())
    }

    /// An allowance for an operator. `guaranteed_bytes` are a part of the account's minimum; the
    /// sum of all guarantees and of the pool must be below it. `None` for memory without an account.
    pub fn claim(&self, guaranteed_bytes: u64) -> Option<Claim> {
        self.account.as_ref().map(|account| Claim::new(account.clone(), guaranteed_bytes))
    }

    /// The bytes that the account may count on: others take their shares, and caches give way.
    pub fn available_bytes(&self) -> u64 {
        match &self.account {
            Some(account) => account.available_bytes(),
            None => self.bytes_max().saturating_sub(self.used_bytes()),
        }
    }

    /// Registers an owner of memory that it frees on request, until it is dropped. Its memory is
    /// allocated without an account.
    pub fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        self.shared.arena.add_reclaimer(reclaimer);
    }

    /// The same memory; this handle records its work.
    pub fn watched(&self, log: Arc<ActivityLog>) -> Self {
        let watch = Watch { log, operator: Arc::new(AtomicU32::new(NO_OPERATOR)) };
        Self { watch: Some(watch), ..self.clone() }
    }

    /// The same memory and log, for an operator of its own.
    pub fn separated(&self) -> Self {
        let watch = self.watch.as_ref().map(|watch| Watch {
            log: watch.log.clone(),
            operator: Arc::new(AtomicU32::new(watch.operator.load(Ordering::Relaxed))),
        });
        Self { watch, ..self.clone() }
    }

    /// Sets the operator for later work of this handle and its clones. Returns the previous one.
    pub fn attribute(&self, operator: u32) -> u32 {
        match &self.watch {
            Some(watch) => watch.operator.swap(operator, Ordering::Relaxed),
            None => NO_OPERATOR,
        }
    }

    /// The log of this handle.
    pub(crate) fn log(&self) -> Option<Arc<ActivityLog>> {
        self.watch.as_ref().map(|watch| watch.log.clone())
    }

    /// Whether this handle records its work.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Records work that was enqueued on a stream.
    pub(crate) fn note_enqueued(&self, kind: ActivityKind, name: &'static str, bytes: u64, stream: Stream) {
        if let Some(watch) = &self.watch {
            watch.log.add_enqueued(watch.what(kind, name, bytes), stream);
        }
    }

    /// Records an activity of the host since `begun`.
    pub(super) fn note_done(&self, kind: ActivityKind, name: &'static str, bytes: u64, begun: Instant) {
        if let Some(watch) = &self.watch {
            watch.log.add_done(watch.what(kind, name, bytes), begun);
        }
    }

    /// The platform.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.shared.platform
    }

    /// The size of the arena.
    pub fn bytes_max(&self) -> u64 {
        self.shared.arena.bytes_max()
    }

    /// The bytes that caches may use beyond their present use, beside the queries' reservations.
    pub(crate) fn cache_room(&self) -> u64 {
        self.shared.arena.cache_room()
    }

    /// Bytes of the arena in use.
    pub fn used_bytes(&self) -> u64 {
        self.shared.arena.used_bytes()
    }

    /// Queries that have their reservation of the arena.
    pub fn admitted_count(&self) -> u64 {
        self.shared.arena.admitted_count()
    }

    /// Queries that wait for memory of the arena.
    pub fn waiting_count(&self) -> usize {
        self.shared.arena.waiting_count()
    }

    /// The most bytes that the account used at once; without an account, that the arena had in use.
    pub fn peak_bytes(&self) -> u64 {
        self.account.as_ref().map_or_else(|| self.shared.arena.peak_bytes(), |account| account.peak_bytes())
    }

    /// Bytes that the account uses now; without an account, those of the arena.
    pub fn held_bytes(&self) -> u64 {
        self.account.as_ref().map_or_else(|| self.shared.arena.used_bytes(), |account| account.used_bytes())
    }

    /// A stream for exclusive use until the lease is dropped.
    ///
    /// # Errors
    ///
    /// Errors of [`Platform::create_stream`].
    pub fn lease_stream(&self, priority: StreamPriority) -> Result<StreamLease> {
        let idle = {
            let mut streams = self.idle_streams();
            let place = streams.iter().rposition(|(of, _)| *of == priority);
            place.map(|place| streams.swap_remove(place).1)
        };
        let stream = match idle {
            Some(stream) => stream,
            None => self.shared.platform.create_stream(priority)?,
        };
        Ok(StreamLease { memory: self.clone(), priority, stream })
    }

    fn idle_streams(&self) -> MutexGuard<'_, Vec<(StreamPriority, Stream)>> {
        lock_whole(&self.shared.idle_streams)
    }

    /// A buffer whose content has no meaning.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the arena or the device lacks memory after caches have given way.
    pub fn allocate(&self, bytes: u64, stream: Stream) -> Result<Buffer> {
        self.allocate_for(Lifetime::Short, bytes, stream)
    }

    /// Like [`DeviceMemory::allocate`], placed by its expected lifetime.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceMemory::allocate`].
    pub fn allocate_for(&self, lifetime: Lifetime, bytes: u64, stream: Stream) -> Result<Buffer> {
        self.take(bytes, stream, |shared| shared.allocate_in_pool(bytes, stream, lifetime))
    }

    /// A buffer that is a reservation of its own, which a platform can share with other processes. Slow.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceMemory::allocate`].
    pub fn reserve(&self, bytes: u64, stream: Stream) -> Result<Buffer> {
        self.take(bytes, stream, |shared| shared.allocate_own(bytes, stream))
    }

    fn take(
        &self,
        bytes: u64,
        stream: Stream,
        allocate: impl Fn(&DeviceMemoryInner) -> Result<(u64, Origin)>,
    ) -> Result<Buffer> {
        let shared = &self.shared;
        shared.arena.take(self.account.as_deref(), bytes)?;
        let allocated = match allocate(shared) {
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                // The device may have less than the arena promises, since other programs use it too.
                shared.arena.reclaim(bytes);
                allocate(shared)
            }
            other => other,
        };
        match allocated {
            Ok((address, origin)) => Ok(Buffer::new(Allocation {
                shared: shared.clone(),
                account: Mutex::new(self.account.clone()),
                address,
                bytes,
                origin,
                uses: Mutex::new(BufferUses { streams: vec![stream], written: None }),
            })),
            Err(error) => {
                shared.arena.give_back(self.account.as_deref(), bytes);
                Err(error)
            }
        }
    }

    /// Marks the work that a stream has enqueued so far as its last writes into buffers: streams
    /// that use them from now on are ordered after it. Buffers that other streams have written stay
    /// as they are.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn publish<'a>(&self, buffers: impl Iterator<Item = &'a Buffer>, stream: Stream) -> Result<()> {
        buffer::publish(&self.shared.platform, stream, buffers)
    }

    /// The use of the pool's memory.
    pub fn pool_use(&self) -> PoolUse {
        self.shared.pool.usage()
    }

    /// A buffer with these values.
    pub fn upload<T: Pod>(&self, values: &[T], stream: Stream) -> Result<Buffer> {
        let bytes = cast_slice::<T, u8>(values);
        let buffer = self.allocate(bytes.len() as u64, stream)?;
        self.upload_to(bytes, buffer.address(), stream)?;
        Ok(buffer)
    }

    /// Copies host bytes to an address inside a live buffer.
    pub fn upload_to(&self, bytes: &[u8], address: u64, stream: Stream) -> Result<()> {
        self.shared.platform.upload(bytes, address, stream, &self.stop)?;
        self.note_enqueued(ActivityKind::Upload, "upload", bytes.len() as u64, stream);
        Ok(())
    }

    /// Copies page-locked bytes to an address inside a live buffer; see [`Platform::upload_in_place`].
    pub(super) fn upload_pinned(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.shared.platform.upload_in_place(source, target, bytes, stream)?;
        self.note_enqueued(ActivityKind::Upload, "upload", bytes as u64, stream);
        Ok(())
    }

    /// Copies from an address inside a live buffer to page-locked bytes; see [`Platform::download_in_place`].
    pub(super) fn download_pinned(
        &self,
        source: u64,
        target: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        self.shared.platform.download_in_place(source, target, bytes, stream)?;
        self.note_enqueued(ActivityKind::Download, "download", bytes as u64, stream);
        Ok(())
    }

    /// Sets every byte of a buffer.
    pub fn fill(&self, buffer: &Buffer, byte: u8, stream: Stream) -> Result<()> {
        self.fill_range(buffer, 0..buffer.bytes(), byte, stream)
    }

    /// Sets some bytes of a buffer.
    pub fn fill_range(&self, buffer: &Buffer, range: Range<u64>, byte: u8, stream: Stream) -> Result<()> {
        assert!(range.end <= buffer.bytes(), "bytes beyond a buffer are filled");
        let bytes = range.end - range.start;
        self.shared.platform.fill(buffer.address() + range.start, byte, bytes, stream)?;
        self.note_enqueued(ActivityKind::Copy, "fill", bytes, stream);
        Ok(())
    }

    /// Copies between addresses inside live buffers.
    pub fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        if bytes > 0 {
            self.shared.platform.copy(source, target, bytes, stream)?;
            self.note_enqueued(ActivityKind::Copy, "copy", bytes, stream);
        }
        Ok(())
    }

    /// The first `count` values of a buffer; waits for the stream.
    pub fn download<T: Pod>(&self, buffer: &Buffer, count: usize, stream: Stream) -> Result<Vec<T>> {
        self.download_from(buffer.address(), count, stream)
    }

    /// `count` values at an address inside a live buffer; waits for the stream.
    pub fn download_from<T: Pod>(&self, address: u64, count: usize, stream: Stream) -> Result<Vec<T>> {
        let bytes = count * size_of::<T>();
        if bytes <= READBACK_BYTES_MAX {
            // Not through the ring of bulk copies, where it might have to wait for one of them.
            return self.post::<T>(address, count, stream)?.wait(count);
        }
        let mut values = vec![T::zeroed(); count];
        let target = bytemuck::cast_slice_mut(&mut values);
        self.shared.platform.download(address, target, stream, &self.stop)?;
        self.note_enqueued(ActivityKind::Download, "download", bytes as u64, stream);
        Ok(values)
    }

    /// `count` values at an address inside a live buffer, at most 64 bytes, which are waited for when they are needed.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host has no page-locked memory left, and faults of the device.
    pub fn post<T: Pod>(&self, address: u64, count: usize, stream: Stream) -> Result<Readback> {
        let bytes = count * size_of::<T>();
        let readback = self.shared.mailbox.send(address, bytes, stream)?;
        self.note_enqueued(ActivityKind::Download, "download", bytes as u64, stream);
        Ok(readback)
    }
}

impl DeviceMemoryInner {
    /// Memory of the pool. If free memory is too scattered, caches empty the range where they lose
    /// least.
    fn allocate_in_pool(&self, bytes: u64, stream: Stream, lifetime: Lifetime) -> Result<(u64, Origin)> {
        let mut allocated = self.pool.allocate(bytes, stream, lifetime);
        for _ in 0..RANGE_TRIES_MAX {
            if !allocated.as_ref().is_err_and(|error| error.kind == ErrorKind::OutOfMemory) {
                break;
            }
            let Some(ranges) = self.pool.room(bytes, self.arena.idle_buffers()) else { break };
            self.arena.reclaim_ranges(&ranges);
            allocated = self.pool.allocate(bytes, stream, lifetime);
        }
        Ok((allocated?, Origin::Pool))
    }

    /// Memory of a reservation of its own.
    fn allocate_own(&self, bytes: u64, stream: Stream) -> Result<(u64, Origin)> {
        let reserved_bytes = self.pool.own_bytes(bytes);
        let address = self.platform.reserve(reserved_bytes)?;
        let committed = self.platform.commit(address, reserved_bytes);
        let lent = committed.and_then(|()| {
            let lent = self.platform.note_lent(address, bytes, stream);
            lent.inspect_err(|_| self.platform.decommit(address, reserved_bytes))
        });
        match lent {
            Ok(()) => Ok((address, Origin::Own(reserved_bytes))),
            Err(error) => {
                self.platform.unreserve(address, reserved_bytes);
                Err(error)
            }
        }
    }
}

impl Watch {
    fn what(&self, kind: ActivityKind, name: &'static str, bytes: u64) -> What {
        What { operator: self.operator.load(Ordering::Relaxed), kind, name, bytes }
    }
}
