//! Segments against plain loops over the same values: what was encoded is read, and rows pass tests as their values say.

use std::{ops::Range, sync::Arc};

use pystachio_plan::{ColumnId, DataType, Expression, Function, Value};

use super::{
    Factor, Fold, ReadForm, SegmentTable, SelectedRows, TableDictionary, TableRows, TableTest, TextSearch,
};
use crate::{
    device::{AnyColumn, CellType, CodedColumn, Column},
    operation::{
        Accumulator, FilterCounts, KeyFilterShape, Queue, SlotLayout, SumWidth,
        tests::{Numbers, queue, texts, validity},
    },
};

/// A column of cells of some bytes, little end first.
fn cells(queue: &Queue, cell_type: CellType, values: &[Option<i128>]) -> Column {
    let data_type = match cell_type {
        CellType::Bool => DataType::Bool,
        CellType::Int16 => DataType::Int16,
        CellType::Int32 => DataType::Date,
        CellType::Int64 => DataType::Int64,
        CellType::Int128 => DataType::Decimal { precision: 38, scale: 2 },
        CellType::Int256 => DataType::Decimal { precision: 60, scale: 2 },
        CellType::Float64 => DataType::Float64,
        _ => DataType::Uuid,
    };
    let bytes: Vec<u8> =
        values.iter().flat_map(|value| cell_bytes(cell_type, value.unwrap_or(-77))).collect();
    let column = Column {
        data_type,
        cell_type,
        values: queue.upload(&bytes).unwrap(),
        validity: validity(queue, values),
        strings: Vec::new(),
    };
    queue.poison_nulls(&column, values.len());
    column
}

fn cell_bytes(cell_type: CellType, value: i128) -> Vec<u8> {
    let sign = if value < 0 { 0xff } else { 0 };
    value.to_le_bytes().into_iter().chain([sign; 16]).take(cell_type.bytes() as usize).collect()
}

/// The bytes of each row's cell, or of its text.
fn read_back(queue: &Queue, column: &AnyColumn, row_count: usize) -> Vec<Option<Vec<u8>>> {
    let column = queue.cells_of(column, row_count).unwrap();
    let flags: Option<Vec<u8>> =
        column.validity.as_ref().map(|flags| queue.download(flags, row_count).unwrap());
    let is_valid = |row: usize| flags.as_ref().is_none_or(|flags| flags[row] != 0);
    if column.cell_type == CellType::String {
        let packed = queue.pack_column(&column, row_count).unwrap().text;
        let mut bounds: Vec<u64> = queue.download(&packed.offsets, row_count).unwrap();
        bounds.push(packed.total_bytes);
        let bytes: Vec<u8> = queue.download(&packed.bytes, packed.total_bytes as usize).unwrap();
        let text = |row: usize| bytes[bounds[row] as usize..bounds[row + 1] as usize].to_vec();
        return (0..row_count).map(|row| is_valid(row).then(|| text(row))).collect();
    }
    let width = column.cell_type.bytes() as usize;
    let bytes: Vec<u8> = queue.download(&column.values, width * row_count).unwrap();
    (0..row_count).map(|row| is_valid(row).then(|| bytes[row * width..(row + 1) * width].to_vec())).collect()
}

fn bytes_of(cell_type: CellType, values: &[Option<i128>]) -> Vec<Option<Vec<u8>>> {
    values.iter().map(|value| value.map(|value| cell_bytes(cell_type, value))).collect()
}

/// Row groups of some lengths.
fn parts(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    lengths
        .iter()
        .map(|length| {
            start += length;
            start - length..start
        })
        .collect()
}

