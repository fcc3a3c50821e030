//! Base relations: foreign tables.

use std::{collections::HashMap, rc::Rc};

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Scope, SourceType};
use pystachio_plan::{
    ColumnContent, ColumnDescription, DataType, Error, ErrorKind, Expression, Operator, RecordField,
    Relation, ScanColumn, ScanExtent, TableDescription,
};

use super::{
    cost,
    descriptions::{describe, describe_expanded, describe_now},
    planning::with_planning,
    relation_info::{Place, RelationInfo, place_placeholders},
    security::leveled_conditions,
    sorted::SortedScan,
};
use crate::{
    error::OrRaise,
    options,
    options::TableOptions,
    pg::{
        compat,
        mirror::{source_type, type_name},
        tree::{
            Clause, CustomPath, ForeignPath, List, Node, Path, Rel, Root, Table, column_name, column_type,
            table_name,
        },
    },
    types,
};

/// Estimates a foreign table and makes its plan.
pub fn estimate_table<'p>(root: Root<'p>, relation: Rel<'p>, table_oid: pg_sys::Oid) {
    with_planning(|planning| planning.meet_table());
    // Permissions are checked through the range table; a user here would keep relations of views
    // with different owners apart.
    let role = relation.user_oid();
    relation.set_user_oid(pg_sys::InvalidOid);
    let mut table = options::table_options(table_oid);
    // The user mapping of the role whose permissions count. A plan may be kept until another role runs it, or has got keys.
    table.files.role = role.into();
    with_planning(|planning| planning.note_role(table_oid, role));
    describe_expanded(root, &table);
    let mut description = describe(&table).or_raise();
    if !fits(table_oid, &description) {
        // What the session knew may be out of date.
        description = describe_now(&table).or_raise();
    }
    relation.set_tuples(description.row_count as f64);
    relation.estimate_size(root);
    let info = build(root, relation, table_oid, &table, &description).or_raise();
    info.attach(relation);
}

/// Offers the paths of a foreign table.
pub fn offer_scans<'p>(root: Root<'p>, relation: Rel<'p>) {
    let Some(info) = RelationInfo::of(relation) else { return };
    let costs = info.path_costs(root, relation, cost::path_costs(info.cost, info.rows));
    relation.add_path(ForeignPath::of_scan(root, relation, costs).path());
    for sorted in SortedScan::wanted_of(root, relation, info) {
        let (rows, costs) = sorted.costs(root, relation, info, relation.rows());
        relation.add_path(sorted.marked(ForeignPath::of_scan(root, relation, costs), rows));
    }
}

/// The rows that an engine returns of a table of whose conditions PostgreSQL checks some. The others are estimated together, for
/// extended statistics may say that they go together.
fn returned_rows<'p>(root: Root<'p>, relation: Rel<'p>, local: &[usize]) -> f64 {
    if local.is_empty() {
        return relation.rows();
    }
    let own = relation.clauses().iter().enumerate();
    let remote = List::of(own.filter(|(place, _)| !local.contains(place)).map(|(_, clause)| clause));
    let passing = root.selectivity(remote, relation.index(), pg_sys::JoinType::JOIN_INNER, None);
    cost::clamp_rows((relation.tuples() * passing).max(relation.rows()))
}

/// Whether the files of a table are known for what its declaration leaves to them: the digits of numbers in arrays and composite
/// values.
fn fits(table_oid: pg_sys::Oid, description: &TableDescription) -> bool {
    Table::open(table_oid).columns().into_iter().filter(|attribute| !attribute.attisdropped).all(
        |attribute| {
            let declared = types::data_type(attribute.atttypid, attribute.atttypmod);
            let Some(declared) =
                declared.filter(|declared| declared.is_nested() && types::rests_on_files(declared))
            else {
                return true;
            };
            let Some(column) = description.column(&options::file_column(table_oid, attribute.attnum)) else {
                return false;
            };
            match declared.fields() {
                Some(_) => column.record.is_some(),
                None => matches!(&column.data_type, Some(DataType::List(item)) if item.is_decimal()),
            }
        },
    )
}

