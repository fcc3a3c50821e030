//! Structures of Thrift's compact protocol, walked over without reserving what they announce: footers, page indexes and
//! page headers. Encoding them again is for footers that are mended before they are decoded.
//!
//! Invariants: no input makes a walk panic, recurse deeper than [`STRUCT_DEPTH_MAX`] or read beyond its bytes. What is
//! wrong is said in words.

use std::borrow::Cow;

/// Structures within structures; Parquet's own are not half as deep.
const STRUCT_DEPTH_MAX: usize = 32;

/// The types of Thrift's compact protocol. The value of a boolean field is in its type; of a list's elements, it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool(bool),
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(code: u8) -> Result<Self, &'static str> {
        Ok(match code & 0x0f {
            1 => Self::Bool(true),
            2 => Self::Bool(false),
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err("a structure has a field of unknown type"),
        })
    }
}

/// A field of a structure as it is encoded, without its number and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawField<'a> {
    pub(crate) number: i64,
    pub(crate) code: u8,
    pub(crate) bytes: Cow<'a, [u8]>,
}

/// The code of a field of 32 bits, of bytes, of a list and of a structure.
pub(crate) const INTEGER_CODE: u8 = 5;
pub(crate) const BINARY_CODE: u8 = 8;
pub(crate) const LIST_CODE: u8 = 9;
pub(crate) const STRUCT_CODE: u8 = 12;

