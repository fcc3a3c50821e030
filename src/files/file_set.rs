//! Which files a table has, and which rank's they are.
//!
//! ```text
//! /nvme{rank}/t     of two ranks     /nvme0/t  its files are rank 0's      /nvme1/t  rank 1's
//! /shared/t                          /shared/t  its files belong to no rank: every rank sees them
//! ```

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use pystachio_plan::{Error, ErrorKind, FileSet, RANK_PLACEHOLDER, Result, check_not_of_other_format};

use crate::error::from_io;

/// Folders below a folder of the file set are followed to this depth.
const FOLDER_DEPTH_MAX: usize = 32;

/// A file of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Absolute.
    pub path: PathBuf,
    /// The rank whose own it is; absent where every rank sees it.
    pub rank: Option<u16>,
}

/// The files of a set on a host of so many ranks, in the order in which they are read: as listed, rank after rank, and sorted
/// within a folder or pattern. A folder stands for every `*.parquet` below it; names that start with `.` or `_` are skipped.
/// A file that is named by itself may be one of another format's table. Blocks.
///
/// # Errors
///
/// `FileNotFound` for a path that matches nothing, of any rank, `FilePermission`, `InvalidArgument`; `NotSupported` for a
/// folder or a pattern of files in a table of another format.
pub fn expand(files: &FileSet, rank_count: u16) -> Result<Vec<FoundFile>> {
    let mut found = Vec::new();
    for path in &files.paths {
        if !path.contains(RANK_PLACEHOLDER) {
            let shared = expand_path(path)?.into_iter();
            found.extend(shared.map(|path| FoundFile { path, rank: None }));
            continue;
        }
        for rank in 0..rank_count {
            let own = expand_path(&path.replace(RANK_PLACEHOLDER, &rank.to_string()));
            let own = own.map_err(|error| of_rank(error, path, rank_count))?.into_iter();
            found.extend(own.map(|path| FoundFile { path, rank: Some(rank) }));
        }
    }
    Ok(found)
}

/// What is wrong with the files of one of several ranks.
fn of_rank(error: Error, path: &str, rank_count: u16) -> Error {
    if error.kind != ErrorKind::FileNotFound {
        return error;
    }
    let last = rank_count.saturating_sub(1);
    error.with_hint(format!(
        "\"{path}\" stands for files of every rank, 0 to {last}: the server's option \"ranks\" is {rank_count}."
    ))
}

fn expand_path(path: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            check_not_of_other_format(Path::new(path))?;
            expand_folder(Path::new(path), 0, &mut found)?;
        }
        Ok(_) => found.push(PathBuf::from(path)),
        Err(_) if path.contains(['*', '?', '[']) => expand_pattern(path, &mut found)?,
        Err(error) => return Err(from_io(Path::new(path), "read", &error)),
    }
    match found.is_empty() {
        true => Err(Error::new(ErrorKind::FileNotFound, format!("no Parquet file matches \"{path}\""))),
        false => Ok(found),
    }
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
            check_not_of_other_format(&path)?;
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
    let mut checked = HashSet::new();
    for path in paths {
        let path = path.map_err(|error| from_io(error.path(), "read", error.error()))?;
        let is_folder = path.is_dir();
        let folder = if is_folder { Some(path.as_path()) } else { path.parent() };
        if let Some(folder) = folder
            && checked.insert(folder.to_owned())
        {
            check_not_of_other_format(folder)?;
        }
        if is_folder {
            expand_folder(&path, 0, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        folder: &tempfile::TempDir,
        paths: &[&str],
        rank_count: u16,
    ) -> Result<Vec<(String, Option<u16>)>> {
        let root = folder.path().display().to_string();
        let paths = paths.iter().map(|path| format!("{root}{path}")).collect();
        let files = expand(&FileSet { paths }, rank_count)?.into_iter();
        let shown = |file: FoundFile| (file.path.display().to_string().replace(&root, ""), file.rank);
        Ok(files.map(shown).collect())
    }

    #[test]
    fn tables_of_other_formats_are_read_by_their_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["lake/t/a.parquet", "lake/t/day=1/b.parquet", "lake/t/_delta_log/0.json", "lake/u.parquet"]
        {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        for path in
            ["/lake", "/lake/t", "/lake/t/day=1", "/lake/t/*.parquet", "/lake/*/*/*.parquet", "/lake/t*"]
        {
            let error = found(&folder, &[path], 1).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotSupported, "{path}");
            assert!(error.message.contains("lake/t\" is a table of Delta Lake"), "{path}: {error}");
        }
        for path in ["/lake/t/a.parquet", "/lake/t/day=1/b.parquet", "/lake/u.parquet", "/lake/*.parquet"] {
            assert_eq!(found(&folder, &[path], 1).unwrap().len(), 1, "{path}");
        }
    }

    #[test]
    fn each_rank_has_the_files_that_are_there_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvme0/t/b.parquet", "nvme0/t/a.parquet", "nvme1/t/c.parquet", "shared.parquet"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let own = |name: &str, rank| (name.to_owned(), Some(rank));
        let of_two =
            [own("/nvme0/t/a.parquet", 0), own("/nvme0/t/b.parquet", 0), own("/nvme1/t/c.parquet", 1)];
        assert_eq!(found(&folder, &["/nvme{rank}/t"], 2).unwrap(), of_two);
        assert_eq!(found(&folder, &["/nvme{rank}/t/*.parquet"], 2).unwrap(), of_two);
        assert_eq!(found(&folder, &["/nvme{rank}/t"], 1).unwrap(), of_two[..2]);
        let shared = ("/shared.parquet".to_owned(), None);
        let both = found(&folder, &["/shared.parquet", "/nvme{rank}/t/c.parquet"], 1);
        assert!(both.unwrap_err().message.contains("/nvme0/t/c.parquet"));
        let both = found(&folder, &["/shared.parquet", "/nvme{rank}/t/[ac].parquet"], 2).unwrap();
        assert_eq!(both, [shared, of_two[0].clone(), of_two[2].clone()]);
        // A rank without files is told apart from a table without.
        let error = found(&folder, &["/nvme{rank}/t"], 3).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileNotFound);
        assert!(error.message.contains("nvme2/t"), "{error}");
        let hint = error.hint.unwrap();
        assert!(hint.contains("0 to 2") && hint.contains("\"ranks\" is 3"), "{hint}");
    }
}
