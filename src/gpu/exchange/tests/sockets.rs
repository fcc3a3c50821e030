//! Sockets between ranks: hostile bytes, parts of any length, and the limit of bytes on their way.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
};

use pystachio_plan::ErrorKind;

use super::*;

fn region(bytes: u64, seed: u64) -> ExchangeRegion {
    ExchangeRegion::new(Arc::new(EmulatedPlatform::with_seed(seed)), bytes).unwrap()
}

/// Two ranks, by their links.
fn two(links: [RankLink; 2], bytes: u64) -> [(ControlledCommunicator<SocketTransfers>, ExchangeRegion); 2] {
    let mut number = 0;
    links.map(|link| {
        let region = region(bytes, 300 + number);
        let links = if number == 0 { vec![None, Some(link)] } else { vec![Some(link), None] };
        let communicator = by_sockets(Rank(number as u16), links, &region);
        number += 1;
        (communicator, region)
    })
}

fn unix_links() -> [RankLink; 2] {
    let mut links = links_of_one_host(2).unwrap().into_iter().flatten().flatten();
    [links.next().unwrap(), links.next().unwrap()]
}

fn tcp_links() -> [RankLink; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = || {
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (LinkSocket::tcp(one).unwrap(), LinkSocket::tcp(listener.accept().unwrap().0).unwrap())
    };
    let (control, data) = (pair(), pair());
    [RankLink { control: control.0, data: data.0 }, RankLink { control: control.1, data: data.1 }]
}

/// Rank 0, and the other ends of its sockets.
fn rank_0_alone() -> (ControlledCommunicator<SocketTransfers>, ExchangeRegion, UnixStream, UnixStream) {
    let [control, data] = [(); 2].map(|()| UnixStream::pair().unwrap());
    let socket = |stream: UnixStream| LinkSocket::unix(stream.into()).unwrap();
    let region = region(1 << 20, 310);
    let link = RankLink { control: socket(control.0), data: socket(data.0) };
    let communicator = by_sockets(Rank(0), vec![None, Some(link)], &region);
    (communicator, region, control.1, data.1)
}

fn poll_until_error(mut poll: impl FnMut() -> Result<bool>) -> Error {
    for _ in 0..10_000 {
        match poll() {
            Ok(is_over) => assert!(!is_over, "no error"),
            Err(error) => return error,
        }
    }
    panic!("no error");
}

#[test]
fn parts_of_any_length_arrive_whole_over_every_kind_of_socket() {
    const LONGEST: u64 = 1 << 20;
    let lengths = [64, 64 << 10, 0, 256 << 10, (256 << 10) + 64, LONGEST, 128];
    for links in [unix_links(), tcp_links()] {
        let total: u64 = lengths.iter().sum();
        let [(mut one, source), (mut other, target)] = two(links, 2 * total);
        let bytes: Vec<u8> = (0..total).map(|place| (place * 7 % 251) as u8).collect();
        let memory = source.memory();
        memory.upload_to(&bytes, source.range().0, one.stream()).unwrap();
        memory.platform().wait(one.stream()).unwrap();
        // In two groups, the first of which also has the rank's parts to itself.
        let mut offset = 0;
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for length in lengths {
            sends.push(SendPart { to: Rank(1), address: source.range().0 + offset, bytes: length });
            receives.push(ReceivePart { from: Rank(0), address: target.range().0 + offset, bytes: length });
            offset += length;
        }
        let own = SendPart { to: Rank(0), address: source.range().0, bytes: total };
        let to_own = ReceivePart { from: Rank(0), address: source.range().0 + total, bytes: total };
        let first: Vec<SendPart> = sends[..4].iter().copied().chain([own]).collect();
        one.begin_transfers(&first, &[to_own]).unwrap();
        one.begin_transfers(&sends[4..], &[]).unwrap();
        other.begin_transfers(&[], &receives[..4]).unwrap();
        other.begin_transfers(&[], &receives[4..]).unwrap();
        let mut over = (0, 0);
        while over != (2, 2) {
            over = (one.poll_transfers().unwrap(), other.poll_transfers().unwrap());
        }
        let read = |region: &ExchangeRegion, address: u64, stream| -> Vec<u8> {
            region.memory().download_from(address, total as usize, stream).unwrap()
        };
        assert!(read(&target, target.range().0, other.stream()) == bytes);
        assert!(read(&source, source.range().0 + total, one.stream()) == bytes);
    }
}

#[test]
fn what_nobody_takes_stays_where_it_is() {
    let [(mut one, source), (mut other, _)] = two(unix_links(), 64 << 20);
    let part = SendPart { to: Rank(1), address: source.range().0, bytes: 64 << 20 };
    one.begin_transfers(&[part], &[]).unwrap();
    for _ in 0..10_000 {
        assert_eq!((one.poll_transfers().unwrap(), other.poll_transfers().unwrap()), (0, 0));
    }
    assert_eq!(one.missing_in_group(), [Rank(1)]);
    // Ranks can still send control messages.
    for number in 0..5 {
        one.begin_gather(&[number; 100]).unwrap();
        assert!(one.poll_gather().unwrap().is_none());
        assert_eq!((one.missing_in_gather(), other.is_awaited()), (vec![Rank(1)], true));
        other.begin_gather(&[number + 100; 100]).unwrap();
        let told = vec![vec![number; 100], vec![number + 100; 100]];
        assert_eq!(
            (other.poll_gather().unwrap(), one.poll_gather().unwrap()),
            (Some(told.clone()), Some(told))
        );
        assert!(!other.is_awaited());
    }
}

