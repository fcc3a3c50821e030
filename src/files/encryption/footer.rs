//! An encrypted footer as a plain one.
//!
//! The metadata of each chunk is decrypted and put where a plain footer has it. A chunk without a key keeps what is plain of its metadata, or
//! gets metadata of an empty chunk: its column is known, and can't be read.
//!
//! Source: parquet.thrift, `FileMetaData`, `ColumnChunk`, `FileCryptoMetaData`.

use std::{borrow::Cow, collections::HashMap, path::Path, sync::Arc};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    ChunkPlace, Content, EncryptedLayout, FileAad, Module, Region, RoleKeys,
    cipher::{LENGTH_BYTES, ModuleCipher, NONCE_BYTES, TAG_BYTES},
    keys::{KeyFault, key_name},
};
use crate::{
    compact_protocol::{
        BINARY_CODE, CompactWalk, INTEGER_CODE, LIST_CODE, RawField, STRUCT_CODE, encode_signed,
        encode_structure, encode_structures, encode_unsigned,
    },
    error::corrupt_file,
};

/// Fields of `FileMetaData`.
const SCHEMA: i64 = 2;
const ROW_GROUPS: i64 = 4;
const ENCRYPTION_ALGORITHM: i64 = 8;
const SIGNING_KEY_METADATA: i64 = 9;
/// Fields of `FileCryptoMetaData`.
const ALGORITHM: i64 = 1;
const KEY_METADATA: i64 = 2;
/// Fields of `SchemaElement`.
const PHYSICAL_TYPE: i64 = 1;
const NAME: i64 = 4;
const CHILDREN: i64 = 5;
/// Fields of `RowGroup`.
const CHUNKS: i64 = 1;
const ORDINAL: i64 = 7;
/// Fields of `ColumnChunk`.
const METADATA: i64 = 3;
const OFFSET_INDEX: (i64, i64) = (4, 5);
const COLUMN_INDEX: (i64, i64) = (6, 7);
const CRYPTO_METADATA: i64 = 8;
const ENCRYPTED_METADATA: i64 = 9;
/// Fields of `ColumnMetaData`.
const COMPRESSED_BYTES: i64 = 7;
const DATA_OFFSET: i64 = 9;
const DICTIONARY_OFFSET: i64 = 11;
/// Bytes of an index that its module has more than its text.
const INDEX_EXTRA: i64 = (LENGTH_BYTES + NONCE_BYTES + TAG_BYTES) as i64;

const PREFIX_HINT: &str = "Set the option aad_prefix of the user mapping of the role.";

/// A footer that is plain now.
pub(crate) struct OpenedFooter {
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: EncryptedLayout,
}

/// Opens a footer: one that is encrypted (`PARE`), or a plain one of a file with encrypted columns.
///
/// # Errors
///
/// `FilePermission` if the request has no key for it; `FileCorrupt`.
pub(crate) fn open_footer(
    path: &Path,
    footer: &[u8],
    is_encrypted: bool,
    keys: Option<&RoleKeys>,
) -> Result<OpenedFooter> {
    let opening = Opening { path, keys };
    let opened = if is_encrypted { opening.open_encrypted(footer) } else { opening.open_plain(footer) };
    opened.map_err(|fault| match fault {
        Fault::Corrupt(reason) => corrupt_file(path, &format!("the footer is corrupt: {reason}")),
        Fault::Error(error) => error,
    })
}

/// Why a footer can't be opened.
enum Fault {
    Corrupt(&'static str),
    Error(Error),
}

impl From<&'static str> for Fault {
    fn from(reason: &'static str) -> Self {
        Self::Corrupt(reason)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

type Opened<T> = std::result::Result<T, Fault>;

struct Opening<'a> {
    path: &'a Path,
    keys: Option<&'a RoleKeys>,
}

/// What `EncryptionAlgorithm` says.
struct Algorithm {
    aad: FileAad,
    is_ctr: bool,
}

impl Opening<'_> {
    fn open_encrypted(&self, footer: &[u8]) -> Opened<OpenedFooter> {
        let mut walk = CompactWalk { rest: footer };
        let crypto = walk.raw_fields(0)?;
        let algorithm = self.algorithm(field(&crypto, ALGORITHM).ok_or(INCOMPLETE)?)?;
        let metadata = field(&crypto, KEY_METADATA).map(|field| binary(field)).transpose()?;
        let cipher = self.footer_cipher(metadata)?.map_err(|fault| self.footer_error(&fault))?;
        let mut module = unframed(walk.rest).ok_or("it is shorter than its encrypted part")?.to_vec();
        let aad = algorithm.aad.of(Module::Footer, None, None);
        let plain = cipher.open(&aad, &mut module).ok_or_else(|| self.footer_error(&KeyFault::Wrong))?;
        self.open_chunks(plain, algorithm, Ok(Arc::new(cipher)))
    }

