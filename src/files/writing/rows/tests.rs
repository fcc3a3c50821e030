use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray},
    datatypes::Int32Type,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use pystachio_engine::spill::Spilling;
use pystachio_plan::{DataType, SortedColumn, SpillRequest, StoreAccess, WrittenColumn};

use super::*;
use crate::file_memory::tests::CountedMemory;

const MEMORY_BYTES: u64 = 64 << 20;

struct Fixture {
    folder: tempfile::TempDir,
    memory: Arc<CountedMemory>,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), memory: Arc::new(CountedMemory::new(MEMORY_BYTES)) }
    }

    fn means(&self) -> RowMeans {
        let catalog = Arc::new(FileCatalog::new(self.memory.clone(), MEMORY_BYTES));
        RowMeans {
            catalog,
            threads: 2,
            admission: Admission::new(self.memory.clone()),
            spill: Spilling::to(self.folder.path()).of_query(&SpillRequest::default()),
        }
    }

    fn request(&self, columns: &[(&str, DataType)]) -> WriteRequest {
        let column = |(name, data_type): &(&str, DataType)| WrittenColumn {
            name: (*name).to_owned(),
            data_type: data_type.clone(),
            is_json: false,
            is_utc: false,
            not_null: false,
        };
        WriteRequest {
            target: WriteTarget::Folder { path: self.path("t"), stem: "rows".to_owned() },
            columns: columns.iter().map(column).collect(),
            form: WriteForm::default(),
            process: std::process::id(),
            spill: SpillRequest::default(),
            access: StoreAccess::default(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("t")) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_from_iter_with_nullable([("k", column, true)]).unwrap()
}

fn one_column() -> Vec<(&'static str, DataType)> {
    vec![("k", DataType::Int64)]
}

#[tokio::test]
async fn files_are_left_to_the_client_or_removed() {
    let fixture = Fixture::new();
    for is_kept in [false, true] {
        let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
        writer.write(numbers(0..5)).await.unwrap();
        writer.write(numbers(5..7)).await.unwrap();
        let rows = writer.finish().await.unwrap();
        let [file] = &rows.files[..] else { panic!("one file") };
        assert_eq!((file.row_count, file.path.clone()), (7, fixture.path("t/rows-0.parquet")));
        assert_eq!(rows.made_folders, [fixture.path("t")]);
        let reader = SerializedFileReader::new(File::open(&file.provisional_path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 7);
        assert_eq!(file.bytes, fs::metadata(&file.provisional_path).unwrap().len());
        match is_kept {
            true => writer.keep(),
            false => drop(writer),
        }
        assert_eq!(fixture.names().len(), usize::from(is_kept));
        assert!(fixture.names().iter().all(|name| name.starts_with('.')));
        assert_eq!(fixture.memory.left(), MEMORY_BYTES);
    }
}

#[tokio::test]
async fn spill_files_are_counted_and_go_with_the_writer() {
    let fixture = Fixture::new();
    let request = WriteRequest { target: WriteTarget::Spill, ..fixture.request(&one_column()) };
    let spilling = Spilling::to(fixture.folder.path());
    let limit = |bytes_max| spilling.of_query(&SpillRequest { directory: None, bytes_max });
    let means = RowMeans { spill: limit(None), ..fixture.means() };
    let mut writer = begin_write(request.clone(), means).await.unwrap();
    writer.write(numbers(0..5)).await.unwrap();
    let rows = writer.finish().await.unwrap();
    let [file] = &rows.files[..] else { panic!("one file") };
    assert_eq!(file.row_count, 5);
    assert!(Path::new(&file.provisional_path).starts_with(fixture.folder.path()));
    assert!(spilling.used_bytes() > 0);
    drop(writer);
    assert_eq!(spilling.used_bytes(), 0);
    assert_eq!(fs::read_dir(fixture.folder.path()).unwrap().count(), 0);
    // No rows, no file.
    let mut writer = begin_write(request.clone(), fixture.means()).await.unwrap();
    assert!(writer.finish().await.unwrap().files.is_empty());
    // A limit.
    let means = RowMeans { spill: limit(Some(1000)), ..fixture.means() };
    let mut writer = begin_write(request, means).await.unwrap();
    writer.write(numbers(0..10_000)).await.unwrap();
    let error = writer.finish().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SpillLimit, "{error:?}");
}

#[tokio::test]
async fn a_client_that_goes_leaves_nothing() {
    let fixture = Fixture::new();
    let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    writer.write(numbers(0..5)).await.unwrap();
    assert_eq!(fixture.names().len(), 1);
    drop(writer);
    // The thread that writes ends with its batch.
    while fixture.memory.left() != MEMORY_BYTES {
        tokio::task::yield_now().await;
    }
    while Path::new(&fixture.path("t")).exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_rows_make_no_file_in_a_folder() {
    let fixture = Fixture::new();
    let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    assert_eq!(writer.finish().await.unwrap().files, []);
    writer.keep();
    assert_eq!(fixture.names(), [""; 0]);
}

#[tokio::test]
async fn files_of_processes_that_are_gone_are_removed() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("t")).unwrap();
    let own = std::process::id();
    // No process has a number beyond the kernel's limit.
    for name in [
        ".rows-0.parquet.4194305-1",
        &format!(".rows-1.parquet.{own}-1"),
        ".other.4194305-1",
        ".rows.parquet",
    ] {
        fs::write(fixture.path(&format!("t/{name}")), "").unwrap();
    }
    let writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    drop(writer);
    assert_eq!(
        fixture.names(),
        [".other.4194305-1".to_owned(), format!(".rows-1.parquet.{own}-1"), ".rows.parquet".to_owned()]
    );
}

