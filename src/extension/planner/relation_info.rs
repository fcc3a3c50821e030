//! What is known about a relation that an engine can compute.

use std::{cell::OnceCell, rc::Rc, sync::Arc};

use pgrx::{PgMemoryContexts, pg_sys};
use pystachio_lower::{Lowered, Refusal, Scale, Scope};
use pystachio_plan::{NamedExpression, Operator, Relation};

use super::{
    join::WaitingJoin,
    known_servers,
    lowering::Lowering,
    nodes::{elements, node_as},
    outputs::outputs_of,
    planning::with_planning,
};
use crate::pg::tree::Query;

/// How large an expression may be that is left to its readers, each of which has it as its own.
const DEFERRED_PARTS_MAX: usize = 30;

/// The plan of a relation, kept in `RelOptInfo.fdw_private`.
#[derive(Clone)]
pub struct RelationInfo {
    /// Whose engine computes it.
    pub server_oid: pg_sys::Oid,
    /// The plan, and how its columns are found.
    built: OnceCell<Built>,
    /// What the plan is built of where it is not built yet.
    waiting: Option<WaitingJoin>,
    /// Operators above each other.
    pub depth: usize,
    /// It is a relation of the range table, or an inner join of such: then its scope is the same, however it was joined.
    pub is_plain: bool,
    /// Whether it has what is read of it above.
    returns_target: OnceCell<bool>,
    /// Rows expected.
    pub rows: f64,
    /// Cost of the whole tree, in the units of `cost`.
    pub cost: f64,
    /// Which clauses PostgreSQL must check on the rows: their places in the relation's `baserestrictinfo`, since a join of
    /// partitions puts adjusted copies there. Only of base relations; nothing above such a relation is taken.
    pub local_clauses: Vec<usize>,
    /// Planner roots of the subqueries inside.
    pub absorbed: Vec<*mut pg_sys::PlannerInfo>,
    /// Set if the plan ends with a sort, so that a limit keeps its order.
    pub is_sorted: bool,
}

/// A plan, and how its columns are found.
pub type Built = (Arc<Relation>, Rc<Scope>);

impl RelationInfo {
    /// A relation of the range table.
    pub fn of_table(server_oid: pg_sys::Oid, (relation, scope): Built, rows: f64, cost: f64) -> Self {
        Self {
            server_oid,
            depth: relation.depth(),
            built: OnceCell::from((relation, scope)),
            waiting: None,
            returns_target: OnceCell::new(),
            is_plain: true,
            rows,
            cost,
            local_clauses: Vec::new(),
            absorbed: Vec::new(),
            is_sorted: false,
        }
    }

    /// A join that is built when it is asked for.
    pub fn waiting(join: WaitingJoin, cost: f64) -> Self {
        let (left, right) = (join.left(), join.right());
        Self {
            server_oid: left.server_oid,
            built: OnceCell::new(),
            depth: 1 + left.depth.max(right.depth),
            // What it returns its inputs return.
            returns_target: OnceCell::from(true),
            is_plain: true,
            rows: join.rows,
            cost,
            local_clauses: Vec::new(),
            absorbed: left.absorbed.iter().chain(&right.absorbed).copied().collect(),
            is_sorted: false,
            waiting: Some(join),
        }
    }

    fn built(&self) -> &Built {
        self.built.get_or_init(|| match &self.waiting {
            Some(join) => join.build(),
            None => pgrx::error!("a relation of pystachio has no plan"),
        })
    }

    /// The plan.
    pub fn relation(&self) -> &Arc<Relation> {
        &self.built().0
    }

    /// How the plan's columns are found.
    pub fn scope(&self) -> &Rc<Scope> {
        &self.built().1
    }

    /// The same with another plan that has the same columns.
    pub fn with_relation(self, relation: Arc<Relation>) -> Self {
        let scope = self.scope().clone();
        Self { built: OnceCell::from((relation, scope)), ..self }
    }

