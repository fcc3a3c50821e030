//! Relations that stay in PostgreSQL as inputs of plans: heap tables, VALUES, functions, tables of other servers, and joins of these.
//!
//! ```text
//! Hash Join                      Foreign Scan  (l ⋈ c)
//!   Foreign Scan l        ─►       Send Rows
//!   Hash                             Seq Scan c
//!     Seq Scan c
//! ```
//!
//! PostgreSQL computes such a relation by its own cheapest path, with its rights and policies. Before the scan starts, `Send Rows`
//! sends all rows of each input to the engine, which keeps them in spill files and reads them as it reads tables.
//!
//! Invariants: a plan that has inputs also scans a foreign table. Its paths compete by cost, in which the inputs' costs are; they never
//! replace PostgreSQL's own. `jsonb` and enums are sent as text. Intervals, and numerics without a precision, are sent as PostgreSQL's own
//! bytes: the engine carries them through, knows no value of them, and so computes nothing of them ([`Scope::Carried`]). A column of
//! another type that can't be written to files is not sent.
//!
//! Deliberately absent: LATERAL, inputs within a subquery that a plan absorbs, and servers of several hosts, whose engines do not
//! see each other's spill files.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use pgrx::pg_sys;
use pystachio_lower::Scope;
use pystachio_plan::{ColumnContent, FileSet, Operator, Relation, ScanColumn, ScanExtent, TableFormat};

use super::{
    base::{field_column, lowered_column},
    cost,
    join::{may_push, offer_join},
    planning::with_planning,
    relation_info::RelationInfo,
};
use crate::{
    execution::SEND_ROWS_SCAN,
    options,
    pg::{
        mirror::type_name_with,
        tree::{
            ChosenCustomPath, CustomKind, CustomPath, CustomScan, ForeignPath, JoinPair, List, Node, Path,
            Plan, Rel, Root,
        },
    },
    scan_private::{SentColumn, SentRows},
    settings,
    types::{base_type, is_carried, sent_column},
};

/// A relation that PostgreSQL computes, and sends.
#[derive(Clone)]
pub struct SentInput<'p> {
    /// Its number in the plan.
    number: u32,
    /// What PostgreSQL computes it by.
    path: Path<'p>,
    /// What can be sent of it.
    columns: Rc<Vec<SentColumn>>,
}

impl SentInput<'_> {
    /// What it costs until the engine has all rows.
    pub fn cost(&self) -> f64 {
        self.path.total_cost() + cost::send_cost(self.path.rows(), self.columns.len())
    }
}

/// Offers joins of a relation that an engine computes with one that it does not. For set_join_pathlist_hook.
pub fn offer_mixed_joins<'p>(pair: &JoinPair<'p>) {
    let JoinPair { root, joined, outer, inner, .. } = *pair;
    if !with_planning(|planning| planning.met_table()) || !may_push(root) {
        return;
    }
    let own = |relation: Rel<'p>| RelationInfo::joinable_of(root, relation);
    let sent = |relation: Rel<'p>, server_oid| Some((input_of(root, relation, server_oid)?, Vec::new()));
    let (left, right, ours) = match (own(outer), own(inner)) {
        (Some(left), None) => {
            let Some(right) = sent(inner, left.0.server_oid) else { return };
            (left, right, outer)
        }
        (None, Some(right)) => {
            let Some(left) = sent(outer, right.0.server_oid) else { return };
            (left, right, inner)
        }
        _ => return,
    };
    let is_others = joined.routine().is_some() && joined.server_oid() != ours.server_oid();
    if is_others || ![joined, outer, inner].iter().all(|relation| relation.lateral_relids().is_empty()) {
        return;
    }
    joined.set_server_oid(ours.server_oid());
    joined.set_user_oid(pg_sys::InvalidOid);
    joined.set_user_is_current(false);
    joined.set_routine(ours.routine());
    offer_join(pair, left, right);
}

