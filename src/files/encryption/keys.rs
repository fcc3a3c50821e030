//! The keys of a request, and which of them a file means.
//!
//! | the file says of a key | it is |
//! |---|---|
//! | nothing | the column's in `column_keys`, or `footer_key` |
//! | an id | the one of `key_list`, else as above |
//! | key material in JSON (`PKMT1`) | unwrapped by the key of `key_list` that has the id of its key encryption key, or of its master key |
//!
//! Writers that ask a KMS (pyarrow's `CryptoFactory`, Spark) make a key for each file, and put it into the file, wrapped. Where a master
//! key is at hand, it unwraps what was wrapped by AES-GCM with the master key's id as additional data, as the libraries' own code does it.
//!
//! Deliberately absent: requests to a KMS; key material in files of its own (`_KEY_MATERIAL_FOR_…`).
//!
//! Source: `KeyMaterial`, `FileKeyUnwrapper`, `KeyToolkit` and `LocalWrapKmsClient` of parquet-java; `key_material.cc` of Arrow.

use base64::{Engine, engine::general_purpose::STANDARD};
use pystachio_plan::{FileKey, FileKeys};
use ring::digest::{Context, SHA256};
use serde_json::Value;

use super::cipher::ModuleCipher;

/// What tells the keys of requests apart: zeros of none. A digest of the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 16]);

/// The keys of a role.
#[derive(Debug)]
pub(crate) struct RoleKeys {
    keys: FileKeys,
    pub(crate) digest: KeyDigest,
}

/// Why a key is not had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyFault {
    /// No option has the key of a column. What the file calls it, if that can be shown.
    Missing(Option<String>),
    /// The same of the key of the footer, which may be that of columns too.
    MissingFooter(Option<String>),
    /// It is not the one that the module was encrypted with.
    Wrong,
}

impl RoleKeys {
    pub(crate) fn new(keys: FileKeys) -> Self {
        let mut context = Context::new(&SHA256);
        let mut add = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_le_bytes());
            context.update(bytes);
        };
        add(keys.footer.as_ref().map_or(&[], FileKey::reveal));
        add(keys.aad_prefix.as_deref().unwrap_or_default().as_bytes());
        for list in [&keys.columns, &keys.by_id] {
            add(&(list.len() as u64).to_le_bytes());
            for (name, key) in list {
                add(name.as_bytes());
                add(key.reveal());
            }
        }
        let mut digest = [0; 16];
        let all = context.finish();
        digest.iter_mut().zip(all.as_ref()).for_each(|(own, byte)| *own = *byte);
        Self { keys, digest: KeyDigest(digest) }
    }

    pub(super) fn aad_prefix(&self) -> Option<&str> {
        self.keys.aad_prefix.as_deref()
    }

    /// The key of a footer.
    pub(super) fn of_footer(&self, metadata: Option<&[u8]>) -> Result<ModuleCipher, KeyFault> {
        self.find(None, metadata)?
            .or_else(|| self.keys.footer.clone())
            .ok_or_else(|| KeyFault::MissingFooter(metadata.and_then(key_name)))
            .and_then(cipher_of)
    }

    /// The key of a column that has one of its own.
    pub(super) fn of_column(&self, path: &str, metadata: Option<&[u8]>) -> Result<ModuleCipher, KeyFault> {
        self.find(self.keys.of_column(path), metadata)?
            .ok_or_else(|| KeyFault::Missing(metadata.and_then(key_name)))
            .and_then(cipher_of)
    }

    fn find(&self, named: Option<&FileKey>, metadata: Option<&[u8]>) -> Result<Option<FileKey>, KeyFault> {
        match (named, metadata) {
            (Some(key), _) => Ok(Some(key.clone())),
            (None, Some(metadata)) => self.of_metadata(metadata),
            (None, None) => Ok(None),
        }
    }

    /// The key that a file means, if the options have it.
    fn of_metadata(&self, metadata: &[u8]) -> Result<Option<FileKey>, KeyFault> {
        let Ok(text) = std::str::from_utf8(metadata) else { return Ok(None) };
        if let Some(key) = self.keys.of_id(text) {
            return Ok(Some(key.clone()));
        }
        match KeyMaterial::parse(text) {
            Some(material) => material.unwrap(&self.keys),
            None => Ok(None),
        }
    }
}

fn cipher_of(key: FileKey) -> Result<ModuleCipher, KeyFault> {
    ModuleCipher::new(&key).ok_or(KeyFault::Wrong)
}

impl KeyFault {
    /// What to do about it, for a column that is encrypted with the key or for the footer.
    pub(super) fn hint(&self, column: Option<&str>) -> String {
        let by_id = |id: &Option<String>| {
            id.as_ref().map_or(String::new(), |id| {
                format!(", or add \"{id}:KEY\" to its option key_list: the file calls the key \"{id}\"")
            })
        };
        match (self, column) {
            (Self::Missing(id), Some(column)) => format!(
                "Add \"{column}:KEY\" to the option column_keys of the user mapping{}. Or do not read the column.",
                by_id(id)
            ),
            (Self::Missing(id) | Self::MissingFooter(id), _) => {
                format!("Set the option footer_key of the user mapping to the key{}.", by_id(id))
            }
            (Self::Wrong, _) => {
                "Check the options footer_key, column_keys, key_list and aad_prefix of the user mapping of the role."
                    .to_owned()
            }
        }
    }
}

