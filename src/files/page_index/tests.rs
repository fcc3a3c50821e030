//! Rows that page indexes leave: of files that were written, and of indexes that can't be right.

#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them of one")]

use std::{os::unix::fs::FileExt, sync::Arc};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::{
    arrow::ArrowWriter,
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
};
use pystachio_plan::{ColumnContent, DataType, FileSet, Function, Value};

use super::*;
use crate::{
    FileCatalog,
    compact_protocol::{encode_signed, encode_structure, encode_structures},
};

const ROWS: i64 = 1000;

/// A sorted number; a text that is long, and NULL in rows 300 to 599; a number of pages of their own length.
fn table_file(settings: WriterPropertiesBuilder) -> (tempfile::TempDir, TableFile) {
    let text = |row: i64| (!(300..600).contains(&row)).then(|| format!("{row:04}{}", "é".repeat(100)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new((0..ROWS).collect::<Int64Array>())),
        ("b", Arc::new((0..ROWS).map(text).collect::<StringArray>())),
        ("c", Arc::new((0..ROWS).map(|row| (row % 7 > 0).then_some(-row)).collect::<Int64Array>())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    // Pages end with a batch of 10 rows: of `a` after 100 rows, of `b` and `c` when they have some bytes.
    let properties = settings
        .set_data_page_row_count_limit(100)
        .set_data_page_size_limit(600)
        .set_write_batch_size(10)
        .set_dictionary_enabled(false)
        .set_column_index_truncate_length(Some(16))
        .build();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let files = FileSet::parquet(vec![path.display().to_string()]);
    (folder, FileCatalog::default().open_all(&files).unwrap().remove(0))
}

fn columns() -> Vec<ScanColumn> {
    columns_of([("a", DataType::Int64), ("b", DataType::Text), ("c", DataType::Int64)])
}

/// Columns with numbers from 0 on.
pub(crate) fn columns_of<'a>(types: impl IntoIterator<Item = (&'a str, DataType)>) -> Vec<ScanColumn> {
    let column = |(number, (name, data_type)): (u32, (&str, DataType))| ScanColumn {
        id: ColumnId(number),
        name: name.to_owned(),
        data_type,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    };
    (0..).zip(types).map(column).collect()
}

fn left(file: &TableFile, conditions: &[Expression]) -> Option<Vec<Range<u32>>> {
    let place = IndexedRowGroup {
        file,
        row_group: 0,
        columns: &columns(),
        places: &[0, 1, 2].map(|column| ColumnPlace::Stored(column.into())),
    };
    rows_left(&place, conditions, &[])
}

fn integer(function: Function, column: u32, value: i64) -> Expression {
    let column = Expression::column(ColumnId(column), DataType::Int64);
    let value = Expression::literal(Value::Int(value), DataType::Int64);
    Expression::predicate(function, vec![column, value])
}

fn text(function: Function, value: &str) -> Expression {
    let column = Expression::column(ColumnId(1), DataType::Text);
    let value = Expression::literal(Value::Text(value.to_owned()), DataType::Text);
    Expression::predicate(function, vec![column, value])
}

fn contains(ranges: &Option<Vec<Range<u32>>>, row: u32) -> bool {
    ranges.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&row)))
}

fn row_count(ranges: &Option<Vec<Range<u32>>>) -> usize {
    ranges.as_ref().map_or(ROWS as usize, |ranges| ranges.iter().map(Range::len).sum())
}

#[test]
fn pages_without_a_row_that_can_match_are_ruled_out() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let (least, greatest) = (integer(Function::GreaterEqual, 0, 250), integer(Function::Less, 0, 420));
    let found = left(&file, &[least.clone(), greatest.clone()]);
    assert!((250..420).all(|row| contains(&found, row)));
    assert!(row_count(&found) < 400, "{found:?}");
    // One that is in no page, and one that is in all of them.
    assert_eq!(left(&file, &[integer(Function::Equal, 0, 5000)]), Some(Vec::new()));
    assert_eq!(left(&file, &[integer(Function::GreaterEqual, 0, 0)]), None);
    assert_eq!(left(&file, &[]), None);
    // Either end.
    let ends = Expression::predicate(
        Function::Or,
        vec![integer(Function::Less, 0, 5), integer(Function::Greater, 0, ROWS - 5)],
    );
    let found = left(&file, &[ends]);
    assert!(contains(&found, 0) && contains(&found, 999) && !contains(&found, 500), "{found:?}");
}

