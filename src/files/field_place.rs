//! Fields of a file that scans read as columns: top-level columns, and fields of structs, named `struct.field`.
//!
//! A name is that of a top-level column first, exactly and then without regard to case. Else it begins with the name of a
//! struct, a point follows, and the rest is looked up among the struct's fields in the same way. Names may have points
//! of their own.
//!
//! Deliberately absent: fields within lists and maps, of which a row has any number.

use std::ops::Range;

use arrow::datatypes::{DataType, FieldRef};
use parquet::schema::types::{Type, TypePtr};
use pystachio_plan::ScanColumn;
use pystachio_tables::StoredName;

use crate::{file_type::is_struct, files::FileFooter};

/// Where a field is among those of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPlace {
    /// The place among the top-level columns of the column that it is, or is within.
    pub column: usize,
    /// How many structs it is within.
    depth: usize,
    /// Its first leaf, if it is within a struct.
    leaf: usize,
}

impl From<usize> for FieldPlace {
    fn from(column: usize) -> Self {
        Self { column, depth: 0, leaf: 0 }
    }
}

impl FieldPlace {
    /// Whether the field is within another one, so many structs deep.
    pub(crate) fn is_below(&self, other: Self, depth: usize) -> bool {
        self.depth == other.depth + depth
    }
}

/// A field on the way to another, among its siblings.
struct Step<'f> {
    siblings: &'f [TypePtr],
    /// The first leaf of the siblings.
    first_leaf: usize,
    chosen: usize,
}

impl FileFooter {
    /// The field of a name.
    pub fn find_field(&self, name: &str) -> Option<FieldPlace> {
        let fields = self.metadata().file_metadata().schema_descr().root_schema().get_fields();
        if let Some(column) = position(fields, name) {
            return Some(column.into());
        }
        beginnings(fields, name).find_map(|(column, rest)| {
            let place = FieldPlace { column, depth: 1, leaf: self.leaves(column).start };
            find_within(&fields[column], rest, place)
        })
    }

    /// The field that a table's log has names for: one for each struct that it is within, and its own.
    pub(crate) fn find_stored(&self, path: &[&StoredName]) -> Option<FieldPlace> {
        let (first, within) = path.split_first()?;
        let mut fields = self.metadata().file_metadata().schema_descr().root_schema().get_fields();
        let has_ids = self.has_field_ids();
        let column = stored_position(fields, first, has_ids)?;
        let mut place = FieldPlace::from(column);
        place.leaf = self.leaves(column).start;
        let mut field = &fields[column];
        for name in within {
            if !is_struct(field) {
                return None;
            }
            fields = field.get_fields();
            let chosen = stored_position(fields, name, has_ids)?;
            let before: usize = fields[..chosen].iter().map(|field| leaf_count(field)).sum();
            place = FieldPlace { depth: place.depth + 1, leaf: place.leaf + before, ..place };
            field = &fields[chosen];
        }
        match within {
            [] => Some(column.into()),
            _ => (leaf_count(field) > 0).then_some(place),
        }
    }

    /// Whether columns have field ids, by which scans may find them.
    pub(crate) fn has_field_ids(&self) -> bool {
        let fields = self.metadata().file_metadata().schema_descr().root_schema().get_fields();
        fields.iter().any(|field| field_id(field).is_some())
    }

    /// The column, or field of a struct, with an id.
    pub(crate) fn field_with_id(&self, id: i32) -> Option<FieldPlace> {
        let fields = self.metadata().file_metadata().schema_descr().root_schema().get_fields();
        if let Some(column) = fields.iter().position(|field| field_id(field) == Some(id)) {
            return Some(column.into());
        }
        fields.iter().enumerate().find_map(|(column, field)| {
            let place = FieldPlace { column, depth: 1, leaf: self.leaves(column).start };
            find_id_within(field, id, place)
        })
    }

    /// The field that a scan reads as a column: by its id, where one is declared and the file has ids; else by its name.
    pub fn field_of(&self, column: &ScanColumn) -> Option<FieldPlace> {
        match column.field_id {
            Some(id) if self.has_field_ids() => self.field_with_id(id),
            _ => self.find_field(&column.name),
        }
    }