    fn open_plain(&self, footer: &[u8]) -> Opened<OpenedFooter> {
        let mut walk = CompactWalk { rest: footer };
        let fields = walk.raw_fields(0)?;
        let algorithm = self.algorithm(field(&fields, ENCRYPTION_ALGORITHM).ok_or(INCOMPLETE)?)?;
        let metadata = field(&fields, SIGNING_KEY_METADATA).map(|field| binary(field)).transpose()?;
        let (signature, text) = (walk.rest, &footer[..footer.len() - walk.rest.len()]);
        let cipher = self.footer_cipher(metadata)?;
        if let Ok(cipher) = &cipher {
            // Without the key, columns that are not encrypted can be read all the same.
            let (nonce, tag) = signature.split_first_chunk::<NONCE_BYTES>().ok_or("it has no signature")?;
            let aad = algorithm.aad.of(Module::Footer, None, None);
            if cipher.sign(*nonce, &aad, text).is_none_or(|own| own != tag) {
                return Err(self.footer_error(&KeyFault::Wrong).into());
            }
        }
        self.open_chunks(text, algorithm, cipher.map(Arc::new))
    }

    fn footer_cipher(&self, metadata: Option<&[u8]>) -> Opened<std::result::Result<ModuleCipher, KeyFault>> {
        Ok(match self.keys {
            Some(keys) => keys.of_footer(metadata),
            None => Err(KeyFault::MissingFooter(metadata.and_then(key_name))),
        })
    }

    fn footer_error(&self, fault: &KeyFault) -> Error {
        match fault {
            KeyFault::Missing(_) | KeyFault::MissingFooter(_) => Error::new(
                ErrorKind::FilePermission,
                format!(
                    "file \"{}\" is encrypted, and the user mapping of the role has no key for it",
                    self.path.display()
                ),
            ),
            KeyFault::Wrong => corrupt_file(
                self.path,
                "the footer can't be decrypted: the user mapping has another key than the one that it was encrypted with, or its bytes were changed",
            ),
        }
        .with_hint(fault.hint(None))
    }

    fn algorithm(&self, union: &RawField<'_>) -> Opened<Algorithm> {
        let members = CompactWalk { rest: &union.bytes }.raw_fields(1)?;
        let member = members.first().filter(|member| matches!(member.number, 1 | 2));
        let member = member.ok_or("it is encrypted by an unknown algorithm")?;
        let fields = CompactWalk { rest: &member.bytes }.raw_fields(2)?;
        let stored = field(&fields, 1).map(|field| binary(field)).transpose()?.filter(|aad| !aad.is_empty());
        let unique = field(&fields, 2).map(|field| binary(field)).transpose()?;
        // A boolean is its own code.
        let is_supplied = field(&fields, 3).is_some_and(|field| field.code == 1);
        let own = self.keys.and_then(RoleKeys::aad_prefix).map(str::as_bytes);
        let prefix = match (stored, own) {
            (Some(stored), Some(own)) if stored != own => {
                let reason = "its AAD prefix is another than the one of the user mapping";
                return Err(corrupt_file(self.path, reason).with_hint(PREFIX_HINT).into());
            }
            (Some(stored), _) => stored,
            (None, own) if is_supplied => own.ok_or_else(|| self.missing_prefix())?,
            (None, _) => &[],
        };
        // What is unique to a file is never absent but in those of DuckDB, which bind no module to its place.
        let aad = FileAad(unique.map(|unique| [prefix, unique].concat()));
        Ok(Algorithm { aad, is_ctr: member.number == 2 })
    }

    fn missing_prefix(&self) -> Error {
        let message = format!(
            "file \"{}\" was written with an AAD prefix, which the user mapping of the role lacks",
            self.path.display()
        );
        Error::new(ErrorKind::FilePermission, message).with_hint(PREFIX_HINT)
    }

