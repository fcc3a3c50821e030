//! The GPU against the emulated device: the same operations give the same results.
//!
//! Without a GPU every test says so and passes; with PYSTACHIO_REQUIRE_GPU=1 that is a failure.
//! `PYSTACHIO_TEST_PARQUET` names folders of further Parquet files, separated by colons.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod gpu;

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use arrow::array::RecordBatch;
use pystachio_files::{FileCatalog, chunk_range, file_type};
use pystachio_gpu::{
    decode::{EncodedColumnChunk, check_column, decode_column_chunk},
    device::{Buffer, CellType, Chunk, Column, DeviceMemory, EmulatedPlatform, Platform},
    operation::{
        Accumulation, Accumulator, CellRange, DecompressRange, FrameValues, PackRange, PackedColumn,
        ProbeMode, Queue, SortColumn, SumWidth, UnpackRange, column_schema, to_arrow,
    },
    program::{Filter, Program},
};
use pystachio_plan::{
    ColumnContent, ColumnId, DataType, Expression, FileSet, FrameBound, FrameExclusion, FrameUnit, Function,
    Literal, ScanColumn, Value, WindowFrame, WindowFunction,
};

const MEMORY_BYTES: u64 = 8 << 30;
/// Row groups of a file that are compared.
const ROW_GROUPS_MAX: usize = 2;
/// Column chunks of one type that operations are tried on under a sanitizer, where a launch takes milliseconds.
const SANITIZED_CHUNKS_MAX: usize = 3;

/// The emulated device and the GPU, or nothing without one.
fn devices() -> Option<[Queue; 2]> {
    let gpu = gpu::open()?;
    let queue = |platform: Arc<dyn Platform>| {
        Queue::new(&DeviceMemory::new(platform, MEMORY_BYTES)).expect("a queue")
    };
    Some([queue(Arc::new(EmulatedPlatform::new())), queue(Arc::new(gpu))])
}

fn batch(queue: &Queue, columns: Vec<Column>, row_count: usize) -> RecordBatch {
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type.clone()).collect();
    to_arrow(queue, &Chunk { row_count, columns }, &column_schema(&types)).expect("a batch")
}

/// An aggregate of the first input, or a count of rows.
fn aggregate(accumulator: Accumulator, input: Option<usize>, result: &DataType) -> Accumulation {
    Accumulation { accumulator, input, width: SumWidth::Large, result: result.clone() }
}

/// Sums of a column's integers or decimals by group, with rows and values that are not NULL, in the order of the sums.
fn sums(queue: &Queue, keys: &[Column], column: &Column, row_count: usize) -> RecordBatch {
    let scale = match &column.data_type {
        DataType::Decimal { scale, .. } => *scale,
        _ => 0,
    };
    let grouping = queue.group(keys, row_count, row_count).expect("groups");
    let sum = DataType::Decimal { precision: 38, scale };
    let calls = [
        Accumulation { width: SumWidth::Wide, ..aggregate(Accumulator::Sum, Some(0), &sum) },
        aggregate(Accumulator::Count, None, &DataType::Int64),
        aggregate(Accumulator::Count, Some(0), &DataType::Int64),
    ];
    let found = queue.accumulate(&grouping, &[column], &calls).expect("sums");
    let by = |column: &Column| SortColumn { column: column.clone(), descending: false, nulls_first: true };
    let order =
        queue.sort(&found.iter().map(by).collect::<Vec<_>>(), grouping.group_count).expect("an order");
    let sorted = found.iter().map(|column| queue.gather(column, &order).expect("rows")).collect();
    batch(queue, sorted, grouping.group_count)
}

