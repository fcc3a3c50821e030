//! Paths: ways to compute a relation, with their costs.

use pgrx::pg_sys;

use super::{
    Clause, List, Node, Rel, Root, Target,
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
    pathtype as plan_tag: pg_sys::NodeTag;
    pathtarget as target: Target<'p>;
    parent as relation: Rel<'p>;
    param_info as parameterization: Option<Ref<'p, pg_sys::ParamPathInfo>>;
    rows as rows: f64;
    rows = set_rows: f64;
    startup_cost as startup_cost: f64;
    startup_cost = set_startup_cost: f64;
    total_cost as total_cost: f64;
    total_cost = set_total_cost: f64;
    pathkeys as pathkeys: List<'p, pg_sys::PathKey>;
    pathkeys = set_pathkeys: List<'p, pg_sys::PathKey>;
    parallel_aware = set_is_parallel_aware: bool;
    parallel_safe = set_is_parallel_safe: bool;
    parallel_workers = set_parallel_workers: i32;
} }

fields! { 'p ForeignPath {
    fdw_private as private: List<'p, pg_sys::Node>;
    fdw_private = set_private: List<'p, pg_sys::Node>;
} }

fields! { 'p CustomPath {
    flags = set_flags: u32;
    custom_paths as paths: List<'p, pg_sys::Path>;
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
fields! { 'p ProjectSetPath { subpath as path: Path<'p>; } }
fields! { 'p SubqueryScanPath { subpath as path: Path<'p>; } }

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

    /// Whether it is a path by these methods.
    pub fn has_methods(self, methods: &'static pg_sys::CustomPathMethods) -> bool {
        // SAFETY: a field of a valid structure.
        std::ptr::eq(unsafe { (*self.pointer()).methods }, methods)
    }
}

/// The expressions of clauses.
pub fn expressions_of<'p>(clauses: impl IntoIterator<Item = Clause<'p>>) -> List<'p, pg_sys::Node> {
    let expressions = clauses.into_iter().map(|clause| -> Node<'p> { clause.expression() });
    List::of(expressions)
}