    fn open_chunks(
        &self,
        footer: &[u8],
        algorithm: Algorithm,
        footer_cipher: std::result::Result<Arc<ModuleCipher>, KeyFault>,
    ) -> Opened<OpenedFooter> {
        let mut fields = CompactWalk { rest: footer }.raw_fields(0)?;
        let leaves = leaves(&field(&fields, SCHEMA).ok_or(INCOMPLETE)?.bytes)?;
        let Algorithm { aad, is_ctr } = algorithm;
        let layout = EncryptedLayout {
            aad,
            is_ctr,
            regions: Vec::new(),
            locked: vec![None; leaves.len()],
            paths: leaves.iter().map(|leaf| leaf.path.clone()).collect(),
        };
        let mut chunks = Chunks { keys: self.keys, footer_cipher, known: HashMap::new(), leaves, layout };
        let row_groups = field(&fields, ROW_GROUPS).ok_or(INCOMPLETE)?.bytes.clone();
        let mut opened = Vec::new();
        for (place, row_group) in
            (CompactWalk { rest: &row_groups }).raw_structures(1)?.into_iter().enumerate()
        {
            opened.push(chunks.open_row_group(place, row_group)?);
        }
        for field in &mut fields {
            if field.number == ROW_GROUPS {
                field.bytes = encode_structures(&opened).into();
            }
        }
        fields.retain(|field| !matches!(field.number, ENCRYPTION_ALGORITHM | SIGNING_KEY_METADATA));
        let mut layout = chunks.layout;
        layout.regions.retain(|region| region.start < region.end);
        layout.regions.sort_unstable_by_key(|region| region.start);
        if layout.regions.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(Fault::Corrupt("its column chunks overlap"));
        }
        Ok(OpenedFooter { bytes: encode_structure(&fields), layout })
    }
}

/// A leaf of the schema.
struct Leaf {
    path: String,
    /// Its physical type, as it is encoded.
    physical: Vec<u8>,
    /// Its path as a list of names, as it is encoded.
    names: Vec<u8>,
}

/// The leaves of a schema, in their order. How deep it is was not checked before: a stack holds the groups that are open.
fn leaves(schema: &[u8]) -> Opened<Vec<Leaf>> {
    /// Groups within groups of a schema; `footer_check.rs` refuses deeper ones.
    const DEPTH_MAX: usize = 128;
    let elements = CompactWalk { rest: schema }.raw_structures(1)?;
    let mut leaves = Vec::new();
    let mut open: Vec<(String, i64)> = Vec::new();
    for (place, element) in elements.into_iter().enumerate() {
        while open.last().is_some_and(|(_, left)| *left <= 0) {
            open.pop();
        }
        if let Some((_, left)) = open.last_mut() {
            *left -= 1;
        }
        let fields = CompactWalk { rest: element }.raw_fields(2)?;
        let name = field(&fields, NAME).map(|field| binary(field)).transpose()?.unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let children = number(&fields, CHILDREN)?.unwrap_or(0);
        if children > 0 || place == 0 {
            open.push((name, children));
            if open.len() > DEPTH_MAX {
                return Err(Fault::Corrupt("its schema is nested too deeply"));
            }
            continue;
        }
        // The root's name is in no path.
        let names: Vec<&str> =
            open.iter().skip(1).map(|(name, _)| name.as_str()).chain([name.as_str()]).collect();
        let physical = field(&fields, PHYSICAL_TYPE).map_or_else(|| encode_signed(0), |f| f.bytes.to_vec());
        leaves.push(Leaf { path: names.join("."), physical, names: encode_names(&names) });
    }
    Ok(leaves)
}

fn encode_names(names: &[&str]) -> Vec<u8> {
    let mut bytes = match names.len() {
        count @ 0..=14 => vec![(count as u8) << 4 | BINARY_CODE],
        count => [vec![0xf0 | BINARY_CODE], encode_unsigned(count as u64)].concat(),
    };
    for name in names {
        bytes.extend(encode_unsigned(name.len() as u64));
        bytes.extend(name.as_bytes());
    }
    bytes
}

const INCOMPLETE: &str = "it lacks a field";

/// The chunks of a footer that is being opened.
struct Chunks<'a> {
    keys: Option<&'a RoleKeys>,
    footer_cipher: std::result::Result<Arc<ModuleCipher>, KeyFault>,
    /// Keys of columns, by what the file says of them.
    known: HashMap<(usize, Vec<u8>), std::result::Result<Arc<ModuleCipher>, KeyFault>>,
    leaves: Vec<Leaf>,
    layout: EncryptedLayout,
}

