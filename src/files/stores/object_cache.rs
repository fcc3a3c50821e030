//! Local files that hold bytes of objects, within a budget.
//!
//! An object is a sparse file, of the object's size. Its extents are in memory alone.
//!
//! Invariants: bytes of a file are read only while they are pinned and its extents have them. Neither pinned bytes nor those that a reader
//! fetches are evicted; the budget gives way to them. Of two readers that miss the same bytes, one fetches them.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::{CacheEntry, MemorySpace, Result};
use rustix::fs::{FallocateFlags, fallocate};

use super::extents::{Extents, as_requests};
use crate::{error::from_io, files::FileIdentity};

/// What may lie between two ranges of one request, and is transferred for nothing.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// Objects that have a file, at most: a folder with more is slow.
const OBJECTS_MAX: usize = 100_000;

/// The objects of an engine that are here, wholly or in part.
#[derive(Debug)]
pub struct ObjectCache {
    folder: PathBuf,
    bytes_max: u64,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    objects: HashMap<FileIdentity, Arc<CachedObject>>,
    used_bytes: u64,
    clock: u64,
}

/// An object's file.
#[derive(Debug)]
pub struct CachedObject {
    url: String,
    /// Where the file is.
    pub path: PathBuf,
    state: Mutex<ObjectState>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct ObjectState {
    present: Extents,
    /// Ranges that a reader fetches now.
    claimed: Vec<Range<u64>>,
    /// Ranges that readers read, by the numbers of their pins.
    pins: HashMap<u64, Vec<Range<u64>>>,
    last_use: u64,
    hits: u64,
    misses: u64,
}

impl ObjectState {
    /// What must stay.
    fn held(&self) -> Extents {
        let mut held = Extents::default();
        for range in self.claimed.iter().chain(self.pins.values().flatten()) {
            held.insert(range.clone());
        }
        held
    }
}

/// Keeps ranges of an object in the cache until it is dropped. Of a local file it keeps nothing.
#[derive(Debug, Default)]
pub struct ObjectPin(Option<(Arc<CachedObject>, u64)>);

impl Drop for ObjectPin {
    fn drop(&mut self) {
        if let Some((object, number)) = &self.0 {
            lock_whole(&object.state).pins.remove(number);
        }
    }
}

/// What a reader has to do for ranges to be present.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: they are.
    Present,
    /// Fetch these, and [`ObjectCache::settle`] them.
    Fetch(Vec<Range<u64>>),
    /// Wait: others fetch them.
    Wait,
}

impl ObjectCache {
    /// An empty cache in a folder of this process.
    pub fn new(folder: PathBuf, bytes_max: u64) -> Self {
        Self { folder, bytes_max, state: Mutex::default() }
    }

    /// The file of an object, which is made if there is none.
    ///
    /// # Errors
    ///
    /// Those of making a file.
    pub fn open(&self, identity: FileIdentity, url: &str) -> Result<Arc<CachedObject>> {
        let mut state = lock_whole(&self.state);
        if let Some(known) = state.objects.get(&identity) {
            return Ok(known.clone());
        }
        if state.objects.len() >= OBJECTS_MAX {
            state.evict(OBJECTS_MAX / 2, u64::MAX);
        }
        let path = self.folder.join(identity.name());
        let create = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = match create() {
            // An engine that reads no store has no folder.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir(&self.folder).and_then(|()| create())
            }
            file => file,
        };
        file.and_then(|file| file.set_len(identity.file_bytes))
            .map_err(|error| from_io(&path, "create cache file", &error))?;
        let object = Arc::new(CachedObject {
            url: url.to_owned(),
            path,
            state: Mutex::default(),
            settled: Condvar::new(),
        });
        state.objects.insert(identity, object.clone());
        Ok(object)
    }

    /// Pins ranges of an object, whether they are present or not.
    pub fn pin(&self, object: &Arc<CachedObject>, ranges: &[Range<u64>]) -> ObjectPin {
        // In the cache's lock, so that nothing is evicted meanwhile.
        let mut state = lock_whole(&self.state);
        state.clock += 1;
        let mut of_object = lock_whole(&object.state);
        of_object.last_use = state.clock;
        of_object.pins.insert(state.clock, ranges.to_vec());
        ObjectPin(Some((object.clone(), state.clock)))
    }

    /// Evicts bytes until so many more have room, as far as they are not pinned.
    pub fn make_room(&self, bytes: u64) {
        let mut state = lock_whole(&self.state);
        if state.used_bytes.saturating_add(bytes) > self.bytes_max {
            // Some more than needed: to order objects by use takes longer than to evict one.
            let target = self.bytes_max.saturating_sub(bytes) / 8 * 7;
            state.evict(usize::MAX, target);
        }
    }

    /// Notes what has become of ranges that were claimed.
    pub fn settle(&self, object: &CachedObject, claimed: &[Range<u64>], is_present: bool) {
        let mut state = lock_whole(&self.state);
        let mut of_object = lock_whole(&object.state);
        for range in claimed {
            if let Some(place) = of_object.claimed.iter().position(|known| known == range) {
                of_object.claimed.swap_remove(place);
            }
            if is_present {
                state.used_bytes += of_object.present.insert(range.clone());
            }
        }
        drop(of_object);
        object.settled.notify_all();
    }

    /// What it holds: an entry for each object.
    pub fn entries(&self) -> Vec<CacheEntry> {
        let state = lock_whole(&self.state);
        let entry = |object: &Arc<CachedObject>| {
            let of_object = lock_whole(&object.state);
            CacheEntry {
                rank: 0,
                path: object.url.clone(),
                column: String::new(),
                space: MemorySpace::Disk,
                row_group_count: 0,
                memory_bytes: of_object.present.bytes(),
                unpacked_bytes: of_object.present.bytes(),
                hits: of_object.hits,
                misses: of_object.misses,
            }
        };
        let entries = state.objects.values().map(entry);
        let mut entries: Vec<_> = entries.filter(|object| object.memory_bytes > 0).collect();
        entries.sort_by(|left, right| left.path.cmp(&right.path));
        entries
    }
}

