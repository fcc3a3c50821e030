//! One communicator of NCCL.
#![expect(unsafe_code, reason = "NCCL's interface is C")]

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr, thread,
    time::{Duration, Instant},
};

use crossbeam::channel::bounded;
use cudarc::{
    driver::sys::CUstream,
    nccl::sys::{ncclComm_t, ncclConfig_t, ncclDataType_t, ncclResult_t, ncclUniqueId},
};
use pystachio_gpu::{
    device::Stream,
    exchange::{Rank, ReceivePart, SendPart},
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    NcclId,
    library::{IN_PROGRESS, NcclLibrary, NcclStatus, SUCCESS},
};

/// `NCCL_API_MAGIC` of nccl.h.
const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// The version of nccl.h whose configuration the bindings have: later ones have more at its end.
const CONFIG_VERSION: u32 = 22_200;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: i32 = i32::MIN;
/// How often the start of a connection is polled.
const CONNECT_LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// How long the end of a connection is waited for: it waits for the device, and for threads of the
/// library that poll a flag.
const ABORT_MAX: Duration = Duration::from_secs(3);

/// A rank's communicator of NCCL.
///
/// # Errors
///
/// Every method: `Peer` if the library found another rank gone; `Device` for a fault of the device;
/// `Internal` otherwise.
pub(super) struct Connection {
    library: &'static NcclLibrary,
    handle: ncclComm_t,
    /// The address at which the library writes the handle. It may still write there.
    _place: Box<ncclComm_t>,
}

// SAFETY: a communicator belongs to no thread; only the owner of the connection uses it.
unsafe impl Send for Connection {}

/// This rank, and the number of ranks.
#[derive(Clone, Copy)]
pub(super) struct Membership {
    pub(super) rank: Rank,
    pub(super) rank_count: usize,
}

impl Connection {
    /// Connects with all ranks that use the same name. Waits for them. The device's context must be
    /// current.
    ///
    /// # Errors
    ///
    /// `Peer` if a rank is late.
    pub(super) fn open(
        library: &'static NcclLibrary,
        id: &NcclId,
        membership: Membership,
        connect_max: Duration,
    ) -> Result<Self> {
        let begun = Instant::now();
        let connection = Self::begin(library, id, membership)?;
        loop {
            match connection.is_ready() {
                Ok(true) => return Ok(connection),
                Ok(false) if begun.elapsed() < connect_max => thread::sleep(CONNECT_LOOK_INTERVAL),
                Ok(false) => {
                    abort(connection);
                    let message = format!(
                        "not all of {} ranks were there within {connect_max:?}",
                        membership.rank_count
                    );
                    return Err(Error::new(ErrorKind::Peer, message));
                }
                Err(error) => {
                    abort(connection);
                    return Err(error);
                }
            }
        }
    }

    fn begin(
        library: &'static NcclLibrary,
        id: &NcclId,
        Membership { rank, rank_count }: Membership,
    ) -> Result<Self> {
        let id = ncclUniqueId { internal: id.0.map(|byte| byte as _) };
        // SAFETY: a plain structure, all of whose fields that zeros are wrong for are set below.
        let mut config = unsafe { MaybeUninit::<ncclConfig_t>::zeroed().assume_init() };
        config.size = size_of::<ncclConfig_t>();
        config.magic = CONFIG_MAGIC;
        config.version = CONFIG_VERSION;
        config.blocking = 0;
        config.cgaClusterSize = UNDEFINED;
        config.minCTAs = UNDEFINED;
        config.maxCTAs = UNDEFINED;
        config.netName = ptr::null();
        config.splitShare = UNDEFINED;
        let mut place: Box<ncclComm_t> = Box::new(ptr::null_mut());
        let (count, number) = (i32::try_from(rank_count).unwrap_or(i32::MAX), i32::from(rank.0));
        // SAFETY: the pointers are to live values, which the library copies.
        let status =
            unsafe { (library.comm_init_rank_config)(&raw mut *place, count, id, number, &raw mut config) };
        let handle = *place;
        let connection = Self { library, handle, _place: place };
        match status {
            SUCCESS | IN_PROGRESS if !handle.is_null() => Ok(connection),
            status => {
                if !handle.is_null() {
                    abort(connection);
                }
                Err(error_of(library, "connect", status))
            }
        }
    }

    /// Whether the last begun operation has been enqueued; does not wait.
    pub(super) fn is_ready(&self) -> Result<bool> {
        let mut state: NcclStatus = IN_PROGRESS;
        // SAFETY: the communicator lives; the pointer is to a live value.
        let asked = unsafe { (self.library.comm_get_async_error)(self.handle, &raw mut state) };
        match (asked, state) {
            (SUCCESS, SUCCESS) => Ok(true),
            (SUCCESS, IN_PROGRESS) => Ok(false),
            (SUCCESS, status) | (status, _) => Err(self.error("go on", status)),
        }
    }

