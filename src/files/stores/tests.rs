//! Objects of a small server of http in this process, which does what it is told wrong.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{ErrorKind, StoreCredentials, StoreOptions};

use super::*;

const OBJECT_BYTES: usize = 3 << 20;

/// What the server has, and what it does.
#[derive(Debug, Default)]
struct Served {
    content: Vec<u8>,
    version: u32,
    /// Ranges that it was asked for.
    ranges: Vec<(usize, usize)>,
    /// Answers that fail with 503, and that end after some bytes.
    failures: usize,
    cuts: usize,
    /// It does not answer GET.
    is_silent: bool,
}

struct Fixture {
    served: Arc<Mutex<Served>>,
    stores: Arc<Stores>,
    url: String,
    ended: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
}

fn content(version: u32) -> Vec<u8> {
    (0..OBJECT_BYTES as u32)
        .map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8 ^ version as u8)
        .collect()
}

impl Fixture {
    fn new(cache_bytes: u64) -> Self {
        let served = Arc::new(Mutex::new(Served { content: content(0), ..Served::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/t.parquet", listener.local_addr().unwrap());
        let ended = Arc::new(AtomicBool::new(false));
        let (shared, end) = (served.clone(), ended.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let shared = shared.clone();
                std::thread::spawn(move || while serve(stream.as_ref().unwrap(), &shared).is_some() {});
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let stores = Arc::new(Stores::new(&folder.path().join("objects"), cache_bytes));
        Self { served, stores, url, ended, _folder: folder }
    }

    fn session(&self, stop: &StopFlag) -> StoreSession {
        let options = StoreOptions {
            endpoint: None,
            region: None,
            is_virtual_hosted: false,
            credentials: StoreCredentials::UserMapping,
            timeout_ms: 60_000,
            listing_age_ms: 0,
            allowed: Vec::new(),
            catalog: None,
        };
        let access = StoreAccess { options: Some(options), mappings: Vec::new() };
        StoreSession::new(self.stores.clone(), access, stop.clone())
    }

    fn fetcher(&self, stop: &StopFlag) -> Fetcher {
        let found = self.session(stop).expand(&[&self.url], 0).unwrap();
        Fetcher::open(&found[0][0]).unwrap()
    }

    fn change(&self) {
        let mut served = lock_whole(&self.served);
        served.version += 1;
        served.content = content(served.version);
    }

    fn taken_ranges(&self) -> Vec<(usize, usize)> {
        let mut ranges = std::mem::take(&mut lock_whole(&self.served).ranges);
        ranges.sort_unstable();
        ranges
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let address = self.url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(address);
    }
}

/// Answers one request; `None` at the end of the connection.
fn serve(mut stream: &TcpStream, served: &Mutex<Served>) -> Option<()> {
    let mut reader = BufReader::with_capacity(1, stream);
    let (mut request, mut range, mut wanted) = (String::new(), None, None);
    reader.read_line(&mut request).ok().filter(|bytes| *bytes > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("range: bytes=") {
            let (start, end) = value.split_once('-')?;
            range = Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()? + 1));
        }
        if let Some(value) = line.strip_prefix("if-match: ") {
            wanted = Some(value.to_owned());
        }
    }
    let mut state = lock_whole(served);
    let tag = format!("\"v{}\"", state.version);
    let head = |status: &str, length: usize, more: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: {tag}\r\n{more}\r\n")
    };
    let whole = state.content.len();
    let Some((start, end)) = range.filter(|_| request.starts_with("GET")) else {
        return stream.write_all(head("200 OK", whole, "Accept-Ranges: bytes\r\n").as_bytes()).ok();
    };
    state.ranges.push((start, end));
    if state.is_silent {
        drop(state);
        // The other side closes the connection.
        let mut line = String::new();
        return reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0).map(drop);
    }
    if state.failures > 0 {
        state.failures -= 1;
        return stream.write_all(head("503 Service Unavailable", 0, "").as_bytes()).ok();
    }
    if wanted.is_some_and(|wanted| wanted != tag) {
        return stream.write_all(head("412 Precondition Failed", 0, "").as_bytes()).ok();
    }
    let more = format!("Content-Range: bytes {start}-{}/{whole}\r\n", end - 1);
    stream.write_all(head("206 Partial Content", end - start, &more).as_bytes()).ok()?;
    let is_cut = state.cuts > 0;
    state.cuts = state.cuts.saturating_sub(1);
    let sent = if is_cut { start + (end - start) / 2 } else { end };
    stream.write_all(&state.content[start..sent]).ok()?;
    if is_cut {
        let _ = stream.shutdown(std::net::Shutdown::Both);
        return None;
    }
    Some(())
}

/// Reads a range of the local file, which is present.
fn local(fetcher: &Fetcher, start: usize, end: usize) -> Vec<u8> {
    let mut bytes = vec![0; end - start];
    fetcher.handle().unwrap().read_exact_at(&mut bytes, start as u64).unwrap();
    bytes
}

fn range(start: usize, end: usize) -> (u64, u64) {
    (start as u64, (end - start) as u64)
}