/// A table of some columns, of which each row group has the rows from `skipped` on, and as many fewer at its end.
fn table_of(
    queue: &Queue,
    columns: &[AnyColumn],
    parts: &[Range<usize>],
    skipped: u32,
) -> (SegmentTable, Vec<usize>) {
    let dictionary = Arc::new(TableDictionary::new(DataType::Text));
    let segments: Vec<Vec<_>> = columns
        .iter()
        .map(|column| {
            let segments = queue.encode_segments(column, parts, &dictionary).unwrap().unwrap();
            segments.into_iter().map(Arc::new).collect()
        })
        .collect();
    let types: Vec<DataType> = columns
        .iter()
        .map(|column| match column {
            AnyColumn::Cells(cells) => cells.data_type.clone(),
            AnyColumn::Codes(coded) => coded.entries.data_type.clone(),
        })
        .collect();
    let mut rows_of_table = Vec::new();
    let mut row_groups = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let rows = skipped.min(part.len() as u32)..(part.len() as u32).saturating_sub(skipped).max(skipped);
        if rows.is_empty() || rows.end > part.len() as u32 {
            continue;
        }
        let target_row = rows_of_table.len() as u32;
        rows_of_table.extend(rows.clone().map(|row| part.start + row as usize));
        let segments = segments.iter().map(|of_column| of_column[place].clone()).collect();
        row_groups.push(TableRows { segments, rows, target_row });
    }
    (SegmentTable::new(queue, &types, row_groups, rows_of_table.len()).unwrap(), rows_of_table)
}

fn picked<T: Clone>(values: &[T], rows: &[usize]) -> Vec<T> {
    rows.iter().map(|row| values[*row].clone()).collect()
}

fn passing(table_rows: &[usize], passes: impl Fn(usize) -> bool) -> Vec<usize> {
    table_rows.iter().copied().filter(|row| passes(*row)).collect()
}

/// The numbers of selected rows among those of the table.
fn numbers(queue: &Queue, table: &SegmentTable, selected: &SelectedRows) -> Vec<usize> {
    let numbers = queue.selected_numbers(table, selected).unwrap();
    let rows: Vec<u32> = queue.download(&numbers.rows, numbers.count).unwrap();
    rows.into_iter().map(|row| row as usize).collect()
}

#[test]
fn every_type_is_read_as_it_was_encoded() {
    let queue = queue();
    let wide = i128::from(i64::MAX);
    let cases: [(CellType, i128, i128); 14] = [
        (CellType::Bool, 0, 1),
        (CellType::Int16, -32768, 32767),
        (CellType::Int32, -7, 40),
        (CellType::Int32, i128::from(i32::MIN), i128::from(i32::MAX)),
        (CellType::Int64, 90_000, 10_494_950),
        (CellType::Int64, 5, 5),
        (CellType::Int64, -(1 << 33), 1 << 33),
        (CellType::Int64, -wide - 1, wide),
        (CellType::Int128, -wide - 1, wide),
        (CellType::Int128, -wide - 2, wide),
        (CellType::Int256, -1, 1 << 40),
        (CellType::Int256, i128::MIN, i128::MAX),
        (CellType::Float64, 0, wide),
        (CellType::Bytes16, 0, i128::MAX),
    ];
    for lengths in [vec![1], vec![1024], vec![1500, 3, 2048, 1], vec![4096, 4097]] {
        let parts = parts(&lengths);
        let row_count = parts.last().unwrap().end;
        for (cell_type, least, greatest) in cases {
            for has_nulls in [false, true] {
                let mut random = Numbers(row_count as u64 ^ greatest as u64);
                let mut value = |row: usize| match row {
                    0 => Some(least),
                    1 => Some(greatest),
                    _ if has_nulls && random.next(3) == 0 => None,
                    _ => {
                        let offset = (u128::from(random.next(1 << 31)) << 90)
                            ^ (u128::from(random.next(1 << 31)) << 45)
                            ^ u128::from(random.next(1 << 31));
                        let span = greatest.wrapping_sub(least) as u128;
                        let offset = if span == u128::MAX { offset } else { offset % (span + 1) };
                        Some(least.wrapping_add(offset as i128))
                    }
                };
                let values: Vec<Option<i128>> = (0..row_count).map(&mut value).collect();
                let column = AnyColumn::Cells(cells(&queue, cell_type, &values));
                for skipped in [0, 700] {
                    let (table, rows) = table_of(&queue, std::slice::from_ref(&column), &parts, skipped);
                    if rows.is_empty() {
                        continue;
                    }
                    let read = queue.read_segments(&table, &[(0, ReadForm::Cells)], None).unwrap();
                    let expected = picked(&bytes_of(cell_type, &values), &rows);
                    assert_eq!(
                        read_back(&queue, &read[0], rows.len()),
                        expected,
                        "{cell_type:?} {lengths:?}"
                    );
                }
            }
        }
    }
}

