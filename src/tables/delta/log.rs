//! Which files of a log make a version.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{LOG_FOLDER, corrupt};
use crate::LogEntry;

/// The digits of a version in the names of files.
const VERSION_DIGITS: usize = 20;

/// A log: its commits, and its checkpoints that are complete.
#[derive(Debug)]
pub(super) struct Log {
    /// The table's folder.
    pub(super) root: PathBuf,
    folder: PathBuf,
    /// When each commit's file was changed, in microseconds since 1970.
    commits: BTreeMap<i64, i64>,
    /// The files of each, in their order.
    checkpoints: BTreeMap<i64, Vec<String>>,
}

/// What the name of a file says.
enum Named {
    Commit,
    Checkpoint,
    Part { part: u32, part_count: u32 },
}

impl Log {
    pub(super) fn of(root: &Path, entries: &[LogEntry]) -> Result<Self> {
        let mut log = Self {
            root: root.to_owned(),
            folder: root.join(LOG_FOLDER),
            commits: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
        };
        let mut parts: BTreeMap<(i64, u32), BTreeMap<u32, String>> = BTreeMap::new();
        // Of several checkpoints of a version, the first by name counts, whatever the order of the listing.
        let entries: BTreeSet<(&str, i64)> =
            entries.iter().map(|entry| (entry.name.as_str(), entry.modified_us)).collect();
        for (name, modified_us) in entries {
            match named(name) {
                Some((version, Named::Commit)) => drop(log.commits.insert(version, modified_us)),
                Some((version, Named::Checkpoint)) => {
                    log.checkpoints.entry(version).or_insert_with(|| vec![name.to_owned()]);
                }
                Some((version, Named::Part { part, part_count })) => {
                    parts.entry((version, part_count)).or_default().insert(part, name.to_owned());
                }
                None => {}
            }
        }
        for ((version, part_count), parts) in parts {
            if parts.len() == part_count as usize && parts.keys().copied().eq(1..=part_count) {
                log.checkpoints.entry(version).or_insert_with(|| parts.into_values().collect());
            }
        }
        match log.newest() {
            Some(_) => Ok(log),
            None => Err(corrupt(&log.folder, "it has neither a commit nor a checkpoint")),
        }
    }

    fn newest(&self) -> Option<i64> {
        self.commits.keys().next_back().max(self.checkpoints.keys().next_back()).copied()
    }

    /// The last version.
    pub(super) fn latest(&self) -> i64 {
        self.newest().unwrap_or(0)
    }

    /// The first version that can be read.
    fn first(&self) -> i64 {
        match self.commits.contains_key(&0) {
            true => 0,
            false => self.checkpoints.keys().next().copied().unwrap_or(0),
        }
    }

    /// A version, if the log has it.
    pub(super) fn check_version(&self, version: i64) -> Result<i64> {
        let (first, latest) = (self.first(), self.latest());
        if (first..=latest).contains(&version) {
            return Ok(version);
        }
        let message =
            format!("Delta table \"{}\" has no version {version} that can be read", self.root.display());
        Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint(format!("Its log has versions {first} to {latest}.")))
    }

    /// Where a file of the log is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file of a version's commit.
    pub(super) fn commit_path(&self, version: i64) -> PathBuf {
        self.path(&format!("{version:0VERSION_DIGITS$}.json"))
    }

    /// The commits that there are, the newest first, and when their files were changed.
    pub(super) fn commits(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> {
        self.commits.iter().rev().map(|(version, modified_us)| (*version, *modified_us))
    }

    /// The newest checkpoint up to a version, and the versions of the commits after it, the newest first.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if a commit is missing.
    pub(super) fn parts_of(&self, version: i64) -> Result<(Option<&[String]>, Vec<i64>)> {
        let checkpoint = self.checkpoints.range(..=version).next_back();
        let after = checkpoint.map_or(-1, |(of, _)| *of);
        let mut commits: Vec<i64> =
            self.commits.keys().copied().filter(|commit| (after + 1..=version).contains(commit)).collect();
        // Versions count from the checkpoint on without a gap.
        let present =
            commits.iter().zip(after + 1..).take_while(|(commit, expected)| *commit == expected).count();
        let expected = after + 1 + present as i64;
        if expected <= version {
            return Err(corrupt(
                &self.commit_path(expected),
                &format!("the commit is missing, without which version {version} can't be read"),
            ));
        }
        commits.reverse();
        Ok((checkpoint.map(|(_, names)| names.as_slice()), commits))
    }
}

/// The version and the kind of a file of a log.
fn named(name: &str) -> Option<(i64, Named)> {
    let (digits, rest) = name.split_at_checked(VERSION_DIGITS)?;
    // A version has one after it.
    let version = number(digits).filter(|version: &i64| *version < i64::MAX)?;
    let kind = match rest.strip_prefix('.')?.split('.').collect::<Vec<_>>().as_slice() {
        ["json"] => Named::Commit,
        ["checkpoint", "parquet"] => Named::Checkpoint,
        ["checkpoint", part, part_count, "parquet"] => {
            Named::Part { part: number(part)?, part_count: number(part_count)? }
        }
        ["checkpoint", _, "json" | "parquet"] => Named::Checkpoint,
        _ => return None,
    };
    Some((version, kind))
}

fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
