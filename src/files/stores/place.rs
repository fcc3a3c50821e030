//! What a path with a scheme names: a store, and a key, a folder of keys or a pattern in it.

use object_store::path::Path as Key;
use pystachio_plan::{Error, ErrorKind, PATTERN_LETTERS, Result, check_store_path, store_scheme};

/// A path in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// One of [`pystachio_plan::STORE_SCHEMES`].
    pub scheme: String,
    /// The bucket, the container, or the host with its port.
    pub bucket: String,
    /// What follows, without the slash before it.
    pub key: String,
}

impl Place {
    /// The place that a path names.
    ///
    /// # Errors
    ///
    /// Those of [`check_store_path`].
    pub fn parse(path: &str) -> Result<Self> {
        check_store_path(path)?;
        let scheme = store_scheme(path).unwrap_or_default();
        let rest = path.get(scheme.len() + 3..).unwrap_or_default();
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Self { scheme: scheme.to_owned(), bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// Whether the store answers which objects it has.
    pub fn is_listed(&self) -> bool {
        !self.scheme.starts_with("http")
    }

    /// The URL of a key.
    pub fn url(&self, key: &str) -> String {
        format!("{}://{}/{key}", self.scheme, self.bucket)
    }

    /// Whether the key is a pattern.
    pub fn is_pattern(&self) -> bool {
        self.key.contains(PATTERN_LETTERS)
    }

    /// The folder that a pattern's matches are in, without a slash at its end.
    pub fn literal_folder(&self) -> &str {
        let literal = self.key.split(PATTERN_LETTERS).next().unwrap_or_default();
        literal.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// A key as the store has it. Keys of http are written as in a URL.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a key with an empty part.
    pub fn store_key(&self, key: &str) -> Result<Key> {
        let parsed = if self.is_listed() { Key::parse(key) } else { Key::from_url_path(key) };
        parsed.map_err(|_| {
            let message = format!("path \"{}\" is not valid: it has an empty part", self.url(key));
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_bucket_and_a_key() {
        let place = Place::parse("s3://lake/a/b*/c.parquet").unwrap();
        assert_eq!((place.bucket.as_str(), place.key.as_str()), ("lake", "a/b*/c.parquet"));
        assert!(place.is_pattern() && place.is_listed());
        assert_eq!((place.literal_folder(), place.url("x")), ("a", "s3://lake/x".to_owned()));
        assert_eq!(Place::parse("s3://lake").unwrap().key, "");
        assert_eq!(Place::parse("s3://lake/*.parquet").unwrap().literal_folder(), "");
        let web = Place::parse("https://h:1/a%20b.parquet").unwrap();
        assert_eq!((web.bucket.as_str(), web.is_listed()), ("h:1", false));
        assert_eq!(web.store_key(&web.key).unwrap().as_ref(), "a b.parquet");
        assert!(place.store_key("a//b").is_err());
    }
}