fn words(row_count: usize, has_nulls: bool, distinct: u64) -> Vec<Option<String>> {
    let mut random = Numbers(row_count as u64 + distinct);
    let mut word = || {
        let number = random.next(distinct);
        (!has_nulls || !number.is_multiple_of(5))
            .then(|| "é".repeat(number as usize % 4) + &number.to_string())
    };
    (0..row_count).map(|_| word()).collect()
}

/// The same values as codes of two dictionaries, one after the other, with an entry for NULL.
fn coded(queue: &Queue, values: &[Option<String>]) -> CodedColumn {
    let mut entries: Vec<Option<String>> = values.iter().filter(|value| value.is_some()).cloned().collect();
    entries.sort();
    entries.dedup();
    let count = entries.len();
    let mut both = entries.clone();
    both.extend(entries.iter().cloned());
    both.push(None);
    let code = |(row, value): (usize, &Option<String>)| match value {
        None => (2 * count) as u32,
        Some(_) => (entries.binary_search(value).unwrap() + if row % 2 == 0 { 0 } else { count }) as u32,
    };
    let codes: Vec<u32> = values.iter().enumerate().map(code).collect();
    CodedColumn {
        entries: texts(queue, &both),
        entry_count: both.len(),
        codes: queue.upload(&codes).unwrap(),
    }
}

#[test]
fn text_is_read_as_it_was_encoded_from_cells_and_from_codes() {
    let queue = queue();
    for (lengths, distinct) in
        [(vec![1], 10), (vec![1024, 1025, 7], 100), (vec![3000], 2000), (vec![1100], 1)]
    {
        let parts = parts(&lengths);
        let row_count = parts.last().unwrap().end;
        for has_nulls in [false, true] {
            let values = words(row_count, has_nulls, distinct);
            let expected: Vec<Option<Vec<u8>>> =
                values.iter().map(|value| value.clone().map(String::into_bytes)).collect();
            let columns =
                [AnyColumn::Cells(texts(&queue, &values)), AnyColumn::Codes(coded(&queue, &values))];
            let (table, rows) = table_of(&queue, &columns, &parts, 0);
            assert!(!table.is_testable(0) && table.entries(0).is_none());
            assert!(table.is_testable(1) && table.entries(1).is_some());
            let reads = [(0, ReadForm::Cells), (1, ReadForm::Cells), (1, ReadForm::Codes)];
            for (place, column) in queue.read_segments(&table, &reads, None).unwrap().iter().enumerate() {
                assert_eq!(read_back(&queue, column, rows.len()), expected, "{place}");
            }
            let wanted = |row: usize| row.is_multiple_of(3);
            let flags: Vec<u8> = (0..row_count).map(|row| wanted(row).into()).collect();
            let flags = queue.upload(&flags).unwrap();
            let selected = queue.test_segments(&table, None, &[TableTest::Flags(&flags)]).unwrap();
            let rows = passing(&rows, wanted);
            assert_eq!(selected.count(), rows.len());
            for column in queue.read_segments(&table, &reads, Some(&selected)).unwrap() {
                assert_eq!(read_back(&queue, &column, rows.len()), picked(&expected, &rows));
            }
        }
    }
}