fn build<'p>(
    root: Root<'p>,
    relation: Rel<'p>,
    table_oid: pg_sys::Oid,
    table: &TableOptions,
    description: &TableDescription,
) -> Result<RelationInfo<'p>, Error> {
    let name = table_name(table_oid);
    let needed = NeededAttributes::of(relation, relation.clauses().iter());
    let mut columns = read_columns(root, table_oid, &needed, description);
    if columns.scanned.is_empty() {
        columns = read_columns(root, table_oid, &NeededAttributes::all(), description);
    }
    let Columns { scanned, by_number, fields, item_fields } = columns;
    if scanned.is_empty() && !Table::open(table_oid).columns().is_empty() {
        let message = format!("foreign table \"{name}\" has no column of a type that can be read");
        return Err(Error::new(ErrorKind::SchemaMismatch, message));
    }
    let column_count = relation.target().expressions().len().max(1);
    let scope =
        Rc::new(Scope::Base { relation_index: relation.index(), columns: by_number, fields, item_fields });
    let conditions = leveled_conditions(root, relation, &scope, &name);
    let scan = Operator::Scan {
        table: name.clone(),
        // All that a statement reads of a table is of one version.
        files: table.files.at_version(description.version.as_ref()),
        columns: scanned,
        filters: conditions.scan,
        extent: ScanExtent::Whole,
    };
    let rows = returned_rows(root, relation, &conditions.local);
    let scan = conditions.above.into_iter().fold(Relation::new(scan, rows), |input, predicate| {
        Relation::new(Operator::Filter { input, predicate }, rows)
    });
    let place = Place { root, relation, inputs: &[] };
    let (scan, scope) = match place_placeholders(&place, scan.clone(), scope.clone()) {
        Ok(placed) => placed,
        Err(refusal) => {
            with_planning(|planning| planning.refuse(format!("column of {name}: {refusal}")));
            (scan, scope)
        }
    };
    let cost = relation.tuples() * cost::SCAN_ROW_COST * (1.0 + 0.25 * column_count as f64);
    let mut info = RelationInfo::of_table(table.server_oid, (scan, scope), rows, cost);
    info.local_clauses = conditions.local;
    Ok(info)
}

struct Columns {
    scanned: Vec<ScanColumn>,
    /// By attribute number.
    by_number: HashMap<i16, Lowered>,
    /// Fields of structs, by attribute number and the names on the way to them.
    fields: HashMap<(i16, Vec<String>), Lowered>,
    /// Fields of the elements of arrays, as the arrays of them.
    item_fields: HashMap<(i16, Vec<String>), Lowered>,
}

/// The attributes of a table that a query reads. Tables have many columns, and most queries few of them.
pub struct NeededAttributes {
    is_whole_row: bool,
    numbers: Vec<i16>,
}

impl NeededAttributes {
    /// Those in a relation's target and in these clauses.
    pub fn of<'p>(relation: Rel<'p>, clauses: impl Iterator<Item = Clause<'p>>) -> Self {
        let mut needed = Self { is_whole_row: false, numbers: Vec::new() };
        let mut note = |node: Node<'p>| {
            if let Some(var) = node.downcast::<pg_sys::Var>()
                && var.relation() as u32 == relation.index()
            {
                needed.is_whole_row = needed.is_whole_row || var.attribute() == 0;
                needed.numbers.push(var.attribute());
            }
            true
        };
        let conditions = clauses.map(|clause| clause.expression());
        for node in relation.target().expressions().iter().chain(conditions) {
            node.walk(&mut note);
        }
        needed
    }

    /// Every one.
    fn all() -> Self {
        Self { is_whole_row: true, numbers: Vec::new() }
    }

    /// Whether an attribute is read.
    pub fn contains(&self, number: i16) -> bool {
        self.is_whole_row || self.numbers.contains(&number)
    }
}

