//! Columns of files as columns of a table: by name, in the order of their first file, with the narrowest type that holds all values.
//!
//! A file without a column has NULL there. Of types that no common one holds without loss, the column has none.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use parquet::{basic::Repetition, schema::types::Type};
use pystachio_plan::{ColumnDescription, DataType, Value};

use super::{Table, count, fields, keys::Key, struct_fields::StructFields};
use crate::{
    field_place::field_id,
    file_type::{FileType, NESTED_SQL_TYPE, file_type, record_type},
    files::FileFooter,
    statistics::ColumnSummary,
    value_range::DAY_US,
};

/// The columns of a table.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) parts: Vec<ColumnParts>,
    by_name: HashMap<String, usize>,
    by_letters: HashMap<String, usize>,
    by_id: HashMap<i32, usize>,
    /// Files that have field ids, of those that were added by these.
    with_ids: u64,
}

/// One column over the files seen so far.
pub(super) struct ColumnParts {
    name: String,
    /// Where all files say the same.
    field_id: Option<i32>,
    types: Vec<TypePart>,
    /// The last field, and the place of its type: most files have the same one.
    last: Option<(Arc<Type>, usize)>,
    required: bool,
    file_count: u64,
    row_count: u64,
    compressed_bytes: u64,
    uncompressed_bytes: u64,
    fields: StructFields,
    /// Whether a file has it encrypted with a key that the role lacks.
    is_locked: bool,
    /// The composite type of the files so far that are not NULL alone: `None` before the first, and then none if they have no common one.
    record: Option<Option<DataType>>,
}

/// The files that have a column as one type.
struct TypePart {
    file_type: FileType,
    summary: ColumnSummary,
    file_count: u64,
    first_path: PathBuf,
}

impl Columns {
    /// Whether files have a column of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_letters.contains_key(&name.to_lowercase())
    }

    /// Adds the columns of a file, but for those whose values its folders give.
    pub(super) fn add_file(&mut self, footer: &FileFooter, of_folders: &[String]) {
        let fields = fields(footer);
        for (place, field) in fields.iter().enumerate() {
            if of_folders.iter().any(|key| key.to_lowercase() == field.name().to_lowercase()) {
                continue;
            }
            let column = self.column_of(field.name(), fields, place);
            self.parts[column].add_file(footer, place);
        }
    }

    /// Adds those columns of a file that have a field id, whatever their names are.
    pub(super) fn add_file_by_id(&mut self, footer: &FileFooter) {
        self.with_ids += u64::from(footer.has_field_ids());
        for (place, field) in fields(footer).iter().enumerate() {
            let Some(id) = field_id(field) else { continue };
            let column = *self.by_id.entry(id).or_insert_with(|| {
                self.parts.push(ColumnParts::new(field.name()));
                self.parts.len() - 1
            });
            // The last file is the newest one, where names are numbers or dates.
            field.name().clone_into(&mut self.parts[column].name);
            self.parts[column].add_file(footer, place);
        }
    }

    /// The columns that were added by their ids.
    pub(super) fn descriptions_by_id(self, table: &Table) -> Vec<ColumnDescription> {
        // The others may have the column by its name.
        let is_known = self.with_ids == table.file_count;
        let mut described: Vec<_> =
            self.parts.into_iter().map(|column| column.description(table, &[]).0).collect();
        for column in described.iter_mut().filter(|_| !is_known) {
            column.data_type = None;
            (column.null_count, column.minimum, column.maximum) = (None, None, None);
        }
        described
    }

    /// The column of the table that a file's is: of the exact name, mostly at the same place, else without regard to case.
    fn column_of(&mut self, name: &str, fields: &[Arc<Type>], place: usize) -> usize {
        if self.parts.get(place).is_some_and(|column| column.name == name) {
            return place;
        }
        if let Some(column) = self.by_name.get(name) {
            return *column;
        }
        let letters = name.to_lowercase();
        if let Some(column) = self.by_letters.get(&letters)
            && !fields.iter().any(|field| field.name() == self.parts[*column].name)
        {
            return *column;
        }
        let column = self.parts.len();
        self.by_name.insert(name.to_owned(), column);
        self.by_letters.entry(letters).or_insert(column);
        self.parts.push(ColumnParts::new(name));
        column
    }
}