    /// The field that names lead to from another one through structs. What is no struct ends the way: its values are NULL, or it is a list, of
    /// whose elements the field is.
    pub(crate) fn field_below(&self, mut place: FieldPlace, names: &[String]) -> Option<FieldPlace> {
        for name in names {
            let group = self.parquet_field(place)?;
            if !is_struct(group) {
                break;
            }
            let fields = group.get_fields();
            let chosen = position(fields, name)?;
            let before: usize = fields[..chosen].iter().map(|field| leaf_count(field)).sum();
            let leaf = self.leaves_of(place).start + before;
            place = FieldPlace { depth: place.depth + 1, leaf, ..place };
            if leaf_count(&fields[chosen]) == 0 {
                return None;
            }
        }
        Some(place)
    }

    /// A field's name, with those of the structs that it is within before it.
    pub fn field_name(&self, place: FieldPlace) -> String {
        let names =
            self.way_to(place).into_iter().filter_map(|step| Some(step.siblings.get(step.chosen)?.name()));
        names.collect::<Vec<_>>().join(".")
    }

    /// The leaves of a field.
    pub fn leaves_of(&self, place: FieldPlace) -> Range<usize> {
        match place.depth {
            0 => self.leaves(place.column),
            _ => place.leaf..place.leaf + self.parquet_field(place).map_or(0, |field| leaf_count(field)),
        }
    }

    /// The leaf of a field that has single values: neither a struct nor repeated.
    pub fn value_leaf(&self, place: FieldPlace) -> Option<usize> {
        let leaf = self.leaves_of(place).next()?;
        let schema = self.metadata().file_metadata().schema_descr();
        let is_single = schema.columns().get(leaf)?.max_rep_level() == 0;
        let is_primitive = match place.depth {
            0 => schema.root_schema().get_fields().get(place.column)?.is_primitive(),
            _ => self.parquet_field(place)?.is_primitive(),
        };
        (is_single && is_primitive).then_some(leaf)
    }

    /// A field in the file's schema.
    pub(crate) fn parquet_field(&self, place: FieldPlace) -> Option<&TypePtr> {
        self.way_to(place).last().and_then(|step| step.siblings.get(step.chosen))
    }

    /// A field with the Arrow type of its annotations, nullable where it or a struct that it is within is.
    pub fn field(&self, place: FieldPlace) -> FieldRef {
        let mut field = self.schema().fields()[place.column].clone();
        let mut is_nullable = field.is_nullable();
        for step in self.way_to(place).iter().skip(1) {
            let DataType::Struct(fields) = field.data_type() else { break };
            // The reader leaves groups without a leaf out.
            let before = step.siblings[..step.chosen].iter().filter(|sibling| leaf_count(sibling) > 0);
            let Some(next) = fields.get(before.count()).cloned() else { break };
            is_nullable |= next.is_nullable();
            field = next;
        }
        field.as_ref().clone().with_nullable(is_nullable).into()
    }

    /// The way from a column to a field within it, in arrays of which only some leaves were read: at each struct, the place of the
    /// next field among those with a leaf of `leaves`, which are ascending.
    pub fn way_within(&self, place: FieldPlace, leaves: &[usize]) -> Vec<usize> {
        let way = self.way_to(place);
        let has_some = |range: Range<usize>| {
            let next = leaves.get(leaves.partition_point(|leaf| *leaf < range.start));
            next.is_some_and(|leaf| range.contains(leaf))
        };
        let within = way.iter().skip(1).map(|step| {
            let mut start = step.first_leaf;
            let mut read_count = 0;
            for sibling in &step.siblings[..step.chosen] {
                let end = start + leaf_count(sibling);
                read_count += usize::from(has_some(start..end));
                start = end;
            }
            read_count
        });
        within.collect()
    }

    fn way_to(&self, place: FieldPlace) -> Vec<Step<'_>> {
        let mut siblings = self.metadata().file_metadata().schema_descr().root_schema().get_fields();
        let mut way = vec![Step { siblings, first_leaf: 0, chosen: place.column }];
        let mut leaf = self.leaves(place.column).start;
        for _ in 0..place.depth {
            let Some(field) = way.last().and_then(|step| step.siblings.get(step.chosen)) else { break };
            siblings = field.get_fields();
            let first_leaf = leaf;
            let chosen = siblings.iter().position(|sibling| {
                let end = leaf + leaf_count(sibling);
                let is_chosen = place.leaf < end;
                leaf = if is_chosen { leaf } else { end };
                is_chosen
            });
            let Some(chosen) = chosen else { break };
            way.push(Step { siblings, first_leaf, chosen });
        }
        way
    }
}

/// The id of a field, where the file gives one.
pub(crate) fn field_id(field: &Type) -> Option<i32> {
    let info = field.get_basic_info();
    info.has_id().then(|| info.id())
}