#[tokio::test]
async fn row_groups_end_where_memory_does() {
    let fixture = Fixture::new();
    let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    for batch in 0..20 {
        writer.write(numbers(batch * 100_000..(batch + 1) * 100_000)).await.unwrap();
    }
    let rows = writer.finish().await.unwrap();
    let reader = SerializedFileReader::new(File::open(&rows.files[0].provisional_path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows());
    let (count, sum) = groups.fold((0, 0), |(count, sum), rows| (count + 1, sum + rows));
    // A row of this column takes more than 4 bytes, of the 4 MB that a sixteenth of the memory is.
    assert!(count > 1, "{count} row groups");
    assert_eq!(sum, 2_000_000);
}

#[tokio::test]
async fn footers_say_how_rows_are_sorted() {
    let fixture = Fixture::new();
    let list = DataType::List(Box::new(DataType::Int32));
    let mut request = fixture.request(&[("a", list), ("k", DataType::Int64), ("t", DataType::Text)]);
    let sorted = |name: &str, descending: bool| SortedColumn {
        name: name.to_owned(),
        descending,
        nulls_first: descending,
    };
    request.form.sort_by = vec![sorted("t", true), sorted("k", false)];
    let mut writer = begin_write(request.clone(), fixture.means()).await.unwrap();
    let columns: [ArrayRef; 3] = [
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])])),
        Arc::new(Int64Array::from(vec![1])),
        Arc::new(StringArray::from(vec!["x"])),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        ["a", "k", "t"].into_iter().zip(columns).map(|(name, column)| (name, column, true)),
    );
    writer.write(batch.unwrap()).await.unwrap();
    let rows = writer.finish().await.unwrap();
    let reader = SerializedFileReader::new(File::open(&rows.files[0].provisional_path).unwrap()).unwrap();
    let found = reader.metadata().row_group(0).sorting_columns().unwrap().iter();
    let found: Vec<_> =
        found.map(|column| (column.column_idx, column.descending, column.nulls_first)).collect();
    assert_eq!(found, [(2, true, true), (1, false, false)]);

    let places = |names: &[&str], partition_by: &[&str]| {
        let mut form = WriteForm {
            partition_by: partition_by.iter().map(|name| (*name).to_owned()).collect(),
            ..WriteForm::default()
        };
        form.sort_by = names.iter().map(|name| sorted(name, false)).collect();
        sort_places(&request.columns, &form)
            .map(|places| places.into_iter().map(|(place, _)| place).collect::<Vec<_>>())
    };
    assert_eq!(places(&["k"], &["t"]).unwrap(), [2, 1]);
    assert_eq!(places(&["t", "k"], &["t"]).unwrap(), [2, 1]);
    assert_eq!(places(&[], &["t"]).unwrap(), [0; 0]);
    assert_eq!(places(&["k", "k"], &[]).unwrap_err().kind, ErrorKind::InvalidArgument);
    assert_eq!(places(&["missing"], &[]).unwrap_err().kind, ErrorKind::InvalidArgument);
    assert_eq!(places(&["a"], &[]).unwrap_err().kind, ErrorKind::NotSupported);
}

#[tokio::test]
async fn memory_that_is_short_is_an_error() {
    let fixture = Fixture::new();
    let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    fixture.memory.set_left(0);
    writer.write(numbers(0..1_000_000)).await.unwrap();
    assert_eq!(writer.finish().await.unwrap_err().kind, ErrorKind::OutOfMemory);
    assert_eq!(fixture.names(), [""; 0]);
}

#[tokio::test]
async fn rows_of_other_columns_are_refused() {
    let fixture = Fixture::new();
    let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    writer.write(RecordBatch::try_from_iter_with_nullable([("k", text, true)]).unwrap()).await.unwrap();
    assert_eq!(writer.finish().await.unwrap_err().kind, ErrorKind::Protocol);
}

#[tokio::test]
async fn a_folder_keeps_its_columns() {
    let fixture = Fixture::new();
    let mut writer = begin_write(fixture.request(&one_column()), fixture.means()).await.unwrap();
    writer.write(numbers(0..5)).await.unwrap();
    let rows = writer.finish().await.unwrap();
    writer.keep();
    fs::rename(&rows.files[0].provisional_path, &rows.files[0].path).unwrap();
    let error = begin_write(fixture.request(&[("k", DataType::Int32)]), fixture.means()).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::SchemaMismatch);
    assert!(error.message.contains("is INT64, and would be written as INT32"), "{error}");
    // Files may lack columns that are not required, and names differ in case.
    for name in ["K", "l"] {
        let mut request = fixture.request(&[(name, DataType::Int64)]);
        request.target = WriteTarget::Folder { path: fixture.path("t"), stem: "more".to_owned() };
        assert!(begin_write(request, fixture.means()).await.is_ok(), "{name}");
    }
}
