//! Paths: ways to compute a relation, with their costs.

use pgrx::pg_sys;

use super::{
    Clause, JoinPair, List, Node, Rel, Root, Target,
    fields::{fields, kinds},
    reference::{HasTag, Ref},
};
use crate::pg::compat;

/// A path of any kind.
pub type Path<'p> = Ref<'p, pg_sys::Path>;
/// A path of a foreign-data wrapper.
pub type ForeignPath<'p> = Ref<'p, pg_sys::ForeignPath>;
/// A path of an extension's own kind.
pub type CustomPath<'p> = Ref<'p, pg_sys::CustomPath>;

kinds! {
    ForeignPath = T_ForeignPath;
    CustomPath = T_CustomPath;
    AppendPath = T_AppendPath;
    AggPath = T_AggPath;
    GroupPath = T_GroupPath;
    SortPath = T_SortPath;
    ProjectionPath = T_ProjectionPath;
    ProjectSetPath = T_ProjectSetPath;
    SubqueryScanPath = T_SubqueryScanPath;
}

// SAFETY: every path begins with a tag.
unsafe impl HasTag for pg_sys::Path {}

fields! { 'p Path {
    parent as parent: Rel<'p>;
    pathtarget as target: Target<'p>;
    param_info as parameterization: Option<Ref<'p, pg_sys::ParamPathInfo>>;
    rows as rows: f64;
    rows = set_rows: f64;
    startup_cost as startup_cost: f64;
    startup_cost = set_startup_cost: f64;
    total_cost as total_cost: f64;
    total_cost = set_total_cost: f64;
    pathkeys as pathkeys: List<'p, pg_sys::PathKey>;
    pathkeys = set_pathkeys: List<'p, pg_sys::PathKey>;
} }

fields! { 'p ForeignPath {
    fdw_private as private: List<'p, pg_sys::Node>;
    fdw_private = set_private: List<'p, pg_sys::Node>;
    fdw_outerpath = set_outer: Path<'p>;
} }

fields! { 'p CustomPath {
    custom_paths = set_paths: List<'p, pg_sys::Path>;
    custom_private as private: List<'p, pg_sys::Node>;
    custom_private = set_private: List<'p, pg_sys::Node>;
} }

fields! { 'p AppendPath {
    subpaths as paths: List<'p, pg_sys::Path>;
} }

fields! { 'p AggPath {
    aggstrategy as strategy: u32;
    subpath as path: Path<'p>;
} }

fields! { 'p GroupPath { subpath as path: Path<'p>; } }
fields! { 'p SortPath { subpath as path: Path<'p>; } }
fields! { 'p ProjectionPath { subpath as path: Path<'p>; } }
fields! { 'p SubqueryScanPath { subpath as path: Path<'p>; } }

impl<'p> Path<'p> {
    /// The path whose rows this one passes on, each or one of equal ones, and no others.
    pub fn passed_on(self) -> Option<Path<'p>> {
        None.or_else(|| self.downcast::<pg_sys::GroupPath>().map(|path| path.path()))
            .or_else(|| self.downcast::<pg_sys::SortPath>().map(|path| path.path()))
            .or_else(|| self.downcast::<pg_sys::ProjectionPath>().map(|path| path.path()))
            .or_else(|| self.downcast::<pg_sys::SubqueryScanPath>().map(|path| path.path()))
    }
}

