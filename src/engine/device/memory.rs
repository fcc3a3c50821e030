//! Device memory, counted against a budget before it is allocated.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use bytemuck::{Pod, bytes_of, cast_slice};
use pystachio_plan::{ActivityKind, Error, ErrorKind, Result};

use super::{ActivityLog, Kernel, Platform, Stream, activity::What};

/// The memory of one device and the way to it. Cheap to clone.
///
/// What is done through a handle that [`DeviceMemory::watched`] gave is noted in a log.
#[derive(Clone)]
pub struct DeviceMemory {
    shared: Arc<Shared>,
    watch: Option<Watch>,
}

/// Where it is noted what is done, and for which operator.
#[derive(Clone)]
struct Watch {
    log: Arc<ActivityLog>,
    operator: Arc<AtomicU32>,
}

/// What is done for no operator.
const NO_OPERATOR: u32 = u32::MAX;

struct Shared {
    platform: Arc<dyn Platform>,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    bytes_max: u64,
    /// Streams that nobody uses now. There are never more than were in use at once.
    idle_streams: Mutex<Vec<Stream>>,
}

impl DeviceMemory {
    /// Memory of a platform, of which at most `bytes_max` are used.
    pub fn new(platform: Arc<dyn Platform>, bytes_max: u64) -> Self {
        let shared = Shared {
            platform,
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            bytes_max,
            idle_streams: Mutex::default(),
        };
        Self { shared: Arc::new(shared), watch: None }
    }

    /// The same memory; what is done through this handle is noted.
    pub fn watched(&self, log: Arc<ActivityLog>) -> Self {
        let watch = Watch { log, operator: Arc::new(AtomicU32::new(NO_OPERATOR)) };
        Self { shared: self.shared.clone(), watch: Some(watch) }
    }

    /// The same memory, noted in the same log, for an operator of its own.
    pub fn separated(&self) -> Self {
        let watch = self.watch.as_ref().map(|watch| Watch {
            log: watch.log.clone(),
            operator: Arc::new(AtomicU32::new(watch.operator.load(Ordering::Relaxed))),
        });
        Self { shared: self.shared.clone(), watch }
    }

    /// Says for which operator is done what follows, through this handle and its clones. The one before.
    pub fn attribute(&self, operator: u32) -> u32 {
        match &self.watch {
            Some(watch) => watch.operator.swap(operator, Ordering::Relaxed),
            None => NO_OPERATOR,
        }
    }

    fn note(&self, kind: ActivityKind, name: &'static str, bytes: u64, stream: Stream) {
        if let Some(watch) = &self.watch {
            watch.log.add_enqueued(watch.what(kind, name, bytes), stream);
        }
    }

    /// The platform.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.shared.platform
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.shared.used_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that may be in use.
    pub fn bytes_max(&self) -> u64 {
        self.shared.bytes_max
    }

