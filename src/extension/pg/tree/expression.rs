//! Expressions.

use pgrx::pg_sys;
use pystachio_lower::Constant;

use super::{
    List, Memory, Node, OidList, Query, Ref, TargetEntry,
    fields::{fields, kinds},
};
use crate::pg::{compat, mirror::constant};

/// A column.
pub type Var<'p> = Ref<'p, pg_sys::Var>;
/// A constant.
pub type Const<'p> = Ref<'p, pg_sys::Const>;
/// A call of an operator.
pub type OperatorCall<'p> = Ref<'p, pg_sys::OpExpr>;
/// A call of a function.
pub type FunctionCall<'p> = Ref<'p, pg_sys::FuncExpr>;
/// IS NULL or IS NOT NULL.
pub type NullTest<'p> = Ref<'p, pg_sys::NullTest>;
/// AND, OR, NOT.
pub type Logic<'p> = Ref<'p, pg_sys::BoolExpr>;
/// A subquery in an expression.
pub type SubLink<'p> = Ref<'p, pg_sys::SubLink>;
/// An expression that is computed below an outer join, which may make it NULL.
pub type PlaceHolder<'p> = Ref<'p, pg_sys::PlaceHolderVar>;
/// A row of values.
pub type Row<'p> = Ref<'p, pg_sys::RowExpr>;
/// A call of a window function.
pub type WindowFunction<'p> = Ref<'p, pg_sys::WindowFunc>;
/// A call of an aggregate.
pub type AggregateCall<'p> = Ref<'p, pg_sys::Aggref>;

kinds! {
    Var = T_Var;
    Const = T_Const;
    Param = T_Param;
    OpExpr = T_OpExpr;
    ScalarArrayOpExpr = T_ScalarArrayOpExpr;
    FuncExpr = T_FuncExpr;
    BoolExpr = T_BoolExpr;
    BooleanTest = T_BooleanTest;
    NullTest = T_NullTest;
    RelabelType = T_RelabelType;
    CollateExpr = T_CollateExpr;
    CaseExpr = T_CaseExpr;
    CaseWhen = T_CaseWhen;
    CoalesceExpr = T_CoalesceExpr;
    RowExpr = T_RowExpr;
    RowCompareExpr = T_RowCompareExpr;
    FieldSelect = T_FieldSelect;
    SubLink = T_SubLink;
    SubPlan = T_SubPlan;
    Aggref = T_Aggref;
    GroupingFunc = T_GroupingFunc;
    WindowFunc = T_WindowFunc;
    PlaceHolderVar = T_PlaceHolderVar;
    Integer = T_Integer;
}

fields! { 'p Var {
    varno as relation: i32;
    varno = set_relation: i32;
    varattno as attribute: i16;
    varattno = set_attribute: i16;
    vartype as type_oid: pg_sys::Oid;
    vartype = set_type_oid: pg_sys::Oid;
    vartypmod = set_modifier: i32;
    varcollid as collation: pg_sys::Oid;
    varcollid = set_collation: pg_sys::Oid;
    varlevelsup as levels_up: u32;
    varlevelsup = set_levels_up: u32;
    varattnosyn = set_written_attribute: i16;
} }

fields! { 'p Const {
    consttype as type_oid: pg_sys::Oid;
    constvalue as value: pg_sys::Datum;
    constisnull as is_null: bool;
} }

fields! { 'p Param {
    paramkind as kind: u32;
    paramkind = set_kind: u32;
    paramid as number: i32;
    paramid = set_number: i32;
    paramtype = set_type_oid: pg_sys::Oid;
    paramtypmod = set_modifier: i32;
    paramcollid = set_collation: pg_sys::Oid;
    location = set_location: i32;
} }

fields! { 'p OpExpr {
    opno as operator: pg_sys::Oid;
    opno = set_operator: pg_sys::Oid;
    opfuncid as function: pg_sys::Oid;
    opfuncid = set_function: pg_sys::Oid;
    inputcollid as input_collation: pg_sys::Oid;
    args as arguments: List<'p, pg_sys::Node>;
    args = set_arguments: List<'p, pg_sys::Node>;
} }

fields! { 'p ScalarArrayOpExpr {
    opno = set_operator: pg_sys::Oid;
    useOr = set_use_or: bool;
    inputcollid = set_input_collation: pg_sys::Oid;
    args = set_arguments: List<'p, pg_sys::Node>;
    location = set_location: i32;
} }

