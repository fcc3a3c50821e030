//! The files of a transaction. Written files get their names when it commits, and are removed when
//! it aborts. Removed files go when it commits.
//!
//! ```text
//! noted ──► before the commit: renamed, the folder synced ──► commit: replaced files removed
//!   │                         │
//!   └──── abort: removed ◄────┴──── or, of a renamed one, what it replaced comes back
//!
//! removed ──► before the commit: hidden ──► commit: removed
//!                       └──── abort: it gets its name back
//! ```
//!
//! Objects of a store are completed when all files have their names. If that fails, or the
//! transaction aborts later, completed objects are removed if the store answers. An object that was
//! replaced does not come back, so objects that replace others come last.
//!
//! Removed objects can't be hidden. So they go after the commit record, while the table is still
//! locked. The transaction reaches the engine before that record. An object that can't be removed
//! afterwards causes a WARNING, and stays with its rows: no row is lost that was not deleted.
//!
//! A record on disk says what to do after a crash in between (`record.rs`).
//!
//! Invariants: no file is replaced unless its write allows it. At an abort nothing raises an ERROR.
#![expect(unsafe_code, reason = "registers callbacks of transactions")]

use std::{
    cell::RefCell,
    collections::BTreeSet,
    ffi::{CString, c_void},
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    Error, ErrorKind, FileSet, Request, Response, Result, StoreAccess, WrittenFile, WrittenRows, is_in_store,
    system_reason,
};

use super::record::{self, NameChanges, NamedFile, Record};
use crate::{
    client::{self, PooledConnection},
    error::{OrRaise, raise},
    pg::encoding::to_message,
    stores::{self, ServerUser},
};

/// Behind the provisional name of a file: the name of what it replaced, until the transaction ends.
const REPLACED_SUFFIX: &str = ".replaced";
/// The same of a file that was removed.
const REMOVED_SUFFIX: &str = ".removed";

thread_local! {
    static PENDING: RefCell<Pending> = const { RefCell::new(Pending::new()) };
}

/// What the transaction has written so far.
struct Pending {
    files: Vec<PendingFile>,
    removed: Vec<RemovedFile>,
    /// Folders that were made for them, innermost first, with the subtransaction.
    folders: Vec<(PathBuf, pg_sys::SubTransactionId)>,
    /// From before the first name changes.
    record: Option<Record>,
    /// Objects that engines have uploaded.
    held: Vec<HeldWrite>,
    /// Objects that are removed.
    objects: Vec<RemovedObjects>,
    /// Of the next entry of `held` or `objects`.
    order: u64,
}

/// Objects of one write, which the engine at the other end removes if it hears no more of them.
struct HeldWrite {
    connection: PooledConnection,
    /// Their paths, and their rows.
    files: Vec<(PathBuf, u64)>,
    /// Its place among these writes and removals.
    order: u64,
    overwrite: bool,
    is_complete: bool,
    subtransaction: pg_sys::SubTransactionId,
}

/// Objects that a statement removes: those that were there, and those that the transaction has written before.
struct RemovedObjects {
    server_oid: pg_sys::Oid,
    /// How the role that removes them reaches them.
    access: StoreAccess,
    paths: Vec<PathBuf>,
    order: u64,
    subtransaction: pg_sys::SubTransactionId,
    /// From before the commit.
    connection: Option<PooledConnection>,
}

struct PendingFile {
    path: PathBuf,
    provisional_path: PathBuf,
    overwrite: bool,
    row_count: u64,
    subtransaction: pg_sys::SubTransactionId,
    /// The subtransaction that has removed it.
    removed: Option<pg_sys::SubTransactionId>,
    state: FileState,
}

/// A file that was there before, and is removed.
struct RemovedFile {
    path: PathBuf,
    subtransaction: pg_sys::SubTransactionId,
    is_hidden: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileState {
    /// It has its provisional name.
    Provisional,
    /// It has its name. A file that it replaced has a name with [`REPLACED_SUFFIX`].
    Named { has_replaced: bool },
}

/// Registers the callbacks of transactions. Called once, when the library is loaded.
pub fn register_callbacks() {
    // SAFETY: both callbacks live as long as the process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(end_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(end_subtransaction), std::ptr::null_mut());
    }
}

