//! Keys of encrypted Parquet files, as options of user mappings.
//!
//! | option | value |
//! |---|---|
//! | `footer_key` | the key of footers that name none which is known, and of columns that are encrypted with it |
//! | `column_keys` | keys by columns: `ssn:KEY, address.city:KEY` |
//! | `key_list` | keys by the ids that files name: `k1:KEY, k2:KEY` |
//! | `aad_prefix` | the prefix of files that were written with one and do not have it |
//!
//! A key is 16, 24 or 32 bytes, in hexadecimal digits or base64.
//!
//! Invariant: neither an error nor `Debug` output has a letter of a value.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{Error, ErrorKind, Result};

/// The options of user mappings that are about encrypted files.
pub const FILE_KEY_OPTIONS: &[&str] = &["footer_key", "column_keys", "key_list", "aad_prefix"];
/// How long keys are.
const KEY_BYTES: [usize; 3] = [16, 24, 32];

/// Bytes that are shown to nobody: a key, or what is bound to one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FileKey(Vec<u8>);

impl FileKey {
    /// A key of these bytes; `None` if no key is so long.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        KEY_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The key that a text is, in hexadecimal digits or base64.
    fn parse(text: &str) -> Option<Self> {
        // Base64 of 24 bytes is as long as 16 bytes in hexadecimal digits, and has other letters too.
        let bytes = decode_hex(text).or_else(|| STANDARD.decode(text).ok())?;
        Self::new(bytes)
    }

    /// The bytes, for a cipher alone.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<secret>")
    }
}

/// The keys of a user mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileKeys {
    /// The key of footers.
    pub footer: Option<FileKey>,
    /// Keys by the paths of columns, or of groups that they are in.
    pub columns: Vec<(String, FileKey)>,
    /// Keys by ids.
    pub by_id: Vec<(String, FileKey)>,
    /// The prefix of what ties modules to their file.
    pub aad_prefix: Option<String>,
}

impl FileKeys {
    /// The keys among the options of a user mapping; `None` if there are none.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, naming the option.
    pub fn parse<'o>(options: impl IntoIterator<Item = (&'o str, &'o str)>) -> Result<Option<Self>> {
        let mut keys = Self::default();
        for (name, value) in options {
            match name {
                "footer_key" => {
                    let key = FileKey::parse(value.trim());
                    keys.footer = Some(key.ok_or_else(|| invalid(name, "it is no key"))?);
                }
                "column_keys" => keys.columns = parse_list(name, value)?,
                "key_list" => keys.by_id = parse_list(name, value)?,
                "aad_prefix" => keys.aad_prefix = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok((keys != Self::default()).then_some(keys))
    }

    /// The key of a column by its path, if the mapping has one: of the path itself, else of the closest group around it.
    pub fn of_column(&self, path: &str) -> Option<&FileKey> {
        let is_around = |name: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let named = self.columns.iter().filter(|(name, _)| name == path || is_around(name));
        named.max_by_key(|(name, _)| name.len()).map(|(_, key)| key)
    }

    /// The key of an id, if the mapping has it.
    pub fn of_id(&self, id: &str) -> Option<&FileKey> {
        self.by_id.iter().find(|(known, _)| known == id).map(|(_, key)| key)
    }
}

/// Names and keys. A name may have colons, no commas.
fn parse_list(option: &str, value: &str) -> Result<Vec<(String, FileKey)>> {
    let entry = |(place, entry): (usize, &str)| {
        let found = entry.rsplit_once(':').map(|(name, key)| (name.trim(), key.trim()));
        found
            .filter(|(name, _)| !name.is_empty())
            .and_then(|(name, key)| Some((name.to_owned(), FileKey::parse(key)?)))
            .ok_or_else(|| invalid(option, &format!("entry {} is no name:key", place + 1)))
    };
    value.split(',').enumerate().map(entry).collect()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|letter| letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn invalid(option: &str, reason: &str) -> Error {
    let message = format!("option \"{option}\" of a user mapping is not valid: {reason}");
    Error::new(ErrorKind::InvalidArgument, message).with_hint(
        "A key has 16, 24 or 32 bytes, in hexadecimal digits or base64. Lists have commas between entries: name:key, name:key.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "30313233343536373839303132333435";
    const BASE64: &str = "MDEyMzQ1Njc4OTAxMjM0NQ==";

    #[test]
    fn keys_are_read_in_both_forms() {
        let key = FileKey::new(b"0123456789012345".to_vec()).unwrap();
        assert_eq!(FileKey::parse(HEX), Some(key.clone()));
        assert_eq!(FileKey::parse(BASE64), Some(key.clone()));
        assert_eq!(FileKey::parse(&STANDARD.encode([0xd6; 24])).unwrap().reveal(), [0xd6; 24]);
        for wrong in ["", "0", "00", "0123456789012345", "MDEyMzQ1Njc4OTAxMjM0", &HEX[1..], "é"] {
            assert_eq!(FileKey::parse(wrong), None, "{wrong}");
        }
        let options = [
            ("footer_key", HEX),
            ("column_keys", &format!("a : {HEX},b:c.d:{BASE64}")),
            ("aad_prefix", "p"),
            ("token", "t"),
        ];
        let keys = FileKeys::parse(options).unwrap().unwrap();
        assert_eq!((keys.footer.as_ref(), keys.columns.len()), (Some(&key), 2));
        assert_eq!(keys.of_column("b:c.d"), Some(&key));
        assert_eq!(FileKeys::parse([("token", "t")]), Ok(None));
    }

    #[test]
    fn a_column_has_the_key_of_the_closest_group_around_it() {
        let key = |byte| FileKey::new(vec![byte; 16]).unwrap();
        let columns = vec![("a".to_owned(), key(1)), ("a.b".to_owned(), key(2))];
        let keys = FileKeys { columns, ..FileKeys::default() };
        assert_eq!(keys.of_column("a.b"), Some(&key(2)));
        assert_eq!(keys.of_column("a.b.c"), Some(&key(2)));
        assert_eq!(keys.of_column("a.bc"), Some(&key(1)));
        assert_eq!(keys.of_column("ab"), None);
    }

    #[test]
    fn neither_errors_nor_debug_output_show_keys() {
        let keys = FileKeys::parse([("footer_key", HEX)]).unwrap();
        assert!(!format!("{keys:?}").contains("48"));
        for (option, value) in [("footer_key", "hush"), ("column_keys", "a:hush"), ("key_list", "hush")] {
            let error = FileKeys::parse([(option, value)]).unwrap_err();
            assert!(error.message.contains(option) && !format!("{error:?}").contains("hush"), "{error:?}");
        }
    }
}