#[test]
fn pages_of_several_columns_need_not_begin_together() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let indexes = &file.footer.page_indexes;
    let columns = columns();
    let place = IndexedRowGroup {
        file: &file,
        row_group: 0,
        columns: &columns,
        places: &[0, 1, 2].map(|column| ColumnPlace::Stored(column.into())),
    };
    let ends = [0, 2].map(|column| indexes.bounds(&place, column).unwrap().ends.clone());
    assert_ne!(ends[0], ends[1]);
    // Rows 200 and more by the first column, up to 230 by the other.
    let found =
        left(&file, &[integer(Function::GreaterEqual, 0, 200), integer(Function::GreaterEqual, 2, -230)]);
    assert!((200..=230).all(|row| contains(&found, row)));
    let [by_first, by_other] =
        [integer(Function::GreaterEqual, 0, 200), integer(Function::GreaterEqual, 2, -230)]
            .map(|condition| left(&file, &[condition]));
    for row in 0..ROWS as u32 {
        assert_eq!(contains(&found, row), contains(&by_first, row) && contains(&by_other, row), "{row}");
    }
}

#[test]
fn rows_that_conditions_leave_are_those_of_all() {
    assert_eq!(intersection(&[0..10, 20..30, 40..50], &[5..22, 25..45]), [5..10, 20..22, 25..30, 40..45]);
    assert_eq!(intersection(&[0..10], &[10..20]), []);
    assert_eq!(intersection(&[], &[0..5]), []);
}

#[test]
fn pages_of_nulls_match_no_comparison() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let is_null =
        |function| Expression::predicate(function, vec![Expression::column(ColumnId(1), DataType::Text)]);
    let found = left(&file, &[is_null(Function::IsNull)]);
    assert!((300..600).all(|row| contains(&found, row)) && row_count(&found) < 500, "{found:?}");
    let found = left(&file, &[is_null(Function::IsNotNull)]);
    assert!((0..300).chain(600..1000).all(|row| contains(&found, row)));
    assert!(!contains(&found, 450), "{found:?}");
    assert!(!contains(&left(&file, &[text(Function::GreaterEqual, "")]), 450));
}

#[test]
fn bounds_of_text_that_were_cut_are_bounds() {
    let (_folder, file) = table_file(WriterProperties::builder());
    for row in [0, 17, 299, 600, 999] {
        let value = format!("{row:04}{}", "é".repeat(100));
        let found = left(&file, &[text(Function::Equal, &value)]);
        assert!(contains(&found, row), "{row} {found:?}");
        assert!(row_count(&found) < 200, "{row} {found:?}");
        // Greater than all of the row's page may be, and less.
        assert!(contains(&left(&file, &[text(Function::LessEqual, &value)]), row));
        assert!(contains(&left(&file, &[text(Function::GreaterEqual, &value)]), row));
    }
}

#[test]
fn files_without_indexes_are_read_whole() {
    for statistics in [EnabledStatistics::None, EnabledStatistics::Chunk] {
        let (_folder, file) = table_file(WriterProperties::builder().set_statistics_enabled(statistics));
        assert_eq!(left(&file, &[integer(Function::Equal, 0, 5000)]), None);
    }
    let (_folder, file) = table_file(WriterProperties::builder().set_offset_index_disabled(true));
    let locations = page_locations(&file, 0, 0);
    assert!(locations.is_none_or(|locations| locations.len() > 1));
}

#[test]
fn a_column_declared_as_another_type_is_not_ruled_out() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let mut columns = columns();
    columns[0].data_type = DataType::Date;
    let place = IndexedRowGroup {
        file: &file,
        row_group: 0,
        columns: &columns,
        places: &[0, 1, 2].map(|column| ColumnPlace::Stored(column.into())),
    };
    assert_eq!(left(&file, &[integer(Function::Equal, 0, 5000)]), Some(Vec::new()));
    assert_eq!(rows_left(&place, &[integer(Function::Equal, 0, 5000)], &[]), None);
}

#[test]
fn indexes_that_can_not_be_of_the_chunk_are_ignored() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let column = &columns()[0];
    let metadata = file.footer.metadata().row_group(0);
    let of = |change: &dyn Fn(&mut Vec<u64>, &mut ColumnIndex<'_>)| {
        let mut first_rows = vec![0, 400, 700];
        let value = 5i64.to_le_bytes();
        let mut index = ColumnIndex {
            null_pages: vec![false; 3],
            least: vec![&value; 3],
            greatest: vec![&value; 3],
            null_counts: Some(vec![0; 3]),
        };
        change(&mut first_rows, &mut index);
        let location = |first_row: &u64| PageLocation { offset: 4, page_bytes: 10, first_row: *first_row };
        let locations: Vec<PageLocation> = first_rows.iter().map(location).collect();
        with_statistics(&file.footer, metadata, column, 0, |part| PageBounds::of(&index, &locations, part))
            .flatten()
            .map(|bounds| bounds.ends)
    };
    assert_eq!(of(&|_, _| {}), Some(vec![400, 700, 1000]));
    assert_eq!(of(&|rows, _| rows[0] = 1), None);
    assert_eq!(of(&|rows, _| rows.clear()), None);
    assert_eq!(of(&|rows, _| rows.push(800)), None);
    assert_eq!(of(&|rows, _| rows[1] = 800), None);
    assert_eq!(of(&|rows, _| rows[2] = 1001), None);
    assert_eq!(of(&|_, index| index.null_pages.truncate(2)), None);
    assert_eq!(of(&|_, index| index.least.truncate(2)), None);
    assert_eq!(of(&|_, index| index.null_counts = Some(vec![0])), None);
    assert_eq!(of(&|_, index| index.null_counts = None), Some(vec![400, 700, 1000]));
}

