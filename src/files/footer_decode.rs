//! An encoded footer as the `parquet` crate decodes it, and footers that it refuses though others read their files.
//!
//! ```text
//! footer ─► decoded ─► its schema as Arrow's ─► used
//!              │ refused      │ refused
//!              └──────────────┴─► mended: annotations, writer's name, row groups in parts ─► decoded again
//! ```
//!
//! - A column whose annotation is unknown, or can't go with its physical type, has none that is known: it is left out of
//!   what is imported, and the others are read. Where the older or the newer annotation alone is right, that one counts.
//! - Text of a footer that is not UTF-8 is no reason to refuse it, except in the names of columns.
//! - The crate numbers row groups in 16 bits, so that many of them are decoded in parts.
//! - A dictionary at byte 0 of a file is none.
//!
//! Invariants: a footer that the crate decodes is used as it is, but for dictionaries that can't be where they are said to
//! be. Leaves keep their order and number.
//!
//! Deliberately absent: what must hold of a footer before it is decoded (`footer_check.rs`).
//!
//! Source: parquet.thrift, `FileMetaData`, `SchemaElement`, `LogicalType`; arrow-rs 8776, 10129, 10941.

use std::borrow::Cow;

use parquet::{
    arrow::parquet_to_arrow_schema,
    errors::ParquetError,
    file::metadata::{
        ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
        RowGroupMetaData,
    },
};

use crate::{
    compact_protocol::{
        BINARY_CODE, CompactWalk, INTEGER_CODE, LIST_CODE, RawField, STRUCT_CODE, encode_signed,
        encode_structure, encode_structures, encode_unsigned,
    },
    decoding_panics::{NOT_DECODABLE, decode_guarded},
};

/// Fields of `FileMetaData`.
const VERSION: i64 = 1;
const SCHEMA: i64 = 2;
const ROW_COUNT: i64 = 3;
const ROW_GROUPS: i64 = 4;
const KEY_VALUES: i64 = 5;
const CREATED_BY: i64 = 6;
/// Fields of `SchemaElement`.
const NAME: i64 = 4;
const CHILDREN: i64 = 5;
const CONVERTED_TYPE: i64 = 6;
const SCALE: i64 = 7;
const PRECISION: i64 = 8;
const LOGICAL_TYPE: i64 = 10;
/// Fields of the union `LogicalType`.
const DECIMAL: i64 = 5;
const UNKNOWN: i64 = 11;
/// Row groups that the crate numbers.
const ROW_GROUPS_MAX: usize = i16::MAX as usize;

/// Decodes a footer. If only the statistics can't be decoded, the footer has none.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn decode_footer(footer: &[u8]) -> Result<ParquetMetaData, String> {
    let whole = decode_with(footer, &ParquetMetaDataOptions::new());
    whole.or_else(|reason| {
        let options =
            ParquetMetaDataOptions::new().with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
        decode_with(footer, &options).map_err(|_| reason)
    })
}

/// The same as options say.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn decode_with(
    footer: &[u8],
    options: &ParquetMetaDataOptions,
) -> Result<ParquetMetaData, String> {
    let metadata =
        decode_usable(footer, options).or_else(|reason| decode_mended(footer, options).ok_or(reason))?;
    without_dictionaries_at_zero(metadata)
}

/// Decodes a footer that can't be decoded as it is; `None` if nothing helps.
fn decode_mended(footer: &[u8], options: &ParquetMetaDataOptions) -> Option<ParquetMetaData> {
    let mended = mend(footer).ok()?;
    let mut parts = mended.iter().map(|part| decode_usable(part, options));
    let mut metadata = parts.next()?.ok()?.into_builder();
    for part in parts {
        for row_group in part.ok()?.into_builder().take_row_groups() {
            metadata = metadata.add_row_group(row_group);
        }
    }
    Some(metadata.build())
}

/// Decodes a footer as it is, and tries whether its schema is one of Arrow's too.
fn decode_usable(footer: &[u8], options: &ParquetMetaDataOptions) -> Result<ParquetMetaData, String> {
    let decode = || {
        let metadata = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(options))?;
        parquet_to_arrow_schema(metadata.file_metadata().schema_descr(), None)?;
        Ok(metadata)
    };
    decode_guarded(decode).ok_or_else(|| NOT_DECODABLE.to_owned())?.map_err(|error| reason(&error))
}

/// What the reader says, without its own headings.
pub(super) fn reason(error: &ParquetError) -> String {
    match error {
        ParquetError::General(message) | ParquetError::EOF(message) => message.clone(),
        other => other.to_string(),
    }
}