    /// Whether it has what is read above of `relation`, whose info it is.
    pub unsafe fn returns_target(&self, relation: *mut pg_sys::RelOptInfo) -> bool {
        *self.returns_target.get_or_init(|| unsafe { outputs_of(self, (*relation).reltarget) }.is_ok())
    }

    /// Whether nothing of the relation is left to PostgreSQL.
    pub fn is_complete(&self) -> bool {
        self.local_clauses.is_empty()
    }

    /// A relation over this one.
    pub fn above(&self, relation: Arc<Relation>, scope: Rc<Scope>, rows: f64, cost: f64) -> Self {
        Self {
            server_oid: self.server_oid,
            depth: relation.depth(),
            built: OnceCell::from((relation, scope)),
            waiting: None,
            returns_target: OnceCell::new(),
            is_plain: false,
            rows,
            cost: self.cost + cost,
            local_clauses: Vec::new(),
            absorbed: self.absorbed.clone(),
            is_sorted: false,
        }
    }

    /// Puts the info into a RelOptInfo. It is dropped with the memory context of the planner.
    pub unsafe fn attach(self, relation: *mut pg_sys::RelOptInfo) {
        unsafe {
            (*relation).fdw_private =
                PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(self).cast();
        }
    }

    /// The info of a RelOptInfo whose foreign-data wrapper is ours.
    pub unsafe fn of<'a>(relation: *mut pg_sys::RelOptInfo) -> Option<&'a RelationInfo> {
        unsafe {
            if relation.is_null() || (*relation).fdw_private.is_null() || !is_ours((*relation).fdwroutine) {
                return None;
            }
            Some(&*(*relation).fdw_private.cast::<RelationInfo>())
        }
    }

    /// The info of a relation that nothing of is left to PostgreSQL, neither clauses nor columns of outside.
    pub unsafe fn complete_of<'a>(relation: *mut pg_sys::RelOptInfo) -> Option<&'a RelationInfo> {
        unsafe {
            Self::of(relation).filter(|info| info.is_complete() && (*relation).lateral_relids.is_null())
        }
    }
}

/// Whether a routine table is the one that this library filled.
pub unsafe fn is_ours(routine: *mut pg_sys::FdwRoutine) -> bool {
    unsafe {
        !routine.is_null()
            && (*routine).GetForeignRelSize.is_some_and(|callback| {
                std::ptr::fn_addr_eq(
                    callback,
                    super::base::get_foreign_rel_size
                        as unsafe extern "C-unwind" fn(
                            *mut pg_sys::PlannerInfo,
                            *mut pg_sys::RelOptInfo,
                            pg_sys::Oid,
                        ),
                )
            })
    }
}

/// Whether a server belongs to the wrapper whose routine table this library filled.
pub fn is_ours_oid(server_oid: pg_sys::Oid) -> bool {
    unsafe {
        server_oid != pg_sys::InvalidOid
            && known_servers::is_ours(server_oid, || is_ours(pg_sys::GetFdwRoutineByServerId(server_oid)))
    }
}

/// Whether a foreign table is of a server of ours.
pub fn is_our_table(table_oid: pg_sys::Oid) -> bool {
    unsafe { is_ours_oid((*pg_sys::GetForeignTable(table_oid)).serverid) }
}

/// Whether an entry of a range table is a foreign table of ours.
pub unsafe fn is_our_entry(entry: *mut pg_sys::RangeTblEntry) -> bool {
    unsafe {
        (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
            && (*entry).relkind as u8 == pg_sys::RELKIND_FOREIGN_TABLE
            && is_our_table((*entry).relid)
    }
}

/// Whether a query, or one within it, names a foreign table of ours. Partitioned tables are not looked into.
pub fn names_our_table(query: Query<'_>) -> bool {
    query.any_entry(&mut |entry| unsafe { is_our_entry(entry.pointer()) })
}

/// Where PlaceHolderVars are computed.
pub struct Place<'a> {
    /// The planner's state.
    pub root: *mut pg_sys::PlannerInfo,
    /// The relation.
    pub relation: *mut pg_sys::RelOptInfo,
    /// What it joins.
    pub inputs: &'a [*mut pg_sys::RelOptInfo],
}

