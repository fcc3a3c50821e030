//! Rows through an exchange.

use std::{
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use pystachio_engine::StopFlag;
use pystachio_gpu::{
    device::{CellType, Chunk, Column, DeviceMemory},
    exchange::{
        ExchangeId, ExchangeMetrics, ExchangeNetwork, ExchangeSpec, InboxConsumer, Narrowing, NetworkOptions,
        QueryId, ReceivedBlock, Routing,
    },
    operation::Queue,
};
use pystachio_plan::{DataType, Result};
use serde_json::{Value, json};

use super::{
    MB, Options,
    ranks::{Carrier, Member},
};

/// Memory beside the region: chunks that are sent, spread and unpacked.
const MEMORY_BYTES: u64 = 16 << 30;
const EMULATED_MEMORY_BYTES: u64 = 512 << 20;
/// An outbox and an inbox: some rounds' bytes.
const BUFFER_BYTES: u64 = 1 << 30;
const EMULATED_BUFFER_BYTES: u64 = 16 << 20;
/// Columns with which each technique is turned off.
const VARIANT_COLUMNS: usize = 4;

pub fn buffer_bytes(options: &Options) -> u64 {
    if options.is_emulated { EMULATED_BUFFER_BYTES } else { BUFFER_BYTES }
}

/// Bits of values that are narrowed: to half of their bytes.
const NARROW_BITS: u32 = 32;

/// What is turned off, or on.
#[derive(Clone)]
pub struct Variant {
    name: &'static str,
    columns: usize,
    /// Threads that send, each on a stream of its own.
    senders: usize,
    narrowing: Narrowing,
    /// Of each value.
    value_bits: u32,
    network: NetworkOptions,
    carrier: Carrier,
}

/// All numbers of columns, not narrowed and narrowed; what it costs to look for narrow values where there are none; then each technique turned
/// off. Of what is not used just as many columns as those have.
pub fn variants(
    options: &Options,
    (carrier_name, carrier): (&'static str, Carrier),
    is_used: bool,
) -> Vec<Variant> {
    let network = match options.is_emulated {
        true => NetworkOptions { block_bytes_max: MB, gather_bytes_min: MB, ..NetworkOptions::default() },
        false => NetworkOptions::default(),
    };
    let with = |name, columns, network| Variant {
        name,
        columns,
        senders: 1,
        narrowing: Narrowing::Never,
        value_bits: u64::BITS,
        network,
        carrier,
    };
    if !is_used {
        return vec![with(carrier_name, VARIANT_COLUMNS, network)];
    }
    let small = NetworkOptions { block_bytes_max: 4 * MB, round_bytes_max: 16 * MB, ..network };
    let at_once = NetworkOptions { gather_bytes_min: 0, ..network };
    let of_columns = options.columns.iter().map(|columns| with("all", *columns, network));
    let narrowed = |name, columns, value_bits| Variant {
        narrowing: Narrowing::Always,
        value_bits,
        ..with(name, columns, network)
    };
    let of_narrow = options.columns.iter().map(|columns| narrowed("narrowed", *columns, NARROW_BITS));
    let of_wide = narrowed("nothing to narrow", VARIANT_COLUMNS, u64::BITS);
    let one_group = NetworkOptions { groups_max: 1, ..network };
    let many_groups = NetworkOptions { groups_max: 4, ..network };
    let others = [
        ("no gathering", at_once),
        ("small rounds", small),
        ("one group", one_group),
        ("four groups", many_groups),
        ("small, four groups", NetworkOptions { groups_max: 4, ..small }),
    ];
    let others = others.map(|(name, network)| with(name, VARIANT_COLUMNS, network));
    let senders = [("two senders", 2), ("four senders", 4)];
    let senders = senders.map(|(name, senders)| Variant { senders, ..with(name, VARIANT_COLUMNS, network) });
    of_columns.chain(of_narrow).chain([of_wide]).chain(others).chain(senders).collect()
}

/// Connects, and moves the rows of all ranks some times. What it fails with is a result too, which says why.
pub fn measure(
    member: &Member,
    options: &Options,
    folder: &Path,
    (generation, variant): (u64, Variant),
) -> Value {
    measure_or_fail(member, options, folder, (generation, &variant)).unwrap_or_else(|error| {
        let reason = error.to_string();
        json!({ "kind": "failed", "variant": variant.name, "columns": variant.columns, "reason": reason })
    })
}

fn measure_or_fail(
    member: &Member,
    options: &Options,
    folder: &Path,
    (generation, variant): (u64, &Variant),
) -> Result<Value> {
    let communicator = member.connect_by(generation, variant.carrier)?;
    let network = NetworkOptions { generation, ..variant.network };
    let network = ExchangeNetwork::start(communicator, member.region.clone(), network)?;
    let memory = member.memory(if options.is_emulated { EMULATED_MEMORY_BYTES } else { MEMORY_BYTES });
    let chunk_bytes = 8 * (options.chunk_rows * variant.columns) as u64;
    let chunks = (options.rows_bytes / chunk_bytes).max(1);
    let (mut seconds, mut last) = (Vec::new(), Ok(ExchangeMetrics::default()));
    for run in 0..=options.runs {
        member.meet(folder, &format!("rows-{generation}-{run}"));
        if let Err(error) = &last {
            // Ranks that have not failed yet are told, and all come to the next point together. They may have heard it already.
            let _ = network.refuse_query(QueryId(run as u64), error);
            continue;
        }
        // The first one commits memory.
        let count = if run == 0 { chunks.min(4) } else { chunks };
        let shuffled = shuffle(&network, &memory, (run as u64, count), (options.chunk_rows, variant));
        last = shuffled.map(|(elapsed, metrics)| {
            seconds.push(elapsed.as_secs_f64());
            metrics
        });
    }
    member.meet(folder, &format!("rows-{generation}-end"));
    let metrics = last?;
    seconds.remove(0);
    let rows_bytes = chunks * chunk_bytes;
    let off_rank = rows_bytes / member.rank_count as u64 * (member.rank_count as u64 - 1);
    Ok(json!({
        "kind": "rows", "variant": variant.name, "columns": variant.columns, "bytes": off_rank,
        "rows_bytes": rows_bytes, "seconds": seconds, "blocks": metrics.sent_blocks,
        "sent_bytes": metrics.sent_bytes, "sent_wide_bytes": metrics.sent_wide_bytes,
        "link_gb_s": network.link().bytes_per_s().map(|bytes_per_s| bytes_per_s / 1e9),
        "producers_waited_s": metrics.producers_waited_us as f64 / 1e6,
        "consumers_waited_s": metrics.consumers_waited_us as f64 / 1e6,
    }))
}

/// Sends a chunk so many times, by all senders together, and takes what comes. Returns how long that took from when the senders have made their
/// chunks.
fn shuffle(
    network: &ExchangeNetwork,
    memory: &DeviceMemory,
    (query, chunks): (u64, u64),
    (row_count, variant): (usize, &Variant),
) -> Result<(Duration, ExchangeMetrics)> {
    let Variant { columns, senders, narrowing, value_bits, .. } = *variant;
    let buffer_bytes = network.region().range().1 / 2 - 32 * MB;
    let buffer_bytes = buffer_bytes.min(BUFFER_BYTES);
    let spec = ExchangeSpec { narrowing, ..ExchangeSpec::new(ExchangeId(0), buffer_bytes) };
    let opened = network.open_query(QueryId(query), &[spec], StopFlag::default());
    let mut open = opened.inspect_err(|error| {
        // Where the network has failed the others know.
        let _ = network.refuse_query(QueryId(query), error);
    })?;
    let (producer, consumer) = (open.take_outbox(ExchangeId(0))?, open.take_inbox(ExchangeId(0))?);
    let are_ready = Barrier::new(senders + 1);
    let elapsed = thread::scope(|scope| {
        let send = |sender: u64| {
            let (producer, are_ready) = (producer.clone(), &are_ready);
            let count = (sender..chunks).step_by(senders).count();
            scope.spawn(move || -> Result<()> {
                let make = || -> Result<_> {
                    let queue = Queue::new(memory)?;
                    let chunk = chunk(&queue, row_count, (columns, value_bits))?;
                    queue.wait()?;
                    Ok((queue, chunk))
                };
                let made = make();
                are_ready.wait();
                let (queue, chunk) = made?;
                for _ in 0..count {
                    let routing =
                        Routing::Hash { keys: &chunk.columns[..1], nulls_match: true, staying: None };
                    drop(producer.send_to_others(&queue, &chunk, &routing)?);
                }
                producer.finish();
                Ok(())
            })
        };
        let sending: Vec<_> = (0..senders as u64).map(send).collect();
        producer.finish();
        are_ready.wait();
        let begun = Instant::now();
        // Senders wait for room until the query is reported as ended.
        let received = receive(&consumer, memory, columns).inspect_err(|error| open.abort(error));
        sending.into_iter().try_for_each(|sender| sender.join().unwrap())?;
        received.map(|()| begun.elapsed())
    })?;
    open.finish()?;
    Ok((elapsed, open.metrics(ExchangeId(0)).unwrap_or_default()))
}

/// Takes and unpacks what comes.
fn receive(consumer: &InboxConsumer, memory: &DeviceMemory, columns: usize) -> Result<()> {
    let queue = Queue::new(memory)?;
    let types = vec![DataType::Int64; columns];
    loop {
        let blocks = consumer.take_all(queue.stream())?;
        if blocks.is_empty() {
            return Ok(());
        }
        ReceivedBlock::unpack(blocks, &queue, &types)?.try_for_each(|chunk| chunk.map(drop))?;
    }
}

/// Columns of numbers of so many bits, each with memory of its own.
fn chunk(queue: &Queue, row_count: usize, (columns, value_bits): (usize, u32)) -> Result<Chunk> {
    let (memory, stream) = (queue.memory(), queue.stream());
    let key = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - value_bits);
    let keys: Vec<u64> = (0..row_count as u64).map(key).collect();
    let keys = memory.upload(&keys, stream)?;
    let column = |values| Column {
        data_type: DataType::Int64,
        cell_type: CellType::Int64,
        values,
        validity: None,
        strings: Vec::new(),
    };
    let copy = |_| {
        let values = memory.allocate(keys.bytes(), stream)?;
        memory.copy(keys.address(), values.address(), keys.bytes(), stream)?;
        Ok(column(values))
    };
    let others = (1..columns).map(copy).collect::<Result<Vec<_>>>()?;
    let columns = std::iter::once(column(keys.clone())).chain(others).collect();
    Ok(Chunk { row_count, columns })
}
