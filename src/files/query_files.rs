//! The files of one query.
//!
//! Invariants: all scans of a table in a query see the same files, and on all ranks that run it. A plan runs only over files for which it
//! holds.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{Error, ErrorKind, FileSet, PlannedFiles, Result, SeenFiles};

use crate::{
    describe::{describe_opened, opened_identity, opened_state},
    files::{FileCatalog, TableFile},
};

/// The files of a table are what they were when they were opened, for as long as the query runs.
#[derive(Debug, Default)]
struct Opened {
    files: HashMap<FileSet, OpenedTable>,
    /// What rank 0 reads, on another rank that knows of that.
    seen: Vec<SeenFiles>,
}

#[derive(Debug)]
struct OpenedTable {
    name: String,
    files: Vec<TableFile>,
}

/// Opens each table's files once.
#[derive(Debug)]
pub struct QueryFiles {
    catalog: Arc<FileCatalog>,
    planned: Vec<PlannedFiles>,
    /// Whose query it is.
    request: StopFlag,
    opened: Mutex<Opened>,
}

impl QueryFiles {
    /// The files of a query whose plan was made for `planned`.
    pub fn new(catalog: Arc<FileCatalog>, planned: Vec<PlannedFiles>) -> Self {
        Self { catalog, planned, request: StopFlag::default(), opened: Mutex::default() }
    }

    /// Notes in the account of `request` if files are others than those that the plan was made for.
    pub fn of(self, request: StopFlag) -> Self {
        Self { request, ..self }
    }

    /// What was opened, for other ranks.
    pub fn seen(&self) -> Vec<SeenFiles> {
        let opened = lock_whole(&self.opened);
        let seen = |(files, table): (&FileSet, &OpenedTable)| SeenFiles {
            files: files.clone(),
            state: opened_state(&table.files),
        };
        opened.files.iter().map(seen).collect()
    }

    /// Reads what rank 0 reads, and nothing else: what was opened already, and what will be.
    ///
    /// # Errors
    ///
    /// `FilesChanged`, naming the table, where other files were opened.
    pub fn read_as(&self, seen: Vec<SeenFiles>) -> Result<()> {
        let mut opened = lock_whole(&self.opened);
        opened.seen = seen;
        let mut tables = opened.files.iter();
        tables.try_for_each(|(files, table)| check_seen(&opened.seen, (&table.name, files), &table.files))
    }

    /// The files of a table, in the order in which they are read. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`FileCatalog::open_all`]; `FilesChanged`, naming the table, if the plan does not hold for them, or rank 0 reads others.
    pub fn open(&self, table: &str, files: &FileSet) -> Result<Vec<TableFile>> {
        let mut opened = lock_whole(&self.opened);
        if let Some(known) = opened.files.get(files) {
            return Ok(known.files.clone());
        }
        let found = self.catalog.open_all(files)?;
        check_seen(&opened.seen, (table, files), &found)?;
        self.check(table, files, &found)?;
        opened.files.insert(files.clone(), OpenedTable { name: table.to_owned(), files: found.clone() });
        Ok(found)
    }

    fn check(&self, table: &str, files: &FileSet, found: &[TableFile]) -> Result<()> {
        let Some(planned) = self.planned.iter().find(|planned| planned.files == *files) else {
            return Ok(());
        };
        if planned.identity == opened_identity(found) {
            return Ok(());
        }
        self.request.account().note_changed_files();
        match planned.hold(&describe_opened(&self.catalog, found)?) {
            true => Ok(()),
            false => Err(changed(table, "after the query was planned")),
        }
    }
}

/// Whether a table's files are those that rank 0 reads.
fn check_seen(seen: &[SeenFiles], (table, files): (&str, &FileSet), found: &[TableFile]) -> Result<()> {
    let seen = seen.iter().find(|seen| seen.files == *files);
    match seen.is_some_and(|seen| !seen.state.is_same(&opened_state(found))) {
        true => Err(changed(table, "while ranks opened them, or are other files on other hosts")),
        false => Ok(()),
    }
}

