//! What a communicator moves by itself: groups of parts, and gathers beside them.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use pystachio_cuda::nccl::NcclOptions;
use pystachio_gpu::exchange::{Communicator, Rank, ReceivePart, SendPart};
use pystachio_plan::Error;

use super::{Carrier, Member, RANK_TIME_MAX, deadline, mixed, say};
use crate::gpu::ranks::{leave_file, wait_for_file};

const GROUPS: u64 = 24;
/// Sizes that differ in how a network moves them: a few bytes, some pages, several of its buffers.
const SIZES: [u64; 5] = [64, 4096, 65_536 + 64, 1 << 20, (9 << 20) + 192];
/// As many of them do for emulated devices, whose memory is the host's.
const EMULATED_SIZES: usize = 4;
/// Of what ranks tell each other.
const BLOCK_BYTES: usize = 12_345;

/// Sizes of the parts that one rank sends to another in a group: none for some.
fn sizes(member: &Member, group: u64, from: usize, to: usize) -> Vec<u64> {
    let seed = mixed(&[group, from as u64, to as u64]);
    let count = if member.platform.name() == "emulated" { EMULATED_SIZES } else { SIZES.len() };
    (0..seed % 4).map(|part| SIZES[(mixed(&[seed, part]) % count as u64) as usize]).collect()
}

/// What a part has: bytes that say which one it is.
fn content(group: u64, (from, to): (usize, usize), part: usize, bytes: u64) -> Vec<u8> {
    let seed = mixed(&[group, from as u64, to as u64, part as u64]);
    (0..bytes / 8)
        .flat_map(|place| seed.wrapping_add(place.wrapping_mul(0x9e37_79b9)).to_le_bytes())
        .collect()
}

fn block(rank: usize, number: u64) -> Vec<u8> {
    let seed = mixed(&[rank as u64, number]);
    (0..BLOCK_BYTES).map(|place| (seed >> (place % 8 * 8)) as u8 ^ place as u8).collect()
}

/// Groups of parts of any size, two on their way at once, and a gather beside each.
pub fn move_parts(member: &Member, _folder: &Path) {
    move_parts_by(member, Carrier::nccl());
}

/// The same in a region that the library knows.
pub fn move_registered_parts(member: &Member, _folder: &Path) {
    move_parts_by(member, Carrier::Nccl(NcclOptions { registers_region: true, ..NcclOptions::default() }));
}

/// The same by copies, where GPUs read each other's memory.
pub fn copy_parts(member: &Member, _folder: &Path) {
    match member.reaches_others {
        true => move_parts_by(member, Carrier::Direct),
        false => say(member, "skipped: these GPUs don't read each other's memory"),
    }
}

fn move_parts_by(member: &Member, carrier: Carrier) {
    let mut communicator = member.connect_by(0, carrier).expect("a communicator");
    let communicator = &mut *communicator;
    say(member, "connected");
    for number in 1..=20 {
        gather(communicator, member, number);
    }
    let memory = member.region.memory();
    let lease = memory.lease_stream(pystachio_gpu::device::StreamPriority::Low).expect("a stream");
    let stream = lease.stream();
    member.region.use_on(stream).expect("a stream of the region");
    member.region.use_on(communicator.stream()).expect("a stream of the region");
    let (start, region_bytes) = member.region.range();
    let own = member.rank.place();
    // Ranks have moved something when they are connected.
    let mut groups_over = communicator.poll_transfers().expect("groups");
    // Two groups at a time have each half of the region.
    for first in (0..GROUPS).step_by(2) {
        let mut expected = Vec::new();
        for group in first..first + 2 {
            let mut address = start + (group % 2) * (region_bytes / 2);
            let (mut sends, mut receives) = (Vec::new(), Vec::new());
            for other in 0..member.rank_count {
                for (part, bytes) in sizes(member, group, own, other).into_iter().enumerate() {
                    memory
                        .upload_to(&content(group, (own, other), part, bytes), address, stream)
                        .expect("an upload");
                    sends.push(SendPart { to: Rank(other as u16), address, bytes });
                    address += bytes;
                }
                for (part, bytes) in sizes(member, group, other, own).into_iter().enumerate() {
                    receives.push(ReceivePart { from: Rank(other as u16), address, bytes });
                    expected.push((address, content(group, (other, own), part, bytes)));
                    address += bytes;
                }
            }
            assert!(address <= start + (group % 2 + 1) * (region_bytes / 2), "a group has too many bytes");
            member.platform.wait(stream).expect("what is sent is written");
            communicator.begin_transfers(&sends, &receives).expect("a group");
        }
        gather(communicator, member, 100 + first);
        groups_over += 2;
        let mut look = deadline("a group");
        while communicator.poll_transfers().expect("groups") < groups_over {
            look();
        }
        for (address, content) in expected {
            let found: Vec<u8> = memory.download_from(address, content.len(), stream).expect("a download");
            assert!(found == content, "groups {first} and the next: {} bytes are others", content.len());
        }
    }
    // No rank ends before all have what they wait for.
    gather(communicator, member, 1000);
}

fn gather(communicator: &mut dyn Communicator, member: &Member, number: u64) {
    communicator.begin_gather(&block(member.rank.place(), number)).expect("a gather");
    let mut look = deadline("a gather");
    let told = loop {
        if let Some(told) = communicator.poll_gather().expect("a gather") {
            break told;
        }
        look();
    };
    assert_eq!(told.len(), member.rank_count);
    for (rank, told) in told.iter().enumerate() {
        assert!(*told == block(rank, number), "gather {number}: rank {rank} told something else");
    }
}

/// Rank 1 is absent for a while. Rank 0 sees no transfer end, and names rank 1 as missing. Both give up the transfers and begin again.
pub fn be_absent_or_give_up(member: &Member, folder: &Path) {
    let absence = Duration::from_secs(1);
    for generation in 0..3 {
        let (begun, name) = (Instant::now(), format!("seen-{generation}"));
        let mut communicator = member.connect(generation).expect("a communicator");
        say(member, &format!("generation {generation} is connected after {:?}", begun.elapsed()));
        let before = communicator.poll_transfers().expect("groups");
        gather(&mut *communicator, member, 1);
        let (start, bytes) = (member.region.range().0, 256 << 20);
        let other = Rank(1 - member.rank.0);
        let sends = [SendPart { to: other, address: start, bytes }];
        let receives = [ReceivePart { from: other, address: start + bytes, bytes }];
        if member.rank == Rank(0) {
            communicator.begin_transfers(&sends, &receives).expect("a group");
            communicator.begin_gather(&block(0, 2)).expect("a gather");
            let absent = Instant::now();
            while absent.elapsed() < absence {
                assert_eq!(communicator.poll_transfers().expect("groups"), before);
                assert_eq!(communicator.poll_gather().expect("a gather"), None);
            }
            assert_eq!(communicator.missing_in_gather(), [Rank(1)]);
            assert_eq!(communicator.missing_in_group(), [Rank(1)]);
            leave_file(folder, &name, b"");
        } else {
            wait_for_file(folder, &name, RANK_TIME_MAX).expect("rank 0 has seen it");
        }
        let begun = Instant::now();
        communicator.abort(&Error::internal("enough"));
        let took = begun.elapsed();
        say(member, &format!("generation {generation} is given up after {took:?}"));
        assert!(took < Duration::from_secs(2), "it takes {took:?} to give up");
        // The stream is of use still, and comes to its end.
        member.platform.wait(communicator.stream()).expect("the device");
    }
}
