//! What is counted of files in an order and in none, and of damaged ones.

use std::{fs, path::PathBuf, sync::Arc};

use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use pystachio_plan::{ColumnId, DataType};

use super::*;
use crate::file_memory::tests::CountedMemory;

const ROW_GROUP_ROWS: usize = 1000;
const ROW_COUNT: usize = 12 * ROW_GROUP_ROWS;
/// Three rows in ten have it.
const HEAVY: i64 = 77;

/// A file of one column, in a folder of its own.
struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new(values: ArrayRef) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { path: folder.path().join("t.parquet"), _folder: folder };
        place.write(values, ROW_GROUP_ROWS);
        place
    }

    fn write(&self, values: ArrayRef, row_group_rows: usize) {
        let batch = RecordBatch::try_from_iter([("key", values)]).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(row_group_rows))
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let file = fs::File::create(&self.path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn files(&self) -> FileSet {
        FileSet::parquet(vec![self.path.display().to_string()])
    }

    fn values(&self, data_type: DataType) -> Vec<(Value, f64)> {
        self.values_with(&FileCatalog::default(), &column(data_type))
    }

    fn values_with(&self, catalog: &FileCatalog, column: &ScanColumn) -> Vec<(Value, f64)> {
        let values = sampled_values(catalog, &self.files(), column).unwrap();
        values.into_iter().map(|CommonValue { value, share }| (value, share)).collect()
    }
}

fn column(data_type: DataType) -> ScanColumn {
    ScanColumn {
        id: ColumnId(0),
        name: "KEY".to_owned(),
        data_type,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    }
}

/// A number for each row: three in ten are [`HEAVY`], one in ten is none, the others are the rows' own.
fn keys() -> impl Iterator<Item = Option<i64>> + Clone {
    (0..ROW_COUNT as i64).map(|row| match row % 10 {
        0..3 => Some(HEAVY),
        3 => None,
        _ => Some(1_000_000 + row),
    })
}

fn numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

#[track_caller]
fn assert_shares(found: &[(Value, f64)], expected: &[(Value, f64)]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((value, share), (expected_value, expected_share)) in found.iter().zip(expected) {
        assert_eq!(value, expected_value, "{found:?}");
        assert!((share - expected_share).abs() < 0.01, "{found:?}");
    }
}

#[test]
fn values_are_found_with_their_shares_in_every_type() {
    let with_nulls = |value| [(value, 0.3), (Value::Null, 0.1)];
    let place = Place::new(numbers(keys()));
    assert_shares(&place.values(DataType::Int64), &with_nulls(Value::Int(HEAVY)));
    let narrow = keys().map(|key| key.map(|key| key as i32));
    let narrow = Place::new(Arc::new(narrow.collect::<Int32Array>()));
    // Also where a table declares a wider one.
    assert_shares(&narrow.values(DataType::Int64), &with_nulls(Value::Int(HEAVY)));
    assert!(narrow.values(DataType::Text).is_empty());
    for precision in [9, 18, 30] {
        let decimals = keys().map(|key| key.map(i128::from)).collect::<Decimal128Array>();
        let decimals = Place::new(Arc::new(decimals.with_precision_and_scale(precision, 2).unwrap()));
        let found = decimals.values(DataType::Decimal { precision, scale: 2 });
        assert_shares(&found, &with_nulls(Value::Decimal(HEAVY.into())));
        assert!(decimals.values(DataType::Decimal { precision, scale: 3 }).is_empty());
    }
    let texts = keys()
        .enumerate()
        .map(|(row, key)| key.map(|key| format!("k{key}{}", if row % 2 == 0 { " " } else { "" })));
    let texts = Place::new(Arc::new(texts.collect::<StringArray>()));
    let heavy = |end: &str| Value::Text(format!("k{HEAVY}{end}"));
    let found = texts.values(DataType::Text);
    assert_shares(&found, &[(heavy(" "), 0.2), (heavy(""), 0.1), (Value::Null, 0.1)]);
    let trimmed = ScanColumn { trim_blanks: true, ..column(DataType::Text) };
    assert_shares(&texts.values_with(&FileCatalog::default(), &trimmed), &with_nulls(heavy("")));
    let long = keys().map(|key| key.map(|key| key.to_string().repeat(VALUE_BYTES_MAX)));
    let long = Place::new(Arc::new(long.collect::<StringArray>()));
    assert_shares(&long.values(DataType::Text), &[(Value::Null, 0.1)]);
}

