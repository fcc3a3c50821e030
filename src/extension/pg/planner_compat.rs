//! What differs between PostgreSQL's versions in the planner.
#![expect(unsafe_code, reason = "declares and calls C functions")]

use std::ffi::c_int;

use pgrx::pg_sys;

use super::list::pointers;

/// Whether core keeps joins with pseudoconstant clauses from foreign-data wrappers.
pub const HIDES_PSEUDOCONSTANT_JOINS: bool = cfg!(any(feature = "pg15", feature = "pg16"));

unsafe extern "C-unwind" {
    #[link_name = "geqo"]
    fn geqo_unguarded(
        root: *mut pg_sys::PlannerInfo,
        number_of_rels: c_int,
        initial_rels: *mut pg_sys::List,
    ) -> *mut pg_sys::RelOptInfo;
}

/// The genetic join search, which pgrx does not bind.
///
/// # Safety
///
/// As `standard_join_search`.
pub unsafe fn geqo(
    root: *mut pg_sys::PlannerInfo,
    levels: c_int,
    initial: *mut pg_sys::List,
) -> *mut pg_sys::RelOptInfo {
    // SAFETY: the arguments are core's own.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| geqo_unguarded(root, levels, initial)) }
}

/// An attribute of a tuple descriptor.
///
/// # Safety
///
/// `descriptor` has more than `place` attributes and outlives the result.
pub unsafe fn tuple_attribute<'a>(
    descriptor: pg_sys::TupleDesc,
    place: usize,
) -> &'a pg_sys::FormData_pg_attribute {
    // SAFETY: the caller says that there is such an attribute.
    unsafe {
        #[cfg(feature = "pg18")]
        return &*pg_sys::TupleDescAttr(descriptor, place as i32);
        #[cfg(not(feature = "pg18"))]
        return &*(*descriptor).attrs.as_ptr().add(place);
    }
}

const NIL: *mut pg_sys::List = std::ptr::null_mut();

/// A path for a base relation.
///
/// # Safety
///
/// `root` and `relation` are the planner's own.
pub unsafe fn create_foreign_scan_path(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    startup_cost: f64,
    total_cost: f64,
) -> *mut pg_sys::ForeignPath {
    // SAFETY: as the caller says.
    unsafe {
        pg_sys::create_foreignscan_path(
            root,
            relation,
            std::ptr::null_mut(),
            (*relation).rows,
            #[cfg(feature = "pg18")]
            0,
            startup_cost,
            total_cost,
            NIL,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            NIL,
            NIL,
        )
    }
}

/// A path for a join relation. Pseudoconstant clauses are conditions of the plan, so core is given none to
/// check.
///
/// # Safety
///
/// `root` and `relation` are the planner's own.
pub unsafe fn create_foreign_join_path(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    startup_cost: f64,
    total_cost: f64,
) -> *mut pg_sys::ForeignPath {
    // SAFETY: as the caller says.
    unsafe {
        pg_sys::create_foreign_join_path(
            root,
            relation,
            std::ptr::null_mut(),
            (*relation).rows,
            #[cfg(feature = "pg18")]
            0,
            startup_cost,
            total_cost,
            NIL,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            NIL,
            NIL,
        )
    }
}

/// A path for an upper relation; `costs` are startup and total.
///
/// # Safety
///
/// `root`, `relation`, `target` and `pathkeys` are the planner's own.
pub unsafe fn create_foreign_upper_path(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    target: *mut pg_sys::PathTarget,
    rows: f64,
    costs: (f64, f64),
    pathkeys: *mut pg_sys::List,
) -> *mut pg_sys::ForeignPath {
    // SAFETY: as the caller says.
    unsafe {
        pg_sys::create_foreign_upper_path(
            root,
            relation,
            target,
            rows,
            #[cfg(feature = "pg18")]
            0,
            costs.0,
            costs.1,
            pathkeys,
            std::ptr::null_mut(),
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            NIL,
            NIL,
        )
    }
}

/// Appends the tables of an absorbed subquery to a statement, so that the executor checks their
/// permissions and locks them, and the plan is made anew when they change.
///
/// # Safety
///
/// `statement` is a finished plan, and `query` the subquery that became part of it.
pub unsafe fn append_range_table(statement: *mut pg_sys::PlannedStmt, query: *mut pg_sys::Query) {
    // SAFETY: range tables are lists of entries, and a subquery's entry has its query or none.
    unsafe {
        for entry in pointers::<pg_sys::RangeTblEntry>((*query).rtable) {
            if !(*entry).subquery.is_null() && (*entry).rtekind == pg_sys::RTEKind::RTE_SUBQUERY {
                append_range_table(statement, (*entry).subquery);
            }
            if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION {
                append_table(statement, query, entry);
            }
        }
    }
}

unsafe fn append_table(
    statement: *mut pg_sys::PlannedStmt,
    query: *mut pg_sys::Query,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: as the caller says; the copy lives as long as the statement.
    unsafe {
        let copy: *mut pg_sys::RangeTblEntry = pg_sys::copyObjectImpl(entry.cast()).cast();
        // As core flattens its own: what only the parser needed is dropped.
        (*copy).tablesample = std::ptr::null_mut();
        (*copy).joinaliasvars = NIL;
        (*copy).functions = NIL;
        (*copy).values_lists = NIL;
        (*copy).securityQuals = NIL;
        #[cfg(not(feature = "pg15"))]
        {
            if (*copy).perminfoindex > 0 {
                let permissions = pg_sys::getRTEPermissionInfo((*query).rteperminfos, entry);
                (*copy).perminfoindex = 0;
                let added = pg_sys::addRTEPermissionInfo(&raw mut (*statement).permInfos, copy);
                let index = (*copy).perminfoindex;
                *added = *permissions;
                (*copy).perminfoindex = index;
            }
        }
        #[cfg(feature = "pg15")]
        let _ = query;
        (*statement).rtable = pg_sys::lappend((*statement).rtable, copy.cast());
        #[cfg(feature = "pg18")]
        {
            let index = (*(*statement).rtable).length;
            (*statement).unprunableRelids = pg_sys::bms_add_member((*statement).unprunableRelids, index);
        }
        (*statement).relationOids = pg_sys::lappend_oid((*statement).relationOids, (*entry).relid);
    }
}
