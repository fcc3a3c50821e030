//! Which files a table has, and which rank's they are.
//!
//! ```text
//! /nvme{rank}/t     of two ranks     /nvme0/t  its files are rank 0's      /nvme1/t  rank 1's
//! /shared/t                          /shared/t  its files belong to no rank: every rank sees them
//! ```

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use pystachio_plan::{
    Error, ErrorKind, FileSet, PATTERN_LETTERS, RANK_PLACEHOLDER, Result, check_folder,
    check_not_of_other_format, is_in_store, marks_table,
};

use crate::{
    encryption::RoleKeys,
    error::from_io,
    files::FileIdentity,
    listings::{Listings, is_hidden},
    stores::FoundObject,
    table_files::FileOfTable,
};

/// Folders below a folder of the file set are followed to this depth.
const FOLDER_DEPTH_MAX: usize = 32;

/// A file of a set.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// Absolute, or the URL of an object.
    pub path: PathBuf,
    /// The rank whose own it is; absent where every rank sees it.
    pub rank: Option<u16>,
    /// What the log of its table says of it.
    pub of_table: Option<FileOfTable>,
    /// The object, if it is one.
    pub object: Option<Arc<FoundObject>>,
    /// What the role that reads it may open it with, if it is encrypted.
    pub(crate) keys: Option<Arc<RoleKeys>>,
}

impl FoundFile {
    /// What makes it the same file with the same content, for the same keys. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`FileIdentity::at`].
    pub fn identity(&self) -> Result<FileIdentity> {
        let identity = match &self.object {
            Some(object) => object.identity,
            None => FileIdentity::at(&self.path)?,
        };
        Ok(self.seen(identity))
    }

    /// An identity of it with the keys of the role.
    pub(crate) fn seen(&self, identity: FileIdentity) -> FileIdentity {
        FileIdentity { keys: self.keys.as_ref().map(|keys| keys.digest).unwrap_or_default(), ..identity }
    }

    /// A file of this host.
    fn local(path: PathBuf, rank: Option<u16>) -> Self {
        Self { path, rank, of_table: None, object: None, keys: None }
    }
}

/// The objects of one path.
type FoundObjects = Vec<Arc<FoundObject>>;

/// The files of a set on a host of so many ranks, in the order in which they are read: as listed, rank after rank, and sorted
/// within a folder or pattern. A folder stands for every `*.parquet` below it; names that start with `.` or `_` are skipped.
/// A file that is named by itself may be one of another format's table. Rows that a backend sends have the files that are named. A path
/// that ends with `/` is a folder that may have no files, or not be there. `in_store` finds the objects of each path in a store. Blocks.
///
/// # Errors
///
/// `FileNotFound` for a path that matches nothing, of any rank, `FilePermission`, `InvalidArgument`; `NotSupported` for a
/// folder or a pattern of files in a table of another format.
pub(super) fn expand(
    listings: &Listings,
    files: &FileSet,
    rank_count: u16,
    in_store: &dyn Fn(&[&str]) -> Result<Vec<FoundObjects>>,
) -> Result<Vec<FoundFile>> {
    if files.is_sent() {
        return Ok(files.paths.iter().map(|path| FoundFile::local(PathBuf::from(path), None)).collect());
    }
    let mut found = Vec::new();
    let stored: Vec<&str> = files.paths.iter().map(String::as_str).filter(|path| is_in_store(path)).collect();
    let objects = if stored.is_empty() { Vec::new() } else { in_store(&stored)? };
    let mut objects = objects.into_iter();
    for path in &files.paths {
        if is_in_store(path) {
            let objects = objects.next().unwrap_or_default().into_iter();
            found.extend(objects.map(|object| FoundFile {
                path: object.path(),
                rank: None,
                of_table: None,
                object: Some(object),
                keys: None,
            }));
            continue;
        }
        if !path.contains(RANK_PLACEHOLDER) {
            let shared = expand_path(listings, path)?.into_iter();
            found.extend(shared.map(|path| FoundFile::local(path, None)));
            continue;
        }
        for rank in 0..rank_count {
            let own = expand_path(listings, &path.replace(RANK_PLACEHOLDER, &rank.to_string()));
            let own = own.map_err(|error| of_rank(error, path, rank_count))?.into_iter();
            found.extend(own.map(|path| FoundFile::local(path, Some(rank))));
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

fn expand_path(listings: &Listings, path: &str) -> Result<Vec<PathBuf>> {
    let (path, may_be_empty) = match path.strip_suffix('/') {
        Some(folder) if !folder.is_empty() => (folder, true),
        _ => (path, false),
    };
    let mut found = Vec::new();
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            check_not_of_other_format(Path::new(path))?;
            expand_folder(listings, Path::new(path), 0, &mut found)?;
        }
        Ok(_) => found.push(PathBuf::from(path)),
        Err(_) if path.contains(PATTERN_LETTERS) => expand_pattern(listings, path, &mut found)?,
        Err(error) if may_be_empty && error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(from_io(Path::new(path), "read", &error)),
    }
    match found.is_empty() && !may_be_empty {
        true => Err(Error::new(ErrorKind::FileNotFound, format!("no Parquet file matches \"{path}\""))),
        false => Ok(found),
    }
}

/// The Parquet files below a folder.
fn expand_folder(listings: &Listings, folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("folder \"{}\" is nested more than {FOLDER_DEPTH_MAX} deep", folder.display()),
        ));
    }
    let entries = listings.entries(folder)?;
    if entries.iter().any(|entry| marks_table(&entry.name)) {
        check_folder(folder)?;
    }
    for entry in entries.iter() {
        if is_hidden(&entry.name) {
            continue;
        }
        let path = folder.join(&entry.name);
        if entry.is_folder {
            expand_folder(listings, &path, depth + 1, found)?;
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
            found.push(path);
        }
    }
    Ok(())
}

