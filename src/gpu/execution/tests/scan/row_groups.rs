//! Scans that decode less than whole row groups.

use parquet::{
    basic::Compression, data_type::Int64Type, file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
use pystachio_plan::{Function, OperatorMetrics, ScanExtent, Value};

use super::*;

/// Rows of the table: some tiles of a selection, in one row group.
const ROWS: usize = 24_000;
/// Rows of a page, which differ from column to column: pages have so many, or what the writer's batches make of it.
const PAGE_ROWS: usize = 900;

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(5000)
        .set_dictionary_page_size_limit(4000)
        .set_write_batch_size(100)
        .set_compression(Compression::SNAPPY)
        .build()
}

fn table() -> Table {
    let shape = Shape { seed: 77, row_count: ROWS, key_count: 40, repeated_percent: 5, null_percent: 5 };
    Table::written(std::env::temp_dir(), shape.rows(), properties())
}

fn condition(function: Function, column: Expression, value: i64) -> Expression {
    let value = Expression::literal(Value::Int(value), DataType::Int64);
    Expression::predicate(function, vec![column, value])
}

/// The rows of a scan with these conditions, in order, and its cost.
fn scanned(
    fixture: &Fixture,
    table: &Table,
    conditions: &[Expression],
) -> (Vec<Vec<String>>, OperatorMetrics) {
    let answer = fixture.run(plan(table.filtered(0, conditions))).unwrap();
    let scan = answer.metrics.operators.iter().find(|operator| operator.description.starts_with("Scan"));
    (answer.rows, scan.cloned().unwrap())
}

fn count(operator: &OperatorMetrics, name: &str) -> u64 {
    operator.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
}

fn expected(table: &Table, passes: impl Fn(&Row) -> bool) -> Vec<Vec<String>> {
    table.rows.iter().filter(|row| passes(row)).map(shown_row).collect()
}

#[test]
fn small_row_groups_are_read_and_decoded_together() {
    let written = |row_group_rows| {
        let shape = Shape { seed: 78, row_count: 1000, key_count: 40, repeated_percent: 5, null_percent: 5 };
        let properties = properties().into_builder().set_max_row_group_row_count(Some(row_group_rows));
        Table::written(std::env::temp_dir(), shape.rows(), properties.build())
    };
    let cost = |table: &Table| {
        let platform = Watched::new(|_| Ok(()));
        let fixture = Fixture::over(platform.clone(), PLENTY_BYTES);
        let counts = || (platform.calls.waits.load(Ordering::Relaxed), platform.calls.launches());
        let passes = condition(Function::Less, int64(0), 30);
        let (rows, cost) = scanned(&fixture, table, &[passes]);
        assert_eq!(rows, expected(table, |row| row.key.is_some_and(|key| key < 30)));
        (counts(), count(&cost, "pages_decoded"))
    };
    let (few, many) = (written(250), written(3));
    let ((few_waits, few_launches), _) = cost(&few);
    let ((many_waits, many_launches), pages) = cost(&many);
    assert!(pages > 1000, "{pages}");
    assert!(
        many_launches <= 2 * few_launches,
        "{many_launches} launches, {few_launches} for large row groups"
    );
    // How often readers wait depends on timing; 334 row groups loaded one by one would wait twice
    // each.
    assert!(many_waits <= few_waits + 50, "{many_waits} waits, {few_waits} for large row groups");
}

#[test]
fn columns_are_decoded_where_rows_pass() {
    let table = table();
    let fixture = Fixture::new(PLENTY_BYTES);
    let (all, whole) = scanned(&fixture, &table, &[]);
    assert_eq!(all, expected(&table, |_| true));
    assert_eq!(count(&whole, "pages_skipped"), 0);

    // Clustered, at both ends of the row group.
    let ends = Expression::predicate(
        Function::Or,
        vec![
            condition(Function::Less, int64(3), 100),
            condition(Function::Greater, int64(3), ROWS as i64 - 50),
        ],
    );
    let (rows, cost) = scanned(&fixture, &table, &[ends]);
    assert_eq!(rows, expected(&table, |row| row.number < 100 || row.number > ROWS as i64 - 50));
    assert!(count(&cost, "pages_skipped") > count(&cost, "pages_decoded"), "{cost:?}");

    // Scattered: every page has some.
    let (rows, cost) = scanned(&fixture, &table, &[condition(Function::Equal, int64(0), 7)]);
    assert_eq!(rows, expected(&table, |row| row.key == Some(7)));
    assert_eq!(count(&cost, "pages_decoded"), count(&whole, "pages_decoded"));

    // None, and all but NULLs.
    let (rows, cost) = scanned(&fixture, &table, &[condition(Function::Less, int64(0), -1)]);
    assert_eq!(rows, Vec::<Vec<String>>::new());
    assert!(count(&cost, "bytes_read") < count(&whole, "bytes_read") / 2, "{cost:?}");
    let not_null = Expression::predicate(Function::IsNotNull, vec![text(1)]);
    let (rows, _) = scanned(&fixture, &table, &[not_null]);
    assert_eq!(rows, expected(&table, |row| row.text.is_some()));

    // All of them, and without a column.
    let (rows, _) = scanned(&fixture, &table, &[condition(Function::GreaterEqual, int64(3), 0)]);
    assert_eq!(rows, all);
    let (rows, _) = scanned(&fixture, &table, &[Expression::literal(Value::Bool(false), DataType::Bool)]);
    assert_eq!(rows, Vec::<Vec<String>>::new());
    let (rows, _) = scanned(&fixture, &table, &[Expression::literal(Value::Bool(true), DataType::Bool)]);
    assert_eq!(rows, all);
}