/// Partial results of sums and deviations of a column's floats by group, in their own order, and these added up to one of all groups.
fn float_states(queue: &Queue, keys: &[Column], column: &Column, row_count: usize) -> [RecordBatch; 2] {
    let grouping = queue.group(keys, row_count, row_count).expect("groups");
    let calls = [Accumulator::FloatSum, Accumulator::Deviations]
        .map(|accumulator| aggregate(accumulator, Some(0), &DataType::Bytea));
    let found = queue.accumulate(&grouping, &[column], &calls).expect("states");
    let all = queue.group(&[], grouping.group_count, 1).expect("one group");
    let added = found.iter().zip(&calls).map(|(states, call)| {
        queue.accumulate(&all, &[states], std::slice::from_ref(call)).expect("a state").remove(0)
    });
    let added = added.collect();
    let by = |column: &Column| SortColumn { column: column.clone(), descending: false, nulls_first: true };
    let order =
        queue.sort(&found.iter().map(by).collect::<Vec<_>>(), grouping.group_count).expect("an order");
    let sorted = found.iter().map(|column| queue.gather(column, &order).expect("rows")).collect();
    [batch(queue, sorted, grouping.group_count), batch(queue, added, 1)]
}

/// Functions of the rows around each, in the order of a column: of one partition, and of one for each value.
fn windows(queue: &Queue, column: &Column, row_count: usize) -> RecordBatch {
    let keys = [SortColumn { column: column.clone(), descending: false, nulls_first: false }];
    let order = queue.sort(&keys, row_count).expect("an order");
    let sorted = queue.gather(column, &order).expect("rows");
    let filled = queue.filled_rows(Some(&sorted), row_count).expect("counts");
    let own = std::slice::from_ref(&sorted);
    let mut found = Vec::new();
    for (partition, order) in [(&[][..], own), (own, &[][..])] {
        let rows = queue.window_rows(partition, order, row_count).expect("runs");
        let numbers = [WindowFunction::DenseRank, WindowFunction::CumeDist, WindowFunction::Ntile(7)];
        found.extend(numbers.map(|number| queue.number_rows(&rows, number).expect("numbers")));
        for (unit, start, exclude) in [
            (FrameUnit::Rows, FrameBound::Unbounded, FrameExclusion::Nothing),
            (FrameUnit::Groups, FrameBound::Preceding(2), FrameExclusion::Ties),
        ] {
            let frame = WindowFrame { unit, start, end: FrameBound::Following(3), exclude };
            let frames = queue.find_frames(&rows, &frame, FrameValues::default()).expect("frames");
            found.push(queue.count_frames(&frames, &filled).expect("counts"));
            if SumWidth::of(&column.data_type).is_ok() {
                for precision in [38, 76] {
                    let sum = match &column.data_type {
                        DataType::Decimal { scale, .. } => DataType::Decimal { precision, scale: *scale },
                        _ => DataType::Decimal { precision, scale: 0 },
                    };
                    found.push(queue.sum_frames(&frames, &sorted, &filled, &sum).expect("sums"));
                }
            }
            let mut places = vec![queue.rows_of_frames(&frames, WindowFunction::NthValue(2)).expect("rows")];
            for greatest in [false, true] {
                places.push(queue.best_of_frames(&rows, &frames, &sorted, greatest).expect("rows"));
            }
            places.push(queue.rows_before(&rows, -2).expect("rows"));
            found.extend(places.iter().map(|rows| queue.gather(&sorted, rows).expect("cells")));
        }
    }
    batch(queue, found, row_count)
}