/// Chunks without a dictionary whose place can't be one: it comes after the magic bytes and before the data pages.
fn without_dictionaries_at_zero(metadata: ParquetMetaData) -> Result<ParquetMetaData, String> {
    let has_wrong_place = |row_group: &RowGroupMetaData| {
        row_group.columns().iter().any(|chunk| {
            chunk.dictionary_page_offset().is_some_and(|start| start <= 0 || start > chunk.data_page_offset())
        })
    };
    if !metadata.row_groups().iter().any(has_wrong_place) {
        return Ok(metadata);
    }
    let mut builder = metadata.into_builder();
    let mended = builder.take_row_groups().into_iter().map(|row_group| {
        let mut row_group = row_group.into_builder();
        let chunks = row_group.take_columns().into_iter().map(|chunk| {
            let (start, data) = (chunk.dictionary_page_offset(), chunk.data_page_offset());
            let start = start.filter(|start| (1..=data).contains(start));
            chunk.into_builder().set_dictionary_page_offset(start).build()
        });
        let chunks = chunks.collect::<Result<Vec<_>, ParquetError>>()?;
        row_group.set_column_metadata(chunks).build()
    });
    let mended = mended.collect::<Result<Vec<_>, ParquetError>>().map_err(|error| reason(&error))?;
    Ok(builder.set_row_groups(mended).build())
}

/// A footer that the crate refuses, mended where that is known how; several of them, if it has too many row groups for one.
fn mend(footer: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut fields = CompactWalk { rest: footer }.raw_fields(0)?;
    // Unused fields.
    fields.retain(|field| field.number != KEY_VALUES);
    let mut row_groups = Vec::new();
    for field in &mut fields {
        match (field.number, field.code) {
            (SCHEMA, LIST_CODE) => field.bytes = mended_schema(&field.bytes)?.into(),
            (CREATED_BY, BINARY_CODE) => {
                let text = CompactWalk { rest: &field.bytes }.binary()?;
                field.bytes = encode_text(&String::from_utf8_lossy(text)).into();
            }
            (ROW_GROUPS, LIST_CODE) => {
                let list = match &field.bytes {
                    Cow::Borrowed(bytes) => *bytes,
                    Cow::Owned(_) => return Err("a list of row groups was mended"),
                };
                row_groups = CompactWalk { rest: list }.raw_structures(1)?;
            }
            _ => {}
        }
    }
    let with_row_groups = |part: &[&[u8]]| {
        let mut fields = fields.clone();
        for field in &mut fields {
            if field.number == ROW_GROUPS {
                field.bytes = encode_structures(part).into();
            }
        }
        encode_structure(&fields)
    };
    if row_groups.len() <= ROW_GROUPS_MAX {
        return Ok(vec![with_row_groups(&row_groups)]);
    }
    Ok(row_groups.chunks(ROW_GROUPS_MAX).map(with_row_groups).collect())
}

fn encode_text(text: &str) -> Vec<u8> {
    [encode_unsigned(text.len() as u64), text.as_bytes().to_vec()].concat()
}

/// An element of a schema: its fields, and how many children follow it.
#[derive(Clone)]
struct Element<'a> {
    fields: Vec<RawField<'a>>,
    children: usize,
}

