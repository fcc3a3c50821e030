//! Which plan type a PostgreSQL type is.
#![expect(unsafe_code, reason = "reads PostgreSQL's catalogs")]

use pgrx::pg_sys;
use pystachio_lower::numeric_modifier;
use pystachio_plan::{
    ColumnContent, ColumnDescription, ColumnId, DataType, FileColumn, RecordField, ScanColumn,
};

use crate::{
    options,
    pg::{compat, list, mirror::source_type},
};

/// Bytes of the length word that type modifiers of character types include.
const TYPMOD_OFFSET: i32 = 4;
/// The digits that a bare `numeric` of unknown files may have.
const NUMERIC_DIGITS_MAX: u8 = 38;
/// Digits of numbers that need more than 128 bits.
const LONG_NUMERIC_DIGITS: i32 = 39;
/// The most digits of numbers that engines read.
const NUMERIC_DIGITS_READ_MAX: i32 = 76;

/// The plan type of a PostgreSQL type, for a domain that of its own type, or `None` if there is none.
pub fn data_type(type_oid: pg_sys::Oid, type_modifier: i32) -> Option<DataType> {
    let (base_oid, base_modifier) = base_type(type_oid, type_modifier);
    // SAFETY: a catalog lookup that answers InvalidOid for what is no array.
    let element = unsafe { pg_sys::get_element_type(base_oid) };
    if element != pg_sys::InvalidOid {
        return Some(DataType::List(Box::new(data_type(element, base_modifier)?)));
    }
    if let Some(fields) = composite_fields(base_oid) {
        let fields = fields.into_iter().map(|field| {
            let declared = Declared::of(field.type_oid, field.type_modifier)?;
            let Declared { data_type, length_max, trim_blanks, is_json } = declared;
            Some(RecordField { name: field.name, data_type, length_max, trim_blanks, is_json })
        });
        let fields = fields.collect::<Option<Vec<_>>>()?;
        return (!fields.is_empty()).then_some(DataType::Record(fields));
    }
    match base_oid {
        // Engines read them, and compute nothing with what is cast to them.
        pg_sys::NUMERICOID => match numeric_modifier(base_modifier) {
            Some((precision, scale))
                if (LONG_NUMERIC_DIGITS..=NUMERIC_DIGITS_READ_MAX).contains(&precision.max(scale)) =>
            {
                let (precision, scale) =
                    (u8::try_from(precision.max(scale)).ok()?, u8::try_from(scale).ok()?);
                Some(DataType::Decimal { precision, scale })
            }
            _ => source_type(base_oid).data_type_with(base_modifier),
        },
        // Of UTC, as files have it.
        pg_sys::TIMETZOID => Some(DataType::Time),
        _ => source_type(base_oid).data_type_with(base_modifier),
    }
}

/// A field of a composite type.
pub struct CompositeField {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: i16,
    /// Its type.
    pub type_oid: pg_sys::Oid,
    /// The type's modifier.
    pub type_modifier: i32,
    /// Under which values are compared.
    pub collation: pg_sys::Oid,
}

/// The fields of a composite type, without those that were dropped; `None` of another type.
pub fn composite_fields(type_oid: pg_sys::Oid) -> Option<Vec<CompositeField>> {
    composite_relation(type_oid)?;
    // SAFETY: a copy of the descriptor of a composite type, which is freed.
    unsafe {
        let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
        let attributes = list::attributes(descriptor).into_iter().filter(|attribute| !attribute.attisdropped);
        let fields = attributes.map(|attribute| CompositeField {
            name: list::string(attribute.attname.data.as_ptr()),
            number: attribute.attnum,
            type_oid: attribute.atttypid,
            type_modifier: attribute.atttypmod,
            collation: attribute.attcollation,
        });
        let fields = fields.collect();
        pg_sys::FreeTupleDesc(descriptor);
        Some(fields)
    }
}

/// The relation that says which fields a composite type has.
fn composite_relation(type_oid: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // Those of pg_type.dat are none, or rows of catalogs.
    if u32::from(type_oid) < pg_sys::FirstGenbkiObjectId {
        return None;
    }
    // SAFETY: a catalog lookup that answers InvalidOid for what is no composite type.
    let relation_oid = unsafe { pg_sys::get_typ_typrelid(type_oid) };
    (relation_oid != pg_sys::InvalidOid).then_some(relation_oid)
}

/// The attributes of a composite type, dropped ones included.
pub fn attribute_count(type_oid: pg_sys::Oid) -> i16 {
    // SAFETY: as of the fields.
    unsafe {
        let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
        let count = (*descriptor).natts as i16;
        pg_sys::FreeTupleDesc(descriptor);
        count
    }
}

/// The relations of the composite types that values of a type have in them.
pub fn composite_relations(type_oid: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    let item_oid = item_type(type_oid);
    let Some(fields) = composite_fields(item_oid) else { return Vec::new() };
    let within = fields.into_iter().flat_map(|field| composite_relations(field.type_oid));
    composite_relation(item_oid).into_iter().chain(within).collect()
}

/// The type of an array's elements, for a domain that of its own type; another type itself.
pub fn item_type(type_oid: pg_sys::Oid) -> pg_sys::Oid {
    let (base_oid, _) = base_type(type_oid, -1);
    // SAFETY: a catalog lookup that answers InvalidOid for what is no array.
    match unsafe { pg_sys::get_element_type(base_oid) } {
        pg_sys::InvalidOid => base_oid,
        element => base_type(element, -1).0,
    }
}

