//! TPC-H files as they are written, and what remains of runs that did not end well.

use std::{fs, path::Path};

use parquet::file::reader::{FileReader, SerializedFileReader};
use pystachio_plan::{DataType, DescribeExtent, FileSet, Value};

use super::*;
use crate::{FileCatalog, describe, file_memory::tests::CountedMemory, writing::layout::PAGES_MIN};

fn request(directory: &Path) -> GenerateRequest {
    GenerateRequest {
        directory: directory.display().to_string(),
        scale_factor: 0.01,
        tables: Vec::new(),
        overwrite: false,
        row_group_rows: 0,
        compression: "auto".into(),
        layout: FileLayout::Default,
    }
}

fn admission() -> Admission {
    Admission::new(Arc::new(CountedMemory::new(1 << 30)))
}

fn run(request: GenerateRequest) -> Result<Vec<(String, u64)>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(generate(request, 2, admission(), &|_| {}))
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn tables_have_the_rows_of_the_specification() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let rows = run(GenerateRequest { row_group_rows: 10_000, ..request(&path) }).unwrap();
    let expected = [
        ("customer", 1_500),
        ("lineitem", 60_175),
        ("nation", 25),
        ("orders", 15_000),
        ("part", 2_000),
        ("partsupp", 8_000),
        ("region", 5),
        ("supplier", 100),
    ];
    assert_eq!(rows, expected.map(|(table, rows)| (table.to_owned(), rows)));
    assert_eq!(entries(&path), 8);
    for (table, rows) in expected {
        let file = fs::File::open(path.join(format!("{table}.parquet"))).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let read = reader.get_row_iter(None).unwrap();
        let count = read.inspect(|row| assert!(row.is_ok(), "{table}")).count();
        assert_eq!(count as u64, rows, "{table}");
    }
}

#[test]
fn lineitem_is_described_as_the_specification_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let tables = vec!["lineitem".to_owned()];
    run(GenerateRequest { tables, row_group_rows: 20_000, ..request(directory.path()) }).unwrap();
    let files = FileSet::parquet(vec![directory.path().join("*.parquet").display().to_string()]);
    let table = describe(&FileCatalog::default(), &files, DescribeExtent::All).unwrap();
    assert_eq!(table.row_count, 60_175);
    assert_eq!(table.files[0].row_group_count, 3);
    let column = |name: &str| table.columns.iter().find(|column| column.name == name).unwrap();
    assert!(table.columns.iter().all(|column| column.required && column.null_count == Some(0)));
    assert_eq!(column("l_quantity").file_type, "INT64 Decimal(15,2)");
    assert_eq!(column("l_quantity").data_type, Some(DataType::Decimal { precision: 15, scale: 2 }));
    assert_eq!(column("l_quantity").minimum, Some(Value::Decimal(100)));
    assert_eq!(column("l_quantity").maximum, Some(Value::Decimal(5_000)));
    assert_eq!(column("l_orderkey").minimum, Some(Value::Int(1)));
    assert_eq!(column("l_orderkey").maximum, Some(Value::Int(60_000)));
    assert_eq!(column("l_returnflag").maximum, Some(Value::Text("R".into())));
    assert_eq!(column("l_shipdate").sql_type, "date");
}