/// A structure of fields in ascending order.
pub(crate) fn encode_structure(fields: &[RawField<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut previous = 0;
    for field in fields {
        match u8::try_from(field.number - previous) {
            Ok(delta @ 1..=15) => bytes.push(delta << 4 | field.code),
            _ => {
                bytes.push(field.code);
                bytes.extend(encode_signed(field.number));
            }
        }
        bytes.extend(&*field.bytes);
        previous = field.number;
    }
    bytes.push(0);
    bytes
}

/// A list of structures.
pub(crate) fn encode_structures<T: AsRef<[u8]>>(structures: &[T]) -> Vec<u8> {
    let mut bytes = match structures.len() {
        count @ 0..=14 => vec![(count as u8) << 4 | STRUCT_CODE],
        count => [vec![0xf0 | STRUCT_CODE], encode_unsigned(count as u64)].concat(),
    };
    structures.iter().for_each(|structure| bytes.extend(structure.as_ref()));
    bytes
}

/// A number in groups of seven bits.
pub(crate) fn encode_unsigned(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// An integer of any width.
pub(crate) fn encode_signed(value: i64) -> Vec<u8> {
    encode_unsigned((value << 1 ^ value >> 63).cast_unsigned())
}

/// A place in an encoded structure.
pub(crate) struct CompactWalk<'a> {
    pub(crate) rest: &'a [u8],
}

const TRUNCATED: &str = "a structure ends too early";
pub(crate) const TOO_LONG: &str = "a structure announces more than it can hold";

impl<'a> CompactWalk<'a> {
    /// A byte, or a boolean of a list.
    pub(crate) fn byte(&mut self) -> Result<u8, &'static str> {
        let (byte, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// The next bytes, of any meaning.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<&'a [u8], &'static str> {
        let bytes = usize::try_from(bytes).map_err(|_| TOO_LONG)?;
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number in groups of seven bits.
    pub(crate) fn unsigned(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a structure has a number that is too long")
    }

    /// An integer of any width.
    pub(crate) fn signed(&mut self) -> Result<i64, &'static str> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// An integer of at most 32 bits.
    pub(crate) fn signed32(&mut self) -> Result<i32, &'static str> {
        i32::try_from(self.signed()?).map_err(|_| "a structure has a number that is too large")
    }

    /// Calls `visit` at the value of every field of a structure; it must move past the value.
    pub(crate) fn fields(
        &mut self,
        depth: usize,
        visit: &mut dyn FnMut(&mut Self, i64, Kind) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        if depth > STRUCT_DEPTH_MAX {
            return Err("a structure is nested too deeply");
        }
        let mut field = 0_i64;
        while let Some((number, code)) = self.field_header(field)? {
            field = number;
            visit(self, field, Kind::of(code)?)?;
        }
        Ok(())
    }

    /// The number and the type's code of the field that follows one of a structure; `None` at the structure's end.
    fn field_header(&mut self, previous: i64) -> Result<Option<(i64, u8)>, &'static str> {
        let header = self.byte()?;
        if header == 0 {
            return Ok(None);
        }
        let delta = i64::from(header >> 4);
        let field = if delta == 0 { self.signed()? } else { previous.saturating_add(delta) };
        Ok(Some((field, header & 0x0f)))
    }

    /// The fields of a structure, each as it is encoded.
    pub(crate) fn raw_fields(&mut self, depth: usize) -> Result<Vec<RawField<'a>>, &'static str> {
        let mut fields: Vec<RawField<'a>> = Vec::new();
        let mut previous = 0;
        while let Some((number, code)) = self.field_header(previous)? {
            previous = number;
            let start = self.rest;
            self.skip(Kind::of(code)?, depth)?;
            let bytes = &start[..start.len() - self.rest.len()];
            fields.push(RawField { number, code, bytes: bytes.into() });
        }
        Ok(fields)
    }

    /// The structures of a list, each as it is encoded.
    pub(crate) fn raw_structures(&mut self, depth: usize) -> Result<Vec<&'a [u8]>, &'static str> {
        self.list(Kind::Struct, |walk| {
            let start = walk.rest;
            walk.skip_element(Kind::Struct, depth)?;
            Ok(&start[..start.len() - walk.rest.len()])
        })
    }

    /// The type and the count of a list's elements, which follow. There are not more than bytes.
    pub(crate) fn list_header(&mut self) -> Result<(Kind, u64), &'static str> {
        let header = self.byte()?;
        if header == 0 {
            return Ok((Kind::Byte, 0));
        }
        let count = match header >> 4 {
            15 => self.unsigned()?,
            count => count.into(),
        };
        if count > self.rest.len() as u64 {
            return Err(TOO_LONG);
        }
        Ok((Kind::of(header)?, count))
    }

    /// Moves past a field's value.
    pub(crate) fn skip(&mut self, kind: Kind, depth: usize) -> Result<(), &'static str> {
        match kind {
            Kind::Bool(_) => Ok(()),
            _ => self.skip_element(kind, depth),
        }
    }

    /// Moves past a value that is not a field's, where a boolean has a byte.
    pub(crate) fn skip_element(&mut self, kind: Kind, depth: usize) -> Result<(), &'static str> {
        if depth > STRUCT_DEPTH_MAX {
            return Err("a structure is nested too deeply");
        }
        match kind {
            Kind::Bool(_) | Kind::Byte => self.take(1).map(|_| ()),
            Kind::Integer => self.unsigned().map(|_| ()),
            Kind::Double => self.take(8).map(|_| ()),
            Kind::Uuid => self.take(16).map(|_| ()),
            Kind::Binary => self.binary().map(|_| ()),
            Kind::List => {
                let (element, count) = self.list_header()?;
                (0..count).try_for_each(|_| self.skip_element(element, depth + 1))
            }
            Kind::Map => self.skip_map(depth),
            Kind::Struct => self.fields(depth + 1, &mut |walk, _, kind| walk.skip(kind, depth + 1)),
        }
    }

    /// Bytes or text.
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], &'static str> {
        let bytes = self.unsigned()?;
        self.take(bytes)
    }

    /// A list of elements that `read` reads. Others are an error.
    pub(crate) fn list<T>(
        &mut self,
        kind: Kind,
        mut read: impl FnMut(&mut Self) -> Result<T, &'static str>,
    ) -> Result<Vec<T>, &'static str> {
        let (element, count) = self.list_header()?;
        let is_wanted = element == kind || matches!((element, kind), (Kind::Bool(_), Kind::Bool(_)));
        if count > 0 && !is_wanted {
            return Err("a structure has a list of unexpected elements");
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn skip_map(&mut self, depth: usize) -> Result<(), &'static str> {
        let count = self.unsigned()?;
        if count > self.rest.len() as u64 {
            return Err(TOO_LONG);
        }
        if count == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds)?);
        (0..count).try_for_each(|_| {
            self.skip_element(key, depth + 1)?;
            self.skip_element(value, depth + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_encoded_as_they_were_read() {
        let field = |number, code, bytes: &[u8]| RawField { number, code, bytes: bytes.to_vec().into() };
        let fields = [
            field(1, INTEGER_CODE, &encode_signed(-300)),
            field(3, 1, &[]),
            field(30, BINARY_CODE, b"\x03abc"),
            field(31, LIST_CODE, &encode_structures(&[[0]; 20])),
        ];
        let encoded = encode_structure(&fields);
        let mut walk = CompactWalk { rest: &encoded };
        assert_eq!(walk.raw_fields(0).unwrap(), fields);
        assert!(walk.rest.is_empty());
        let mut list = CompactWalk { rest: &fields[3].bytes };
        assert_eq!(list.raw_structures(0).unwrap(), [[0]; 20]);
        assert_eq!(CompactWalk { rest: &fields[0].bytes }.signed(), Ok(-300));
        for end in 0..encoded.len() {
            assert!(CompactWalk { rest: &encoded[..end] }.raw_fields(0).is_err(), "{end}");
        }
    }
}
