//! Chunks off the device and back.

use std::sync::Arc;

use pystachio_engine::spill::{QuerySpill, SpillFile, Spilling};
use pystachio_plan::{DataType, SpillRequest};

use super::*;
use crate::{
    device::{CellType, Chunk, Column, DeviceMemory, EmulatedPlatform, HostMemory, StringCell},
    operation::{HashPartitioning, Queue, column_schema, to_arrow},
};

/// Numbers and texts, each seventh of them NULL.
fn chunk(queue: &Queue, first: i64, row_count: usize) -> Chunk {
    let numbers: Vec<i64> = (first..).take(row_count).collect();
    let texts: Vec<String> = numbers.iter().map(|number| format!("text {number}")).collect();
    let bytes = queue.upload(texts.concat().as_bytes()).unwrap();
    let mut address = bytes.address();
    let mut cell = |text: &String| {
        let cell = StringCell { address, length: text.len() as u32, reserved: 0 };
        address += text.len() as u64;
        cell
    };
    let cells: Vec<StringCell> = texts.iter().map(&mut cell).collect();
    let validity: Vec<u8> = numbers.iter().map(|number| u8::from(number % 7 != 0)).collect();
    let column = |data_type, cell_type, values| Column {
        data_type,
        cell_type,
        values,
        validity: None,
        strings: Vec::new(),
    };
    let number = column(DataType::Int64, CellType::Int64, queue.upload(&numbers).unwrap());
    let text = column(DataType::Text, CellType::String, queue.upload(&cells).unwrap());
    let text = Column { validity: Some(queue.upload(&validity).unwrap()), strings: vec![bytes], ..text };
    Chunk { row_count, columns: vec![number, text] }
}

fn query(folder: &std::path::Path) -> QuerySpill {
    Spilling::to(folder).of_query(&SpillRequest::default())
}

fn store(queue: &Queue, host_bytes: u64, folder: &tempfile::TempDir) -> SpillStore {
    let host = HostMemory::new(queue.memory().platform().clone(), host_bytes);
    SpillStore::new(host, query(folder.path()))
}

#[test]
fn partitions_come_back_as_they_went() {
    let folder = tempfile::tempdir().unwrap();
    let schema = column_schema(&[DataType::Int64, DataType::Text]);
    // With an account of a query they may stay on the device: all, those of two chunks, and none.
    for (device_bytes, host_bytes, stored_bytes) in [
        (None, 0, 3501 * 25..),
        (None, 60_000, 3501 * 25..),
        (None, 1 << 20, 3501 * 25..),
        (Some(1 << 30), 1 << 20, 0..),
        (Some(600_000), 1 << 20, 2500 * 25..),
        (Some(500_000), 60_000, 2500 * 25..),
    ] {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), device_bytes.unwrap_or(1 << 30));
        let memory = if device_bytes.is_some() { memory.open_account() } else { memory };
        let queue = Queue::new(&memory).unwrap();
        let store = store(&queue, host_bytes, &folder).keeping();
        let by = HashPartitioning { partition_count: 5, level: 0, nulls_match: true };
        let mut partitions = SpilledPartitions::new(by.partition_count);
        let mut expected = vec![Vec::new(); by.partition_count];
        for (first, row_count) in [(0, 1000), (1000, 1), (1001, 2500)] {
            let chunk = chunk(&queue, first, row_count);
            let partitioned = queue.partition(&chunk.columns[..1], row_count, by).unwrap();
            let chunk = queue.gather_chunk(&chunk, &partitioned.rows).unwrap();
            for (place, rows) in expected.iter_mut().enumerate() {
                let (first, end) = (partitioned.bounds[place], partitioned.bounds[place + 1]);
                if first < end {
                    rows.push(
                        to_arrow(&queue, &queue.slice(&chunk, first, end - first).unwrap(), &schema).unwrap(),
                    );
                }
            }
            partitions.push(SpilledChunk::write(&queue, &store, &chunk, partitioned.bounds).unwrap());
        }
        let context = format!("{device_bytes:?}: {}", store.written_bytes());
        assert!(stored_bytes.contains(&store.written_bytes()), "{context}");
        assert!(device_bytes != Some(1 << 30) || store.written_bytes() == 0, "{context}");
        let mut row_count = 0;
        for (part, expected) in partitions.into_parts().into_iter().zip(expected) {
            let expected = arrow::compute::concat_batches(&schema, &expected).unwrap();
            assert!(part.row_count() > 500, "rows are not spread: {}", part.row_count());
            assert_eq!(part.row_count(), expected.num_rows());
            row_count += part.row_count();
            let whole = part.read(&queue, part.first_batch(u64::MAX).unwrap()).unwrap();
            assert_eq!(whole.cell_bytes() + text_bytes(&whole), part.bytes());
            assert_eq!(to_arrow(&queue, &whole, &schema).unwrap(), expected);
        }
        assert_eq!(row_count, 3501);
    }
}

fn text_bytes(chunk: &Chunk) -> u64 {
    chunk.held_bytes() - chunk.cell_bytes()
}

#[test]
fn batches_take_as_many_ranges_as_there_is_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1 << 30);
    let queue = Queue::new(&memory).unwrap();
    let store = store(&queue, 1 << 20, &folder);
    let mut partitions = SpilledPartitions::new(1);
    for first in 0..6 {
        let chunk = chunk(&queue, first * 100, 100);
        partitions.push(SpilledChunk::write(&queue, &store, &chunk, vec![0, 100]).unwrap());
    }
    let mut part = partitions.into_parts().remove(0);
    // Eight ranges a chunk.
    let a_chunk = part.bytes() / 6;
    assert_eq!(part.batches(u64::MAX).as_slice(), std::slice::from_ref(&(0..48)));
    assert_eq!(part.batches(1).len(), 48);
    let batches = part.batches(a_chunk * 5 / 2);
    assert_eq!(batches.len(), 3);
    assert!(batches.windows(2).all(|pair| pair[0].end == pair[1].start), "{batches:?}");
    assert_eq!(part.first_batch(a_chunk * 5 / 2), batches.first().cloned());
    for batch in batches {
        let chunk = part.read(&queue, batch).unwrap();
        assert!(chunk.cell_bytes() + text_bytes(&chunk) <= a_chunk * 5 / 2);
    }
    part.forget(32);
    assert_eq!((part.row_count(), part.first_batch(1)), (200, Some(0..1)));
    part.forget(16);
    assert_eq!((part.row_count(), part.bytes(), part.first_batch(1)), (0, 0, None));
}

#[test]
fn a_chunk_that_does_not_fit_a_full_disk_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1 << 30);
    let queue = Queue::new(&memory).unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let host = HostMemory::new(memory.platform().clone(), 0);
    let store = SpillStore::over(host, SpillFile::over(full, query(folder.path())));
    let error =
        SpilledChunk::write(&queue, &store, &chunk(&queue, 0, 10), vec![0, 10]).map(|_| ()).unwrap_err();
    assert!(error.message.contains(&folder.path().display().to_string()), "{error}");
}
