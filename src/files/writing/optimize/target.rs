//! Where the files of a source go.
//!
//! Invariants: no target is a source, nor would the source's folder or pattern find it: a table over the
//! source must not have its rows twice.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use pystachio_plan::{Error, ErrorKind, OptimizeRequest, PATTERN_LETTERS, Result};

use crate::{FileVersion, TableFile};

const EXTENSION: &str = "parquet";

/// The path of every file's rewritten form, in order. Blocks.
///
/// # Errors
///
/// `InvalidArgument` if two files would have the same, or a target is part of the source.
pub(super) fn target_paths(request: &OptimizeRequest, files: &[TableFile]) -> Result<Vec<PathBuf>> {
    let (source, target) = (Path::new(&request.source), Path::new(&request.target));
    for path in [source, target] {
        if !path.is_absolute() {
            return Err(invalid(format!("\"{}\" is not an absolute path", path.display())));
        }
    }
    let paths = if source.is_file() && is_parquet(target) && !target.is_dir() {
        vec![target.to_owned()]
    } else {
        let base = base_folder(source);
        files.iter().map(|file| below(target, &base, &file.footer.path)).collect()
    };
    check_paths(source, target, files, &paths)?;
    Ok(paths)
}

/// The folder below which files keep their places: the source, or the last folder before its file or its
/// first wildcard.
fn base_folder(source: &Path) -> PathBuf {
    if source.is_dir() {
        return source.to_owned();
    }
    let is_plain = |part: &Path| source.exists() || !part.to_string_lossy().contains(PATTERN_LETTERS);
    let folders = source.ancestors().skip(1);
    folders.into_iter().find(|folder| is_plain(folder)).unwrap_or(Path::new("/")).to_owned()
}

fn below(target: &Path, base: &Path, file: &Path) -> PathBuf {
    let name = file.file_name().map(PathBuf::from).unwrap_or_default();
    let mut path = target.join(file.strip_prefix(base).unwrap_or(&name));
    if !is_parquet(&path) {
        // Otherwise a table over the folder would not find it.
        path.as_mut_os_string().push(format!(".{EXTENSION}"));
    }
    path
}

fn check_paths(source: &Path, target: &Path, files: &[TableFile], paths: &[PathBuf]) -> Result<()> {
    let hint = "Choose a target that is not part of the source.";
    if source.is_dir()
        && let (Some(source), Some(target)) = (source.canonicalize().ok(), canonical(target))
        && target.starts_with(&source)
    {
        return Err(invalid(format!(
            "target \"{}\" lies in the source \"{}\"",
            target.display(),
            source.display()
        ))
        .with_hint(hint));
    }
    let pattern = glob::Pattern::new(&source.to_string_lossy()).ok().filter(|_| !source.exists());
    let sources: HashSet<(u64, u64)> = files
        .iter()
        .filter_map(|file| match file.footer.identity.version {
            FileVersion::Local { device, inode, .. } => Some((device, inode)),
            FileVersion::Object(_) => None,
        })
        .collect();
    let mut seen = BTreeSet::new();
    for path in paths {
        let is_source =
            fs::metadata(path).is_ok_and(|existing| sources.contains(&(existing.dev(), existing.ino())));
        if is_source || pattern.as_ref().is_some_and(|pattern| pattern.matches_path(path)) {
            return Err(
                invalid(format!("target \"{}\" is part of the source", path.display())).with_hint(hint)
            );
        }
        if !seen.insert(path) {
            return Err(invalid(format!("two files of the source would become \"{}\"", path.display()))
                .with_hint("Optimize them one by one."));
        }
    }
    Ok(())
}

/// A path without links, as far as it exists.
fn canonical(path: &Path) -> Option<PathBuf> {
    let existing = path.ancestors().find(|folder| folder.exists())?;
    let rest = path.strip_prefix(existing).ok()?;
    Some(existing.canonicalize().ok()?.join(rest))
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