/// Makes files those of the current subtransaction.
pub fn note(rows: WrittenRows) {
    // SAFETY: reads a number.
    let subtransaction = unsafe { pg_sys::GetCurrentSubTransactionId() };
    let files = rows.files.into_iter().map(|file: WrittenFile| PendingFile {
        path: file.path.into(),
        provisional_path: file.provisional_path.into(),
        overwrite: file.overwrite,
        row_count: file.row_count,
        subtransaction,
        removed: None,
        state: FileState::Provisional,
    });
    let folders = rows.made_folders.into_iter().map(|folder| (PathBuf::from(folder), subtransaction));
    PENDING.with_borrow_mut(|pending| {
        pending.files.extend(files);
        // Those below come later, and are removed first.
        pending.folders.splice(0..0, folders);
    });
}

/// Makes objects those of the current subtransaction.
pub fn hold(connection: PooledConnection, rows: WrittenRows) {
    // SAFETY: reads a number.
    let subtransaction = unsafe { pg_sys::GetCurrentSubTransactionId() };
    let overwrite = rows.files.iter().any(|file| file.overwrite);
    let files = rows.files.into_iter().map(|file| (file.path.into(), file.row_count)).collect();
    PENDING.with_borrow_mut(|pending| {
        let order = pending.next_order();
        let held = HeldWrite { connection, files, order, overwrite, is_complete: false, subtransaction };
        pending.held.push(held);
    });
}

/// The files below a folder that the transaction has written and not removed, and their rows.
pub fn own_files(folder: &Path) -> Vec<(PathBuf, u64)> {
    PENDING.with_borrow(|pending| {
        let own = pending.files.iter().filter(|file| file.removed.is_none());
        let files = own.map(|file| (&file.path, file.row_count));
        let objects = pending.held.iter().flat_map(|held| {
            let is_removed = |path: &PathBuf| {
                pending
                    .objects
                    .iter()
                    .any(|removal| removal.order > held.order && removal.paths.contains(path))
            };
            held.files.iter().filter(move |(path, _)| !is_removed(path)).map(|(path, rows)| (path, *rows))
        });
        let all = files.chain(objects).filter(|(path, _)| path.starts_with(folder));
        all.map(|(path, row_count)| (path.clone(), row_count)).collect()
    })
}

/// Has files of a folder go with the commit: those that are there, and those that the transaction has written.
///
/// # Errors
///
/// Those of reaching a store.
pub fn remove_at_commit(user: ServerUser, folder: &str, there: Vec<PathBuf>, own: &[PathBuf]) -> Result<()> {
    // SAFETY: reads a number.
    let subtransaction = unsafe { pg_sys::GetCurrentSubTransactionId() };
    if is_in_store(folder) {
        let paths: Vec<PathBuf> = there.into_iter().chain(own.iter().cloned()).collect();
        let set = FileSet::parquet(paths.iter().map(|path| path.display().to_string()).collect());
        let access = stores::access(user, [&set])?;
        PENDING.with_borrow_mut(|pending| {
            let order = pending.next_order();
            let server_oid = user.server_oid;
            let removal =
                RemovedObjects { server_oid, access, paths, order, subtransaction, connection: None };
            pending.objects.push(removal);
        });
        return Ok(());
    }
    PENDING.with_borrow_mut(|pending| {
        let own = pending.files.iter_mut().filter(|file| own.contains(&file.path));
        own.filter(|file| file.removed.is_none()).for_each(|file| file.removed = Some(subtransaction));
        for path in there {
            if !pending.removed.iter().any(|known| known.path == path) {
                pending.removed.push(RemovedFile { path, subtransaction, is_hidden: false });
            }
        }
    });
    Ok(())
}

/// Whether the transaction removes a file.
pub fn is_removed(path: &Path) -> bool {
    PENDING.with_borrow(|pending| {
        let is_of = |removal: &RemovedObjects| removal.paths.iter().any(|removed| removed == path);
        pending.removed.iter().any(|removed| removed.path == path) || pending.objects.iter().any(is_of)
    })
}