/// A column that was packed and unpacked again, if that is worth it, and whether its values are those that it had.
fn repacked(queue: &Queue, column: &Column, row_count: usize) -> (RecordBatch, bool) {
    let as_it_was = batch(queue, vec![column.clone()], row_count);
    let source = CellRange {
        cells: column.values.address(),
        validity: column.validity.as_ref().map(Buffer::address),
        row_count: row_count as u64,
        cell_type: column.cell_type,
    };
    let Some(packing) = queue.measure_packings(&[source]).expect("a packing")[0] else {
        return (as_it_was, true);
    };
    let memory = |bytes| queue.memory().allocate(bytes, queue.stream()).expect("memory");
    let (words, cells) = (memory(packing.bytes(source.row_count)), memory(column.values.bytes()));
    queue.pack(&[PackRange { source, packing, target: words.address() }]).expect("words");
    let range = UnpackRange {
        source: words.address(),
        packing,
        target: cells.address(),
        row_count: source.row_count,
        cell_type: column.cell_type,
    };
    queue.unpack(&[range]).expect("cells");
    let unpacked = batch(queue, vec![Column { values: cells, ..column.clone() }], row_count);
    let is_same = unpacked == as_it_was;
    (unpacked, is_same)
}

/// A text column that was compressed and decompressed again, and whether its texts are those that it had.
fn recompressed(queue: &Queue, column: &Column, row_count: usize) -> (RecordBatch, bool) {
    let as_it_was = batch(queue, vec![column.clone()], row_count);
    let PackedColumn { column, text, .. } = queue.pack_column(column, row_count).expect("packed text");
    if text.total_bytes == 0 {
        return (as_it_was, true);
    }
    let whole = text.bytes.slice(0, text.total_bytes);
    let compressed = queue.compress_texts(std::slice::from_ref(&whole)).expect("compressed text").remove(0);
    let memory = |bytes| queue.memory().allocate(bytes, queue.stream()).expect("memory");
    let (source, target) = (memory(compressed.bytes()), memory(text.total_bytes));
    queue.memory().upload_to(&compressed.ends(), source.address(), queue.stream()).expect("ends");
    queue.copy_ranges(&compressed.copies(source.address()).collect::<Vec<_>>()).expect("pieces");
    let range = DecompressRange {
        source: source.address(),
        source_bytes: compressed.bytes(),
        target: target.address(),
        bytes: text.total_bytes,
    };
    queue.decompress_texts(&[range]).expect("text");
    queue.move_strings(&column.values, 0..row_count, whole.address(), target.address()).expect("cells");
    let decompressed = batch(queue, vec![Column { strings: vec![target], ..column }], row_count);
    let is_same = decompressed == as_it_was;
    (decompressed, is_same)
}

