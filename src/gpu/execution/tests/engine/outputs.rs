//! Rows on their way to the host.

use arrow::array::AsArray;

use super::*;

/// Rows that all have one text, which the file has once.
fn repeated(text: &str, row_count: usize) -> Table {
    let row = |number| Row { key: None, text: Some(text.to_owned()), value: None, number };
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(8 << 20).build();
    Table::written(std::env::temp_dir(), (0..row_count as i64).map(row).collect(), properties)
}

#[test]
fn more_text_than_a_batch_may_have_is_given_in_several() {
    let text = "a text of a megabyte ".repeat(50_000);
    // 210 MB, in one chunk.
    let table = repeated(&text, 200);
    let fixture = Fixture::new(PLENTY_BYTES);
    let (mut rows, mut most) = (0_i64, 0);
    fixture.runtime.block_on(async {
        let request = QueryRequest { batch_rows_max: 100_000, ..request(plan(table.scan(0))) };
        let mut stream = fixture.engine.run(request, StopFlag::default()).await.unwrap();
        while let Some(batch) = stream.next_batch().await.unwrap() {
            let texts = batch.column(1).as_string::<i32>();
            let numbers = batch.column(3).as_primitive::<arrow::datatypes::Int64Type>();
            for row in 0..batch.num_rows() {
                assert_eq!(numbers.value(row), rows);
                assert_eq!(texts.value(row).len(), text.len());
                rows += 1;
            }
            assert!(texts.value(batch.num_rows() - 1) == text);
            most = most.max(texts.value_data().len());
        }
    });
    fixture.wait_idle();
    assert_eq!(rows, table.rows.len() as i64);
    assert!((32 << 20..=64 << 20).contains(&most), "batches of up to {most} bytes of text");
}
