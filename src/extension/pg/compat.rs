//! Everything that differs between PostgreSQL's versions, or that pgrx doesn't bind.
#![expect(unsafe_code, reason = "declares and calls C functions")]
#![expect(
    ffi_unwind_calls,
    reason = "calls are inside a guard, or their callers have nothing to drop and are inside one"
)]

use std::ffi::{CStr, c_int, c_void};

use pgrx::pg_sys;

use super::{list::pointers, wait::WaitEvent};

unsafe extern "C-unwind" {
    // In pg_inherits.h, which pgrx doesn't bind.
    #[link_name = "has_subclass"]
    fn c_has_subclass(table_oid: pg_sys::Oid) -> bool;

    // In paramassign.h, which pgrx doesn't bind.
    #[link_name = "assign_special_exec_param"]
    fn c_assign_special_exec_param(root: *mut pg_sys::PlannerInfo) -> c_int;

    // In libpq.h, which pgrx doesn't bind. False if the client's end of the connection is closed.
    fn pq_check_connection() -> bool;
}

/// Whether the client of this backend is still there. Background workers have none, and are told yes.
pub fn client_is_connected() -> bool {
    // SAFETY: MyProcPort is set in backends that have a client; then the check polls its socket.
    unsafe { pg_sys::MyProcPort.is_null() || pg_sys::ffi::pg_guard_ffi_boundary(|| pq_check_connection()) }
}

/// The number of a wait event in this server, which has names for those of extensions since PostgreSQL 17.
#[cfg(any(feature = "pg17", feature = "pg18"))]
pub fn wait_event_number(event: WaitEvent) -> u32 {
    use std::{cell::RefCell, collections::HashMap, ffi::CStr};
    thread_local! {
        // A lookup in shared memory, once a backend.
        static NUMBERS: RefCell<HashMap<&'static CStr, u32>> = RefCell::default();
    }
    let name = match event {
        WaitEvent::Connect => c"PystachioConnect",
        WaitEvent::Turn => c"PystachioTurn",
        WaitEvent::Answer => c"PystachioAnswer",
        WaitEvent::Supervise => c"PystachioSupervisor",
        WaitEvent::Other => return pg_sys::PG_WAIT_EXTENSION,
    };
    let known = NUMBERS.with_borrow(|numbers| numbers.get(name).copied());
    known.unwrap_or_else(|| {
        // SAFETY: the name is a constant; an ERROR unwinds from here.
        let number = unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) };
        NUMBERS.with_borrow_mut(|numbers| numbers.insert(name, number));
        number
    })
}

/// The number of a wait event in this server.
#[cfg(not(any(feature = "pg17", feature = "pg18")))]
pub fn wait_event_number(_event: WaitEvent) -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// The number of a statement's text, as pg_stat_statements shows it; 0 where `compute_query_id` is off.
///
/// # Safety
///
/// The statement is valid, or null.
pub unsafe fn query_id(statement: *const pg_sys::PlannedStmt) -> i64 {
    // SAFETY: as the caller says. PostgreSQL before 18 has an unsigned number, and shows it as this one.
    #[allow(clippy::unnecessary_cast, reason = "signed since PostgreSQL 18")]
    unsafe {
        statement.as_ref().map_or(0, |statement| statement.queryId as i64)
    }
}

/// Runs a statement that has started to its end.
///
/// # Safety
///
/// The statement has started.
pub unsafe fn run_executor(execution: *mut pg_sys::QueryDesc) {
    let forward = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: as the caller says.
    #[cfg(feature = "pg18")]
    unsafe {
        pg_sys::ExecutorRun(execution, forward, 0);
    }
    // SAFETY: as the caller says.
    #[cfg(not(feature = "pg18"))]
    unsafe {
        pg_sys::ExecutorRun(execution, forward, 0, true);
    }
}

/// How two rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowComparison {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// Equality, which PostgreSQL does not leave as one expression, or what is not known.
    Other,
}

/// How an expression compares its rows.
pub fn row_comparison(call: &pg_sys::RowCompareExpr) -> RowComparison {
    #[cfg(feature = "pg18")]
    let (kind, less, less_equal, greater, greater_equal) = (
        call.cmptype,
        pg_sys::CompareType::COMPARE_LT,
        pg_sys::CompareType::COMPARE_LE,
        pg_sys::CompareType::COMPARE_GT,
        pg_sys::CompareType::COMPARE_GE,
    );
    #[cfg(not(feature = "pg18"))]
    let (kind, less, less_equal, greater, greater_equal) = (
        call.rctype,
        pg_sys::RowCompareType::ROWCOMPARE_LT,
        pg_sys::RowCompareType::ROWCOMPARE_LE,
        pg_sys::RowCompareType::ROWCOMPARE_GT,
        pg_sys::RowCompareType::ROWCOMPARE_GE,
    );
    match kind {
        kind if kind == less => RowComparison::Less,
        kind if kind == less_equal => RowComparison::LessEqual,
        kind if kind == greater => RowComparison::Greater,
        kind if kind == greater_equal => RowComparison::GreaterEqual,
        _ => RowComparison::Other,
    }
}

