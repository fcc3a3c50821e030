//! cuFile: reads files directly into GPU memory.
//!
//! cuFile's driver is open in one of two modes, for the whole process. In the GPUDirect mode, registering a file fails if its
//! file system does not support GPUDirect; that is how this module detects it. In the compatibility mode cuFile reads
//! through its own host memory, and every file can be registered.
//!
//! Invariants: a mode lasts while a file of it is open. A request for the other mode is refused meanwhile.
//!
//! Deliberately absent: registered buffers. Chunks come from a pool whose memory can't be registered, and cuFile
//! passes through buffers of its own on the GPU.
//!
//! Source: NVIDIA GPUDirect Storage, cuFile API reference, sections 4 and 5.
#![expect(unsafe_code, reason = "cuFile's interface is C")]

use std::{
    ffi::c_void,
    fs::File,
    io,
    mem::offset_of,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use cudarc::driver::{result::ctx, sys::CUcontext};
use libloading::Library;
use pystachio_engine::locking::lock_whole;
use pystachio_files::from_io;
use pystachio_gpu::device::{DeviceFile, DeviceFileMode};
use pystachio_plan::{Error, ErrorKind, Result};

use crate::{
    fault::from_driver,
    library::{CUFILE, function, open_library},
};

/// Bytes of one call: large enough for storage to give its full bandwidth.
const READ_BYTES_MAX: u64 = 16 << 20;
/// `O_DIRECT`, without which there is no GPUDirect.
const DIRECT: i32 = libc::O_DIRECT;

/// `CUfileError_t`: cuFile's own status, and the driver's.
#[repr(C)]
#[derive(Clone, Copy)]
struct CufileStatus {
    cufile: i32,
    driver: i32,
}

/// `CUfileDescr_t` of a file descriptor.
#[repr(C)]
struct Description {
    kind: i32,
    /// A union of a descriptor and a pointer, and so aligned.
    descriptor: Descriptor,
    operations: *const c_void,
}

#[repr(C, align(8))]
struct Descriptor(i32);

const _: () = assert!(offset_of!(Description, descriptor) == 8);
const _: () = assert!(offset_of!(Description, operations) == 16 && size_of::<Description>() == 24);
/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const KIND_DESCRIPTOR: i32 = 1;

/// The start of `CUfileDrvProps_t`, and room for what follows.
#[repr(C)]
struct CufileProperties {
    nvfs_version: [u32; 2],
    poll_bytes: usize,
    direct_bytes_max: usize,
    status_flags: u32,
    control_flags: u32,
    rest: [u64; 64],
}

const _: () = assert!(offset_of!(CufileProperties, status_flags) == 24);

/// `CU_FILE_NVME_P2P_SUPPORTED`: GPUDirect from NVMe without the kernel module nvidia-fs.
const FLAG_NVME_P2P: u32 = 1 << 11;
/// `CU_FILE_ALLOW_COMPAT_MODE`.
const FLAG_ALLOW_COMPATIBILITY: u32 = 1 << 1;

/// Of `CUFileBoolConfigParameter_t`.
const ALLOW_COMPATIBILITY: i32 = 1;
const FORCE_COMPATIBILITY: i32 = 2;
const USE_PCI_P2PDMA: i32 = 7;

type Handle = *mut c_void;

struct CufileApi {
    driver_open: unsafe extern "C" fn() -> CufileStatus,
    driver_close: unsafe extern "C" fn() -> CufileStatus,
    get_properties: unsafe extern "C" fn(*mut CufileProperties) -> CufileStatus,
    set_parameter: unsafe extern "C" fn(i32, bool) -> CufileStatus,
    register: unsafe extern "C" fn(*mut Handle, *mut Description) -> CufileStatus,
    deregister: unsafe extern "C" fn(Handle),
    read: unsafe extern "C" fn(Handle, *mut c_void, usize, libc::off_t, libc::off_t) -> isize,
    /// Whose functions these are.
    _library: Library,
}

impl CufileApi {
    fn open() -> std::result::Result<Self, String> {
        let library = open_library(CUFILE).map_err(|reason| format!("{CUFILE} {reason}"))?;
        let named = |reason: String| format!("{CUFILE} {reason}");
        // SAFETY: as cufile.h declares them.
        unsafe {
            Ok(Self {
                driver_open: function(&library, "cuFileDriverOpen").map_err(named)?,
                driver_close: function(&library, "cuFileDriverClose_v2").map_err(named)?,
                get_properties: function(&library, "cuFileDriverGetProperties").map_err(named)?,
                set_parameter: function(&library, "cuFileSetParameterBool").map_err(named)?,
                register: function(&library, "cuFileHandleRegister").map_err(named)?,
                deregister: function(&library, "cuFileHandleDeregister").map_err(named)?,
                read: function(&library, "cuFileRead").map_err(named)?,
                _library: library,
            })
        }
    }
}

/// cuFile's driver, open in a mode. Files of it hold it.
struct Session {
    api: Arc<CufileApi>,
    mode: DeviceFileMode,
}

impl Session {
    fn open(api: &Arc<CufileApi>, mode: DeviceFileMode) -> std::result::Result<Self, String> {
        let is_compatible = mode == DeviceFileMode::Compatibility;
        // SAFETY: the driver is closed, as cuFile demands for all of them.
        unsafe {
            checked("choose its mode", (api.set_parameter)(ALLOW_COMPATIBILITY, is_compatible))?;
            checked("choose its mode", (api.set_parameter)(FORCE_COMPATIBILITY, is_compatible))?;
            // Where cuFile or the kernel has none, there is nvidia-fs or nothing.
            let _ = (api.set_parameter)(USE_PCI_P2PDMA, !is_compatible);
            checked("open its driver", (api.driver_open)())?;
        }
        let session = Self { api: api.clone(), mode };
        if !is_compatible {
            session.check_gpudirect()?;
        }
        Ok(session)
    }

    /// Whether reads pass by the host's memory, whatever cuFile's configuration says.
    fn check_gpudirect(&self) -> std::result::Result<(), String> {
        let mut properties = CufileProperties {
            nvfs_version: [0; 2],
            poll_bytes: 0,
            direct_bytes_max: 0,
            status_flags: 0,
            control_flags: 0,
            rest: [0; 64],
        };
        // SAFETY: there is room for the whole structure.
        checked("tell its properties", unsafe { (self.api.get_properties)(&raw mut properties) })?;
        if properties.control_flags & FLAG_ALLOW_COMPATIBILITY != 0 {
            return Err("cuFile's configuration insists on its compatibility mode".to_owned());
        }
        if properties.nvfs_version == [0; 2] && properties.status_flags & FLAG_NVME_P2P == 0 {
            return Err("cuFile found neither nvidia-fs nor NVMe with peer-to-peer access".to_owned());
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: no file of it is left.
        if let Err(reason) = checked("close its driver", unsafe { (self.api.driver_close)() }) {
            tracing::warn!("{reason}");
        }
    }
}

/// Whether this host may have GPUDirect Storage: asking cuFile itself takes it a while.
fn may_have_gpudirect() -> bool {
    let has_nvme = std::fs::read_dir("/sys/class/nvme").is_ok_and(|mut entries| entries.next().is_some());
    has_nvme || Path::new("/proc/driver/nvidia-fs").exists()
}

/// What a call of cuFile failed with, in words. `action` says what was tried.
fn checked(action: &str, status: CufileStatus) -> std::result::Result<(), String> {
    let meaning = match status.cufile {
        0 => return Ok(()),
        5001 => "its driver is not initialized",
        5007 => "the platform is not supported",
        5008 => "the file system is not supported",
        5010 | 5033 => "nvidia-fs is not there or does not answer",
        5011 => "the GPU's driver failed",
        5025 => "permission denied",
        5027 => "the file can't be registered; cuFile needs the host's udev database to know its file system",
        _ => "see its log",
    };
    Err(format!("cuFile could not {action}: status={}, driver={}: {meaning}", status.cufile, status.driver))
}

/// cuFile, if the host has it.
pub(crate) struct CuFile {
    api: std::result::Result<Arc<CufileApi>, String>,
    session: Mutex<Option<Arc<Session>>>,
}

impl CuFile {
    /// Looks for it; opens nothing.
    pub(crate) fn new() -> Self {
        Self { api: CufileApi::open().map(Arc::new), session: Mutex::default() }
    }

    /// Opens a file for the GPU of a context, which is current.
    ///
    /// # Errors
    ///
    /// As of [`pystachio_gpu::device::Platform::open_file`].
    pub(crate) fn open_file(
        &self,
        file: &File,
        path: &Path,
        mode: DeviceFileMode,
        context: CUcontext,
    ) -> Result<CuFileHandle> {
        let unavailable = |reason: String| Error::new(ErrorKind::Unavailable, reason);
        let session = self.session(mode)?;
        let file = match mode {
            DeviceFileMode::GpuDirect => {
                let name = format!("/proc/self/fd/{}", file.as_raw_fd());
                File::options().read(true).custom_flags(DIRECT).open(name)
            }
            DeviceFileMode::Compatibility => file.try_clone(),
        };
        let file = file.map_err(|error| unavailable(format!("it can't be opened: {error}")))?;
        let mut handle: Handle = std::ptr::null_mut();
        let mut description = Description {
            kind: KIND_DESCRIPTOR,
            descriptor: Descriptor(file.as_raw_fd()),
            operations: std::ptr::null(),
        };
        // SAFETY: an open file; both structures live until the call returns.
        let status = unsafe { (session.api.register)(&raw mut handle, &raw mut description) };
        checked("register the file", status).map_err(unavailable)?;
        Ok(CuFileHandle { handle, context, path: path.to_owned(), session, _file: file })
    }

    fn session(&self, mode: DeviceFileMode) -> Result<Arc<Session>> {
        let unavailable = |reason: &String| Error::new(ErrorKind::Unavailable, reason.clone());
        let api = self.api.as_ref().map_err(unavailable)?;
        if mode == DeviceFileMode::GpuDirect && !may_have_gpudirect() {
            let reason = "there is neither the kernel module nvidia-fs nor an NVMe device";
            return Err(unavailable(&reason.to_owned()));
        }
        let mut open = lock_whole(&self.session);
        match &*open {
            Some(session) if session.mode == mode => return Ok(session.clone()),
            Some(session) if Arc::strong_count(session) > 1 => {
                let message = "cuFile is used in its other mode by another query";
                return Err(Error::new(ErrorKind::FileAccess, message));
            }
            _ => {}
        }
        // Its driver must be closed before the mode is chosen.
        *open = None;
        let session = Arc::new(Session::open(api, mode).map_err(|reason| unavailable(&reason))?);
        *open = Some(session.clone());
        Ok(session)
    }
}

/// A file that is registered with cuFile.
pub(crate) struct CuFileHandle {
    handle: Handle,
    context: CUcontext,
    path: PathBuf,
    session: Arc<Session>,
    /// The descriptor that is registered.
    _file: File,
}

// SAFETY: cuFile's handles belong to no thread, and the context is made current before each use.
unsafe impl Send for CuFileHandle {}
// SAFETY: reads of one handle may go on at once.
unsafe impl Sync for CuFileHandle {}

impl DeviceFile for CuFileHandle {
    fn read(&self, offset: u64, bytes: u64, target: u64) -> Result<()> {
        // SAFETY: the context lives as long as the process.
        unsafe { ctx::set_current(self.context) }.map_err(|error| from_driver("use its context", error))?;
        let mut done = 0;
        while done < bytes {
            let wanted = (bytes - done).min(READ_BYTES_MAX);
            // SAFETY: the target has this many bytes, and nothing enqueued uses it.
            let read = unsafe {
                let (base, place) = (target as *mut c_void, done as libc::off_t);
                (self.session.api.read)(
                    self.handle,
                    base,
                    wanted as usize,
                    (offset + done) as libc::off_t,
                    place,
                )
            };
            done += match read {
                0 => return Err(from_io(&self.path, "read", &io::ErrorKind::UnexpectedEof.into())),
                -1 => return Err(from_io(&self.path, "read", &io::Error::last_os_error())),
                read if read < 0 => return Err(self.failed(read)),
                read => read as u64,
            };
        }
        Ok(())
    }
}

impl CuFileHandle {
    fn failed(&self, status: isize) -> Error {
        let status = CufileStatus { cufile: status.unsigned_abs() as i32, driver: 0 };
        let reason = checked("read", status).err().unwrap_or_default();
        let message = format!("could not read \"{}\": {reason}", self.path.display());
        Error::new(ErrorKind::FileAccess, message)
            .with_hint("Set pystachio.gpu_storage to page_cache or direct.")
    }
}

impl Drop for CuFileHandle {
    fn drop(&mut self) {
        // SAFETY: registered by `open_file`, and no read is under way.
        unsafe { (self.session.api.deregister)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_gpudirect_says_why() {
        let file = File::open("/proc/self/exe").unwrap();
        let path = Path::new("/proc/self/exe");
        if may_have_gpudirect() {
            println!("skipped: cuFile would have to be asked, which takes a GPU");
            return;
        }
        let opened = CuFile::new().open_file(&file, path, DeviceFileMode::GpuDirect, std::ptr::null_mut());
        let error = opened.err().unwrap();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        let reasons =
            ["libcufile.so.0 is not there", "neither the kernel module nvidia-fs nor an NVMe device"];
        assert!(reasons.iter().any(|reason| error.message.contains(reason)), "{error}");
    }

    #[test]
    fn what_cufile_reports_is_said_in_words() {
        assert_eq!(checked("read", CufileStatus { cufile: 0, driver: 7 }), Ok(()));
        let reason = checked("register the file", CufileStatus { cufile: 5027, driver: 0 }).unwrap_err();
        assert!(reason.contains("status=5027") && reason.contains("udev"), "{reason}");
    }
}
