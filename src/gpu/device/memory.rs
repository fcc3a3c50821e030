//! Device memory, counted in its arena before it is allocated.
//!
//! - `buffer.rs`: what is lent of it, and which streams use it; `pool.rs`: where it lies

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
    arena::{Account, Arena, Claim, Reclaim},
    mailbox::{Mailbox, READBACK_BYTES_MAX, Readback},
};

/// The memory of one device and the way to it: the whole arena, or a query's account of it. Cheap to clone.
///
/// What is done through a handle that [`DeviceMemory::watched`] gave is noted in a log.
#[derive(Clone)]
pub struct DeviceMemory {
    shared: Arc<DeviceMemoryInner>,
    /// Whom allocations count for; nobody's query if absent.
    account: Option<Arc<Account>>,
    watch: Option<Watch>,
    techniques: MemoryTechniques,
    /// Says when the query is not wanted any more.
    stop: StopFlag,
    host_budget: HostBudget,
    host_threads: HostThreads,
}

/// What of a platform a query makes use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTechniques {
    /// The platform's [`Decompressor`](super::Decompressor) is used.
    pub has_decompressor: bool,
    /// And for pages without a checksum too, on which it may do anything if they are damaged.
    pub takes_unchecked_pages: bool,
}

impl Default for MemoryTechniques {
    fn default() -> Self {
        Self::of(DeviceSettings::default())
    }
}

impl MemoryTechniques {
    /// Those of a query.
    pub fn of(settings: DeviceSettings) -> Self {
        Self { has_decompressor: settings.nvcomp, takes_unchecked_pages: settings.nvcomp_unchecked }
    }
}

/// Where it is noted what is done, and for which operator.
#[derive(Clone)]
struct Watch {
    log: Arc<ActivityLog>,
    operator: Arc<AtomicU32>,
}

/// What is done for no operator.
const NO_OPERATOR: u32 = u32::MAX;

struct DeviceMemoryInner {
    platform: Arc<dyn Platform>,
    arena: Arc<Arena>,
    pool: MemoryPool,
    mailbox: Arc<Mailbox>,
    /// Streams that nobody uses now. There are never more than were in use at once.
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

    /// The same memory, beside which the host's is counted for a budget.
    pub fn with_host_budget(self, host_budget: HostBudget) -> Self {
        Self { host_budget, ..self }
    }

    /// What work for the device takes of the host's memory that is not page-locked.
    pub fn host_budget(&self) -> &HostBudget {
        &self.host_budget
    }

    /// Threads of the host that help readers.
    pub fn host_threads(&self) -> &HostThreads {
        &self.host_threads
    }

    /// The same memory; what is done through this handle is done so.
    pub fn with_techniques(&self, techniques: MemoryTechniques) -> Self {
        Self { techniques, ..self.clone() }
    }

    /// The same memory, for a query: copies wait for what others have no longer than it is wanted, and nothing more is enqueued on
    /// queues over it then.
    pub fn until(&self, stop: StopFlag) -> Self {
        Self { stop, ..self.clone() }
    }

    /// Says when the query is not wanted any more.
    pub(crate) fn stop(&self) -> &StopFlag {
        &self.stop
    }

    /// What is made use of through this handle.
    pub fn techniques(&self) -> MemoryTechniques {
        self.techniques
    }

    /// The same memory, whose allocations count for an account of their own. It reserves nothing before
    /// [`DeviceMemory::admit`], and ends with the last clone and the last buffer.
    pub fn open_account(&self) -> Self {
        let account = Account::new(&self.shared.arena);
        Self { account: Some(Arc::new(account)), ..self.clone() }
    }

    /// Waits until the account has `minimum_bytes` of the arena for itself. Those who came earlier go first.
    ///
    /// # Errors
    ///
    /// `Cancelled` when `stop` says so, `OutOfMemory` if the arena is smaller or too many queries wait.
    pub fn admit(&self, minimum_bytes: u64, stop: &StopFlag) -> Result<()> {
        self.account.as_ref().map_or(Ok(()), |account| account.admit(minimum_bytes, stop))
    }

    /// Whether a query whose reader has stopped is to go on without it, so that others get its memory.
    pub fn yields_memory(&self) -> bool {
        self.account.as_ref().is_some_and(|account| account.yields_memory())
    }

    /// What an operator may hold, of which `guaranteed_bytes` are a part of the account's minimum; the sum of
    /// all guarantees is below that. `None` for memory without an account.
    pub fn claim(&self, guaranteed_bytes: u64) -> Option<Claim> {
        self.account.as_ref().map(|account| Claim::new(account.clone(), guaranteed_bytes))
    }

