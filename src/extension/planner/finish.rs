//! The ForeignScan: what the engine returns, and how the scan's tuple is made of it.

use pgrx::{pg_sys, prelude::*};
use pystachio_lower::{Lowered, Scale};
use pystachio_plan::{
    ColumnId, DataType, Expression, NamedExpression, Operator, Plan, PlannedFiles, Relation, prune_columns,
};

use super::{
    base::unreadable_column,
    common_values::with_analyzed_values,
    keyed_join::{ScanFilter, key_number},
    nodes::{elements, list_of, node_as},
    outputs::{output_modifier, outputs_of},
    planning::with_planning,
    relation_info::{RelationInfo, name_column, pass_through},
    security,
    sorted::ordered,
};
use crate::{
    error::OrRaise,
    pg::compat,
    scan_private::{DisplayScale, KeyParameter, ScanAttribute, ScanPrivate, encode_refusals},
};

/// Builds the plan node of a path of ours.
#[pg_guard]
pub unsafe extern "C-unwind" fn get_foreign_plan(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table_oid: pg_sys::Oid,
    path: *mut pg_sys::ForeignPath,
    target_list: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    outer_plan: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    unsafe {
        let Some(info) = RelationInfo::of(relation) else {
            pgrx::error!("a path of pystachio has lost its plan");
        };
        let filter = ScanFilter::of(root, path, info);
        let ordered = ordered(relation, path, info);
        let info = filter.as_ref().map(|filter| &filter.info).or(ordered.as_ref()).unwrap_or(info);
        let is_base = table_oid != pg_sys::InvalidOid;
        let scan = if is_base {
            base_scan(relation, info, table_oid)
        } else {
            upper_scan(info, (*path).path.pathtarget)
        };
        let (scan, entries) = scan.or_raise();
        move_init_plans(root, info);
        let local = if is_base { local_clauses(relation, info, clauses) } else { Vec::new() };
        let scan_relation = if is_base { (*relation).relid } else { 0 };
        let (mut scan, parameters) = bind_parameters(scan, filter.as_ref());
        scan.hides_rows = security::hides_rows(root, info);
        let scan_list = if is_base { std::ptr::null_mut() } else { scan_target_list(&entries) };
        let node = pg_sys::make_foreignscan(
            target_list,
            list_of(local),
            scan_relation,
            list_of(parameters),
            private_list(&scan),
            scan_list,
            std::ptr::null_mut(),
            outer_plan,
        );
        if is_base {
            // Rows that are checked again (EvalPlanQual) were read with these conditions.
            let all = elements::<pg_sys::RestrictInfo>(clauses);
            (*node).fdw_recheck_quals = list_of(all.map(|clause| (*clause).clause));
        }
        node
    }
}

/// What PostgreSQL checks on the rows of a base relation, in the order in which it would: the conditions that stayed with
/// it, and those that a path with outer columns takes over from the joins above.
unsafe fn local_clauses(
    relation: *mut pg_sys::RelOptInfo,
    info: &RelationInfo,
    clauses: *mut pg_sys::List,
) -> Vec<*mut pg_sys::Expr> {
    unsafe {
        let is_local = |clause: &*mut pg_sys::RestrictInfo| {
            let place =
                elements::<pg_sys::RestrictInfo>((*relation).baserestrictinfo).position(|own| own == *clause);
            place.is_none_or(|place| info.local_clauses.contains(&place))
        };
        elements::<pg_sys::RestrictInfo>(clauses).filter(is_local).map(|clause| (*clause).clause).collect()
    }
}

/// What a scan's tuple is made of.
type Built = Result<(ScanPrivate, Vec<*mut pg_sys::Node>), pystachio_plan::Error>;

/// The scan of one foreign table. Its tuple has all of the table's attributes; unused ones
/// are NULL.
unsafe fn base_scan(relation: *mut pg_sys::RelOptInfo, info: &RelationInfo, table_oid: pg_sys::Oid) -> Built {
    unsafe {
        let needed = needed_attributes(relation, info);
        let table = pg_sys::table_open(table_oid, pg_sys::NoLock as i32);
        let descriptor = (*table).rd_att;
        let mut builder = ScanBuilder::new(info);
        let mut result = Ok(());
        for place in 0..(*descriptor).natts as usize {
            let attribute = compat::attribute(descriptor, place);
            let is_needed = !attribute.attisdropped
                && !compat::is_virtual(attribute)
                && (needed.whole_row || needed.numbers.contains(&attribute.attnum));
            if !is_needed {
                builder.add_absent(attribute.atttypid, attribute.atttypmod);
                continue;
            }
            match info.scope().find_column(((*relation).relid, attribute.attnum)) {
                Some(lowered) => builder.add(lowered, attribute.atttypid, attribute.atttypmod),
                None => {
                    result = Err(unreadable_column(table_oid, attribute.attnum));
                    break;
                }
            }
        }
        pg_sys::table_close(table, pg_sys::NoLock as i32);
        result.map(|()| (builder.finish(), Vec::new()))
    }
}

struct NeededAttributes {
    whole_row: bool,
    numbers: Vec<i16>,
}

unsafe fn needed_attributes(relation: *mut pg_sys::RelOptInfo, info: &RelationInfo) -> NeededAttributes {
    let mut needed = NeededAttributes { whole_row: false, numbers: Vec::new() };
    let mut note = |node: *mut pg_sys::Node| unsafe {
        if let Some(var) = node_as::<pg_sys::Var>(node, pg_sys::NodeTag::T_Var)
            && var.varno as u32 == (*relation).relid
        {
            needed.whole_row = needed.whole_row || var.varattno == 0;
            needed.numbers.push(var.varattno);
        }
        true
    };
    unsafe {
        let target = elements::<pg_sys::Node>((*(*relation).reltarget).exprs);
        let own = elements::<pg_sys::RestrictInfo>((*relation).baserestrictinfo).enumerate();
        let local = own.filter(|(place, _)| info.local_clauses.contains(place));
        let clauses = local.map(|(_, clause)| (*clause).clause.cast());
        for node in target.chain(clauses) {
            super::nodes::walk_expression(node, &mut note);
        }
    }
    needed
}

