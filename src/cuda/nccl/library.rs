//! The library's functions.
//!
//! Types and constants are those of cudarc's bindings; functions are looked up here, because cudarc opens `libnccl.so`, which only
//! development packages have, and panics where a function is missing. Results are read as numbers: a newer library may have more of
//! them than the bindings.
#![expect(unsafe_code, reason = "functions of a library are known by their names")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::OnceLock,
};

use cudarc::{
    driver::sys::CUstream,
    nccl::sys::{ncclComm_t, ncclConfig_t, ncclDataType_t, ncclResult_t, ncclUniqueId},
};
use libloading::Library;
use pystachio_plan::{Error, ErrorKind, Result};

use super::UNIQUE_ID_BYTES;
use crate::library::{NCCL, function, nccl_version, nccl_version_text, open_library};

/// The oldest library whose communicators may be told not to block, and that ends those of ranks that are gone.
const VERSION_MIN: i32 = 21_800;

/// `ncclResult_t`.
pub(super) type NcclStatus = i32;
pub(super) const SUCCESS: NcclStatus = ncclResult_t::ncclSuccess as NcclStatus;
pub(super) const IN_PROGRESS: NcclStatus = ncclResult_t::ncclInProgress as NcclStatus;

type GetUniqueId = unsafe extern "C" fn(*mut ncclUniqueId) -> NcclStatus;
type CommInitRankConfig =
    unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> NcclStatus;
type CommGetAsyncError = unsafe extern "C" fn(ncclComm_t, *mut NcclStatus) -> NcclStatus;
type CommAbort = unsafe extern "C" fn(ncclComm_t) -> NcclStatus;
type CommRegister = unsafe extern "C" fn(ncclComm_t, *mut c_void, usize, *mut *mut c_void) -> NcclStatus;
type GroupCall = unsafe extern "C" fn() -> NcclStatus;
type Send =
    unsafe extern "C" fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> NcclStatus;
type Recv =
    unsafe extern "C" fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> NcclStatus;
type GetErrorString = unsafe extern "C" fn(NcclStatus) -> *const c_char;
type GetLastError = unsafe extern "C" fn(ncclComm_t) -> *const c_char;

/// The library, as far as exchanges use it.
pub(super) struct NcclLibrary {
    get_unique_id: GetUniqueId,
    pub(super) comm_init_rank_config: CommInitRankConfig,
    pub(super) comm_get_async_error: CommGetAsyncError,
    pub(super) comm_abort: CommAbort,
    /// Absent before 2.19.
    pub(super) comm_register: Option<CommRegister>,
    pub(super) group_start: GroupCall,
    pub(super) group_end: GroupCall,
    pub(super) send: Send,
    pub(super) recv: Recv,
    get_error_string: GetErrorString,
    get_last_error: GetLastError,
    /// Whose functions these are.
    _library: Library,
}

impl NcclLibrary {
    /// The library, which is opened once.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it is not there or too old.
    pub(super) fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<std::result::Result<NcclLibrary, String>> = OnceLock::new();
        LIBRARY.get_or_init(|| Self::open(NCCL)).as_ref().map_err(|reason| unavailable(NCCL, reason))
    }

    fn open(name: &str) -> std::result::Result<Self, String> {
        let library = open_library(name)?;
        let version = nccl_version(&library)?;
        if version < VERSION_MIN {
            let (version, needed) = (nccl_version_text(version), nccl_version_text(VERSION_MIN));
            return Err(format!("is too old: it is of version {version}, and {needed} is needed"));
        }
        // SAFETY: each as nccl.h declares it.
        unsafe {
            Ok(Self {
                get_unique_id: function(&library, "ncclGetUniqueId")?,
                comm_init_rank_config: function(&library, "ncclCommInitRankConfig")?,
                comm_get_async_error: function(&library, "ncclCommGetAsyncError")?,
                comm_abort: function(&library, "ncclCommAbort")?,
                comm_register: function(&library, "ncclCommRegister").ok(),
                group_start: function(&library, "ncclGroupStart")?,
                group_end: function(&library, "ncclGroupEnd")?,
                send: function(&library, "ncclSend")?,
                recv: function(&library, "ncclRecv")?,
                get_error_string: function(&library, "ncclGetErrorString")?,
                get_last_error: function(&library, "ncclGetLastError")?,
                _library: library,
            })
        }
    }

    /// A new name for a communicator.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the library finds no network interface.
    pub(super) fn unique_id(&self) -> Result<[u8; UNIQUE_ID_BYTES]> {
        let mut id = ncclUniqueId { internal: [0; UNIQUE_ID_BYTES] };
        // SAFETY: it writes an id.
        match unsafe { (self.get_unique_id)(&raw mut id) } {
            SUCCESS => Ok(id.internal.map(|byte| byte as u8)),
            status => Err(unavailable(NCCL, &format!("makes no id: {}", self.text(status)))),
        }
    }

    /// What a result means, and what the library says of its last error.
    pub(super) fn text(&self, status: NcclStatus) -> String {
        let text = |pointer: *const c_char| match pointer.is_null() {
            true => String::new(),
            // SAFETY: texts of the library, which end with a zero and stay.
            false => unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned(),
        };
        // SAFETY: both only look texts up; the communicator is not used.
        let (meaning, last) =
            unsafe { ((self.get_error_string)(status), (self.get_last_error)(std::ptr::null_mut())) };
        match (text(meaning), text(last)) {
            (meaning, last) if last.is_empty() => meaning,
            (meaning, last) => format!("{meaning} ({last})"),
        }
    }
}

fn unavailable(name: &str, reason: &str) -> Error {
    let message = format!("GPUs are not connected: {name} {reason}");
    let needed = nccl_version_text(VERSION_MIN);
    Error::new(ErrorKind::Unavailable, message).with_hint(format!(
        "Install NVIDIA's NCCL {needed} or later (package libnccl2), or name its folder in LD_LIBRARY_PATH of the server. One GPU needs none."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_the_way_out() {
        let reason = NcclLibrary::open("libpystachio-none.so.2").err().unwrap();
        let error = unavailable("libpystachio-none.so.2", &reason);
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(error.message, "GPUs are not connected: libpystachio-none.so.2 is not there");
        assert!(error.hint.unwrap().contains("NCCL 2.18.0 or later"));
        let reason = NcclLibrary::open("libc.so.6").err().unwrap();
        assert_eq!(reason, "is too old: it has no ncclGetVersion");
    }

    #[test]
    fn where_the_library_is_it_makes_ids() {
        match NcclLibrary::get() {
            Ok(library) => assert_ne!(library.unique_id().unwrap(), library.unique_id().unwrap()),
            Err(error) => println!("skipped: {error}"),
        }
    }
}