#[pg_guard]
unsafe extern "C-unwind" fn end_transaction(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT => {
            name_all().and_then(|()| reach_removed()).and_then(|()| complete_all()).or_raise();
        }
        pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => refuse_prepare(),
        pg_sys::XactEvent::XACT_EVENT_COMMIT => {
            let Pending { files, removed, record, held, objects, .. } =
                PENDING.with_borrow_mut(Pending::take_all);
            for file in files {
                match file.state {
                    FileState::Provisional => remove(&file.provisional_path),
                    FileState::Named { has_replaced: true } => remove(&file.replaced_path()),
                    FileState::Named { has_replaced: false } => {}
                }
            }
            removed.iter().filter(|file| file.is_hidden).for_each(|file| remove(&file.hidden_path()));
            record.into_iter().for_each(Record::remove);
            let written: Vec<(u64, Vec<(PathBuf, u64)>)> =
                held.iter().map(|held| (held.order, held.files.clone())).collect();
            held.into_iter().for_each(HeldWrite::keep);
            objects.into_iter().for_each(|removal| removal.remove(&written));
        }
        pg_sys::XactEvent::XACT_EVENT_ABORT => PENDING.with_borrow_mut(Pending::take_all).undo(),
        _ => {}
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    own: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _argument: *mut c_void,
) {
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => PENDING.with_borrow_mut(|pending| {
            let files = pending
                .files
                .iter_mut()
                .flat_map(|file| std::iter::once(&mut file.subtransaction).chain(&mut file.removed));
            let folders = pending.folders.iter_mut().map(|(_, subtransaction)| subtransaction);
            let held = pending.held.iter_mut().map(|held| &mut held.subtransaction);
            let removed = pending.removed.iter_mut().map(|file| &mut file.subtransaction);
            let objects = pending.objects.iter_mut().map(|removal| &mut removal.subtransaction);
            let all = files.chain(folders).chain(removed).chain(held).chain(objects);
            all.filter(|subtransaction| **subtransaction == own).for_each(|of| *of = parent);
        }),
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => {
            PENDING.with_borrow_mut(|pending| pending.take(own)).undo();
        }
        _ => {}
    }
}

fn refuse_prepare() {
    if PENDING.with_borrow(|pending| {
        !pending.files.is_empty()
            || !pending.removed.is_empty()
            || !pending.held.is_empty()
            || !pending.objects.is_empty()
    }) {
        raise(
            Error::new(
                ErrorKind::NotSupported,
                "cannot PREPARE a transaction that has written Parquet files",
            )
            .with_hint("COMMIT it, or write the files in a transaction of their own."),
        );
    }
}

/// Gives all files their names, so that they outlive a crash of the host.
fn name_all() -> Result<()> {
    PENDING.with_borrow_mut(|pending| {
        let changes = pending.changes()?;
        if changes.named.is_empty() && changes.removed.is_empty() {
            return Ok(());
        }
        let recorded = Record::write(changes);
        pending.record = recorded.map_err(|error| failed("record", Path::new("pystachio/writes"), &error))?;
        let Pending { files, removed, .. } = pending;
        files.iter_mut().filter(|file| file.removed.is_none()).try_for_each(PendingFile::name)?;
        // One that was removed may have been replaced by now.
        let is_named =
            |path: &Path| files.iter().any(|file| file.path == path && file.state != FileState::Provisional);
        removed.iter_mut().filter(|file| !is_named(&file.path)).try_for_each(RemovedFile::hide)?;
        let named =
            pending.files.iter().filter(|file| file.state != FileState::Provisional).map(|file| &file.path);
        let hidden = pending.removed.iter().filter(|file| file.is_hidden).map(|file| &file.path);
        let folders: BTreeSet<&Path> = named.chain(hidden).filter_map(|path| path.parent()).collect();
        let made = pending.folders.iter().filter_map(|(folder, _)| folder.parent());
        for folder in folders.into_iter().chain(made) {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|error| failed("sync folder", folder, &error))?;
        }
        Ok(())
    })
}