fn parquet_files() -> Vec<PathBuf> {
    let own = PathBuf::from("../../regress/data");
    let named = std::env::var("PYSTACHIO_TEST_PARQUET").unwrap_or_default();
    let folders = named.split(':').filter(|name| !name.is_empty()).map(PathBuf::from);
    let mut files = Vec::new();
    for folder in std::iter::once(own).chain(folders) {
        let Ok(entries) = folder.canonicalize().and_then(std::fs::read_dir) else { continue };
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    files.sort();
    files.dedup();
    files
}

/// A column of a file on a device, decoded.
struct Decoded {
    name: String,
    columns: Vec<Column>,
    row_count: usize,
}

/// Calls `visit` with every column that can be decoded, on every device.
fn for_every_column(queues: &[Queue; 2], mut visit: impl FnMut(Decoded)) {
    let catalog = FileCatalog::default();
    for path in parquet_files() {
        let files = FileSet::parquet(vec![path.to_string_lossy().into_owned()]);
        let file = catalog.open_all(&files).expect("a file").remove(0);
        let metadata = file.footer.metadata().clone();
        let schema = metadata.file_metadata().schema_descr();
        for (index, row_group) in metadata.row_groups().iter().enumerate().take(ROW_GROUPS_MAX) {
            for leaf in 0..schema.num_columns() {
                let field = &schema.root_schema().get_fields()[schema.get_column_root_idx(leaf)];
                let Some(data_type) = file_type(field).data_type else { continue };
                let column = ScanColumn {
                    id: ColumnId(1),
                    name: field.name().to_owned(),
                    data_type,
                    not_null: false,
                    length_max: None,
                    trim_blanks: false,
                    content: ColumnContent::Column,
                    field_id: None,
                    within: Vec::new(),
                    common: Vec::new(),
                };
                if row_group.num_rows() == 0 || check_column(&schema.column(leaf), &column).is_err() {
                    continue;
                }
                let row_count = row_group.num_rows() as usize;
                let (offset, bytes) = chunk_range(row_group.column(leaf)).expect("a range");
                let handle = file.handle().expect("a handle");
                let bytes = file.read_range(&handle, offset, bytes as usize).expect("bytes");
                let chunk = EncodedColumnChunk {
                    bytes: &bytes,
                    metadata: row_group.column(leaf),
                    column: &column,
                    table: "t",
                    path: &path,
                };
                let name = format!(
                    "{} {} row group {index} {:?} {:?}",
                    path.display(),
                    column.name,
                    row_group.column(leaf).compression(),
                    row_group.column(leaf).encodings().collect::<Vec<_>>()
                );
                let columns: Result<Vec<Column>, _> =
                    queues.iter().map(|queue| decode_column_chunk(queue, &chunk, row_count)).collect();
                match columns {
                    Ok(columns) => visit(Decoded { name, columns, row_count }),
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }
}

#[test]
fn column_chunks_decode_alike() {
    let Some(queues) = devices() else { return };
    let (mut compared, mut failed) = (0, Vec::new());
    for_every_column(&queues, |decoded| {
        let batches: Vec<RecordBatch> = queues
            .iter()
            .zip(&decoded.columns)
            .map(|(queue, column)| batch(queue, vec![column.clone()], decoded.row_count))
            .collect();
        compared += 1;
        if batches[0] != batches[1] {
            let differs = |row: &usize| batches[0].slice(*row, 1) != batches[1].slice(*row, 1);
            let rows: Vec<usize> = (0..decoded.row_count).filter(differs).collect();
            failed.push(format!(
                "{}: {} rows differ, first {:?}",
                decoded.name,
                rows.len(),
                &rows[..rows.len().min(4)]
            ));
        }
    });
    println!("compared {compared} column chunks");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn operations_agree_over_every_type() {
    let Some(queues) = devices() else { return };
    let is_sanitized = gpu::is_set("PYSTACHIO_SANITIZED");
    let mut tried = HashMap::<DataType, usize>::new();
    let mut failed = Vec::new();
    for_every_column(&queues, |decoded| {
        let rows = decoded.row_count;
        let tried_of_type = tried.entry(decoded.columns[0].data_type.clone()).or_default();
        if is_sanitized && *tried_of_type == SANITIZED_CHUNKS_MAX {
            return;
        }
        *tried_of_type += 1;
        let mut check = |what: &str, results: [RecordBatch; 2]| {
            if results[0] != results[1] {
                failed.push(format!("{}: {what}", decoded.name));
            }
        };
        let each = |work: &dyn Fn(&Queue, &Column) -> RecordBatch| -> [RecordBatch; 2] {
            [work(&queues[0], &decoded.columns[0]), work(&queues[1], &decoded.columns[1])]
        };
        for (descending, nulls_first) in [(false, false), (true, false), (false, true)] {
            check(
                "sort",
                each(&|queue, column| {
                    let keys = [SortColumn { column: column.clone(), descending, nulls_first }];
                    let order = queue.sort(&keys, rows).expect("an order");
                    batch(queue, vec![queue.gather(column, &order).expect("rows")], rows)
                }),
            );
        }
        check("windows", each(&|queue, column| windows(queue, column, rows)));
        check(
            "group and count",
            each(&|queue, column| {
                let keys = [column.clone()];
                let grouping = queue.group(&keys, rows, rows).expect("groups");
                let leaders = grouping.leaders.clone().expect("leaders");
                let counts =
                    [None, Some(0)].map(|input| aggregate(Accumulator::Count, input, &DataType::Int64));
                let mut found = vec![queue.gather(column, &leaders).expect("keys")];
                found.extend(queue.accumulate(&grouping, &[column], &counts).expect("counts"));
                // Which row stands for a group has no order on a GPU.
                let order = queue
                    .sort(
                        &[SortColumn { column: found[0].clone(), descending: false, nulls_first: true }],
                        grouping.group_count,
                    )
                    .expect("an order");
                let sorted = found.iter().map(|column| queue.gather(column, &order).expect("rows")).collect();
                batch(queue, sorted, grouping.group_count)
            }),
        );
        if SumWidth::of(&decoded.columns[0].data_type) == Ok(SumWidth::Wide) {
            check("sums of one group", each(&|queue, column| sums(queue, &[], column, rows)));
            let keys = |column: &Column| [column.clone()];
            check("sums of groups", each(&|queue, column| sums(queue, &keys(column), column, rows)));
        }
        if decoded.columns[0].data_type.is_float() {
            for place in 0..2 {
                let states = |queue: &Queue, column: &Column| {
                    float_states(queue, std::slice::from_ref(column), column, rows)[place].clone()
                };
                check("sums of floats", each(&states));
                check(
                    "sum of floats",
                    each(&|queue, column| float_states(queue, &[], column, rows)[place].clone()),
                );
            }
        }
        if decoded.columns[0].data_type == DataType::Int64 {
            check(
                "rows that are repeated",
                each(&|queue, column| {
                    let repeats = queue.count_repeats(column.clone(), rows, true).expect("repeats");
                    let count = repeats.total.min(1 << 20) as usize;
                    let (numbers, number) = queue.repeat(&repeats, 0, count).expect("rows");
                    batch(queue, vec![queue.gather(column, &numbers).expect("cells"), number], count)
                }),
            );
        }
        if decoded.columns[0].cell_type == CellType::String {
            check(
                "compressed and decompressed",
                each(&|queue, column| {
                    let (decompressed, is_same) = recompressed(queue, column, rows);
                    assert!(is_same, "{}: compressed and decompressed", decoded.name);
                    decompressed
                }),
            );
        }
        check(
            "packed and unpacked",
            each(&|queue, column| {
                let (unpacked, is_same) = repacked(queue, column, rows);
                assert!(is_same, "{}: packed and unpacked", decoded.name);
                unpacked
            }),
        );
        check(
            "least and greatest",
            each(&|queue, column| {
                let grouping = queue.group(&[], rows, rows).expect("one group");
                let calls = [Accumulator::Min, Accumulator::Max]
                    .map(|accumulator| aggregate(accumulator, Some(0), &column.data_type));
                batch(queue, queue.accumulate(&grouping, &[column], &calls).expect("values"), 1)
            }),
        );
        check(
            "join with itself",
            each(&|queue, column| {
                let few = rows.min(2000);
                let chunk = Chunk { row_count: rows, columns: vec![column.clone()] };
                let build = queue.slice(&chunk, 0, few).expect("a slice");
                let table = queue.build(build.columns, few).expect("a table");
                let pairs = queue
                    .probe(&table, std::slice::from_ref(column), rows, ProbeMode::First, u64::MAX)
                    .expect("pairs")
                    .expect("pairs");
                batch(queue, vec![queue.gather(column, &pairs.probe).expect("rows")], pairs.probe.count)
            }),
        );
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn programs_agree_over_every_type() {
    let Some(queues) = devices() else { return };
    let mut failed = Vec::new();
    for_every_column(&queues, |decoded| {
        let data_type = decoded.columns[0].data_type.clone();
        let input = [(ColumnId(1), data_type.clone())];
        let column = || Expression::column(ColumnId(1), data_type.clone());
        let null = Expression::Literal(Literal { value: Value::Null, data_type: data_type.clone() });
        let mut expressions = vec![
            Expression::predicate(Function::IsNull, vec![column()]),
            Expression::predicate(Function::IsNotDistinctFrom, vec![column(), null]),
            Expression::predicate(Function::LessEqual, vec![column(), column()]),
        ];
        if data_type == DataType::Text {
            let text = |text: &str| Expression::literal(Value::Text(text.to_owned()), DataType::Text);
            expressions.push(Expression::predicate(Function::Like, vec![column(), text("%a%")]));
            expressions.push(Expression::predicate(Function::Equal, vec![column(), text("BUILDING")]));
            expressions.push(Expression::call(Function::Length, vec![column()], DataType::Int32));
            let upper = Function::Upper(pystachio_plan::Ctype::Ascii);
            expressions.push(Expression::call(upper, vec![column()], DataType::Text));
            let matches = Function::Matches(pystachio_plan::Ctype::Ascii);
            expressions.push(Expression::predicate(matches, vec![column(), text("(a|e)[^a-m ]+ |^.b")]));
            let number = |value| Expression::literal(Value::Int(value), DataType::Int32);
            for (function, arguments) in [
                (Function::SplitPart, vec![column(), text(" "), number(-2)]),
                (Function::PadLeft, vec![column(), number(30), text("-ä")]),
                (Function::Translate, vec![column(), text("aeiou "), text("ÄEI")]),
                (Function::Reverse, vec![column()]),
            ] {
                expressions.push(Expression::call(function, arguments, DataType::Text));
            }
        }
        if data_type == DataType::Timestamp {
            let format = "FMDay DDth Mon YYYY, HH12:MI:SS.US am, IYYY-IW, Q J RM";
            let format = Expression::literal(Value::Text(format.to_owned()), DataType::Text);
            let formatted = Expression::call(Function::FormatMoment, vec![column(), format], DataType::Text);
            expressions.push(formatted);
        }
        if let DataType::Decimal { precision: 1..=18, scale } = data_type {
            let one = Expression::literal(Value::Decimal(1), DataType::Decimal { precision: 1, scale: 0 });
            let difference = DataType::Decimal { precision: 19, scale };
            let rest = Expression::call(Function::Subtract, vec![one, column()], difference);
            let product = DataType::Decimal { precision: 38, scale: scale * 2 };
            expressions.push(Expression::call(Function::Multiply, vec![column(), rest], product));
        }
        for expression in expressions {
            let Ok(program) = Program::compile(std::slice::from_ref(&expression), &input, &[]) else {
                continue;
            };
            let run = |index: usize| {
                let (queue, column): (&Queue, &Column) = (&queues[index], &decoded.columns[index]);
                let chunk = Chunk { row_count: decoded.row_count, columns: vec![column.clone()] };
                let values = program.evaluate(queue, &chunk);
                values.map(|values| batch(queue, values, decoded.row_count))
            };
            let results = [run(0), run(1)];
            if results[0] != results[1] {
                failed.push(format!("{}: {expression:?}", decoded.name));
            }
            if *expression.data_type() == DataType::Bool {
                let filter = Filter::compile(&expression, &input, &[]).expect("a filter");
                let select = |index: usize| {
                    let (queue, column) = (&queues[index], &decoded.columns[index]);
                    let chunk = Chunk { row_count: decoded.row_count, columns: vec![column.clone()] };
                    let flags = filter.evaluate(queue, &chunk).expect("flags");
                    let rows = queue.select(&flags.values, decoded.row_count).expect("rows");
                    batch(queue, vec![queue.gather(column, &rows).expect("cells")], rows.count)
                };
                if select(0) != select(1) {
                    failed.push(format!("{}: filter {expression:?}", decoded.name));
                }
            }
        }
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn decimals_of_more_than_38_digits_agree() {
    let Some(queues) = devices() else { return };
    let (mut compared, mut failed) = (0, Vec::new());
    for_every_column(&queues, |decoded| {
        let DataType::Decimal { precision: 1..=38, scale } = decoded.columns[0].data_type else { return };
        let data_type = decoded.columns[0].data_type.clone();
        let input = [(ColumnId(1), data_type.clone())];
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        let number = |value, precision| Expression::literal(Value::Decimal(value), decimal(precision, 0));
        let call = |function, arguments, result| Expression::call(function, arguments, result);
        let column = Expression::column(ColumnId(1), data_type.clone());
        let factor = number(10_i128.pow(30) + 57, 31);
        let product = call(Function::Multiply, vec![column.clone(), factor], decimal(69, scale));
        let thirty = Expression::int32(30);
        let shown = Expression::int32(scale.into());
        let divisor = || number(999_983, 6);
        let digits = vec![product.clone(), shown, divisor(), Expression::int32(0)];
        let expressions = [
            call(Function::DivideDecimal, vec![product.clone(), divisor(), thirty.clone()], decimal(76, 30)),
            call(Function::DivideDecimal, vec![column.clone(), product.clone(), thirty], decimal(76, 40)),
            call(Function::QuotientScale, digits, DataType::Int32),
            call(Function::Modulo, vec![product.clone(), divisor()], decimal(69, scale)),
            call(Function::Add, vec![product.clone(), column.clone()], decimal(70, scale)),
            call(Function::Subtract, vec![column.clone(), product.clone()], decimal(70, scale)),
            call(Function::Round, vec![product.clone(), Expression::int32(-20)], decimal(69, scale)),
            call(Function::Ceiling, vec![product.clone()], decimal(68, 0)),
            call(Function::Absolute, vec![product.clone()], decimal(69, scale)),
            call(Function::Cast, vec![product.clone()], DataType::Float64),
            call(Function::Cast, vec![product.clone()], DataType::Int64),
            call(Function::Cast, vec![product.clone()], decimal(76, scale + 5)),
            Expression::predicate(Function::Less, vec![product.clone(), column]),
        ];
        let rows = decoded.row_count;
        for expression in expressions {
            let program =
                Program::compile(std::slice::from_ref(&expression), &input, &[]).expect("a program");
            let run = |index: usize| {
                let (queue, column): (&Queue, &Column) = (&queues[index], &decoded.columns[index]);
                let chunk = Chunk { row_count: rows, columns: vec![column.clone()] };
                let values = program.evaluate(queue, &chunk);
                values.map(|values| batch(queue, values, rows))
            };
            compared += 1;
            if run(0) != run(1) {
                failed.push(format!("{}: {expression:?}", decoded.name));
            }
        }
        let program = Program::compile(std::slice::from_ref(&product), &input, &[]).expect("a program");
        let operate = |index: usize| {
            let (queue, column): (&Queue, &Column) = (&queues[index], &decoded.columns[index]);
            let chunk = Chunk { row_count: rows, columns: vec![column.clone()] };
            let large = program.evaluate(queue, &chunk).expect("products").remove(0);
            let accumulate = |keys: &[Column]| {
                let grouping = queue.group(keys, rows, rows).expect("groups");
                let calls = [
                    aggregate(Accumulator::Min, Some(0), &large.data_type),
                    aggregate(Accumulator::Max, Some(0), &large.data_type),
                    aggregate(Accumulator::Sum, Some(0), &decimal(76, scale)),
                ];
                let found = queue.accumulate(&grouping, &[&large], &calls).expect("aggregates");
                let keys = [SortColumn { column: found[0].clone(), descending: true, nulls_first: false }];
                let order = queue.sort(&keys, grouping.group_count).expect("an order");
                let sorted = found.iter().map(|column| queue.gather(column, &order).expect("rows")).collect();
                batch(queue, sorted, grouping.group_count)
            };
            [accumulate(&[]), accumulate(std::slice::from_ref(&large))]
        };
        if operate(0) != operate(1) {
            failed.push(format!("{}: aggregates", decoded.name));
        }
    });
    println!("compared {compared} expressions");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
