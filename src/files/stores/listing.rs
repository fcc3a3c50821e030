//! The objects that a path stands for.
//!
//! ```text
//! s3://b/t.parquet      the object, else what is below a folder of that name
//! s3://b/t, s3://b/t/   every object below it that ends in .parquet, else the object
//! s3://b/*/x.parquet    every object that matches, and those below a folder that does
//! https://h/t.parquet   the file
//! ```
//!
//! Names that begin with `.` or `_` are left out below folders, as on local disks.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::{
    StreamExt, TryStreamExt,
    stream::{self, FuturesUnordered},
};
use glob::{MatchOptions, Pattern};
use object_store::{
    Error as StoreError, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, path::Path as Key,
};
use pystachio_plan::{
    Error, ErrorKind, Result, StoreName, TableFormat, TableVersion, catalog_names, is_allowed_by,
    is_iceberg_metadata,
};
use pystachio_tables::LogEntry;

use super::{
    StoreSession,
    object::{FoundObject, list_failed, request_failed},
    place::Place,
};

/// Objects of one path at most. A list of so many takes some hundred megabytes.
const OBJECTS_MAX: usize = 1_000_000;
/// Lists of one table that are asked for at once.
const LISTS_MAX: usize = 16;
/// What a folder has that is a table of another format.
const OTHER_FORMATS: [OtherFormat; 3] = [
    ("Delta Lake", "_delta_log", TableFormat::Delta(TableVersion::Latest)),
    ("Hudi", ".hoodie", TableFormat::Parquet),
    ("Iceberg", "metadata", TableFormat::Iceberg(TableVersion::Latest)),
];
/// Objects of a folder that are looked at for metadata of Iceberg.
const METADATA_LOOK: usize = 1000;
/// Folders that are looked at for formats at once, and objects that are asked for by name.
const LOOKS_MAX: usize = 32;
/// Objects that an answer of a list has.
const LIST_PAGE: usize = 1000;
/// How many objects a list may have for each that is wanted: its answers come one after the other, and those about single objects
/// [`LOOKS_MAX`] at once.
const LISTED_SHARE: usize = LIST_PAGE / (2 * LOOKS_MAX);
/// Folders above a folder that are looked at for other formats.
const ANCESTORS_MAX: usize = 32;
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// The objects of a path, by their URLs.
pub type Listed = Arc<Vec<ObjectMeta>>;

impl StoreSession {
    /// The objects of each path, which the role reads. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` if a path has none; `FilePermission`, `FileAccess`, `InvalidArgument`, `NotSupported` for too many, and for tables of
    /// other formats.
    pub fn expand(&self, paths: &[&str], role: u32) -> Result<Vec<Vec<Arc<FoundObject>>>> {
        let age = self.access.options.as_ref().map_or(0, |options| options.listing_age_ms);
        let age = Duration::from_millis(age);
        let mut wanted = Vec::with_capacity(paths.len());
        for path in paths {
            let place = Place::parse(path)?;
            let (key, client) = self.client(&place, role)?;
            let known = self.stores.known_listing(&key, path, age);
            wanted.push((key, Listing { place, client }, known));
        }
        let asked = (Instant::now(), self.stores.listings_epoch.load(Ordering::Relaxed));
        let unknown: Vec<Listing> =
            wanted.iter().filter(|(.., known)| known.is_none()).map(|(_, list, _)| list.clone()).collect();
        let lists = stream::iter(unknown).map(async |list| list.objects().await.map(Arc::new));
        let listed = lists.buffered(LISTS_MAX).try_collect::<Vec<Listed>>();
        let mut listed = self.wait(listed)?.into_iter();
        let mut found = Vec::with_capacity(paths.len());
        for (path, (key, list, known)) in paths.iter().zip(wanted) {
            let is_known = known.is_some();
            let objects = known.or_else(|| listed.next()).unwrap_or_default();
            if !is_known && !age.is_zero() {
                self.stores.keep_listing(key, path, asked, &objects);
            }
            found.push(self.found(path, &list, &objects)?);
        }
        Ok(found)
    }

    /// The objects of one path, from its list.
    fn found(
        &self,
        path: &str,
        Listing { place, client }: &Listing,
        listed: &Listed,
    ) -> Result<Vec<Arc<FoundObject>>> {
        // A folder may have no files.
        if listed.is_empty() && !path.ends_with('/') {
            let message = format!("no Parquet file matches \"{path}\"");
            return Err(Error::new(ErrorKind::FileNotFound, message).with_hint(
                "Check the path, and that the server option endpoint is the URL of a store. Names of Parquet files end in .parquet.",
            ));
        }
        let found = listed.iter().map(|meta| {
            let url = match place.is_listed() {
                true => place.url(meta.location.as_ref()),
                false => path.to_owned(),
            };
            let found = FoundObject::new(self, place, client, url.clone(), meta.clone());
            found.map(Arc::new).ok_or_else(|| {
                let message = format!("the server tells no version of \"{url}\"");
                Error::new(ErrorKind::NotSupported, message)
                    .with_hint("Serve the file with an ETag or a Last-Modified header, or copy it.")
            })
        });
        found.collect()
    }