/// Whether a table has, or once had, tables that inherit from it.
pub fn has_subclass(table_oid: pg_sys::Oid) -> bool {
    // SAFETY: a catalog lookup of a table that exists, or an ERROR.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| c_has_subclass(table_oid)) }
}

/// The number of a new executor parameter that no expression reads.
///
/// # Safety
///
/// `root` is the planner's own.
pub unsafe fn assign_special_exec_param(root: *mut pg_sys::PlannerInfo) -> i32 {
    // SAFETY: as the caller says.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| c_assign_special_exec_param(root)) }
}

/// Whether a join of such a type drops rows of its outer input that have no partner.
pub fn drops_unmatched_outer(join_type: pg_sys::JoinType::Type) -> bool {
    match join_type {
        pg_sys::JoinType::JOIN_INNER | pg_sys::JoinType::JOIN_SEMI | pg_sys::JoinType::JOIN_RIGHT => true,
        #[cfg(not(feature = "pg15"))]
        pg_sys::JoinType::JOIN_RIGHT_ANTI => true,
        #[cfg(feature = "pg18")]
        pg_sys::JoinType::JOIN_RIGHT_SEMI => true,
        _ => false,
    }
}

/// Whether a join of such a type drops rows of its inner input that have no partner.
pub fn drops_unmatched_inner(join_type: pg_sys::JoinType::Type) -> bool {
    matches!(
        join_type,
        pg_sys::JoinType::JOIN_INNER
            | pg_sys::JoinType::JOIN_LEFT
            | pg_sys::JoinType::JOIN_SEMI
            | pg_sys::JoinType::JOIN_ANTI
    )
}

/// Has a path count as disabled as often as the one below it.
///
/// # Safety
///
/// Both are valid.
pub unsafe fn copy_disabled_nodes(path: *mut pg_sys::Path, child: *const pg_sys::Path) {
    #[cfg(feature = "pg18")]
    // SAFETY: as the caller says.
    unsafe {
        (*path).disabled_nodes = (*child).disabled_nodes;
    }
    #[cfg(not(feature = "pg18"))]
    let _ = (path, child);
}

/// A constant that PostgreSQL's C code reads through a pointer.
pub struct Shared<T>(pub T);

// SAFETY: no code writes to it, and what it points to are constants and functions.
unsafe impl<T> Sync for Shared<T> {}

/// The attribute at this index, counted from zero.
///
/// # Safety
///
/// The descriptor is valid, has more attributes than `index`, and outlives the result.
pub unsafe fn attribute<'a>(
    descriptor: pg_sys::TupleDesc,
    index: usize,
) -> &'a pg_sys::FormData_pg_attribute {
    // SAFETY: as the caller says.
    #[cfg(not(feature = "pg18"))]
    unsafe {
        &*(*descriptor).attrs.as_ptr().add(index)
    }
    // SAFETY: as the caller says.
    #[cfg(feature = "pg18")]
    unsafe {
        &*pg_sys::TupleDescAttr(descriptor, index as i32)
    }
}

/// Whether a column is computed of others wherever it is read, as generated columns of PostgreSQL 18 and later can be.
pub fn is_virtual(attribute: &pg_sys::FormData_pg_attribute) -> bool {
    cfg!(feature = "pg18") && attribute.attgenerated as u8 == b'v'
}

/// Whether a column of a table is declared NOT NULL for all rows: PostgreSQL 18 and later have declarations that rows which were
/// there before need not meet (NOT VALID).
///
/// # Safety
///
/// The column is of this table, on which the caller has a lock.
pub unsafe fn is_not_null(table_oid: pg_sys::Oid, attribute: &pg_sys::FormData_pg_attribute) -> bool {
    #[cfg(feature = "pg18")]
    // SAFETY: as the caller says; the descriptor has an entry for each column, and its relation is held meanwhile.
    unsafe {
        if !attribute.attnotnull || attribute.attnum <= 0 {
            return attribute.attnotnull;
        }
        let table = pg_sys::RelationIdGetRelation(table_oid);
        if table.is_null() {
            return false;
        }
        let known = (*(*table).rd_att).compact_attrs.as_ptr().add(attribute.attnum as usize - 1);
        let is_valid = (*known).attnullability as u8 == pg_sys::ATTNULLABLE_VALID;
        pg_sys::RelationClose(table);
        is_valid
    }
    #[cfg(not(feature = "pg18"))]
    {
        let _ = table_oid;
        attribute.attnotnull
    }
}