#[test]
fn rows_pass_tests_as_their_values_say() {
    let queue = queue();
    let parts = parts(&[2048, 1, 1500, 5000]);
    let row_count = parts.last().unwrap().end;
    for (least, greatest, has_nulls) in
        [(0, 40, false), (-100, 100, true), (-(1 << 40), 1 << 40, true), (7, 7, true)]
    {
        let mut random = Numbers(greatest as u64);
        let span = (greatest - least + 1) as u64;
        let mut value = || {
            let offset = (random.next(1 << 31) << 12 ^ random.next(1 << 12)) % span;
            (!has_nulls || random.next(4) > 0).then(|| i128::from(least + offset as i64))
        };
        let one: Vec<Option<i128>> = (0..row_count).map(|_| value()).collect();
        let two: Vec<Option<i128>> = (0..row_count).map(|_| value()).collect();
        let columns = [&one, &two].map(|values| AnyColumn::Cells(cells(&queue, CellType::Int64, values)));
        for skipped in [0, 100] {
            let (table, rows) = table_of(&queue, &columns, &parts, skipped);
            let check =
                |tests: &[TableTest<'_>], before: Option<&SelectedRows>, passes: &dyn Fn(usize) -> bool| {
                    let selected = queue.test_segments(&table, before, tests).unwrap();
                    let expected = passing(&rows, passes);
                    let found: Vec<usize> =
                        numbers(&queue, &table, &selected).into_iter().map(|place| rows[place]).collect();
                    assert_eq!(found, expected);
                    let read = queue.read_segments(&table, &[(1, ReadForm::Cells)], Some(&selected)).unwrap();
                    let cells = picked(&bytes_of(CellType::Int64, &two), &expected);
                    assert_eq!(read_back(&queue, &read[0], expected.len()), cells);
                    selected
                };
            let middle = i64::midpoint(least, greatest);
            for (low, high) in
                [(least, greatest), (middle, middle), (middle + 1, i64::MAX), (i64::MIN, least), (5, 4)]
            {
                let within = |value: &Option<i128>| {
                    value.is_some_and(|value| value >= i128::from(low) && value <= i128::from(high))
                };
                let test = TableTest::Within { column: 0, least: low, greatest: high };
                check(&[test], None, &|row| within(&one[row]));
                // Bits of the orderings less, equal, greater.
                for orderings in [0b001, 0b010, 0b101, 0b110] {
                    let ordered = |row: usize| match (one[row], two[row]) {
                        (Some(one), Some(two)) => orderings >> (one.cmp(&two) as i32 + 1) & 1 != 0,
                        _ => false,
                    };
                    let order = TableTest::Ordered { column: 0, other: 1, orderings };
                    check(&[order], None, &ordered);
                    check(&[order, test], None, &|row| ordered(row) && within(&one[row]));
                }
            }
            let keys: Vec<Option<i128>> = (0..50).map(|key| Some(i128::from(least + key * 3))).collect();
            let key_column = cells(&queue, CellType::Int64, &keys);
            for shape in
                [KeyFilterShape::Bitmap { least, bit_count: 200 }, KeyFilterShape::Bloom { block_count: 40 }]
            {
                let filter = queue.open_key_filter(shape).unwrap();
                queue.insert_keys(&filter, std::slice::from_ref(&key_column), keys.len()).unwrap();
                let AnyColumn::Cells(column) = &columns[0] else { unreachable!() };
                let flags = queue
                    .test_keys(&filter, std::slice::from_ref(column), row_count, Default::default())
                    .unwrap();
                let flags: Vec<u8> = queue.download(&flags, row_count).unwrap();
                let counts = queue.zeros::<FilterCounts>(1).unwrap();
                let test = TableTest::Key { column: 0, keys: &filter, counts: Some(&counts) };
                let positive = TableTest::Within { column: 1, least: middle, greatest: i64::MAX };
                let is_positive = |row: usize| two[row].is_some_and(|value| value >= i128::from(middle));
                let selected = check(&[positive, test], None, &|row| flags[row] != 0 && is_positive(row));
                let counts = queue.download::<FilterCounts>(&counts, 1).unwrap()[0];
                assert_eq!(counts.tested, passing(&rows, is_positive).len() as u64);
                assert_eq!(counts.passed, selected.count() as u64);
                // Flags of the rows that are left.
                let every_other: Vec<u8> = (0..selected.count()).map(|place| (place % 2) as u8).collect();
                let of_tested = queue.upload(&every_other).unwrap();
                let left = passing(&rows, |row| flags[row] != 0 && is_positive(row));
                let kept: Vec<usize> = left.iter().copied().skip(1).step_by(2).collect();
                if !left.is_empty() {
                    let tests = [TableTest::FlagsOfTested(&of_tested)];
                    check(&tests, Some(&selected), &|row| kept.contains(&row));
                }
            }
        }
    }
}

/// LIKE of a pattern with `%` alone, by trying every way.
fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'%', rest)) => (0..=text.len()).any(|skipped| is_like(&text[skipped..], rest)),
        Some((first, rest)) => text.first() == Some(first) && is_like(&text[1..], rest),
    }
}

