//! Which GPU reads which disk, as a user says it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// How GPUs are matched with disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AffinityPolicy {
    /// The nearest GPUs on the PCI Express tree.
    #[default]
    Optimal,
    /// The GPUs of the disk's NUMA node.
    Numa,
    /// Any: the operating system places threads as it likes.
    System,
}

/// Policies by their names.
const POLICIES: [(&str, AffinityPolicy); 3] = [
    ("optimal", AffinityPolicy::Optimal),
    ("numa", AffinityPolicy::Numa),
    ("system", AffinityPolicy::System),
];

/// The server option `affinity`: a policy, and disks that are given to GPUs whatever it says.
///
/// Written `numa`, `nvme0:0,nvme1:1`, or both: `numa,nvme0:1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AffinityRule {
    /// For disks that are not named.
    pub policy: AffinityPolicy,
    /// Disks by the kernel's names, and GPUs by their ordinals. A disk may have several.
    pub disks: Vec<(String, u32)>,
}

impl FromStr for AffinityRule {
    type Err = Error;

    /// # Errors
    ///
    /// `InvalidArgument`, naming the value and what is valid.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |entry: &str| {
            let message =
                format!("affinity is not valid: value={entry}, valid=optimal, numa, system, nvme0:1");
            Error::new(ErrorKind::InvalidArgument, message)
        };
        let mut rule = Self::default();
        let mut has_policy = false;
        for entry in text.split(',').map(str::trim) {
            if let Some((disk, gpu)) = entry.split_once(':') {
                let gpu = gpu.parse().ok().filter(|_| !disk.is_empty()).ok_or_else(|| invalid(entry))?;
                rule.disks.push((disk.to_owned(), gpu));
            } else {
                let known = POLICIES.iter().find(|(name, _)| *name == entry && !has_policy);
                rule.policy = known.ok_or_else(|| invalid(entry))?.1;
                has_policy = true;
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for AffinityPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = POLICIES.iter().find(|(_, policy)| policy == self);
        formatter.write_str(known.map_or("", |(name, _)| name))
    }
}

impl fmt::Display for AffinityRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.policy)?;
        self.disks.iter().try_for_each(|(disk, gpu)| write!(formatter, ",{disk}:{gpu}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for (text, written) in [
            ("optimal", "optimal"),
            ("numa", "numa"),
            ("nvme0:0,nvme1:1", "optimal,nvme0:0,nvme1:1"),
            ("nvme0:0, system ,nvme0:3", "system,nvme0:0,nvme0:3"),
        ] {
            let rule: AffinityRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), written);
            assert_eq!(written.parse::<AffinityRule>().unwrap(), rule);
        }
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for (text, wrong) in [
            ("", "value=,"),
            ("nearest", "value=nearest,"),
            ("numa,nvme0", "value=nvme0,"),
            ("nvme0:", "value=nvme0:,"),
            (":1", "value=:1,"),
            ("nvme0:-1", "value=nvme0:-1,"),
            ("numa,optimal", "value=optimal,"),
            ("numa,", "value=,"),
        ] {
            let error = text.parse::<AffinityRule>().unwrap_err();
            assert!(error.message.contains(wrong), "{text}: {error}");
        }
    }
}