impl<'a> Element<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let fields = CompactWalk { rest: bytes }.raw_fields(0)?;
        let children = fields.iter().find(|field| field.number == CHILDREN);
        let children = children.map_or(Ok(0), |field| CompactWalk { rest: &field.bytes }.signed())?;
        Ok(Self { fields, children: usize::try_from(children).unwrap_or(0) })
    }

    fn encode(&self) -> Vec<u8> {
        encode_structure(&self.fields)
    }

    fn has(&self, number: i64) -> bool {
        self.fields.iter().any(|field| field.number == number)
    }

    fn without(&self, numbers: &[i64]) -> Self {
        let fields = self.fields.iter().filter(|field| !numbers.contains(&field.number)).cloned().collect();
        Self { fields, ..*self }
    }

    fn with(&self, number: i64, code: u8, bytes: Vec<u8>) -> Self {
        let mut element = self.without(&[number]);
        element.fields.push(RawField { number, code, bytes: bytes.into() });
        element.fields.sort_by_key(|field| field.number);
        element
    }

    /// With the newer annotation alone, if it has one.
    fn with_logical_type(&self) -> Option<Self> {
        let logical = self.fields.iter().find(|field| field.number == LOGICAL_TYPE)?;
        let alone = self.without(&[CONVERTED_TYPE]);
        let union = CompactWalk { rest: &logical.bytes }.raw_fields(0).ok()?;
        let Some(decimal) = union.iter().find(|field| field.number == DECIMAL) else { return Some(alone) };
        // The crate wants both said twice.
        let numbers = CompactWalk { rest: &decimal.bytes }.raw_fields(0).ok()?;
        let number = |place: i64| {
            let found = numbers.iter().find(|field| field.number == place);
            found.map(|field| field.bytes.to_vec())
        };
        let scale = number(1).unwrap_or_else(|| encode_signed(0));
        Some(alone.with(SCALE, INTEGER_CODE, scale).with(PRECISION, INTEGER_CODE, number(2)?))
    }

    /// With the older annotation alone, if it has one.
    fn with_converted_type(&self) -> Option<Self> {
        (self.has(LOGICAL_TYPE) && self.has(CONVERTED_TYPE)).then(|| self.without(&[LOGICAL_TYPE]))
    }

    /// With an annotation that says that it is not known what its values are.
    fn without_known_type(&self) -> Self {
        let unknown = RawField { number: UNKNOWN, code: STRUCT_CODE, bytes: encode_structure(&[]).into() };
        let plain = self.without(&[CONVERTED_TYPE, SCALE, PRECISION]);
        plain.with(LOGICAL_TYPE, STRUCT_CODE, encode_structure(&[unknown]))
    }

    /// A column with an annotation that the crate takes.
    fn mended(&self) -> Self {
        let candidates = [Some(self.clone()), self.with_logical_type(), self.with_converted_type()];
        let is_taken = |candidate: &Self| is_schema(std::slice::from_ref(candidate));
        candidates.into_iter().flatten().find(is_taken).unwrap_or_else(|| self.without_known_type())
    }
}

/// The list of a schema's elements with annotations that the crate takes.
fn mended_schema(list: &[u8]) -> Result<Vec<u8>, &'static str> {
    let elements = CompactWalk { rest: list }.raw_structures(1)?;
    let elements = elements.into_iter().map(Element::read).collect::<Result<Vec<_>, _>>()?;
    let Some((root, mut rest)) = elements.split_first() else { return Ok(list.to_vec()) };
    let mut mended = vec![root.encode()];
    while !rest.is_empty() {
        let (column, others) = rest.split_at(column_length(rest));
        mended.extend(mended_column(column).iter().map(Element::encode));
        rest = others;
    }
    Ok(encode_structures(&mended))
}

/// How many elements the first column has, itself counted.
fn column_length(elements: &[Element<'_>]) -> usize {
    let mut open = 1_usize;
    for (place, element) in elements.iter().enumerate() {
        open = open.saturating_sub(1).saturating_add(element.children);
        if open == 0 {
            return place + 1;
        }
    }
    elements.len()
}

fn mended_column<'a>(column: &[Element<'a>]) -> Vec<Element<'a>> {
    if is_schema(column) {
        return column.to_vec();
    }
    let mend = |element: &Element<'a>| if element.children == 0 { element.mended() } else { element.clone() };
    let mended: Vec<Element<'a>> = column.iter().map(mend).collect();
    if is_schema(&mended) {
        return mended;
    }
    // A list or a map that is none is a group.
    let as_group = |element: &Element<'a>| match element.children {
        0 => element.clone(),
        _ => element.without(&[CONVERTED_TYPE, LOGICAL_TYPE]),
    };
    mended.iter().map(as_group).collect()
}