/// What a file calls a key, in short words.
pub(super) fn key_name(metadata: &[u8]) -> Option<String> {
    const NAME_LETTERS_MAX: usize = 64;
    let text = std::str::from_utf8(metadata).ok()?;
    let material = KeyMaterial::parse(text);
    let name = material.as_ref().map_or(text, |material| material.master_key_id.as_str());
    let is_name =
        !name.is_empty() && name.len() <= NAME_LETTERS_MAX && !name.chars().any(|letter| letter.is_control());
    is_name.then(|| name.to_owned())
}

/// A key that is wrapped in its file.
struct KeyMaterial {
    master_key_id: String,
    wrapped_key: Option<String>,
    /// The key that wraps it and is itself wrapped, and its id.
    encryption_key: Option<(String, String)>,
}

impl KeyMaterial {
    fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        let json: Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
        if field("keyMaterialType").as_deref() != Some("PKMT1") {
            return None;
        }
        let is_double = json.get("doubleWrapping").and_then(Value::as_bool) == Some(true);
        Some(Self {
            master_key_id: field("masterKeyID").unwrap_or_default(),
            wrapped_key: field("wrappedDEK"),
            encryption_key: match is_double {
                true => Some((field("keyEncryptionKeyID")?, field("wrappedKEK")?)),
                false => None,
            },
        })
    }

    fn unwrap(&self, keys: &FileKeys) -> Result<Option<FileKey>, KeyFault> {
        let Some(wrapped) = &self.wrapped_key else { return Ok(None) };
        let master = keys.of_id(&self.master_key_id);
        let by_master = |wrapped: &str| {
            let unwrapped = master.map(|master| unwrap_key(wrapped, master, self.master_key_id.as_bytes()));
            unwrapped.map(|key| key.ok_or(KeyFault::Wrong)).transpose()
        };
        let Some((id, wrapped_own)) = &self.encryption_key else { return by_master(wrapped) };
        let encryption_key = match keys.of_id(id) {
            Some(key) => Some(key.clone()),
            None => by_master(wrapped_own)?,
        };
        let Some(encryption_key) = encryption_key else { return Ok(None) };
        let aad = STANDARD.decode(id).map_err(|_| KeyFault::Wrong)?;
        unwrap_key(wrapped, &encryption_key, &aad).map(Some).ok_or(KeyFault::Wrong)
    }
}

/// A key that is wrapped by AES-GCM: base64 of a module without a length, or JSON with that.
fn unwrap_key(wrapped: &str, key: &FileKey, aad: &[u8]) -> Option<FileKey> {
    let of_json = serde_json::from_str::<Value>(wrapped).ok();
    let encoded = of_json.as_ref().and_then(|json| json.get("encryptedKey")?.as_str()).unwrap_or(wrapped);
    let mut module = STANDARD.decode(encoded).ok()?;
    let text = ModuleCipher::new(key)?.open(aad, &mut module)?;
    FileKey::new(text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(options: &[(&str, &str)]) -> RoleKeys {
        RoleKeys::new(FileKeys::parse(options.iter().copied()).unwrap().unwrap())
    }

    const KEY: &str = "30313233343536373839303132333435";
    const OTHER: &str = "31313233343536373839303132333435";

    #[test]
    fn digests_tell_all_keys_apart() {
        let options: &[&[(&str, &str)]] = &[
            &[("footer_key", KEY)],
            &[("footer_key", OTHER)],
            &[("footer_key", KEY), ("aad_prefix", "a")],
            &[("column_keys", &format!("a:{KEY}"))],
            &[("column_keys", &format!("b:{KEY}"))],
            &[("key_list", &format!("a:{KEY}"))],
            &[("key_list", &format!("a:{OTHER}"))],
        ];
        let digests: Vec<KeyDigest> = options.iter().map(|options| ring(options).digest).collect();
        for (place, digest) in digests.iter().enumerate() {
            assert!(*digest != KeyDigest::default() && !digests[..place].contains(digest), "{place}");
            assert_eq!(*digest, ring(options[place]).digest);
        }
    }

    #[test]
    fn keys_are_found_as_files_name_them() {
        let keys = ring(&[
            ("footer_key", KEY),
            ("column_keys", &format!("a:{KEY}")),
            ("key_list", &format!("k1:{OTHER}")),
        ]);
        assert!(keys.of_footer(None).is_ok() && keys.of_footer(Some(b"unknown")).is_ok());
        assert!(keys.of_column("a", Some(b"unknown")).is_ok() && keys.of_column("b", Some(b"k1")).is_ok());
        let missing = keys.of_column("b", Some(b"k2")).unwrap_err();
        assert_eq!(missing, KeyFault::Missing(Some("k2".to_owned())));
        assert_eq!(keys.of_column("b", Some(&[0xff])).unwrap_err(), KeyFault::Missing(None));
        // Material of a master key that is not known, and what is none.
        let material =
            br#"{"keyMaterialType":"PKMT1","masterKeyID":"m","doubleWrapping":false,"wrappedDEK":"AAAA"}"#;
        assert_eq!(keys.of_column("b", Some(material)).unwrap_err(), KeyFault::Missing(Some("m".to_owned())));
        for text in [&b"{"[..], b"{}", br#"{"keyMaterialType":7}"#, br#"{"keyMaterialType":"PKMT1"}"#] {
            assert!(matches!(keys.of_column("b", Some(text)), Err(KeyFault::Missing(_))));
        }
        let keys = ring(&[("key_list", &format!("m:{OTHER}"))]);
        assert_eq!(keys.of_column("b", Some(material)).unwrap_err(), KeyFault::Wrong);
    }
}