#[test]
fn searches_find_what_like_and_equality_do() {
    let queue = queue();
    let column = || Expression::column(ColumnId(1), DataType::Text);
    let text = |text: &str| Expression::literal(Value::Text(text.into()), DataType::Text);
    let mut random = Numbers(5);
    // Texts of few letters, so that parts begin often; some texts are longer than the stage, and many of those a warp searches together.
    let word = |random: &mut Numbers, length: u64| {
        (0..length).map(|_| ["a", "b", "ab", "é"][random.next(4) as usize]).collect::<String>()
    };
    let lengths = [2100, 30];
    let row_count: usize = lengths.iter().sum();
    let values: Vec<Option<String>> = (0..row_count)
        .map(|row| {
            let length = match row {
                _ if row % 400 == 7 => 3000,
                // Each 32 rows of these have more bytes than the stage.
                1000..1200 => [random.next(14), 600 + random.next(1000)][row % 2],
                _ => random.next(14),
            };
            let value = word(&mut random, length);
            (random.next(9) > 0).then_some(value)
        })
        .collect();
    let cells = AnyColumn::Cells(texts(&queue, &values));
    let patterns = [
        "",
        "%",
        "a%",
        "%b",
        "%ab%",
        "a%b",
        "ab%ba",
        "%aab%bb%a%",
        "%é%",
        "aé",
        "é%a%é",
        "%%a%%",
        "%aaaaaaaa%",
        "%aba%",
        "%abab%",
        "%babab%",
        "%abb%baba%a%",
        "b%abbab%b",
        "%bbbbbaaaaa%",
        "%aaaaa%bbbbbb%ab",
    ];
    for skipped in [0, 13] {
        let (table, rows) = table_of(&queue, std::slice::from_ref(&cells), &parts(&lengths), skipped);
        assert!(table.is_searchable(0));
        for pattern in patterns {
            let like = Expression::predicate(Function::Like, vec![column(), text(pattern)]);
            let equal = Expression::predicate(Function::Equal, vec![text(pattern), column()]);
            let negated = |inner: &Expression| Expression::predicate(Function::Not, vec![inner.clone()]);
            let unequal = Expression::predicate(Function::NotEqual, vec![column(), text(pattern)]);
            let matches =
                |row: usize| values[row].as_ref().map(|value| is_like(value.as_bytes(), pattern.as_bytes()));
            let equals = |row: usize| values[row].as_ref().map(|value| value == pattern);
            type Passes<'a> = &'a dyn Fn(usize) -> Option<bool>;
            let cases: [(Expression, Passes<'_>); 5] = [
                (like.clone(), &matches),
                (negated(&like), &|row| matches(row).map(|found| !found)),
                (equal.clone(), &equals),
                (negated(&equal), &|row| equals(row).map(|found| !found)),
                (unequal, &|row| equals(row).map(|found| !found)),
            ];
            for (condition, passes) in cases {
                let search = TextSearch::of(&condition, &[]).unwrap();
                let search = queue.upload_search(&search).unwrap();
                let test = TableTest::Search { column: 0, search: &search };
                let selected = queue.test_segments(&table, None, &[test]).unwrap();
                let found: Vec<usize> =
                    numbers(&queue, &table, &selected).into_iter().map(|place| rows[place]).collect();
                assert_eq!(found, passing(&rows, |row| passes(row) == Some(true)), "{condition:?}");
            }
        }
    }
    let escaped = Expression::predicate(Function::Like, vec![column(), text(r"a\%%\\")]);
    let wanted = Expression::predicate(Function::Like, vec![column(), text("%")]);
    assert_ne!(TextSearch::of(&escaped, &[]), TextSearch::of(&wanted, &[]));
    for pattern in ["a_b", r"a\", &"x%".repeat(9), &"y".repeat(129)] {
        let like = Expression::predicate(Function::Like, vec![column(), text(pattern)]);
        assert_eq!(TextSearch::of(&like, &[]), None, "{pattern}");
    }
}

#[test]
fn a_dictionary_keeps_its_codes_as_it_grows() {
    let queue = queue();
    let dictionary = Arc::new(TableDictionary::new(DataType::Text));
    let mut row_groups = Vec::new();
    let mut expected = Vec::new();
    for distinct in [3, 30, 7] {
        let values = words(1300, true, distinct);
        let column = AnyColumn::Codes(coded(&queue, &values));
        let segments = queue.encode_segments(&column, &parts(&[1300]), &dictionary).unwrap().unwrap();
        let target_row = expected.len() as u32;
        let segments = segments.into_iter().map(Arc::new).collect();
        row_groups.push(TableRows { segments, rows: 0..1300, target_row });
        expected.extend(values.into_iter().map(|value| value.map(String::into_bytes)));
        let table = SegmentTable::new(&queue, &[DataType::Text], row_groups.clone(), expected.len()).unwrap();
        assert!(table.entries(0).is_some());
        let read = queue.read_segments(&table, &[(0, ReadForm::Codes), (0, ReadForm::Cells)], None).unwrap();
        for column in &read {
            assert_eq!(read_back(&queue, column, expected.len()), expected);
        }
        let AnyColumn::Codes(coded) = &read[0] else { panic!("codes") };
        // Four of five words, once each, and NULL.
        assert!(coded.entry_count <= 31, "{}", coded.entry_count);
    }
}

#[test]
fn segments_come_back_from_the_host() {
    let queue = queue();
    let host = crate::device::HostMemory::new(queue.memory().platform().clone(), 64 << 20);
    let values = words(2500, true, 900);
    let columns = [AnyColumn::Cells(texts(&queue, &values)), AnyColumn::Codes(coded(&queue, &values))];
    let expected: Vec<Option<Vec<u8>>> =
        values.iter().map(|value| value.clone().map(String::into_bytes)).collect();
    let dictionary = Arc::new(TableDictionary::new(DataType::Text));
    for column in &columns {
        let segment = queue.encode_segments(column, &parts(&[2500]), &dictionary).unwrap().unwrap().remove(0);
        let pinned = super::PinnedSegment::copy(&segment, &host, queue.memory(), queue.stream()).unwrap();
        drop(segment);
        let segment = pinned.unwrap().to_device(queue.memory(), queue.stream()).unwrap();
        let rows = TableRows { segments: vec![Arc::new(segment)], rows: 0..2500, target_row: 0 };
        let table = SegmentTable::new(&queue, &[DataType::Text], vec![rows], 2500).unwrap();
        let read = queue.read_segments(&table, &[(0, ReadForm::Cells)], None).unwrap();
        assert_eq!(read_back(&queue, &read[0], 2500), expected);
    }
}

/// What the rows of a group add up to: rows, NULLs and sums of two products.
type Folded = std::collections::BTreeMap<Vec<Option<Vec<u8>>>, (i64, Option<i128>, i64, Option<i128>)>;

#[test]
fn rows_are_folded_into_the_groups_that_loops_find() {
    let queue = queue();
    let parts = parts(&[4096, 1, 2500, 20_000]);
    let row_count = parts.last().unwrap().end;
    let layout = SlotLayout::plan([
        (Accumulator::Count, None, SumWidth::Wide),
        (Accumulator::Sum, Some(0), SumWidth::Wide),
        (Accumulator::Count, Some(1), SumWidth::Wide),
        (Accumulator::Sum, Some(1), SumWidth::Wide),
    ])
    .unwrap();
    let sum = DataType::Decimal { precision: 38, scale: 0 };
    let partial_types = [DataType::Int64, sum.clone(), DataType::Int64, sum];
    for has_nulls in [false, true] {
        let mut random = Numbers(17);
        let mut value = |least: i64, span: u64| {
            let offset = random.next(span) as i64;
            (!has_nulls || random.next(6) > 0).then_some(i128::from(least + offset))
        };
        let a: Vec<Option<i128>> = (0..row_count).map(|_| value(-50, 100)).collect();
        let b: Vec<Option<i128>> = (0..row_count).map(|_| value(90_000, 1 << 24)).collect();
        let few = words(row_count, has_nulls, 3);
        let dates: Vec<Option<i128>> = (0..row_count).map(|_| value(3, 2)).collect();
        let columns = [
            AnyColumn::Cells(cells(&queue, CellType::Int64, &a)),
            AnyColumn::Cells(cells(&queue, CellType::Int64, &b)),
            AnyColumn::Codes(coded(&queue, &few)),
            AnyColumn::Cells(cells(&queue, CellType::Int32, &dates)),
        ];
        let key_bytes = |key: usize, row: usize| match key {
            2 => few[row].clone().map(String::into_bytes),
            _ => dates[row].map(|value| cell_bytes(CellType::Int32, value)),
        };
        // a * (100 - b), and 7 - 2 * b
        let factor = |column, constant, coefficient| Factor { column, constant, coefficient };
        let arguments = [vec![factor(0, 0, 1), factor(1, 100, -1)], vec![factor(1, 7, -2)]];
        for skipped in [0, 200] {
            let (table, rows) = table_of(&queue, &columns, &parts, skipped);
            let flags: Vec<u8> = (0..rows.len()).map(|row| (row % 5 != 1).into()).collect();
            let flags_buffer = queue.upload(&flags).unwrap();
            let selected = queue.test_segments(&table, None, &[TableTest::Flags(&flags_buffer)]).unwrap();
            for (keys, key_types) in [
                (vec![], vec![]),
                (vec![2], vec![DataType::Int32]),
                (vec![3], vec![DataType::Date]),
                (vec![3, 2], vec![DataType::Date, DataType::Int32]),
            ] {
                for selected in [None, Some(&selected)] {
                    let fold = Fold {
                        keys: &keys,
                        arguments: &arguments,
                        layout: &layout,
                        key_types: &key_types,
                        partial_types: &partial_types,
                    };
                    let Some(groups) = queue.fold_segments(&table, selected, &fold).unwrap() else {
                        // Twelve groups have too many sums.
                        assert!(keys.len() == 2 && has_nulls, "{keys:?}");
                        continue;
                    };
                    let mut expected = Folded::new();
                    for (place, row) in rows.iter().enumerate() {
                        if selected.is_some() && flags[place] == 0 {
                            continue;
                        }
                        let key = keys.iter().map(|key| key_bytes(*key, *row)).collect();
                        let group = expected.entry(key).or_default();
                        group.0 += 1;
                        if let (Some(a), Some(b)) = (a[*row], b[*row]) {
                            group.1 = Some(group.1.unwrap_or(0) + a * (100 - b));
                        }
                        if let Some(b) = b[*row] {
                            group.2 += 1;
                            group.3 = Some(group.3.unwrap_or(0) + 7 - 2 * b);
                        }
                    }
                    let columns: Vec<Vec<Option<Vec<u8>>>> = groups
                        .columns
                        .iter()
                        .map(|column| read_back(&queue, &AnyColumn::Cells(column.clone()), groups.row_count))
                        .collect();
                    let number = |bytes: &Option<Vec<u8>>| {
                        bytes.as_ref().map(|bytes| {
                            let sign = if bytes.last().is_some_and(|byte| *byte > 127) { 0xff } else { 0 };
                            let mut wide = [sign; 16];
                            wide[..bytes.len()].copy_from_slice(bytes);
                            i128::from_le_bytes(wide)
                        })
                    };
                    let (keys_found, results) = columns.split_at(keys.len());
                    let found: Folded = (0..groups.row_count)
                        .map(|group| {
                            let key = keys_found.iter().map(|column| column[group].clone()).collect();
                            let result = |place: usize| number(&results[place][group]);
                            let count = |place: usize| result(place).unwrap_or(-1) as i64;
                            (key, (count(0), result(1), count(2), result(3)))
                        })
                        .collect();
                    assert_eq!(found, expected, "{keys:?} {has_nulls}");
                }
            }
        }
    }
}

#[test]
fn what_could_leave_64_bits_or_has_too_many_groups_is_not_folded() {
    let queue = queue();
    let values: Vec<Option<i128>> = (0..3000).map(|row| Some(i128::from(i64::MAX) / 2 - row)).collect();
    let some: Vec<Option<i128>> = (0..3000).map(|row| Some(row % 300)).collect();
    let columns = [&values, &some].map(|values| AnyColumn::Cells(cells(&queue, CellType::Int64, values)));
    let (table, _) = table_of(&queue, &columns, &parts(&[3000]), 0);
    let layout = SlotLayout::plan([(Accumulator::Sum, Some(0), SumWidth::Wide)]).unwrap();
    let partial_types = [DataType::Decimal { precision: 38, scale: 0 }];
    for (keys, column, is_folded) in [(vec![], 0, false), (vec![], 1, true), (vec![1], 1, false)] {
        let arguments = [vec![Factor { column, constant: 0, coefficient: 1 }]];
        let key_types = vec![DataType::Int64; keys.len()];
        let fold = Fold {
            keys: &keys,
            arguments: &arguments,
            layout: &layout,
            key_types: &key_types,
            partial_types: &partial_types,
        };
        assert_eq!(
            queue.fold_segments(&table, None, &fold).unwrap().is_some(),
            is_folded,
            "{keys:?} {column}"
        );
    }
}