/// Has an engine at hand for each removal.
fn reach_removed() -> Result<()> {
    PENDING.with_borrow_mut(|pending| {
        pending.objects.iter_mut().try_for_each(|removal| {
            removal.connection = Some(client::acquire_checked(removal.server_oid)?);
            Ok(())
        })
    })
}

/// Makes all objects visible, those that replace others last.
fn complete_all() -> Result<()> {
    PENDING.with_borrow_mut(|pending| {
        pending.held.sort_by_key(|held| held.overwrite);
        pending.held.iter_mut().try_for_each(HeldWrite::complete)
    })
}

impl RemovedObjects {
    /// Removes the objects, but for those of the same names that were written later. Nothing raises an ERROR here: the transaction has
    /// committed.
    fn remove(mut self, written: &[(u64, Vec<(PathBuf, u64)>)]) {
        let is_written = |path: &PathBuf| {
            let later = written.iter().filter(|(order, _)| *order > self.order);
            later.flat_map(|(_, files)| files).any(|(written, _)| written == path)
        };
        let paths = self.paths.iter().filter(|path| !is_written(path));
        let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        let Some(mut connection) = self.connection.take().filter(|_| !paths.is_empty()) else { return };
        let (first, count) = (paths.first().cloned().unwrap_or_default(), paths.len());
        let access = std::mem::take(&mut self.access);
        let (failed_count, path, error) = match connection.ask(&Request::Remove { paths, access }) {
            Ok(Response::Removed(failed)) => {
                connection.give_back();
                let failed_count = failed.len();
                let Some((path, error)) = failed.into_iter().next() else { return };
                (failed_count, path, error)
            }
            Ok(other) => (count, first, client::unexpected(&other)),
            Err(error) => (count, first, error),
        };
        let message = format!("{failed_count} objects of deleted rows may still be there, as \"{path}\"");
        ereport!(
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_FDW_ERROR,
            to_message(message),
            to_message(format!("{}. Run the statement again.", error.message))
        );
    }
}

impl HeldWrite {
    fn complete(&mut self) -> Result<()> {
        self.connection.send(&Request::Complete)?;
        match self.connection.receive().and_then(|frame| client::message(&frame))? {
            Response::Completed => {
                self.is_complete = true;
                Ok(())
            }
            other => Err(client::unexpected(&other)),
        }
    }

    fn keep(mut self) {
        // An engine that does not hear this leaves them too.
        if self.connection.send(&Request::Keep).is_ok() {
            self.connection.give_back();
        }
    }

    fn undo(mut self) {
        if self.is_complete {
            // One that is gone removes nothing.
            let _ = self.connection.send(&Request::Undo);
        }
    }
}

