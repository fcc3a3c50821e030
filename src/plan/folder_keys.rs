//! Folders whose names are values: `year=2024/month=07/a.parquet`.
//!
//! A folder's name is `key=value`, both percent-encoded where a file system needs that. The value `__HIVE_DEFAULT_PARTITION__`
//! is NULL. Hive, Spark, DuckDB and Arrow write such folders.
//!
//! Invariants: of equal keys, the folder nearest to the file counts. A key is matched as a column of a file is: exactly, and then
//! without regard to case.

use std::{
    borrow::Cow,
    path::{Component, Path},
};

/// The value of a folder that stands for NULL.
pub const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// The keys of a path's folders, from the root on, and the texts of their values; no text is NULL.
pub fn folder_keys(path: &Path) -> impl DoubleEndedIterator<Item = (Cow<'_, str>, Option<Cow<'_, str>>)> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    folders.filter_map(|folder| {
        let Component::Normal(name) = folder else { return None };
        let (key, value) = name.to_str()?.split_once('=')?;
        let value = Some(value).filter(|value| *value != NULL_FOLDER).map(percent_decoded);
        (!key.is_empty()).then(|| (percent_decoded(key), value))
    })
}

/// What the folders of a path say of a column: nothing, NULL, or a text.
pub fn folder_text<'a>(path: &'a Path, name: &str) -> Option<Option<Cow<'a, str>>> {
    // It is asked for each column of each file of a scan, and most tables have no such folders.
    if !path.as_os_str().as_encoded_bytes().contains(&b'=') {
        return None;
    }
    let exact = folder_keys(path).rev().find(|(key, _)| key == name);
    let found = exact.or_else(|| {
        let name = name.to_lowercase();
        folder_keys(path).rev().find(|(key, _)| key.to_lowercase() == name)
    });
    found.map(|(_, value)| value)
}

/// A text with `%20` and the like decoded; as it is if that is no UTF-8.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    String::from_utf8(percent_decoded_bytes(text)).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The bytes of a text with `%20` and the like decoded.
pub fn percent_decoded_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match tail {
            [high, low, ..] if *first == b'%' => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                digit(high).zip(digit(low)).map(|(high, low)| (high * 16 + low) as u8)
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    bytes
}
