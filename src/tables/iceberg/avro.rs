//! Avro files, as far as Iceberg's manifests need them: records in blocks, under the schema that the file has.
//!
//! Invariants:
//! - A type is not within itself, so a value is no deeper than the schema's text.
//! - Values take a share of the steps that their bytes stand for. A count that has no bytes behind it is an error.
//!
//! Deliberately absent: resolution against another schema. Fields are found by the ids that Iceberg gives them.
//!
//! Source: Apache Avro 1.12, "Object Container Files" and "Binary Encoding".

use std::{collections::HashMap, io::Read, rc::Rc};

use serde_json::Value as Json;

/// The first bytes of a file.
const MAGIC: [u8; 4] = *b"Obj\x01";
/// Bytes that end the head of a file and each block.
const MARK_BYTES: usize = 16;
/// The most bytes of a block, decompressed.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Steps that a block may take besides those for its bytes: values without bytes are few.
const STEPS_MIN: u64 = 10_000;
/// Steps for each byte: a union of NULL, and the record around it, take one byte.
const BYTE_STEPS: u64 = 8;

/// What is wrong with a file, in words.
pub(super) type Fault = String;

/// The type of values.
#[derive(Clone, Debug)]
enum Schema {
    Null,
    Boolean,
    /// Also `int`, and the places of enums.
    Long,
    Float,
    Double,
    /// Also `string`.
    Bytes,
    Fixed(usize),
    Array(Rc<Schema>),
    Map(Rc<Schema>),
    Union(Rc<Vec<Schema>>),
    Record(Rc<Vec<Field>>),
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    id: Option<i64>,
    schema: Schema,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Datum {
    Null,
    Boolean(bool),
    Long(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Array(Vec<Datum>),
    Record(Record),
}

/// The values of a record's fields.
#[derive(Clone, Debug)]
pub(super) struct Record {
    fields: Rc<Vec<Field>>,
    values: Vec<Datum>,
}

impl Record {
    /// The value of the field with an id, or, where the file has no ids, with a name; NULL if there is none.
    pub(super) fn get(&self, id: i64, name: &str) -> &Datum {
        let is_wanted = |field: &Field| field.id.map_or(field.name == name, |own| own == id);
        let place = self.fields.iter().position(is_wanted);
        place.and_then(|place| self.values.get(place)).unwrap_or(&Datum::Null)
    }
}

impl Record {
    /// The values of all fields.
    pub(super) fn values(&self) -> &[Datum] {
        &self.values
    }

    /// Key and value, of an entry of a map.
    pub(super) fn pair(&self) -> Option<(&Datum, &Datum)> {
        let place = |name: &str| self.fields.iter().position(|field| field.name == name);
        Some((self.values.get(place("key")?)?, self.values.get(place("value")?)?))
    }
}

impl Datum {
    pub(super) fn long(&self) -> Option<i64> {
        if let Self::Long(number) = self { Some(*number) } else { None }
    }

    pub(super) fn bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn record(&self) -> Option<&Record> {
        if let Self::Record(record) = self { Some(record) } else { None }
    }

    pub(super) fn array(&self) -> &[Datum] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// What a file says of itself.
pub(super) type FileProperties = HashMap<String, Vec<u8>>;

/// Calls `visit` for each record of a file, and returns what the file says of itself.
///
/// # Errors
///
/// What is wrong with the file, or what `visit` returned.
pub(super) fn read_records<E>(
    bytes: &[u8],
    fault: &dyn Fn(Fault) -> E,
    visit: &mut dyn FnMut(&Record, &FileProperties) -> Result<(), E>,
) -> Result<FileProperties, E> {
    let mut rest = bytes;
    let (properties, schema, codec, mark) = read_head(&mut rest).map_err(fault)?;
    while !rest.is_empty() {
        let (count, block) = read_block(&mut rest, codec, &mark).map_err(fault)?;
        let mut reader = Reader { rest: &block, steps_left: STEPS_MIN + BYTE_STEPS * block.len() as u64 };
        for _ in 0..count {
            match reader.value(&schema).map_err(fault)? {
                Datum::Record(record) => visit(&record, &properties)?,
                _ => return Err(fault("its values are not records".to_owned())),
            }
        }
        if !reader.rest.is_empty() {
            return Err(fault("a block has more bytes than values".to_owned()));
        }
    }
    Ok(properties)
}

#[derive(Clone, Copy)]
enum Codec {
    None,
    Deflate,
    Snappy,
    Zstandard,
}

fn read_head(rest: &mut &[u8]) -> Result<(FileProperties, Schema, Codec, Vec<u8>), Fault> {
    if take(rest, MAGIC.len())? != MAGIC {
        return Err("it is no Avro file".to_owned());
    }
    let mut properties = FileProperties::new();
    loop {
        let count = block_count(rest)?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            let name = String::from_utf8_lossy(take_sized(rest)?).into_owned();
            properties.insert(name, take_sized(rest)?.to_vec());
        }
    }
    let mark = take(rest, MARK_BYTES)?.to_vec();
    let codec = match properties.get("avro.codec").map(Vec::as_slice) {
        None | Some(b"null") => Codec::None,
        Some(b"deflate") => Codec::Deflate,
        Some(b"snappy") => Codec::Snappy,
        Some(b"zstandard") => Codec::Zstandard,
        Some(other) => {
            return Err(format!("its compression \"{}\" is unknown", String::from_utf8_lossy(other)));
        }
    };
    let text = properties.get("avro.schema").ok_or("it has no schema")?;
    let json: Json = serde_json::from_slice(text).map_err(|error| format!("its schema: {error}"))?;
    let schema = Types::default().parse(&json)?;
    Ok((properties, schema, codec, mark))
}

/// The number of a block's values, and their bytes.
fn read_block(rest: &mut &[u8], codec: Codec, mark: &[u8]) -> Result<(u64, Vec<u8>), Fault> {
    let count = u64::try_from(long(rest)?).map_err(|_| "a block has a negative count")?;
    let held = take_sized(rest)?;
    if take(rest, MARK_BYTES)? != mark {
        return Err("a block does not end with the mark of the file".to_owned());
    }
    Ok((count, decompressed(held, codec)?))
}

fn decompressed(held: &[u8], codec: Codec) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let failed = |error: std::io::Error| format!("a block can't be decompressed: {error}");
    match codec {
        Codec::None => return Ok(held.to_vec()),
        Codec::Deflate => {
            read_limited(flate2::read::DeflateDecoder::new(held), &mut bytes).map_err(failed)?
        }
        Codec::Zstandard => {
            let decoder = zstd::stream::read::Decoder::new(held).map_err(failed)?;
            read_limited(decoder, &mut bytes).map_err(failed)?;
        }
        Codec::Snappy => {
            let (held, _checksum) = held.split_last_chunk::<4>().ok_or("a block is too short")?;
            let failed = |error: snap::Error| format!("a block can't be decompressed: {error}");
            let size = snap::raw::decompress_len(held).map_err(failed)?;
            // A byte of Snappy stands for no more than 64.
            if size as u64 > BLOCK_BYTES_MAX || size > held.len().saturating_mul(64) {
                return Err(format!("a block is said to have {size} bytes"));
            }
            bytes = snap::raw::Decoder::new().decompress_vec(held).map_err(failed)?;
        }
    }
    Ok(bytes)
}

/// Reads all bytes, which are no more than a block may have.
pub(super) fn read_limited(source: impl Read, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    source.take(BLOCK_BYTES_MAX + 1).read_to_end(bytes)?;
    match bytes.len() as u64 > BLOCK_BYTES_MAX {
        true => Err(std::io::Error::other(format!("more than {BLOCK_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

/// Types that have names, as far as they were read.
#[derive(Default)]
struct Types(HashMap<String, Schema>);

impl Types {
    fn parse(&mut self, json: &Json) -> Result<Schema, Fault> {
        let missing = |what: &str| format!("its schema has a type without {what}");
        let kind = match json {
            Json::String(name) => return self.named(name),
            Json::Array(branches) => {
                let branches = branches.iter().map(|branch| self.parse(branch)).collect::<Result<_, _>>()?;
                return Ok(Schema::Union(Rc::new(branches)));
            }
            _ => json.get("type").ok_or_else(|| missing("a kind"))?,
        };
        let Some(kind) = kind.as_str() else { return self.parse(kind) };
        let part = |name: &str| json.get(name).ok_or_else(|| missing(name));
        let schema = match kind {
            "array" => Schema::Array(Rc::new(self.parse(part("items")?)?)),
            "map" => Schema::Map(Rc::new(self.parse(part("values")?)?)),
            "fixed" => {
                let size = part("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                Schema::Fixed(size.ok_or_else(|| missing("a size"))?)
            }
            "enum" => Schema::Long,
            "record" => {
                let fields = part("fields")?.as_array().ok_or_else(|| missing("fields"))?;
                let fields = fields.iter().map(|field| self.field(field)).collect::<Result<_, _>>()?;
                Schema::Record(Rc::new(fields))
            }
            other => return self.named(other),
        };
        // It has its name only now, so that no type is within itself.
        if let Some(name) = json.get("name").and_then(Json::as_str) {
            if let Some(space) = json.get("namespace").and_then(Json::as_str) {
                self.0.insert(format!("{space}.{name}"), schema.clone());
            }
            self.0.insert(name.to_owned(), schema.clone());
        }
        Ok(schema)
    }

    fn field(&mut self, json: &Json) -> Result<Field, Fault> {
        let name = json.get("name").and_then(Json::as_str).ok_or("its schema has a field without a name")?;
        let schema = json.get("type").ok_or("its schema has a field without a type")?;
        Ok(Field {
            name: name.to_owned(),
            id: json.get("field-id").and_then(Json::as_i64),
            schema: self.parse(schema)?,
        })
    }

    fn named(&self, name: &str) -> Result<Schema, Fault> {
        Ok(match name {
            "null" => Schema::Null,
            "boolean" => Schema::Boolean,
            "int" | "long" => Schema::Long,
            "float" => Schema::Float,
            "double" => Schema::Double,
            "bytes" | "string" => Schema::Bytes,
            _ => self
                .0
                .get(name)
                .cloned()
                .ok_or_else(|| format!("its schema has the unknown type \"{name}\""))?,
        })
    }
}

/// Values of a block.
struct Reader<'b> {
    rest: &'b [u8],
    steps_left: u64,
}

impl Reader<'_> {
    fn value(&mut self, schema: &Schema) -> Result<Datum, Fault> {
        self.steps_left =
            self.steps_left.checked_sub(1).ok_or("it announces more values than it has bytes for")?;
        let rest = &mut self.rest;
        Ok(match schema {
            Schema::Null => Datum::Null,
            Schema::Boolean => Datum::Boolean(take(rest, 1)? != [0]),
            Schema::Long => Datum::Long(long(rest)?),
            Schema::Float => Datum::Double(f32::from_le_bytes(array(rest)?).into()),
            Schema::Double => Datum::Double(f64::from_le_bytes(array(rest)?)),
            Schema::Bytes => Datum::Bytes(take_sized(rest)?.to_vec()),
            Schema::Fixed(size) => Datum::Bytes(take(rest, *size)?.to_vec()),
            Schema::Array(items) => {
                let mut values = Vec::new();
                self.items(&mut |reader| {
                    values.push(reader.value(items)?);
                    Ok(())
                })?;
                Datum::Array(values)
            }
            // Maps of Iceberg are arrays of keys and values; others are passed over.
            Schema::Map(values) => {
                self.items(&mut |reader| {
                    take_sized(&mut reader.rest)?;
                    reader.value(values).map(drop)
                })?;
                Datum::Null
            }
            Schema::Union(branches) => {
                let branch = usize::try_from(long(rest)?).ok().and_then(|branch| branches.get(branch));
                self.value(branch.ok_or("a value has a type that its schema does not have")?)?
            }
            Schema::Record(fields) => {
                let values =
                    fields.iter().map(|field| self.value(&field.schema)).collect::<Result<_, _>>()?;
                Datum::Record(Record { fields: fields.clone(), values })
            }
        })
    }

    /// Calls `read` for each item of an array or a map, which come in blocks.
    fn items(&mut self, read: &mut dyn FnMut(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        loop {
            let count = block_count(&mut self.rest)?;
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count {
                read(self)?;
            }
        }
    }
}

/// The number of items that follow. A negative one is followed by their bytes.
fn block_count(rest: &mut &[u8]) -> Result<u64, Fault> {
    let count = long(rest)?;
    if count < 0 {
        long(rest)?;
    }
    Ok(count.unsigned_abs())
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Result<&'b [u8], Fault> {
    let (first, after) = rest.split_at_checked(count).ok_or("it is truncated")?;
    *rest = after;
    Ok(first)
}

fn array<const COUNT: usize>(rest: &mut &[u8]) -> Result<[u8; COUNT], Fault> {
    let (first, after) = rest.split_first_chunk().ok_or("it is truncated")?;
    *rest = after;
    Ok(*first)
}

fn take_sized<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], Fault> {
    let size = usize::try_from(long(rest)?).map_err(|_| "it has a negative size")?;
    take(rest, size)
}

/// A number: seven bits a byte, the least first, zigzag.
fn long(rest: &mut &[u8]) -> Result<i64, Fault> {
    let mut bits = 0_u64;
    for place in 0..10 {
        let [byte] = array(rest)?;
        bits |= u64::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((bits >> 1) as i64 ^ -((bits & 1) as i64));
        }
    }
    Err("a number has more than ten bytes".to_owned())
}
