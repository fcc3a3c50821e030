//! Which letters there are, what `upper`, `lower` and ILIKE change, and names of locales.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes a locale's name has at most: those that a `name` of PostgreSQL holds.
const LOCALE_NAME_BYTES_MAX: usize = 63;

/// The character class of a collation, as far as case goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ctype {
    /// The letters of ASCII, as in PostgreSQL's C and POSIX.
    Ascii,
    /// Code point by code point what `towupper_l` and `towlower_l` of the host's libc give in the locale of
    /// this name, whose characters are UTF-8.
    Libc(LocaleName),
}

/// What orders texts otherwise than by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collator {
    /// `strxfrm_l` of the host's libc in the locale of this name, whose characters are UTF-8.
    Libc(LocaleName),
    /// A collator of ICU.
    Icu {
        /// The major version of the library.
        version: u8,
        /// As `ucol_open` takes it.
        locale: LocaleName,
    },
}

/// The name of a locale of libc or ICU: 1 to 63 bytes, none of them 0.
///
/// The empty name, which would mean the process's environment, is none: two processes can differ in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LocaleName {
    /// Zero after the name.
    bytes: [u8; LOCALE_NAME_BYTES_MAX],
}

impl LocaleName {
    /// `C.UTF-8`, which every host has.
    pub const C_UTF8: Self = {
        let mut bytes = [0; LOCALE_NAME_BYTES_MAX];
        let name = b"C.UTF-8";
        let mut place = 0;
        while place < name.len() {
            bytes[place] = name[place];
            place += 1;
        }
        Self { bytes }
    };

    /// The name; `None` if it can't be one.
    pub fn new(name: &str) -> Option<Self> {
        if name.is_empty() || name.contains('\0') {
            return None;
        }
        let mut bytes = [0; LOCALE_NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Self { bytes })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(LOCALE_NAME_BYTES_MAX);
        // The bytes are a whole string's.
        self.bytes.get(..end).and_then(|name| str::from_utf8(name).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for LocaleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl From<LocaleName> for String {
    fn from(name: LocaleName) -> Self {
        name.as_str().to_owned()
    }
}

impl TryFrom<String> for LocaleName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::new(&name).ok_or_else(|| format!("not the name of a locale: {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_whole() {
        for name in ["C.UTF-8", "tr_TR.utf8", "ä", &"x".repeat(LOCALE_NAME_BYTES_MAX)] {
            assert_eq!(LocaleName::new(name).map(|name| name.as_str().to_owned()).as_deref(), Some(name));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", "C\0UTF-8", &"x".repeat(LOCALE_NAME_BYTES_MAX + 1)] {
            assert_eq!(LocaleName::new(name), None);
        }
    }
}