/// Whether the user has USAGE on the server.
pub fn may_use_server(server_oid: pg_sys::Oid) -> bool {
    // SAFETY: a catalog lookup.
    #[cfg(feature = "pg15")]
    let result =
        unsafe { pg_sys::pg_foreign_server_aclcheck(server_oid, pg_sys::GetUserId(), pg_sys::ACL_USAGE) };
    // SAFETY: a catalog lookup.
    #[cfg(not(feature = "pg15"))]
    let result = unsafe {
        pg_sys::object_aclcheck(
            pg_sys::ForeignServerRelationId,
            server_oid,
            pg_sys::GetUserId(),
            pg_sys::ACL_USAGE.into(),
        )
    };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// The role whose rights on a table of the query are checked; invalid where it is the current one.
///
/// # Safety
///
/// `root` is the planner's own, and `entry` one of its range table.
pub unsafe fn checked_role(root: *mut pg_sys::PlannerInfo, entry: *mut pg_sys::RangeTblEntry) -> pg_sys::Oid {
    // SAFETY: as the caller says.
    #[cfg(feature = "pg15")]
    unsafe {
        let _ = root;
        (*entry).checkAsUser
    }
    // SAFETY: as the caller says; an index above 0 is one of the query's list.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        match (*entry).perminfoindex {
            0 => pg_sys::InvalidOid,
            _ => (*pg_sys::getRTEPermissionInfo((*(*root).parse).rteperminfos, entry)).checkAsUser,
        }
    }
}

/// The role whose rights on the target of a statement are checked: of a view the owner, else the one that runs the statement.
///
/// # Safety
///
/// The executor is PostgreSQL's own, and has set up the target.
pub unsafe fn role_of_target(
    executor: *mut pg_sys::EState,
    target: *mut pg_sys::ResultRelInfo,
) -> pg_sys::Oid {
    // SAFETY: as the caller says; an index above 0 is one of the executor's range table. A partition has the rights of the table above it.
    unsafe {
        let named = (*target).ri_RootResultRelInfo.as_ref().unwrap_or(&*target);
        let checked = match i32::try_from(named.ri_RangeTableIndex) {
            Ok(index) if index > 0 => {
                let entry: *mut pg_sys::RangeTblEntry =
                    pg_sys::list_nth((*executor).es_range_table, index - 1).cast();
                #[cfg(feature = "pg15")]
                let role = (*entry).checkAsUser;
                #[cfg(not(feature = "pg15"))]
                let role = match (*entry).perminfoindex {
                    0 => pg_sys::InvalidOid,
                    _ => (*pg_sys::getRTEPermissionInfo((*executor).es_rteperminfos, entry)).checkAsUser,
                };
                role
            }
            _ => pg_sys::InvalidOid,
        };
        if checked == pg_sys::InvalidOid { pg_sys::GetUserId() } else { checked }
    }
}

/// The number and the modifier of a type that SQL writes so. Raises an ERROR if there is none.
pub fn parse_type(sql_type: &CStr) -> (pg_sys::Oid, i32) {
    let (mut type_oid, mut modifier) = (pg_sys::InvalidOid, -1);
    // SAFETY: a C string, and places for the results.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::parseTypeString(sql_type.as_ptr(), &raw mut type_oid, &raw mut modifier, false);
    }
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::parseTypeString(
            sql_type.as_ptr(),
            &raw mut type_oid,
            &raw mut modifier,
            std::ptr::null_mut(),
        );
    }
    (type_oid, modifier)
}

/// Whether the current role owns a table.
pub fn owns_table(table_oid: pg_sys::Oid) -> bool {
    // SAFETY: a look into catalogs.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::pg_class_ownercheck(table_oid, pg_sys::GetUserId())
    }
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::object_ownercheck(pg_sys::RelationRelationId, table_oid, pg_sys::GetUserId())
    }
}

/// Has a foreign table in the place of an entry of a query's range table, with the right to read it.
///
/// # Safety
///
/// `query` is a query before it is planned, and `entry` one of its range table.
pub unsafe fn make_table(
    query: *mut pg_sys::Query,
    entry: *mut pg_sys::RangeTblEntry,
    table_oid: pg_sys::Oid,
) {
    // SAFETY: as the caller says.
    unsafe {
        (*entry).rtekind = pg_sys::RTEKind::RTE_RELATION;
        (*entry).functions = NIL;
        (*entry).relid = table_oid;
        (*entry).relkind = pg_sys::RELKIND_FOREIGN_TABLE as _;
        (*entry).rellockmode = pg_sys::AccessShareLock as i32;
        (*entry).inh = false;
        (*entry).lateral = false;
        #[cfg(feature = "pg15")]
        {
            let _ = query;
            (*entry).requiredPerms = pg_sys::ACL_SELECT as _;
        }
        #[cfg(not(feature = "pg15"))]
        {
            let permissions = pg_sys::addRTEPermissionInfo(&raw mut (*query).rteperminfos, entry);
            (*permissions).requiredPerms = pg_sys::ACL_SELECT as _;
        }
    }
}