#[test]
fn parts_of_a_table_do_not_depend_on_row_groups() {
    let directory = tempfile::tempdir().unwrap();
    let read = |name: &str, row_group_rows| {
        let path = directory.path().join(name);
        let tables = vec!["orders".to_owned()];
        run(GenerateRequest { tables, row_group_rows, ..request(&path) }).unwrap();
        let file = fs::File::open(path.join("orders.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let groups = reader.num_row_groups();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        (groups, rows)
    };
    let (one_group, whole) = read("whole", 0);
    let (groups, parts) = read("parts", 4_000);
    assert_eq!((one_group, groups), (1, 4));
    assert_eq!(whole, parts);
}

#[test]
fn the_layout_for_gpus_has_the_same_rows_in_many_pages() {
    let directory = tempfile::tempdir().unwrap();
    let tables = vec!["lineitem".to_owned(), "nation".to_owned()];
    let usual = GenerateRequest { scale_factor: 0.05, tables, ..request(&directory.path().join("usual")) };
    let path = directory.path().join("gpu");
    let directory_name = path.display().to_string();
    let gpu = GenerateRequest { layout: FileLayout::Gpu, directory: directory_name, ..usual.clone() };
    assert_eq!(run(gpu.clone()).unwrap(), run(usual.clone()).unwrap());
    let open = |folder: &Path, table: &str| {
        SerializedFileReader::new(fs::File::open(folder.join(table)).unwrap()).unwrap()
    };
    for table in ["lineitem.parquet", "nation.parquet"] {
        let rows = |folder: &Path| -> Vec<String> {
            let rows = open(folder, table).into_iter();
            rows.map(|row| row.unwrap().to_string()).collect()
        };
        assert!(rows(&path) == rows(Path::new(&usual.directory)), "{table}");
    }
    let reader = open(&path, "lineitem.parquet");
    assert_eq!(reader.num_row_groups(), 1);
    let group = reader.get_row_group(0).unwrap();
    let mut encodings = std::collections::BTreeSet::new();
    for column in 0..group.num_columns() {
        let pages = group.get_column_page_reader(column).unwrap();
        let data_pages = pages.map(|page| page.unwrap()).filter(|page| page.is_data_page());
        assert!(data_pages.count() as u64 >= PAGES_MIN);
        encodings.extend(group.metadata().column(column).encodings().map(|encoding| encoding.to_string()));
    }
    for encoding in ["DELTA_BINARY_PACKED", "RLE_DICTIONARY", "DELTA_LENGTH_BYTE_ARRAY"] {
        assert!(encodings.contains(encoding), "{encodings:?}");
    }
    // Not enough memory for one row group.
    let little = Admission::new(Arc::new(CountedMemory::new(1 << 20)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let refused = runtime.block_on(generate(GenerateRequest { overwrite: true, ..gpu }, 2, little, &|_| {}));
    assert_eq!(refused.unwrap_err().kind, ErrorKind::OutOfMemory);
}

#[test]
fn dropped_run_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/here");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (reported, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let request = GenerateRequest { scale_factor: 1.0, ..request(&path) };
        let progress = move |progress| reported.send(progress).unwrap();
        let generating = generate(request, 2, admission(), &progress);
        tokio::select! {
            _ = generating => panic!("the run was to be dropped"),
            report = reports.recv() => assert!(report.is_some()),
        }
    });
    // The runtime waits for the threads, which see that their receiver is gone.
    drop(runtime);
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn files_of_killed_engines_are_removed_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let abandoned = directory.path().join(".region.parquet.4294967295-0");
    let kept = [
        directory.path().join(format!(".region.parquet.{}-99999", std::process::id())),
        directory.path().join(".mine.parquet.4294967295-0"),
        directory.path().join(".region.parquet.backup"),
    ];
    for file in kept.iter().chain([&abandoned]) {
        fs::write(file, "x").unwrap();
    }
    run(GenerateRequest { tables: vec!["nation".to_owned()], ..request(directory.path()) }).unwrap();
    assert!(!abandoned.exists());
    assert!(kept.iter().all(|file| file.exists()));
}

#[test]
fn existing_files_are_replaced_only_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("region.parquet");
    fs::write(&target, "mine").unwrap();
    let tables = vec!["nation".to_owned(), "region".to_owned()];
    let request = GenerateRequest { tables, ..request(directory.path()) };
    let error = run(request.clone()).unwrap_err();
    assert!(error.message.contains("region.parquet") && error.hint.unwrap().contains("overwrite"));
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    assert_eq!(entries(directory.path()), 1);
    assert_eq!(run(GenerateRequest { overwrite: true, ..request }).unwrap()[1], ("region".to_owned(), 5));
    assert_eq!(entries(directory.path()), 2);
}

#[test]
fn requests_that_make_no_sense_say_what_would() {
    let directory = tempfile::tempdir().unwrap();
    let good = request(directory.path());
    let bad = [
        (GenerateRequest { directory: "here".into(), ..good.clone() }, "absolute"),
        (GenerateRequest { scale_factor: 0.0, ..good.clone() }, "0.001"),
        (GenerateRequest { scale_factor: f64::NAN, ..good.clone() }, "0.001"),
        (GenerateRequest { tables: vec!["line".into()], ..good.clone() }, "lineitem"),
        (GenerateRequest { compression: "gzip".into(), ..good.clone() }, "zstd"),
        (GenerateRequest { row_group_rows: 1, ..good.clone() }, "1024"),
    ];
    for (request, part) in bad {
        let error = run(request).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn a_file_in_the_place_of_the_directory_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(run(request(&file)).unwrap_err().kind, ErrorKind::InvalidArgument);
    assert_eq!(run(request(&file.join("below"))).unwrap_err().kind, ErrorKind::InvalidArgument);
}
