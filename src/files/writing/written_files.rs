//! Files that a run writes: all of them appear, or none.
//!
//! Invariants: files have provisional names until [`WrittenFiles::commit`]; a name that begins with a point is
//! no part of a table. What an uncommitted run wrote is removed when it is dropped, unless it was handed over
//! ([`WrittenFiles::keep`]).

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parquet::errors::ParquetError;
use pystachio_plan::{Error, ErrorKind, Result};

use crate::from_io;

/// Tells the provisional files of one process's runs apart.
static RUN_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The files of a run.
pub(crate) struct WrittenFiles {
    files: Vec<WrittenFile>,
    overwrite: bool,
    /// The end of all provisional names: the process that writes, and a number.
    run: String,
    committed: AtomicBool,
    /// Folders that the run made, innermost first.
    made_folders: Vec<PathBuf>,
}

struct WrittenFile {
    path: PathBuf,
    provisional_path: PathBuf,
}

impl WrittenFiles {
    /// Makes the folders of files that are to be, and removes what killed engines left of files of the names
    /// `known`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a file exists and may not be replaced; those of the file system.
    pub(crate) fn create(paths: Vec<PathBuf>, known: &BTreeSet<String>, overwrite: bool) -> Result<Self> {
        let mut written = Self::of_process(std::process::id(), overwrite);
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        for folder in folders {
            written.make_folder(folder)?;
            remove_abandoned(folder, |name| known.contains(name));
        }
        for path in paths {
            written.add(path)?;
        }
        Ok(written)
    }

    /// No files yet, of a process whose end makes them abandoned.
    pub(crate) fn of_process(process: u32, overwrite: bool) -> Self {
        let run = format!("{process}-{}", RUN_NUMBER.fetch_add(1, Ordering::Relaxed));
        Self {
            files: Vec::new(),
            overwrite,
            run,
            committed: AtomicBool::new(false),
            made_folders: Vec::new(),
        }
    }

    /// Makes a folder and those above it.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn make_folder(&mut self, folder: &Path) -> Result<()> {
        let made = make_folders(folder)?;
        // Those below come later, and are removed first.
        self.made_folders.splice(0..0, made);
        Ok(())
    }

    /// Adds a file, in a folder that exists, and returns its number.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it exists and may not be replaced; those of the file system.
    pub(crate) fn add(&mut self, path: PathBuf) -> Result<usize> {
        self.check_replaceable(&path)?;
        let provisional_path = path.with_file_name(format!(".{}.{}", file_name(&path), self.run));
        self.files.push(WrittenFile { path, provisional_path });
        Ok(self.files.len() - 1)
    }

    /// The name that a file has until then.
    pub(crate) fn provisional_path(&self, file: usize) -> &Path {
        &self.files[file].provisional_path
    }

    /// How many files there are.
    pub(crate) fn count(&self) -> usize {
        self.files.len()
    }

    /// Folders that the run made, innermost first.
    pub(crate) fn made_folders(&self) -> &[PathBuf] {
        &self.made_folders
    }

    /// Leaves the files to another process, under their provisional names.
    pub(crate) fn keep(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// The name that a file will have.
    pub(crate) fn path(&self, file: usize) -> &Path {
        &self.files[file].path
    }

    /// An empty file under its provisional name.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn create_file(&self, file: usize) -> Result<File> {
        let file = &self.files[file];
        File::create_new(&file.provisional_path).map_err(|error| from_io(&file.path, "write", &error))
    }

    /// Gives the files their names.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a file has appeared meanwhile and may not be replaced; those of the file system.
    /// Files that already had their names are removed then.
    pub(crate) fn commit(&self) -> Result<()> {
        for (done, file) in self.files.iter().enumerate() {
            let renamed = self.check_replaceable(&file.path).and_then(|()| {
                fs::rename(&file.provisional_path, &file.path)
                    .map_err(|error| from_io(&file.path, "write", &error))
            });
            if let Err(error) = renamed {
                self.files[..done].iter().for_each(|file| remove_file(&file.path));
                return Err(error);
            }
        }
        self.committed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn check_replaceable(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(from_io(path, "write", &error)),
            Ok(metadata) if !metadata.is_file() => {
                Err(invalid(format!("\"{}\" exists and is not a regular file", path.display())))
            }
            Ok(_) if self.overwrite => Ok(()),
            Ok(_) => Err(invalid(format!("file \"{}\" already exists", path.display()))
                .with_hint("Pass overwrite => true to replace it, or choose another name.")),
        }
    }
}

impl Drop for WrittenFiles {
    fn drop(&mut self) {
        if self.committed.load(Ordering::Relaxed) {
            return;
        }
        self.files.iter().for_each(|file| remove_file(&file.provisional_path));
        for folder in &self.made_folders {
            // Another program may have put a file there, which stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The error of writing a Parquet file.
pub(crate) fn write_failed(path: &Path, error: &ParquetError) -> Error {
    if let ParquetError::External(source) = error
        && let Some(source) = source.downcast_ref::<io::Error>()
    {
        return from_io(path, "write", source);
    }
    Error::new(ErrorKind::FileAccess, format!("could not write \"{}\": {error}", path.display()))
}

/// The last part of a path, or nothing.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Makes a folder and those above it; returns what was made, innermost first.
fn make_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let missing: Vec<PathBuf> =
        folder.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    if !missing.is_empty() {
        fs::create_dir_all(folder).map_err(|error| folder_failed(folder, &error))?;
    }
    if !folder.is_dir() {
        return Err(invalid(format!("\"{}\" is not a directory", folder.display())));
    }
    Ok(missing)
}

/// Removes provisional files of processes that were killed, of files that `is_known`.
pub(crate) fn remove_abandoned(folder: &Path, is_known: impl Fn(&str) -> bool) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| provisional_process(name, &is_known));
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            remove_file(&entry.path());
        }
    }
}

/// The process that writes the file, if this is the provisional name of a known one.
fn provisional_process(name: &str, is_known: impl Fn(&str) -> bool) -> Option<u32> {
    let (file, run) = name.strip_prefix('.')?.rsplit_once('.')?;
    let (process, number) = run.split_once('-')?;
    number.parse::<u64>().ok()?;
    is_known(file).then(|| process.parse().ok())?
}

fn folder_failed(folder: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => {
            invalid(format!("directory \"{}\" can't be made: a file is in its place", folder.display()))
        }
        _ => from_io(folder, "make directory", error),
    }
}

fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "file can't be removed");
        }
        _ => {}
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