    /// Objects by their paths, which a table's metadata name. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` for one that there is not; `FilePermission` for one that the server's tables may not read; `FileAccess`,
    /// `InvalidArgument`.
    pub(crate) fn objects(&self, paths: &[&str], role: u32) -> Result<Vec<Arc<FoundObject>>> {
        let mut wanted = Vec::with_capacity(paths.len());
        for path in paths {
            wanted.push(self.named(path, role)?);
        }
        let asked = wanted.clone();
        let answers = self.wait(async move {
            let mut listed = versions_by_list(&asked).await;
            let known = asked.into_iter().map(|list| {
                let version = listed.remove(&list.place.url(&list.place.key));
                (list, version)
            });
            let known: Vec<(Listing, Option<ObjectMeta>)> = known.collect();
            let one = async |(list, version): (Listing, Option<ObjectMeta>)| match version {
                Some(version) => Ok(version),
                None => {
                    let key = list.place.key.as_str();
                    list.head(key).await?.ok_or_else(|| list.missing(key))
                }
            };
            stream::iter(known).map(one).buffered(LOOKS_MAX).try_collect::<Vec<ObjectMeta>>().await
        })?;
        let found = paths.iter().zip(wanted).zip(answers);
        found
            .map(|((path, list), meta)| {
                let mut found = self.found(path, &list, &Arc::new(vec![meta]))?;
                found.pop().ok_or_else(|| Error::internal("an object was not found that has answered"))
            })
            .collect()
    }

    /// The objects of a folder, without those of folders in it. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::objects`]; `FileNotFound` if there are none.
    pub(crate) fn entries(&self, folder: &str, role: u32) -> Result<Vec<LogEntry>> {
        let list = self.named(folder, role)?;
        let key = list.place.store_key(list.place.key.trim_end_matches('/'))?;
        let missing = list.missing(&list.place.key);
        let listed = self.wait(async move { list.entries(&key).await })?;
        let entries: Vec<LogEntry> = listed.objects.iter().filter_map(log_entry).collect();
        match entries.is_empty() {
            true => Err(missing),
            false => Ok(entries),
        }
    }

    /// A place that a table's metadata name.
    fn named(&self, path: &str, role: u32) -> Result<Listing> {
        let place = Place::parse(path)?;
        if !is_allowed_by(path, &self.options()?.allowed) {
            let message = format!(
                "the foreign server does not allow the path \"{path}\", which the table's metadata name"
            );
            return Err(Error::new(ErrorKind::FilePermission, message)
                .with_hint("Name what its tables may read in the server option stores."));
        }
        let (_, client) = self.client(&place, role)?;
        Ok(Listing { place, client })
    }

    /// The names in a folder, or in a namespace of the server's catalog. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`StoreSession::expand`].
    pub fn names(&self, folder: &str, role: u32) -> Result<Vec<StoreName>> {
        if let Some(namespace) = catalog_names(folder) {
            return self.catalog_tables(&namespace, role);
        }
        let place = Place::parse(folder)?;
        if !place.is_listed() {
            let message = format!("\"{folder}\" has no list of files");
            return Err(Error::new(ErrorKind::NotSupported, message)
                .with_hint("CREATE FOREIGN TABLE with the URLs of the files as option path or paths."));
        }
        let (_, client) = self.client(&place, role)?;
        let list = Listing { place: place.clone(), client };
        self.wait(async move { list.names().await })
    }
}

/// Versions of wanted objects, by their URLs, from lists of the folders that have many of them: a list tells of a thousand objects, a
/// question of one. What a list does not have in time, or may not be listed, is left to be asked for.
async fn versions_by_list(wanted: &[Listing]) -> HashMap<String, ObjectMeta> {
    let mut folders: HashMap<String, (Listing, Vec<String>)> = HashMap::new();
    for list in wanted.iter().filter(|list| list.place.is_listed()) {
        let folder = list.place.key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (_, keys) = folders.entry(list.place.url(folder)).or_insert_with(|| (list.clone(), Vec::new()));
        keys.push(list.place.key.clone());
    }
    let lists: Vec<(Listing, Vec<String>)> =
        folders.into_values().filter(|(_, keys)| keys.len() > LOOKS_MAX).collect();
    let found =
        stream::iter(lists).map(async |(list, keys): (Listing, Vec<String>)| list.versions(keys).await);
    let found: Vec<Vec<(String, ObjectMeta)>> = found.buffered(LISTS_MAX).collect().await;
    found.into_iter().flatten().collect()
}