    /// Registers memory, so that GPUs may copy from and to it without a buffer of the library in
    /// between. Returns whether it was registered: a library may not support it.
    pub(super) fn register(&self, (address, bytes): (u64, u64)) -> Result<bool> {
        let Some(register) = self.library.comm_register else { return Ok(false) };
        let mut registration = ptr::null_mut();
        // SAFETY: memory of the device that outlives the communicator, with which the registration ends.
        let status =
            unsafe { register(self.handle, address as *mut c_void, bytes as usize, &raw mut registration) };
        self.check("register memory", status).map(|()| true)
    }

    /// Begins to move parts, none of which is for this rank itself, as one group. It is enqueued on
    /// the stream when [`Connection::is_ready`] returns true.
    pub(super) fn begin_group(
        &self,
        sends: &[SendPart],
        receives: &[ReceivePart],
        stream: Stream,
    ) -> Result<()> {
        let stream = stream.0 as CUstream;
        // SAFETY: the call only counts.
        self.check("begin a group", unsafe { (self.library.group_start)() })?;
        let parts = self.add_parts(sends, receives, stream);
        // SAFETY: the group was begun on this thread. It must end even if a part is wrong, or it
        // would continue with the next one.
        let ended = unsafe { (self.library.group_end)() };
        parts?;
        self.check("move blocks", ended)
    }

    fn add_parts(&self, sends: &[SendPart], receives: &[ReceivePart], stream: CUstream) -> Result<()> {
        let Self { library, handle, .. } = self;
        let data_type = ncclDataType_t::ncclUint8;
        for SendPart { to, address, bytes } in sends {
            let (source, count, peer) = (*address as *const c_void, *bytes as usize, i32::from(to.0));
            // SAFETY: memory that the device reads, which stays unchanged until the stream has
            // reached the end of the group.
            let status = unsafe { (library.send)(source, count, data_type, peer, *handle, stream) };
            self.check("send a block", status)?;
        }
        for ReceivePart { from, address, bytes } in receives {
            let (target, count, peer) = (*address as *mut c_void, *bytes as usize, i32::from(from.0));
            // SAFETY: memory that the device writes, which no other work uses until the stream has
            // reached the end of the group.
            let status = unsafe { (library.recv)(target, count, data_type, peer, *handle, stream) };
            self.check("receive a block", status)?;
        }
        Ok(())
    }

    fn check(&self, action: &str, status: NcclStatus) -> Result<()> {
        match status {
            SUCCESS | IN_PROGRESS => Ok(()),
            status => Err(self.error(action, status)),
        }
    }

    fn error(&self, action: &str, status: NcclStatus) -> Error {
        error_of(self.library, action, status)
    }
}

/// Ends a connection, whatever its state. Returns whether it ended in time; if not, a thread of its
/// own waits, until the process ends.
pub(super) fn abort(connection: Connection) -> bool {
    let (sender, receiver) = bounded(1);
    let end = move || {
        let connection = connection;
        let Connection { library, handle, .. } = &connection;
        // SAFETY: no other code has the communicator any more.
        let status = unsafe { (library.comm_abort)(*handle) };
        if status != SUCCESS {
            tracing::error!("{}", error_of(library, "end a connection", status));
        }
        // The receiver is gone if its wait timed out.
        let _ = sender.send(());
    };
    if let Err(error) = thread::Builder::new().name("nccl-abort".to_owned()).spawn(end) {
        tracing::error!("no thread to end a connection: {error}");
    }
    let has_ended = receiver.recv_timeout(ABORT_MAX).is_ok();
    if !has_ended {
        tracing::error!("a connection of NCCL did not end within {ABORT_MAX:?}");
    }
    has_ended
}

fn error_of(library: &NcclLibrary, action: &str, status: NcclStatus) -> Error {
    const UNHANDLED_CUDA: NcclStatus = ncclResult_t::ncclUnhandledCudaError as NcclStatus;
    const SYSTEM: NcclStatus = ncclResult_t::ncclSystemError as NcclStatus;
    const REMOTE: NcclStatus = ncclResult_t::ncclRemoteError as NcclStatus;
    let message = format!("NCCL could not {action}: {}", library.text(status));
    match status {
        // The end of a rank's process ends its connections.
        SYSTEM | REMOTE => Error::new(ErrorKind::Peer, message),
        UNHANDLED_CUDA => Error::new(ErrorKind::Device, message).with_hint(
            "Run the query again: the engine restarts by itself. Look into the server log for the reason.",
        ),
        _ => Error::internal(message),
    }
}