/// The table's columns that are needed, as the scan reads them and as expressions find them. Columns of types that engines
/// don't have are left out.
fn read_columns(
    root: Root<'_>,
    table_oid: pg_sys::Oid,
    needed: &NeededAttributes,
    description: &TableDescription,
) -> Columns {
    let table = Table::open(table_oid);
    let attributes = table.columns();
    let mut columns = Columns {
        scanned: Vec::new(),
        by_number: HashMap::new(),
        fields: HashMap::new(),
        item_fields: HashMap::new(),
    };
    for attribute in &attributes {
        if attribute.attisdropped || compat::is_virtual(attribute) || !needed.contains(attribute.attnum) {
            continue;
        }
        let described = description.column(&options::file_column(table_oid, attribute.attnum));
        let id = with_planning(|planning| planning.new_column());
        let Some(column) = types::scan_column(table_oid, attribute, id, described) else { continue };
        with_planning(|planning| planning.scan_column(id, table_oid, attribute.attnum));
        if let Some(described) = described.filter(|_| column.content == ColumnContent::Json) {
            add_fields(&mut columns, &column, attribute.attnum, described);
        }
        if column.data_type.fields().is_some() {
            // The plan is made anew when these change.
            for relation_oid in types::composite_relations(attribute.atttypid) {
                root.depend_on_relation(relation_oid);
            }
        }
        if let Some(fields) = column.data_type.fields() {
            let mut found = FoundFields {
                columns: &mut columns,
                column: &column,
                described,
                has_log: description.version.is_some(),
                path: Vec::new(),
            };
            found.add(attribute.attnum, types::item_type(attribute.atttypid), fields);
        }
        let described = described.filter(|_| column.content == ColumnContent::Column);
        let sql_type = (attribute.atttypid, attribute.atttypmod);
        columns.by_number.insert(attribute.attnum, lowered_column(&column, sql_type, described));
        columns.scanned.push(column);
    }
    columns
}

/// The fields of a struct, which the table has as JSON, as columns of the scan. Those that nothing reads are left out of the plan later.
fn add_fields(columns: &mut Columns, column: &ScanColumn, number: i16, described: &ColumnDescription) {
    for field in &described.fields {
        let in_file = field_column(field.name_in(&column.name), field.data_type.clone());
        let lowered = Lowered::of_type(Expression::column(in_file.id, in_file.data_type.clone()));
        columns.fields.insert((number, field.path.clone()), lowered);
        columns.scanned.push(in_file);
    }
}

/// A column of a scan with this name in its files, of which no more is known.
pub fn field_column(name: String, data_type: DataType) -> ScanColumn {
    ScanColumn {
        id: with_planning(|planning| planning.new_column()),
        name,
        field_id: None,
        within: Vec::new(),
        data_type,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        common: Vec::new(),
    }
}

/// Adds the fields of a column of a composite type, or of an array of one, that are single values, as columns of the scan.
///
/// A field that all files have alike is a column by its name, `struct.field`. Others are found within the column, file by file. Of a
/// table with a log, fields of structs are those that the log says.
struct FoundFields<'a> {
    columns: &'a mut Columns,
    column: &'a ScanColumn,
    described: Option<&'a ColumnDescription>,
    has_log: bool,
    /// The names on the way to the fields.
    path: Vec<String>,
}

impl FoundFields<'_> {
    fn add(&mut self, number: i16, type_oid: pg_sys::Oid, fields: &[RecordField]) {
        let declared = types::composite_fields(type_oid).unwrap_or_default();
        for (field, declared) in fields.iter().zip(declared) {
            self.path.push(field.name.clone());
            match &field.data_type {
                DataType::Record(fields) => {
                    let (type_oid, _) = types::base_type(declared.type_oid, declared.type_modifier);
                    self.add(number, type_oid, fields);
                }
                DataType::List(_) => {}
                _ => self.add_value(number, field, (declared.type_oid, declared.type_modifier)),
            }
            self.path.pop();
        }
    }

    fn add_value(&mut self, number: i16, field: &RecordField, sql_type: (pg_sys::Oid, i32)) {
        if matches!(self.column.data_type, DataType::List(_)) {
            return self.add_item_value(number, field, sql_type);
        }
        let letters = |path: &[String]| path.iter().map(|name| name.to_lowercase()).collect::<Vec<_>>();
        let own = letters(&self.path);
        let of_name = self.described.filter(|_| self.column.field_id.is_none());
        let of_name =
            of_name.and_then(|column| column.fields.iter().find(|described| letters(&described.path) == own));
        let column = match of_name {
            Some(described) => field_column(described.name_in(&self.column.name), field.data_type.clone()),
            None if self.has_log => return,
            None => self.within_column(field.data_type.clone()),
        };
        let in_file = ScanColumn {
            length_max: field.length_max,
            trim_blanks: field.trim_blanks,
            content: if field.is_json { ColumnContent::Json } else { ColumnContent::Column },
            ..column
        };
        let lowered = lowered_column(&in_file, sql_type, None);
        self.columns.fields.insert((number, self.path.clone()), lowered);
        self.columns.scanned.push(in_file);
    }

    /// Adds the arrays of a field of elements. Text that PostgreSQL reads as another type, and `char(n)`, are elements of no array of ours.
    fn add_item_value(&mut self, number: i16, field: &RecordField, sql_type: (pg_sys::Oid, i32)) {
        let (base_oid, _) = types::base_type(sql_type.0, sql_type.1);
        let is_as_read = !field.is_json && !field.trim_blanks && base_oid != pg_sys::TIMETZOID;
        if !is_as_read || matches!(source_type(base_oid), SourceType::FromText(_) | SourceType::Character) {
            return;
        }
        let lists = ScanColumn {
            length_max: field.length_max,
            ..self.within_column(DataType::List(Box::new(field.data_type.clone())))
        };
        let item = ScanColumn { data_type: field.data_type.clone(), ..lists.clone() };
        let lowered = Lowered {
            expression: Expression::column(lists.id, lists.data_type.clone()),
            ..lowered_column(&item, sql_type, None)
        };
        self.columns.item_fields.insert((number, self.path.clone()), lowered);
        self.columns.scanned.push(lists);
    }

    /// A column of the scan that is within the files' one.
    fn within_column(&self, data_type: DataType) -> ScanColumn {
        ScanColumn {
            field_id: self.column.field_id,
            within: self.path.clone(),
            ..field_column(self.column.name.clone(), data_type)
        }
    }
}

