//! Fields of structs that scans can read as columns of their own, with the values that JSON of the struct has.
//!
//! A scan finds a field by names with points between (`field_place.rs`), and without regard to case where the exact name is missing; JSON
//! knows neither. So a field is given only if its name is its own in every file, whatever the case, and without a point.

use std::collections::BTreeMap;

use parquet::schema::types::Type;
use pystachio_plan::{DataType, FieldDescription};
use pystachio_tables::{NestedType, StoredName, TableColumn};

use crate::file_type::{is_struct, leaf_type};

/// Fields of a column at most: more would make each planning slow.
const FIELDS_MAX: usize = 256;

/// The fields of a column over the files seen so far, by their names in small letters.
#[derive(Default)]
pub(super) struct StructFields {
    by_letters: BTreeMap<Vec<String>, Found>,
}

struct Found {
    path: Vec<String>,
    /// None if files or fields of one name differ.
    data_type: Option<DataType>,
}

impl StructFields {
    /// Adds the fields of a file's column.
    pub(super) fn add_file(&mut self, column: &Type) {
        let mut of_file = BTreeMap::new();
        if is_struct(column) {
            collect(column, &mut Vec::new(), &mut of_file);
        }
        for (letters, found) in of_file {
            match self.by_letters.get_mut(&letters) {
                Some(known) if known.path == found.path && known.data_type == found.data_type => {}
                Some(known) => known.data_type = None,
                None => drop(self.by_letters.insert(letters, found)),
            }
        }
    }

    /// The fields of a column that the log of a table has, whatever the files call them. Those with a default are left out: rows of files
    /// without them need not have it. So are those of a type that `is_known` says no to, by the names that files have on the way to them.
    pub(super) fn of_table(
        column: &TableColumn,
        is_known: &dyn Fn(&[&StoredName], &DataType) -> bool,
    ) -> Self {
        let mut known =
            KnownFields { is_known, path: Vec::new(), stored: vec![&column.stored], found: BTreeMap::new() };
        known.collect(&column.fields);
        Self { by_letters: known.found }
    }

    /// Those that have one type. `is_other`: whether a name with points is that of another column.
    pub(super) fn descriptions(self, column: &str, is_other: impl Fn(&str) -> bool) -> Vec<FieldDescription> {
        let is_plain = |name: &String| !name.contains('.');
        let described = self.by_letters.into_values().filter_map(|Found { path, data_type }| {
            let is_own = path.iter().all(is_plain);
            let field = FieldDescription { path, data_type: data_type.filter(|_| is_own)? };
            (!is_other(&field.name_in(column))).then_some(field)
        });
        let described: Vec<_> = described.take(FIELDS_MAX + 1).collect();
        if described.len() > FIELDS_MAX { Vec::new() } else { described }
    }
}

/// Collects the fields of a struct; two fields of one name have no type.
fn collect(group: &Type, path: &mut Vec<String>, found: &mut BTreeMap<Vec<String>, Found>) {
    for field in group.get_fields() {
        path.push(field.name().to_owned());
        let letters: Vec<String> = path.iter().map(|name| name.to_lowercase()).collect();
        let data_type = match field.is_primitive() {
            true => {
                Some(leaf_type(field)).filter(|leaf| leaf.storage.is_some()).and_then(|leaf| leaf.data_type)
            }
            false => None,
        };
        // A struct has no type, and neither have fields below two of one name.
        let is_known = found.contains_key(&letters);
        let data_type = data_type.filter(|_| !is_known);
        found.insert(letters, Found { path: path.clone(), data_type });
        if is_struct(field) {
            match is_known {
                false => collect(field, path, found),
                true => forget_below(path, found),
            }
        }
        path.pop();
    }
}

/// The fields of a column that the log of a table has, while they are collected.
struct KnownFields<'a> {
    is_known: &'a dyn Fn(&[&StoredName], &DataType) -> bool,
    /// The names on the way to the next field, within the column.
    path: Vec<String>,
    /// What files call them, and the column.
    stored: Vec<&'a StoredName>,
    found: BTreeMap<Vec<String>, Found>,
}

impl<'a> KnownFields<'a> {
    /// As [`collect`].
    fn collect(&mut self, columns: &'a [TableColumn]) {
        for column in columns {
            self.path.push(column.name.clone());
            self.stored.push(&column.stored);
            let letters: Vec<String> = self.path.iter().map(|name| name.to_lowercase()).collect();
            let is_twice = self.found.contains_key(&letters);
            let is_single = matches!(column.nested, NestedType::Single(_)) && !column.is_json;
            let data_type = column
                .data_type
                .clone()
                .filter(|data_type| is_single && !is_twice && !data_type.is_nested())
                .filter(|data_type| column.default.is_none() && (self.is_known)(&self.stored, data_type));
            self.found.insert(letters, Found { path: self.path.clone(), data_type });
            match is_twice {
                false => self.collect(&column.fields),
                true => forget_below(&self.path, &mut self.found),
            }
            self.stored.pop();
            self.path.pop();
        }
    }
}

fn forget_below(path: &[String], found: &mut BTreeMap<Vec<String>, Found>) {
    let letters: Vec<String> = path.iter().map(|name| name.to_lowercase()).collect();
    for (_, known) in found.iter_mut().filter(|(other, _)| other.starts_with(&letters)) {
        known.data_type = None;
    }
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn fields(files: &[&str], other: &str) -> Vec<(String, DataType)> {
        let mut fields = StructFields::default();
        for file in files {
            let schema = parse_message_type(&format!("message m {{ {file} }}")).unwrap();
            fields.add_file(&schema.get_fields()[0]);
        }
        let described = fields.descriptions("s", |name| name == other);
        described.into_iter().map(|field| (field.path.join("."), field.data_type)).collect()
    }

    #[test]
    fn fields_of_one_type_are_found_at_any_depth() {
        let file = "optional group s { required int32 a; optional group t { optional binary b (UTF8); }
            optional group l (LIST) { repeated group list { optional int32 element; } } optional binary raw; }";
        let expected = [("a", DataType::Int32), ("raw", DataType::Bytea), ("t.b", DataType::Text)];
        let expected = expected.map(|(path, data_type)| (path.to_owned(), data_type));
        assert_eq!(fields(&[file, file], ""), expected);
        assert_eq!(
            fields(&[file, "optional group s { optional int32 a; optional int32 z; }"], "s.t.b").len(),
            3
        );
        assert_eq!(fields(&[file], "s.t.b"), expected[..2]);
    }

    #[test]
    fn fields_that_json_and_scans_tell_apart_differently_are_left_out() {
        for (files, expected) in [
            (&["optional group s { optional int32 a; optional int32 A; }"][..], 0),
            (&["optional group s { optional int32 a; }", "optional group s { optional int32 A; }"], 0),
            (&["optional group s { optional int32 a; }", "optional group s { optional int64 a; }"], 0),
            (&["optional group s { optional int32 a.b; }"], 0),
            (
                &[
                    "optional group s { optional group t { optional int32 a; } optional group T { optional int32 b; } }",
                ],
                0,
            ),
            (
                &[
                    "optional group s { optional int32 a; }",
                    "optional group s { optional group a { optional int32 b; } }",
                ],
                1,
            ),
        ] {
            assert_eq!(fields(files, "").len(), expected, "{files:?}");
        }
    }
}