#[test]
fn what_only_one_row_group_has_is_not_frequent() {
    // Each row group has two values.
    let in_order = (0..ROW_COUNT as i64).map(|row| Some(row / (ROW_GROUP_ROWS as i64 / 2)));
    let place = Place::new(numbers(in_order.clone()));
    assert!(place.values(DataType::Int64).is_empty());
    // What half of all rows have is frequent in any order.
    let half = in_order.enumerate().map(|(row, key)| if row * 2 < ROW_COUNT { Some(HEAVY) } else { key });
    let place = Place::new(numbers(half));
    assert_shares(&place.values(DataType::Int64), &[(Value::Int(HEAVY), 5.0 / 11.0)]);
    // Of one row group nothing is known.
    place.write(numbers(keys()), ROW_COUNT);
    assert!(place.values(DataType::Int64).is_empty());
    place.write(numbers(std::iter::empty()), ROW_GROUP_ROWS);
    assert!(place.values(DataType::Int64).is_empty());
}

#[test]
fn values_are_kept_until_the_files_are_others() {
    let (place, catalog) = (Place::new(numbers(keys())), FileCatalog::default());
    let numbers_column = column(DataType::Int64);
    let first = place.values_with(&catalog, &numbers_column);
    let known = SampledColumn {
        identity: opened_identity(&catalog.open_all(&place.files()).unwrap()),
        name: numbers_column.name.clone(),
        variant: ColumnVariant::of(&numbers_column),
    };
    assert_eq!(catalog.sampled.get(&known).map(|values| values.len()), Some(first.len()));
    assert_eq!(place.values_with(&catalog, &numbers_column), first);
    place.write(numbers(keys().map(|key| key.map(|key| key + 1))), ROW_GROUP_ROWS);
    let later = place.values_with(&catalog, &numbers_column);
    assert_shares(&later, &[(Value::Int(HEAVY + 1), 0.3), (Value::Null, 0.1)]);
    fs::remove_file(&place.path).unwrap();
    assert!(sampled_values(&catalog, &place.files(), &numbers_column).is_err());
}

#[test]
fn what_there_is_no_memory_for_is_not_counted_yet() {
    let (place, column) = (Place::new(numbers(keys())), column(DataType::Int64));
    let memory = Arc::new(CountedMemory::new(8 << 20));
    let catalog = FileCatalog::new(memory.clone(), u64::MAX);
    catalog.open_all(&place.files()).unwrap();
    let left = memory.left();
    memory.set_left(1 << 10);
    assert!(place.values_with(&catalog, &column).is_empty());
    assert_eq!(memory.left(), 1 << 10);
    memory.set_left(left);
    assert_shares(&place.values_with(&catalog, &column), &[(Value::Int(HEAVY), 0.3), (Value::Null, 0.1)]);
    assert_eq!(memory.left(), left);
}

#[test]
fn damaged_pages_say_nothing() {
    let place = Place::new(numbers(keys()));
    let whole = fs::read(&place.path).unwrap();
    let catalog = FileCatalog::default();
    let footer = catalog.open_all(&place.files()).unwrap().remove(0).footer;
    let row_groups = footer.metadata().row_groups();
    let chunks: Vec<_> = row_groups.iter().filter_map(|group| chunk_range(group.column(0))).collect();
    // Every byte of what is read, each in another row group: what is left is still right.
    for byte in 0..200 {
        let mut bytes = whole.clone();
        for (place, (start, _)) in chunks.iter().enumerate().take(chunks.len() / 2) {
            bytes[*start as usize + byte] ^= 1 << (place % 8);
        }
        fs::write(&place.path, &bytes).unwrap();
        let found = place.values(DataType::Int64);
        let heavy = found.iter().find(|(value, _)| *value == Value::Int(HEAVY));
        assert!(heavy.is_some_and(|(_, share)| (0.05..0.4).contains(share)), "byte {byte}: {found:?}");
    }
    for byte in 0..64 {
        let mut bytes = whole.clone();
        for (start, _) in &chunks {
            bytes[*start as usize + byte] = 0xff;
        }
        fs::write(&place.path, &bytes).unwrap();
        place.values(DataType::Int64);
    }
}