impl Chunks<'_> {
    fn open_row_group(&mut self, place: usize, row_group: &[u8]) -> Opened<Vec<u8>> {
        let mut fields = CompactWalk { rest: row_group }.raw_fields(2)?;
        let ordinal = number(&fields, ORDINAL)?;
        let ordinal =
            ordinal.map_or_else(|| i16::try_from(place).ok(), |ordinal| i16::try_from(ordinal).ok());
        let row_group = ordinal.ok_or("it has more row groups than encrypted files can have")?;
        let Some(chunks) = fields.iter_mut().find(|field| (field.number, field.code) == (CHUNKS, LIST_CODE))
        else {
            return Err(INCOMPLETE.into());
        };
        let list = chunks.bytes.clone();
        let mut opened = Vec::new();
        for (leaf, chunk) in (CompactWalk { rest: &list }).raw_structures(3)?.into_iter().enumerate() {
            let column =
                i16::try_from(leaf).map_err(|_| "it has more columns than encrypted files can have")?;
            opened.push(self.open_chunk(ChunkPlace { row_group, column }, leaf, chunk)?);
        }
        chunks.bytes = encode_structures(&opened).into();
        Ok(encode_structure(&fields))
    }

    fn open_chunk(&mut self, place: ChunkPlace, leaf: usize, chunk: &[u8]) -> Opened<Vec<u8>> {
        let mut fields = CompactWalk { rest: chunk }.raw_fields(4)?;
        let crypto = field(&fields, CRYPTO_METADATA).map(|field| field.bytes.to_vec());
        // DuckDB does not say that a column is encrypted: all are.
        let is_uniform = self.layout.aad.0.is_none();
        let encrypted = field(&fields, ENCRYPTED_METADATA).map(|field| binary(field)).transpose()?;
        let encrypted = encrypted.map(<[u8]>::to_vec);
        fields.retain(|field| !matches!(field.number, CRYPTO_METADATA | ENCRYPTED_METADATA));
        if crypto.is_none() && !is_uniform {
            self.add_chunk(&fields, Content::Plain)?;
            return Ok(encode_structure(&fields));
        }
        let mut found = self.cipher_of(leaf, crypto.as_deref())?;
        if let Some(encrypted) = encrypted {
            let mut module = unframed(&encrypted).ok_or("the metadata of a column is truncated")?.to_vec();
            let aad = self.layout.aad.of(Module::ColumnMetaData, Some(place), None);
            let opened =
                found.as_ref().ok().map(|cipher| cipher.open(&aad, &mut module).map(|text| text.to_vec()));
            match opened {
                Some(Some(text)) => set(&mut fields, METADATA, STRUCT_CODE, text),
                Some(None) => found = Err(KeyFault::Wrong),
                None => {}
            }
        }
        match found {
            Ok(cipher) => {
                let has_dictionary = self.has_dictionary(&fields)?;
                let own = cipher.clone();
                self.add_chunk(&fields, Content::Chunk { cipher: own, place, leaf, has_dictionary })?;
                for ((offset, bytes), module) in
                    [(OFFSET_INDEX, Module::OffsetIndex), (COLUMN_INDEX, Module::ColumnIndex)]
                {
                    let (Some(start), Some(length)) = (number(&fields, offset)?, number(&fields, bytes)?)
                    else {
                        continue;
                    };
                    let content = Content::Index { cipher: cipher.clone(), place, leaf, module };
                    self.add_region(start, length, content)?;
                    set(&mut fields, bytes, INTEGER_CODE, encode_signed((length - INDEX_EXTRA).max(0)));
                }
            }
            Err(fault) => {
                let indexes = OFFSET_INDEX.0..=COLUMN_INDEX.1;
                fields.retain(|field| !indexes.contains(&field.number));
                if field(&fields, METADATA).is_none() {
                    let known = self.leaves.get(leaf).ok_or("it has more columns than its schema")?;
                    set(&mut fields, METADATA, STRUCT_CODE, empty_chunk(known));
                }
                if let Some(locked) = self.layout.locked.get_mut(leaf) {
                    *locked = Some(fault);
                }
            }
        }
        Ok(encode_structure(&fields))
    }

    /// The key of a column.
    fn cipher_of(
        &mut self,
        leaf: usize,
        crypto: Option<&[u8]>,
    ) -> Opened<std::result::Result<Arc<ModuleCipher>, KeyFault>> {
        const WITH_COLUMN_KEY: i64 = 2;
        let members = crypto.map(|crypto| CompactWalk { rest: crypto }.raw_fields(5)).transpose()?;
        let member = members.as_ref().and_then(|members| field(members, WITH_COLUMN_KEY));
        let Some(member) = member else { return Ok(self.footer_cipher.clone()) };
        let fields = CompactWalk { rest: &member.bytes }.raw_fields(6)?;
        let metadata = field(&fields, KEY_METADATA).map(|field| binary(field)).transpose()?;
        let key = (leaf, metadata.unwrap_or_default().to_vec());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let path = self.leaves.get(leaf).map_or("", |leaf| leaf.path.as_str());
        let found = match self.keys {
            Some(keys) => keys.of_column(path, metadata).map(Arc::new),
            None => Err(KeyFault::Missing(metadata.and_then(key_name))),
        };
        self.known.insert(key, found.clone());
        Ok(found)
    }

    fn has_dictionary(&self, chunk: &[RawField<'_>]) -> Opened<bool> {
        let metadata = metadata_of(chunk)?;
        Ok(number(&metadata, DICTIONARY_OFFSET)?.is_some_and(|offset| offset > 0))
    }

    fn add_chunk(&mut self, chunk: &[RawField<'_>], content: Content) -> Opened<()> {
        let metadata = metadata_of(chunk)?;
        let data = number(&metadata, DATA_OFFSET)?.ok_or(INCOMPLETE)?;
        let dictionary = number(&metadata, DICTIONARY_OFFSET)?.filter(|offset| *offset > 0);
        // As `chunk_range` has it.
        let start = dictionary.map_or(data, |dictionary| dictionary.min(data));
        self.add_region(start, number(&metadata, COMPRESSED_BYTES)?.ok_or(INCOMPLETE)?, content)
    }

    fn add_region(&mut self, start: i64, bytes: i64, content: Content) -> Opened<()> {
        let range = u64::try_from(start).ok().zip(u64::try_from(bytes).ok());
        let region =
            range.and_then(|(start, bytes)| Some(Region { start, end: start.checked_add(bytes)?, content }));
        self.layout.regions.push(region.ok_or("it points outside of the file's data")?);
        Ok(())
    }
}

/// Metadata of a chunk without values, whose own can't be read.
fn empty_chunk(leaf: &Leaf) -> Vec<u8> {
    /// The first byte behind the magic bytes.
    const NOWHERE: i64 = 4;
    let field = |number, code, bytes: Vec<u8>| RawField { number, code, bytes: bytes.into() };
    let long = INTEGER_CODE + 1;
    encode_structure(&[
        field(1, INTEGER_CODE, leaf.physical.clone()),
        // A list of no encodings.
        field(2, LIST_CODE, vec![INTEGER_CODE]),
        field(3, LIST_CODE, leaf.names.clone()),
        field(4, INTEGER_CODE, encode_signed(0)),
        field(5, long, encode_signed(0)),
        field(6, long, encode_signed(0)),
        field(COMPRESSED_BYTES, long, encode_signed(0)),
        field(DATA_OFFSET, long, encode_signed(NOWHERE)),
    ])
}

fn metadata_of<'f>(chunk: &'f [RawField<'_>]) -> Opened<Vec<RawField<'f>>> {
    let metadata = field(chunk, METADATA).ok_or(INCOMPLETE)?;
    Ok(CompactWalk { rest: &metadata.bytes }.raw_fields(5)?)
}

/// The module behind its length.
pub(super) fn unframed(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

pub(super) fn field<'f, 'b>(fields: &'f [RawField<'b>], number: i64) -> Option<&'f RawField<'b>> {
    fields.iter().find(|field| field.number == number)
}

/// Puts a field where it belongs, in place of the one that is there.
pub(super) fn set(fields: &mut Vec<RawField<'_>>, number: i64, code: u8, bytes: Vec<u8>) {
    let place = fields.partition_point(|field| field.number < number);
    if fields.get(place).is_some_and(|field| field.number == number) {
        fields.remove(place);
    }
    fields.insert(place, RawField { number, code, bytes: Cow::Owned(bytes) });
}

fn binary<'f>(field: &'f RawField<'_>) -> std::result::Result<&'f [u8], &'static str> {
    match field.code {
        BINARY_CODE => CompactWalk { rest: &field.bytes }.binary(),
        _ => Err("a field has another type than the format says"),
    }
}

/// An integer, if the field is there.
pub(super) fn number(fields: &[RawField<'_>], number: i64) -> std::result::Result<Option<i64>, &'static str> {
    let Some(field) = field(fields, number) else { return Ok(None) };
    match field.code {
        4..=6 => CompactWalk { rest: &field.bytes }.signed().map(Some),
        _ => Err("a field has another type than the format says"),
    }
}
