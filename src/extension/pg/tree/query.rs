//! Queries before they are planned.

use pgrx::pg_sys;

use super::{
    AggregateCall, FunctionCall, IntegerList, List, Memory, Node, OidList, Ref, WindowFunction,
    fields::{fields, kinds},
};
use crate::pg::{compat, list};

/// A query.
pub type Query<'p> = Ref<'p, pg_sys::Query>;
/// An entry of a range table.
pub type RangeEntry<'p> = Ref<'p, pg_sys::RangeTblEntry>;
/// A column of a target list.
pub type TargetEntry<'p> = Ref<'p, pg_sys::TargetEntry>;
/// How ORDER BY, GROUP BY or DISTINCT compares a target.
pub type SortGroupClause<'p> = Ref<'p, pg_sys::SortGroupClause>;
/// A window.
pub type WindowClause<'p> = Ref<'p, pg_sys::WindowClause>;
/// FROM and WHERE.
pub type JoinTree<'p> = Ref<'p, pg_sys::FromExpr>;
/// A join in FROM.
pub type Join<'p> = Ref<'p, pg_sys::JoinExpr>;
/// A query of WITH.
pub type CommonTable<'p> = Ref<'p, pg_sys::CommonTableExpr>;
/// UNION, INTERSECT or EXCEPT.
pub type SetOperation<'p> = Ref<'p, pg_sys::SetOperationStmt>;
/// A name for a relation, and for its columns.
pub type Alias<'p> = Ref<'p, pg_sys::Alias>;

kinds! {
    Query = T_Query;
    RangeTblEntry = T_RangeTblEntry;
    RangeTblFunction = T_RangeTblFunction;
    RangeTblRef = T_RangeTblRef;
    TargetEntry = T_TargetEntry;
    SortGroupClause = T_SortGroupClause;
    WindowClause = T_WindowClause;
    FromExpr = T_FromExpr;
    JoinExpr = T_JoinExpr;
    CommonTableExpr = T_CommonTableExpr;
    SetOperationStmt = T_SetOperationStmt;
    Alias = T_Alias;
}

fields! { 'p Query {
    commandType as command: u32;
    commandType = set_command: u32;
    canSetTag = set_can_set_tag: bool;
    hasAggs as has_aggregates: bool;
    hasAggs = set_has_aggregates: bool;
    hasWindowFuncs as has_windows: bool;
    hasTargetSRFs as has_sets_in_target: bool;
    hasTargetSRFs = set_has_sets_in_target: bool;
    hasSubLinks as has_sub_links: bool;
    hasSubLinks = set_has_sub_links: bool;
    hasDistinctOn as has_distinct_on: bool;
    hasDistinctOn = set_has_distinct_on: bool;
    hasRecursive as has_recursive: bool;
    hasModifyingCTE as has_modifying_with: bool;
    hasRowSecurity as has_row_security: bool;
    hasRowSecurity = set_has_row_security: bool;
    cteList as with: List<'p, pg_sys::CommonTableExpr>;
    rtable as range_table: List<'p, pg_sys::RangeTblEntry>;
    rtable = set_range_table: List<'p, pg_sys::RangeTblEntry>;
    jointree as join_tree: Option<JoinTree<'p>>;
    jointree = set_join_tree: Option<JoinTree<'p>>;
    targetList as targets: List<'p, pg_sys::TargetEntry>;
    targetList = set_targets: List<'p, pg_sys::TargetEntry>;
    groupClause as groups: List<'p, pg_sys::SortGroupClause>;
    groupClause = set_groups: List<'p, pg_sys::SortGroupClause>;
    groupingSets as grouping_sets: List<'p, pg_sys::Node>;
    havingQual as having: Option<Node<'p>>;
    havingQual = set_having: Option<Node<'p>>;
    windowClause as windows: List<'p, pg_sys::WindowClause>;
    distinctClause as distinct: List<'p, pg_sys::SortGroupClause>;
    distinctClause = set_distinct: List<'p, pg_sys::SortGroupClause>;
    sortClause as order: List<'p, pg_sys::SortGroupClause>;
    sortClause = set_order: List<'p, pg_sys::SortGroupClause>;
    limitOffset as limit_offset: Option<Node<'p>>;
    limitOffset = set_limit_offset: Option<Node<'p>>;
    limitCount as limit_count: Option<Node<'p>>;
    limitCount = set_limit_count: Option<Node<'p>>;
    limitOption as limit_option: u32;
    limitOption = set_limit_option: u32;
    rowMarks as row_marks: List<'p, pg_sys::Node>;
    setOperations as set_operations: Option<Node<'p>>;
    setOperations = set_set_operations: Option<Node<'p>>;
} }

