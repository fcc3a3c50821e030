//! The ForeignScan: what the engine returns, and how the scan's tuple is made of it.

use pgrx::pg_sys;
use pystachio_lower::{Lowered, Scale};
use pystachio_plan::{
    ColumnContent, ColumnId, DataType, Expression, FileSet, NamedExpression, Operator, Plan, PlannedFiles,
    Relation, ScanColumn, Value, aggregate_below_joins, prune_columns, share_finest_groups, with_equal_parts,
};

use super::{
    base::{NeededAttributes, unreadable_column},
    common_values::with_analyzed_values,
    keyed_join::{ScanFilter, key_number},
    outputs::{output_modifier, outputs_of},
    planning::with_planning,
    relation_info::{RelationInfo, name_column, pass_through},
    security,
    sent_rows::sent_rows,
    sorted::ordered,
};
use crate::{
    error::OrRaise,
    pg::{
        compat,
        tree::{
            ChosenPath, Clause, ForeignScan, List, Memory, Node, Rel, Root, Table, Target, expressions_of,
            targets_of,
        },
    },
    scan_private::{DisplayScale, KeyParameter, ScanAttribute, ScanPrivate, encode_refusals},
};

/// Makes the plan of a path of ours.
pub fn plan_scan<'p>(chosen: &ChosenPath<'p>) -> ForeignScan<'p> {
    let ChosenPath { root, relation, path, clauses, .. } = *chosen;
    let Some(info) = RelationInfo::of(relation) else {
        pgrx::error!("a path of pystachio has lost its plan");
    };
    let filter = ScanFilter::of(root, path, info);
    let ordered = ordered(relation, path, info);
    let info = filter.as_ref().map(|filter| &filter.info).or(ordered.as_ref()).unwrap_or(info);
    let scan = match chosen.table_oid {
        Some(table_oid) => base_scan(relation, info, table_oid),
        None => upper_scan(info, path.path().target()),
    };
    let (scan, entries) = scan.or_raise();
    move_init_plans(root, info);
    let (mut scan, parameters) = bind_parameters(scan, filter.as_ref(), root.memory());
    scan.hides_rows = security::hides_rows(root, info);
    scan.sent_rows = sent_rows(info, &scan.plan.root);
    let private = root.memory().bytes(scan.encode().or_raise()).node();
    let is_base = chosen.table_oid.is_some();
    let local = match is_base {
        true => local_clauses(relation, info, clauses),
        false => List::of(info.local_conditions.iter().copied()),
    };
    let scan =
        ForeignScan::of_path(chosen, local, List::of(parameters), List::of([private]), targets_of(entries));
    if is_base {
        // Rows that are checked again (EvalPlanQual) were read with these conditions.
        scan.set_recheck_conditions(expressions_of(clauses.iter()));
    }
    scan
}

/// What PostgreSQL checks on the rows of a base relation, in the order in which it would: the conditions that stayed with
/// it, and those that a path with outer columns takes over from the joins above.
fn local_clauses<'p>(
    relation: Rel<'p>,
    info: &RelationInfo<'p>,
    clauses: List<'p, pg_sys::RestrictInfo>,
) -> List<'p, pg_sys::Node> {
    let is_local = |clause: &Clause<'p>| {
        let place = relation.clauses().iter().position(|own| own == *clause);
        place.is_none_or(|place| info.local_clauses.contains(&place))
    };
    expressions_of(clauses.iter().filter(is_local))
}

/// What a scan's tuple is made of.
type Built<'p> = Result<(ScanPrivate, Vec<Node<'p>>), pystachio_plan::Error>;

/// The scan of one foreign table. Its tuple has all of the table's attributes; unused ones
/// are NULL.
fn base_scan<'p>(relation: Rel<'p>, info: &RelationInfo<'p>, table_oid: pg_sys::Oid) -> Built<'p> {
    let own = relation.clauses().iter().enumerate();
    let local = own.filter(|(place, _)| info.local_clauses.contains(place));
    let needed = NeededAttributes::of(relation, local.map(|(_, clause)| clause));
    let mut builder = ScanBuilder::new(info);
    for attribute in Table::open(table_oid).columns() {
        let is_needed =
            !attribute.attisdropped && !compat::is_virtual(attribute) && needed.contains(attribute.attnum);
        if !is_needed {
            builder.add_absent(attribute.atttypid, attribute.atttypmod);
            continue;
        }
        match info.scope().find_column((relation.index(), attribute.attnum)) {
            Some(lowered) => builder.add(lowered, attribute.atttypid, attribute.atttypmod),
            None => return Err(unreadable_column(table_oid, attribute.attnum)),
        }
    }
    Ok((builder.finish(), Vec::new()))
}

