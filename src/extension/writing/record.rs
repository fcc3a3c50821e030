//! The record of a transaction's changes of file names, on disk while they happen, so that a crash
//! leaves nothing half done.
//!
//! ```text
//! before the commit: the record, synced ──► names change ──► commit record ──► what was replaced or removed goes ──► no record
//! after a crash:     aborted: names are as they were ◄── record ──► committed: what was replaced or removed goes
//! ```
//!
//! A record is a file in the data directory, with the number of the transaction. PostgreSQL knows
//! whether that transaction committed. The session that writes the record locks it, and the kernel
//! releases the lock with the process. So a record without a lock is left over. Each session looks
//! for such records before its first request to an engine, and all sessions begin after the crash.
//!
//! Invariants
//! - Names change only while a record says how.
//! - To undo or to complete a record twice does no harm. A file that another program has put in the place of one is left alone: the
//!   record has the inodes.
//! - The number of the transaction is in the write-ahead log before its record is there: it is of no other transaction after a crash.
//! - A record in a copy of a data directory is of no transaction there: it has its own inode, which a copy has not.
//!
//! Deliberately absent: standby servers, which have no transactions. What COPY and functions write there is not recorded.
#![expect(unsafe_code, reason = "asks PostgreSQL for transactions")]

use std::{
    cell::Cell,
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use pgrx::{direct_function_call, pg_sys, prelude::*};
use pystachio_plan::system_reason;
use serde::{Deserialize, Serialize};

use super::transaction::{remove, rename_to_new, warn};
use crate::pg::encoding::to_message;

/// The folder of records, in the data directory.
const FOLDER: &str = "pystachio/writes";
/// Held while left-over records are looked at.
const LOCK: &str = ".lock";

thread_local! {
    static HAS_LOOKED: Cell<bool> = const { Cell::new(false) };
}

/// A record, locked until this is dropped.
pub struct Record {
    path: PathBuf,
    _file: File,
}

/// What a transaction does to names.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NameChanges {
    /// Files that get their names, in this order.
    pub named: Vec<NamedFile>,
    /// Files that are removed: their names, and those that they have until the commit.
    pub removed: Vec<(PathBuf, PathBuf)>,
}

/// A file that gets its name.
#[derive(Debug, Serialize, Deserialize)]
pub struct NamedFile {
    /// The name.
    pub path: PathBuf,
    /// The name that it had.
    pub provisional_path: PathBuf,
    /// The name of what it replaces, until the commit.
    pub replaced_path: PathBuf,
    /// Its device and inode.
    pub identity: (u64, u64),
}

#[derive(Serialize, Deserialize)]
struct Contents {
    /// Device and inode of the record.
    identity: (u64, u64),
    /// The number of the transaction.
    transaction: u64,
    changes: NameChanges,
}

/// What makes a file the same: its device and inode.
///
/// # Errors
///
/// Those of the file system.
pub fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Record {
    /// Writes a record of the current transaction, which is about to commit. `None` on a standby server.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn write(changes: NameChanges) -> io::Result<Option<Self>> {
        // SAFETY: asks for the state of the server; the transaction is in progress, and a commit record is written for one with a number.
        let transaction = unsafe {
            if pg_sys::RecoveryInProgress() {
                return Ok(None);
            }
            // Without it, a commit that has written nothing else could be lost after the client was told of it.
            pg_sys::ForceSyncCommit();
            pg_sys::GetTopFullTransactionId().value
        };
        log_transaction();
        let folder = Path::new(FOLDER);
        if !folder.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            for above in folder.ancestors().skip(1) {
                File::open(if above.as_os_str().is_empty() { Path::new(".") } else { above })?.sync_all()?;
            }
        }
        let name = format!("{transaction}-{}.json", std::process::id());
        let (path, provisional_path) = (folder.join(&name), folder.join(format!(".{name}")));
        let mut file = File::create(&provisional_path)?;
        // Nobody else knows the name.
        file.lock()?;
        let contents = Contents { identity: identity(&provisional_path)?, transaction, changes };
        file.write_all(&serde_json::to_vec(&contents).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&provisional_path, &path)?;
        File::open(folder)?.sync_all()?;
        Ok(Some(Self { path, _file: file }))
    }

    /// Removes the record: all that it says is done, or undone.
    pub fn remove(self) {
        remove(&self.path);
    }
}

