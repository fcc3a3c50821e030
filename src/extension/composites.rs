//! The composite types that IMPORT makes for structs, and for lists of structs.
//!
//! A type is named by the table and the column, and one within it by the field too. Types outlive the tables that they were made for, so a
//! later IMPORT finds them.
//!
//! Invariants: a type that is there is used if it has exactly the fields of the struct, in their order and of their types. It is never
//! changed. No type of a table is made unless all of them can be.
#![expect(unsafe_code, reason = "looks types up in PostgreSQL's catalogs")]

use std::ffi::CString;

use pgrx::pg_sys;
use pystachio_plan::{DataType, Error, ErrorKind, RecordField, Result};

use crate::{
    file_tables,
    import::{quote_identifier, shorten},
    pg::{compat, encoding, mirror::type_name_with},
    types::{CompositeField, composite_fields},
};

/// The type of what composite values have as JSON.
const NESTED_TYPE: &str = "jsonb";

/// The composite types of a table's columns.
pub struct Composites<'a> {
    schema: &'a str,
    table: &'a str,
    /// Those that are not there yet. A type comes after those that it has as fields.
    missing: Vec<MissingType>,
}

struct MissingType {
    name: String,
    fields: Vec<WantedField>,
}

/// A field that a type must have.
struct WantedField {
    name: String,
    field_type: FieldType,
}

enum FieldType {
    /// As SQL writes it.
    Single(String),
    /// A composite type of the schema, or an array of it.
    Composite { name: String, is_list: bool },
}

impl<'a> Composites<'a> {
    /// Of a table that is imported into a schema.
    pub fn new(schema: &'a str, table: &'a str) -> Self {
        Self { schema, table, missing: Vec::new() }
    }

    /// The type of a column that has a struct, or a list of structs, as SQL writes it.
    ///
    /// # Errors
    ///
    /// `SchemaMismatch` if a type of the name is another one; a name that the database's encoding lacks.
    pub fn of_column(&mut self, column: &str, data_type: &DataType) -> Result<String> {
        let field_type = self.of_struct(&format!("{}_{column}", self.table), column, data_type)?;
        Ok(field_type.to_sql(self.schema))
    }

    /// Makes the types that are not there.
    ///
    /// # Errors
    ///
    /// As of [`Composites::of_column`]. What PostgreSQL refuses is raised.
    pub fn make(self) -> Result<()> {
        for MissingType { name, fields } in &self.missing {
            let qualified = qualified(self.schema, name);
            let fields = definitions(fields, self.schema);
            file_tables::run(&format!("CREATE TYPE {qualified} AS ({fields})"))?;
        }
        Ok(())
    }

    fn of_struct(&mut self, name: &str, column: &str, data_type: &DataType) -> Result<FieldType> {
        let name = shorten(name);
        let mut fields = Vec::new();
        for RecordField { name: field, data_type, is_json, .. } in data_type.fields().unwrap_or_default() {
            let field_type = match data_type {
                nested if nested.fields().is_some() => {
                    self.of_struct(&format!("{name}_{field}"), column, nested)?
                }
                DataType::List(_) if *is_json => FieldType::Single(format!("{NESTED_TYPE}[]")),
                _ if *is_json => FieldType::Single(NESTED_TYPE.to_owned()),
                single => FieldType::Single(single.to_string()),
            };
            fields.push(WantedField { name: field.clone(), field_type });
        }
        self.want(&name, column, fields)?;
        Ok(FieldType::Composite { name, is_list: matches!(data_type, DataType::List(_)) })
    }