/// A scan of joins or of what comes above them: its tuple has what the target needs.
fn upper_scan<'p>(info: &RelationInfo<'p>, target: Target<'p>) -> Built<'p> {
    let outputs = outputs_of(info, target).map_err(|refusal| {
        pystachio_plan::Error::internal(format!("a checked target can't be returned: {refusal}"))
    })?;
    let mut builder = ScanBuilder::new(info);
    let mut entries = Vec::new();
    for (node, lowered) in outputs {
        let modifier = output_modifier(node, &lowered).unwrap_or(-1);
        builder.add(lowered, node.type_oid(), modifier);
        entries.push(node);
    }
    Ok((builder.finish(), entries))
}

/// Collects the outputs of a plan and the attributes that are made of them.
struct ScanBuilder<'a> {
    info: &'a RelationInfo<'a>,
    outputs: Vec<ColumnId>,
    computed: Vec<NamedExpression>,
    attributes: Vec<ScanAttribute>,
}

impl<'a> ScanBuilder<'a> {
    fn new(info: &'a RelationInfo<'a>) -> Self {
        Self { info, outputs: Vec::new(), computed: Vec::new(), attributes: Vec::new() }
    }

    fn add_absent(&mut self, type_oid: pg_sys::Oid, type_modifier: i32) {
        self.attributes.push(ScanAttribute {
            output_index: None,
            display_scale: DisplayScale::OfType,
            type_oid: type_oid.into(),
            type_modifier,
        });
    }

    fn add(&mut self, lowered: Lowered, type_oid: pg_sys::Oid, type_modifier: i32) {
        let output_index = Some(self.output(lowered.expression));
        let display_scale = match lowered.scale {
            Scale::None => DisplayScale::OfType,
            Scale::Fixed(digits) => DisplayScale::Fixed(u16::try_from(digits).unwrap_or(0)),
            Scale::Varies(digits) => DisplayScale::Output(self.output(*digits)),
        };
        let type_oid = type_oid.into();
        self.attributes.push(ScanAttribute { output_index, display_scale, type_oid, type_modifier });
    }

    /// The place of an expression's value among the outputs.
    fn output(&mut self, expression: Expression) -> u32 {
        let id = match expression {
            Expression::Column { id, .. } => id,
            other => match self.computed.iter().find(|named| named.expression == other) {
                Some(known) => known.id,
                None => {
                    name_column(Lowered::plain(other), &mut self.computed);
                    self.computed.last().map_or(ColumnId(0), |named| named.id)
                }
            },
        };
        let place = self.outputs.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.outputs.push(id);
            self.outputs.len() - 1
        });
        place as u32
    }

    fn finish(self) -> ScanPrivate {
        let mut root = self.info.relation().clone();
        if !self.computed.is_empty() {
            let mut expressions = pass_through(&root);
            expressions.extend(self.computed);
            let rows = root.estimate.rows;
            root = Relation::new(Operator::Project { input: root, expressions }, rows);
        }
        let server_oid = self.info.server_oid.into();
        let plan = Plan { root, outputs: self.outputs };
        let mut next_column = || with_planning(|planning| planning.new_column());
        let plan = share_finest_groups(&plan, &mut next_column);
        let bounds = |files: &FileSet, column: &ScanColumn| number_bounds(server_oid, files, column);
        let plan = aggregate_below_joins(&plan, &bounds, &mut next_column);
        let Plan { root, outputs } = with_equal_parts(&prune_columns(&plan), &mut next_column);
        let plan = Plan { root: with_analyzed_values(&root), outputs };
        ScanPrivate {
            server_oid,
            files: planned_files(server_oid, &plan.root),
            plan,
            attributes: self.attributes,
            parameters: Vec::new(),
            hides_rows: false,
            join_keys: None,
            sent_rows: Vec::new(),
        }
    }
}