fields! { 'p FuncExpr {
    funcid as function: pg_sys::Oid;
    funcid = set_function: pg_sys::Oid;
    funcresulttype as result_type: pg_sys::Oid;
    funcresulttype = set_result_type: pg_sys::Oid;
    funcretset as returns_set: bool;
    funcretset = set_returns_set: bool;
    funcvariadic as is_variadic: bool;
    funccollid as collation: pg_sys::Oid;
    args as arguments: List<'p, pg_sys::Node>;
    args = set_arguments: List<'p, pg_sys::Node>;
    location = set_location: i32;
} }

fields! { 'p BoolExpr {
    boolop as operation: u32;
    args as arguments: List<'p, pg_sys::Node>;
} }

fields! { 'p BooleanTest {
    arg = set_argument: Node<'p>;
    booltesttype = set_kind: u32;
    location = set_location: i32;
} }

fields! { 'p NullTest {
    arg as argument: Node<'p>;
    arg = set_argument: Node<'p>;
    nulltesttype as kind: u32;
    nulltesttype = set_kind: u32;
    argisrow as is_of_row: bool;
    argisrow = set_is_of_row: bool;
    location = set_location: i32;
} }

fields! { 'p RelabelType {
    arg as argument: Node<'p>;
} }

fields! { 'p CollateExpr {
    arg = set_argument: Node<'p>;
    collOid = set_collation: pg_sys::Oid;
    location = set_location: i32;
} }

fields! { 'p CoalesceExpr {
    args as arguments: List<'p, pg_sys::Node>;
} }

fields! { 'p CaseExpr {
    args as branches: List<'p, pg_sys::CaseWhen>;
    defresult as default: Option<Node<'p>>;
    casetype = set_type_oid: pg_sys::Oid;
    casecollid = set_collation: pg_sys::Oid;
    args = set_branches: List<'p, pg_sys::CaseWhen>;
    defresult = set_default: Option<Node<'p>>;
    location = set_location: i32;
} }

fields! { 'p CaseWhen {
    expr = set_condition: Node<'p>;
    result as result: Node<'p>;
    result = set_result: Node<'p>;
    location = set_location: i32;
} }

fields! { 'p RowExpr {
    args as fields: List<'p, pg_sys::Node>;
    args = set_fields: List<'p, pg_sys::Node>;
    row_typeid = set_type_oid: pg_sys::Oid;
    row_format = set_format: u32;
    colnames = set_names: List<'p, pg_sys::String>;
    location = set_location: i32;
} }

fields! { 'p SubLink {
    subLinkType as kind: u32;
    subLinkType = set_kind: u32;
    testexpr as test: Option<Node<'p>>;
    subselect = set_query: Query<'p>;
    location = set_location: i32;
} }

fields! { 'p SubPlan {
    plan_id as plan_number: i32;
} }

fields! { 'p Aggref {
    aggfnoid as function: pg_sys::Oid;
    aggfnoid = set_function: pg_sys::Oid;
    aggtype as type_oid: pg_sys::Oid;
    aggtype = set_type_oid: pg_sys::Oid;
    aggargtypes = set_argument_types: OidList<'p>;
    args as arguments: List<'p, pg_sys::TargetEntry>;
    args = set_arguments: List<'p, pg_sys::TargetEntry>;
    aggdirectargs as direct: List<'p, pg_sys::Node>;
    aggorder as order: List<'p, pg_sys::SortGroupClause>;
    aggdistinct as distinct: List<'p, pg_sys::SortGroupClause>;
    aggfilter as filter: Option<Node<'p>>;
    aggfilter = set_filter: Option<Node<'p>>;
    aggstar = set_is_star: bool;
    aggkind = set_kind: u8;
    agglevelsup as levels_up: u32;
    aggsplit = set_split: u32;
    aggno = set_number: i32;
    aggtransno = set_transition_number: i32;
    location = set_location: i32;
} }

fields! { 'p WindowFunc {
    winref as window: u32;
} }

fields! { 'p GroupingFunc {
    refs as references: super::IntegerList<'p>;
} }

fields! { 'p PlaceHolderVar {
    phid as id: u32;
    phexpr as expression: Node<'p>;
} }

fields! { 'p Integer {
    ival as value: i32;
    ival = set_value: i32;
} }

impl<'p> Node<'p> {
    /// Its type.
    pub fn type_oid(self) -> pg_sys::Oid {
        // SAFETY: an expression.
        unsafe { pg_sys::exprType(self.pointer()) }
    }

    /// Its type modifier.
    pub fn modifier(self) -> i32 {
        // SAFETY: an expression.
        unsafe { pg_sys::exprTypmod(self.pointer()) }
    }

    /// Its collation; invalid if it has none.
    pub fn collation(self) -> pg_sys::Oid {
        // SAFETY: an expression.
        unsafe { pg_sys::exprCollation(self.pointer()) }
    }