#[test]
fn a_byte_is_transferred_once() {
    let fixture = Fixture::new(u64::MAX);
    let fetcher = fixture.fetcher(&StopFlag::default());
    let pin = fetcher.fetch([range(1000, 2000), range(1_500_000, 1_500_100)]).unwrap();
    assert_eq!(local(&fetcher, 1000, 2000), content(0)[1000..2000]);
    assert_eq!(local(&fetcher, 1_500_000, 1_500_100), content(0)[1_500_000..1_500_100]);
    assert_eq!(fixture.taken_ranges(), [(1000, 2000), (1_500_000, 1_500_100)]);
    drop(pin);
    // Of what overlaps only the rest, also with another request's credentials check.
    let again = fixture.fetcher(&StopFlag::default());
    drop(again.fetch([range(1200, 1800), range(1900, 2100)]).unwrap());
    assert_eq!(fixture.taken_ranges(), [(2000, 2100)]);
    assert_eq!(local(&again, 1900, 2100), content(0)[1900..2100]);
    // What is beyond the end is left out.
    drop(
        again
            .fetch([range(OBJECT_BYTES - 10, OBJECT_BYTES + 10), range(OBJECT_BYTES + 5, OBJECT_BYTES + 6)])
            .unwrap(),
    );
    assert_eq!(fixture.taken_ranges(), [(OBJECT_BYTES - 10, OBJECT_BYTES)]);
}

#[test]
fn threads_that_read_the_same_object_share_its_requests() {
    const PIECE: usize = 100_000;
    let fixture = Fixture::new(u64::MAX);
    let fetcher = fixture.fetcher(&StopFlag::default());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let fetcher = &fetcher;
            scope.spawn(move || {
                let pieces = OBJECT_BYTES.div_ceil(PIECE);
                for piece in (0..pieces).map(|piece| (piece + thread * 3) % pieces) {
                    let (start, end) = (piece * PIECE, ((piece + 1) * PIECE).min(OBJECT_BYTES));
                    let _pin = fetcher.fetch([range(start, end)]).unwrap();
                    assert_eq!(local(fetcher, start, end), content(0)[start..end]);
                }
            });
        }
    });
    let transferred: usize = fixture.taken_ranges().iter().map(|(start, end)| end - start).sum();
    assert_eq!(transferred, OBJECT_BYTES);
}

#[test]
fn an_object_larger_than_the_cache_is_read() {
    const PIECE: usize = 64 << 10;
    let fixture = Fixture::new(256 << 10);
    let fetcher = fixture.fetcher(&StopFlag::default());
    for _ in 0..2 {
        for start in (0..OBJECT_BYTES).step_by(PIECE) {
            let _pin = fetcher.fetch([range(start, start + PIECE)]).unwrap();
            assert_eq!(local(&fetcher, start, start + PIECE), content(0)[start..start + PIECE]);
            let held: u64 = fixture.stores.cache_entries().iter().map(|entry| entry.memory_bytes).sum();
            assert!(held <= (256 << 10) + PIECE as u64, "{held}");
        }
    }
}

#[test]
fn an_object_that_has_changed_is_an_error_and_the_next_request_reads_it() {
    let fixture = Fixture::new(u64::MAX);
    let fetcher = fixture.fetcher(&StopFlag::default());
    drop(fetcher.fetch([range(0, 100)]).unwrap());
    fixture.change();
    let error = fetcher.fetch([range(0, 200)]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileAccess);
    assert!(error.message.contains("was changed while"), "{error}");
    let next = fixture.fetcher(&StopFlag::default());
    let _pin = next.fetch([range(0, 200)]).unwrap();
    assert_eq!(local(&next, 0, 200), content(1)[..200]);
}

#[test]
fn requests_that_fail_are_sent_again_and_answers_that_end_early_are_continued() {
    let fixture = Fixture::new(u64::MAX);
    {
        let mut served = lock_whole(&fixture.served);
        (served.failures, served.cuts) = (2, 3);
    }
    let fetcher = fixture.fetcher(&StopFlag::default());
    let _pin = fetcher.fetch([range(0, 1_000_000)]).unwrap();
    assert_eq!(local(&fetcher, 0, 1_000_000), content(0)[..1_000_000]);
    lock_whole(&fixture.served).failures = usize::MAX;
    let error = fetcher.fetch([range(2_000_000, 2_000_100)]).unwrap_err();
    assert!(error.message.contains("503"), "{error}");
    // What failed is free for the next reader.
    lock_whole(&fixture.served).failures = 0;
    drop(fetcher.fetch([range(2_000_000, 2_000_100)]).unwrap());
    assert_eq!(local(&fetcher, 2_000_000, 2_000_100), content(0)[2_000_000..2_000_100]);
}

#[test]
fn a_wait_for_a_store_ends_with_its_request() {
    let fixture = Fixture::new(u64::MAX);
    let stop = StopFlag::default();
    let fetcher = fixture.fetcher(&stop);
    lock_whole(&fixture.served).is_silent = true;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fetcher.fetch([range(0, 100)]).map(drop));
        while lock_whole(&fixture.served).ranges.is_empty() {
            std::thread::yield_now();
        }
        stop.stop();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
    });
}
