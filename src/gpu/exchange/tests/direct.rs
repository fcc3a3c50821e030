//! Devices that read each other's memory: nothing is read beyond it, no part of a rank that has
//! left counts, and invalid messages are errors.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Mutex,
};

use pystachio_plan::ErrorKind;

use super::*;
use crate::device::Stream;

/// Regions of emulated devices of this process. The handle is a file with a region's number.
#[derive(Clone, Default)]
pub(super) struct EmulatedSharing {
    regions: Arc<Mutex<Vec<ExchangeRegion>>>,
    /// The memory of the rank that maps.
    own: Option<DeviceMemory>,
}

impl EmulatedSharing {
    /// As a rank with this region has it.
    pub(super) fn of(&self, region: &ExchangeRegion) -> Self {
        Self { own: Some(region.memory().clone()), ..self.clone() }
    }
}

impl RegionSharing for EmulatedSharing {
    fn share(&self, region: &ExchangeRegion) -> Result<OwnedFd> {
        let mut regions = self.regions.lock().unwrap();
        regions.push(region.clone());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(regions.len() as u64 - 1).to_le_bytes()).unwrap();
        Ok(file.into())
    }

    fn map(&self, shared: OwnedFd, bytes: u64) -> Result<Box<dyn MappedRegion>> {
        let mut file = File::from(shared);
        file.rewind().unwrap();
        let mut number = [0; 8];
        file.read_exact(&mut number).unwrap();
        let source = self.regions.lock().unwrap()[u64::from_le_bytes(number) as usize].clone();
        assert_eq!(source.range().1, bytes, "the region that was shared");
        let lease = source.memory().lease_stream(StreamPriority::High).unwrap();
        Ok(Box::new(EmulatedRegion { source, lease, target: self.own.clone().unwrap() }))
    }
}

struct EmulatedRegion {
    source: ExchangeRegion,
    lease: StreamLease,
    target: DeviceMemory,
}

impl MappedRegion for EmulatedRegion {
    fn read(&self, offset_bytes: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        let (start, region_bytes) = self.source.range();
        assert!(offset_bytes + bytes <= region_bytes, "within the region");
        self.source.use_on(self.lease.stream())?;
        let read: Vec<u8> =
            self.source.memory().download_from(start + offset_bytes, bytes as usize, self.lease.stream())?;
        self.target.upload_to(&read, target, stream)
    }
}

fn region(seed: u64) -> ExchangeRegion {
    ExchangeRegion::new(Arc::new(EmulatedPlatform::with_seed(seed)), 1 << 20).unwrap()
}

/// Two ranks and their regions.
fn two() -> [(ControlledCommunicator<DirectTransfers>, ExchangeRegion); 2] {
    let sharing = EmulatedSharing::default();
    let mut links = links_of_one_host(2).unwrap().into_iter();
    [0, 1].map(|number| {
        let region = region(700 + u64::from(number));
        (by_memory(Rank(number), links.next().unwrap(), &region, sharing.of(&region)), region)
    })
}

/// Rank 0, and the other ends of its sockets, whose first frame was sent.
fn rank_0_alone() -> (ControlledCommunicator<DirectTransfers>, ExchangeRegion, UnixStream, UnixStream) {
    let [control, data] = [(); 2].map(|()| UnixStream::pair().unwrap());
    let socket = |stream: UnixStream| LinkSocket::unix(stream.into()).unwrap();
    let region = region(710);
    let sharing = EmulatedSharing::default().of(&region);
    let shared = sharing.share(&region).unwrap();
    let link = RankLink { control: socket(control.0), data: socket(data.0) };
    let communicator = by_memory(Rank(0), vec![None, Some(link)], &region, sharing);
    send_with(std::os::fd::AsFd::as_fd(&data.1), &frame(1, 0, 1 << 20), &[shared]).unwrap();
    (communicator, region, control.1, data.1)
}

/// A message about a part: `frame.rs`.
fn frame(kind: u32, first: u64, second: u64) -> Vec<u8> {
    let words = [u32::from_le_bytes(*b"PXD\n"), kind].map(u32::to_le_bytes).concat();
    [words, [first, second].map(u64::to_le_bytes).concat()].concat()
}

fn error_of(communicator: &mut dyn Communicator) -> Error {
    for _ in 0..10_000 {
        if let Err(error) = communicator.poll_transfers() {
            return error;
        }
    }
    panic!("no error");
}