/// Has the number of the transaction in the write-ahead log, on disk. After a crash, PostgreSQL gives numbers that are not there to
/// other transactions.
fn log_transaction() {
    // SAFETY: the function of SQL, with its arguments of all versions: transactional, a prefix, a content, and that it is not flushed. The
    // place in the log that it returns is one.
    unsafe {
        let prefix = pg_sys::cstring_to_text(c"pystachio".as_ptr());
        let arguments = [
            Some(pg_sys::Datum::from(true)),
            Some(pg_sys::Datum::from(prefix)),
            Some(pg_sys::Datum::from(prefix)),
            Some(pg_sys::Datum::from(false)),
        ];
        let place = pgrx::direct_function_call_as_datum(pg_sys::pg_logical_emit_message_bytea, &arguments);
        if let Some(place) = place {
            pg_sys::XLogFlush(place.value() as u64);
        }
    }
}

impl NameChanges {
    fn complete(&self) {
        self.named.iter().for_each(|file| remove(&file.replaced_path));
        self.removed.iter().for_each(|(_, hidden_path)| remove(hidden_path));
    }

    fn undo(&self) {
        for (path, hidden_path) in &self.removed {
            match rename_to_new(hidden_path, path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => warn("restore", path, &error),
                _ => {}
            }
        }
        // The last file first: it may have replaced one before it.
        self.named.iter().rev().for_each(NamedFile::undo);
    }
}

impl NamedFile {
    fn undo(&self) {
        remove(&self.provisional_path);
        let has_its_name = identity(&self.path).is_ok_and(|found| found == self.identity);
        match (has_its_name, fs::exists(&self.replaced_path).unwrap_or(false)) {
            (true, true) => {
                if let Err(error) = fs::rename(&self.replaced_path, &self.path) {
                    warn("restore", &self.path, &error);
                }
            }
            (true, false) => remove(&self.path),
            // It is another link to what has the name.
            (false, _) => remove(&self.replaced_path),
        }
    }
}

/// Undoes or completes what transactions of sessions that are gone have begun. Looks once a session.
pub fn recover() {
    // SAFETY: asks for the state of the server.
    if HAS_LOOKED.get() || unsafe { pg_sys::RecoveryInProgress() } {
        return;
    }
    HAS_LOOKED.set(true);
    if let Err(error) = recover_all()
        && error.kind() != io::ErrorKind::NotFound
    {
        let reason = system_reason(&error);
        warning!("{}", to_message(format!("could not read records of writes in \"{FOLDER}\": {reason}")));
    }
}

fn recover_all() -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    // One that begins with a point is of a transaction that has changed no name.
    let is_record = |name: &str| name.ends_with(".json") && !name.starts_with('.');
    entries.retain(|entry| entry.file_name().to_str().is_some_and(is_record));
    if entries.is_empty() {
        return Ok(());
    }
    let lock = File::create(folder.join(LOCK))?;
    lock.lock()?;
    for entry in entries {
        match recover_one(&entry.path()) {
            // Its session, or another one, has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

fn recover_one(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let metadata = file.metadata()?;
    if identity(path)? != (metadata.dev(), metadata.ino()) {
        return Ok(());
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let contents = serde_json::from_slice::<Contents>(&text);
    match contents {
        Ok(contents) if contents.identity == (metadata.dev(), metadata.ino()) => {
            match status(contents.transaction).as_deref() {
                Some("committed") => contents.changes.complete(),
                Some("aborted") => contents.changes.undo(),
                _ => {
                    let message = format!(
                        "the record \"{}\" is of a transaction that is not known: files whose names begin with a point may be left over",
                        path.display()
                    );
                    warning!("{}", to_message(message));
                }
            }
            sync_folders(&contents.changes);
        }
        _ => {}
    }
    fs::remove_file(path)
}

/// Has changed names outlive a crash of the host.
fn sync_folders(changes: &NameChanges) {
    let named = changes.named.iter().map(|file| &file.path);
    let removed = changes.removed.iter().map(|(path, _)| path);
    for folder in named.chain(removed).filter_map(|path| path.parent()) {
        // A folder that is gone has no names.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// Whether a transaction is `committed`, `aborted` or `in progress`; `None` of one that is so old that this is forgotten, or to come.
fn status(transaction: u64) -> Option<String> {
    PgTryBuilder::new(|| {
        // SAFETY: the function's one argument is such a number, which is passed by value.
        unsafe {
            direct_function_call::<String>(pg_sys::pg_xact_status, &[Some(pg_sys::Datum::from(transaction))])
        }
    })
    .catch_others(|_| None)
    .execute()
}