impl Pending {
    const fn new() -> Self {
        Self {
            files: Vec::new(),
            removed: Vec::new(),
            folders: Vec::new(),
            record: None,
            held: Vec::new(),
            objects: Vec::new(),
            order: 0,
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn take_all(&mut self) -> Self {
        Self {
            objects: std::mem::take(&mut self.objects),
            order: self.order,
            files: std::mem::take(&mut self.files),
            removed: std::mem::take(&mut self.removed),
            folders: std::mem::take(&mut self.folders),
            record: self.record.take(),
            held: std::mem::take(&mut self.held),
        }
    }

    /// What a subtransaction has written.
    fn take(&mut self, own: pg_sys::SubTransactionId) -> Self {
        // What it has removed is there again.
        let of_own = self.files.iter_mut().filter(|file| file.removed == Some(own));
        of_own.for_each(|file| file.removed = None);
        Self {
            removed: self.removed.extract_if(.., |file| file.subtransaction == own).collect(),
            files: self.files.extract_if(.., |file| file.subtransaction == own).collect(),
            folders: self.folders.extract_if(.., |(_, subtransaction)| *subtransaction == own).collect(),
            record: None,
            objects: self.objects.extract_if(.., |removal| removal.subtransaction == own).collect(),
            order: self.order,
            held: self.held.extract_if(.., |held| held.subtransaction == own).collect(),
        }
    }

    /// Removes what was written.
    fn undo(self) {
        self.removed.iter().filter(|file| file.is_hidden).for_each(RemovedFile::show);
        // The last file first: it may have replaced one before it.
        for file in self.files.iter().rev() {
            match file.state {
                FileState::Provisional => remove(&file.provisional_path),
                FileState::Named { has_replaced: false } => remove(&file.path),
                FileState::Named { has_replaced: true } => {
                    if let Err(error) = fs::rename(file.replaced_path(), &file.path) {
                        warn("restore", &file.path, &error);
                    }
                }
            }
        }
        for (folder, _) in &self.folders {
            // Another session may have put a file there, which stays.
            let _ = fs::remove_dir(folder);
        }
        self.record.into_iter().for_each(Record::remove);
        self.held.into_iter().for_each(HeldWrite::undo);
    }

    /// What is to become of names.
    fn changes(&self) -> Result<NameChanges> {
        let mut changes = NameChanges::default();
        for file in self.files.iter().filter(|file| file.removed.is_none()) {
            let identity = record::identity(&file.provisional_path);
            changes.named.push(NamedFile {
                path: file.path.clone(),
                provisional_path: file.provisional_path.clone(),
                replaced_path: file.replaced_path(),
                identity: identity.map_err(|error| failed("write", &file.path, &error))?,
            });
        }
        let removed = self.removed.iter().map(|file| (file.path.clone(), file.hidden_path()));
        changes.removed = removed.collect();
        Ok(changes)
    }
}

impl PendingFile {
    fn replaced_path(&self) -> PathBuf {
        let mut path = self.provisional_path.clone().into_os_string();
        path.push(REPLACED_SUFFIX);
        path.into()
    }

    fn name(&mut self) -> Result<()> {
        if self.state != FileState::Provisional {
            return Ok(());
        }
        let mut has_replaced = false;
        if self.overwrite {
            match fs::hard_link(&self.path, self.replaced_path()) {
                Ok(()) => has_replaced = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("replace", &self.path, &error)),
            }
            fs::rename(&self.provisional_path, &self.path)
                .map_err(|error| failed("write", &self.path, &error))?;
        } else {
            rename_to_new(&self.provisional_path, &self.path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    let message = format!("file \"{}\" already exists", self.path.display());
                    Error::new(ErrorKind::InvalidArgument, message)
                        .with_detail("Another session has made it since this transaction wrote the rows.")
                        .with_hint(
                            "Write to another name, or run the transaction again with overwrite => true.",
                        )
                }
                _ => failed("write", &self.path, &error),
            })?;
        }
        self.state = FileState::Named { has_replaced };
        Ok(())
    }
}

impl RemovedFile {
    fn hidden_path(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{}{REMOVED_SUFFIX}", std::process::id()))
    }

    fn hide(&mut self) -> Result<()> {
        match fs::rename(&self.path, self.hidden_path()) {
            Ok(()) => self.is_hidden = true,
            // Another program has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &self.path, &error)),
        }
        Ok(())
    }

    fn show(&self) {
        if let Err(error) = fs::rename(self.hidden_path(), &self.path) {
            warn("restore", &self.path, &error);
        }
    }
}

/// Renames a file if no other has the name.
///
/// # Errors
///
/// `AlreadyExists`; those of the file system.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let (old, new) = (name(from)?, name(to)?);
    // SAFETY: two C strings.
    let result = unsafe {
        libc::renameat2(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), libc::RENAME_NOREPLACE)
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A file system that can't: a link fails where the name is taken.
        Some(libc::EINVAL | libc::ENOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        _ => Err(error),
    }
}

/// Removes a file, if it is there. A failure is a WARNING.
pub fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => warn("remove", path, &error),
        _ => {}
    }
}

/// Warns of what could not be done at the end of a transaction.
pub fn warn(action: &str, path: &Path, error: &io::Error) {
    let reason = system_reason(error);
    warning!("{}", to_message(format!("could not {action} \"{}\": {reason}", path.display())));
}

fn failed(action: &str, path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::FilePermission,
        _ => ErrorKind::FileAccess,
    };
    let reason = system_reason(error);
    let error = Error::new(kind, format!("could not {action} \"{}\": {reason}", path.display()));
    error.with_hint("Look at the folder, then run the transaction again: nothing of it was kept.")
}