    /// Has a type made unless there is one with these fields.
    fn want(&mut self, name: &str, column: &str, fields: Vec<WantedField>) -> Result<()> {
        let found = find_type(self.schema, name)?;
        let found_fields = found.and_then(composite_fields_of_type);
        let is_same = match (found, &found_fields) {
            (Some(_), Some(found)) => has_fields(found, &fields, self.schema)?,
            (Some(_), None) => false,
            (None, _) => {
                let wanted = definitions(&fields, self.schema);
                let earlier = self.missing.iter().find(|missing| missing.name == name);
                match earlier.map(|earlier| definitions(&earlier.fields, self.schema)) {
                    None => {
                        self.missing.push(MissingType { name: name.to_owned(), fields });
                        return Ok(());
                    }
                    Some(earlier) => earlier == wanted,
                }
            }
        };
        if is_same {
            return Ok(());
        }
        let qualified = qualified(self.schema, name);
        let message = format!(
            "type \"{}.{name}\" is there already, and is not what column \"{column}\" of table \"{}\" needs",
            self.schema, self.table
        );
        let has = match found_fields {
            Some(found) => format!("It has the fields ({})", found_definitions(&found)),
            None if found.is_some() => "It is no composite type".to_owned(),
            None => "Another column has a type of the same name".to_owned(),
        };
        let wanted = definitions(&fields, self.schema);
        Err(Error::new(ErrorKind::SchemaMismatch, message)
            .with_detail(format!("{has}; the files need ({wanted})."))
            .with_hint(format!(
                "DROP TYPE {qualified} or rename it, if nothing uses it, IMPORT into another schema, or declare the table by CREATE FOREIGN TABLE."
            )))
    }
}

impl FieldType {
    fn to_sql(&self, schema: &str) -> String {
        match self {
            Self::Single(sql_type) => sql_type.clone(),
            Self::Composite { name, is_list } => {
                format!("{}{}", qualified(schema, name), if *is_list { "[]" } else { "" })
            }
        }
    }

    /// The type's number and modifier; none if it is not there.
    fn find(&self, schema: &str) -> Result<Option<(pg_sys::Oid, i32)>> {
        match self {
            Self::Single(sql_type) => Ok(Some(compat::parse_type(&server_text(sql_type)?))),
            Self::Composite { name, is_list } => Ok(find_type(schema, name)?.map(|type_oid| {
                // SAFETY: a catalog lookup.
                let array_oid = || unsafe { pg_sys::get_array_type(type_oid) };
                (if *is_list { array_oid() } else { type_oid }, -1)
            })),
        }
    }
}

fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

fn definitions(fields: &[WantedField], schema: &str) -> String {
    let definition = |field: &WantedField| {
        format!("{} {}", quote_identifier(&field.name), field.field_type.to_sql(schema))
    };
    fields.iter().map(definition).collect::<Vec<_>>().join(", ")
}

fn found_definitions(fields: &[CompositeField]) -> String {
    let definition = |field: &CompositeField| {
        format!("{} {}", quote_identifier(&field.name), type_name_with(field.type_oid, field.type_modifier))
    };
    fields.iter().map(definition).collect::<Vec<_>>().join(", ")
}

/// Whether fields are those that are wanted.
fn has_fields(found: &[CompositeField], wanted: &[WantedField], schema: &str) -> Result<bool> {
    if found.len() != wanted.len() {
        return Ok(false);
    }
    for (found, wanted) in found.iter().zip(wanted) {
        let is_same = found.name == wanted.name
            && wanted.field_type.find(schema)? == Some((found.type_oid, found.type_modifier));
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The fields of a type that was made as a composite one; none of rows of a table.
fn composite_fields_of_type(type_oid: pg_sys::Oid) -> Option<Vec<CompositeField>> {
    // SAFETY: catalog lookups. PostgreSQL answers zero for a type without a relation.
    let kind = unsafe { pg_sys::get_rel_relkind(pg_sys::get_typ_typrelid(type_oid)) };
    (kind as u8 == pg_sys::RELKIND_COMPOSITE_TYPE).then(|| composite_fields(type_oid))?
}

/// The type of a name in a schema.
fn find_type(schema: &str, name: &str) -> Result<Option<pg_sys::Oid>> {
    let (schema, name) = (server_text(schema)?, server_text(name)?);
    // SAFETY: lookups by C strings; the key is a name, which is compared as one.
    let type_oid = unsafe {
        let namespace = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::TYPENAMENSP as i32,
            pg_sys::Anum_pg_type_oid as i16,
            name.as_ptr().into(),
            namespace.into(),
            pg_sys::Datum::from(0),
            pg_sys::Datum::from(0),
        )
    };
    Ok((type_oid != pg_sys::InvalidOid).then_some(type_oid))
}

fn server_text(text: &str) -> Result<CString> {
    let text = encoding::to_server(text.as_bytes())?;
    CString::new(text).map_err(|_| Error::new(ErrorKind::InvalidArgument, "a name has a zero byte"))
}
