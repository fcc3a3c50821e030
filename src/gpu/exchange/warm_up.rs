//! The first transfers of ranks that have just been connected.
//!
//! ```text
//!         region                                             region
//! rank 0 ┌─ sent to every other rank ─┐ ──► each other rank ┌─ where all of it is written ─┐     and the same from every rank, in one group
//! ```
//!
//! A network sets up some of its state when a rank first sends to another one. Between GPUs these
//! are NCCL's channels to the other GPU, its memory, mapped here, and the kernels that move bytes,
//! which a driver loads at their first launch. The first query of an engine took 180 ms longer on
//! two H100s than on one, and later ones did not. So ranks exchange some bytes before they are
//! reported as connected.
//!
//! The same transfers measure the link: some more of them, of which the fastest counts. Over a link
//! of 25 GB/s a transfer of this size takes long compared with a poll; over NVLink it ends too soon
//! to give more than a lower bound.
//!
//! Invariants: they use the same path as blocks: the same calls, the stream of the communicator,
//! memory of the region. All ranks send as much to each other one. The received bytes are not read,
//! so all of them may go to one place. Every wait for a rank has a time limit.
//!
//! Deliberately absent: gathers, which rounds begin before there is a query; kernels of this
//! engine, which the device loads when it is opened.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pystachio_plan::{ErrorKind, Result};

use super::{
    Communicator, Deadline, ExchangeRegion, Rank, ReceivePart, SendPart,
    communicator::silence_error,
    outbox::keep_until_used,
    region::{ExtentBytes, RegionBlock, RegionExtent},
};

/// Limit of the bytes for each other rank: NCCL moves pieces of 512 KB over NVLink
/// (`NCCL_P2P_NVL_CHUNKSIZE`) and has at most 32 channels between two GPUs, so each of them gets
/// some.
const WARM_UP_BYTES_MAX: u64 = 16 << 20;
/// Pause between polls: a hundredth of the time that a query would wait for.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// The pause while a transfer is measured: a thirtieth of its time over a link of 25 GB/s.
const MEASURED_LOOK_INTERVAL: Duration = Duration::from_micros(20);
/// Measured transfers. Ranks begin the first of them at different times.
const MEASURED_MOVES: usize = 4;

/// Moves a block's bytes between each two ranks, both ways at once, and waits for the end, as all
/// ranks do. `block_bytes_max` is the network's, the same on all ranks. Returns a lower bound of
/// the bytes a second from this rank to others; `None` without others.
///
/// # Errors
///
/// `Peer` for another rank that has failed or is late, with its number if known; `OutOfMemory` if
/// earlier queries occupy the region for as long; faults of the device. The communicator was given
/// up then.
pub fn warm_up(
    communicator: &mut dyn Communicator,
    region: &ExchangeRegion,
    block_bytes_max: u64,
    limit: Duration,
) -> Result<Option<f64>> {
    if communicator.rank_count() == 1 {
        return Ok(None);
    }
    let mut deadline = Deadline::new(limit, Instant::now());
    let bytes = block_bytes_max.min(WARM_UP_BYTES_MAX);
    let reserved = region.use_on(communicator.stream()).and_then(|()| reserve(region, bytes, &mut deadline));
    let blocks = reserved.inspect_err(|error| communicator.abort(error))?;
    let moved = move_blocks(communicator, &blocks, LOOK_INTERVAL, &mut deadline)
        .and_then(|()| measure(communicator, &blocks, &mut deadline));
    if let Err(error) = &moved {
        communicator.abort(error);
        // The network may read and write until its stream has ended.
        blocks.into_iter().for_each(|block| keep_until_used(block, communicator.stream()));
    }
    moved.map(Some)
}

/// Moves the blocks several times more. Returns this rank's sent bytes a second in the fastest
/// transfer.
fn measure(
    communicator: &mut dyn Communicator,
    blocks: &[RegionBlock; 2],
    deadline: &mut Deadline,
) -> Result<f64> {
    let bytes = blocks[0].bytes() * (communicator.rank_count() as u64 - 1);
    let mut fastest = Duration::MAX;
    for _ in 0..MEASURED_MOVES {
        let begun = Instant::now();
        move_blocks(communicator, blocks, MEASURED_LOOK_INTERVAL, deadline)?;
        fastest = fastest.min(begun.elapsed());
    }
    Ok(bytes as f64 / fastest.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// A block to send and one to receive into, as soon as there is room: queries of an earlier network
/// may be about to end.
fn reserve(region: &ExchangeRegion, bytes: u64, deadline: &mut Deadline) -> Result<[RegionBlock; 2]> {
    let both = 2 * bytes.next_multiple_of(super::BLOCK_ALIGNMENT);
    loop {
        match region.allocate_extent(ExtentBytes { wanted: both, least: both }) {
            Ok(extent) => return blocks_of(&extent, bytes),
            Err(error) if error.kind != ErrorKind::OutOfMemory || deadline.is_over(Instant::now()) => {
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
    deadline: &mut Deadline,
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
        if deadline.is_over(Instant::now()) {
            let missing = communicator.missing_in_group();
            let waited = format!("for {:?}, in its first transfers", deadline.whole());
            return Err(silence_error(&missing, waited));
        }
        thread::sleep(look_interval);
    }
    Ok(())
}
