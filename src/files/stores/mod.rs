//! Objects in stores: `s3://`, `gs://`, `az://`, `http://`, `https://`.
//!
//! - `place.rs`: what a path with a scheme names
//! - `client.rs`: connections to stores, by place, options and credentials
//! - `rest_catalog.rs`: catalogs, which say where tables are; `rest_views.rs`: their views; `signature.rs`: signatures of AWS
//!   on requests to them
//! - `listing.rs`: the objects of a path, and their versions
//! - `object.rs`: one version of an object, and what a failed request says to the user
//! - `upload.rs`: objects that are written
//! - `extents.rs`: which bytes of an object are here; `object_cache.rs`: files that hold them; `fetch.rs`: reads the others
//!
//! # Goals
//!
//! - Both engines read an object as they read a local file: by the page cache, past it, or by the GPU itself.
//! - A byte of an object is transferred once, for all queries and columns, as long as its version lasts and the cache has room.
//! - A query sees one version of each object, or ends with an error that names the object.
//!
//! # What it is not
//!
//! No file system: there are no folders, links or rights but the store's own. No cache of decoded data: the column caches of the engines
//! are above it.
//!
//! # Design
//!
//! ```text
//! path ─► Place ─► client (credentials of the asker) ─► list or HEAD ─► version ─► local sparse file ─► engines
//!                                                                        │             ▲
//!                                                                        └── fetch ────┘  ranged GETs, If-Match
//! ```
//!
//! An object's version is its store, key, entity tag (or time of change) and size. A digest of these is its identity, and names a sparse
//! file in the engine's cache folder. Before a reader reads a range, [`Fetcher::fetch`] makes it present: missing neighbours become one
//! request, large ranges several, and all run at once within a bound. What it returns pins these ranges: others
//! are evicted, those of the least recently used objects first, and the file system takes their blocks back.
//!
//! The cache begins empty with each engine. Its bytes then need no checksum of ours (they are as safe as the page cache and spill
//! files are), no index on disk can be out of step with the files, and what an engine that was killed has left goes with its spill folder.
//!
//! # Invariants
//!
//! - A byte is read from a local file only while a pin says that it is present.
//! - Every GET demands the version that was listed (`If-Match`), and the answer is checked against it. Another version is an error.
//! - An object is served only to a request that has listed it with its own credentials, or has done so less than `listing_age` before.
//! - Requests, connections, retries and waits are bounded. Every wait ends within a moment of a cancel.
//! - No error and no log line has a secret: messages are made of the path, the status and the kind of failure, never of a URL or a body.

mod client;
mod extents;
mod fetch;
mod listing;
mod object;
mod object_cache;
mod place;
mod rest_catalog;
mod rest_views;
mod signature;
#[cfg(test)]
mod tests;
mod upload;