fn changed(table: &str, when: &str) -> Error {
    let message = format!("the files of foreign table \"{table}\" were changed {when}");
    Error::new(ErrorKind::FilesChanged, message).with_hint("Run the query again.")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::describe::{describe, identify};

    fn place(folder: &tempfile::TempDir, content: &str) -> FileSet {
        let path = folder.path().join("t.parquet");
        let data = Path::new("../../regress/data");
        fs::copy(data.join(content), &path).unwrap();
        FileSet { paths: vec![path.display().to_string()] }
    }

    fn planned(catalog: &FileCatalog, files: &FileSet, bounds: &[(&str, f64)]) -> Vec<PlannedFiles> {
        let identity = describe(catalog, files).unwrap().identity;
        assert_eq!(identify(catalog, files).unwrap(), identity);
        let bounds = bounds.iter().map(|(name, bound)| ((*name).to_owned(), *bound)).collect();
        vec![PlannedFiles { files: files.clone(), identity, bounds, scales: Vec::new() }]
    }

    #[test]
    fn a_query_sees_one_state_of_its_files() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), Arc::new(FileCatalog::default()));
        let files = place(&folder, "edge_int4.parquet");
        let query = QueryFiles::new(catalog, Vec::new());
        let first = query.open("t", &files).unwrap();
        fs::remove_file(&files.paths[0]).unwrap();
        place(&folder, "edge_date.parquet");
        let second = query.open("t", &files).unwrap();
        assert!(Arc::ptr_eq(&first[0].footer, &second[0].footer));
    }

    #[test]
    fn a_plan_does_not_run_over_files_that_show_other_digits() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), Arc::new(FileCatalog::default()));
        let files = place(&folder, "edge_numeric_15_2.parquet");
        let mut planned = planned(&catalog, &files, &[]);
        planned[0].scales.push(("v".to_owned(), 2));
        assert!(QueryFiles::new(catalog.clone(), planned.clone()).open("sales", &files).is_ok());
        for other in ["edge_numeric_5_0.parquet", "edge_int4.parquet", "edge_date.parquet"] {
            fs::remove_file(&files.paths[0]).unwrap();
            place(&folder, other);
            let error = QueryFiles::new(catalog.clone(), planned.clone()).open("sales", &files).unwrap_err();
            assert_eq!(error.kind, ErrorKind::FilesChanged, "{other}");
        }
    }

    #[test]
    fn a_plan_does_not_run_over_files_beyond_its_bounds() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), Arc::new(FileCatalog::default()));
        let files = place(&folder, "edge_int2.parquet");
        let narrow = planned(&catalog, &files, &[("id", 100.0), ("v", 40_000.0)]);
        let wide = planned(&catalog, &files, &[("id", 100.0), ("V", 3e9)]);
        fs::remove_file(&files.paths[0]).unwrap();
        place(&folder, "edge_int4.parquet");
        assert_ne!(identify(&catalog, &files).unwrap(), narrow[0].identity);
        assert!(QueryFiles::new(catalog.clone(), wide).open("t", &files).is_ok());
        let error = QueryFiles::new(catalog.clone(), narrow.clone()).open("sales", &files).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FilesChanged);
        assert!(error.message.contains("\"sales\""), "{}", error.message);
        // What is not there any more does not hold either.
        fs::remove_file(&files.paths[0]).unwrap();
        place(&folder, "edge_date.parquet");
        assert!(QueryFiles::new(catalog, narrow).open("sales", &files).is_err());
    }

    #[test]
    fn a_rank_reads_the_files_that_rank_0_reads_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let files = place(&folder, "t0.parquet");
        let first = QueryFiles::new(Arc::default(), Vec::new());
        first.open("t", &files).unwrap();
        let seen = first.seen();
        let open = |seen: &[SeenFiles]| {
            let [before, after] = [(); 2].map(|()| QueryFiles::new(Arc::default(), Vec::new()));
            before.open("t", &files).unwrap();
            after.read_as(seen.to_vec()).unwrap();
            let outcome = before.read_as(seen.to_vec());
            assert_eq!(after.open("t", &files).map(drop), outcome);
            outcome
        };
        assert_eq!(open(&seen), Ok(()));
        // As another machine sees a copy of it, which is another file there.
        let mut elsewhere = seen.clone();
        elsewhere[0].state.identity += 1;
        assert_eq!(open(&elsewhere).unwrap_err().kind, ErrorKind::FilesChanged);
        elsewhere[0].state.places += 1;
        assert_eq!(open(&elsewhere), Ok(()));
        // The same bytes in another file, and then other bytes.
        let path = Path::new(&files.paths[0]);
        fs::copy(path, folder.path().join("copy")).unwrap();
        fs::rename(folder.path().join("copy"), path).unwrap();
        assert_eq!(open(&seen).unwrap_err().kind, ErrorKind::FilesChanged);
        assert_eq!(open(&elsewhere), Ok(()));
        place(&folder, "t1.parquet");
        for seen in [seen, elsewhere] {
            let error = open(&seen).unwrap_err();
            assert_eq!(error.kind, ErrorKind::FilesChanged);
            assert!(error.message.contains("foreign table \"t\""), "{error}");
        }
    }
}