fn expand_pattern(listings: &Listings, pattern: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let paths = glob::glob(pattern).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, format!("path pattern \"{pattern}\" is not valid: {error}"))
    })?;
    let mut checked = HashSet::new();
    for path in paths {
        let path = path.map_err(|error| from_io(error.path(), "read", error.error()))?;
        if hidden_count(&path) > hidden_count(Path::new(pattern)) {
            continue;
        }
        let is_folder = path.is_dir();
        let folder = if is_folder { Some(path.as_path()) } else { path.parent() };
        if let Some(folder) = folder
            && checked.insert(folder.to_owned())
        {
            check_not_of_other_format(folder)?;
        }
        if is_folder {
            expand_folder(listings, &path, 0, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// How many names of a path begin with `.` or `_`: marks of other programs, and not tables' files, unless a pattern names them.
fn hidden_count(path: &Path) -> usize {
    path.iter().filter(|name| is_hidden(name)).count()
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
        let files = expand(&Listings::default(), &FileSet::parquet(paths), rank_count, &|_| Ok(Vec::new()))?
            .into_iter();
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
    fn a_pattern_matches_names_that_begin_with_a_mark_only_if_it_has_the_mark() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["t/y=1/a.parquet", "t/y=2/m=1/b.parquet", "t/_SUCCESS", "t/y=1/.a.crc", "t/_temporary/c.parquet"]
        {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let paths = |pattern: &str| -> Vec<String> {
            found(&folder, &[pattern], 1).unwrap().into_iter().map(|(path, _)| path).collect()
        };
        let all = ["/t/y=1/a.parquet", "/t/y=2/m=1/b.parquet"];
        assert_eq!(paths("/t/*"), all);
        assert_eq!(paths("/t/**/*.parquet"), all);
        assert_eq!(paths("/t/y=1/*"), all[..1]);
        assert_eq!(paths("/t/_t*/*"), ["/t/_temporary/c.parquet"]);
    }

    #[test]
    fn a_folder_may_be_empty_where_its_path_says_so() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("t")).unwrap();
        for path in ["/t", "/t/*", "/none"] {
            assert_eq!(found(&folder, &[path], 1).unwrap_err().kind, ErrorKind::FileNotFound, "{path}");
        }
        for path in ["/t/", "/none/"] {
            assert_eq!(found(&folder, &[path], 1), Ok(Vec::new()), "{path}");
        }
        fs::write(folder.path().join("t/a.parquet"), "").unwrap();
        for path in ["/t/", "/t/a.parquet/"] {
            assert_eq!(found(&folder, &[path], 1), Ok(vec![("/t/a.parquet".to_owned(), None)]), "{path}");
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