/// What a name of a time zone is as an abbreviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAbbreviation {
    /// So many seconds ahead of UTC.
    Fixed {
        /// East is positive.
        seconds: i64,
    },
    /// One whose offset has changed in its zone.
    Dynamic,
    /// None.
    Unknown,
}

/// What a name in lower case is as an abbreviation of a time zone, by the settings `timezone_abbreviations` and, since
/// PostgreSQL 18, `TimeZone`.
///
/// # Safety
///
/// The name is a string.
pub unsafe fn zone_abbreviation(lower: *mut std::ffi::c_char) -> ZoneAbbreviation {
    let mut offset: c_int = 0;
    let mut zone = std::ptr::null_mut();
    // SAFETY: as the caller says; the others are places to write to. An ERROR unwinds from here.
    #[cfg(feature = "pg15")]
    let kind = unsafe { pg_sys::DecodeTimezoneAbbrev(0, lower, &raw mut offset, &raw mut zone) };
    #[cfg(not(feature = "pg15"))]
    let kind = {
        let mut kind: c_int = 0;
        let mut extra = pg_sys::DateTimeErrorExtra::default();
        // SAFETY: as above.
        let failed = unsafe {
            pg_sys::DecodeTimezoneAbbrev(
                0,
                lower,
                &raw mut kind,
                &raw mut offset,
                &raw mut zone,
                &raw mut extra,
            )
        };
        // An abbreviation of a zone that does not exist.
        if failed < 0 { pg_sys::DYNTZ as c_int } else { kind }
    };
    match u32::try_from(kind) {
        Ok(pg_sys::TZ | pg_sys::DTZ) => ZoneAbbreviation::Fixed { seconds: offset.into() },
        Ok(pg_sys::DYNTZ) => ZoneAbbreviation::Dynamic,
        _ => ZoneAbbreviation::Unknown,
    }
}

/// Whether an interval may be infinite, as the difference of infinite timestamps is then.
pub const HAS_INFINITE_INTERVALS: bool = cfg!(any(feature = "pg17", feature = "pg18"));

/// Whether integers in text may be of other bases, and have underscores between digits.
pub const READS_BASES: bool = cfg!(not(feature = "pg15"));

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

/// What a tree walker of core calls for each node; true ends the walk.
pub type Walker = unsafe extern "C-unwind" fn(node: *mut pg_sys::Node, context: *mut c_void) -> bool;

unsafe extern "C-unwind" {
    #[cfg_attr(feature = "pg15", link_name = "expression_tree_walker")]
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
    fn walk_children_unguarded(node: *mut pg_sys::Node, walker: Walker, context: *mut c_void) -> bool;
}

unsafe extern "C-unwind" {
    #[cfg_attr(feature = "pg15", link_name = "raw_expression_tree_walker")]
    #[cfg_attr(not(feature = "pg15"), link_name = "raw_expression_tree_walker_impl")]
    fn walk_parsed_unguarded(node: *mut pg_sys::Node, walker: Walker, context: *mut c_void) -> bool;
}

/// Calls the walker on the nodes directly below one of a statement that was parsed and not analysed.
///
/// # Safety
///
/// As `walk_children`.
pub unsafe fn walk_parsed(node: *mut pg_sys::Node, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: as the caller says.
    unsafe { walk_parsed_unguarded(node, walker, context) }
}

unsafe extern "C-unwind" {
    #[cfg_attr(feature = "pg15", link_name = "query_tree_walker")]
    #[cfg_attr(not(feature = "pg15"), link_name = "query_tree_walker_impl")]
    fn walk_query_unguarded(
        query: *mut pg_sys::Query,
        walker: Walker,
        context: *mut c_void,
        flags: c_int,
    ) -> bool;
}

/// Calls the walker on the parts of a query, and on each entry of its range table before what that consists of.
///
/// # Safety
///
/// As `walk_children`.
pub unsafe fn walk_query(query: *mut pg_sys::Query, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: as the caller says.
    unsafe { walk_query_unguarded(query, walker, context, pg_sys::QTW_EXAMINE_RTES_BEFORE as c_int) }
}

/// Called with a node and its context; gives the node that stands in its place.
pub type Mutator = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> *mut pg_sys::Node;

unsafe extern "C-unwind" {
    #[cfg_attr(feature = "pg15", link_name = "expression_tree_mutator")]
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_mutator_impl")]
    fn mutate_children_unguarded(
        node: *mut pg_sys::Node,
        mutator: Mutator,
        context: *mut c_void,
    ) -> *mut pg_sys::Node;
}

