//! Walking PostgreSQL's trees: lists, tags, expressions.
//!
//! Invariants: every function here takes valid nodes, and keeps none.
#![expect(unsafe_code, reason = "reads PostgreSQL's nodes")]

use std::{
    any::Any,
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;

use super::compat;

/// A list of the pointers.
///
/// # Safety
///
/// The pointers are of nodes.
pub unsafe fn list_of<T>(items: impl IntoIterator<Item = *mut T>) -> *mut pg_sys::List {
    // SAFETY: as the caller says.
    items.into_iter().fold(std::ptr::null_mut(), |list, item| unsafe { pg_sys::lappend(list, item.cast()) })
}

/// The tag of a node.
///
/// # Safety
///
/// The node is valid.
pub unsafe fn tag_of(node: *const pg_sys::Node) -> NodeTag {
    // SAFETY: as the caller says.
    unsafe { (*node).type_ }
}

/// Calls `visit` on the node and, while it returns true, on everything below it. Queries inside SubLinks
/// are not entered.
///
/// # Safety
///
/// The node is valid.
pub unsafe fn walk_expression(node: *mut pg_sys::Node, visit: &mut dyn FnMut(*mut pg_sys::Node) -> bool) {
    let mut visit_at = |node, _depth| if visit(node) { Visited::Enter } else { Visited::Pass };
    // SAFETY: as the caller says.
    unsafe { walk_levels(node, compat::walk_children, &mut visit_at) }
}

/// As [`walk_expression`], of a statement that was parsed and not analysed, and of all statements inside it.
///
/// # Safety
///
/// The node is valid.
pub unsafe fn walk_parsed(node: *mut pg_sys::Node, visit: &mut dyn FnMut(*mut pg_sys::Node) -> bool) {
    let mut visit_at = |node, _depth| if visit(node) { Visited::Enter } else { Visited::Pass };
    // SAFETY: as the caller says.
    unsafe { walk_levels(node, compat::walk_parsed, &mut visit_at) }
}

/// As [`walk_expression`], of a query and all queries inside it, with the entries of their range tables.
///
/// # Safety
///
/// The query is valid.
pub unsafe fn walk_queries(query: *mut pg_sys::Query, visit: &mut dyn FnMut(*mut pg_sys::Node) -> bool) {
    unsafe fn children(node: *mut pg_sys::Node, walker: compat::Walker, context: *mut c_void) -> bool {
        // SAFETY: as of the walkers of core. What an entry consists of is visited after it.
        unsafe {
            match tag_of(node) {
                NodeTag::T_Query => compat::walk_query(node.cast(), walker, context),
                NodeTag::T_RangeTblEntry => false,
                _ => compat::walk_children(node, walker, context),
            }
        }
    }
    let mut visit_at = |node, _depth| if visit(node) { Visited::Enter } else { Visited::Pass };
    // SAFETY: as the caller says.
    unsafe { walk_levels(query.cast(), children, &mut visit_at) }
}

/// Whether nodes below `node` nest more than `depth_max` deep, itself included.
///
/// # Safety
///
/// The node is valid.
pub unsafe fn is_deeper(node: *mut pg_sys::Node, depth_max: usize) -> bool {
    let mut found = false;
    let mut visit = |_node, depth| {
        found = found || depth > depth_max;
        if found { Visited::Stop } else { Visited::Enter }
    };
    // SAFETY: as the caller says.
    unsafe { walk_levels(node, compat::walk_children, &mut visit) };
    found
}

/// What follows a visit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visited {
    /// The nodes below.
    Enter,
    /// The nodes beside.
    Pass,
    /// Nothing.
    Stop,
}

/// Called with a node and its depth; lists are visited and are no level.
type VisitAt<'a> = &'a mut dyn FnMut(*mut pg_sys::Node, usize) -> Visited;

/// Calls the walker on the nodes directly below one.
type Children = unsafe fn(*mut pg_sys::Node, compat::Walker, *mut c_void) -> bool;

struct NodeWalk<'a> {
    visit: VisitAt<'a>,
    children: Children,
    depth: usize,
    panic: Option<Box<dyn Any + Send>>,
}