/// How values of a type are read.
struct Declared {
    data_type: DataType,
    length_max: Option<u32>,
    trim_blanks: bool,
    is_json: bool,
}

impl Declared {
    fn of(type_oid: pg_sys::Oid, type_modifier: i32) -> Option<Self> {
        let (base_oid, base_modifier) = base_type(type_oid, type_modifier);
        let has_length =
            matches!(base_oid, pg_sys::VARCHAROID | pg_sys::BPCHAROID) && base_modifier > TYPMOD_OFFSET;
        Some(Self {
            data_type: data_type(base_oid, base_modifier)?,
            length_max: has_length.then(|| (base_modifier - TYPMOD_OFFSET).unsigned_abs()),
            trim_blanks: base_oid == pg_sys::BPCHAROID,
            is_json: matches!(item_type(base_oid), pg_sys::JSONOID | pg_sys::JSONBOID),
        })
    }
}

/// The type that a domain is of in the end, with that type's modifier; any other type as it is.
pub fn base_type(type_oid: pg_sys::Oid, type_modifier: i32) -> (pg_sys::Oid, i32) {
    // Types of pg_type.dat are no domains.
    if u32::from(type_oid) < pg_sys::FirstGenbkiObjectId {
        return (type_oid, type_modifier);
    }
    // A value of a domain has no modifier of its own.
    let mut base_modifier = -1;
    // SAFETY: a catalog lookup that takes and sets a modifier.
    let base_oid = unsafe { pg_sys::getBaseTypeAndTypmod(type_oid, &mut base_modifier) };
    if base_oid == type_oid { (type_oid, type_modifier) } else { (base_oid, base_modifier) }
}

/// How a scan reads a column of a foreign table, or `None` if its type can't be read. `described` is the
/// column in the files: the scale of a bare `numeric` is theirs.
pub fn scan_column(
    relation_oid: pg_sys::Oid,
    attribute: &pg_sys::FormData_pg_attribute,
    id: ColumnId,
    described: Option<&ColumnDescription>,
) -> Option<ScanColumn> {
    let (type_oid, type_modifier) = base_type(attribute.atttypid, attribute.atttypmod);
    let content = match options::column_content(relation_oid, attribute.attnum) {
        ColumnContent::Column if matches!(type_oid, pg_sys::JSONOID | pg_sys::JSONBOID) => {
            ColumnContent::Json
        }
        content => content,
    };
    let Declared { data_type, length_max, trim_blanks, is_json: _ } = Declared::of(type_oid, type_modifier)?;
    let in_files = described.and_then(|described| match data_type.fields() {
        Some(_) => described.record.as_ref(),
        None => described.data_type.as_ref(),
    });
    let data_type = with_digits(data_type, in_files)?;
    let FileColumn { name, field_id } = options::file_column(relation_oid, attribute.attnum);
    Some(ScanColumn {
        id,
        name,
        field_id,
        within: Vec::new(),
        data_type,
        // SAFETY: the caller holds a lock on the table.
        not_null: unsafe { compat::is_not_null(relation_oid, attribute) },
        length_max,
        trim_blanks,
        content,
        common: Vec::new(),
    })
}

/// A type with the digits that files have where the declaration says none; `None` where they are not known.
fn with_digits(declared: DataType, in_files: Option<&DataType>) -> Option<DataType> {
    Some(match (declared, in_files) {
        (DataType::Numeric, in_files) => file_numeric(in_files),
        (DataType::List(item), Some(DataType::List(in_files))) if *item == DataType::Numeric => {
            in_files.is_decimal().then(|| DataType::List(in_files.clone()))?
        }
        (DataType::List(item), _) if *item == DataType::Numeric => return None,
        (DataType::List(item), Some(DataType::List(in_files))) => {
            DataType::List(Box::new(with_digits(*item, Some(in_files))?))
        }
        (DataType::List(item), _) => DataType::List(Box::new(with_digits(*item, None)?)),
        (DataType::Record(fields), in_files) => {
            let in_files = in_files.and_then(DataType::fields).unwrap_or_default();
            let named = |name: &str| {
                let is_alike = |field: &&RecordField| field.name.to_lowercase() == name.to_lowercase();
                let found = in_files.iter().find(|field| field.name == name);
                found.or_else(|| in_files.iter().find(is_alike)).map(|field| &field.data_type)
            };
            let with_digits = |field: RecordField| {
                let data_type = with_digits(field.data_type, named(&field.name))?;
                Some(RecordField { data_type, ..field })
            };
            DataType::Record(fields.into_iter().map(with_digits).collect::<Option<_>>()?)
        }
        (other, _) => other,
    })
}

/// Whether a declared type leaves digits to the files.
pub fn rests_on_files(declared: &DataType) -> bool {
    match declared {
        DataType::Numeric => true,
        DataType::List(item) => rests_on_files(item),
        DataType::Record(fields) => fields.iter().any(|field| rests_on_files(&field.data_type)),
        _ => false,
    }
}

/// The decimal that a bare `numeric` column holds.
fn file_numeric(in_files: Option<&DataType>) -> DataType {
    let whole = |precision| DataType::Decimal { precision, scale: 0 };
    match in_files {
        Some(decimal @ DataType::Decimal { .. }) => decimal.clone(),
        Some(DataType::Int16) => whole(5),
        Some(DataType::Int32) => whole(10),
        Some(DataType::Int64) => whole(19),
        _ => whole(NUMERIC_DIGITS_MAX),
    }
}