use std::{
    future::Future,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use object_store::ObjectStore;
use pystachio_engine::{StopFlag, locking::lock};
use pystachio_plan::{CacheEntry, Error, Result, Secret, StoreAccess, StoreOptions};
use tokio::{runtime, sync::Semaphore};

use self::listing::Listed;
pub use self::rest_catalog::CatalogTable;
pub use self::upload::{Existing, Upload, upload_bytes};
use self::{
    client::ClientKey,
    object_cache::ObjectCache,
    rest_catalog::{KnownTable, RestCatalog},
};
pub use self::{fetch::Fetcher, object::FoundObject, object_cache::ObjectPin};
use crate::bounded_map::BoundedMap;

/// Requests of an engine that are under way at once.
const REQUESTS_MAX: usize = 32;
/// Threads that wait for sockets, and write what comes.
const THREADS: usize = 2;
/// How often a wait looks at the cancel flag.
const POLL: Duration = Duration::from_millis(50);
/// Clients that are kept.
const CLIENTS_MAX: usize = 256;
/// Catalogs that are kept, each as one user mapping may use it.
const CATALOGS_MAX: usize = 64;
/// Tables of catalogs of which is kept where they are.
const CATALOG_TABLES_MAX: usize = 1024;
/// Lists of objects that are kept.
const LISTINGS_MAX: usize = 64;

/// The stores that an engine reads, and its cache of their objects.
#[derive(Debug)]
pub struct Stores {
    runtime: OnceLock<runtime::Runtime>,
    requests: Arc<Semaphore>,
    clients: BoundedMap<ClientKey, Arc<dyn ObjectStore>, CLIENTS_MAX>,
    catalogs: BoundedMap<ClientKey, Arc<RestCatalog>, CATALOGS_MAX>,
    catalog_tables: BoundedMap<(ClientKey, Vec<String>), KnownTable, CATALOG_TABLES_MAX>,
    listings: Mutex<Vec<(ClientKey, String, Instant, Listed)>>,
    /// Goes up when what lists say may have changed: a list that was asked for before is not kept.
    listings_epoch: AtomicU64,
    cache: Arc<ObjectCache>,
}

/// The stores as one request may use them.
#[derive(Clone, Debug)]
pub struct StoreSession {
    stores: Arc<Stores>,
    access: Arc<StoreAccess>,
    stop: StopFlag,
}

impl Stores {
    /// Stores whose objects are cached in a folder of this process, up to so many bytes.
    pub fn new(folder: &Path, bytes_max: u64) -> Self {
        Self {
            runtime: OnceLock::new(),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            clients: BoundedMap::default(),
            catalogs: BoundedMap::default(),
            catalog_tables: BoundedMap::default(),
            listings: Mutex::default(),
            listings_epoch: AtomicU64::new(0),
            cache: Arc::new(ObjectCache::new(folder.to_owned(), bytes_max)),
        }
    }

    /// The objects that are here, wholly or in part.
    pub fn cache_entries(&self) -> Vec<CacheEntry> {
        self.cache.entries()
    }

    /// Runs requests on threads of their own, and waits. Callers may be threads of any runtime.
    fn wait<T: Send + 'static>(
        &self,
        stop: &StopFlag,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        stop.check()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = self.runtime()?.spawn(async move {
            // A caller that is gone needs no answer.
            let _ = sender.send(work.await);
        });
        loop {
            match receiver.recv_timeout(POLL) {
                Ok(outcome) => return outcome,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Err(cancelled) = stop.check() {
                        task.abort();
                        return Err(cancelled);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::internal("a request to a store ended without an answer"));
                }
            }
        }
    }

    fn runtime(&self) -> Result<&runtime::Runtime> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let built = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("pystachio-store")
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("threads for stores can't be started: {error}")))?;
        // Another thread's may have come first; this one's is then dropped.
        if let Err(second) = self.runtime.set(built) {
            second.shutdown_background();
        }
        self.runtime.get().ok_or_else(|| Error::internal("no threads for stores"))
    }

    /// A list that is not older than `age`.
    fn known_listing(&self, key: &ClientKey, path: &str, age: Duration) -> Option<Listed> {
        let listings = lock(&self.listings);
        let mut of_path = listings.iter().filter(|(of, listed, ..)| of == key && listed == path);
        of_path.find(|(.., at, _)| at.elapsed() < age).map(|(.., listed)| listed.clone())
    }

    fn keep_listing(&self, key: ClientKey, path: &str, (at, epoch): (Instant, u64), listed: &Listed) {
        let mut listings = lock(&self.listings);
        if self.listings_epoch.load(Ordering::Relaxed) != epoch {
            return;
        }
        listings.retain(|(of, known, ..)| *of != key || known != path);
        if listings.len() >= LISTINGS_MAX {
            listings.remove(0);
        }
        listings.push((key, path.to_owned(), at, listed.clone()));
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        // A runtime must not wait for its threads in a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl StoreSession {
    /// The stores for a request with this access, which `stop` ends.
    pub fn new(stores: Arc<Stores>, access: StoreAccess, stop: StopFlag) -> Self {
        Self { stores, access: Arc::new(access), stop }
    }

    /// The same stores by other options, and with other keys for the role that reads.
    fn with_access(&self, role: u32, options: StoreOptions, mapping: Vec<(String, Secret)>) -> Self {
        let access = StoreAccess { options: Some(options), mappings: vec![(role, mapping)] };
        Self::new(self.stores.clone(), access, self.stop.clone())
    }

    fn wait<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.stores.wait(&self.stop, work)
    }

    /// Runs requests that nobody waits for, whether the session's own request is cancelled or not.
    fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.stores.runtime() {
            Ok(runtime) => drop(runtime.spawn(work)),
            Err(error) => tracing::warn!(%error, "requests to a store are not sent"),
        }
    }

    /// Has the next request for a list ask the store.
    fn forget_listings(&self) {
        let mut listings = lock(&self.stores.listings);
        self.stores.listings_epoch.fetch_add(1, Ordering::Relaxed);
        listings.clear();
    }
}