/// What a store says of an object.
pub(crate) fn log_entry(meta: &ObjectMeta) -> Option<LogEntry> {
    Some(LogEntry {
        name: meta.location.filename()?.to_owned(),
        bytes: meta.size,
        modified_us: meta.last_modified.timestamp_micros(),
    })
}

type OtherFormat = (&'static str, &'static str, TableFormat);

/// A place that is listed.
#[derive(Clone)]
struct Listing {
    place: Place,
    client: Arc<dyn ObjectStore>,
}

impl Listing {
    async fn objects(&self) -> Result<Vec<ObjectMeta>> {
        let key = self.place.key.as_str();
        if !self.place.is_listed() {
            return Ok(vec![self.head(key).await?.ok_or_else(|| self.missing(key))?]);
        }
        if self.place.is_pattern() {
            self.check_formats(self.place.literal_folder()).await?;
            return self.matches().await;
        }
        let is_file = is_parquet(key);
        if is_file && let Some(object) = self.head(key).await? {
            return Ok(vec![object]);
        }
        self.check_formats(key).await?;
        let below = self.below(key).await?;
        if below.is_empty() && !is_file && !key.is_empty() && !key.ends_with('/') {
            return Ok(self.head(key).await?.into_iter().collect());
        }
        Ok(below)
    }

    /// Those of some objects of its folder that a list has, with their URLs. It ends where they end, or where it has far more.
    async fn versions(&self, mut keys: Vec<String>) -> Vec<(String, ObjectMeta)> {
        keys.sort_unstable();
        keys.dedup();
        let mut found = Vec::new();
        let folder = self.place.key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Ok(folder) = self.place.store_key(folder) else { return found };
        let prefix = Some(&folder).filter(|folder| !folder.as_ref().is_empty());
        let mut objects = self.client.list(prefix).take(LIST_PAGE + keys.len().saturating_mul(LISTED_SHARE));
        while let Some(Ok(object)) = objects.next().await {
            let key = object.location.as_ref();
            let is_past = keys.last().is_none_or(|last| key > last.as_str());
            if keys.binary_search_by(|known| known.as_str().cmp(key)).is_ok() {
                found.push((self.place.url(key), object));
            }
            if is_past || found.len() == keys.len() {
                break;
            }
        }
        found
    }

    /// An object by its key, if there is one.
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        match self.client.head(&self.place.store_key(key)?).await {
            Ok(object) => Ok(Some(object)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(request_failed(&self.place.url(key), &error)),
        }
    }

    /// The Parquet files below a folder.
    async fn below(&self, folder: &str) -> Result<Vec<ObjectMeta>> {
        let folder = self.place.store_key(folder)?;
        let depth = folder.parts_count();
        let is_file = move |key: &str| is_parquet(key) && !key.split('/').skip(depth).any(is_hidden);
        self.list(&folder, is_file).await
    }

    async fn matches(&self) -> Result<Vec<ObjectMeta>> {
        let text = self.place.key.as_str();
        let pattern = Pattern::new(text).map_err(|error| {
            let url = self.place.url(text);
            let message = format!("path pattern \"{url}\" is not valid: {error}");
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        let hidden_in_pattern = text.split('/').filter(|name| is_hidden(name)).count();
        let folder = self.place.store_key(self.place.literal_folder())?;
        let mut folders: HashSet<String> = HashSet::new();
        let is_match = move |key: &str| {
            if key.split('/').filter(|name| is_hidden(name)).count() > hidden_in_pattern {
                return false;
            }
            if pattern.matches_with(key, MATCHING) {
                return true;
            }
            // Below a folder that matches.
            let mut ends = key.match_indices('/').map(|(end, _)| key.get(..end).unwrap_or_default());
            is_parquet(key)
                && ends.any(|above| {
                    folders.contains(above)
                        || (pattern.matches_with(above, MATCHING) && folders.insert(above.to_owned()))
                })
        };
        self.list(&folder, is_match).await
    }

    /// The objects below a folder that are wanted, in the order in which files of local folders are read.
    async fn list(&self, folder: &Key, mut is_wanted: impl FnMut(&str) -> bool) -> Result<Vec<ObjectMeta>> {
        let prefix = Some(folder).filter(|folder| !folder.as_ref().is_empty());
        let url = self.place.url(folder.as_ref());
        let mut found = Vec::new();
        let mut objects = self.client.list(prefix);
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| list_failed(&url, &self.place, &error))?;
            if !is_wanted(object.location.as_ref()) {
                continue;
            }
            if found.len() >= OBJECTS_MAX {
                let message = format!("\"{url}\" has more than {OBJECTS_MAX} objects");
                return Err(Error::new(ErrorKind::NotSupported, message)
                    .with_hint("Make a table for each of several folders or patterns."));
            }
            found.push(object);
        }
        found.sort_by_cached_key(|object| PathBuf::from(object.location.as_ref()));
        Ok(found)
    }

