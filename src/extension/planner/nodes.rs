//! Walking PostgreSQL's trees: lists, tags, expressions.
//!
//! Invariants: every function here takes pointers that PostgreSQL's planner made and that live as long as
//! the planning in which they are used.

use std::ffi::c_void;

use pgrx::pg_sys::NodeTag;
use pgrx::{pg_sys, prelude::*};

pub use crate::pg::list::{pointers as elements, string as text_of};

/// How many elements a list has.
pub unsafe fn element_count(list: *mut pg_sys::List) -> usize {
    if list.is_null() { 0 } else { unsafe { (*list).length as usize } }
}

/// A list of the pointers.
pub unsafe fn list_of<T>(items: impl IntoIterator<Item = *mut T>) -> *mut pg_sys::List {
    items.into_iter().fold(std::ptr::null_mut(), |list, item| unsafe { pg_sys::lappend(list, item.cast()) })
}

/// The node as `T`, if it has that tag.
pub unsafe fn node_as<'a, T>(node: *const pg_sys::Node, tag: NodeTag) -> Option<&'a T> {
    unsafe { if !node.is_null() && (*node).type_ == tag { Some(&*node.cast::<T>()) } else { None } }
}

/// The tag of a node.
pub unsafe fn tag_of(node: *const pg_sys::Node) -> NodeTag {
    unsafe { (*node).type_ }
}

/// Calls `visit` on the node and, while it returns true, on everything below it. Queries inside SubLinks
/// are not entered.
pub unsafe fn walk_expression(node: *mut pg_sys::Node, visit: &mut dyn FnMut(*mut pg_sys::Node) -> bool) {
    #[pg_guard]
    unsafe extern "C-unwind" fn step(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        unsafe {
            let visit = &mut *context.cast::<&mut dyn FnMut(*mut pg_sys::Node) -> bool>();
            if visit(node) {
                pg_sys::expression_tree_walker(node, Some(step), context);
            }
        }
        false
    }
    let mut visit: &mut dyn FnMut(*mut pg_sys::Node) -> bool = visit;
    unsafe {
        step(node, (&raw mut visit).cast());
    }
}

/// Whether a node below (or at) `node` satisfies the test.
pub unsafe fn contains(node: *mut pg_sys::Node, test: &dyn Fn(*mut pg_sys::Node) -> bool) -> bool {
    let mut found = false;
    unsafe {
        walk_expression(node, &mut |part| {
            found = found || test(part);
            !found
        });
    }
    found
}

/// A new node of zeroes with the tag, in the current memory context.
pub unsafe fn make_node<T>(tag: NodeTag) -> *mut T {
    unsafe {
        let node = pg_sys::palloc0(size_of::<T>()).cast::<pg_sys::Node>();
        (*node).type_ = tag;
        node.cast()
    }
}