fields! { 'p RangeTblEntry {
    rtekind as kind: u32;
    rtekind = set_kind: u32;
    functions as called_functions: List<'p, pg_sys::RangeTblFunction>;
    functions = set_called_functions: List<'p, pg_sys::RangeTblFunction>;
    funcordinality as has_ordinality: bool;
    relid as table_oid: pg_sys::Oid;
    relkind as relation_kind: u8;
    inh as has_members: bool;
    subquery as subquery: Option<Query<'p>>;
    subquery = set_subquery: Option<Query<'p>>;
    security_barrier as is_security_barrier: bool;
    jointype = set_join_type: u32;
    lateral as is_lateral: bool;
    lateral = set_is_lateral: bool;
    inFromCl = set_is_in_from: bool;
    eref as names: Option<Alias<'p>>;
    eref = set_names: Option<Alias<'p>>;
    ctelevelsup as with_levels_up: u32;
    securityQuals as security_conditions: List<'p, pg_sys::Node>;
} }

fields! { 'p RangeTblFunction {
    funcexpr as call: Node<'p>;
    funcexpr = set_call: Node<'p>;
    funccolcount = set_column_count: i32;
} }

fields! { 'p RangeTblRef {
    rtindex as index: i32;
    rtindex = set_index: i32;
} }

fields! { 'p TargetEntry {
    expr as expression: Node<'p>;
    expr = set_expression: Node<'p>;
    resno as number: i16;
    resno = set_number: i16;
    ressortgroupref as reference: u32;
    ressortgroupref = set_reference: u32;
    resjunk as is_hidden: bool;
} }

fields! { 'p SortGroupClause {
    tleSortGroupRef as reference: u32;
    tleSortGroupRef = set_reference: u32;
    eqop = set_equal_operator: pg_sys::Oid;
    sortop as sort_operator: pg_sys::Oid;
    sortop = set_sort_operator: pg_sys::Oid;
    nulls_first as nulls_first: bool;
    hashable = set_is_hashable: bool;
} }

fields! { 'p WindowClause {
    winref as number: u32;
    partitionClause as partition: List<'p, pg_sys::SortGroupClause>;
    orderClause as order: List<'p, pg_sys::SortGroupClause>;
    frameOptions as frame_options: i32;
    startOffset as start_offset: Option<Node<'p>>;
    endOffset as end_offset: Option<Node<'p>>;
} }

fields! { 'p FromExpr {
    fromlist as items: List<'p, pg_sys::Node>;
    fromlist = set_items: List<'p, pg_sys::Node>;
    quals as condition: Option<Node<'p>>;
    quals = set_condition: Option<Node<'p>>;
} }

fields! { 'p JoinExpr {
    jointype as join_type: u32;
    jointype = set_join_type: u32;
    larg as left: Node<'p>;
    larg = set_left: Node<'p>;
    rarg as right: Node<'p>;
    rarg = set_right: Node<'p>;
    quals as condition: Option<Node<'p>>;
    quals = set_condition: Option<Node<'p>>;
    rtindex as index: i32;
    rtindex = set_index: i32;
} }

fields! { 'p CommonTableExpr {
    ctematerialized as materialized: u32;
    ctematerialized = set_materialized: u32;
    cterecursive as is_recursive: bool;
    cterefcount as reference_count: i32;
} }

fields! { 'p SetOperationStmt {
    op as operation: u32;
    op = set_operation: u32;
    all as all: bool;
    all = set_all: bool;
    larg as left: Node<'p>;
    larg = set_left: Node<'p>;
    rarg as right: Node<'p>;
    rarg = set_right: Node<'p>;
    colTypes as column_types: OidList<'p>;
    colTypes = set_column_types: OidList<'p>;
    colTypmods as column_modifiers: IntegerList<'p>;
    colTypmods = set_column_modifiers: IntegerList<'p>;
    colCollations as column_collations: OidList<'p>;
    colCollations = set_column_collations: OidList<'p>;
    groupClauses as group_clauses: List<'p, pg_sys::SortGroupClause>;
    groupClauses = set_group_clauses: List<'p, pg_sys::SortGroupClause>;
} }

fields! { 'p Alias {
    colnames as column_names: List<'p, pg_sys::String>;
    colnames = set_column_names: List<'p, pg_sys::String>;
} }

