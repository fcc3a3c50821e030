//! Makes ranges of an object present in its local file.

use std::{fs::File, ops::Range, os::unix::fs::FileExt, path::PathBuf, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange};
use pystachio_plan::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use super::{
    POLL, StoreSession,
    extents::as_requests,
    object::FoundObject,
    object_cache::{CachedObject, Claim, ObjectPin},
};
use crate::error::from_io;

/// The most that one request transfers.
const REQUEST_BYTES_MAX: u64 = 8 << 20;
/// Requests for one object at once.
const PARALLEL_MAX: usize = 8;
/// How often an answer may break off.
const ATTEMPTS_MAX: u32 = 4;
/// The wait before the second try; it doubles.
const BACKOFF: Duration = Duration::from_millis(100);

/// A version of an object, and its file in the cache.
#[derive(Clone, Debug)]
pub struct Fetcher {
    object: Arc<FoundObject>,
    cached: Arc<CachedObject>,
}

/// Ranges that this reader fetches. Dropped before they are present, they are free for others.
struct Claimed<'a> {
    session: &'a StoreSession,
    cached: &'a CachedObject,
    ranges: Vec<Range<u64>>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.session.stores.cache.settle(self.cached, &self.ranges, false);
    }
}

impl Fetcher {
    /// The file of an object.
    ///
    /// # Errors
    ///
    /// Those of making it.
    pub fn open(object: &Arc<FoundObject>) -> Result<Self> {
        let cached = object.session.stores.cache.open(object.identity, &object.url)?;
        Ok(Self { object: object.clone(), cached })
    }

    /// The local file.
    ///
    /// # Errors
    ///
    /// Those of opening it.
    pub fn handle(&self) -> Result<File> {
        File::open(&self.cached.path).map_err(|error| from_io(&self.cached.path, "open cache file", &error))
    }

    /// The object.
    pub fn object(&self) -> &FoundObject {
        &self.object
    }

    /// Makes ranges present, and keeps them so while the pin lives: each one's first byte, and how many they are. What is beyond the
    /// object's end is left out. Blocks.
    ///
    /// # Errors
    ///
    /// `FileAccess` if the object has another version by now, or the store fails; `FilePermission`, `FileNotFound`, `Cancelled`.
    pub fn fetch(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<ObjectPin> {
        let session = &self.object.session;
        let end = self.object.meta.size;
        let ranges: Vec<Range<u64>> = ranges
            .into_iter()
            .map(|(start, bytes)| start.min(end)..start.saturating_add(bytes).min(end))
            .filter(|range| !range.is_empty())
            .collect();
        let pin = session.stores.cache.pin(&self.cached, &ranges);
        let mut is_hit = true;
        loop {
            match self.cached.claim(&ranges) {
                Claim::Present => break,
                Claim::Wait => self.cached.wait_settled(POLL),
                Claim::Fetch(mine) => self.fetch_claimed(mine)?,
            }
            is_hit = false;
            session.stop.check()?;
        }
        self.cached.note_use(is_hit);
        Ok(pin)
    }

    fn fetch_claimed(&self, ranges: Vec<Range<u64>>) -> Result<()> {
        let session = &self.object.session;
        let mut claimed = Claimed { session, cached: &self.cached, ranges };
        let cache = &session.stores.cache;
        cache.make_room(claimed.ranges.iter().map(|range| range.end - range.start).sum());
        let requests = as_requests(claimed.ranges.clone(), 0, REQUEST_BYTES_MAX);
        let transfer = Transfer {
            object: self.object.clone(),
            file: Arc::new(self.cached.writer()?),
            path: self.cached.path.clone(),
            requests: session.stores.requests.clone(),
        };
        session.wait(async move {
            let pieces = requests.into_iter().map(|range| transfer.clone().piece(range));
            stream::iter(pieces).buffer_unordered(PARALLEL_MAX).try_collect::<Vec<()>>().await.map(drop)
        })?;
        cache.settle(&self.cached, &std::mem::take(&mut claimed.ranges), true);
        Ok(())
    }
}

/// From a store into a file.
#[derive(Clone)]
struct Transfer {
    object: Arc<FoundObject>,
    file: Arc<File>,
    path: PathBuf,
    requests: Arc<Semaphore>,
}

/// How a piece ended that is not whole.
enum Broken {
    /// The connection was cut: the rest may come with another request.
    Off(Error),
    /// Another request would fail as well.
    Failed(Error),
}

impl Transfer {
    /// Transfers one range, with as many requests as it takes.
    async fn piece(self, range: Range<u64>) -> Result<()> {
        let (mut start, mut wait) = (range.start, BACKOFF);
        for attempt in 1.. {
            let place = self.requests.acquire().await;
            let _place = place.map_err(|_| Error::internal("the requests to stores have ended"))?;
            match self.request(&mut start, range.end).await {
                Ok(()) => return Ok(()),
                Err(Broken::Failed(error)) => return Err(error),
                Err(Broken::Off(error)) if attempt >= ATTEMPTS_MAX => return Err(error),
                Err(Broken::Off(_)) => {}
            }
            drop(_place);
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        Ok(())
    }

    /// One request for what is left. Moves `start` behind the bytes that came.
    async fn request(&self, start: &mut u64, end: u64) -> std::result::Result<(), Broken> {
        let object = &self.object;
        let if_match = object.strong_tag();
        let options = GetOptions {
            range: Some(GetRange::Bounded(*start..end)),
            // Without a tag the answer's time says whether it is the same.
            if_unmodified_since: if_match.is_none().then_some(object.meta.last_modified),
            if_match,
            ..GetOptions::default()
        };
        let answer = object.client.get_opts(&object.key, options).await;
        let answer = answer.map_err(|error| Broken::Failed(object.failed(&error)))?;
        if !object.is_version_of(&answer.meta) {
            return Err(Broken::Failed(object.changed()));
        }
        let mut parts = answer.into_stream();
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| Broken::Off(object.failed(&error)))?;
            let part = part.get(..part.len().min((end - *start) as usize)).unwrap_or_default();
            self.file
                .write_all_at(part, *start)
                .map_err(|error| Broken::Failed(from_io(&self.path, "write cache file", &error)))?;
            *start += part.len() as u64;
        }
        match *start == end {
            true => Ok(()),
            false => {
                let url = &object.url;
                let message = format!("could not read \"{url}\": the store's answer broke off");
                Err(Broken::Off(Error::new(ErrorKind::FileAccess, message)))
            }
        }
    }
}