/// A copy of a node with what the mutator makes of the nodes directly below it.
///
/// # Safety
///
/// As `walk_children`.
pub unsafe fn mutate_children(
    node: *mut pg_sys::Node,
    mutator: Mutator,
    context: *mut c_void,
) -> *mut pg_sys::Node {
    // SAFETY: as the caller says.
    unsafe { mutate_children_unguarded(node, mutator, context) }
}

unsafe extern "C-unwind" {
    #[cfg_attr(feature = "pg15", link_name = "query_tree_mutator")]
    #[cfg_attr(not(feature = "pg15"), link_name = "query_tree_mutator_impl")]
    fn mutate_query_unguarded(
        query: *mut pg_sys::Query,
        mutator: Mutator,
        context: *mut c_void,
        flags: c_int,
    ) -> *mut pg_sys::Query;
}

/// A copy of a query with what the mutator makes of its parts.
///
/// # Safety
///
/// As `walk_children`.
pub unsafe fn mutate_query(
    query: *mut pg_sys::Query,
    mutator: Mutator,
    context: *mut c_void,
) -> *mut pg_sys::Query {
    // SAFETY: as the caller says.
    unsafe { mutate_query_unguarded(query, mutator, context, 0) }
}

unsafe extern "C-unwind" {
    // In functions.h, which pgrx doesn't bind.
    fn prepare_sql_fn_parse_info(
        procedure: pg_sys::HeapTuple,
        call: *mut pg_sys::Node,
        collation: pg_sys::Oid,
    ) -> *mut c_void;

    fn sql_fn_parser_setup(state: *mut pg_sys::ParseState, names: *mut c_void);

    #[cfg(any(feature = "pg15", feature = "pg16"))]
    fn check_sql_fn_retval(
        queries: *mut pg_sys::List,
        result_type: pg_sys::Oid,
        result_row: pg_sys::TupleDesc,
        has_dropped_columns: bool,
        target_list: *mut *mut pg_sys::List,
    ) -> bool;
    #[cfg(feature = "pg17")]
    fn check_sql_fn_retval(
        queries: *mut pg_sys::List,
        result_type: pg_sys::Oid,
        result_row: pg_sys::TupleDesc,
        kind: std::ffi::c_char,
        has_dropped_columns: bool,
        target_list: *mut *mut pg_sys::List,
    ) -> bool;
    #[cfg(feature = "pg18")]
    fn check_sql_fn_retval(
        queries: *mut pg_sys::List,
        result_type: pg_sys::Oid,
        result_row: pg_sys::TupleDesc,
        kind: std::ffi::c_char,
        has_dropped_columns: bool,
    ) -> bool;
}

/// The one query of an SQL function's body, for a call with all arguments. It gives the function's type, in one column, and reads the
/// arguments as parameters. `None` if the body is anything else.
///
/// # Safety
///
/// `procedure` is the row of `pg_proc` of the call's function, which is LANGUAGE SQL and gives neither rows nor sets.
pub unsafe fn sql_function_query(
    procedure: pg_sys::HeapTuple,
    call: *mut pg_sys::FuncExpr,
) -> Option<*mut pg_sys::Query> {
    // SAFETY: as the caller says. PostgreSQL's functions may raise an ERROR; this function has nothing to drop then.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as c_int;
        let attribute = |number: u32| {
            let mut is_null = false;
            let value = pg_sys::SysCacheGetAttr(cache, procedure, number as _, &mut is_null);
            (!is_null).then(|| pg_sys::text_to_cstring(value.cast_mut_ptr()))
        };
        let queries = if let Some(parsed) = attribute(pg_sys::Anum_pg_proc_prosqlbody) {
            let parsed = pg_sys::stringToNode(parsed).cast::<pg_sys::Node>();
            // BEGIN ATOMIC has a list of one list; RETURN a query.
            let parsed = match (*parsed).type_ {
                pg_sys::NodeTag::T_List => one_of::<pg_sys::Node>(one_of(parsed.cast())?)?,
                _ => parsed,
            };
            let query = parsed.cast::<pg_sys::Query>();
            pg_sys::AcquireRewriteLocks(query, true, false);
            pg_sys::pg_rewrite_query(query)
        } else {
            let text = attribute(pg_sys::Anum_pg_proc_prosrc)?;
            let statement = one_of::<pg_sys::RawStmt>(pg_sys::pg_parse_query(text))?;
            let collation = (*call).inputcollid;
            let names = pg_sys::ffi::pg_guard_ffi_boundary(|| {
                prepare_sql_fn_parse_info(procedure, call.cast(), collation)
            });
            pg_sys::pg_analyze_and_rewrite_withcb(
                statement,
                text,
                Some(sql_fn_parser_setup),
                names,
                std::ptr::null_mut(),
            )
        };
        let query = one_of::<pg_sys::Query>(queries)?;
        if (*query).commandType != pg_sys::CmdType::CMD_SELECT || !(*query).utilityStmt.is_null() {
            return None;
        }
        let lists = pg_sys::lappend(std::ptr::null_mut(), queries.cast());
        let (result_type, no_row) = ((*call).funcresulttype, std::ptr::null_mut());
        let is_row = pg_sys::ffi::pg_guard_ffi_boundary(|| {
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            let is_row = check_sql_fn_retval(lists, result_type, no_row, false, std::ptr::null_mut());
            #[cfg(feature = "pg17")]
            let is_row = check_sql_fn_retval(
                lists,
                result_type,
                no_row,
                pg_sys::PROKIND_FUNCTION as _,
                false,
                std::ptr::null_mut(),
            );
            #[cfg(feature = "pg18")]
            let is_row =
                check_sql_fn_retval(lists, result_type, no_row, pg_sys::PROKIND_FUNCTION as _, false);
            is_row
        });
        // Where the type is converted, another query may stand there now.
        if is_row { None } else { one_of(queries) }
    }
}

