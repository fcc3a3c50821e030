//! Libraries of the host, opened at run time by their own names.
//!
//! Invariants: a missing or outdated library is reported as a line of text, never as a panic.
//!
//! Deliberately absent: NVRTC, because kernels are compiled with the crate.
#![expect(unsafe_code, reason = "functions of libraries are known by their names")]

use std::error::Error;

use libloading::Library;

use crate::nvcomp::nvcomp_version;

/// Where CUDA's toolkit has its libraries, if the loader does not know it.
const TOOLKIT_FOLDERS: [&str; 3] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/targets/sbsa-linux/lib",
];

/// The driver's library.
pub(crate) const DRIVER: &str = "libcuda.so.1";
/// GPUDirect Storage.
pub(crate) const CUFILE: &str = "libcufile.so.0";
/// Collectives between GPUs.
pub(crate) const NCCL: &str = "libnccl.so.2";

/// The oldest driver that runs the kernels: their compiler is of this version of CUDA.
const DRIVER_VERSION_MIN: i32 = 13_000;
/// The oldest cuFile whose modes can be chosen by a program.
const CUFILE_VERSION_MIN: i32 = 1_140;

/// What a function that tells a version gives back, besides the version.
type VersionStatus = i32;
/// As of [`VersionStatus`], of cuFile: its own and the driver's.
type CufileVersionStatus = [i32; 2];

/// Opens a library, by its name and then in the folders of CUDA's toolkit.
///
/// # Errors
///
/// Why not, in words.
pub(crate) fn open_library(name: &str) -> Result<Library, String> {
    // SAFETY: these libraries do nothing harmful when they are loaded.
    let named = unsafe { Library::new(name) };
    let elsewhere = || {
        TOOLKIT_FOLDERS.iter().find_map(|folder| {
            // SAFETY: as above.
            unsafe { Library::new(format!("{folder}/{name}")) }.ok()
        })
    };
    named.or_else(|error| elsewhere().ok_or(error)).map_err(|error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        missing(name, &reason)
    })
}

/// The loader's words without the name that they begin with.
fn missing(name: &str, reason: &str) -> String {
    let reason = reason.strip_prefix(&format!("{name}: ")).unwrap_or(reason);
    if reason.contains("No such file") {
        "is not there".to_owned()
    } else {
        format!("can't be loaded: {reason}")
    }
}

/// A function of a library.
///
/// # Errors
///
/// It has no such function.
///
/// # Safety
///
/// The function has this type.
pub(crate) unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller knows the type.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| format!("is too old: it has no {name}"))
}

/// The version of CUDA that the driver is made for, as 13000 for 13.0.
///
/// # Errors
///
/// `<library> is not there`, `… can't be loaded: …`, `… is too old: …`.
pub(crate) fn driver_version() -> Result<i32, String> {
    let version = open_library(DRIVER).and_then(|library| {
        let mut version = 0;
        // SAFETY: as cuda.h declares it.
        let tell = unsafe {
            function::<unsafe extern "C" fn(*mut i32) -> VersionStatus>(&library, "cuDriverGetVersion")
        }?;
        // SAFETY: it writes a number.
        match unsafe { tell(&raw mut version) } {
            0 => check_version(version, DRIVER_VERSION_MIN, cuda_version),
            status => Err(format!("does not tell its version: status={status}")),
        }
    });
    version.map_err(|reason| format!("{DRIVER} {reason}"))
}

fn cufile_version() -> Result<i32, String> {
    let library = open_library(CUFILE)?;
    let mut version = 0;
    // SAFETY: as cufile.h declares it.
    let tell = unsafe {
        function::<unsafe extern "C" fn(*mut i32) -> CufileVersionStatus>(&library, "cuFileGetVersion")
    }?;
    // SAFETY: it writes a number.
    match unsafe { tell(&raw mut version) } {
        [0, _] => check_version(version, CUFILE_VERSION_MIN, cuda_version),
        [status, _] => Err(format!("does not tell its version: status={status}")),
    }
}

/// The version of NCCL that a library is, as 22803 for 2.28.3.
///
/// # Errors
///
/// It is no NCCL, or does not tell.
pub(crate) fn nccl_version(library: &Library) -> Result<i32, String> {
    let mut version = 0;
    // SAFETY: as nccl.h declares it.
    let tell =
        unsafe { function::<unsafe extern "C" fn(*mut i32) -> VersionStatus>(library, "ncclGetVersion") }?;
    // SAFETY: it writes a number.
    match unsafe { tell(&raw mut version) } {
        0 => Ok(version),
        status => Err(format!("does not tell its version: status={status}")),
    }
}

fn check_version(version: i32, version_min: i32, shown: fn(i32) -> String) -> Result<i32, String> {
    if version >= version_min {
        return Ok(version);
    }
    Err(format!("is too old: it is of version {}, and {} is needed", shown(version), shown(version_min)))
}

/// 13020 is 13.2, and so it is with cuFile.
pub(crate) fn cuda_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// 22803 is 2.28.3.
pub(crate) fn nccl_version_text(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// The libraries that a GPU's engine uses where they are: a line each, with the version or with what is wrong and
/// what that means.
pub fn library_lines() -> Vec<String> {
    let driver = match driver_version() {
        Ok(version) => format!("{DRIVER} is of CUDA {}", cuda_version(version)),
        Err(reason) => format!("{reason}; no GPU is used without it"),
    };
    let cufile = match cufile_version() {
        Ok(version) => format!("{CUFILE} is of version {}", cuda_version(version)),
        Err(reason) => format!("{CUFILE} {reason}; files are read by the host"),
    };
    let nccl = match open_library(NCCL).and_then(|library| nccl_version(&library)) {
        Ok(version) => format!("{NCCL} is of version {}", nccl_version_text(version)),
        Err(reason) => format!("{NCCL} {reason}; one GPU needs none"),
    };
    let nvcomp = match nvcomp_version() {
        Ok(version) => format!("libnvcomp.so is of version {version}"),
        Err(reason) => format!("{reason}; Zstd and gzip are decompressed by the host"),
    };
    vec![driver, cufile, nccl, nvcomp]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_or_is_none_says_so() {
        assert_eq!(open_library("libpystachio-none.so.7").err().unwrap(), "is not there");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libtext.so.1");
        std::fs::write(&path, "no library").unwrap();
        let reason = open_library(path.to_str().unwrap()).err().unwrap();
        assert!(reason.starts_with("can't be loaded: "), "{reason}");
    }

    #[test]
    fn a_library_without_a_function_is_too_old() {
        let library = open_library("libc.so.6").unwrap();
        // SAFETY: it is not called.
        let found = unsafe { function::<unsafe extern "C" fn()>(&library, "cuFileSetParameterBool") };
        assert_eq!(found.unwrap_err(), "is too old: it has no cuFileSetParameterBool");
    }

    #[test]
    fn versions_are_compared_and_shown_as_their_makers_do() {
        assert_eq!(check_version(13_000, 13_000, cuda_version), Ok(13_000));
        let reason = check_version(12_040, 13_000, cuda_version).unwrap_err();
        assert_eq!(reason, "is too old: it is of version 12.4, and 13.0 is needed");
        assert_eq!((cuda_version(1_150), nccl_version_text(22_803)), ("1.15".into(), "2.28.3".into()));
    }

    #[test]
    fn every_library_has_a_line() {
        let lines = library_lines();
        for (line, name) in lines.iter().zip([DRIVER, CUFILE, NCCL, "libnvcomp.so"]) {
            assert!(line.starts_with(name), "{line}");
        }
    }
}