/// A field within a struct by its id. `place`: of the struct's first field.
fn find_id_within(group: &TypePtr, id: i32, mut place: FieldPlace) -> Option<FieldPlace> {
    if !is_struct(group) {
        return None;
    }
    for field in group.get_fields() {
        if field_id(field) == Some(id) {
            return (leaf_count(field) > 0).then_some(place);
        }
        let within = FieldPlace { depth: place.depth + 1, ..place };
        if let Some(found) = find_id_within(field, id, within) {
            return Some(found);
        }
        place.leaf += leaf_count(field);
    }
    None
}

/// The place of a field by its name: exactly, and then without regard to case.
pub(crate) fn position(fields: &[TypePtr], name: &str) -> Option<usize> {
    fields.iter().position(|field| field.name() == name).or_else(|| {
        let name = name.to_lowercase();
        fields.iter().position(|field| field.name().to_lowercase() == name)
    })
}

/// The place of a field by the id that files give it, or by its name. `has_ids`: the file gives ids.
pub(crate) fn stored_position(fields: &[TypePtr], stored: &StoredName, has_ids: bool) -> Option<usize> {
    match stored.id {
        None => position(fields, &stored.name),
        Some(id) if has_ids => fields.iter().position(|field| field_id(field) == Some(id)),
        // Names that a table lists are those of its files, letter for letter.
        Some(_) => stored
            .names_without_ids
            .iter()
            .find_map(|name| fields.iter().position(|field| field.name() == name.as_str())),
    }
}

/// The structs by whose names and a point a name begins, and the rest of it.
fn beginnings<'n>(fields: &[TypePtr], name: &'n str) -> impl Iterator<Item = (usize, &'n str)> {
    name.match_indices('.').filter_map(|(at, _)| {
        let place = position(fields, &name[..at])?;
        is_struct(&fields[place]).then(|| (place, &name[at + 1..]))
    })
}

/// The field of a name within a struct whose first leaf is that of `place`. One without a leaf is none.
fn find_within(group: &Type, name: &str, place: FieldPlace) -> Option<FieldPlace> {
    let fields = group.get_fields();
    let at = |field: usize| {
        let before: usize = fields[..field].iter().map(|field| leaf_count(field)).sum();
        FieldPlace { leaf: place.leaf + before, ..place }
    };
    if let Some(field) = position(fields, name) {
        return (leaf_count(&fields[field]) > 0).then(|| at(field));
    }
    beginnings(fields, name).find_map(|(field, rest)| {
        find_within(&fields[field], rest, FieldPlace { depth: place.depth + 1, ..at(field) })
    })
}