impl CacheState {
    /// Evicts what is not held of objects, least recently used first, until so many objects are left, with so many bytes.
    fn evict(&mut self, objects_max: usize, bytes_max: u64) {
        let uses =
            self.objects.iter().map(|(identity, object)| (lock_whole(&object.state).last_use, *identity));
        let mut by_use: Vec<(u64, FileIdentity)> = uses.collect();
        by_use.sort_unstable_by_key(|(last_use, _)| *last_use);
        for (_, identity) in by_use {
            if self.objects.len() <= objects_max && self.used_bytes <= bytes_max {
                break;
            }
            let Some(object) = self.objects.get(&identity) else { continue };
            let (freed, is_unused) = object.evict(Arc::strong_count(object) == 1);
            self.used_bytes = self.used_bytes.saturating_sub(freed);
            if is_unused {
                let _ = std::fs::remove_file(&object.path);
                self.objects.remove(&identity);
            }
        }
    }
}

impl CachedObject {
    /// Claims what is missing of ranges and is not fetched by others.
    pub fn claim(&self, ranges: &[Range<u64>]) -> Claim {
        let mut state = lock_whole(&self.state);
        let missing: Vec<Range<u64>> = ranges.iter().flat_map(|range| state.present.missing(range)).collect();
        if missing.is_empty() {
            return Claim::Present;
        }
        let mut others = Extents::default();
        for claimed in &state.claimed {
            others.insert(claimed.clone());
        }
        let mine: Vec<Range<u64>> = missing.iter().flat_map(|range| others.missing(range)).collect();
        if mine.is_empty() {
            return Claim::Wait;
        }
        // What is between them is transferred too, and must not be evicted meanwhile.
        let mine = as_requests(mine, GAP_BYTES_MAX, u64::MAX);
        state.claimed.extend(mine.iter().cloned());
        Claim::Fetch(mine)
    }

    /// Waits until a range has been settled, or for `longest`.
    pub fn wait_settled(&self, longest: Duration) {
        let state = lock_whole(&self.state);
        // Its state is looked at again in any case.
        drop(self.settled.wait_timeout(state, longest));
    }

    /// Counts a read.
    pub fn note_use(&self, is_hit: bool) {
        let mut state = lock_whole(&self.state);
        match is_hit {
            true => state.hits += 1,
            false => state.misses += 1,
        }
    }