impl<'p> Query<'p> {
    /// The entry of the range table with a number.
    pub fn entry(self, index: usize) -> Option<RangeEntry<'p>> {
        self.range_table().get(index.checked_sub(1)?)
    }

    /// The number that the next entry of the range table gets.
    pub fn next_index(self) -> i32 {
        self.range_table().len() as i32 + 1
    }

    /// The condition of WHERE.
    pub fn condition(self) -> Option<Node<'p>> {
        self.join_tree()?.condition()
    }

    /// Has another condition in WHERE.
    pub fn set_condition(self, condition: Option<Node<'p>>) {
        if let Some(tree) = self.join_tree() {
            tree.set_condition(condition);
        }
    }

    /// The items of FROM.
    pub fn sources(self) -> List<'p, pg_sys::Node> {
        self.join_tree().map_or(List::nil(), Ref::items)
    }

    /// Has other items in FROM.
    pub fn set_sources(self, items: List<'p, pg_sys::Node>) {
        if let Some(tree) = self.join_tree() {
            tree.set_items(items);
        }
    }

    /// The columns that it returns, in their order.
    pub fn columns(self) -> impl Iterator<Item = TargetEntry<'p>> + use<'p> {
        self.targets().iter().filter(|target| !target.is_hidden())
    }

    /// The query with the expressions by which it groups where PostgreSQL 18 and later have columns of an entry of the range table of
    /// its own for them. A copy where there is such an entry. With grouping sets it is not one to be planned: later versions know by
    /// that entry which columns a set may make NULL.
    pub fn without_group_entry(self) -> Self {
        // SAFETY: a query.
        unsafe { Ref::known(compat::without_group_entry(self.pointer())) }
    }

    /// The expressions by which it groups, where they are apart from its targets.
    pub fn group_expressions(self) -> List<'p, pg_sys::Node> {
        // SAFETY: a query, whose list is of expressions.
        unsafe { List::new(compat::group_expressions(self.pointer())) }
    }

    /// The sets by which it groups, each as the references of its clauses. The planner has expanded them when it comes to the groups.
    pub fn planned_grouping_sets(self) -> Vec<Vec<u32>> {
        // SAFETY: a query of which the planner makes paths of groups.
        unsafe {
            let references = |set| list::integers(set).map(|reference| reference as u32).collect();
            list::pointers::<pg_sys::List>((*self.pointer()).groupingSets).map(references).collect()
        }
    }

    /// Takes over what a statement is known by: its source, number and place in the text.
    pub fn take_identity(self, other: Self) {
        // SAFETY: two queries.
        unsafe {
            let (own, other) = (self.pointer(), other.pointer());
            (*own).querySource = (*other).querySource;
            (*own).queryId = (*other).queryId;
            (*own).canSetTag = (*other).canSetTag;
            (*own).stmt_location = (*other).stmt_location;
            (*own).stmt_len = (*other).stmt_len;
        }
    }
}

impl<'p> Query<'p> {
    /// Has a foreign table, which is locked for reading, in the place of an entry of its range table. The statement's role must be
    /// allowed to read it.
    pub fn make_table(self, entry: RangeEntry<'p>, table_oid: pg_sys::Oid) {
        // SAFETY: a query, and an entry of its range table.
        unsafe { compat::make_table(self.pointer(), entry.pointer(), table_oid) }
    }
}

impl<'p> RangeEntry<'p> {
    /// The name of a column, as the query calls it.
    pub fn attribute_name(self, attribute_number: i16) -> String {
        // SAFETY: a string, or an ERROR for a column that it does not have.
        unsafe { list::string(pg_sys::get_rte_attribute_name(self.pointer(), attribute_number)) }
    }

    /// The call of the function that it reads, if it reads one and numbers no rows.
    pub fn function_call(self) -> Option<FunctionCall<'p>> {
        if self.has_ordinality() { None } else { self.only_call() }
    }

    /// The call of the function that it reads, if it reads one.
    pub fn only_call(self) -> Option<FunctionCall<'p>> {
        let is_call = self.kind() == pg_sys::RTEKind::RTE_FUNCTION;
        let functions = self.called_functions();
        let function = if is_call && functions.len() == 1 { functions.get(0) } else { None };
        function?.call().downcast()
    }

    /// The function calls that the entry reads side by side; none if one is something else.
    pub fn only_calls(self) -> Vec<FunctionCall<'p>> {
        let is_call = self.kind() == pg_sys::RTEKind::RTE_FUNCTION;
        let calls = self.called_functions().iter().map(|function| function.call().downcast());
        calls.collect::<Option<Vec<_>>>().filter(|_| is_call).unwrap_or_default()
    }

    /// The columns that a column definition list gives the one function that it reads: name, type, modifier and collation.
    pub fn declared_columns(self) -> Vec<(String, pg_sys::Oid, i32, pg_sys::Oid)> {
        let Some(function) = self.called_functions().get(0) else { return Vec::new() };
        // SAFETY: lists of strings, types, modifiers and collations, of one length.
        unsafe {
            let function = &*function.pointer();
            let names = list::pointers::<pg_sys::String>(function.funccolnames)
                .map(|name| list::string((*name).sval));
            let types = list::oids(function.funccoltypes).zip(list::integers(function.funccoltypmods));
            let columns = names.zip(types).zip(list::oids(function.funccolcollations));
            columns
                .map(|((name, (type_oid, modifier)), collation)| (name, type_oid, modifier, collation))
                .collect()
        }
    }

    /// The name of the query of WITH that it reads.
    pub fn with_name(self) -> String {
        // SAFETY: NULL or a string.
        unsafe { list::string((*self.pointer()).ctename) }
    }
}

