//! Which files a table has.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pystachio_plan::{Error, ErrorKind, FileSet, Result};

use crate::error::from_io;

/// Folders below a folder of the file set are followed to this depth.
const FOLDER_DEPTH_MAX: usize = 32;

/// The files of a set, in the order in which they are read: as listed, and sorted within a folder or
/// pattern. A folder stands for every `*.parquet` below it; names that start with `.` or `_` are skipped.
/// Blocks.
///
/// # Errors
///
/// `FileNotFound` for a path that matches nothing, `FilePermission`, `InvalidArgument`.
pub fn expand(files: &FileSet) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in &files.paths {
        let before = found.len();
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => expand_folder(Path::new(path), 0, &mut found)?,
            Ok(_) => found.push(PathBuf::from(path)),
            Err(_) if path.contains(['*', '?', '[']) => expand_pattern(path, &mut found)?,
            Err(error) => return Err(from_io(Path::new(path), "read", &error)),
        }
        if found.len() == before {
            return Err(Error::new(ErrorKind::FileNotFound, format!("no Parquet file matches \"{path}\"")));
        }
    }
    Ok(found)
}

fn expand_folder(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("folder \"{}\" is nested more than {FOLDER_DEPTH_MAX} deep", folder.display()),
        ));
    }
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let mut paths: Vec<PathBuf> = entries
        .map_err(|error| from_io(folder, "read folder", &error))?
        .into_iter()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"_"))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    for path in paths {
        let metadata = fs::metadata(&path).map_err(|error| from_io(&path, "read", &error))?;
        if metadata.is_dir() {
            expand_folder(&path, depth + 1, found)?;
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
            found.push(path);
        }
    }
    Ok(())
}

fn expand_pattern(pattern: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let paths = glob::glob(pattern).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, format!("path pattern \"{pattern}\" is not valid: {error}"))
    })?;
    for path in paths {
        let path = path.map_err(|error| from_io(error.path(), "read", error.error()))?;
        if path.is_dir() {
            expand_folder(&path, 0, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}
