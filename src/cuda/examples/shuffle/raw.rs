//! All-to-all of bytes through a communicator.

use std::{path::Path, time::Instant};

use pystachio_gpu::exchange::{Communicator, Rank, ReceivePart, SendPart};
use serde_json::{Value, json};

use super::{
    MB, Options,
    ranks::{Carrier, Member},
};

/// Groups on their way at once.
const DEPTHS: [usize; 2] = [1, 2];
/// Bytes that a measurement moves, in so many groups at least and at most.
const MOVED_BYTES: u64 = 16 << 30;
const GROUPS: [u64; 2] = [8, 200];
/// Of a control block, as `exchange/message.rs` has them for two ranks.
const BLOCK_BYTES: usize = 14_064;
const GATHERS: usize = 500;
/// What a block has that the first transfer after connecting is measured with, and how many times it is sent again.
const FIRST_BYTES: u64 = 16 * MB;
const TRANSFERS_AFTER_FIRST: usize = 9;

/// Connects, and moves messages of every size.
pub fn measure(
    member: &Member,
    options: &Options,
    folder: &Path,
    (generation, (variant, carrier)): (u64, (&str, Carrier)),
) -> Vec<Value> {
    member.meet(folder, &format!("raw-{generation}"));
    let begun = Instant::now();
    let mut communicator = member.connect_by(generation, carrier).unwrap_or_else(|error| panic!("{error}"));
    let mut results =
        vec![json!({ "kind": "connect", "variant": variant, "seconds": [begun.elapsed().as_secs_f64()] })];
    let block = vec![7; BLOCK_BYTES];
    let blocks = first_blocks(&mut *communicator, member);
    results.push(json!({ "kind": "first", "variant": variant, "bytes": FIRST_BYTES, "seconds": blocks }));
    let mut gathers = Vec::with_capacity(GATHERS);
    // The first one connects channels.
    for _ in 0..=GATHERS {
        gathers.push(gather(&mut *communicator, &block));
    }
    gathers.remove(0);
    gathers.sort_by(f64::total_cmp);
    let at = |part: usize| gathers[gathers.len() * part / 100];
    results.push(json!({
        "kind": "gather", "variant": variant, "bytes": BLOCK_BYTES,
        "seconds": [at(50)], "p90": at(90), "p99": at(99),
    }));
    for bytes in &options.sizes {
        for depth in DEPTHS {
            let seconds = exchange(&mut *communicator, member, *bytes, depth);
            results.push(json!({
                "kind": "raw", "variant": variant, "bytes": bytes, "depth": depth, "seconds": [seconds],
            }));
        }
    }
    // No rank leaves while others measure.
    gather(&mut *communicator, &block);
    member.meet(folder, &format!("raw-end-{generation}"));
    results
}

fn gather(communicator: &mut dyn Communicator, block: &[u8]) -> f64 {
    let begun = Instant::now();
    communicator.begin_gather(block).unwrap_or_else(|error| panic!("{error}"));
    while communicator.poll_gather().unwrap_or_else(|error| panic!("{error}")).is_none() {
        std::hint::spin_loop();
    }
    begun.elapsed().as_secs_f64()
}

/// Seconds of the first blocks that ranks send each other after they were connected, and of later ones: their median.
fn first_blocks(communicator: &mut dyn Communicator, member: &Member) -> [f64; 2] {
    let parts = all_to_all(member, FIRST_BYTES);
    // All ranks are there.
    gather(communicator, &[7; BLOCK_BYTES]);
    let first = groups(communicator, &parts, (1, 1));
    let mut later: Vec<f64> =
        (0..TRANSFERS_AFTER_FIRST).map(|_| groups(communicator, &parts, (1, 1))).collect();
    later.sort_by(f64::total_cmp);
    [first, later[TRANSFERS_AFTER_FIRST / 2]]
}

/// So many bytes of this rank, spread over all others, and as many that come.
fn all_to_all(member: &Member, bytes: u64) -> (Vec<SendPart>, Vec<ReceivePart>) {
    let (own, count) = (member.rank.place(), member.rank_count as u64);
    let (start, region_bytes) = member.region.range();
    let part = bytes / (count - 1).max(1) / 64 * 64;
    assert!(2 * bytes <= region_bytes, "a message has room");
    let others = (0..count).filter(|place| *place != own as u64);
    others
        .zip(0..)
        .map(|(place, number)| {
            let (other, offset) = (Rank(place as u16), number * part);
            let send = SendPart { to: other, address: start + offset, bytes: part };
            (send, ReceivePart { from: other, address: start + region_bytes / 2 + offset, bytes: part })
        })
        .unzip()
}

/// Seconds of one group of so many, of which some are on their way at once.
fn groups(
    communicator: &mut dyn Communicator,
    (sends, receives): &(Vec<SendPart>, Vec<ReceivePart>),
    (count, depth): (u64, u64),
) -> f64 {
    let before = communicator.poll_transfers().unwrap_or_else(|error| panic!("{error}"));
    let begun = Instant::now();
    let (mut started, mut over) = (0, 0);
    while over < count {
        while started < count && started - over < depth {
            communicator.begin_transfers(sends, receives).unwrap_or_else(|error| panic!("{error}"));
            started += 1;
        }
        over = communicator.poll_transfers().unwrap_or_else(|error| panic!("{error}")) - before;
    }
    begun.elapsed().as_secs_f64() / count as f64
}

/// Seconds of one message of so many bytes, of several one after another.
fn exchange(communicator: &mut dyn Communicator, member: &Member, bytes: u64, depth: usize) -> f64 {
    let parts = all_to_all(member, bytes);
    let is_emulated = member.platform.name() == "emulated";
    let count = if is_emulated { 3 } else { (MOVED_BYTES / bytes.max(MB)).clamp(GROUPS[0], GROUPS[1]) };
    let mut run = |count: u64| {
        gather(communicator, &[7; BLOCK_BYTES]);
        groups(communicator, &parts, (count, depth as u64))
    };
    run(2);
    run(count)
}