    /// The most bytes in use at once.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.peak_bytes.load(Ordering::Relaxed)
    }

    /// A stream that nobody else uses until the lease is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Platform::create_stream`].
    pub fn lease_stream(&self) -> Result<StreamLease> {
        let idle = self.idle_streams().pop();
        let stream = match idle {
            Some(stream) => stream,
            None => self.shared.platform.create_stream()?,
        };
        Ok(StreamLease { memory: self.clone(), stream })
    }

    fn idle_streams(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.shared.idle_streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer whose content has no meaning.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the budget or the device has not enough.
    pub fn allocate(&self, bytes: u64, stream: Stream) -> Result<Buffer> {
        let shared = &self.shared;
        let used = shared.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > shared.bytes_max {
            shared.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let message = format!(
                "device memory is used up: used_bytes={}, requested_bytes={bytes}, limit_bytes={}",
                used - bytes,
                shared.bytes_max
            );
            return Err(Error::new(ErrorKind::OutOfMemory, message)
                .with_hint("Raise the server option memory, or run fewer queries at once."));
        }
        shared.peak_bytes.fetch_max(used, Ordering::Relaxed);
        match shared.platform.allocate(bytes, stream) {
            Ok(address) => Ok(Buffer {
                allocation: Arc::new(Allocation {
                    shared: shared.clone(),
                    address,
                    bytes,
                    stream: AtomicU64::new(stream.0),
                    is_shared: AtomicBool::new(false),
                }),
            }),
            Err(error) => {
                shared.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// A buffer of zeros.
    pub fn allocate_zeroed(&self, bytes: u64, stream: Stream) -> Result<Buffer> {
        let buffer = self.allocate(bytes, stream)?;
        self.fill(&buffer, 0, stream)?;
        Ok(buffer)
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
        self.shared.platform.upload(bytes, address, stream)?;
        self.note(ActivityKind::Upload, "upload", bytes.len() as u64, stream);
        Ok(())
    }

    /// Copies what `read` reads, a part at a time, to an address inside a live buffer: as
    /// [`Platform::upload_parts`]. What `read` does is noted as reading.
    ///
    /// # Errors
    ///
    /// Also those of `read`.
    pub fn upload_read(
        &self,
        bytes: u64,
        address: u64,
        stream: Stream,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.shared.platform.upload_parts(bytes, address, stream, &mut |start, part| {
            let begun = Instant::now();
            read(start, part)?;
            if let Some(watch) = &self.watch {
                watch.log.add_done(watch.what(ActivityKind::Read, "read", part.len() as u64), begun);
            }
            Ok(())
        })?;
        self.note(ActivityKind::Upload, "upload", bytes, stream);
        Ok(())
    }

    /// Sets every byte of a buffer.
    pub fn fill(&self, buffer: &Buffer, byte: u8, stream: Stream) -> Result<()> {
        self.shared.platform.fill(buffer.address(), byte, buffer.bytes(), stream)?;
        self.note(ActivityKind::Copy, "fill", buffer.bytes(), stream);
        Ok(())
    }

    /// Copies between addresses inside live buffers.
    pub fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        if bytes > 0 {
            self.shared.platform.copy(source, target, bytes, stream)?;
            self.note(ActivityKind::Copy, "copy", bytes, stream);
        }
        Ok(())
    }

    /// The first `count` values of a buffer; waits for the stream.
    pub fn download<T: Pod>(&self, buffer: &Buffer, count: usize, stream: Stream) -> Result<Vec<T>> {
        self.download_from(buffer.address(), count, stream)
    }

    /// `count` values at an address inside a live buffer; waits for the stream.
    pub fn download_from<T: Pod>(&self, address: u64, count: usize, stream: Stream) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); count];
        self.shared.platform.download(address, bytemuck::cast_slice_mut(&mut values), stream)?;
        self.note(ActivityKind::Download, "download", (count * size_of::<T>()) as u64, stream);
        Ok(values)
    }

    /// Runs a kernel on its argument struct.
    pub fn launch<T: Pod>(&self, kernel: Kernel, grid: u32, arguments: &T, stream: Stream) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        self.shared.platform.launch(kernel, grid, bytes_of(arguments), stream)?;
        self.note(ActivityKind::Kernel, kernel.name(), 0, stream);
        Ok(())
    }
}

impl Watch {
    fn what(&self, kind: ActivityKind, name: &'static str, bytes: u64) -> What {
        What { operator: self.operator.load(Ordering::Relaxed), kind, name, bytes }
    }
}

/// A stream, given back when this is dropped. Streams are never destroyed: what was enqueued stays in order.
pub struct StreamLease {
    memory: DeviceMemory,
    stream: Stream,
}

impl StreamLease {
    /// The stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.memory.idle_streams().push(self.stream);
    }
}

/// Device memory that is given back when the last clone is dropped.
#[derive(Clone)]
pub struct Buffer {
    allocation: Arc<Allocation>,
}

struct Allocation {
    shared: Arc<Shared>,
    address: u64,
    bytes: u64,
    /// In whose order it is freed.
    stream: AtomicU64,
    /// Whether streams of several queries may read it at once.
    is_shared: AtomicBool,
}

impl Buffer {
    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.allocation.address
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.allocation.bytes
    }

    /// Says that from now on another stream uses it. What the first one enqueued must have happened.
    pub fn adopt(&self, stream: Stream) {
        self.allocation.stream.store(stream.0, Ordering::Relaxed);
    }

    /// Says that from now on several streams may read it. What was enqueued must have happened. It is freed
    /// only when every stream has done what was enqueued until then.
    pub fn share(&self) {
        self.allocation.is_shared.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Buffer({:#x}, {} bytes)", self.address(), self.bytes())
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let shared = &self.shared;
        if self.is_shared.load(Ordering::Relaxed)
            && let Err(error) = shared.platform.wait_all()
        {
            tracing::error!("{error}");
        }
        shared.platform.release(self.address, self.bytes, Stream(self.stream.load(Ordering::Relaxed)));
        shared.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
