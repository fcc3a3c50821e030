//! Thrift's compact protocol as a tree, so that one field of a structure can be changed and the rest stays as it was.
//!
//! Source: Thrift's specification `thrift-compact-protocol.md`. Deliberately absent: maps, which Parquet has none of.

/// A value with its type: what is written again is what was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Byte(u8),
    /// With the type's code: 4, 5 or 6, for 16, 32 and 64 bits.
    Integer(u8, i64),
    Double([u8; 8]),
    Binary(Vec<u8>),
    /// With the code of the elements' type; that of a set is written as a list's.
    List(u8, Vec<Self>),
    Struct(Vec<(i16, Self)>),
}

const DEPTH_MAX: usize = 32;
/// The code of integers of 32 bits.
pub const INTEGER_CODE: u8 = 5;
/// The code of structures.
pub const STRUCT_CODE: u8 = 12;

impl Value {
    /// A structure at the start of some bytes, and how many bytes it has.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut reader = Reader { bytes, at: 0 };
        let value = reader.value(STRUCT_CODE, false, 0)?;
        Some((value, reader.at))
    }

    /// A structure as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// A field of a structure.
    pub fn field(&self, id: i16) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(field, _)| *field == id).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub fn field_mut(&mut self, id: i16) -> Option<&mut Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter_mut().find(|(field, _)| *field == id).map(|(_, value)| value)
    }

    /// A field that is an integer.
    pub fn integer(&self, id: i16) -> Option<i64> {
        match self.field(id)? {
            Self::Integer(_, value) => Some(*value),
            _ => None,
        }
    }

    /// Sets a field that is an integer and is there.
    pub fn set_integer(&mut self, id: i16, to: i64) {
        if let Some(Self::Integer(_, value)) = self.field_mut(id) {
            *value = to;
        }
    }

    /// Takes fields away.
    pub fn remove(&mut self, ids: &[i16]) {
        if let Self::Struct(fields) = self {
            fields.retain(|(id, _)| !ids.contains(id));
        }
    }

    /// The elements of a list.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(_, items) => items,
            _ => &[],
        }
    }

    /// The same, to change them.
    pub fn items_mut(&mut self) -> &mut [Self] {
        match self {
            Self::List(_, items) => items,
            _ => &mut [],
        }
    }

    /// How many values there are in this one, itself included.
    pub fn count(&self) -> usize {
        1 + match self {
            Self::List(_, items) => items.iter().map(Self::count).sum(),
            Self::Struct(fields) => fields.iter().map(|(_, value)| value.count()).sum(),
            _ => 0,
        }
    }

    /// The value of a number, in the order in which they are written.
    pub fn nth_mut(&mut self, number: usize) -> Option<&mut Self> {
        if number == 0 {
            return Some(self);
        }
        let mut left = number - 1;
        let inner: Vec<&mut Self> = match self {
            Self::List(_, items) => items.iter_mut().collect(),
            Self::Struct(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        };
        for value in inner {
            let count = value.count();
            if left < count {
                return value.nth_mut(left);
            }
            left -= count;
        }
        None
    }

    fn code(&self) -> u8 {
        match self {
            Self::Bool(true) => 1,
            Self::Bool(false) => 2,
            Self::Byte(_) => 3,
            Self::Integer(code, _) => *code,
            Self::Double(_) => 7,
            Self::Binary(_) => 8,
            Self::List(..) => 9,
            Self::Struct(_) => STRUCT_CODE,
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Bool(value) => bytes.push(if *value { 1 } else { 2 }),
            Self::Byte(value) => bytes.push(*value),
            Self::Integer(_, value) => write_number(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned()),
            Self::Double(value) => bytes.extend(value),
            Self::Binary(value) => {
                write_number(bytes, value.len() as u64);
                bytes.extend(value);
            }
            Self::List(code, items) => {
                if items.len() < 15 {
                    bytes.push(((items.len() as u8) << 4) | code);
                } else {
                    bytes.push(0xf0 | code);
                    write_number(bytes, items.len() as u64);
                }
                items.iter().for_each(|item| item.write(bytes));
            }
            Self::Struct(fields) => {
                let mut last = 0i16;
                for (id, value) in fields {
                    let step = i32::from(*id) - i32::from(last);
                    if (1..=15).contains(&step) {
                        bytes.push(((step as u8) << 4) | value.code());
                    } else {
                        bytes.push(value.code());
                        let id = i64::from(*id);
                        write_number(bytes, ((id << 1) ^ (id >> 63)).cast_unsigned());
                    }
                    if !matches!(value, Self::Bool(_)) {
                        value.write(bytes);
                    }
                    last = *id;
                }
                bytes.push(0);
            }
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        self.number().map(|value| (value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let taken = self.bytes.get(self.at..self.at.checked_add(bytes)?)?.to_vec();
        self.at += bytes;
        Some(taken)
    }

    fn value(&mut self, code: u8, is_element: bool, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        Some(match code {
            1 | 2 if is_element => Value::Bool(self.byte()? == 1),
            1 => Value::Bool(true),
            2 => Value::Bool(false),
            3 => Value::Byte(self.byte()?),
            4..=6 => Value::Integer(code, self.signed()?),
            7 => Value::Double(self.take(8)?.try_into().ok()?),
            8 => {
                let length = usize::try_from(self.number()?).ok()?;
                Value::Binary(self.take(length)?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.value(head & 0x0f, true, depth + 1)?);
                }
                Value::List(head & 0x0f, items)
            }
            STRUCT_CODE => {
                let (mut fields, mut id) = (Vec::new(), 0i16);
                loop {
                    let head = self.byte()?;
                    if head == 0 {
                        break Value::Struct(fields);
                    }
                    id = match head >> 4 {
                        0 => i16::try_from(self.signed()?).ok()?,
                        step => id.checked_add(i16::from(step))?,
                    };
                    fields.push((id, self.value(head & 0x0f, false, depth + 1)?));
                }
            }
            _ => return None,
        })
    }
}

fn write_number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
