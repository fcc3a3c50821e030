//! The files of one query.
//!
//! Invariants: all scans of a table in a query see the same files, and on all ranks that run it. A plan runs only over files for which it
//! holds.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{
    DescribeExtent, Error, ErrorKind, FileSet, FilesState, PlannedFiles, Result, SeenFiles,
};

use crate::{
    column_place::ScanConditions,
    describe::{Known, describe_found, files_state},
    file_set::FoundFile,
    files::{FileCatalog, FileIdentity, OpenedFiles, TableFile},
};

/// The files of a table are what they were when they were listed, for as long as the query runs.
#[derive(Debug, Default)]
struct Opened {
    listed: HashMap<FileSet, ListedTable>,
    /// By a digest of which of the listed files a scan reads.
    scanned: HashMap<(FileSet, u64), ScannedTable>,
    /// What rank 0 reads, on another rank that knows of that.
    seen: Vec<SeenFiles>,
}

/// All files of a table, of which some are open.
#[derive(Debug)]
struct ListedTable {
    found: Vec<FoundFile>,
    /// What files were when the plan was found to hold for them, by their places.
    known: HashMap<usize, FileIdentity>,
    open: HashMap<usize, TableFile>,
}

/// The files that scans read of a table.
#[derive(Debug)]
struct ScannedTable {
    name: String,
    files: OpenedFiles,
    state: FilesState,
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
        let seen = |((files, part), table): (&(FileSet, u64), &ScannedTable)| SeenFiles {
            files: files.clone(),
            part: *part,
            state: table.state,
        };
        opened.scanned.iter().map(seen).collect()
    }

    /// Reads what rank 0 reads, and nothing else: what was opened already, and what will be.
    ///
    /// # Errors
    ///
    /// `FilesChanged`, naming the table, where other files were opened.
    pub fn read_as(&self, seen: Vec<SeenFiles>) -> Result<()> {
        let mut opened = lock_whole(&self.opened);
        opened.seen = seen;
        opened.scanned.iter().try_for_each(|(key, table)| check_seen(&opened.seen, key, table))
    }

    /// The files of a table that a scan reads, in the order in which they are read. Of the others, which the scan's conditions
    /// rule out by the keys of folders, no footer is read. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`FileCatalog::open_left`]; `FilesChanged`, naming the table, if the plan does not hold for the table's files, or
    /// rank 0 reads others.
    pub fn open(&self, table: &str, files: &FileSet, conditions: &ScanConditions<'_>) -> Result<OpenedFiles> {
        let mut opened = lock_whole(&self.opened);
        let Opened { listed, scanned, seen } = &mut *opened;
        if !listed.contains_key(files) {
            let new = self.list(table, files)?;
            listed.insert(files.clone(), new);
        }
        let Some(known) = listed.get_mut(files) else {
            return Err(Error::internal("a table was not listed"));
        };
        let is_left = conditions.leave(table, known.found.iter())?;
        let left: Vec<usize> = (0..is_left.len()).filter(|place| is_left[*place]).collect();
        let mut hasher = DefaultHasher::new();
        left.iter().for_each(|place| known.found[*place].path.as_os_str().hash(&mut hasher));
        let key = (files.clone(), hasher.finish());
        if let Some(table) = scanned.get(&key) {
            return Ok(table.files.clone());
        }
        known.open_places(&self.catalog, table, &left)?;
        let files: Vec<TableFile> = left.iter().filter_map(|place| known.open.get(place).cloned()).collect();
        let state = files_state(&files);
        let files = OpenedFiles { left_out: known.found.len() - files.len(), files };
        let table = ScannedTable { name: table.to_owned(), files, state };
        check_seen(seen, &key, &table)?;
        let files = table.files.clone();
        scanned.insert(key, table);
        Ok(files)
    }

    /// The files of a table, for which the plan holds.
    fn list(&self, table: &str, files: &FileSet) -> Result<ListedTable> {
        let found = self.catalog.find(files)?;
        let Some(planned) = self.planned.iter().find(|planned| planned.files == *files) else {
            return Ok(ListedTable { found: found.files, known: HashMap::new(), open: HashMap::new() });
        };
        let mut known = Known::of(&found)?;
        if planned.identity != known.identity {
            self.request.account().note_changed_files();
            let description = describe_found(&self.catalog, &found, DescribeExtent::Some)?;
            if !planned.hold(&description) {
                return Err(changed(table, "after the query was planned"));
            }
            known = Known::of(&found)?;
            if description.identity != known.identity {
                return Err(changed(table, "while the query opened them"));
            }
        }
        let known = known.files.into_iter().collect();
        Ok(ListedTable { found: found.files, known, open: HashMap::new() })
    }
}