impl<'p> ForeignPath<'p> {
    /// What it has in common with other paths.
    pub fn path(self) -> Path<'p> {
        // SAFETY: it begins with a path.
        unsafe { self.cast() }
    }

    /// A path for a base relation, with columns of the relations that it has to be joined below (LATERAL).
    pub fn of_scan(root: Root<'p>, relation: Rel<'p>, (startup, total): (f64, f64)) -> Self {
        // SAFETY: a relation of this planning.
        unsafe {
            Ref::known(compat::create_foreign_scan_path(root.pointer(), relation.pointer(), startup, total))
        }
    }

    /// A path for a join. Pseudoconstant clauses are conditions of the plan, so core is given none to check.
    pub fn of_join(root: Root<'p>, relation: Rel<'p>, (startup, total): (f64, f64)) -> Self {
        // SAFETY: a relation of this planning.
        unsafe {
            Ref::known(compat::create_foreign_join_path(root.pointer(), relation.pointer(), startup, total))
        }
    }

    /// A path for a stage above the joins.
    pub fn of_stage(
        root: Root<'p>,
        relation: Rel<'p>,
        target: Target<'p>,
        rows: f64,
        costs: (f64, f64),
        pathkeys: List<'p, pg_sys::PathKey>,
    ) -> Self {
        // SAFETY: all are of this planning.
        unsafe {
            let (root, relation, target) = (root.pointer(), relation.pointer(), target.pointer());
            Ref::known(compat::create_foreign_upper_path(
                root,
                relation,
                target,
                rows,
                costs,
                pathkeys.pointer(),
            ))
        }
    }
}

impl<'p> CustomPath<'p> {
    /// What it has in common with other paths.
    pub fn path(self) -> Path<'p> {
        // SAFETY: it begins with a path.
        unsafe { self.cast() }
    }
}

/// The path of a subquery of FROM that reads one path of its own, in no order.
pub fn subquery_scan<'p>(root: Root<'p>, relation: Rel<'p>, path: Path<'p>) -> Path<'p> {
    // SAFETY: a relation of this planning, and a path of the subquery's last relation.
    unsafe {
        Ref::known(compat::create_subquery_scan_path(root.pointer(), relation.pointer(), path.pointer()))
    }
}

/// The path that reads one path after the other.
pub fn append<'p>(root: Root<'p>, relation: Rel<'p>, paths: List<'p, pg_sys::Path>) -> Path<'p> {
    let none = std::ptr::null_mut();
    // SAFETY: a relation of this planning, and paths of its members.
    unsafe {
        let path = pg_sys::create_append_path(
            root.pointer(),
            relation.pointer(),
            paths.pointer(),
            none,
            none,
            none.cast(),
            0,
            false,
            -1.0,
        );
        Ref::known(path.cast())
    }
}

/// The path of a join by hash on these clauses.
pub fn hash_join<'p>(
    pair: &JoinPair<'p>,
    outer: Path<'p>,
    inner: Path<'p>,
    clauses: List<'p, pg_sys::RestrictInfo>,
) -> Path<'p> {
    let mut workspace = pg_sys::JoinCostWorkspace::default();
    let (root, extra) = (pair.root.pointer(), pair.extra.pointer());
    let (outer, inner, clauses) = (outer.pointer(), inner.pointer(), clauses.pointer());
    // SAFETY: paths of the two sides, and clauses between them.
    unsafe {
        pg_sys::initial_cost_hashjoin(
            root,
            &raw mut workspace,
            pair.join_type,
            clauses,
            outer,
            inner,
            extra,
            false,
        );
        let path = pg_sys::create_hashjoin_path(
            root,
            pair.joined.pointer(),
            pair.join_type,
            &raw mut workspace,
            extra,
            outer,
            inner,
            false,
            pair.extra.clauses().pointer(),
            std::ptr::null_mut(),
            clauses,
        );
        Ref::known(path.cast())
    }
}

/// A row count as PostgreSQL wants it: whole, at least one.
pub fn clamp_row_count(rows: f64) -> f64 {
    // SAFETY: arithmetic.
    unsafe { pg_sys::clamp_row_est(rows) }
}

/// What PostgreSQL is told that an operator costs.
pub fn operator_cost() -> f64 {
    // SAFETY: a setting.
    unsafe { pg_sys::cpu_operator_cost }
}

/// The expressions of clauses.
pub fn expressions_of<'p>(clauses: impl IntoIterator<Item = Clause<'p>>) -> List<'p, pg_sys::Node> {
    let expressions = clauses.into_iter().map(|clause| -> Node<'p> { clause.expression() });
    List::of(expressions)
}