/// A relation of PostgreSQL's as the input of a plan of this server; `None` if it can't be one.
pub fn input_of<'p>(
    root: Root<'p>,
    relation: Rel<'p>,
    server_oid: pg_sys::Oid,
) -> Option<&'p RelationInfo<'p>> {
    let is_free = relation.lateral_relids().is_empty() && !relation.is_dummy();
    if !settings::send_rows() || !is_free || RelationInfo::of(relation).is_some() {
        return None;
    }
    let path = relation.cheapest_total_path().filter(|path| path.parameterization().is_none())?;
    if options::server_options(server_oid).1.hosts.is_some() {
        let reason = "rows of PostgreSQL are not sent to a server with several hosts";
        with_planning(|planning| planning.refuse(reason.to_owned()));
        return None;
    }
    let number = with_planning(|planning| planning.new_input());
    let mut names: Vec<String> = Vec::new();
    let mut bases: BTreeMap<u32, HashMap<i16, _>> = BTreeMap::new();
    let (mut placeholders, mut carried) = (HashMap::new(), HashMap::new());
    for index in relation.relids().iter().filter(|index| root.relation(*index).is_some()) {
        bases.entry(index as u32).or_default();
        names.extend(root.entry(index).and_then(|entry| entry.names()).map(|alias| alias.name()));
    }
    let mut sent = Vec::new();
    let mut scanned = Vec::new();
    for (place, node) in path.target().expressions().iter().enumerate() {
        let Some(column) = named_column(root, node, place, &sent) else { continue };
        let Some((scan, is_carried)) =
            scan_column(&column).filter(|(_, is_carried)| !is_carried || node.is::<pg_sys::Var>())
        else {
            let printed = type_name_with(column.type_oid.into(), column.type_modifier);
            let reason = format!("rows with the column {} of type {printed}, which is not sent", column.name);
            with_planning(|planning| planning.refuse(reason));
            continue;
        };
        let lowered = lowered_column(&scan, (node.type_oid(), node.modifier()), None);
        if let Some(var) = node.downcast::<pg_sys::Var>()
            && is_carried
        {
            carried.insert((var.relation() as u32, var.attribute()), lowered);
        } else if let Some(var) = node.downcast::<pg_sys::Var>() {
            bases.entry(var.relation() as u32).or_default().insert(var.attribute(), lowered);
        } else if let Some(placeholder) = node.downcast::<pg_sys::PlaceHolderVar>() {
            placeholders.insert(placeholder.id(), lowered);
        }
        scanned.push(scan);
        sent.push(column);
    }
    let bases = bases.into_iter().map(|(index, columns)| Rc::new(Scope::of_columns(index, columns)));
    let mut scope = bases.reduce(|left, right| Rc::new(Scope::Join(left, right)))?;
    if !carried.is_empty() {
        scope = Rc::new(Scope::Carried { input: scope, columns: carried });
    }
    if !placeholders.is_empty() {
        scope = Rc::new(Scope::Placed { input: scope, placeholders });
    }
    let scan = Operator::Scan {
        table: names.join(", "),
        files: FileSet { paths: Vec::new(), format: TableFormat::Sent(number), role: 0 },
        columns: scanned,
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    let rows = cost::clamp_rows(path.rows());
    let input = SentInput { number, path, columns: Rc::new(sent) };
    let own_cost = cost::of_postgresql(input.cost()) + rows * cost::SCAN_ROW_COST;
    let mut info = RelationInfo::of_table(server_oid, (Relation::new(scan, rows), scope), rows, own_cost);
    info.is_plain = false;
    info.inputs.push(input);
    Some(relation.memory().keep(info))
}

/// What is sent of one expression of a relation's target; `None` if it can't be.
fn named_column<'p>(
    root: Root<'p>,
    node: Node<'p>,
    place: usize,
    others: &[SentColumn],
) -> Option<SentColumn> {
    let mut name = match node.downcast::<pg_sys::Var>() {
        Some(var) => {
            let entry = root.entry(usize::try_from(var.relation()).ok()?)?;
            if var.attribute() <= 0 {
                return None;
            }
            let table = entry.names().map(|alias| alias.name()).unwrap_or_default();
            format!("{table}.{}", entry.attribute_name(var.attribute()))
        }
        None => format!("${place}"),
    };
    if others.iter().any(|other| other.name == name) {
        name += &format!(" {place}");
    }
    Some(SentColumn {
        place: place as u32,
        name,
        type_oid: node.type_oid().into(),
        type_modifier: node.modifier(),
    })
}

/// The engine's type for values that PostgreSQL sends, and whether the engine only carries them through; `None` for a type that files can't hold.
fn scan_column(column: &SentColumn) -> Option<(ScanColumn, bool)> {
    let type_oid = pg_sys::Oid::from(column.type_oid);
    let written = sent_column(column.name.clone(), type_oid, column.type_modifier, false).ok()?;
    // Files have times of UTC alone.
    if written.is_utc {
        return None;
    }
    let (base_oid, _) = base_type(type_oid, column.type_modifier);
    let is_json = written.is_json && !written.data_type.is_nested();
    let is_carried = is_carried(&written.data_type, base_oid);
    let scan = ScanColumn {
        trim_blanks: base_oid == pg_sys::BPCHAROID,
        content: if is_json { ColumnContent::Json } else { ColumnContent::Column },
        ..field_column(column.name.clone(), written.data_type)
    };
    Some((scan, is_carried))
}

/// The path below that of a scan, which sends the inputs.
pub fn send_path<'p>(scan: ForeignPath<'p>, inputs: &[SentInput<'p>]) -> Path<'p> {
    let paths = List::of(inputs.iter().map(|input| input.path));
    CustomPath::reading(scan.path().parent(), paths, CustomKind::SendRows).path()
}

/// Makes the plan of such a path.
pub fn plan_sending<'p>(chosen: &ChosenCustomPath<'p>) -> CustomScan<'p> {
    CustomScan::reading(chosen, &SEND_ROWS_SCAN.0)
}

/// Whether a plan node is one of these.
pub fn is_sending(plan: Plan<'_>) -> bool {
    plan.has_methods(&[&SEND_ROWS_SCAN.0])
}

/// What is sent of each input, in the order of [`send_path`]: the columns that the plan reads.
pub fn sent_rows(info: &RelationInfo<'_>, plan: &Relation) -> Vec<SentRows> {
    let scans = plan.scans();
    let is_read = |input: &SentInput<'_>, name: &str| {
        scans.iter().any(|scan| match scan {
            Operator::Scan { files, columns, .. } => {
                files.format == TableFormat::Sent(input.number)
                    && columns.iter().any(|column| column.name == name)
            }
            _ => false,
        })
    };
    let sent = info.inputs.iter().map(|input| SentRows {
        number: input.number,
        columns: input.columns.iter().filter(|column| is_read(input, &column.name)).cloned().collect(),
    });
    sent.collect()
}