/// The only element of a list.
unsafe fn one_of<T>(list: *mut pg_sys::List) -> Option<*mut T> {
    // SAFETY: a list of pointers, or NULL.
    unsafe {
        let mut items = pointers::<T>(list);
        let first = items.next()?;
        items.next().is_none().then_some(first)
    }
}

/// Whether the current user may call a function.
pub fn may_execute(function_oid: pg_sys::Oid) -> bool {
    // SAFETY: a lookup in the catalog, of a function that exists or an ERROR.
    unsafe {
        let mode = pg_sys::ACL_EXECUTE as pg_sys::AclMode;
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_proc_aclcheck(function_oid, pg_sys::GetUserId(), mode);
        #[cfg(not(feature = "pg15"))]
        let result =
            pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, function_oid, pg_sys::GetUserId(), mode);
        result == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Whether another library is told of a function's calls.
pub fn calls_are_watched(function_oid: pg_sys::Oid) -> bool {
    // SAFETY: a hook that the library has set, or none.
    unsafe {
        pg_sys::needs_fmgr_hook
            .is_some_and(|needs_hook| pg_sys::ffi::pg_guard_ffi_boundary(|| needs_hook(function_oid)))
    }
}

/// Has a statement's plan made anew when a function changes.
///
/// # Safety
///
/// `statement` is a finished plan.
pub unsafe fn depend_on_function(statement: *mut pg_sys::PlannedStmt, function_oid: pg_sys::Oid) {
    // SAFETY: as the caller says; the item is a new node.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as c_int;
        let none = pg_sys::Datum::from(0);
        let item = pg_sys::palloc0(size_of::<pg_sys::PlanInvalItem>()).cast::<pg_sys::PlanInvalItem>();
        (*item).type_ = pg_sys::NodeTag::T_PlanInvalItem;
        (*item).cacheId = cache;
        (*item).hashValue =
            pg_sys::GetSysCacheHashValue(cache, pg_sys::Datum::from(function_oid), none, none, none);
        (*statement).invalItems = pg_sys::lappend((*statement).invalItems, item.cast());
    }
}

/// The expressions by which a query groups, where they are apart from its target list.
///
/// # Safety
///
/// The query is valid.
pub unsafe fn group_expressions(query: *mut pg_sys::Query) -> *mut pg_sys::List {
    #[cfg(feature = "pg18")]
    // SAFETY: as the caller says.
    unsafe {
        pointers::<pg_sys::RangeTblEntry>((*query).rtable)
            .find(|entry| (**entry).rtekind == pg_sys::RTEKind::RTE_GROUP)
            .map_or(std::ptr::null_mut(), |entry| (*entry).groupexprs)
    }
    #[cfg(not(feature = "pg18"))]
    {
        let _ = query;
        std::ptr::null_mut()
    }
}