/// Walks as core's own walkers do, with about their need of stack: what core can walk can be walked here. A
/// guard at each level would need ten times as much.
///
/// # Safety
///
/// The node is valid.
unsafe fn walk_levels(node: *mut pg_sys::Node, children: Children, visit: VisitAt<'_>) {
    unsafe extern "C-unwind" fn step(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: a node of the tree, and the context that was given with it.
        unsafe {
            // Nothing here needs dropping while the walker runs, which may leave by an ERROR.
            let walk = context.cast::<NodeWalk<'_>>();
            let level = usize::from(tag_of(node) != NodeTag::T_List);
            (*walk).depth += level;
            let stops = match visit_node(walk, node) {
                Visited::Enter => ((*walk).children)(node, step, context),
                Visited::Pass => false,
                Visited::Stop => true,
            };
            (*walk).depth -= level;
            stops
        }
    }
    #[inline(never)]
    unsafe fn visit_node(walk: *mut NodeWalk<'_>, node: *mut pg_sys::Node) -> Visited {
        // SAFETY: the walk is the caller's and outlives this call.
        let walk = unsafe { &mut *walk };
        let depth = walk.depth;
        catch_unwind(AssertUnwindSafe(|| (walk.visit)(node, depth))).unwrap_or_else(|panic| {
            walk.panic = Some(panic);
            Visited::Stop
        })
    }
    let mut walk = NodeWalk { visit, children, depth: 0, panic: None };
    let context: *mut NodeWalk<'_> = &raw mut walk;
    // SAFETY: as the caller says; the context outlives the walk.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| step(node, context.cast())) };
    if let Some(panic) = walk.panic {
        resume_unwind(panic);
    }
}

/// Whether an entry of a range table satisfies the test: one of the query, of its subqueries and CTEs, or of a query inside
/// a SubLink.
///
/// # Safety
///
/// The query is valid.
pub unsafe fn any_entry(
    query: *mut pg_sys::Query,
    test: &mut dyn FnMut(*mut pg_sys::RangeTblEntry) -> bool,
) -> bool {
    unsafe extern "C-unwind" fn step(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: a node of the tree, and the context that was given with it.
        unsafe {
            // Nothing here needs dropping while the walker runs, which may leave by an ERROR.
            match tag_of(node) {
                NodeTag::T_Query => compat::walk_query(node.cast(), step, context),
                NodeTag::T_RangeTblEntry => satisfies(context.cast::<Search<'_>>(), node.cast()),
                _ => compat::walk_children(node, step, context),
            }
        }
    }
    #[inline(never)]
    unsafe fn satisfies(search: *mut Search<'_>, entry: *mut pg_sys::RangeTblEntry) -> bool {
        // SAFETY: the search belongs to the caller, which waits.
        let search = unsafe { &mut *search };
        catch_unwind(AssertUnwindSafe(|| (search.test)(entry))).unwrap_or_else(|panic| {
            search.panic = Some(panic);
            true
        })
    }
    let mut search = Search { test, panic: None };
    let context: *mut Search<'_> = &raw mut search;
    // SAFETY: as the caller says; the context outlives the walk.
    let found = unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| step(query.cast(), context.cast())) };
    match search.panic {
        Some(panic) => resume_unwind(panic),
        None => found,
    }
}

struct Search<'a> {
    test: &'a mut dyn FnMut(*mut pg_sys::RangeTblEntry) -> bool,
    panic: Option<Box<dyn Any + Send>>,
}

/// Whether a row of the query's relation is named whole, in the query or in one within it.
///
/// # Safety
///
/// The query is valid.
pub unsafe fn names_row(query: *mut pg_sys::Query, relation_index: i32) -> bool {
    struct Search {
        relation_index: i32,
        levels_up: u32,
    }
    unsafe extern "C-unwind" fn step(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the context is the caller's search; nothing here needs dropping while the walker runs, which may leave by an ERROR.
        unsafe {
            let search = context.cast::<Search>();
            match tag_of(node) {
                NodeTag::T_Var => {
                    let var = node.cast::<pg_sys::Var>();
                    (*var).varattno == 0
                        && (*var).varlevelsup == (*search).levels_up
                        && (*var).varno == (*search).relation_index
                }
                NodeTag::T_Query => {
                    (*search).levels_up += 1;
                    let found = compat::walk_query(node.cast(), step, context);
                    (*search).levels_up -= 1;
                    found
                }
                NodeTag::T_RangeTblEntry => false,
                _ => compat::walk_children(node, step, context),
            }
        }
    }
    let mut search = Search { relation_index, levels_up: 0 };
    let context: *mut Search = &raw mut search;
    // SAFETY: as the caller says; the context outlives the walk.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| compat::walk_query(query, step, context.cast())) }
}

/// Whether a node below (or at) `node` satisfies the test.
///
/// # Safety
///
/// The node is valid.
pub unsafe fn contains(node: *mut pg_sys::Node, test: &dyn Fn(*mut pg_sys::Node) -> bool) -> bool {
    let mut found = false;
    // SAFETY: as the caller says.
    unsafe {
        walk_expression(node, &mut |part| {
            found = found || test(part);
            !found
        });
    }
    found
}