impl Place<'_> {
    /// Refuses a PlaceHolderVar that is not this relation's to compute.
    unsafe fn check(&self, placeholder: &pg_sys::PlaceHolderVar) -> Result<(), Refusal> {
        unsafe {
            let known = elements::<pg_sys::PlaceHolderInfo>((*self.root).placeholder_list)
                .find(|known| (**known).phid == placeholder.phid);
            let Some(known) = known else {
                return Err(Refusal::PlaceholderOfOtherLevel);
            };
            if !(*known).ph_lateral.is_null() {
                return Err(Refusal::LateralPlaceholder);
            }
            // Here it would not be NULL where an outer join between has found no partner.
            if self.inputs.iter().any(|input| pg_sys::bms_is_subset((*known).ph_eval_at, (**input).relids)) {
                return Err(Refusal::LostPlaceholder);
            }
            Ok(())
        }
    }
}

/// Computes the PlaceHolderVars that the relation must have and its inputs don't.
///
/// A PlaceHolderVar is evaluated at the lowest relation that has all its columns, so that outer joins above
/// turn it into NULL.
///
/// # Errors
///
/// A refusal if one can't be computed, or not here.
pub unsafe fn place_placeholders(
    place: &Place<'_>,
    relation: Arc<Relation>,
    scope: Rc<Scope>,
) -> Result<(Arc<Relation>, Rc<Scope>), Refusal> {
    let mut placeholders = std::collections::HashMap::new();
    let mut computed = Vec::new();
    for node in unsafe { elements::<pg_sys::Node>((*(*place.relation).reltarget).exprs) } {
        let placeholder =
            unsafe { node_as::<pg_sys::PlaceHolderVar>(node, pg_sys::NodeTag::T_PlaceHolderVar) };
        let Some(placeholder) = placeholder else { continue };
        if scope.find_placeholder(placeholder.phid).is_some() {
            continue;
        }
        unsafe { place.check(placeholder)? };
        let lowered = unsafe { Lowering::new(&scope).lower(placeholder.phexpr.cast())? };
        placeholders.insert(placeholder.phid, name_column(lowered, &mut computed));
    }
    if placeholders.is_empty() {
        return Ok((relation, scope));
    }
    let mut expressions = pass_through(&relation);
    expressions.extend(computed);
    let rows = relation.estimate.rows;
    let relation = Relation::new(Operator::Project { input: relation, expressions }, rows);
    Ok((relation, Rc::new(Scope::Placed { input: scope, placeholders })))
}

/// Every column of a relation as itself.
pub fn pass_through(relation: &Relation) -> Vec<NamedExpression> {
    let columns = relation.columns();
    let column = |(id, data_type)| NamedExpression {
        id,
        expression: pystachio_plan::Expression::column(id, data_type),
    };
    columns.into_iter().map(column).collect()
}

/// Leaves an expression to the operators that read it, if it is NULL wherever an outer join makes its columns NULL.
/// Otherwise gives it a column here. An expression that is computed late is computed for fewer rows.
pub fn defer_or_name(lowered: Lowered, computed: &mut Vec<NamedExpression>) -> Lowered {
    let scale_follows = match &lowered.scale {
        Scale::Varies(scale) => scale.is_null_with_columns(),
        _ => true,
    };
    if scale_follows
        && lowered.expression.is_null_with_columns()
        && lowered.size().parts <= DEFERRED_PARTS_MAX
    {
        return lowered;
    }
    name_column(lowered, computed)
}

/// Gives an expression, and its display scale where that varies, columns of their own.
pub fn name_column(lowered: Lowered, computed: &mut Vec<NamedExpression>) -> Lowered {
    lowered.map_expressions(&mut |expression| {
        let id = with_planning(|planning| planning.new_column());
        let column = pystachio_plan::Expression::column(id, expression.data_type().clone());
        computed.push(NamedExpression { id, expression });
        column
    })
}
