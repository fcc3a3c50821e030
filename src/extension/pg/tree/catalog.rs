//! What catalogs say of columns, servers, operators, functions and collations, as values of our own.

use std::{ffi::CStr, marker::PhantomData, sync::OnceLock};

use pgrx::{pg_sys, pg_sys::Oid, prelude::*};
use pystachio_lower::Constant;

use super::{FunctionCall, List, Query, Ref};
use crate::pg::{compat, list, mirror::constant};

/// What ANALYZE has found in a column.
pub struct AnalyzedColumn {
    /// The part of the rows in which it is NULL.
    pub null_fraction: f64,
    /// The type of the values; invalid if there are none.
    pub type_oid: Oid,
    /// The most common values, and the part of the rows that has each; the most frequent first.
    pub common: Vec<(Constant, f64)>,
}

/// What ANALYZE has found in a column of a table alone, without its children. `None` if it has not looked. No more than `values_max`
/// of the common values.
pub fn analyzed_column(table_oid: Oid, attribute_number: i16, values_max: usize) -> Option<AnalyzedColumn> {
    // SAFETY: the row is held until it has been read; a slot has as many values as it says, of the type that it says.
    unsafe {
        let row = pg_sys::SearchSysCache3(
            pg_sys::SysCacheIdentifier::STATRELATTINH as i32,
            table_oid.into(),
            pg_sys::Datum::from(attribute_number),
            pg_sys::Datum::from(false),
        );
        if row.is_null() {
            return None;
        }
        let statistic = pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_statistic>();
        let null_fraction = f64::from((*statistic).stanullfrac);
        let mut slot = pg_sys::AttStatsSlot::default();
        let has_list = pg_sys::get_attstatsslot(
            &raw mut slot,
            row,
            pg_sys::STATISTIC_KIND_MCV as i32,
            pg_sys::InvalidOid,
            (pg_sys::ATTSTATSSLOT_VALUES | pg_sys::ATTSTATSSLOT_NUMBERS) as i32,
        );
        let mut common = Vec::new();
        if has_list {
            let count = slot.nvalues.min(slot.nnumbers).max(0) as usize;
            for place in 0..count.min(values_max) {
                let value = constant(*slot.values.add(place), false, slot.valuetype);
                common.push((value, f64::from(*slot.numbers.add(place))));
            }
            pg_sys::free_attstatsslot(&raw mut slot);
        }
        pg_sys::ReleaseSysCache(row);
        Some(AnalyzedColumn { null_fraction, type_oid: slot.valuetype, common })
    }
}

/// Whether a role may read a column of a table.
pub fn may_read_column(table_oid: Oid, attribute_number: i16, role: Oid) -> bool {
    let select = pg_sys::ACL_SELECT as pg_sys::AclMode;
    let allowed = pg_sys::AclResult::ACLCHECK_OK;
    // SAFETY: looks into catalogs.
    unsafe {
        pg_sys::pg_class_aclcheck(table_oid, role, select) == allowed
            || pg_sys::pg_attribute_aclcheck(table_oid, attribute_number, role, select) == allowed
    }
}

/// The current role.
pub fn current_role() -> Oid {
    // SAFETY: set in every session.
    unsafe { pg_sys::GetUserId() }
}

/// Whether policies of a table bind the current role.
pub fn is_bound_by_policies(table_oid: Oid) -> bool {
    // SAFETY: a look into a catalog, which raises no ERROR.
    let policies = unsafe { pg_sys::check_enable_rls(table_oid, pg_sys::InvalidOid, true) };
    policies == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
}

/// The wrapper of each of the database's servers.
pub fn wrappers_of_servers() -> Vec<Oid> {
    let mut found = Vec::new();
    // SAFETY: a scan of a catalog that is open; each row is valid until the next is asked for.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::ForeignServerRelationId, pg_sys::AccessShareLock as i32);
        let (snapshot, keys) = (std::ptr::null_mut(), std::ptr::null_mut());
        let scan = pg_sys::systable_beginscan(catalog, pg_sys::InvalidOid, false, snapshot, 0, keys);
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            found.push((*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_foreign_server>()).srvfdw);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as i32);
    }
    found
}