/// The query with the expressions by which it groups in the places where PostgreSQL 18 and later have columns of an entry of
/// the range table of their own for them, which it is then without: as earlier versions parse it.
///
/// A copy where there is such an entry, and otherwise the query itself. With grouping sets it is not one to be planned: later
/// versions know by that entry which columns a set may make NULL.
///
/// # Safety
///
/// The query is valid.
pub unsafe fn without_group_entry(query: *mut pg_sys::Query) -> *mut pg_sys::Query {
    #[cfg(feature = "pg18")]
    // SAFETY: as the caller says; the copy lives as long as the current memory context.
    unsafe {
        if !(*query).hasGroupRTE {
            return query;
        }
        let copy: *mut pg_sys::Query = pg_sys::copyObjectImpl(query.cast()).cast();
        let root = std::ptr::null_mut();
        (*copy).targetList = pg_sys::flatten_group_exprs(root, copy, (*copy).targetList.cast()).cast();
        (*copy).havingQual = pg_sys::flatten_group_exprs(root, copy, (*copy).havingQual);
        (*copy).hasGroupRTE = false;
        for entry in pointers::<pg_sys::RangeTblEntry>((*copy).rtable) {
            // The entry keeps its number, for others may follow it; nothing names it.
            if (*entry).rtekind == pg_sys::RTEKind::RTE_GROUP {
                (*entry).rtekind = pg_sys::RTEKind::RTE_RESULT;
                (*entry).groupexprs = NIL;
            }
        }
        copy
    }
    #[cfg(not(feature = "pg18"))]
    {
        query
    }
}

/// Notes that an outer join may make a column NULL: PostgreSQL 16 and later keep that in the column.
///
/// # Safety
///
/// The column is valid.
pub unsafe fn mark_nullable(var: *mut pg_sys::Var, join_index: c_int) {
    #[cfg(feature = "pg15")]
    let _ = (var, join_index);
    // SAFETY: as the caller says.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        (*var).varnullingrels = pg_sys::bms_add_member((*var).varnullingrels, join_index);
    }
}

/// Calls the walker on the nodes directly below a node.
///
/// # Safety
///
/// The node is valid. An ERROR goes to the last guard before this, over frames in which nothing needs
/// dropping.
pub unsafe fn walk_children(node: *mut pg_sys::Node, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: as the caller says.
    unsafe { walk_children_unguarded(node, walker, context) }
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

const NIL: *mut pg_sys::List = std::ptr::null_mut();

/// The path as one that only the leader may take: an engine's query belongs to one backend, and so do the InitPlans of the
/// subqueries in it.
unsafe fn for_leader_only(path: *mut pg_sys::ForeignPath) -> *mut pg_sys::ForeignPath {
    // SAFETY: the path was just made.
    unsafe {
        (*path).path.parallel_safe = false;
    }
    path
}

/// All relations that a query joins, its outer joins included where they have numbers.
///
/// # Safety
///
/// `root` is the planner's own.
pub unsafe fn all_relations(root: *mut pg_sys::PlannerInfo) -> pg_sys::Relids {
    // SAFETY: as the caller says.
    #[cfg(feature = "pg15")]
    unsafe {
        (*root).all_baserels
    }
    // SAFETY: as the caller says.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        (*root).all_query_rels
    }
}

/// Whether a pathkey sorts the greatest first, and whether it sorts NULL first.
pub fn direction(pathkey: &pg_sys::PathKey) -> (bool, bool) {
    #[cfg(feature = "pg18")]
    let descends = pathkey.pk_cmptype == pg_sys::CompareType::COMPARE_GT;
    #[cfg(not(feature = "pg18"))]
    let descends = pathkey.pk_strategy == pg_sys::BTGreaterStrategyNumber as i32;
    (descends, pathkey.pk_nulls_first)
}

/// The pathkey that sorts a class of equal expressions by its first family, the smallest first and NULL last.
///
/// # Safety
///
/// `root` and `class` are the planner's own.
pub unsafe fn ascending_pathkey(
    root: *mut pg_sys::PlannerInfo,
    class: *mut pg_sys::EquivalenceClass,
) -> *mut pg_sys::PathKey {
    #[cfg(feature = "pg18")]
    let smallest_first = pg_sys::CompareType::COMPARE_LT;
    #[cfg(not(feature = "pg18"))]
    let smallest_first = pg_sys::BTLessStrategyNumber as i32;
    // SAFETY: as the caller says; a class has at least one family.
    unsafe {
        let family = super::list::oids((*class).ec_opfamilies).next().unwrap_or(pg_sys::InvalidOid);
        pg_sys::make_canonical_pathkey(root, class, family, smallest_first, false)
    }
}

/// Gives back what PostgreSQL found about a variable.
///
/// # Safety
///
/// `examine_variable` has filled it.
pub unsafe fn release_statistics(variable: &pg_sys::VariableStatData) {
    if let Some(free) = variable.freefunc
        && !variable.statsTuple.is_null()
    {
        // SAFETY: as the caller says; the function is the one for this tuple.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| free(variable.statsTuple)) }
    }
}

/// A path for a base relation, with columns of the relations that it has to be joined below (LATERAL).
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
        for_leader_only(pg_sys::create_foreignscan_path(
            root,
            relation,
            std::ptr::null_mut(),
            (*relation).rows,
            #[cfg(feature = "pg18")]
            0,
            startup_cost,
            total_cost,
            NIL,
            (*relation).lateral_relids,
            std::ptr::null_mut(),
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            NIL,
            NIL,
        ))
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
        for_leader_only(pg_sys::create_foreign_join_path(
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
        ))
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
        for_leader_only(pg_sys::create_foreign_upper_path(
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
        ))
    }
}