#[test]
fn a_rank_that_tells_nonsense_is_named() {
    let mut numbers = Numbers::new(3);
    for length in [1, 24, 30, 5000] {
        let (mut communicator, _region, mut control, _data) = rank_0_alone();
        let bytes: Vec<u8> = (0..length.max(24)).map(|_| numbers.below(256) as u8).collect();
        control.write_all(&bytes).unwrap();
        communicator.begin_gather(&[1]).unwrap();
        let error = poll_until_error(|| Ok(communicator.poll_gather()?.is_some()));
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
        assert!(error.message.starts_with("rank 1 told something that is wrong: magic="), "{error}");
    }
}

#[test]
fn a_rank_that_is_rounds_ahead_is_named() {
    let (mut communicator, _region, mut control, _data) = rank_0_alone();
    let mut frame = *b"PXS\n\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    for number in 1..=4 {
        frame[8] = number;
        control.write_all(&frame).unwrap();
    }
    assert!(communicator.is_awaited());
    communicator.begin_gather(&[]).unwrap();
    // Two were kept, and more of them are one too many.
    assert_eq!(communicator.poll_gather().unwrap().unwrap().len(), 2);
    communicator.begin_gather(&[]).unwrap();
    assert!(communicator.poll_gather().unwrap().is_some());
    communicator.begin_gather(&[]).unwrap();
    let error = communicator.poll_gather().unwrap_err();
    assert_eq!(error.message, "rank 1 told something that is wrong: gather=3, last_gather=2");
}

#[test]
fn a_part_that_was_not_expected_is_an_error() {
    let (mut communicator, region, _control, mut data) = rank_0_alone();
    let head = b"PXP\n\0\0\0\0\0\0\0\0\0\0\0\0\x41\0\0\0\0\0\0\0";
    data.write_all(head).unwrap();
    let part = ReceivePart { from: Rank(1), address: region.range().0, bytes: 64 };
    let begun = communicator.begin_transfers(&[], &[part]);
    let error = begun.err().unwrap_or_else(|| poll_until_error(|| Ok(communicator.poll_transfers()? > 0)));
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    assert_eq!(error.message, "rank 1 sent a part that was not expected: part_bytes=65, expected=64");
}

#[test]
fn the_reason_that_a_rank_tells_is_why_it_is_gone() {
    let [(mut one, source), (mut other, _region)] = two(unix_links(), 1 << 20);
    one.begin_gather(&[1]).unwrap();
    other.abort(&Error::new(ErrorKind::OutOfMemory, "there is no memory"));
    drop(other);
    let error = poll_until_error(|| Ok(one.poll_gather()?.is_some()));
    assert_eq!(error.message, "rank 1 has given up: there is no memory");
    let part = SendPart { to: Rank(1), address: source.range().0, bytes: 64 };
    let begun = one.begin_transfers(&[part], &[]);
    let error = begun.err().unwrap_or_else(|| poll_until_error(|| Ok(one.poll_transfers()? > 0)));
    assert_eq!(error.message, "rank 1 has given up: there is no memory");
}

#[test]
fn a_rank_that_leaves_because_of_another_one_does_not_take_its_place() {
    let mut links = links_of_one_host(3).unwrap().into_iter();
    let mut rank = |number: u16| {
        let region = region(1 << 20, 320 + u64::from(number));
        by_sockets(Rank(number), links.next().unwrap(), &region)
    };
    let (mut first, _second, mut third) = (rank(0), rank(1), rank(2));
    first.begin_gather(&[0]).unwrap();
    third.abort(&Error::new(ErrorKind::Peer, "rank 1 did not answer for 5s, in round 7"));
    drop(third);
    let error = poll_until_error(|| Ok(first.poll_gather()?.is_some()));
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Peer, "rank 1 did not answer for 5s, in round 7")
    );
}

#[test]
fn a_socket_that_ends_within_something_is_a_rank_that_is_gone() {
    let (mut communicator, region, mut control, mut data) = rank_0_alone();
    let part = ReceivePart { from: Rank(1), address: region.range().0, bytes: 1 << 19 };
    communicator.begin_transfers(&[], &[part]).unwrap();
    data.write_all(b"PXP\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0some bytes").unwrap();
    for _ in 0..100 {
        assert_eq!(communicator.poll_transfers().unwrap(), 0);
    }
    control.write_all(b"PXS\n\x01\0\0").unwrap();
    control.shutdown(std::net::Shutdown::Write).unwrap();
    let error = poll_until_error(|| Ok(communicator.poll_transfers()? > 0));
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Peer, "rank 1 is gone"));
    communicator.abort(&error);
    drop(communicator);
    let mut told = Vec::new();
    control.read_to_end(&mut told).unwrap();
    assert!(told.ends_with(b"rank 1 is gone"), "{told:?}");
}
