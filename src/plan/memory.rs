//! Amounts of memory, and where memory is.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// How much of a device's memory is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemorySize {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of what there is, 1 to 100.
    Percent(u8),
}

impl MemorySize {
    /// What this comes to where there are `whole_bytes`; it may be more.
    pub fn bytes_of(self, whole_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(whole_bytes) * u128::from(percent) / 100) as u64,
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(formatter, "{bytes}"),
            Self::Percent(percent) => write!(formatter, "{percent}%"),
        }
    }
}

impl FromStr for MemorySize {
    type Err = Error;

    /// Reads what [`fmt::Display`] writes: bytes without a unit, or hundredths with `%`.
    fn from_str(text: &str) -> Result<Self> {
        let size = match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Self::Percent)
            }
            None => text.parse().ok().map(Self::Bytes),
        };
        size.ok_or_else(|| {
            let message = format!("no amount of memory: value={text}, valid=bytes or 1% to 100%");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemorySpace {
    /// A device's own.
    Device,
    /// Page-locked memory of the host, which a device's copies reach at the bus's speed.
    Pinned,
    /// Other memory of the host.
    Host,
    /// Files that hold bytes of objects of stores.
    Disk,
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Device => "device",
            Self::Pinned => "pinned",
            Self::Host => "host",
            Self::Disk => "disk",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back_from_their_text() {
        for (text, size) in [("0", MemorySize::Bytes(0)), ("1048576", MemorySize::Bytes(1 << 20))] {
            assert_eq!((text.parse(), size.to_string().as_str()), (Ok(size), text));
        }
        assert_eq!("85%".parse(), Ok(MemorySize::Percent(85)));
        assert_eq!(MemorySize::Percent(85).to_string(), "85%");
        for wrong in ["", "%", "0%", "101%", "-1", "1GB", "1.5%", "99999999999999999999"] {
            assert!(wrong.parse::<MemorySize>().unwrap_err().message.contains(&format!("value={wrong},")));
        }
    }

    #[test]
    fn hundredths_of_the_largest_memory_do_not_overflow() {
        assert_eq!(MemorySize::Percent(50).bytes_of(1000), 500);
        assert_eq!(MemorySize::Percent(100).bytes_of(u64::MAX), u64::MAX);
        assert_eq!(MemorySize::Bytes(7).bytes_of(5), 7);
    }
}