#[test]
fn parts_of_a_rank_are_read_by_the_other_one() {
    let [(mut one, source), (mut other, target)] = two();
    let bytes: Vec<u8> = (0..1 << 18).map(|place: u32| (place * 7 % 251) as u8).collect();
    source.memory().upload_to(&bytes, source.range().0, one.stream()).unwrap();
    source.memory().platform().wait(one.stream()).unwrap();
    let send = |start: u64, bytes| SendPart { to: Rank(1), address: source.range().0 + start, bytes };
    let receive = |start: u64, bytes| ReceivePart { from: Rank(0), address: target.range().0 + start, bytes };
    // One side has a group more than the other.
    one.begin_transfers(&[send(0, 64), send(64, 0), send(64, 1 << 17)], &[]).unwrap();
    one.begin_transfers(&[send((1 << 17) + 64, (1 << 17) - 64)], &[]).unwrap();
    assert_eq!(one.poll_transfers().unwrap(), 0);
    assert_eq!(one.missing_in_group(), [Rank(1)]);
    other
        .begin_transfers(
            &[],
            &[receive(0, 64), receive(64, 0), receive(64, 1 << 17), receive((1 << 17) + 64, (1 << 17) - 64)],
        )
        .unwrap();
    let mut over = (0, 0);
    while over != (2, 1) {
        over = (one.poll_transfers().unwrap(), other.poll_transfers().unwrap());
    }
    let read: Vec<u8> = target.memory().download_from(target.range().0, bytes.len(), other.stream()).unwrap();
    assert!(read == bytes);
}

#[test]
fn a_part_of_a_rank_that_has_left_does_not_count() {
    let [(mut one, source), (mut other, target)] = two();
    one.begin_transfers(&[SendPart { to: Rank(1), address: source.range().0, bytes: 64 }], &[]).unwrap();
    // It reuses its memory from now on.
    one.abort(&Error::internal("no more"));
    let receive = ReceivePart { from: Rank(0), address: target.range().0, bytes: 64 };
    let begun = other.begin_transfers(&[], &[receive]);
    let error = begun.err().unwrap_or_else(|| error_of(&mut other));
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Peer, "rank 0 has given up: no more"));
}

#[test]
fn a_rank_that_leaves_is_noticed_if_its_socket_has_no_room_for_the_closing_message() {
    let [(mut one, source), (mut other, target)] = two();
    // The other rank was stopped while this one sent many messages.
    one.begin_gather(&vec![1; 1 << 20]).unwrap();
    one.begin_transfers(&[SendPart { to: Rank(1), address: source.range().0, bytes: 64 }], &[]).unwrap();
    one.abort(&Error::internal("no more"));
    let receive = ReceivePart { from: Rank(0), address: target.range().0, bytes: 64 };
    let begun = other.begin_transfers(&[], &[receive]);
    let error = begun.err().unwrap_or_else(|| error_of(&mut other));
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Peer, "rank 0 is gone"));
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let offers: [(Vec<u8>, &str); 6] = [
        (frame(1, 1 << 20, 64), "offset=1048576, bytes=64, region_bytes=1048576, offers=0"),
        (frame(1, u64::MAX, 64), "offset=18446744073709551615, bytes=64, region_bytes=1048576, offers=0"),
        (frame(2, 1, 0), "taken=1, taken_before=0, offered=0"),
        (frame(3, 0, 0), "kind=3"),
        (vec![0; 24], "magic=0, expected=172251216"),
        (frame(1, 64, 128), "bytes=128, expected=64"),
    ];
    for (bytes, wrong) in offers {
        let (mut communicator, region, _control, mut data) = rank_0_alone();
        let receive = ReceivePart { from: Rank(1), address: region.range().0, bytes: 64 };
        communicator.begin_transfers(&[], &[receive]).unwrap();
        data.write_all(&bytes).unwrap();
        let error = error_of(&mut communicator);
        let wanted = format!("rank 1 offered something that is wrong: {wrong}");
        assert_eq!((error.kind, error.message), (ErrorKind::Protocol, wanted));
    }
    // A region comes first, and with a descriptor.
    let (mut communicator, region, _control, mut data) = {
        let [control, data] = [(); 2].map(|()| UnixStream::pair().unwrap());
        let socket = |stream: UnixStream| LinkSocket::unix(stream.into()).unwrap();
        let region = region(711);
        let link = RankLink { control: socket(control.0), data: socket(data.0) };
        let sharing = EmulatedSharing::default().of(&region);
        (by_memory(Rank(0), vec![None, Some(link)], &region, sharing), region, control.1, data.1)
    };
    let receive = ReceivePart { from: Rank(1), address: region.range().0, bytes: 64 };
    communicator.begin_transfers(&[], &[receive]).unwrap();
    data.write_all(&frame(1, 0, 1 << 20)).unwrap();
    let error = error_of(&mut communicator);
    assert_eq!(error.message, "rank 1 offered something that is wrong: its region did not come first");
}