    /// Whether it names columns of the query so many levels up.
    pub fn has_columns_of_level(self, levels_up: i32) -> bool {
        // SAFETY: an expression or query.
        unsafe { pg_sys::contain_vars_of_level(self.pointer(), levels_up) }
    }

    /// Whether it calls volatile functions.
    pub fn is_volatile(self) -> bool {
        // SAFETY: an expression or query.
        unsafe { pg_sys::contain_volatile_functions(self.pointer()) }
    }

    /// Whether it has subqueries.
    pub fn has_subqueries(self) -> bool {
        // SAFETY: an expression.
        unsafe { pg_sys::contain_subplans(self.pointer()) }
    }

    /// Whether it returns a set.
    pub fn returns_set(self) -> bool {
        // SAFETY: an expression.
        unsafe { pg_sys::expression_returns_set(self.pointer()) }
    }

    /// Adds to the levels of the columns in it, and of what else has levels, that are of the level `from` or further up.
    pub fn move_levels(self, by: i32, from: i32) {
        // SAFETY: an expression or query.
        unsafe { pg_sys::IncrementVarSublevelsUp(self.pointer(), by, from) }
    }

    /// A condition in which what disjuncts share is outside.
    pub fn canonicalized(self) -> Node<'p> {
        // SAFETY: a condition.
        unsafe { Ref::known(pg_sys::canonicalize_qual(self.pointer().cast(), false).cast()) }
    }

    /// The expression with constants folded, without a query around it.
    pub fn folded(self) -> Node<'p> {
        // SAFETY: an expression.
        unsafe { Ref::known(pg_sys::eval_const_expressions(std::ptr::null_mut(), self.pointer())) }
    }

    /// The expression as one of another type with the same bytes.
    pub fn relabeled(self, type_oid: pg_sys::Oid, modifier: i32, collation: pg_sys::Oid) -> Node<'p> {
        let format = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
        // SAFETY: an expression.
        unsafe {
            Ref::known(pg_sys::applyRelabelType(
                self.pointer(),
                type_oid,
                modifier,
                collation,
                format,
                -1,
                false,
            ))
        }
    }

    /// The expression cast to the common type of a set operation, CASE or the like. An ERROR names it by `context`.
    pub fn coerced(self, type_oid: pg_sys::Oid, context: &'static std::ffi::CStr) -> Node<'p> {
        let none = std::ptr::null_mut();
        // SAFETY: an expression, and a string.
        unsafe { Ref::known(pg_sys::coerce_to_common_type(none, self.pointer(), type_oid, context.as_ptr())) }
    }

    /// The NULL of the expression's type.
    pub fn null_of_type(self) -> Const<'p> {
        // SAFETY: makes a node.
        unsafe { Ref::known(pg_sys::makeNullConst(self.type_oid(), self.modifier(), self.collation())) }
    }

    /// The expression as a column of a target list.
    pub fn as_target(
        self,
        number: i16,
        name: Option<&'static std::ffi::CStr>,
        is_hidden: bool,
    ) -> TargetEntry<'p> {
        let name = name.map_or(std::ptr::null_mut(), |name| name.as_ptr().cast_mut());
        // SAFETY: an expression, and a name that lives as long as the process.
        unsafe { Ref::known(pg_sys::makeTargetEntry(self.pointer().cast(), number, name, is_hidden)) }
    }
}

impl Const<'_> {
    /// Its value as lowering takes it.
    pub fn mirrored(self) -> Constant {
        // SAFETY: the value is of the constant's type, or NULL.
        unsafe { constant(self.value(), self.is_null(), self.type_oid()) }
    }
}

impl<'p, T> List<'p, T> {
    /// Whether any of these expressions returns a set.
    pub fn returns_set(self) -> bool {
        self.node().is_some_and(Node::returns_set)
    }
}