/// The bounds of a scan's column in footers, of dates in days. The engine checks those that a plan may rest on ([`planned_files`]).
fn number_bounds(server_oid: u32, files: &FileSet, column: &ScanColumn) -> Option<(f64, f64)> {
    let description = with_planning(|planning| planning.description_of_scan(server_oid, files))?;
    let described = description.column(&column.file_column())?;
    match (&described.data_type, &described.minimum, &described.maximum) {
        (Some(DataType::Date), Some(Value::Int(first)), Some(Value::Int(last))) => {
            Some((*first as f64, *last as f64))
        }
        _ => described.number_bounds(),
    }
}

/// What a plan's scans take from the footers of their files.
fn planned_files(server_oid: u32, root: &Relation) -> Vec<PlannedFiles> {
    let mut planned: Vec<PlannedFiles> = Vec::new();
    for scan in root.scans() {
        let Operator::Scan { files, columns, .. } = scan else { continue };
        let known = with_planning(|planning| planning.description_of_scan(server_oid, files));
        let Some(description) = known else { continue };
        let columns = || columns.iter().filter(|column| column.content == ColumnContent::Column);
        let bounds = columns().filter_map(|column| {
            let in_files = column.file_column();
            // Of a field of a struct its type is known, and only of these files. So are digits in composite values.
            let is_of_these = description.has_field(&column.name) || column.data_type.fields().is_some();
            let magnitude = match is_of_these {
                true => f64::INFINITY,
                false => description.column(&in_files)?.magnitude()?,
            };
            Some((in_files, magnitude))
        });
        // A column that is declared with the digits of its files is taken for one that has them from there.
        let scales = columns().filter_map(|column| {
            let in_files = column.file_column();
            let of_files = description.column(&in_files)?.scale()?;
            (scale_of(&column.data_type) == Some(of_files)).then_some((in_files, of_files))
        });
        match planned.iter_mut().find(|planned| planned.files == *files) {
            Some(known) => {
                known.bounds.extend(bounds);
                known.scales.extend(scales);
            }
            None => planned.push(PlannedFiles {
                files: files.clone(),
                identity: description.identity,
                bounds: bounds.collect(),
                scales: scales.collect(),
            }),
        }
    }
    planned
}

/// Digits after the point that a numeric column shows, or one of lists of them.
fn scale_of(data_type: &DataType) -> Option<u8> {
    match data_type {
        DataType::Decimal { scale, .. } => Some(*scale),
        DataType::List(item) => scale_of(item),
        _ => None,
    }
}

/// The parameters that the plan uses, numbered from 0, and their expressions in that order.
fn bind_parameters<'p>(
    mut scan: ScanPrivate,
    filter: Option<&ScanFilter<'p>>,
    memory: Memory<'p>,
) -> (ScanPrivate, Vec<Node<'p>>) {
    let mut used: Vec<u32> = Vec::new();
    scan.plan.root = renumber(&scan.plan.root, &mut used);
    let mut nodes: Vec<Node<'p>> = Vec::new();
    let mut keys = Vec::new();
    for index in used {
        if let Some((node, data_type)) = with_planning(|planning| planning.parameter_at(index, memory)) {
            let node = match key_number(node) {
                None => node,
                Some(key) => {
                    keys.push(KeyParameter { index: nodes.len() as u32, key });
                    node.null_of_type().node()
                }
            };
            nodes.push(node);
            scan.parameters.push(data_type);
        }
    }
    scan.join_keys = filter.map(|filter| filter.join_keys(keys));
    (scan, nodes)
}

fn renumber(relation: &std::sync::Arc<Relation>, used: &mut Vec<u32>) -> std::sync::Arc<Relation> {
    relation.map_expressions(&mut |expression| {
        if let Expression::Parameter { index, .. } = expression {
            let place = used.iter().position(|known| known == index).unwrap_or_else(|| {
                used.push(*index);
                used.len() - 1
            });
            *index = place as u32;
        }
    })
}

/// Leaves in a finished scan why parts of its query were not pushed down.
pub fn append_refusals(scan: ForeignScan<'_>, refusals: &[String]) {
    let constant = scan.memory().bytes(encode_refusals(refusals).or_raise());
    scan.set_private(scan.private().with(constant.node()));
}

/// An absorbed subquery is never planned, so its InitPlans become ours.
fn move_init_plans<'p>(root: Root<'p>, info: &RelationInfo<'p>) {
    for subquery in &info.absorbed {
        root.take_init_plans(*subquery);
        with_planning(|planning| planning.absorb(*subquery));
    }
}
