//! Paths and plans of our own kinds: a keyed join, its small side, and the node that sends rows to
//! an engine.

use std::ffi::CStr;

use pgrx::{pg_sys, prelude::*};

use super::{
    CustomPath, List, Path, Plan, Ref, Rel, Root, Tagged,
    entry::callbacks,
    fields::{fields, kinds},
};
use crate::pg::compat::{self, Shared};

/// A plan of an extension's own kind.
pub type CustomScan<'p> = Ref<'p, pg_sys::CustomScan>;

kinds! {
    CustomScan = T_CustomScan;
}

fields! { 'p CustomScan {
    custom_plans as plans: List<'p, pg_sys::Plan>;
    custom_exprs = set_expressions: List<'p, pg_sys::Node>;
} }

/// Our kinds of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomKind {
    /// The join.
    KeyedJoin,
    /// The small side, which notes its keys.
    JoinKeys,
    /// What sends the rows of its children to an engine.
    SendRows,
}

impl CustomKind {
    const ALL: [Self; 3] = [Self::KeyedJoin, Self::JoinKeys, Self::SendRows];

    fn methods(self) -> &'static pg_sys::CustomPathMethods {
        match self {
            Self::KeyedJoin => &KEYED_JOIN_PATH.0,
            Self::JoinKeys => &JOIN_KEYS_PATH.0,
            Self::SendRows => &SEND_ROWS_PATH.0,
        }
    }
}

/// A path of our own kinds of which a plan is made.
#[derive(Clone, Copy)]
pub struct ChosenCustomPath<'p> {
    /// The planning.
    pub root: Root<'p>,
    /// Which kind.
    pub kind: CustomKind,
    /// What the path keeps.
    pub private: List<'p, pg_sys::Node>,
    /// What the plan returns.
    pub targets: List<'p, pg_sys::TargetEntry>,
    /// The plans of the paths below.
    pub children: List<'p, pg_sys::Plan>,
}

static KEYED_JOIN_PATH: Shared<pg_sys::CustomPathMethods> = methods(c"Keyed Join");
static JOIN_KEYS_PATH: Shared<pg_sys::CustomPathMethods> = methods(c"Join Keys");
static SEND_ROWS_PATH: Shared<pg_sys::CustomPathMethods> = methods(c"Send Rows");

const fn methods(name: &'static CStr) -> Shared<pg_sys::CustomPathMethods> {
    Shared(pg_sys::CustomPathMethods {
        CustomName: name.as_ptr(),
        PlanCustomPath: Some(plan_custom_path),
        ReparameterizeCustomPathByChild: None,
    })
}

#[pg_guard]
unsafe extern "C-unwind" fn plan_custom_path(
    root: *mut pg_sys::PlannerInfo,
    _relation: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    targets: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: PostgreSQL's arguments, for the time of this call.
    let (root, path, targets, children) =
        unsafe { (Ref::known(root), CustomPath::known(path), List::new(targets), List::new(children)) };
    let Some(kind) = path.kind() else {
        pgrx::error!("pystachio was asked for the plan of a path that another extension made");
    };
    let chosen = ChosenCustomPath { root, kind, private: path.private(), targets, children };
    (callbacks().plan_custom)(&chosen).pointer().cast()
}

impl<'p> CustomPath<'p> {
    /// A path that gives the rows of another.
    pub fn over(child: Path<'p>, kind: CustomKind, private: List<'p, pg_sys::Node>) -> Self {
        let path = child.memory().make::<pg_sys::CustomPath>();
        // SAFETY: a new path, whose parts are those of its child.
        unsafe {
            let (new, child) = (path.pointer(), child.pointer());
            (*new).path.pathtype = pg_sys::CustomScan::TAG;
            (*new).path.parent = (*child).parent;
            (*new).path.pathtarget = (*child).pathtarget;
            (*new).path.rows = (*child).rows;
            (*new).path.startup_cost = (*child).startup_cost;
            (*new).path.total_cost = (*child).total_cost;
            compat::copy_disabled_nodes(&raw mut (*new).path, child);
            (*new).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
            (*new).methods = kind.methods();
        }
        path.set_paths(List::of([child]));
        path.set_private(private);
        path
    }

    /// A path without rows and columns of its own, below a scan of a relation, which reads others to their end.
    pub fn reading(relation: Rel<'p>, children: List<'p, pg_sys::Path>, kind: CustomKind) -> Self {
        let path = relation.memory().make::<pg_sys::CustomPath>();
        // SAFETY: a new path, over paths of the same planning.
        unsafe {
            let new = path.pointer();
            (*new).path.pathtype = pg_sys::CustomScan::TAG;
            (*new).path.parent = relation.pointer();
            (*new).path.pathtarget = pg_sys::create_empty_pathtarget();
            for child in children.iter() {
                (*new).path.total_cost += child.total_cost();
                compat::copy_disabled_nodes(&raw mut (*new).path, child.pointer());
            }
            (*new).path.startup_cost = (*new).path.total_cost;
            (*new).methods = kind.methods();
        }
        path.set_paths(children);
        path
    }

    /// Which of our kinds it is; `None` of another extension's.
    pub fn kind(self) -> Option<CustomKind> {
        // SAFETY: a field of a valid structure.
        let methods = unsafe { (*self.pointer()).methods };
        CustomKind::ALL.into_iter().find(|kind| std::ptr::eq(methods, kind.methods()))
    }
}

impl<'p> CustomScan<'p> {
    /// A plan whose rows are those of its only child, which has applied all clauses.
    pub fn over(
        chosen: &ChosenCustomPath<'p>,
        methods: &'static pg_sys::CustomScanMethods,
        private: List<'p, pg_sys::Node>,
    ) -> Self {
        let scan = chosen.root.memory().make::<pg_sys::CustomScan>();
        let scan_targets = chosen.children.first().map_or(List::nil(), |child| child.targets().deep_copy());
        // SAFETY: a new node, and lists of this planning.
        unsafe {
            let new = scan.pointer();
            (*new).scan.plan.targetlist = chosen.targets.pointer();
            (*new).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
            (*new).custom_plans = chosen.children.pointer();
            (*new).custom_private = private.pointer();
            (*new).custom_scan_tlist = scan_targets.pointer();
            (*new).methods = methods;
        }
        scan
    }
}

impl<'p> CustomScan<'p> {
    /// A plan without rows and columns of its own, which reads its children.
    pub fn reading(chosen: &ChosenCustomPath<'p>, methods: &'static pg_sys::CustomScanMethods) -> Self {
        let scan = chosen.root.memory().make::<pg_sys::CustomScan>();
        // SAFETY: a new node, and a list of this planning.
        unsafe {
            let new = scan.pointer();
            (*new).custom_plans = chosen.children.pointer();
            (*new).methods = methods;
        }
        scan
    }
}

impl<'p> Plan<'p> {
    /// Whether it is a plan by one of these methods.
    pub fn has_methods(self, methods: &[&'static pg_sys::CustomScanMethods]) -> bool {
        self.downcast::<pg_sys::CustomScan>().is_some_and(|scan| {
            // SAFETY: a field of a valid structure.
            let own = unsafe { (*scan.pointer()).methods };
            methods.iter().any(|known| std::ptr::eq(own, *known))
        })
    }
}
