//! Rows that become Parquet files: INSERT, COPY FROM, COPY TO in the format parquet, and `pystachio.write_parquet`.
//!
//! ```text
//! slots ──► Arrow arrays ══ batches ══► engine: .rows-….parquet.PID-N ══ Written, Keep ══► list of the transaction
//!  modify.rs, query.rs     rows.rs       (src/files/writing/rows)                            transaction.rs
//!                                                                                                 │
//!                              rows-….parquet ◄── renamed before the commit, or removed at an abort
//! ```
//!
//! - `modify.rs`: the callbacks of INSERT, COPY FROM and TRUNCATE
//! - `query.rs`: a query whose rows are written; `copy.rs`: COPY TO
//! - `rows.rs`: rows on their way to the engine
//! - `delete.rs`: DELETE of whole partitions; `locks.rs`: the locks that it takes
//! - `transaction.rs`: the files of the transaction, and when they get their names; `record.rs`: what to do after a crash
//!
//! Division of labour. The backend makes Arrow arrays of datums (`types/writer.rs`), because only
//! it knows PostgreSQL's values. The engine makes files of them, because only it knows Parquet. The
//! backend renames the files, because only it knows how the transaction ends. A rename needs no
//! engine, so a lost engine can't hold up a commit.
//!
//! A query that an engine computes whole is written by that engine, without rows on the socket (`WriteQuery`).
//!
//! The engine uploads objects of stores, and makes them visible when the transaction is about to
//! commit (`Complete`). The transaction holds the connection until then. If the connection ends
//! earlier, the engine removes its uploads.
//!
//! Flow control. A batch is about a megabyte. The socket holds some more, and the engine takes the next batch when the one before it
//! is written. An engine that fails closes the connection; the backend reads why when it sends the next batch. A backend that fails
//! or is cancelled closes it too, and the engine removes what it wrote.
//!
//! Invariants
//! - A file has a name that scans see only when it is whole, on disk, and the transaction is about to commit.
//! - A file belongs to the engine until the backend has noted it (`Keep`), then to the transaction, or to the subtransaction that
//!   wrote it. Its owner removes it. After a crash, the next write to the folder does: the name has the backend's process.
//! - After a crash, a transaction that has committed has all its files, and one that has not has none (`record.rs`).
//! - What PostgreSQL checks of a heap table's new rows is checked here: NOT NULL, CHECK and the bounds of partitions.
//!
//! Limits of atomicity. Names change between the last check of the transaction and its commit
//! record. So other sessions may see files some moments before the commit, unless a TRUNCATE has
//! locked the table, or a DELETE its files. A transaction does not see its own rows before it
//! commits.
//!
//! Deliberately absent: UPDATE, and DELETE of single rows; Parquet.
#![expect(unsafe_code, reason = "asks PostgreSQL for random bytes")]

mod copy;
mod delete;
mod locks;
mod modify;
mod query;
mod record;
mod rows;
mod transaction;

use pgrx::pg_sys;
use pystachio_plan::WriteTarget;

pub use copy::run as run_copy;
pub use locks::{share as share_files, share_read as share_read_files};
pub use modify::fill_routine;
pub use query::{RowQuery, RowTarget, write_rows};
pub use record::recover;
pub use rows::{RowColumn, RowSink, SpilledRows, take_files};
pub use transaction::register_callbacks;

/// The file or the folder that a path names: files end with `.parquet`.
fn target_of(path: String, overwrite: bool) -> WriteTarget {
    match path.ends_with(".parquet") {
        true => WriteTarget::File { path, overwrite },
        false => WriteTarget::Folder { path: path.trim_end_matches('/').to_owned(), stem: stem() },
    }
}

/// The begin of file names that no other write has: the time, so that names are in the order of writes, and a random number.
fn stem() -> String {
    let mut random = 0u64;
    // SAFETY: writes so many bytes. A source of random numbers that fails leaves the time and the process.
    if !unsafe { pg_sys::pg_strong_random((&raw mut random).cast(), size_of::<u64>()) } {
        random = u64::from(std::process::id());
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("rows-{:014x}-{random:016x}", now.as_micros())
}