#[test]
fn a_query_that_skips_no_pages_decodes_all() {
    let table = table();
    let fixture = Fixture::new(PLENTY_BYTES);
    let settings = DeviceSettings { page_skipping: false, ..DeviceSettings::default() };
    let few = [condition(Function::Less, int64(3), 100)];
    let answer = fixture.run_with(plan(table.filtered(0, &few)), settings).unwrap();
    assert_eq!(answer.rows, expected(&table, |row| row.number < 100));
    assert_eq!(count(&answer.metrics.operators[0], "pages_skipped"), 0);
}

#[test]
fn pages_that_their_index_rules_out_are_not_read() {
    let table = table();
    let fixture = Fixture::new(PLENTY_BYTES);
    let (_, whole) = scanned(&fixture, &table, &[]);
    let between =
        [condition(Function::GreaterEqual, int64(3), 20_000), condition(Function::Less, int64(3), 20_100)];
    let (rows, cost) = scanned(&fixture, &table, &between);
    assert_eq!(rows, expected(&table, |row| (20_000..20_100).contains(&row.number)));
    assert!(count(&cost, "bytes_read") < count(&whole, "bytes_read") / 5, "{cost:?}");
    assert!(count(&cost, "pages_decoded") < count(&whole, "pages_decoded") / 10, "{cost:?}");
}

/// A row group that is larger than memory, with or without page indexes.
#[test]
fn a_row_group_that_does_not_fit_is_read_in_pieces() {
    let shape = Shape { seed: 78, row_count: ROWS, key_count: 40, repeated_percent: 5, null_percent: 5 };
    let row_group_bytes = Table::made(Shape { row_count: 1, ..shape }).bytes() * ROWS as u64;
    let forms = [
        ("with offset index", properties().into_builder()),
        (
            "without",
            properties()
                .into_builder()
                .set_offset_index_disabled(true)
                .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None),
        ),
        ("by the host", properties().into_builder().set_compression(Compression::LZ4)),
    ];
    for (name, form) in forms {
        let table = Table::written(std::env::temp_dir(), shape.rows(), form.build());
        let fixture = Fixture::new(row_group_bytes / 4);
        let (rows, _) = scanned(&fixture, &table, &[]);
        assert!(rows == expected(&table, |_| true), "{name}");
        let (rows, cost) = scanned(&fixture, &table, &[condition(Function::Equal, int64(0), 7)]);
        assert!(rows == expected(&table, |row| row.key == Some(7)), "{name}");
        assert!(count(&cost, "pages_decoded") > 0, "{name}");
    }
}

#[test]
fn pages_are_taken_from_chunks_that_the_cache_has() {
    let table = table();
    let fixture = Fixture::caching(Arc::new(EmulatedPlatform::new()), PLENTY_BYTES, (PLENTY_BYTES / 4, 0));
    let few = [condition(Function::Less, int64(3), 100)];
    let expected_rows = expected(&table, |row| row.number < 100);
    let (rows, cost) = scanned(&fixture, &table, &few);
    assert_eq!((rows, count(&cost, "bytes_cached")), (expected_rows.clone(), 0));
    let (rows, cost) = scanned(&fixture, &table, &few);
    assert_eq!((rows, count(&cost, "bytes_cached")), (expected_rows.clone(), 0), "pages are not kept");
    let (rows, _) = scanned(&fixture, &table, &[]);
    assert_eq!(rows, expected(&table, |_| true));
    let (rows, cost) = scanned(&fixture, &table, &few);
    assert_eq!((rows, count(&cost, "bytes_read")), (expected_rows, 0));
}

#[test]
fn columns_behind_groups_without_columns_are_read_in_their_own_place() {
    let schema = "message schema {
        optional group nothing {}
        required int64 a;
        required group neither { optional group deep {} }
        required int64 b;
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut row_group = writer.next_row_group().unwrap();
    for first in [10, 20] {
        let mut column = row_group.next_column().unwrap().unwrap();
        let values: Vec<i64> = (first..first + 5).collect();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    row_group.close().unwrap();
    writer.close().unwrap();
    let scan = |filters: &[Expression]| {
        let column = |(id, name): (u32, &str)| ScanColumn {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type: DataType::Int64,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        };
        let operator = Operator::Scan {
            table: "t".to_owned(),
            files: FileSet::parquet(vec![path.display().to_string()]),
            columns: [(0, "b"), (1, "a")].map(column).to_vec(),
            filters: filters.to_vec(),
            extent: ScanExtent::Whole,
        };
        plan(Relation::new(operator, 5.0))
    };
    let fixture = Fixture::new(PLENTY_BYTES);
    let expected: Vec<Vec<String>> =
        (0..5).map(|row| vec![(20 + row).to_string(), (10 + row).to_string()]).collect();
    assert_eq!(fixture.run(scan(&[])).unwrap().rows, expected);
    let few = [condition(Function::Equal, int64(0), 23)];
    assert_eq!(fixture.run(scan(&few)).unwrap().rows, [["23", "13"]]);
}
