//! Rows that are spread by their keys: all come, and equal keys to one rank.

use std::{collections::BTreeMap, path::Path, thread};

use arrow::util::display::ArrayFormatter;
use pystachio_engine::StopFlag;
use pystachio_gpu::{
    device::{Buffer, CellType, Chunk, Column, StringCell},
    exchange::{ExchangeId, ExchangeSpec, Narrowing, QueryId, Rank, ReceivedBlock, Routing},
    operation::{Queue, column_schema, to_arrow},
};
use pystachio_plan::{DataType, Result};

use super::{Member, RANK_TIME_MAX, mixed, network, options, say};
use crate::gpu::ranks::{leave_file, wait_for_file};

const MEMORY_BYTES: u64 = 64 << 20;
/// Chunks of each rank, one of them without rows.
const CHUNKS: [usize; 5] = [1, 5000, 0, 20_000, 300];

fn types() -> Vec<DataType> {
    vec![DataType::Int64, DataType::Int64, DataType::Text]
}

/// Key, value and text.
type Row = (Option<i64>, i64, Option<String>);

/// A row, the same on every rank.
fn row(rank: usize, chunk: usize, number: usize) -> Row {
    let seed = mixed(&[rank as u64, chunk as u64, number as u64]);
    let key = (!seed.is_multiple_of(9)).then_some((seed % 4000) as i64 - 1000);
    let text = (seed % 5 != 1).then(|| "blå ".repeat((seed >> 20) as usize % 5));
    (key, (seed >> 3) as i64, text)
}

fn line(rank: usize, chunk: usize, number: usize) -> String {
    let (key, value, text) = row(rank, chunk, number);
    format!("{}|{value}|{}|", key.map_or(String::new(), |key| key.to_string()), text.unwrap_or_default())
}

fn upload<T: bytemuck::Pod>(queue: &Queue, values: &[T]) -> Buffer {
    queue.memory().upload(values, queue.stream()).unwrap()
}

fn column(queue: &Queue, place: usize, values: Buffer, valid: Option<Vec<u8>>) -> Column {
    let data_type = types().swap_remove(place);
    Column {
        cell_type: CellType::of(&data_type).unwrap(),
        data_type,
        values,
        validity: valid.map(|flags| upload(queue, &flags)),
        strings: Vec::new(),
    }
}

fn chunk(queue: &Queue, rank: usize, chunk: usize) -> Chunk {
    let rows: Vec<_> = (0..CHUNKS[chunk]).map(|number| row(rank, chunk, number)).collect();
    let keys: Vec<i64> = rows.iter().map(|row| row.0.unwrap_or(0)).collect();
    let values: Vec<i64> = rows.iter().map(|row| row.1).collect();
    let text: String = rows.iter().filter_map(|row| row.2.as_deref()).collect();
    let bytes = upload(queue, format!("{text} ").as_bytes());
    let mut address = bytes.address();
    let cells: Vec<StringCell> = rows
        .iter()
        .map(|row| {
            let length = row.2.as_ref().map_or(0, String::len) as u32;
            let start = address;
            address += u64::from(length);
            StringCell { address: start, length, reserved: 0 }
        })
        .collect();
    let valid = |is_valid: fn(&Row) -> bool| Some(rows.iter().map(|row| u8::from(is_valid(row))).collect());
    let text = column(queue, 2, upload(queue, &cells), valid(|row| row.2.is_some()));
    let columns = vec![
        column(queue, 0, upload(queue, &keys), valid(|row| row.0.is_some())),
        column(queue, 1, upload(queue, &values), None),
        Column { strings: vec![bytes], ..text },
    ];
    Chunk { row_count: rows.len(), columns }
}

fn lines(queue: &Queue, chunk: &Chunk) -> Vec<String> {
    let batch = to_arrow(queue, chunk, &column_schema(&types())).unwrap();
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &Default::default()).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| format!("{}|", column.value(row))).collect())
        .collect()
}

/// Spreads rows by their keys, narrowed on some ranks or not; what came is compared with what all ranks sent.
pub fn move_rows(member: &Member, folder: &Path) {
    let network = network(member, options());
    say(member, "connected");
    for query in 0..3 {
        let is_narrowed = (query + u64::from(member.rank.0)) % 2 == 1;
        let narrowing = if is_narrowed { Narrowing::Always } else { Narrowing::Never };
        let spec = ExchangeSpec { narrowing, ..ExchangeSpec::new(ExchangeId(0), 4 << 20) };
        let mut open = network.open_query(QueryId(query), &[spec], StopFlag::default()).unwrap();
        let producer = open.take_outbox(ExchangeId(0)).unwrap();
        let (sender, rank) = (member.clone(), member.rank.place());
        let sending = thread::spawn(move || -> Result<()> {
            let queue = Queue::new(&sender.memory(MEMORY_BYTES))?;
            for number in 0..CHUNKS.len() {
                let chunk = chunk(&queue, rank, number);
                producer.send(
                    &queue,
                    &chunk,
                    &Routing::Hash { keys: &chunk.columns[..1], nulls_match: true, staying: None },
                )?;
            }
            producer.finish();
            Ok(())
        });
        let consumer = open.take_inbox(ExchangeId(0)).unwrap();
        let queue = Queue::new(&member.memory(MEMORY_BYTES)).unwrap();
        let mut received = Vec::new();
        while let Some(block) = consumer.take(queue.stream()).unwrap() {
            for chunk in ReceivedBlock::unpack(vec![block], &queue, &types()).unwrap() {
                received.extend(lines(&queue, &chunk.unwrap()));
            }
        }
        sending.join().unwrap().unwrap();
        open.finish().unwrap();
        say(member, &format!("query {query}: {} rows came", received.len()));
        leave_file(folder, &format!("rows-{query}-{}", member.rank), received.join("\n").as_bytes());
        check(member, folder, query);
    }
    member.meet(folder, "rows");
}

/// Compares what all ranks got with what all sent.
fn check(member: &Member, folder: &Path, query: u64) {
    let mut received = Vec::new();
    let mut owners = BTreeMap::new();
    for rank in 0..member.rank_count {
        let name = format!("rows-{query}-{}", Rank(rank as u16));
        let text = wait_for_file(folder, &name, RANK_TIME_MAX).expect("another rank's rows");
        let text = String::from_utf8(text).expect("text");
        assert!(text.lines().count() > 5000, "rows are not spread");
        for line in text.lines() {
            let key = line.split('|').next().unwrap().to_owned();
            let owner = *owners.entry(key).or_insert(rank);
            assert_eq!(owner, rank, "a key is on two ranks: {line}");
            received.push(line.to_owned());
        }
    }
    let numbers = |rank| {
        CHUNKS
            .iter()
            .enumerate()
            .flat_map(move |(chunk, count)| (0..*count).map(move |number| line(rank, chunk, number)))
    };
    let mut sent: Vec<String> = (0..member.rank_count).flat_map(numbers).collect();
    sent.sort();
    received.sort();
    assert!(received == sent, "rows are not those that were sent: {} and {}", received.len(), sent.len());
}