/// A column of a scan as expressions find it, with what is known of its values.
pub fn lowered_column(
    column: &ScanColumn,
    (type_oid, type_modifier): (pg_sys::Oid, i32),
    described: Option<&ColumnDescription>,
) -> Lowered {
    let of_type = Lowered::of_type(Expression::column(column.id, column.data_type.clone()));
    let is_number = column.data_type.is_integer() || column.data_type.is_decimal();
    let magnitude = described
        .filter(|described| is_number || described.data_type.as_ref() == Some(&column.data_type))
        .and_then(ColumnDescription::magnitude)
        .unwrap_or(of_type.magnitude);
    let (_, base_modifier) = types::base_type(type_oid, type_modifier);
    Lowered {
        magnitude,
        not_null: column.not_null,
        modifier: if column.trim_blanks { base_modifier } else { -1 },
        ..of_type
    }
}

/// The error for a column that a query needs and that no engine can read.
pub fn unreadable_column(table_oid: pg_sys::Oid, attribute_number: i16) -> Error {
    let table = table_name(table_oid);
    let column = column_name(table_oid, attribute_number);
    let type_oid = column_type(table_oid, attribute_number);
    let message = format!(
        "column \"{column}\" of foreign table \"{table}\" has type {}, which can't be read from Parquet",
        type_name(type_oid)
    );
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("Declare the column with the type that IMPORT FOREIGN SCHEMA chooses.")
}

/// Offers our paths of a join or a stage in the place of those that were offered of it before: they would be planned by this info, and
/// have what PostgreSQL sends for another.
///
/// Where PostgreSQL has no part in it, they are also in the place of PostgreSQL's own. These read what an engine joins or groups by
/// itself. PostgreSQL's estimate of a join's rows may be wrong by orders of magnitude, and with it the comparison of the two; a query
/// that runs whole in the engine moves its result only. Paths that other extensions made stay, and the cheaper one is taken.
pub fn offer_paths<'p>(
    relation: Rel<'p>,
    info: &RelationInfo<'p>,
    paths: impl IntoIterator<Item = Path<'p>>,
) {
    let stays = |path: &Path<'p>| match info.is_whole() {
        true => is_of_others(*path),
        false => !path.is::<pg_sys::ForeignPath>(),
    };
    let staying = |list: List<'p, pg_sys::Path>| List::of(list.iter().filter(stays));
    relation.set_paths(staying(relation.paths()));
    relation.set_partial_paths(staying(relation.partial_paths()));
    for path in paths {
        relation.add_path(path);
    }
}

/// Whether another extension made the path.
fn is_of_others(path: Path<'_>) -> bool {
    path.downcast::<pg_sys::CustomPath>().is_some_and(|path: CustomPath<'_>| path.kind().is_none())
}