    /// The file, to be written.
    ///
    /// # Errors
    ///
    /// Those of opening it.
    pub fn writer(&self) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .open(&self.path)
            .map_err(|error| from_io(&self.path, "open cache file", &error))
    }

    /// Gives back the blocks of what is not held. Returns how many bytes those were, and whether the file is to be removed: nothing is
    /// held, and nobody else has it open. Handles stay those of the same file.
    fn evict(&self, is_alone: bool) -> (u64, bool) {
        let mut state = lock_whole(&self.state);
        let held = state.held();
        if is_alone && held.bytes() == 0 {
            let freed = state.present.bytes();
            state.present = Extents::default();
            return (freed, true);
        }
        let file = OpenOptions::new().write(true).open(&self.path);
        let mut freed = 0;
        for range in state.present.without(&held) {
            let bytes = range.end - range.start;
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = file.as_ref().map(|file| fallocate(file, mode, range.start, bytes));
            // A file system without holes keeps the bytes.
            if let Ok(Ok(())) = punched {
                state.present.remove(&range);
                freed += bytes;
            }
        }
        (freed, false)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them of one")]
mod tests {
    use super::*;

    struct Fixture {
        _folder: tempfile::TempDir,
        cache: ObjectCache,
    }

    impl Fixture {
        fn new(bytes_max: u64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cache = ObjectCache::new(folder.path().to_owned(), bytes_max);
            Self { _folder: folder, cache }
        }

        fn object(&self, number: u8) -> Arc<CachedObject> {
            self.cache.open(FileIdentity::of_object([number; 16], 100), &format!("s3://b/{number}")).unwrap()
        }

        fn fill(&self, object: &Arc<CachedObject>, range: Range<u64>) {
            let Claim::Fetch(mine) = object.claim(std::slice::from_ref(&range)) else {
                panic!("nothing to fetch")
            };
            self.cache.make_room(range.end - range.start);
            self.cache.settle(object, &mine, true);
        }

        fn held(&self) -> Vec<(String, u64)> {
            self.cache.entries().into_iter().map(|object| (object.path, object.memory_bytes)).collect()
        }
    }

    #[test]
    fn one_of_two_readers_fetches_and_the_other_waits() {
        let fixture = Fixture::new(1000);
        let object = fixture.object(1);
        let Claim::Fetch(mine) = object.claim(&[10..20, 30..40]) else { panic!("nothing to fetch") };
        assert_eq!(mine, [10..40]);
        assert_eq!(object.claim(&[12..18]), Claim::Wait);
        assert_eq!(object.claim(&[35..45]), Claim::Fetch(vec![40..45]));
        fixture.cache.settle(&object, &[40..45], false);
        fixture.cache.settle(&object, &mine, true);
        assert_eq!(object.claim(&[10..20]), Claim::Present);
        // What was not fetched after all is claimed anew.
        assert_eq!(object.claim(&[35..45]), Claim::Fetch(vec![40..45]));
    }

    #[test]
    fn what_was_used_least_recently_goes_and_what_is_pinned_stays() {
        let fixture = Fixture::new(200);
        let objects = [1, 2, 3].map(|number| fixture.object(number));
        for object in &objects[..2] {
            let _pin = fixture.cache.pin(object, &[0..80]);
            fixture.fill(object, 0..80);
        }
        let pin = fixture.cache.pin(&objects[0], &[10..30]);
        fixture.fill(&objects[2], 0..80);
        assert_eq!(fixture.held(), [("s3://b/1".to_owned(), 80), ("s3://b/3".to_owned(), 80)]);
        assert_eq!(objects[1].claim(&[0..1]), Claim::Fetch(vec![0..1]));
        fixture.cache.settle(&objects[1], &[0..1], false);
        // Of a pinned object the rest goes; the budget gives way to the pinned bytes.
        let others = fixture.cache.pin(&objects[2], &[0..80]);
        fixture.cache.make_room(200);
        assert_eq!(fixture.held(), [("s3://b/1".to_owned(), 20), ("s3://b/3".to_owned(), 80)]);
        assert_eq!(objects[0].claim(&[10..30]), Claim::Present);
        drop((pin, others));
        fixture.cache.make_room(200);
        assert_eq!(fixture.held(), []);
        assert_eq!(lock_whole(&fixture.cache.state).used_bytes, 0);
    }

    #[test]
    fn a_file_that_a_reader_has_open_is_emptied_and_another_removed() {
        let fixture = Fixture::new(100);
        let (kept, dropped) = (fixture.object(1), fixture.object(2));
        let content = [7; 100];
        std::os::unix::fs::FileExt::write_all_at(&kept.writer().unwrap(), &content, 0).unwrap();
        fixture.fill(&kept, 0..100);
        let pin = fixture.cache.pin(&kept, &[20..40]);
        fixture.fill(&dropped, 0..50);
        let path = dropped.path.clone();
        drop(dropped);
        fixture.cache.make_room(100);
        assert!(!path.exists());
        let expected: Vec<u8> = (0..100).map(|place| if (20..40).contains(&place) { 7 } else { 0 }).collect();
        assert_eq!(std::fs::read(&kept.path).unwrap(), expected);
        drop(pin);
        fixture.cache.make_room(100);
        assert_eq!(std::fs::read(&kept.path).unwrap(), [0; 100]);
        assert!(Arc::ptr_eq(&kept, &fixture.object(1)));
    }
}
