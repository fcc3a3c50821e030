//! The files that are left of all actions up to a version.

use std::{collections::HashSet, path::Path};

use pystachio_plan::{Error, ErrorKind, Result};
use serde_json::Value;

use super::{
    action::{Action, Add, CHECKPOINT_COLUMNS, Metadata, Protocol, located},
    corrupt,
    log::Log,
};
use crate::TableStorage;

/// The folder of checkpoints' parts, below the log's.
const SIDECAR_FOLDER: &str = "_sidecars";
/// Property of tables whose commits say when they were made, and from which version on.
const COMMIT_TIMES: &str = "delta.enableInCommitTimestamps";
const COMMIT_TIMES_SINCE: &str = "delta.inCommitTimestampEnablementVersion";

/// What actions leave.
pub(super) struct Replay {
    pub(super) protocol: Protocol,
    pub(super) metadata: Metadata,
    /// In the order of their paths.
    pub(super) files: Vec<Add>,
}

/// A file with the rows of it that are left.
type FileKey = (String, Option<String>);

/// Actions that were read so far, the newest first.
#[derive(Default)]
struct Newest {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    /// Files of which an action was read.
    seen: HashSet<FileKey>,
    files: Vec<Add>,
}

impl Newest {
    fn add(&mut self, action: Action) {
        let Action { add, remove, meta_data, protocol, .. } = action;
        self.protocol = self.protocol.take().or(protocol);
        self.metadata = self.metadata.take().or(meta_data);
        if let Some(remove) = remove {
            self.seen.insert((remove.path, remove.deletion_vector.map(|vector| vector.id())));
        }
        if let Some(add) = add
            && self.seen.insert((add.path.clone(), add.deletion_vector.as_ref().map(|vector| vector.id())))
        {
            self.files.push(add);
        }
    }
}

impl Replay {
    /// Reads a version's checkpoint and commits.
    pub(super) fn of(storage: &dyn TableStorage, log: &Log, version: i64) -> Result<Self> {
        let (checkpoint, commits) = log.parts_of(version)?;
        let mut newest = Newest::default();
        for commit in commits {
            read_commit(storage, &log.commit_path(commit), &mut |action| {
                newest.add(action);
                Ok(())
            })?;
        }
        for name in checkpoint.into_iter().flatten() {
            read_checkpoint(storage, log, name, &mut newest)?;
        }
        let Newest { protocol, metadata, mut files, .. } = newest;
        let missing = |what: &str| corrupt(&log.path(""), &format!("version {version} has no {what}"));
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self {
            protocol: protocol.ok_or_else(|| missing("protocol"))?,
            metadata: metadata.ok_or_else(|| missing("metadata"))?,
            files,
        })
    }
}

/// Reads the actions of a file with one in each line.
fn read_commit(
    storage: &dyn TableStorage,
    path: &Path,
    visit: &mut dyn FnMut(Action) -> Result<()>,
) -> Result<()> {
    let bytes = storage.read(path, None)?;
    let mut is_empty = true;
    for (place, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        is_empty = false;
        let action = serde_json::from_slice(line)
            .map_err(|error| corrupt(path, &format!("line {}: {error}", place + 1)))?;
        visit(action)?;
    }
    match is_empty {
        true => Err(corrupt(path, "the file has no actions")),
        false => Ok(()),
    }
}

fn read_checkpoint(storage: &dyn TableStorage, log: &Log, name: &str, newest: &mut Newest) -> Result<()> {
    let path = log.path(name);
    let mut sidecars = Vec::new();
    let mut visit = |action: Action| {
        sidecars.extend(action.sidecar.as_ref().map(|sidecar| sidecar.path.clone()));
        newest.add(action);
        Ok(())
    };
    match name.ends_with(".json") {
        true => read_commit(storage, &path, &mut visit)?,
        false => read_rows(storage, &path, &mut visit)?,
    }
    for sidecar in sidecars {
        let path = located(&log.path(SIDECAR_FOLDER), &sidecar)?;
        read_rows(storage, &path, &mut |action| {
            newest.add(action);
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads the actions of a Parquet file with one in each row.
fn read_rows(
    storage: &dyn TableStorage,
    path: &Path,
    visit: &mut dyn FnMut(Action) -> Result<()>,
) -> Result<()> {
    storage.rows(path, CHECKPOINT_COLUMNS, &mut |row: Value| {
        visit(serde_json::from_value(row).map_err(|error| corrupt(path, &error.to_string()))?)
    })
}

/// The last version that was committed at a time or before.
pub(super) fn version_at(storage: &dyn TableStorage, log: &Log, time_us: i64) -> Result<i64> {
    let latest = Replay::of(storage, log, log.latest())?.metadata;
    let own_since = match latest.property(COMMIT_TIMES) {
        Some("true") => latest.property(COMMIT_TIMES_SINCE).map_or(Some(0), |since| since.parse().ok()),
        _ => None,
    };
    // The times of files, in milliseconds; each is later than the one before it.
    let mut of_files = Vec::new();
    for (version, modified_us) in log.commits().rev() {
        let before = of_files.last().map(|(_, time_ms)| time_ms + 1);
        of_files.push((version, (modified_us / 1000).max(before.unwrap_or(i64::MIN))));
    }
    for (version, of_file) in of_files.iter().rev() {
        let time_ms = match own_since.is_some_and(|since: i64| *version >= since) {
            true => commit_time(storage, log, *version)?,
            false => *of_file,
        };
        if time_ms.saturating_mul(1000) <= time_us {
            return log.check_version(*version);
        }
    }
    let message = format!("Delta table \"{}\" has no version of that time or before", log.root.display());
    Err(Error::new(ErrorKind::InvalidArgument, message)
        .with_hint("Set the option \"timestamp\" to a later time, or the option \"version\"."))
}

/// What a commit says of its time, in milliseconds since 1970.
fn commit_time(storage: &dyn TableStorage, log: &Log, version: i64) -> Result<i64> {
    let path = log.commit_path(version);
    let mut found = None;
    read_commit(storage, &path, &mut |action| {
        found = found.or(action.commit_info.and_then(|info| info.in_commit_timestamp));
        Ok(())
    })?;
    found.ok_or_else(|| corrupt(&path, "the commit has no time"))
}