/// A scan of joins or of what comes above them: its tuple has what the target needs.
unsafe fn upper_scan(info: &RelationInfo, target: *mut pg_sys::PathTarget) -> Built {
    unsafe {
        let outputs = outputs_of(info, target).map_err(|refusal| {
            pystachio_plan::Error::internal(format!("a checked target can't be returned: {refusal}"))
        })?;
        let mut builder = ScanBuilder::new(info);
        let mut entries = Vec::new();
        for (node, lowered) in outputs {
            let modifier = output_modifier(node, &lowered).unwrap_or(-1);
            builder.add(lowered, pg_sys::exprType(node), modifier);
            entries.push(node);
        }
        Ok((builder.finish(), entries))
    }
}

/// Collects the outputs of a plan and the attributes that are made of them.
struct ScanBuilder<'a> {
    info: &'a RelationInfo,
    outputs: Vec<ColumnId>,
    computed: Vec<NamedExpression>,
    attributes: Vec<ScanAttribute>,
}

impl<'a> ScanBuilder<'a> {
    fn new(info: &'a RelationInfo) -> Self {
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
        let Plan { root, outputs } = prune_columns(&Plan { root, outputs: self.outputs });
        let plan = Plan { root: with_analyzed_values(&root), outputs };
        let server_oid = self.info.server_oid.into();
        ScanPrivate {
            server_oid,
            files: planned_files(server_oid, &plan.root),
            plan,
            attributes: self.attributes,
            parameters: Vec::new(),
            hides_rows: false,
            join_keys: None,
        }
    }
}

/// What a plan's scans take from the footers of their files.
fn planned_files(server_oid: u32, root: &Relation) -> Vec<PlannedFiles> {
    let mut planned: Vec<PlannedFiles> = Vec::new();
    for scan in root.scans() {
        let Operator::Scan { files, columns, .. } = scan else { continue };
        let key = (server_oid, files.clone());
        let Some(description) = with_planning(|planning| planning.description(&key)) else { continue };
        let bounds = columns
            .iter()
            .filter_map(|column| Some((column.name.clone(), description.column(&column.name)?.magnitude()?)));
        // A column that is declared with the digits of its files is taken for one that has them from there.
        let scales = columns.iter().filter_map(|column| {
            let of_files = description.column(&column.name)?.scale()?;
            (scale_of(&column.data_type) == Some(of_files)).then(|| (column.name.clone(), of_files))
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
unsafe fn bind_parameters(
    mut scan: ScanPrivate,
    filter: Option<&ScanFilter>,
) -> (ScanPrivate, Vec<*mut pg_sys::Node>) {
    let mut used: Vec<u32> = Vec::new();
    scan.plan.root = renumber(&scan.plan.root, &mut used);
    let mut nodes: Vec<*mut pg_sys::Node> = Vec::new();
    let mut keys = Vec::new();
    for index in used {
        if let Some((node, data_type)) = with_planning(|planning| planning.parameter_at(index)) {
            let node = match unsafe { key_number(node) } {
                None => unsafe { pg_sys::copyObjectImpl(node.cast()).cast() },
                Some(key) => unsafe {
                    keys.push(KeyParameter { index: nodes.len() as u32, key });
                    pg_sys::makeNullConst(pg_sys::exprType(node), -1, pg_sys::exprCollation(node)).cast()
                },
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

unsafe fn scan_target_list(entries: &[*mut pg_sys::Node]) -> *mut pg_sys::List {
    let entry = |(place, node): (usize, &*mut pg_sys::Node)| unsafe {
        pg_sys::makeTargetEntry((*node).cast(), place as i16 + 1, std::ptr::null_mut(), false)
    };
    unsafe { list_of(entries.iter().enumerate().map(entry)) }
}

unsafe fn private_list(scan: &ScanPrivate) -> *mut pg_sys::List {
    unsafe { list_of([bytes_constant(scan.encode().or_raise())]) }
}

/// Leaves in a finished scan why parts of its query were not pushed down.
pub unsafe fn append_refusals(scan: *mut pg_sys::ForeignScan, refusals: &[String]) {
    unsafe {
        let constant = bytes_constant(encode_refusals(refusals).or_raise());
        (*scan).fdw_private = pg_sys::lappend((*scan).fdw_private, constant.cast());
    }
}

/// Bytes as a constant of PostgreSQL.
pub unsafe fn bytes_constant(bytes: Vec<u8>) -> *mut pg_sys::Const {
    unsafe {
        let datum = bytes.into_datum().unwrap_or(pg_sys::Datum::from(0));
        pg_sys::makeConst(pg_sys::BYTEAOID, -1, pg_sys::InvalidOid, -1, datum, false, false)
    }
}

/// An absorbed subquery is never planned, so its InitPlans become ours.
unsafe fn move_init_plans(root: *mut pg_sys::PlannerInfo, info: &RelationInfo) {
    for subquery in &info.absorbed {
        unsafe {
            (*root).init_plans = pg_sys::list_concat((*root).init_plans, (**subquery).init_plans);
            (**subquery).init_plans = std::ptr::null_mut();
        }
        with_planning(|planning| planning.absorb(*subquery));
    }
}
