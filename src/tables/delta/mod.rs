//! Delta Lake: the state of a table at a version, from its log.
//!
//! - `log.rs`: which checkpoint and commits make a version
//! - `action.rs`: what these files consist of
//! - `replay.rs`: the files that are left of all actions
//! - `schema.rs`: columns; `bounds.rs`: what the log knows of their values
//! - `deletion_vector.rs`: rows that are deleted
//!
//! Source: the Delta Transaction Log Protocol, versions 1 to 3 of readers.

mod action;
mod bounds;
mod deletion_vector;
mod log;
mod replay;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use pystachio_plan::{Error, ErrorKind, Result, TableVersion};

pub use self::deletion_vector::DeletionVector;
use self::{action::Protocol, log::Log, replay::Replay};
use crate::{LogEntry, TableState, TableStorage};

/// The folder of a table's log.
const LOG_FOLDER: &str = "_delta_log";

/// Features of tables that this module reads, or that do not concern a reader.
const SUPPORTED_FEATURES: &[&str] = &[
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];
/// The version of the protocol from which on a table names its features.
const FEATURES_READER_VERSION: i32 = 3;

/// What a log's folder holds.
#[derive(Debug)]
pub struct LogListing {
    root: PathBuf,
    entries: Vec<LogEntry>,
}

impl LogListing {
    /// Lists the log of a table. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` if the folder has none; those of listing it.
    pub fn read(storage: &dyn TableStorage, root: &Path) -> Result<Self> {
        let entries = storage.list(&root.join(LOG_FOLDER)).map_err(|error| match error.kind {
            ErrorKind::FileNotFound => {
                let message =
                    format!("folder \"{}\" is no Delta table: it has no folder _delta_log", root.display());
                Error::new(error.kind, message).with_hint(
                    "Set the option \"path\" to the folder of the table, or drop the option \"format\".",
                )
            }
            _ => error,
        })?;
        Ok(Self { root: root.to_owned(), entries })
    }

    /// A digest of the listing: equal if the log has not changed.
    pub fn digest(&self) -> u64 {
        let mut entries: Vec<&LogEntry> = self.entries.iter().collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        hasher.finish()
    }

    /// The table at a version. Blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a version that the log does not have (any more), `NotSupported` for a feature that can't be read,
    /// `FileCorrupt` for a log that is incomplete or damaged; those of reading it.
    pub fn load(&self, storage: &dyn TableStorage, version: &TableVersion) -> Result<TableState> {
        let log = Log::of(&self.root, &self.entries)?;
        let version = match version {
            TableVersion::Latest => log.latest(),
            TableVersion::Number(number) => log.check_version(*number)?,
            TableVersion::AsOf(time_us) => replay::version_at(storage, &log, *time_us)?,
            TableVersion::Named(name) => {
                let message = format!("Delta table \"{}\" has no version \"{name}\"", self.root.display());
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with_hint("Its versions are numbers. Set the option \"version\" to one of them."));
            }
            TableVersion::Snapshot { .. } => {
                return Err(Error::internal("a plan names a snapshot of a Delta table"));
            }
        };
        let replay = Replay::of(storage, &log, version)?;
        check_protocol(&self.root, &replay.protocol)?;
        let columns = schema::columns(&self.root, &replay.metadata)?;
        let files = replay
            .files
            .into_iter()
            .map(|add| add.into_file(&self.root, &columns))
            .collect::<Result<Vec<_>>>()?;
        Ok(TableState { root: self.root.clone(), version: TableVersion::Number(version), columns, files })
    }
}

/// Whether a table needs what this module lacks.
fn check_protocol(root: &Path, protocol: &Protocol) -> Result<()> {
    let version = protocol.min_reader_version;
    let refused = |what: String| {
        let message = format!("Delta table \"{}\" can't be read: {what}", root.display());
        Error::new(ErrorKind::NotSupported, message)
    };
    if !(1..=FEATURES_READER_VERSION).contains(&version) {
        let what = format!(
            "it needs version {version} of the reader's protocol, of which 1 to {FEATURES_READER_VERSION} are known"
        );
        return Err(refused(what));
    }
    let features = protocol.reader_features.iter().flatten().filter(|_| version == FEATURES_READER_VERSION);
    let missing: Vec<&str> =
        features.map(String::as_str).filter(|feature| !SUPPORTED_FEATURES.contains(feature)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(refused(format!("it needs the features \"{}\"", missing.join("\", \"")))
            .with_hint("Drop these features from the table, or copy it to one without them.")),
    }
}

/// The error of a log that is not what the protocol says.
fn corrupt(path: &Path, reason: &str) -> Error {
    Error::new(
        ErrorKind::FileCorrupt,
        format!("the log of a Delta table is damaged: \"{}\": {reason}", path.display()),
    )
}