/// The handler of a wrapper; invalid if it has none.
pub fn handler_of(wrapper_oid: Oid) -> Oid {
    // SAFETY: a look into a catalog, which gives a wrapper or an ERROR.
    unsafe { (*pg_sys::GetForeignDataWrapper(wrapper_oid)).fdwhandler }
}

/// The library of a function in C. It is not loaded.
pub fn library_of(function_oid: Oid) -> Option<String> {
    // SAFETY: the row is held until it has been read; the column is a text.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let row = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function_oid));
        if row.is_null() {
            return None;
        }
        let mut is_null = false;
        let library = pg_sys::SysCacheGetAttr(cache, row, pg_sys::Anum_pg_proc_probin as _, &mut is_null);
        let library = (!is_null).then(|| list::string(pg_sys::text_to_cstring(library.cast_mut_ptr())));
        pg_sys::ReleaseSysCache(row);
        library
    }
}

/// Whether a function is one of this library, of a symbol.
pub fn is_own_function(function_oid: Oid, symbol: &CStr) -> bool {
    // None is part of PostgreSQL itself.
    if u32::from(function_oid) < pg_sys::FirstNormalObjectId {
        return false;
    }
    // SAFETY: the row is held until it has been read; the column is a text.
    let is_symbol = unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let row = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function_oid));
        if row.is_null() {
            return false;
        }
        let mut is_null = false;
        let source = pg_sys::SysCacheGetAttr(cache, row, pg_sys::Anum_pg_proc_prosrc as _, &mut is_null);
        let is_symbol = !is_null && CStr::from_ptr(pg_sys::text_to_cstring(source.cast_mut_ptr())) == symbol;
        pg_sys::ReleaseSysCache(row);
        is_symbol
    };
    is_symbol && library_of(function_oid).is_some_and(|library| library.ends_with("pystachio"))
}

static SERVERS_CHANGED: OnceLock<fn()> = OnceLock::new();

/// Has PostgreSQL call a function when a server or a wrapper changes, or may have. The first one that is given is called.
pub fn watch_servers(servers_changed: fn()) {
    if SERVERS_CHANGED.set(servers_changed).is_err() {
        return;
    }
    for cache in
        [pg_sys::SysCacheIdentifier::FOREIGNSERVEROID, pg_sys::SysCacheIdentifier::FOREIGNDATAWRAPPEROID]
    {
        // SAFETY: the function is there as long as the process.
        unsafe {
            pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(servers_change), pg_sys::Datum::from(0));
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn servers_change(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    if let Some(servers_changed) = SERVERS_CHANGED.get() {
        servers_changed();
    }
}

/// The operators by which values of a type are sorted and grouped.
#[derive(Clone, Copy, Debug)]
pub struct GroupingOperators {
    /// Less than; invalid if the type has no order.
    pub less: Oid,
    /// Equal; invalid if its values can't be grouped.
    pub equal: Oid,
    /// Whether they can be grouped by hash.
    pub is_hashable: bool,
}

/// The operators by which values of a type are sorted and grouped.
pub fn grouping_operators(type_oid: Oid) -> GroupingOperators {
    let (mut less, mut equal, mut greater) = (pg_sys::InvalidOid, pg_sys::InvalidOid, pg_sys::InvalidOid);
    let mut is_hashable = false;
    // SAFETY: a look into a catalog; the others are places to write to.
    unsafe {
        pg_sys::get_sort_group_operators(
            type_oid,
            false,
            false,
            false,
            &raw mut less,
            &raw mut equal,
            &raw mut greater,
            &raw mut is_hashable,
        );
    }
    GroupingOperators { less, equal, is_hashable }
}

/// Whether an operator is an equality by which sorted values of a type can be joined.
pub fn is_merge_joinable(operator: Oid, type_oid: Oid) -> bool {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::op_mergejoinable(operator, type_oid) }
}

/// Whether two equalities call the same values equal.
pub fn are_compatible_equalities(first: Oid, second: Oid) -> bool {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::equality_ops_are_compatible(first, second) }
}

/// The operator that gives the negation.
pub fn negator_of(operator: Oid) -> Option<Oid> {
    // SAFETY: a look into a catalog.
    let negator = unsafe { pg_sys::get_negator(operator) };
    (negator != pg_sys::InvalidOid).then_some(negator)
}

/// The operator that gives the same with its operands exchanged.
pub fn commutator_of(operator: Oid) -> Option<Oid> {
    // SAFETY: a look into a catalog.
    let commutator = unsafe { pg_sys::get_commutator(operator) };
    (commutator != pg_sys::InvalidOid).then_some(commutator)
}