impl ColumnParts {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            field_id: None,
            types: Vec::new(),
            last: None,
            required: true,
            file_count: 0,
            row_count: 0,
            compressed_bytes: 0,
            uncompressed_bytes: 0,
            fields: StructFields::default(),
            is_locked: false,
            record: None,
        }
    }

    pub(super) fn add_file(&mut self, footer: &FileFooter, place: usize) {
        let metadata = footer.metadata();
        let field = &fields(footer)[place];
        self.required &= field.get_basic_info().repetition() == Repetition::REQUIRED;
        let id = field_id(field);
        self.field_id =
            if self.file_count == 0 { id } else { self.field_id.filter(|known| Some(*known) == id) };
        self.file_count += 1;
        self.is_locked |= footer.leaves(place).any(|leaf| footer.is_locked(leaf));
        let number = self.type_of(footer, field);
        let part = &mut self.types[number];
        part.file_count += 1;
        for group in metadata.row_groups() {
            self.row_count = self.row_count.saturating_add(count(group.num_rows()));
            for leaf in footer.leaves(place) {
                let chunk = group.column(leaf);
                // A footer may state any number of bytes.
                let add = |sum: u64, bytes: i64| sum.saturating_add(count(bytes));
                self.compressed_bytes = add(self.compressed_bytes, chunk.compressed_size());
                self.uncompressed_bytes = add(self.uncompressed_bytes, chunk.uncompressed_size());
                if part.file_type.storage.is_some() {
                    match footer.statistics_of(group, leaf, &part.file_type) {
                        Some(statistics) => part.summary.add(&statistics),
                        None => part.summary = ColumnSummary::unknown(),
                    }
                }
            }
        }
    }

    /// The place of a field's type among those of the column.
    fn type_of(&mut self, footer: &FileFooter, field: &Arc<Type>) -> usize {
        if let Some((last, place)) = &self.last
            && last == field
        {
            return *place;
        }
        let found = file_type(field);
        if !found.is_null {
            let own = record_type(field);
            self.record = Some(match self.record.take() {
                None => own,
                Some(known) => known.zip(own).and_then(|(known, own)| merged_record(&known, &own)),
            });
        }
        let known = self.types.iter().position(|part| part.file_type == found);
        let place = known.unwrap_or_else(|| {
            let summary = match found.storage {
                Some(_) => ColumnSummary::new(),
                None => ColumnSummary::unknown(),
            };
            let first_path = footer.path.clone();
            self.types.push(TypePart { file_type: found, summary, file_count: 0, first_path });
            self.types.len() - 1
        });
        self.fields.add_file(field);
        self.last = Some((field.clone(), place));
        place
    }

    /// The description but for fields, and these. `mixed`: keys of folders that other files have as columns.
    pub(super) fn description(self, table: &Table, mixed: &[Key]) -> (ColumnDescription, StructFields) {
        let is_mixed = mixed.iter().any(|key| key.name.to_lowercase() == self.name.to_lowercase());
        let common = self.common_type();
        let readable = common.clone().filter(|_| !self.is_locked);
        let (data_type, sql_type) =
            readable.map_or((None, String::new()), |(data_type, sql_type)| (Some(data_type), sql_type));
        let (minimum, maximum, null_count) = match &data_type {
            Some(data_type) if !is_mixed => self.bounds(data_type, table),
            _ => (None, None, None),
        };
        let description = ColumnDescription {
            file_type: self.words(common.is_some()),
            differences: self.differences(table),
            name: self.name,
            field_id: self.field_id,
            data_type,
            sql_type,
            is_time_of_utc: self.types.iter().any(|part| part.file_type.is_time_of_utc),
            is_rounded: self.types.iter().any(|part| part.file_type.is_rounded),
            required: self.required && self.file_count == table.file_count,
            null_count,
            minimum,
            maximum,
            distinct_count: None,
            distinct_estimate: None,
            compressed_bytes: self.compressed_bytes,
            uncompressed_bytes: self.uncompressed_bytes,
            fields: Vec::new(),
            is_locked: self.is_locked,
            record: self.record.flatten(),
        };
        (description, self.fields)
    }

    /// The types that files have, without those that hold NULL alone.
    fn typed(&self) -> impl Iterator<Item = &TypePart> {
        let is_alone = self.types.iter().all(|part| part.file_type.is_null);
        self.types.iter().filter(move |part| is_alone || !part.file_type.is_null)
    }

    fn common_type(&self) -> Option<(DataType, String)> {
        let mut types = self.typed().map(|part| &part.file_type);
        let first = types.next()?;
        let mut common = (first.data_type.clone()?, first.sql_type.clone());
        for other in types {
            let other = (other.data_type.clone()?, other.sql_type.clone());
            if other != common {
                common = widened_type(&common, &other)?;
            }
        }
        Some(common)
    }

    /// The least and the greatest value, and the number of NULLs.
    pub(super) fn bounds(
        &self,
        data_type: &DataType,
        table: &Table,
    ) -> (Option<Value>, Option<Value>, Option<u64>) {
        let missing = table.row_count.saturating_sub(self.row_count);
        let mut null_count = Some(missing);
        let mut summary = ColumnSummary::new();
        for part in self.typed() {
            let own = part.summary.null_count();
            null_count = null_count.zip(own).and_then(|(sum, count)| sum.checked_add(count));
            let from = part.file_type.data_type.as_ref();
            let convert = |value| from.and_then(|from| converted(&value, from, data_type));
            summary.add_bounds(&part.summary, convert);
        }
        if self.types.iter().any(|part| part.file_type.is_null) {
            null_count = None;
        }
        (summary.minimum(), summary.maximum(), null_count)
    }

    fn words(&self, has_common: bool) -> String {
        let mut types = self.typed();
        match (types.next(), types.next()) {
            (Some(first), Some(second)) if !has_common => {
                let [one, other] = [first, second]
                    .map(|part| format!("{} in \"{}\"", part.file_type.words, part.first_path.display()));
                format!("{one} and {other}")
            }
            (Some(first), _) => first.file_type.words.clone(),
            _ => String::new(),
        }
    }

    /// How the files differ in the column.
    fn differences(&self, table: &Table) -> Option<String> {
        let mut parts = Vec::new();
        if self.types.len() > 1 {
            parts.extend(self.types.iter().map(|part| {
                let (words, path) = (&part.file_type.words, part.first_path.display());
                format!("{words} in {} (\"{path}\")", files(part.file_count))
            }));
        }
        // A file may have two columns of one name.
        let missing = table.file_count.saturating_sub(self.file_count);
        if missing > 0 {
            parts.push(format!("missing in {}, where it is NULL", files(missing)));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// The type that holds the values of both, with its name in SQL. Nested values are JSON, and no text.
fn widened_type(
    (one, one_sql): &(DataType, String),
    (other, other_sql): &(DataType, String),
) -> Option<(DataType, String)> {
    match [one_sql, other_sql].map(String::as_str) {
        ["json", NESTED_SQL_TYPE] | [NESTED_SQL_TYPE, "json"] => {
            Some((one.clone(), NESTED_SQL_TYPE.to_owned()))
        }
        [NESTED_SQL_TYPE, _] | [_, NESTED_SQL_TYPE] => None,
        _ => one.widened(other).map(|wider| (wider.clone(), wider.to_string())),
    }
}

/// The composite type that holds the values of both: with the fields of either, of types that hold those of both.
fn merged_record(one: &DataType, other: &DataType) -> Option<DataType> {
    match (one, other) {
        (DataType::List(one), DataType::List(other)) => {
            Some(DataType::List(Box::new(merged_record(one, other)?)))
        }
        (DataType::Record(one), DataType::Record(other)) => {
            let mut fields = one.clone();
            for field in other {
                match fields.iter_mut().find(|known| known.name == field.name) {
                    Some(known) if known.is_json == field.is_json => {
                        known.data_type = merged_record(&known.data_type, &field.data_type)?;
                    }
                    Some(_) => return None,
                    None => fields.push(field.clone()),
                }
            }
            Some(DataType::Record(fields))
        }
        (one, other) => one.widened(other),
    }
}

/// A value of one type as one of a type that [`DataType::widened`] gives for it.
fn converted(value: &Value, from: &DataType, to: &DataType) -> Option<Value> {
    match (value, to) {
        (Value::Int(number), DataType::Decimal { scale, .. }) => {
            i128::from(*number).checked_mul(10i128.checked_pow((*scale).into())?).map(Value::Decimal)
        }
        (Value::Decimal(number), DataType::Decimal { scale, .. }) => {
            let (_, own) = from.digits()?;
            number.checked_mul(10i128.checked_pow(scale.checked_sub(own)?.into())?).map(Value::Decimal)
        }
        (Value::Int(days), DataType::Timestamp) if *from == DataType::Date => Some(Value::Int(match *days {
            days if days == i64::from(i32::MIN) => i64::MIN,
            days if days == i64::from(i32::MAX) => i64::MAX,
            days => days.checked_mul(DAY_US)?,
        })),
        (value, _) => Some(value.clone()),
    }
}