impl ListedTable {
    /// Opens some of the files, by their places, that are not open yet.
    fn open_places(&mut self, catalog: &FileCatalog, table: &str, places: &[usize]) -> Result<()> {
        let closed: Vec<usize> =
            places.iter().copied().filter(|place| !self.open.contains_key(place)).collect();
        let looked_at = |place: &usize| (&self.found[*place], self.known.get(place).copied());
        let opened = catalog.open_known(&closed.iter().map(looked_at).collect::<Vec<_>>())?;
        for (place, file) in closed.into_iter().zip(opened) {
            if self.known.get(&place).is_some_and(|known| !known.is_same_content(&file.footer.identity)) {
                return Err(changed(table, "while the query opened them"));
            }
            self.open.insert(place, file);
        }
        Ok(())
    }
}

/// Whether a table's files are those that rank 0 reads.
fn check_seen(seen: &[SeenFiles], (files, part): &(FileSet, u64), table: &ScannedTable) -> Result<()> {
    let mut of_table = seen.iter().filter(|seen| seen.files == *files).peekable();
    let is_same = of_table.peek().is_none()
        || of_table.any(|seen| seen.part == *part && seen.state.is_same(&table.state));
    match is_same {
        true => Ok(()),
        false => Err(changed(&table.name, "while ranks opened them, or are other files on other hosts")),
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
    use pystachio_plan::{
        ColumnContent, ColumnId, DataType, Expression, FileColumn, Function, Literal, ScanColumn, Value,
    };

    const ALL: ScanConditions<'_> = ScanConditions { columns: &[], filters: &[], parameters: &[] };

    fn place(folder: &tempfile::TempDir, content: &str) -> FileSet {
        let path = folder.path().join("t.parquet");
        let data = Path::new("../../regress/data");
        fs::copy(data.join(content), &path).unwrap();
        FileSet::parquet(vec![path.display().to_string()])
    }

    fn named(name: &str) -> FileColumn {
        FileColumn { name: name.to_owned(), field_id: None }
    }

    fn planned(catalog: &FileCatalog, files: &FileSet, bounds: &[(&str, f64)]) -> Vec<PlannedFiles> {
        let identity = describe(catalog, files, DescribeExtent::All).unwrap().identity;
        assert_eq!(identify(catalog, files).unwrap(), identity);
        let bounds = bounds.iter().map(|(name, bound)| (named(name), *bound)).collect();
        vec![PlannedFiles { files: files.clone(), identity, bounds, scales: Vec::new() }]
    }

    #[test]
    fn a_query_sees_one_state_of_its_files() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), Arc::new(FileCatalog::default()));
        let files = place(&folder, "edge_int4.parquet");
        let query = QueryFiles::new(catalog, Vec::new());
        let first = query.open("t", &files, &ALL).unwrap();
        fs::remove_file(&files.paths[0]).unwrap();
        place(&folder, "edge_date.parquet");
        let second = query.open("t", &files, &ALL).unwrap();
        assert!(Arc::ptr_eq(&first.files[0].footer, &second.files[0].footer));
    }

    #[test]
    fn files_in_folders_that_conditions_rule_out_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["k=1/a.parquet", "k=2/b.parquet", "k=__HIVE_DEFAULT_PARTITION__/c.parquet"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "junk").unwrap();
        }
        let good = folder.path().join("k=2/b.parquet");
        fs::remove_file(&good).unwrap();
        fs::copy("../../regress/data/edge_int4.parquet", &good).unwrap();
        let files = FileSet::parquet(vec![folder.path().display().to_string()]);
        let columns = [ScanColumn {
            id: ColumnId(7),
            name: "K".to_owned(),
            data_type: DataType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        }];
        let parameter = Expression::Parameter { index: 0, data_type: DataType::Int32 };
        let column = Expression::column(ColumnId(7), DataType::Int32);
        let filters = [Expression::predicate(Function::Equal, vec![column, parameter])];
        let open = |query: &QueryFiles, value: i64| {
            let parameters = [Literal::new(Value::Int(value), DataType::Int32)];
            let conditions = ScanConditions { columns: &columns, filters: &filters, parameters: &parameters };
            query.open("t", &files, &conditions)
        };
        let query = QueryFiles::new(Arc::default(), Vec::new());
        let opened = open(&query, 2).unwrap();
        assert_eq!((opened.files.len(), opened.left_out), (1, 2));
        assert_eq!(opened.files[0].footer.path, good);
        // Another scan of the query has other files of the same state of the table.
        let none = open(&query, 3).unwrap();
        assert_eq!((none.files.len(), none.left_out), (0, 3));
        assert!(Arc::ptr_eq(&open(&query, 2).unwrap().files[0].footer, &opened.files[0].footer));
        assert_eq!(open(&query, 1).unwrap_err().kind, ErrorKind::FileCorrupt);
        assert_eq!(query.open("t", &files, &ALL).unwrap_err().kind, ErrorKind::FileCorrupt);
        // A rank with the same parameters reads the same; one that would read others does not.
        let rank = QueryFiles::new(Arc::default(), Vec::new());
        rank.read_as(query.seen()).unwrap();
        assert_eq!(open(&rank, 2).unwrap().files.len(), 1);
        let other = QueryFiles::new(Arc::default(), Vec::new());
        let part_of_none: Vec<SeenFiles> =
            query.seen().into_iter().filter(|seen| seen.part != query.seen()[0].part).collect();
        other.read_as(part_of_none).unwrap();
        let outcomes = [2, 3].map(|value| open(&other, value).map_err(|error| error.kind).is_err());
        assert_eq!(outcomes.into_iter().filter(|failed| *failed).count(), 1);
    }

    #[test]
    fn a_plan_does_not_run_over_files_that_show_other_digits() {
        let (folder, catalog) = (tempfile::tempdir().unwrap(), Arc::new(FileCatalog::default()));
        let files = place(&folder, "edge_numeric_15_2.parquet");
        let mut planned = planned(&catalog, &files, &[]);
        planned[0].scales.push((named("v"), 2));
        assert!(QueryFiles::new(catalog.clone(), planned.clone()).open("sales", &files, &ALL).is_ok());
        for other in ["edge_numeric_5_0.parquet", "edge_int4.parquet", "edge_date.parquet"] {
            fs::remove_file(&files.paths[0]).unwrap();
            place(&folder, other);
            let error =
                QueryFiles::new(catalog.clone(), planned.clone()).open("sales", &files, &ALL).unwrap_err();
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
        assert!(QueryFiles::new(catalog.clone(), wide).open("t", &files, &ALL).is_ok());
        let error = QueryFiles::new(catalog.clone(), narrow.clone()).open("sales", &files, &ALL).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FilesChanged);
        assert!(error.message.contains("\"sales\""), "{}", error.message);
        // What is not there any more does not hold either.
        fs::remove_file(&files.paths[0]).unwrap();
        place(&folder, "edge_date.parquet");
        assert!(QueryFiles::new(catalog, narrow).open("sales", &files, &ALL).is_err());
    }

    #[test]
    fn a_rank_reads_the_files_that_rank_0_reads_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let files = place(&folder, "t0.parquet");
        let first = QueryFiles::new(Arc::default(), Vec::new());
        first.open("t", &files, &ALL).unwrap();
        let seen = first.seen();
        let open = |seen: &[SeenFiles]| {
            let [before, after] = [(); 2].map(|()| QueryFiles::new(Arc::default(), Vec::new()));
            before.open("t", &files, &ALL).unwrap();
            after.read_as(seen.to_vec()).unwrap();
            let outcome = before.read_as(seen.to_vec());
            assert_eq!(after.open("t", &files, &ALL).map(drop), outcome);
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