/// A path of a subquery that reads one path of its own, in no order.
///
/// # Safety
///
/// `root`, `relation` and `path` are the planner's own; the path is one of the subquery's last relation.
pub unsafe fn create_subquery_scan_path(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::Path,
) -> *mut pg_sys::Path {
    // SAFETY: as the caller says.
    unsafe {
        let scan = pg_sys::create_subqueryscan_path(
            root,
            relation,
            path,
            #[cfg(not(feature = "pg15"))]
            false,
            NIL,
            std::ptr::null_mut(),
        );
        scan.cast()
    }
}

/// Appends the tables and views of an absorbed subquery to a statement, so that the executor checks their
/// permissions and locks them, and the plan is made anew when they change.
///
/// # Safety
///
/// `statement` is a finished plan, and `query` the subquery that became part of it.
pub unsafe fn append_range_table(statement: *mut pg_sys::PlannedStmt, query: *mut pg_sys::Query) {
    // SAFETY: range tables are lists of entries, and a subquery's entry has its query or none.
    unsafe {
        for entry in pointers::<pg_sys::RangeTblEntry>((*query).rtable) {
            let is_subquery = (*entry).rtekind == pg_sys::RTEKind::RTE_SUBQUERY;
            if is_subquery && !(*entry).subquery.is_null() {
                append_range_table(statement, (*entry).subquery);
            }
            // From PostgreSQL 16 on the entry of a view's query is the view's own too. Before, the view is an
            // entry of that query, and the subquery's has no relation.
            let is_view = is_subquery && (*entry).relid != pg_sys::InvalidOid;
            if is_view || (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION {
                append_relation(statement, query, entry);
            }
        }
    }
}

unsafe fn append_relation(
    statement: *mut pg_sys::PlannedStmt,
    query: *mut pg_sys::Query,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: as the caller says; the copy lives as long as the statement.
    unsafe {
        let copy = pg_sys::palloc(size_of::<pg_sys::RangeTblEntry>()).cast::<pg_sys::RangeTblEntry>();
        entry.copy_to_nonoverlapping(copy, 1);
        // As core flattens its own: what only the parser and the planner needed is dropped.
        (*copy).tablesample = std::ptr::null_mut();
        (*copy).subquery = std::ptr::null_mut();
        (*copy).joinaliasvars = NIL;
        (*copy).joinleftcols = NIL;
        (*copy).joinrightcols = NIL;
        (*copy).functions = NIL;
        (*copy).tablefunc = std::ptr::null_mut();
        (*copy).values_lists = NIL;
        (*copy).securityQuals = NIL;
        #[cfg(not(feature = "pg15"))]
        {
            if (*copy).perminfoindex > 0 {
                let permissions = pg_sys::getRTEPermissionInfo((*query).rteperminfos, entry);
                (*copy).perminfoindex = 0;
                let added = pg_sys::addRTEPermissionInfo(&raw mut (*statement).permInfos, copy);
                *added = *permissions;
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

/// The run conditions of a window, which its functions have since PostgreSQL 17.
///
/// # Safety
///
/// The window is valid.
pub unsafe fn run_conditions_of_window(window: *mut pg_sys::WindowClause) -> *mut pg_sys::List {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: as the caller says.
    return unsafe { (*window).runCondition };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    {
        let _ = window;
        std::ptr::null_mut()
    }
}

/// The run conditions of a window function, as expressions over it.
///
/// # Safety
///
/// The function is valid. The caller uses the result no longer than the current memory context lives.
pub unsafe fn run_conditions_of_function(function: *mut pg_sys::WindowFunc) -> Vec<*mut pg_sys::Node> {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = function;
        Vec::new()
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: as the caller says; the list has what PostgreSQL put there.
    unsafe {
        let conditions = pointers::<pg_sys::WindowFuncRunCondition>((*function).runCondition);
        let of = |condition: *mut pg_sys::WindowFuncRunCondition| {
            let (function, other) = (function.cast::<pg_sys::Expr>(), (*condition).arg);
            let (left, right) = if (*condition).wfunc_left { (function, other) } else { (other, function) };
            let (operator, collation) = ((*condition).opno, (*condition).inputcollid);
            let none = pg_sys::InvalidOid;
            let clause =
                pg_sys::make_opclause(operator, pg_sys::BOOLOID, false, left, right, none, collation);
            pg_sys::set_opfuncid(clause.cast());
            clause.cast::<pg_sys::Node>()
        };
        conditions.map(of).collect()
    }
}