/// The type of arrays of a type, or of what a domain is of.
pub fn array_type_of(type_oid: Oid) -> Option<Oid> {
    // SAFETY: looks into a catalog.
    let array_oid = unsafe { pg_sys::get_array_type(pg_sys::getBaseType(type_oid)) };
    (array_oid != pg_sys::InvalidOid).then_some(array_oid)
}

/// Whether an operator sorts the greatest first; `None` if it is none that sorts.
pub fn operator_descends(operator: Oid) -> Option<bool> {
    let (mut family, mut type_oid) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
    // A strategy up to version 17 and a CompareType from 18 on: of another width, with the same values.
    let mut strategy = Default::default();
    // SAFETY: a look into a catalog; the others are places to write to.
    let is_known = unsafe {
        pg_sys::get_ordering_op_properties(operator, &raw mut family, &raw mut type_oid, &raw mut strategy)
    };
    is_known.then(|| i64::from(strategy) == i64::from(pg_sys::BTGreaterStrategyNumber))
}

/// Whether a function is NULL wherever an argument is.
pub fn is_strict(function: Oid) -> bool {
    // SAFETY: a look into a catalog; an ERROR if there is no such function.
    unsafe { pg_sys::func_strict(function) }
}

/// Whether strings that are equal by a collation have the same bytes.
pub fn is_deterministic(collation: Oid) -> bool {
    // SAFETY: a look into a catalog; an ERROR if there is no such collation.
    unsafe { pg_sys::get_collation_isdeterministic(collation) }
}

/// Whether values of a type are rows.
pub fn is_row_type(type_oid: Oid) -> bool {
    // SAFETY: a look into a catalog.
    unsafe { pg_sys::type_is_rowtype(type_oid) }
}

/// A call with its function's row of `pg_proc`: a copy, which lives as long as the call of ours.
pub struct CalledFunction<'p> {
    call: FunctionCall<'p>,
    row: pg_sys::HeapTuple,
    copy: PhantomData<&'p ()>,
}

impl<'p> CalledFunction<'p> {
    /// Looks up the function of a call.
    pub fn find(call: FunctionCall<'p>) -> Option<Self> {
        let none = pg_sys::Datum::from(0);
        // SAFETY: a look into a catalog, which makes a copy in the current memory context.
        let row = unsafe {
            pg_sys::SearchSysCacheCopy(PROCEDURES, pg_sys::Datum::from(call.function()), none, none, none)
        };
        (!row.is_null()).then_some(Self { call, row, copy: PhantomData })
    }

    /// The columns that every row has.
    pub fn columns(&self) -> &'p pg_sys::FormData_pg_proc {
        // SAFETY: a row of that catalog, which nothing changes.
        unsafe { &*pg_sys::GETSTRUCT(self.row).cast::<pg_sys::FormData_pg_proc>() }
    }

    /// Whether it runs with settings of its own.
    pub fn has_settings(&self) -> bool {
        let mut is_null = false;
        // SAFETY: a row of that catalog, and a place to write to.
        unsafe {
            let settings = pg_sys::Anum_pg_proc_proconfig as _;
            pg_sys::SysCacheGetAttr(PROCEDURES, self.row, settings, &raw mut is_null);
        }
        !is_null
    }

    /// The arguments of the call in their order, with defaults in the place of those that are left out.
    pub fn all_arguments(&self) -> List<'p, pg_sys::Node> {
        let (arguments, result_type) = (self.call.arguments().pointer(), self.call.result_type());
        // SAFETY: arguments of a call of this function.
        unsafe { List::new(pg_sys::expand_function_arguments(arguments, false, result_type, self.row)) }
    }

    /// The one query of the body of a function in SQL, for a call with all arguments. It gives the function's type, in one column, and
    /// reads the arguments as parameters. `None` if the body is anything else.
    pub fn query(&self) -> Option<Query<'p>> {
        // SAFETY: the row of the call's function. A body that is not SQL is an ERROR.
        unsafe { compat::sql_function_query(self.row, self.call.pointer()).and_then(|query| Ref::at(query)) }
    }
}

const PROCEDURES: i32 = pg_sys::SysCacheIdentifier::PROCOID as i32;