    /// Whether a folder or one above it is a table of another format.
    async fn check_formats(&self, folder: &str) -> Result<()> {
        let mut folders = vec![folder.trim_end_matches('/')];
        while let Some((above, _)) = folders.last().and_then(|folder| folder.rsplit_once('/'))
            && folders.len() < ANCESTORS_MAX
        {
            folders.push(above);
        }
        if folders.last().is_some_and(|top| !top.is_empty()) {
            folders.push("");
        }
        let looks = folders
            .iter()
            .flat_map(|folder| OTHER_FORMATS.iter().map(move |format| self.check_format(folder, format)));
        looks.collect::<FuturesUnordered<_>>().try_collect::<Vec<()>>().await.map(drop)
    }

    async fn check_format(&self, folder: &str, (words, name, format): &OtherFormat) -> Result<()> {
        let Some(log) = self.log_of_format(folder, name, format).await? else { return Ok(()) };
        let message = format!(
            "folder \"{}\" is a table of {words}: \"{}\" says which of its rows are current, and is not read",
            self.place.url(folder),
            self.place.url(&log)
        );
        let hint = match format {
            TableFormat::Parquet => "Give the paths of the files that the table has now, one by one, if none of their rows is deleted, or \
                 copy the table into plain Parquet. IMPORT FOREIGN SCHEMA leaves a folder out that is named after EXCEPT."
                .to_owned(),
            format => format!(
                "Use the folder itself as the path, with the option format '{}'. IMPORT FOREIGN SCHEMA sets it.",
                format.option()
            ),
        };
        Err(Error::new(ErrorKind::NotSupported, message).with_hint(hint))
    }

    /// What says that a folder is a table of a format, if it is one.
    async fn log_of_format(&self, folder: &str, name: &str, format: &TableFormat) -> Result<Option<String>> {
        let log = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let key = self.place.store_key(&log)?;
        let is_iceberg = matches!(format, TableFormat::Iceberg(_));
        let mut objects = self.client.list(Some(&key)).take(if is_iceberg { METADATA_LOOK } else { 1 });
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| list_failed(&self.place.url(folder), &self.place, &error))?;
            if !is_iceberg || is_iceberg_metadata(object.location.as_ref()) {
                return Ok(Some(log));
            }
        }
        Ok(None)
    }

    /// The format whose table a folder is.
    async fn format_of(&self, folder: &str) -> Result<TableFormat> {
        for (_, name, format) in OTHER_FORMATS {
            if format != TableFormat::Parquet && self.log_of_format(folder, name, &format).await?.is_some() {
                return Ok(format);
            }
        }
        Ok(TableFormat::Parquet)
    }

    async fn names(&self) -> Result<Vec<StoreName>> {
        let folder = self.place.store_key(&self.place.key)?;
        self.check_formats(folder.as_ref()).await?;
        let listed = self.entries(&folder).await?;
        let name = |key: &Key| key.filename().map(str::to_owned);
        let folders = stream::iter(listed.common_prefixes).map(async |key| {
            let format = self.format_of(key.as_ref()).await?;
            Ok::<_, Error>(name(&key).map(|name| StoreName { name, is_folder: true, format }))
        });
        let folders: Vec<Option<StoreName>> = folders.buffered(LOOKS_MAX).try_collect().await?;
        let files = listed.objects.iter().filter_map(|object| {
            Some(StoreName { name: name(&object.location)?, is_folder: false, format: TableFormat::Parquet })
        });
        Ok(folders.into_iter().flatten().chain(files).collect())
    }

    async fn entries(&self, folder: &Key) -> Result<ListResult> {
        let prefix = Some(folder).filter(|folder| !folder.as_ref().is_empty());
        let listed = self.client.list_with_delimiter(prefix).await;
        listed.map_err(|error| list_failed(&self.place.url(folder.as_ref()), &self.place, &error))
    }

    fn missing(&self, key: &str) -> Error {
        Error::new(ErrorKind::FileNotFound, format!("file \"{}\" does not exist", self.place.url(key)))
    }
}

fn is_parquet(key: &str) -> bool {
    key.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case("parquet"))
}

fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}
