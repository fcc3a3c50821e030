//! The first transfers of ranks that have just been connected.
//!
//! ```text
//!         region                                             region
//! rank 0 ┌─ sent to every other rank ─┐ ──► each other rank ┌─ where all of it is written ─┐     and the same from every rank, in one group
//! ```
//!
//! A network makes some of what it needs when a rank first sends to another one. Between GPUs that is NCCL's channels to the other GPU, its
//! memory, mapped here, and the kernels that move bytes, which a driver loads when they are launched. The first query of an engine took 180 ms
//! longer on two H100s than on one, and those after it did not. So ranks send each other something before anybody is told that they are connected.
//!
//! The same moves tell how fast the link is: some more of them, of which the fastest counts. A move of this size takes long against a look, over a
//! link of 25 GB/s, and is over too soon to be more than a lower bound over NVLink.
//!
//! Invariants: it is what blocks use: the same calls, the stream of the communicator, memory of the region. All ranks send as much to each other one.
//! Nobody reads what came, so that all of it may come to one place. Whatever waits for a rank has a time limit.
//!
//! Deliberately absent: gathers, with which rounds begin before there is a query; kernels of this engine, which the device loads when it is opened.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pystachio_plan::{ErrorKind, Result};

use super::{
    Communicator, ExchangeRegion, Patience, Rank, ReceivePart, SendPart,
    communicator::silence_error,
    outbox::keep_until_used,
    region::{ExtentBytes, RegionBlock, RegionExtent},
};

/// Bytes for each other rank at most: NCCL moves pieces of 512 KB over NVLink (`NCCL_P2P_NVL_CHUNKSIZE`) and has at most 32 channels between two
/// GPUs, so that each of them has something of it.
const WARM_UP_BYTES_MAX: u64 = 16 << 20;
/// Pause between looks: what a query would wait for is a hundred times as long.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// And where a move is measured: a thirtieth of what it takes over a link of 25 GB/s.
const MEASURED_LOOK_INTERVAL: Duration = Duration::from_micros(20);
/// Moves that are measured. Ranks begin the first of them at different times.
const MEASURED_MOVES: usize = 4;

/// Moves as much as a block has between each two ranks, both ways at once, and waits for that, as all ranks do. `block_bytes_max` is the
/// network's, the same on all ranks. Returns how many bytes a second went from this rank to others, at least; nothing if there are no others.
///
/// # Errors
///
/// `Peer` for another rank that has failed or is not there in time, with its number as far as that is known; `OutOfMemory` if earlier queries
/// have the region for as long; faults of the device. The communicator was given up then.
pub fn warm_up(
    communicator: &mut dyn Communicator,
    region: &ExchangeRegion,
    block_bytes_max: u64,
    limit: Duration,
) -> Result<Option<f64>> {
    if communicator.rank_count() == 1 {
        return Ok(None);
    }
    let mut patience = Patience::new(limit, Instant::now());
    let bytes = block_bytes_max.min(WARM_UP_BYTES_MAX);
    let reserved = region.use_on(communicator.stream()).and_then(|()| reserve(region, bytes, &mut patience));
    let blocks = reserved.inspect_err(|error| communicator.abort(error))?;
    let moved = move_blocks(communicator, &blocks, LOOK_INTERVAL, &mut patience)
        .and_then(|()| measure(communicator, &blocks, &mut patience));
    if let Err(error) = &moved {
        communicator.abort(error);
        // The network may read and write until its stream has come to an end.
        blocks.into_iter().for_each(|block| keep_until_used(block, communicator.stream()));
    }
    moved.map(Some)
}

/// Moves the blocks some times more. Returns the bytes a second that left this rank in the fastest of these moves.
fn measure(
    communicator: &mut dyn Communicator,
    blocks: &[RegionBlock; 2],
    patience: &mut Patience,
) -> Result<f64> {
    let bytes = blocks[0].bytes() * (communicator.rank_count() as u64 - 1);
    let mut fastest = Duration::MAX;
    for _ in 0..MEASURED_MOVES {
        let begun = Instant::now();
        move_blocks(communicator, blocks, MEASURED_LOOK_INTERVAL, patience)?;
        fastest = fastest.min(begun.elapsed());
    }
    Ok(bytes as f64 / fastest.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// A block to send and one to receive into, as soon as there is room: queries of a network before this one may be about to end.
fn reserve(region: &ExchangeRegion, bytes: u64, patience: &mut Patience) -> Result<[RegionBlock; 2]> {
    let both = 2 * bytes.next_multiple_of(super::BLOCK_ALIGNMENT);
    loop {
        match region.allocate_extent(ExtentBytes { wanted: both, least: both }) {
            Ok(extent) => return blocks_of(&extent, bytes),
            Err(error) if error.kind != ErrorKind::OutOfMemory || patience.is_over(Instant::now()) => {
                return Err(error);
            }
            Err(_) => thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn blocks_of(extent: &Arc<RegionExtent>, bytes: u64) -> Result<[RegionBlock; 2]> {
    let missing = || pystachio_plan::Error::internal("an extent has less room than it was asked for");
    let block = || extent.allocate(bytes).ok_or_else(missing);
    Ok([block()?, block()?])
}

fn move_blocks(
    communicator: &mut dyn Communicator,
    [source, target]: &[RegionBlock; 2],
    look_interval: Duration,
    patience: &mut Patience,
) -> Result<()> {
    let others = (0..communicator.rank_count() as u16).map(Rank).filter(|rank| *rank != communicator.rank());
    let (sends, receives): (Vec<SendPart>, Vec<ReceivePart>) = others
        .map(|other| {
            let send = SendPart { to: other, address: source.address(), bytes: source.bytes() };
            (send, ReceivePart { from: other, address: target.address(), bytes: target.bytes() })
        })
        .unzip();
    let before = communicator.poll_transfers()?;
    communicator.begin_transfers(&sends, &receives)?;
    while communicator.poll_transfers()? == before {
        if patience.is_over(Instant::now()) {
            let missing = communicator.missing_in_group();
            let waited = format!("for {:?}, in its first transfers", patience.whole());
            return Err(silence_error(&missing, waited));
        }
        thread::sleep(look_interval);
    }
    Ok(())
}