fn leaf_count(field: &Type) -> usize {
    if field.is_primitive() { 1 } else { field.get_fields().iter().map(|field| leaf_count(field)).sum() }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Arc};

    use parquet::{file::writer::SerializedFileWriter, schema::parser::parse_message_type};
    use pystachio_plan::{ColumnContent, ColumnId, DataType as PlanType, FileSet};

    use super::*;
    use crate::FileCatalog;

    const SCHEMA: &str = "message schema {
        optional int32 a;
        optional group s { optional group empty {} required int32 a; optional int64 B;
            optional group s { optional int32 x; required double y.z; }
            optional group l (LIST) { repeated group list { optional int32 element; } } }
        optional group s.t { optional int32 u; }
        optional group m (MAP) { repeated group key_value { required binary key (UTF8); optional int32 value; } }
    }";

    fn footer() -> Arc<FileFooter> {
        footer_of(SCHEMA)
    }

    fn footer_of(schema: &str) -> Arc<FileFooter> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.parquet");
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
        writer.close().unwrap();
        let files = FileSet::parquet(vec![path.display().to_string()]);
        FileCatalog::default().open_all(&files).unwrap().remove(0).footer
    }

    #[test]
    fn fields_are_found_by_their_ids_and_in_files_without_ids_by_their_names() {
        let schema =
            "message schema { optional int32 a = 1; required group s = 2 { optional group empty = 7 {}
            optional int32 a = 3; optional group t = 4 { optional int32 b = 5; } } optional int32 c; }";
        let footer = footer_of(schema);
        let column = |name: &str, field_id| ScanColumn {
            id: ColumnId(1),
            name: name.to_owned(),
            field_id,
            within: Vec::new(),
            data_type: PlanType::Int32,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: ColumnContent::Column,
            common: Vec::new(),
        };
        let found = |footer: &FileFooter, name, id| {
            footer.field_of(&column(name, id)).map(|place| footer.field_name(place))
        };
        for (id, expected) in
            [(1, Some("a")), (2, Some("s")), (3, Some("s.a")), (5, Some("s.t.b")), (6, None), (7, None)]
        {
            assert_eq!(found(&footer, "c", Some(id)).as_deref(), expected, "{id}");
        }
        let leaves = |id| footer.leaves_of(footer.field_of(&column("c", Some(id))).unwrap());
        assert_eq!([leaves(1), leaves(2), leaves(3), leaves(5)], [0..1, 1..3, 1..2, 2..3]);
        assert_eq!(found(&footer, "c", None).as_deref(), Some("c"));
        assert_eq!(found(&self::footer(), "s.B", Some(1)).as_deref(), Some("s.B"));
    }

    #[test]
    fn fields_are_found_by_the_names_of_their_structs() {
        let footer = footer();
        let found = |name: &str| {
            let place = footer.find_field(name)?;
            let field = footer.field(place);
            Some((
                footer.field_name(place),
                field.name().clone(),
                field.is_nullable(),
                footer.leaves_of(place),
            ))
        };
        let some = |path: &str, name: &str, is_nullable, leaves| {
            Some((path.to_owned(), name.to_owned(), is_nullable, leaves))
        };
        assert_eq!(found("a"), some("a", "a", true, 0..1));
        assert_eq!(found("s"), some("s", "s", true, 1..6));
        assert_eq!(found("s.a"), some("s.a", "a", true, 1..2));
        assert_eq!(found("S.b"), some("s.B", "B", true, 2..3));
        assert_eq!(found("s.s"), some("s.s", "s", true, 3..5));
        assert_eq!(found("s.s.x"), some("s.s.x", "x", true, 3..4));
        assert_eq!(found("s.s.y.z"), some("s.s.y.z", "y.z", true, 4..5));
        assert_eq!(found("s.l"), some("s.l", "l", true, 5..6));
        assert_eq!(found("s.t"), some("s.t", "s.t", true, 6..7));
        assert_eq!(found("s.t.u"), some("s.t.u", "u", true, 6..7));
        for none in ["", ".", "s.", ".a", "s.none", "s.empty", "s.l.list", "s.l.element", "m.key", "a.a"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn fields_below_others_are_found_by_their_names_alone() {
        let footer = footer();
        let below = |name: &str, within: &[&str]| {
            let within: Vec<String> = within.iter().map(|name| (*name).to_owned()).collect();
            let place = footer.field_below(footer.find_field(name)?, &within)?;
            Some((footer.field_name(place), footer.leaves_of(place)))
        };
        let some = |name: &str, leaves| Some((name.to_owned(), leaves));
        assert_eq!(below("s", &[]), some("s", 1..6));
        assert_eq!(below("s", &["b"]), some("s.B", 2..3));
        assert_eq!(below("s", &["s", "x"]), some("s.s.x", 3..4));
        assert_eq!(below("s", &["S", "y.z"]), some("s.s.y.z", 4..5));
        assert_eq!(below("s.s", &["x"]), some("s.s.x", 3..4));
        assert_eq!(below("s", &["l", "any"]), some("s.l", 5..6));
        assert_eq!(below("m", &["value"]), some("m", 7..9));
        assert_eq!(below("a", &["value"]), some("a", 0..1));
        assert_eq!((below("s", &["none"]), below("s", &["empty"]), below("s", &["s.x"])), (None, None, None));
    }

    #[test]
    fn only_single_values_have_a_leaf() {
        let footer = footer();
        let leaf = |name: &str| footer.value_leaf(footer.find_field(name).unwrap());
        assert_eq!(["a", "s.a", "s.s.y.z"].map(leaf), [Some(0), Some(1), Some(4)]);
        assert_eq!(["s", "s.s", "s.l", "m"].map(leaf), [None; 4]);
    }

    #[test]
    fn the_way_within_counts_what_was_read() {
        let footer = footer();
        let way = |name: &str, leaves: &[usize]| footer.way_within(footer.find_field(name).unwrap(), leaves);
        assert_eq!(way("a", &[0]), [0; 0]);
        assert_eq!(way("s.s.y.z", &[4]), [0, 0]);
        assert_eq!(way("s.s.y.z", &[0, 2, 3, 4]), [1, 1]);
        assert_eq!(way("s.s", &[1, 2, 3, 4]), [2]);
        assert_eq!(way("s.t.u", &[1, 6]), [0]);
    }
}