    /// What the account could still use if nobody else took more, and caches gave way.
    pub fn available_bytes(&self) -> u64 {
        match &self.account {
            Some(account) => account.available_bytes(),
            None => self.bytes_max().saturating_sub(self.used_bytes()),
        }
    }

    /// Names someone who gives memory back when there is not enough; forgotten when it is dropped. What it holds
    /// is allocated without an account.
    pub fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        self.shared.arena.add_reclaimer(reclaimer);
    }

    /// The same memory; what is done through this handle is noted.
    pub fn watched(&self, log: Arc<ActivityLog>) -> Self {
        let watch = Watch { log, operator: Arc::new(AtomicU32::new(NO_OPERATOR)) };
        Self { watch: Some(watch), ..self.clone() }
    }

    /// The same memory, noted in the same log, for an operator of its own.
    pub fn separated(&self) -> Self {
        let watch = self.watch.as_ref().map(|watch| Watch {
            log: watch.log.clone(),
            operator: Arc::new(AtomicU32::new(watch.operator.load(Ordering::Relaxed))),
        });
        Self { watch, ..self.clone() }
    }

    /// Says for which operator is done what follows, through this handle and its clones. The one before.
    pub fn attribute(&self, operator: u32) -> u32 {
        match &self.watch {
            Some(watch) => watch.operator.swap(operator, Ordering::Relaxed),
            None => NO_OPERATOR,
        }
    }

    /// Where what is done through this handle is noted.
    pub(crate) fn log(&self) -> Option<Arc<ActivityLog>> {
        self.watch.as_ref().map(|watch| watch.log.clone())
    }

    /// Whether what is done through this handle is noted.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Notes what was enqueued on a stream.
    pub(crate) fn note_enqueued(&self, kind: ActivityKind, name: &'static str, bytes: u64, stream: Stream) {
        if let Some(watch) = &self.watch {
            watch.log.add_enqueued(watch.what(kind, name, bytes), stream);
        }
    }

    /// Notes what the host has done since `begun`.
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

    /// What caches may use beyond what they use, beside what queries have reserved.
    pub(crate) fn cache_room(&self) -> u64 {
        self.shared.arena.cache_room()
    }

    /// Bytes of the arena in use.
    pub fn used_bytes(&self) -> u64 {
        self.shared.arena.used_bytes()
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

    /// A stream that nobody else uses until the lease is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Platform::create_stream`].
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
    /// `OutOfMemory` if the arena or the device has not enough; caches have given way then.
    pub fn allocate(&self, bytes: u64, stream: Stream) -> Result<Buffer> {
        self.allocate_for(Lifetime::Short, bytes, stream)
    }

    /// A buffer as of [`DeviceMemory::allocate`], placed by how long it is likely to be held.
    ///
    /// # Errors
    ///
    /// As of [`DeviceMemory::allocate`].
    pub fn allocate_for(&self, lifetime: Lifetime, bytes: u64, stream: Stream) -> Result<Buffer> {
        let pool = &self.shared.pool;
        self.take(bytes, stream, || Ok((pool.allocate(bytes, stream, lifetime)?, Origin::Pool)))
    }

    /// A buffer that is a reservation of its own, which a platform can share with other processes. Slow.
    ///
    /// # Errors
    ///
    /// As of [`DeviceMemory::allocate`].
    pub fn reserve(&self, bytes: u64, stream: Stream) -> Result<Buffer> {
        self.take(bytes, stream, || self.shared.allocate_own(bytes, stream))
    }

    fn take(
        &self,
        bytes: u64,
        stream: Stream,
        allocate: impl Fn() -> Result<(u64, Origin)>,
    ) -> Result<Buffer> {
        let shared = &self.shared;
        shared.arena.take(self.account.as_deref(), bytes)?;
        let allocated = match allocate() {
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                // The device may have less than the arena promises, since others use it too, or it may be scattered.
                shared.arena.reclaim(bytes);
                allocate()
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

    /// Says of buffers that what a stream has enqueued until now is all that it writes into them: streams that use them from
    /// now on are ordered after it. What other streams have written stays as it is.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn publish<'a>(&self, buffers: impl Iterator<Item = &'a Buffer>, stream: Stream) -> Result<()> {
        buffer::publish(&self.shared.platform, stream, buffers)
    }

    /// How the pool's memory is used.
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
            // Past the ring that bulk copies go through, where it could have to wait for one of them.
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