/// Whether the crate takes a column.
fn is_schema(column: &[Element<'_>]) -> bool {
    let field = |number, code, bytes: Vec<u8>| RawField { number, code, bytes: bytes.into() };
    let root =
        [field(NAME, BINARY_CODE, encode_text("schema")), field(CHILDREN, INTEGER_CODE, encode_signed(1))];
    let elements: Vec<Vec<u8>> =
        std::iter::once(encode_structure(&root)).chain(column.iter().map(Element::encode)).collect();
    let footer = encode_structure(&[
        field(VERSION, INTEGER_CODE, encode_signed(1)),
        field(SCHEMA, LIST_CODE, encode_structures(&elements)),
        field(ROW_COUNT, INTEGER_CODE + 1, encode_signed(0)),
        field(ROW_GROUPS, LIST_CODE, encode_structures::<Vec<u8>>(&[])),
    ]);
    decode_usable(&footer, &ParquetMetaDataOptions::new()).is_ok()
}

#[cfg(test)]
mod tests {
    use parquet::basic::{ConvertedType, LogicalType};

    use super::*;

    fn field(number: i64, code: u8, bytes: Vec<u8>) -> RawField<'static> {
        RawField { number, code, bytes: bytes.into() }
    }

    fn integer(number: i64, value: i64) -> RawField<'static> {
        field(number, INTEGER_CODE, encode_signed(value))
    }

    /// An optional column of a physical type with further fields.
    fn column(name: &str, physical: i64, more: Vec<RawField<'static>>) -> Vec<u8> {
        let mut fields =
            vec![integer(1, physical), integer(3, 1), field(NAME, BINARY_CODE, encode_text(name))];
        fields.extend(more);
        encode_structure(&fields)
    }

    /// The newer annotation: a member of the union, with fields of its own.
    fn logical(member: i64, own: &[RawField<'_>]) -> RawField<'static> {
        let union = [field(member, STRUCT_CODE, encode_structure(own))];
        field(LOGICAL_TYPE, STRUCT_CODE, encode_structure(&union))
    }

    /// A footer of some columns and of so many row groups without rows.
    fn footer(columns: &[Vec<u8>], created_by: &[u8], row_groups: usize) -> Vec<u8> {
        let root = encode_structure(&[
            field(NAME, BINARY_CODE, encode_text("schema")),
            integer(CHILDREN, columns.len() as i64),
        ]);
        let elements: Vec<Vec<u8>> = std::iter::once(root).chain(columns.iter().cloned()).collect();
        let row_group = encode_structure(&[
            field(1, LIST_CODE, encode_structures::<Vec<u8>>(&[])),
            field(2, INTEGER_CODE + 1, encode_signed(0)),
            field(3, INTEGER_CODE + 1, encode_signed(0)),
        ]);
        encode_structure(&[
            integer(VERSION, 1),
            field(SCHEMA, LIST_CODE, encode_structures(&elements)),
            field(ROW_COUNT, INTEGER_CODE + 1, encode_signed(0)),
            field(ROW_GROUPS, LIST_CODE, encode_structures(&vec![row_group; row_groups])),
            field(CREATED_BY, BINARY_CODE, [vec![created_by.len() as u8], created_by.to_vec()].concat()),
        ])
    }

    #[test]
    fn one_column_of_an_unknown_kind_keeps_no_other_from_being_read() {
        let columns = [
            column("good", 1, vec![]),
            column("text_on_int32", 1, vec![integer(CONVERTED_TYPE, 0), logical(1, &[])]),
            column("unheard_of", 2, vec![logical(99, &[])]),
            column(
                "decimal_12_on_int32",
                1,
                vec![integer(CONVERTED_TYPE, 5), integer(SCALE, 0), integer(PRECISION, 12)],
            ),
            column("decimal_once", 1, vec![logical(DECIMAL, &[integer(1, 2), integer(2, 5)])]),
            column("unheard_of_date", 1, vec![integer(CONVERTED_TYPE, 6), logical(99, &[])]),
        ];
        let metadata = decode_footer(&footer(&columns, b"a writer", 0)).unwrap();
        let root = metadata.file_metadata().schema_descr().root_schema().clone();
        let logical = |place: usize| root.get_fields()[place].get_basic_info().logical_type_ref().cloned();
        assert_eq!([0, 5].map(logical), [None, None]);
        assert_eq!([1, 2, 3].map(logical), [const { Some(LogicalType::Unknown) }; 3]);
        assert_eq!(logical(4), Some(LogicalType::decimal(2, 5)));
        let date = root.get_fields()[5].get_basic_info().converted_type();
        assert_eq!(date, ConvertedType::DATE);
    }

    #[test]
    fn writers_whose_name_is_no_text_are_read() {
        let columns = [column("a", 1, vec![])];
        let metadata = decode_footer(&footer(&columns, b"caf\xe9 1.0", 0)).unwrap();
        assert_eq!(metadata.file_metadata().created_by(), Some("caf\u{fffd} 1.0"));
    }

    #[test]
    fn row_groups_may_be_more_than_the_crate_numbers() {
        let columns: [Vec<u8>; 0] = [];
        for count in [ROW_GROUPS_MAX, 2 * ROW_GROUPS_MAX + 5] {
            assert_eq!(decode_footer(&footer(&columns, b"a", count)).unwrap().num_row_groups(), count);
        }
    }
}