impl<'p> Alias<'p> {
    /// A name for a relation, and for its columns.
    pub fn new(memory: Memory<'p>, name: &'static std::ffi::CStr, columns: List<'p, pg_sys::String>) -> Self {
        let _ = memory;
        // SAFETY: PostgreSQL copies the name; the list is of strings.
        unsafe { Ref::known(pg_sys::makeAlias(name.as_ptr(), columns.pointer())) }
    }

    /// The name.
    pub fn name(self) -> String {
        // SAFETY: a string.
        unsafe { list::string((*self.pointer()).aliasname) }
    }
}

impl<'p> Memory<'p> {
    /// A name as a node.
    pub fn name(self, name: &'static std::ffi::CStr) -> Ref<'p, pg_sys::String> {
        // SAFETY: a string, of which PostgreSQL makes a copy.
        unsafe { Ref::known(pg_sys::makeString(pg_sys::pstrdup(name.as_ptr()))) }
    }

    /// The name of a table's column as a node.
    pub fn name_of(self, column: &pg_sys::FormData_pg_attribute) -> Ref<'p, pg_sys::String> {
        // SAFETY: a string, of which PostgreSQL makes a copy.
        unsafe { Ref::known(pg_sys::makeString(pg_sys::pstrdup(column.attname.data.as_ptr()))) }
    }
}

impl<'p> TargetEntry<'p> {
    /// Its name; empty if it has none.
    pub fn name(self) -> String {
        // SAFETY: NULL or a string.
        unsafe { list::string((*self.pointer()).resname) }
    }

    /// Takes over the name of another.
    pub fn take_name(self, other: Self) {
        // SAFETY: two targets; the name lives as long as they.
        unsafe { (*self.pointer()).resname = (*other.pointer()).resname };
    }

    /// Its name as a node, or `otherwise`.
    pub fn name_or(self, otherwise: &'static std::ffi::CStr) -> Ref<'p, pg_sys::String> {
        // SAFETY: a string, of which PostgreSQL makes a copy.
        unsafe {
            let name = (*self.pointer()).resname;
            let name = if name.is_null() { otherwise.as_ptr() } else { name };
            Ref::known(pg_sys::makeString(pg_sys::pstrdup(name)))
        }
    }
}

impl<'p> SortGroupClause<'p> {
    /// The target that it is about.
    pub fn target(self, targets: List<'p, pg_sys::TargetEntry>) -> TargetEntry<'p> {
        // SAFETY: a clause of the query whose targets these are, or an ERROR.
        unsafe { Ref::known(pg_sys::get_sortgroupclause_tle(self.pointer(), targets.pointer())) }
    }
}

impl<'p> CommonTable<'p> {
    /// Its name.
    pub fn name(self) -> String {
        // SAFETY: a string.
        unsafe { list::string((*self.pointer()).ctename) }
    }

    /// Its query; `None` of what changes rows without returning any.
    pub fn query(self) -> Option<Query<'p>> {
        // SAFETY: NULL or a node.
        unsafe { Ref::<pg_sys::Node>::at((*self.pointer()).ctequery) }.and_then(Ref::downcast)
    }
}

impl<'p> WindowClause<'p> {
    /// The conditions behind which PostgreSQL stops, and which it tests nowhere else. Since PostgreSQL 17 the functions have them.
    pub fn run_conditions(self) -> List<'p, pg_sys::Node> {
        // SAFETY: a window of a planning; a list of expressions.
        unsafe { List::new(compat::run_conditions_of_window(self.pointer())) }
    }
}

impl<'p> WindowFunction<'p> {
    /// The conditions on the function behind which PostgreSQL stops, and which it tests nowhere else.
    pub fn run_conditions(self) -> Vec<Node<'p>> {
        // SAFETY: a function of a planning, in whose memory the conditions are.
        unsafe { compat::run_conditions_of_function(self.pointer()) }
            .into_iter()
            .filter_map(|condition| unsafe { Ref::at(condition) })
            .collect()
    }
}

impl<'p> AggregateCall<'p> {
    /// A call without arguments, in the query that it will stand in.
    pub fn new(memory: Memory<'p>, function: u32, type_oid: pg_sys::Oid) -> Self {
        let call = memory.make::<pg_sys::Aggref>();
        call.set_function(function.into());
        call.set_type_oid(type_oid);
        call.set_kind(b'n');
        call.set_split(pg_sys::AggSplit::AGGSPLIT_SIMPLE);
        call.set_number(-1);
        call.set_transition_number(-1);
        call.set_location(-1);
        call
    }
}
