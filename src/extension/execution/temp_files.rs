//! Spill files of engines as temporary files of the session: their folder, their limit, and their
//! count in PostgreSQL's statistics.
#![expect(unsafe_code, reason = "reads settings of PostgreSQL, and asks for its folders of temporary files")]

use std::ffi::CStr;

use pgrx::{log, pg_sys};
use pystachio_plan::SpillRequest;

/// What a query of this session may spill, and where to: in the next of `temp_tablespaces`, as PostgreSQL's own files.
pub fn request() -> SpillRequest {
    // SAFETY: reads a setting, which -1 turns off. Its unit is 1 kB.
    let limit_kilobytes = unsafe { pg_sys::temp_file_limit };
    SpillRequest {
        directory: Some(directory()),
        bytes_max: u64::try_from(limit_kilobytes).ok().map(|kilobytes| kilobytes * 1024),
    }
}

/// The folder of temporary files, relative to the data directory.
fn directory() -> String {
    let mut path = [0; pg_sys::MAXPGPATH as usize];
    // SAFETY: in a transaction, as a query runs. The buffer has the size that the last function writes at most.
    let path = unsafe {
        pg_sys::PrepareTempTablespaces();
        let tablespace = match pg_sys::GetNextTempTableSpace() {
            pg_sys::InvalidOid => pg_sys::MyDatabaseTableSpace,
            tablespace => tablespace,
        };
        pg_sys::TempTablespacePath(path.as_mut_ptr(), tablespace);
        CStr::from_ptr(path.as_ptr())
    };
    path.to_string_lossy().into_owned()
}

/// Counts the spill files of a query that has ended, in whatever way: in `pg_stat_database`, and in the log if `log_temp_files` says so.
pub fn report(bytes: u64) {
    if bytes == 0 {
        return;
    }
    // SAFETY: counts in this process's statistics; reads a setting, which -1 turns off. Its unit is 1 kB.
    let log_kilobytes = unsafe {
        pg_sys::pgstat_report_tempfile(bytes as usize);
        pg_sys::log_temp_files
    };
    if u64::try_from(log_kilobytes).is_ok_and(|kilobytes| bytes / 1024 >= kilobytes) {
        log!("temporary files of a pystachio engine, size {bytes}");
    }
}
