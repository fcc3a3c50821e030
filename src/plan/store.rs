//! Object stores: which paths name one, and what an engine needs to reach it.
//!
//! A path with a scheme (`s3://bucket/key`) names an object, a folder of objects or a pattern of them. The extension resolves the
//! user mapping of the right role when a request is sent, and the request carries its options. So no plan, no command line and no file
//! has them.
//!
//! Invariant: the text of a [`Secret`] leaves a process in a request alone. Its `Debug` output has no letter of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, RANK_PLACEHOLDER, Result};

/// The schemes of paths in stores.
pub const STORE_SCHEMES: &[&str] = &["s3", "gs", "az", "http", "https"];
/// What paths begin with that stand for tables and namespaces of the server's catalog. Users name those by options of their own.
const CATALOG_SCHEME: &str = "catalog://";

/// A value that is shown to nobody.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Its text, for the store alone.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<secret>")
    }
}

/// How a store is told who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreCredentials {
    /// By the options of the role's user mapping.
    #[default]
    UserMapping,
    /// Not at all.
    Anonymous,
    /// By what the environment of the engine, or the machine that it runs on, has.
    Environment,
    /// By the keys that the server's catalog lends for each table.
    Catalog,
}

/// Whether and for what requests to a catalog are signed by keys of AWS. What is none, the catalog itself may say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CatalogSigning {
    /// Whether they are.
    pub is_on: Option<bool>,
    /// The name of the service, as `glue`.
    pub name: Option<String>,
    /// The service's region.
    pub region: Option<String>,
}

impl CatalogSigning {
    /// Whether a text can be the name of a service or a region.
    pub fn is_name(text: &str) -> bool {
        let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
        (1..64).contains(&text.len()) && text.bytes().all(is_letter)
    }
}

/// A REST catalog of Iceberg, which says where tables are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CatalogOptions {
    /// Its URL, without the version of the protocol.
    pub url: String,
    /// Which of its warehouses is meant.
    pub warehouse: Option<String>,
    /// The URL that gives tokens for a client's id and secret; none for the catalog's own.
    pub token_url: Option<String>,
    /// What such a token is asked for.
    pub scope: Option<String>,
    /// Signatures of requests.
    pub signing: CatalogSigning,
}

/// How the stores of a server are reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreOptions {
    /// The service's URL; none for the public one of the scheme.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// Whether the bucket is part of the host's name.
    pub is_virtual_hosted: bool,
    /// Who asks.
    pub credentials: StoreCredentials,
    /// How long one request may take, in milliseconds.
    pub timeout_ms: u64,
    /// How long a list of objects is taken for current, in milliseconds.
    pub listing_age_ms: u64,
    /// Prefixes of the paths that tables may read. The extension checks the paths of tables, engines those that tables' metadata name.
    pub allowed: Vec<String>,
    /// The catalog of its tables of Iceberg.
    pub catalog: Option<CatalogOptions>,
}

/// How a request may reach objects and open encrypted files. Empty if it reads no store, and roles have no keys of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAccess {
    /// Those of the server; none if the request reads no store.
    pub options: Option<StoreOptions>,
    /// The options of user mappings, by role, as [`crate::FileSet::role`] has it.
    pub mappings: Vec<(u32, Vec<(String, Secret)>)>,
}

impl StoreAccess {
    /// The user mapping of a role; empty if it has none.
    pub fn mapping(&self, role: u32) -> &[(String, Secret)] {
        self.mappings.iter().find(|(of, _)| *of == role).map_or(&[], |(_, options)| options)
    }
}

/// The path that stands for a namespace or a table of a catalog, by its names.
pub fn catalog_path(names: &[String]) -> String {
    let mut path = CATALOG_SCHEME.to_owned();
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            path.push('/');
        }
        for letter in name.chars() {
            // Those that have a meaning in paths.
            match letter {
                '%' | '/' | '{' | '*' | '?' | '[' => path.push_str(&format!("%{:02X}", u32::from(letter))),
                letter => path.push(letter),
            }
        }
    }
    path
}

/// The names of a namespace or a table of a catalog that a path stands for.
pub fn catalog_names(path: &str) -> Option<Vec<String>> {
    let name = |encoded: &str| {
        let mut parts = encoded.split('%');
        let mut name = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let letter = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok())?;
            name.push(char::from(letter));
            name.push_str(part.get(2..)?);
        }
        Some(name)
    };
    path.strip_prefix(CATALOG_SCHEME)?.split('/').map(name).collect()
}

/// Whether a path names something in a store.
pub fn is_in_store(path: &str) -> bool {
    store_scheme(path).is_some()
}

/// The scheme of a path: what comes before `://`, if it looks like one.
pub fn store_scheme(path: &str) -> Option<&str> {
    let (scheme, _) = path.split_once("://")?;
    let is_scheme = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+.-".contains(letter));
    is_scheme.then_some(scheme)
}