/// A copy of an expression, or of a list of such, with other nodes in the place of those for which `replace` has one; what
/// is below them is not looked at. Queries inside SubLinks are shared with the original.
///
/// # Safety
///
/// The node is valid.
pub unsafe fn substitute(
    node: *mut pg_sys::Node,
    replace: &mut dyn FnMut(*mut pg_sys::Node) -> Option<*mut pg_sys::Node>,
) -> *mut pg_sys::Node {
    unsafe extern "C-unwind" fn step(node: *mut pg_sys::Node, context: *mut c_void) -> *mut pg_sys::Node {
        // SAFETY: not NULL, and a node of the tree.
        if node.is_null() || unsafe { tag_of(node) } == NodeTag::T_Query {
            return node;
        }
        // SAFETY: a node of the tree, and the context that was given with it.
        unsafe {
            // Nothing here needs dropping while the mutator runs, which may leave by an ERROR.
            match replacement(context.cast::<Substitution<'_>>(), node) {
                Some(other) => other,
                None => compat::mutate_children(node, step, context),
            }
        }
    }
    #[inline(never)]
    unsafe fn replacement(
        substitution: *mut Substitution<'_>,
        node: *mut pg_sys::Node,
    ) -> Option<*mut pg_sys::Node> {
        // SAFETY: the substitution is the caller's and outlives this call.
        let substitution = unsafe { &mut *substitution };
        catch_unwind(AssertUnwindSafe(|| (substitution.replace)(node))).unwrap_or_else(|panic| {
            substitution.panic = Some(panic);
            Some(node)
        })
    }
    let mut substitution = Substitution { replace, panic: None };
    let context: *mut Substitution<'_> = &raw mut substitution;
    // SAFETY: as the caller says; the context outlives the walk.
    let copy = unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| step(node, context.cast())) };
    match substitution.panic {
        Some(panic) => resume_unwind(panic),
        None => copy,
    }
}

struct Substitution<'a> {
    replace: &'a mut dyn FnMut(*mut pg_sys::Node) -> Option<*mut pg_sys::Node>,
    panic: Option<Box<dyn Any + Send>>,
}

/// A copy of a query with an expression in the place of each of its parameters, in queries within it too: `replace` gets the number of
/// a parameter and how many queries are around it, and gives the expression.
///
/// # Safety
///
/// The query is valid.
pub unsafe fn with_parameters(
    query: *mut pg_sys::Query,
    replace: &mut dyn FnMut(i32, i32) -> *mut pg_sys::Node,
) -> *mut pg_sys::Query {
    struct Replacing<'a> {
        replace: &'a mut dyn FnMut(i32, i32) -> *mut pg_sys::Node,
        level: i32,
        panic: Option<Box<dyn Any + Send>>,
    }
    unsafe extern "C-unwind" fn step(node: *mut pg_sys::Node, context: *mut c_void) -> *mut pg_sys::Node {
        if node.is_null() {
            return node;
        }
        // SAFETY: a node of the tree, and the context that was given with it; nothing here needs dropping while the mutator runs, which
        // may leave by an ERROR.
        unsafe {
            let replacing = context.cast::<Replacing<'_>>();
            match tag_of(node) {
                NodeTag::T_Query => {
                    (*replacing).level += 1;
                    let copy = compat::mutate_query(node.cast(), step, context);
                    (*replacing).level -= 1;
                    copy.cast()
                }
                NodeTag::T_Param
                    if (*node.cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_EXTERN =>
                {
                    replacement(replacing, (*node.cast::<pg_sys::Param>()).paramid)
                }
                _ => compat::mutate_children(node, step, context),
            }
        }
    }
    #[inline(never)]
    unsafe fn replacement(replacing: *mut Replacing<'_>, number: i32) -> *mut pg_sys::Node {
        // SAFETY: the context is the caller's and outlives this call.
        let replacing = unsafe { &mut *replacing };
        let level = replacing.level;
        catch_unwind(AssertUnwindSafe(|| (replacing.replace)(number, level))).unwrap_or_else(|panic| {
            replacing.panic = Some(panic);
            std::ptr::null_mut()
        })
    }
    let mut replacing = Replacing { replace, level: 0, panic: None };
    let context: *mut Replacing<'_> = &raw mut replacing;
    // SAFETY: as the caller says; the context outlives the walk.
    let copy = unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| step(query.cast(), context.cast())) };
    match replacing.panic {
        Some(panic) => resume_unwind(panic),
        None => copy.cast(),
    }
}
