//! Structures of Thrift's compact protocol, walked over without reserving what they announce: footers, page indexes and
//! page headers.
//!
//! Invariants: no input makes a walk panic, recurse deeper than [`STRUCT_DEPTH_MAX`] or read beyond its bytes. What is
//! wrong is said in words.

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
        loop {
            let header = self.byte()?;
            if header == 0 {
                return Ok(());
            }
            let delta = i64::from(header >> 4);
            field = if delta == 0 { self.signed()? } else { field.saturating_add(delta) };
            visit(self, field, Kind::of(header)?)?;
        }
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