/// Checks a path with a scheme: the scheme is known, it has a bucket or host, and no part of it is hidden from a prefix.
///
/// # Errors
///
/// `NotSupported` for another scheme, naming the valid ones; `InvalidArgument`.
pub fn check_store_path(path: &str) -> Result<()> {
    let scheme = store_scheme(path).unwrap_or_default();
    if !STORE_SCHEMES.contains(&scheme) {
        let valid: Vec<String> = STORE_SCHEMES.iter().map(|scheme| format!("{scheme}://")).collect();
        let message = format!("paths with the scheme \"{scheme}\" are not supported: \"{path}\"");
        return Err(Error::new(ErrorKind::NotSupported, message).with_hint(format!(
            "Valid schemes: {}. A path of the server's host begins with \"/\".",
            valid.join(", ")
        )));
    }
    let rest = path.get(scheme.len() + 3..).unwrap_or_default();
    let (place, key) = rest.split_once('/').unwrap_or((rest, ""));
    let is_place = |letter: char| letter.is_ascii_alphanumeric() || ".-_:[]".contains(letter);
    let reason = if place.is_empty() || !place.chars().all(is_place) {
        "it names no bucket or host"
    } else if key.split('/').any(is_relative) {
        "its parts must not be \".\" or \"..\""
    } else if path.contains(RANK_PLACEHOLDER) {
        "every rank reads the same stores, so \"{rank}\" has no meaning"
    } else if scheme.starts_with("http") && key.contains(['?', '#', '*', '[']) {
        "a URL of http has no list of files, so patterns and queries have no meaning"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidArgument, format!("path \"{path}\" is not valid: {reason}"))
        .with_hint("Name objects as s3://bucket/folder/file.parquet or https://host/file.parquet."))
}

/// Whether a part of a path leads elsewhere, also if its points are encoded.
fn is_relative(part: &str) -> bool {
    let plain = part.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

/// Whether one of the prefixes allows a path. A prefix ends where a part of the path ends.
pub fn is_allowed_by(path: &str, prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| {
        let whole = prefix.trim_end_matches('/');
        path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let access = StoreAccess {
            options: None,
            mappings: vec![(7, vec![("secret_access_key".to_owned(), Secret::new("hush".to_owned()))])],
        };
        assert!(!format!("{access:?}").contains("hush"));
        assert_eq!(access.mapping(7)[0].1.reveal(), "hush");
        assert!(access.mapping(8).is_empty());
    }

    #[test]
    fn paths_of_stores_are_told_from_others() {
        for path in ["s3://b/k", "abfs://x", "https://h/f"] {
            assert!(is_in_store(path), "{path}");
        }
        for path in ["/data/s3://b", "s3:/b", "://b", "1s://b", "data"] {
            assert!(!is_in_store(path), "{path}");
        }
    }

    #[test]
    fn names_of_catalogs_are_paths_that_nobody_can_write() {
        for names in [&["a"][..], &["a.b", "c/d", "100%"], &["", "{rank}", "*?[é]"]] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let path = catalog_path(&names);
            assert_eq!(catalog_names(&path).as_ref(), Some(&names), "{path}");
            assert!(is_in_store(&path) && check_store_path(&path).is_err(), "{path}");
            assert!(!path.contains(['*', '?', '[', '{']), "{path}");
        }
        assert_eq!(catalog_path(&["sales".to_owned(), "orders".to_owned()]), "catalog://sales/orders");
        for path in ["s3://a/b", "catalog://a%", "catalog://a%zz", "catalog://é%e"] {
            assert_eq!(catalog_names(path), None, "{path}");
        }
    }

    #[test]
    fn a_prefix_allows_whole_parts_alone() {
        let prefixes = ["s3://lake/".to_owned(), "https://h/a".to_owned()];
        for path in ["s3://lake", "s3://lake/t/x.parquet", "https://h/a", "https://h/a/b"] {
            assert!(is_allowed_by(path, &prefixes), "{path}");
        }
        for path in ["s3://lakes", "s3://la", "https://h/ab", "https://h", "https://h.example.org/a"] {
            assert!(!is_allowed_by(path, &prefixes), "{path}");
        }
    }

    #[test]
    fn wrong_paths_say_what_is_wrong() {
        for path in ["s3://b", "s3://b/", "s3://b/a/**/x?.parquet", "az://c/k", "http://h:1/a%20b.parquet"] {
            assert_eq!(check_store_path(path), Ok(()), "{path}");
        }
        let unknown = check_store_path("hdfs://n/x").unwrap_err();
        assert_eq!(unknown.kind, ErrorKind::NotSupported);
        assert!(unknown.hint.unwrap().contains("s3://, gs://, az://, http://, https://"));
        for path in [
            "s3:///k",
            "s3://b*/k",
            "https://user@h/k",
            "s3://b/../k",
            "https://h/a/%2E%2e/k",
            "s3://b/{rank}/k",
            "https://h/k?x=1",
            "http://h/*.parquet",
        ] {
            assert_eq!(check_store_path(path).unwrap_err().kind, ErrorKind::InvalidArgument, "{path}");
        }
    }

    #[test]
    fn a_prefix_allows_what_is_below_it() {
        let prefixes = ["s3://lake".to_owned(), "https://h/public/".to_owned()];
        for path in ["s3://lake", "s3://lake/a", "https://h/public/a"] {
            assert!(is_allowed_by(path, &prefixes), "{path}");
        }
        for path in ["s3://lakes/a", "https://h/publicity", "https://h.evil/public/a", "gs://lake/a"] {
            assert!(!is_allowed_by(path, &prefixes), "{path}");
        }
        assert!(is_allowed_by("s3://any/a", &["s3://".to_owned()]));
    }
}
