//! Pages whose texts share prefixes: a few bytes of a file may stand for any number of texts.

use parquet::basic::Encoding;
use pystachio_plan::ErrorKind;

use super::*;

/// Bytes that a launch of `build_strings` makes of a page at most.
const BUILD_BYTES: usize = 4 << 20;

/// Texts in one page, each stored as what differs from the one before.
fn with_prefixes(texts: impl Iterator<Item = Option<String>>) -> Table {
    let rows = (0..).zip(texts).map(|(number, text)| Row { key: None, text, value: None, number }).collect();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("text".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_write_batch_size(1 << 20)
        .set_data_page_size_limit(1 << 30);
    Table::written(std::env::temp_dir(), rows, properties.build())
}

/// Some that are longer than a launch makes, beside short ones, empty ones and NULLs: 44 MB of less than ten.
fn long_texts() -> impl Iterator<Item = Option<String>> {
    let long: String = (0..BUILD_BYTES + 77).map(|place| char::from(b'a' + (place % 23) as u8)).collect();
    (0..300).map(move |row| match row {
        60..65 => Some(format!("{long}{row}")),
        100 => Some(long.repeat(2)),
        120..124 => Some(long[..BUILD_BYTES].to_owned()),
        row if row % 7 == 0 => None,
        row if row % 5 == 0 => Some(String::new()),
        row => Some(format!("text {}", row * 31 % 100)),
    })
}

#[test]
fn long_texts_are_made_in_launches_of_bounded_work() {
    let table = with_prefixes(long_texts());
    assert!(std::fs::metadata(&table.path).unwrap().len() < 20_000_000);
    let platform = Watched::new(|_| Ok(()));
    let answer = Fixture::over(platform.clone(), PLENTY_BYTES).run(plan(table.scan(0))).unwrap();
    let expected: Vec<Vec<String>> = table.rows.iter().map(shown_row).collect();
    assert!(answer.rows == expected);
    let text_bytes: usize = table.rows.iter().flat_map(|row| &row.text).map(String::len).sum();
    assert_eq!(platform.calls.count("build_strings"), text_bytes.div_ceil(BUILD_BYTES) as u64);
}

#[test]
fn many_short_texts_are_bounded_work_too() {
    let table =
        with_prefixes((0..150_000).map(|row| Some(String::from(if row % 3 == 0 { "a" } else { "" }))));
    let platform = Watched::new(|_| Ok(()));
    let answer = Fixture::over(platform.clone(), PLENTY_BYTES).run(plan(table.scan(0))).unwrap();
    assert!(answer.rows.iter().map(|row| &row[1]).eq(table.rows.iter().flat_map(|row| &row.text)));
    let launches = platform.calls.count("build_strings");
    assert!((2..=4).contains(&launches), "{launches} launches");
}

#[test]
fn a_cancel_is_seen_between_launches_that_make_texts() {
    let table = with_prefixes(long_texts());
    let stop = StopFlag::default();
    let cancel = stop.clone();
    let platform = Watched::new(move |calls| {
        if calls.count("build_strings") == 3 {
            cancel.stop();
        }
        Ok(())
    });
    let error =
        Fixture::over(platform.clone(), PLENTY_BYTES).run_until(plan(table.scan(0)), stop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled, "{error}");
    assert_eq!(platform.calls.count("build_strings"), 3);
}