#[test]
fn indexes_that_the_pages_contradict_are_ignored() {
    let condition = [integer(Function::Less, 0, 150)];
    // Of column `a`: the first rows, as they are, moved, and moved with the page behind.
    for (moved, is_used) in [(vec![], true), (vec![(1, 110)], false), (vec![(1, 133), (2, 233)], false)] {
        let (_folder, file) = table_file(WriterProperties::builder());
        let chunk = file.footer.metadata().row_group(0).column(0);
        let (offset, length) = (chunk.offset_index_offset().unwrap(), chunk.offset_index_length().unwrap());
        let bytes = index_bytes(&file, offset, length).unwrap();
        let mut fields = CompactWalk { rest: &bytes }.raw_fields(0).unwrap();
        let list = fields[0].bytes.to_vec();
        let mut pages: Vec<Vec<u8>> =
            CompactWalk { rest: &list }.raw_structures(0).unwrap().into_iter().map(<[u8]>::to_vec).collect();
        for (page, first_row) in moved {
            let own = pages[page].clone();
            let mut own = CompactWalk { rest: &own }.raw_fields(0).unwrap();
            own[2].bytes = encode_signed(first_row).into();
            pages[page] = encode_structure(&own);
        }
        fields[0].bytes = encode_structures(&pages).into();
        let written = encode_structure(&fields);
        // As long as before: rows from 64 on have two bytes.
        assert_eq!(written.len(), bytes.len());
        let target = std::fs::File::options().write(true).open(&file.footer.path).unwrap();
        target.write_all_at(&written, offset as u64).unwrap();
        let files = FileSet::parquet(vec![file.footer.path.display().to_string()]);
        let file = FileCatalog::default().open_all(&files).unwrap().remove(0);
        assert_eq!(page_locations(&file, 0, 0).is_some(), is_used);
        let found = left(&file, &condition);
        assert!((0..150).all(|row| contains(&found, row)), "{found:?}");
        assert_eq!(found.is_some(), is_used);
    }
}

#[test]
fn damaged_indexes_are_errors_or_other_indexes() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let chunk = file.footer.metadata().row_group(0).column(1);
    let offsets =
        index_bytes(&file, chunk.offset_index_offset().unwrap(), chunk.offset_index_length().unwrap())
            .unwrap();
    let bounds =
        index_bytes(&file, chunk.column_index_offset().unwrap(), chunk.column_index_length().unwrap())
            .unwrap();
    assert!(decode_locations(&offsets).unwrap().len() > 5);
    assert_eq!(decode_column_index(&bounds).unwrap().least.len(), decode_locations(&offsets).unwrap().len());
    for end in 0..offsets.len() {
        decode_locations(&offsets[..end]).unwrap_err();
    }
    for end in 0..bounds.len() {
        decode_column_index(&bounds[..end]).unwrap_err();
    }
    for (place, value) in (0..bounds.len()).flat_map(|place| [0, 0x7f, 0xff].map(|value| (place, value))) {
        let mut damaged = bounds.to_vec();
        damaged[place] = value;
        let _ = decode_column_index(&damaged);
        let _ = decode_locations(&damaged);
    }
}

#[test]
fn indexes_of_a_file_are_read_once() {
    let (_folder, file) = table_file(WriterProperties::builder());
    let condition = [integer(Function::Less, 0, 150)];
    let first = left(&file, &condition);
    assert!(contains(&first, 149) && row_count(&first) < 200, "{first:?}");
    let chunk = file.footer.metadata().row_group(0).column(0);
    let (offset, length) = (chunk.column_index_offset().unwrap(), chunk.column_index_length().unwrap());
    let written = std::fs::File::options().write(true).open(&file.footer.path).unwrap();
    written.write_all_at(&vec![0; length as usize], offset as u64).unwrap();
    assert_eq!(left(&file, &condition), first);
    let files = FileSet::parquet(vec![file.footer.path.display().to_string()]);
    let again = FileCatalog::default().open_all(&files).unwrap().remove(0);
    assert_eq!(left(&again, &condition), None);
}
