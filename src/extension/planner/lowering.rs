//! The way from PostgreSQL's nodes to plan expressions: a node is mirrored ([`crate::pg::mirror`]), and the mirror is lowered
//! ([`pystachio_lower`]).
//!
//! Invariant: a clause that lives as long as the planning is mirrored once. A join search looks at it for each pair of inputs.

use std::rc::Rc;

use pgrx::pg_sys;
use pystachio_lower::{Lowered, LoweredAggregate, Notes, Part, Refusal, Scope, Source};
use pystachio_plan::Expression;

use super::planning::with_planning;
use crate::pg::mirror::{self, Origins, Postgres, collation, source_type};

/// Lowers expressions over one scope.
pub struct Lowering<'scope> {
    scope: &'scope Scope,
    notes: Rc<Notes>,
    origins: Rc<Origins>,
}

impl<'scope> Lowering<'scope> {
    /// A lowering over the scope, which notes for the current run of the planner.
    pub fn new(scope: &'scope Scope) -> Self {
        let (notes, origins) =
            with_planning(|planning| (planning.notes().clone(), planning.origins().clone()));
        Self { scope, notes, origins }
    }

    /// The expression as a value.
    pub unsafe fn mirror(&self, node: *mut pg_sys::Node) -> Result<Source, Refusal> {
        unsafe { mirror::mirror(node, &self.origins) }
    }

    /// The plan expression with exactly PostgreSQL's value, or why there is none.
    pub unsafe fn lower(&self, node: *mut pg_sys::Node) -> Result<Lowered, Refusal> {
        self.of_sources().lower(&unsafe { self.mirror(node)? })
    }

    /// The same of a mirror.
    pub fn lower_source(&self, source: &Source) -> Result<Lowered, Refusal> {
        self.of_sources().lower(source)
    }

    /// A condition.
    pub unsafe fn lower_condition(&self, node: *mut pg_sys::Node) -> Result<Expression, Refusal> {
        self.of_sources().lower_condition(&unsafe { self.mirror(node)? })
    }

    /// The condition of a clause.
    pub unsafe fn lower_clause(
        &self,
        root: *mut pg_sys::PlannerInfo,
        clause: *mut pg_sys::RestrictInfo,
    ) -> Result<Expression, Refusal> {
        self.of_sources().lower_condition(&*unsafe { self.mirror_clause(root, clause)? })
    }

    /// Something that need not be evaluated for every row.
    pub unsafe fn lower_conditionally(&self, node: *mut pg_sys::Node) -> Result<Lowered, Refusal> {
        self.of_sources().lower_conditionally(&unsafe { self.mirror(node)? })
    }

    /// An aggregate of a grouping over this scope, and its mirror.
    pub unsafe fn lower_aggregate(
        &self,
        aggregate: *mut pg_sys::Aggref,
    ) -> Result<(Source, LoweredAggregate), Refusal> {
        let source = unsafe { self.mirror(aggregate.cast())? };
        let lowered = match &source.part {
            Part::Aggregate(aggregate) => self.of_sources().lower_aggregate(aggregate)?,
            _ => return Err(Refusal::AggregateOutside),
        };
        Ok((source, lowered))
    }

    fn of_sources(&self) -> pystachio_lower::Lowering<'_> {
        pystachio_lower::Lowering::new(self.scope, &self.notes, &Postgres)
    }

    unsafe fn mirror_clause(
        &self,
        root: *mut pg_sys::PlannerInfo,
        clause: *mut pg_sys::RestrictInfo,
    ) -> Result<Rc<Source>, Refusal> {
        unsafe {
            let known = with_planning(|planning| planning.mirror_of(clause));
            if let Some(known) = known.filter(|_| is_lasting(root, clause)) {
                return Ok(known);
            }
            let source = Rc::new(self.mirror((*clause).clause.cast())?);
            if is_lasting(root, clause) {
                with_planning(|planning| planning.keep_mirror(clause, source.clone()));
            }
            Ok(source)
        }
    }
}

/// Whether a clause lives as long as the planning. The genetic search frees others, and their place may become that of another
/// clause.
pub unsafe fn is_lasting(root: *mut pg_sys::PlannerInfo, clause: *mut pg_sys::RestrictInfo) -> bool {
    unsafe { pg_sys::GetMemoryChunkContext(clause.cast()) == (*root).planner_cxt }
}

/// Whether an engine orders by an expression as PostgreSQL does.
pub unsafe fn check_order(node: *mut pg_sys::Node) -> Result<(), Refusal> {
    let (of, collation) =
        unsafe { (source_type(pg_sys::exprType(node)), collation(pg_sys::exprCollation(node))) };
    pystachio_lower::check_order(&of, collation.as_deref(), &Postgres)
}

/// Whether equality of an expression's values is that of their bytes.
pub unsafe fn check_equality(node: *mut pg_sys::Node) -> Result<(), Refusal> {
    let (of, collation) =
        unsafe { (source_type(pg_sys::exprType(node)), collation(pg_sys::exprCollation(node))) };
    pystachio_lower::check_equality(&of, collation.as_deref(), &Postgres)
}