impl<'p> Memory<'p> {
    /// A constant of a type whose values are passed in registers.
    pub fn plain_constant(self, type_oid: pg_sys::Oid, length: i32, value: pg_sys::Datum) -> Const<'p> {
        // SAFETY: makes a node; the value needs no memory.
        unsafe { Ref::known(pg_sys::makeConst(type_oid, -1, pg_sys::InvalidOid, length, value, false, true)) }
    }

    /// A bigint.
    pub fn bigint(self, value: i64) -> Const<'p> {
        self.plain_constant(pg_sys::INT8OID, 8, pg_sys::Datum::from(value))
    }

    /// An integer.
    pub fn integer(self, value: i32) -> Const<'p> {
        self.plain_constant(pg_sys::INT4OID, 4, pg_sys::Datum::from(value))
    }

    /// Bytes.
    pub fn bytes(self, bytes: Vec<u8>) -> Const<'p> {
        use pgrx::IntoDatum;
        let datum = bytes.into_datum().unwrap_or(pg_sys::Datum::from(0));
        // SAFETY: makes a node of a value of the type, which lies in the current memory context.
        unsafe {
            Ref::known(pg_sys::makeConst(pg_sys::BYTEAOID, -1, pg_sys::InvalidOid, -1, datum, false, false))
        }
    }

    /// The NULL of a type.
    pub fn null(self, type_oid: pg_sys::Oid) -> Const<'p> {
        // SAFETY: makes a node.
        unsafe { Ref::known(pg_sys::makeNullConst(type_oid, -1, pg_sys::InvalidOid)) }
    }

    /// A node that is a number, and no expression.
    pub fn number(self, value: i32) -> Ref<'p, pg_sys::Integer> {
        // SAFETY: makes a node.
        unsafe { Ref::known(pg_sys::makeInteger(value)) }
    }
}

impl<'p> Logic<'p> {
    /// Conditions with AND or OR between them, or one with NOT.
    pub fn new(operation: pg_sys::BoolExprType::Type, arguments: List<'p, pg_sys::Node>) -> Node<'p> {
        // SAFETY: conditions.
        unsafe { Ref::known(pg_sys::makeBoolExpr(operation, arguments.pointer(), -1).cast()) }
    }
}

impl Const<'_> {
    /// The bytes of a constant that [`Memory::bytes`] could have made.
    pub fn bytes(self) -> Option<Vec<u8>> {
        use pgrx::FromDatum;
        if self.type_oid() != pg_sys::BYTEAOID {
            return None;
        }
        // SAFETY: a value of that type, or NULL.
        unsafe { Vec::from_datum(self.value(), self.is_null()) }
    }
}

impl<'p> Var<'p> {
    /// A column of a relation, of a type without modifier and collation.
    pub fn new(memory: Memory<'p>, relation: i32, attribute: i16, type_oid: pg_sys::Oid) -> Self {
        let _ = memory;
        // SAFETY: makes a node.
        unsafe { Ref::known(pg_sys::makeVar(relation, attribute, type_oid, -1, pg_sys::InvalidOid, 0)) }
    }

    /// A column of a subquery of FROM.
    pub fn of_target(relation: i32, target: TargetEntry<'p>) -> Self {
        // SAFETY: a column of a target list.
        unsafe { Ref::known(pg_sys::makeVarFromTargetEntry(relation, target.pointer())) }
    }

    /// Notes that an outer join may make the column NULL.
    pub fn mark_nullable(self, join: i32) {
        // SAFETY: a column.
        unsafe { compat::mark_nullable(self.pointer(), join) }
    }
}

impl<'p> SubLink<'p> {
    /// A query in an expression.
    pub fn new(kind: pg_sys::SubLinkType::Type, query: Query<'p>) -> Self {
        let link = query.memory().make::<pg_sys::SubLink>();
        link.set_kind(kind);
        link.set_query(query);
        link.set_location(-1);
        link
    }

    /// Its query.
    pub fn query(self) -> Query<'p> {
        // SAFETY: the parser has made a query of it.
        unsafe { Ref::known((*self.pointer()).subselect.cast()) }
    }
}

impl<'p> FunctionCall<'p> {
    /// A call of a function that returns a set of values without collations.
    pub fn of_set(
        memory: Memory<'p>,
        function: u32,
        result_type: pg_sys::Oid,
        arguments: List<'p, pg_sys::Node>,
    ) -> Self {
        let call = memory.make::<pg_sys::FuncExpr>();
        call.set_function(function.into());
        call.set_result_type(result_type);
        call.set_returns_set(true);
        call.set_arguments(arguments);
        call.set_location(-1);
        call
    }
}

impl<'p> OperatorCall<'p> {
    /// A comparison of two values without collations.
    pub fn comparison(operator: u32, first: Node<'p>, second: Node<'p>) -> Node<'p> {
        let none = pg_sys::InvalidOid;
        let (first, second) = (first.pointer().cast(), second.pointer().cast());
        // SAFETY: two expressions.
        unsafe {
            let call =
                pg_sys::make_opclause(operator.into(), pg_sys::BOOLOID, false, first, second, none, none);
            Ref::known(call.cast())
        }
    }

    /// Looks up the function of the operator, if it is not known.
    pub fn find_function(self) {
        // SAFETY: a call of an operator.
        unsafe { pg_sys::set_opfuncid(self.pointer()) }
    }
}
