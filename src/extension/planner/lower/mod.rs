//! PostgreSQL's expressions as plan expressions.
//!
//! - `numeric.rs`: scales, bounds and the arithmetic of numbers
//! - `constant.rs`: constants
//! - `call.rs`: functions and operators
//! - `zone.rs`: time zones
//! - `aggregate.rs`: aggregates
//!
//! `numeric` has a *display scale* beside its value: 2.50 and 2.5 are equal and print differently. Plans
//! have decimals of a fixed scale, so a lowered expression carries its display scale beside it: a
//! constant, or another plan expression where it varies by row. The value's own scale is never smaller,
//! and its further digits are zero.

mod aggregate;
mod call;
mod constant;
mod numeric;
mod zone;

use std::cell::{Cell, RefCell};

use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;
use pystachio_plan::{
    CaseBranch, DataType, EXPRESSION_DEPTH_MAX, Expression, ExpressionSize, Function, RELATION_DEPTH_MAX,
    Value, are_mixed_moments, could_fail,
};

pub use self::aggregate::LoweredAggregate;
pub use self::constant::{is_infinite, lower_datum};
pub use self::numeric::{common_scale, retype, type_magnitude, unify_branches};

use super::{
    collation,
    nodes::{contains, elements, is_deeper, make_node, node_as, tag_of, text_of},
    planning::with_planning,
    scope::Scope,
    shippable::{Comparison, Shipping, shipping_of},
};
use crate::{
    pg::{
        compat::{self, RowComparison},
        list::oids,
    },
    types::data_type,
};

/// How deep an expression may nest, before and after it is lowered. Lowering needs most stack, some 3 kB a
/// level; with this it fits PostgreSQL's default.
const DEPTH_MAX: usize = 200;
/// How large a lowered expression may be. One that is used twice is there twice, so that a short one of
/// PostgreSQL's could become one that fills the memory.
const PARTS_MAX: usize = 100_000;
/// How large the operand of a simple CASE may be: it is there once a branch.
const OPERAND_PARTS_MAX: usize = 100;

// What puts lowered expressions together (AND, aggregates, display scales) adds a few levels.
const _: () = assert!(DEPTH_MAX + 50 <= EXPRESSION_DEPTH_MAX);

/// Why an expression is left to PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// A reason in words that fit behind "not pushed down: ".
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    fn too_deep() -> Self {
        Self(format!("an expression nested more than {DEPTH_MAX} deep"))
    }
}

/// Refuses a plan that an engine would not decode.
///
/// # Errors
///
/// If it is nested too deep.
pub fn check_depth(depth: usize) -> Result<(), Refusal> {
    /// Operators that are added when the plan is finished.
    const FINISHING: usize = 10;
    const DEPTH_MAX: usize = RELATION_DEPTH_MAX - FINISHING;
    if depth > DEPTH_MAX {
        return Err(Refusal(format!("a plan nested more than {DEPTH_MAX} deep")));
    }
    Ok(())
}

/// Whether a value that only run time tells, of such a type, is in an expression.
pub fn has_parameter(expression: &Expression, is_meant: impl Fn(&DataType) -> bool) -> bool {
    let mut found = false;
    expression.walk(&mut |part| {
        found |= matches!(part, Expression::Parameter { data_type, .. } if is_meant(data_type));
    });
    found
}

/// A plan expression, and what PostgreSQL must know to print its value.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The value.
    pub expression: Expression,
    /// Its display scale, if it is a numeric.
    pub scale: Scale,
    /// A bound on the absolute value of a number, or on the microseconds of a timestamp; infinite if none
    /// is known.
    pub magnitude: f64,
    /// The value is never NULL: made of columns that are declared NOT NULL, with no outer join between.
    pub not_null: bool,
    /// The type modifier of a `character` value, which says how far it is padded; -1 if unknown.
    pub modifier: i32,
}

/// How many digits a numeric prints after the point.
#[derive(Clone, Debug)]
pub enum Scale {
    /// Not a numeric.
    None,
    /// The same in every row.
    Fixed(i32),
    /// An Int32.
    Varies(Box<Expression>),
}

impl Lowered {
    /// A number.
    pub fn number(expression: Expression, scale: Scale, magnitude: f64) -> Self {
        Self { expression, scale, magnitude, not_null: false, modifier: -1 }
    }

    /// A value that is no number.
    pub fn plain(expression: Expression) -> Self {
        Self::number(expression, Scale::None, f64::INFINITY)
    }

    /// The type of the value.
    pub fn data_type(&self) -> &DataType {
        self.expression.data_type()
    }

    /// Whether the value is NULL in no row, for all that is known.
    pub fn is_never_null(&self) -> bool {
        let is_constant =
            matches!(&self.expression, Expression::Literal(literal) if literal.value != Value::Null);
        self.not_null || is_constant
    }

    /// How large the value and its scale are.
    pub fn size(&self) -> ExpressionSize {
        let value = self.expression.size();
        match &self.scale {
            Scale::Varies(scale) => {
                let scale = scale.size();
                ExpressionSize { depth: value.depth.max(scale.depth), parts: value.parts + scale.parts }
            }
            _ => value,
        }
    }

    /// Whether computing the value, or its scale, could fail for some row.
    pub fn could_fail(&self) -> bool {
        let fails = |expression| could_fail(expression, &|_| false);
        fails(&self.expression) || matches!(&self.scale, Scale::Varies(scale) if fails(scale))
    }

    /// The same with its expressions (the value, and the scale if that varies) changed.
    pub fn map_expressions(self, change: &mut dyn FnMut(Expression) -> Expression) -> Self {
        Self {
            expression: change(self.expression),
            scale: match self.scale {
                Scale::Varies(scale) => Scale::Varies(Box::new(change(*scale))),
                other => other,
            },
            magnitude: self.magnitude,
            not_null: self.not_null,
            modifier: self.modifier,
        }
    }
}

/// From so many digits on a number may equal a `numeric` that no literal holds.
const LONG_DECIMAL_DIGITS: u8 = 39;

/// Lowers expressions over one scope.
pub struct Lowering<'scope> {
    scope: &'scope Scope,
    /// Set while inside a branch that may not be evaluated.
    conditional: Cell<bool>,
    /// The operands of the simple CASEs around this place.
    case_operands: RefCell<Vec<Lowered>>,
    /// How many nodes around this place are being lowered.
    depth: Cell<usize>,
}

type LoweredResult = Result<Lowered, Refusal>;

impl<'scope> Lowering<'scope> {
    /// A lowering over the scope.
    pub fn new(scope: &'scope Scope) -> Self {
        Self {
            scope,
            conditional: Cell::new(false),
            case_operands: RefCell::new(Vec::new()),
            depth: Cell::new(0),
        }
    }

    /// The plan expression with exactly PostgreSQL's value, or why there is none.
    pub unsafe fn lower(&self, node: *mut pg_sys::Node) -> LoweredResult {
        unsafe {
            if node.is_null() {
                return Err(Refusal::new("an empty expression"));
            }
            if let Some(found) = self.scope.find(node) {
                return Ok(found);
            }
            let depth = self.depth.get();
            if depth == 0 && is_deeper(node, DEPTH_MAX) {
                return Err(Refusal::too_deep());
            }
            if pg_sys::stack_is_too_deep() {
                return Err(Refusal::new("an expression nested deeper than the stack allows"));
            }
            self.depth.set(depth + 1);
            let lowered = self.lower_parts(node);
            self.depth.set(depth);
            if depth == 0 && lowered.is_err() && contains(node, &|part| is_given(part)) {
                with_planning(|planning| planning.lose_parameter());
            }
            lowered
        }
    }

    unsafe fn lower_parts(&self, node: *mut pg_sys::Node) -> LoweredResult {
        unsafe {
            if let Some(parameter) = self.lower_parameter(node)? {
                return Ok(parameter);
            }
            let lowered = self.lower_node(node)?;
            // Columns may stand for expressions of subqueries, so that this grows with every level of these.
            let size = lowered.size();
            if size.depth > DEPTH_MAX {
                return Err(Refusal::too_deep());
            }
            if size.parts > PARTS_MAX {
                return Err(Refusal(format!("an expression of more than {PARTS_MAX} parts")));
            }
            Ok(lowered)
        }
    }

    /// A condition; NULL-valued text and the like can't be one.
    pub unsafe fn lower_condition(&self, node: *mut pg_sys::Node) -> Result<Expression, Refusal> {
        let lowered = unsafe { self.lower(node)? };
        match lowered.data_type() {
            DataType::Bool => Ok(lowered.expression),
            other => Err(Refusal(format!("a condition of type {other}"))),
        }
    }

    unsafe fn lower_node(&self, node: *mut pg_sys::Node) -> LoweredResult {
        unsafe {
            match tag_of(node) {
                NodeTag::T_Const => constant::lower_constant(&*node.cast()),
                NodeTag::T_OpExpr => {
                    let operator = &mut *node.cast::<pg_sys::OpExpr>();
                    pg_sys::set_opfuncid(operator);
                    self.lower_call(operator.opfuncid, operator.args, node, operator.inputcollid)
                }
                NodeTag::T_FuncExpr => {
                    let call = &*node.cast::<pg_sys::FuncExpr>();
                    if call.funcvariadic || call.funcretset {
                        return Err(Refusal(format!("function {}", function_name(call.funcid))));
                    }
                    self.lower_call(call.funcid, call.args, node, call.inputcollid)
                }
                NodeTag::T_DistinctExpr => {
                    let (a, b) = self.lower_equal_operands(node)?;
                    Ok(Lowered::plain(Expression::predicate(Function::IsDistinctFrom, vec![a, b])))
                }
                NodeTag::T_NullIfExpr => self.lower_nullif(node),
                NodeTag::T_ScalarArrayOpExpr => self.lower_array_comparison(&mut *node.cast()),
                NodeTag::T_RowCompareExpr => self.lower_row_comparison(&*node.cast()),
                NodeTag::T_BoolExpr => self.lower_bool(&*node.cast()),
                NodeTag::T_RelabelType => self.lower_relabel(&*node.cast()),
                NodeTag::T_CoerceViaIO => self.lower_coerce_via_io(&*node.cast()),
                NodeTag::T_CaseExpr => self.lower_case(&*node.cast()),
                NodeTag::T_CaseTestExpr => {
                    let operands = self.case_operands.borrow();
                    operands.last().cloned().ok_or_else(|| Refusal::new("a CASE operand out of place"))
                }
                NodeTag::T_CoalesceExpr => {
                    let call = &*node.cast::<pg_sys::CoalesceExpr>();
                    self.lower_choice(Function::Coalesce, call.args)
                }
                NodeTag::T_MinMaxExpr => self.lower_min_max(&*node.cast()),
                NodeTag::T_NullTest => self.lower_null_test(&*node.cast()),
                NodeTag::T_BooleanTest => self.lower_boolean_test(&*node.cast()),
                NodeTag::T_Var => {
                    let var = &*node.cast::<pg_sys::Var>();
                    let what = match var.varattno {
                        0 => "a whole-row reference",
                        number if number < 0 => "a system column",
                        _ => "a column that is not in the pushed part",
                    };
                    Err(Refusal::new(what))
                }
                NodeTag::T_PlaceHolderVar => {
                    let placeholder = &*node.cast::<pg_sys::PlaceHolderVar>();
                    // Over exactly its own relations no outer join has made it NULL yet.
                    if placeholder.phlevelsup != 0 || !self.scope.is_over(placeholder.phrels) {
                        return Err(Refusal::new("an expression of a view or subquery below an outer join"));
                    }
                    self.lower(placeholder.phexpr.cast())
                }
                NodeTag::T_SubPlan | NodeTag::T_AlternativeSubPlan => {
                    Err(Refusal::new("a subquery that stays a SubPlan"))
                }
                NodeTag::T_Aggref => Err(Refusal::new("an aggregate outside its grouping")),
                NodeTag::T_WindowFunc => Err(Refusal::new("a window function")),
                // Groups of several sets are never lowered, and all else is grouped by every key.
                NodeTag::T_GroupingFunc if (*node.cast::<pg_sys::GroupingFunc>()).agglevelsup == 0 => {
                    Ok(Lowered::plain(Expression::int32(0)))
                }
                NodeTag::T_GroupingFunc => Err(Refusal::new("GROUPING() of another level")),
                other => Err(Refusal(format!("an expression of kind {other:?}"))),
            }
        }
    }

    /// An expression without columns becomes a parameter: PostgreSQL evaluates it when the query starts.
    unsafe fn lower_parameter(&self, node: *mut pg_sys::Node) -> Result<Option<Lowered>, Refusal> {
        unsafe {
            if tag_of(node) == NodeTag::T_Const {
                return Ok(None);
            }
            match self.is_runtime_value(node) {
                Ok(false) => return Ok(None),
                Err(refusal) => return self.lower_where_reached(node).map(Some).ok_or(refusal),
                Ok(true) => {}
            }
            let type_oid = pg_sys::exprType(node);
            let Some(data_type) = data_type(type_oid, -1).filter(|known| !is_list(known)) else {
                return Err(Refusal(format!("a runtime value of type {}", type_name(type_oid))));
            };
            let index = with_planning(|planning| planning.parameter(node, data_type.clone()));
            let parameter = Expression::Parameter { index, data_type: data_type.clone() };
            if type_oid == pg_sys::BPCHAROID {
                let trimmed = Expression::call(Function::TrimBlanks, vec![parameter], DataType::Text);
                return Ok(Some(Lowered::plain(trimmed)));
            }
            let magnitude = numeric::type_magnitude(&data_type);
            Ok(Some(Lowered::number(parameter, Scale::None, magnitude)))
        }
    }

    /// A runtime expression as an expression over values that are given, which an engine evaluates for rows that reach it.
    unsafe fn lower_where_reached(&self, node: *mut pg_sys::Node) -> Option<Lowered> {
        let lowered = unsafe { self.lower_node(node) }.ok()?;
        let mut has_dates = false;
        lowered.expression.walk(&mut |part| {
            // A parameter may be infinite, which no column of these types is.
            has_dates = has_dates
                || matches!(
                    part,
                    Expression::Parameter {
                        data_type: DataType::Date | DataType::Timestamp | DataType::TimestampTz,
                        ..
                    }
                );
        });
        (!has_dates).then_some(lowered)
    }

    /// Whether PostgreSQL can evaluate the expression when the query starts.
    unsafe fn is_runtime_value(&self, node: *mut pg_sys::Node) -> Result<bool, Refusal> {
        unsafe {
            let has_columns = contains(node, &|part| {
                matches!(
                    tag_of(part),
                    NodeTag::T_Var
                        | NodeTag::T_PlaceHolderVar
                        | NodeTag::T_Aggref
                        | NodeTag::T_CaseTestExpr
                        | NodeTag::T_SubPlan
                        | NodeTag::T_AlternativeSubPlan
                        | NodeTag::T_WindowFunc
                        | NodeTag::T_GroupingFunc
                )
            });
            if has_columns || pg_sys::expression_returns_set(node) || pg_sys::contain_volatile_functions(node)
            {
                return Ok(false);
            }
            if self.conditional.get() && !is_harmless(node) {
                // Evaluating it early could raise an error that PostgreSQL would not raise.
                return Err(Refusal::new("a runtime expression in a branch that may not be taken"));
            }
            Ok(true)
        }
    }

    /// The arguments, lowered.
    unsafe fn lower_list(&self, list: *mut pg_sys::List) -> Result<Vec<Lowered>, Refusal> {
        unsafe { elements::<pg_sys::Node>(list).map(|node| self.lower(node)).collect() }
    }

    unsafe fn lower_bool(&self, expression: &pg_sys::BoolExpr) -> LoweredResult {
        let outside = self.conditional.get();
        let mut arguments = Ok(Vec::new());
        for (place, node) in unsafe { elements::<pg_sys::Node>(expression.args) }.enumerate() {
            // The first may decide alone.
            self.conditional.set(outside || place > 0);
            arguments = arguments.and_then(|mut lowered: Vec<Expression>| {
                lowered.push(unsafe { self.lower_condition(node)? });
                Ok(lowered)
            });
        }
        self.conditional.set(outside);
        let function = match expression.boolop {
            pg_sys::BoolExprType::AND_EXPR => Function::And,
            pg_sys::BoolExprType::OR_EXPR => Function::Or,
            _ => Function::Not,
        };
        Ok(Lowered::plain(Expression::predicate(function, arguments?)))
    }

    unsafe fn lower_relabel(&self, relabel: &pg_sys::RelabelType) -> LoweredResult {
        unsafe {
            let source = pg_sys::exprType(relabel.arg.cast());
            let lowered = self.lower(relabel.arg.cast())?;
            let is_text = |oid| oid == pg_sys::TEXTOID || oid == pg_sys::VARCHAROID;
            if source == relabel.resulttype || (is_text(source) && is_text(relabel.resulttype)) {
                return Ok(lowered);
            }
            if is_text(source) && relabel.resulttype == pg_sys::BPCHAROID {
                let trimmed =
                    Expression::call(Function::TrimBlanks, vec![lowered.expression], DataType::Text);
                return Ok(Lowered::plain(trimmed));
            }
            let names = (type_name(source), type_name(relabel.resulttype));
            Err(Refusal(format!("{} taken as {}", names.0, names.1)))
        }
    }

    unsafe fn lower_coerce_via_io(&self, coerce: &pg_sys::CoerceViaIO) -> LoweredResult {
        unsafe {
            let source = pg_sys::exprType(coerce.arg.cast());
            let is_text = |oid| oid == pg_sys::TEXTOID || oid == pg_sys::VARCHAROID;
            let is_plain =
                matches!(source, pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID | pg_sys::UUIDOID);
            if is_plain && is_text(coerce.resulttype) {
                let argument = self.lower(coerce.arg.cast())?;
                let text = Expression::call(Function::Cast, vec![argument.expression], DataType::Text);
                return Ok(Lowered::plain(text));
            }
            Err(Refusal(format!("a cast from {} to {}", type_name(source), type_name(coerce.resulttype))))
        }
    }

    /// Lowers something that need not be evaluated for every row.
    pub unsafe fn lower_conditionally(&self, node: *mut pg_sys::Node) -> LoweredResult {
        let outside = self.conditional.replace(true);
        let lowered = unsafe { self.lower(node) };
        self.conditional.set(outside);
        lowered
    }

    unsafe fn lower_case(&self, case: &pg_sys::CaseExpr) -> LoweredResult {
        unsafe {
            let has_operand = !case.arg.is_null();
            if has_operand {
                let operand = self.lower(case.arg.cast())?;
                if operand.size().parts > OPERAND_PARTS_MAX {
                    return Err(Refusal::new("CASE with a large operand"));
                }
                self.case_operands.borrow_mut().push(operand);
            }
            let branches = self.lower_branches(case);
            if has_operand {
                self.case_operands.borrow_mut().pop();
            }
            let (conditions, mut results) = branches?;
            let has_otherwise = !case.defresult.is_null();
            if has_otherwise {
                results.push(self.lower_conditionally(case.defresult.cast())?);
            }
            check_padding(case.casetype)?;
            let not_null = has_otherwise && results.iter().all(Lowered::is_never_null);
            let (results, data_type, magnitude) = unify_branches(results)?;
            let build = |values: Vec<Expression>, data_type: DataType| {
                let mut values = values.into_iter();
                let branches = conditions
                    .iter()
                    .cloned()
                    .zip(values.by_ref())
                    .map(|(condition, result)| CaseBranch { condition, result })
                    .collect();
                Expression::Case { branches, otherwise: values.next().map(Box::new), data_type }
            };
            Ok(Lowered { not_null, ..numeric::choose(results, data_type, magnitude, build) })
        }
    }

    unsafe fn lower_branches(
        &self,
        case: &pg_sys::CaseExpr,
    ) -> Result<(Vec<Expression>, Vec<Lowered>), Refusal> {
        let mut conditions = Vec::new();
        let mut results = Vec::new();
        for when in unsafe { elements::<pg_sys::CaseWhen>(case.args) } {
            unsafe {
                let is_first = conditions.is_empty();
                let condition = (*when).expr.cast();
                let condition =
                    if is_first { self.lower(condition)? } else { self.lower_conditionally(condition)? };
                conditions.push(condition.expression);
                results.push(self.lower_conditionally((*when).result.cast())?);
            }
        }
        Ok((conditions, results))
    }

    unsafe fn lower_choice(&self, function: Function, list: *mut pg_sys::List) -> LoweredResult {
        unsafe {
            let mut arguments = Vec::new();
            for (place, node) in elements::<pg_sys::Node>(list).enumerate() {
                check_padding(pg_sys::exprType(node))?;
                arguments.push(if place == 0 { self.lower(node)? } else { self.lower_conditionally(node)? });
            }
            let not_null = arguments.iter().any(Lowered::is_never_null);
            let (arguments, data_type, magnitude) = unify_branches(arguments)?;
            if function == Function::Coalesce {
                // The display scale is that of the chosen argument.
                let values: Vec<_> = arguments.iter().map(|argument| argument.expression.clone()).collect();
                let build = |results: Vec<Expression>, data_type: DataType| {
                    if results == values {
                        return Expression::call(Function::Coalesce, results, data_type);
                    }
                    let branches = values
                        .iter()
                        .zip(results)
                        .map(|(value, result)| CaseBranch {
                            condition: Expression::predicate(Function::IsNotNull, vec![value.clone()]),
                            result,
                        })
                        .collect();
                    Expression::Case { branches, otherwise: None, data_type }
                };
                return Ok(Lowered {
                    not_null,
                    ..numeric::choose(arguments.clone(), data_type, magnitude, build)
                });
            }
            let scale = numeric::common_scale(&arguments)
                .ok_or_else(|| Refusal::new("GREATEST or LEAST of numerics with different scales"))?;
            let arguments = arguments.into_iter().map(|argument| argument.expression).collect();
            Ok(Lowered::number(Expression::call(function, arguments, data_type), scale, magnitude))
        }
    }

    unsafe fn lower_min_max(&self, call: &pg_sys::MinMaxExpr) -> LoweredResult {
        check_order(call.minmaxtype, call.inputcollid)?;
        let function =
            if call.op == pg_sys::MinMaxOp::IS_GREATEST { Function::Greatest } else { Function::Least };
        unsafe { self.lower_choice(function, call.args) }
    }

    unsafe fn lower_null_test(&self, test: &pg_sys::NullTest) -> LoweredResult {
        if test.argisrow {
            return Err(Refusal::new("IS NULL on a row"));
        }
        let argument = unsafe { self.lower(test.arg.cast())? };
        let function = match test.nulltesttype {
            pg_sys::NullTestType::IS_NULL => Function::IsNull,
            _ => Function::IsNotNull,
        };
        Ok(Lowered::plain(Expression::predicate(function, vec![argument.expression])))
    }

    unsafe fn lower_boolean_test(&self, test: &pg_sys::BooleanTest) -> LoweredResult {
        let argument = unsafe { self.lower_condition(test.arg.cast())? };
        let function = match test.booltesttype {
            pg_sys::BoolTestType::IS_TRUE => Function::IsTrue,
            pg_sys::BoolTestType::IS_NOT_TRUE => Function::IsNotTrue,
            pg_sys::BoolTestType::IS_FALSE => Function::IsFalse,
            pg_sys::BoolTestType::IS_NOT_FALSE => Function::IsNotFalse,
            pg_sys::BoolTestType::IS_UNKNOWN => Function::IsNull,
            _ => Function::IsNotNull,
        };
        Ok(Lowered::plain(Expression::predicate(function, vec![argument])))
    }

    /// The operands of a node that is laid out as an OpExpr of `=`.
    unsafe fn lower_equal_operands(
        &self,
        node: *mut pg_sys::Node,
    ) -> Result<(Expression, Expression), Refusal> {
        unsafe {
            let operator = &mut *node.cast::<pg_sys::OpExpr>();
            pg_sys::set_opfuncid(operator);
            let compared = self.lower_call(operator.opfuncid, operator.args, node, operator.inputcollid)?;
            match compared.expression {
                Expression::Call { function: Function::Equal, mut arguments, .. } if arguments.len() == 2 => {
                    let b = arguments.remove(1);
                    Ok((arguments.remove(0), b))
                }
                _ => Err(Refusal(format!("operator {}", function_name(operator.opfuncid)))),
            }
        }
    }

    /// `(a, b) < (x, y)` as `a <= x AND (a < x OR b < y)`: the first column bounds the rows, and NULL is where PostgreSQL has
    /// it, whose comparison ends at the first columns that differ or of which one is NULL.
    unsafe fn lower_row_comparison(&self, call: &pg_sys::RowCompareExpr) -> LoweredResult {
        let (own, strict, loose) = match compat::row_comparison(call) {
            RowComparison::Less => (Comparison::Less, Comparison::Less, Comparison::LessEqual),
            RowComparison::LessEqual => (Comparison::LessEqual, Comparison::Less, Comparison::LessEqual),
            RowComparison::Greater => (Comparison::Greater, Comparison::Greater, Comparison::GreaterEqual),
            RowComparison::GreaterEqual => {
                (Comparison::GreaterEqual, Comparison::Greater, Comparison::GreaterEqual)
            }
            RowComparison::Other => return Err(Refusal::new("a comparison of rows by other operators")),
        };
        let mut pairs = Vec::new();
        unsafe {
            let operands = elements::<pg_sys::Node>(call.largs).zip(elements::<pg_sys::Node>(call.rargs));
            let operators = oids(call.opnos).zip(oids(call.inputcollids));
            for (place, ((a, b), (operator, collation_oid))) in operands.zip(operators).enumerate() {
                check_equality(pg_sys::exprType(a), collation_oid)?;
                check_order(pg_sys::exprType(a), collation_oid)?;
                if self.comparison_of(pg_sys::get_opcode(operator), collation_oid)? != own {
                    return Err(Refusal::new("a comparison of rows by other operators"));
                }
                let lower = |node| match place {
                    0 => self.lower(node),
                    _ => self.lower_conditionally(node),
                };
                pairs.push((lower(call::name_as_text(a))?, lower(call::name_as_text(b))?));
            }
        }
        let Some((a, b)) = pairs.pop() else {
            return Err(Refusal::new("a comparison of rows without columns"));
        };
        let mut compared = call::compare(own, a, b)?;
        for (a, b) in pairs.into_iter().rev() {
            let is_before = call::compare(strict, a.clone(), b.clone())?;
            let rest = Expression::predicate(Function::Or, vec![is_before, compared]);
            compared = Expression::predicate(Function::And, vec![call::compare(loose, a, b)?, rest]);
        }
        Ok(Lowered::plain(compared))
    }

    unsafe fn lower_nullif(&self, node: *mut pg_sys::Node) -> LoweredResult {
        unsafe {
            self.lower_equal_operands(node)?;
            let operator = &*node.cast::<pg_sys::OpExpr>();
            let mut arguments = self.lower_list(operator.args)?;
            let (Some(b), Some(a)) = (arguments.pop(), arguments.pop()) else {
                return Err(Refusal::new("NULLIF without two arguments"));
            };
            if a.data_type() != b.data_type() && !(a.data_type().is_decimal() && b.data_type().is_decimal()) {
                return Err(Refusal::new("NULLIF of two types"));
            }
            let data_type = a.data_type().clone();
            if data_type == DataType::Numeric {
                return Err(Refusal::new("NULLIF of a runtime numeric"));
            }
            let expression = Expression::call(Function::NullIf, vec![a.expression, b.expression], data_type);
            Ok(Lowered::number(expression, a.scale, a.magnitude))
        }
    }

    /// `x = ANY (array)`, `x <> ALL (array)`, and other operators where the array's elements are known.
    unsafe fn lower_array_comparison(&self, call: &mut pg_sys::ScalarArrayOpExpr) -> LoweredResult {
        unsafe {
            pg_sys::set_sa_opfuncid(call);
            let mut arguments = elements::<pg_sys::Node>(call.args);
            let (Some(scalar), Some(array)) = (arguments.next(), arguments.next()) else {
                return Err(Refusal::new("ANY without two operands"));
            };
            if call::is_like(call.opfuncid) {
                return self.lower_like_any(call, scalar, array);
            }
            check_equality(pg_sys::exprType(scalar), call.inputcollid)?;
            let items = self.lower_array_items(array)?;
            let scalar = self.lower(scalar)?;
            let comparison = self.comparison_of(call.opfuncid, call.inputcollid)?;
            let membership = match (comparison, call.useOr) {
                (Comparison::Equal, true) => Some(false),
                (Comparison::NotEqual, false) => Some(true),
                _ => None,
            };
            let Some(items) = items else {
                let Some(negated) = membership else {
                    return Err(Refusal::new(
                        "another ANY or ALL than = ANY and <> ALL over a runtime array",
                    ));
                };
                let found = self.lower_runtime_membership(scalar, array)?;
                let found = if negated { Expression::predicate(Function::Not, vec![found]) } else { found };
                return Ok(Lowered::plain(found));
            };
            let same_type = items.iter().all(|item| {
                item.data_type() == scalar.data_type() && matches!(item.expression, Expression::Literal(_))
            });
            if items.is_empty() {
                // ANY of nothing is false and ALL of nothing true, whatever the scalar is.
                return Ok(Lowered::plain(Expression::literal(Value::Bool(!call.useOr), DataType::Bool)));
            }
            if let (Some(negated), true) = (membership, same_type) {
                let mut list = vec![scalar.expression];
                list.extend(items.into_iter().map(|item| item.expression));
                let found = Expression::predicate(Function::In, list);
                let found = if negated { Expression::predicate(Function::Not, vec![found]) } else { found };
                return Ok(Lowered::plain(found));
            }
            let compared: Result<Vec<_>, _> =
                items.into_iter().map(|item| call::compare(comparison, scalar.clone(), item)).collect();
            let mut compared = compared?;
            if compared.len() == 1 {
                return Ok(Lowered::plain(compared.remove(0)));
            }
            let function = if call.useOr { Function::Or } else { Function::And };
            Ok(Lowered::plain(Expression::predicate(function, compared)))
        }
    }

    /// `x LIKE ANY (array)` and its kin: a LIKE for each element, joined by OR or, for ALL, by AND.
    unsafe fn lower_like_any(
        &self,
        call: &pg_sys::ScalarArrayOpExpr,
        scalar: *mut pg_sys::Node,
        array: *mut pg_sys::Node,
    ) -> LoweredResult {
        unsafe {
            let function = if call.useOr { Function::Or } else { Function::And };
            let test = |item: *mut pg_sys::Node| {
                let test = pg_sys::make_opclause(
                    call.opno,
                    pg_sys::BOOLOID,
                    false,
                    scalar.cast(),
                    item.cast(),
                    pg_sys::InvalidOid,
                    call.inputcollid,
                );
                self.lower_condition(test.cast())
            };
            let Some(items) = constant::array_elements(array)? else {
                return self.lower_like_runtime(function, scalar, array, &test);
            };
            let mut tests = items.into_iter().map(test).collect::<Result<Vec<_>, _>>()?;
            Ok(Lowered::plain(match tests.len() {
                // ANY of nothing is false and ALL of nothing true.
                0 => Expression::literal(Value::Bool(!call.useOr), DataType::Bool),
                1 => tests.remove(0),
                _ => Expression::predicate(function, tests),
            }))
        }
    }

    /// The same over an array that PostgreSQL evaluates when the query starts: OR or AND of one test, whose pattern is the
    /// array's parameter. Its elements are written into the plan when they are known.
    unsafe fn lower_like_runtime(
        &self,
        function: Function,
        scalar: *mut pg_sys::Node,
        array: *mut pg_sys::Node,
        test: &dyn Fn(*mut pg_sys::Node) -> Result<Expression, Refusal>,
    ) -> LoweredResult {
        unsafe {
            let is_operand = |node: *mut pg_sys::Node| tag_of(node) == NodeTag::T_CaseTestExpr;
            if !self.is_runtime_value(array)?
                || pg_sys::contain_volatile_functions(array)
                || contains(scalar, &is_operand)
            {
                return Err(Refusal::new("LIKE with ANY or ALL over an array of every row's own"));
            }
            let array_type = DataType::List(Box::new(DataType::Text));
            let index = with_planning(|planning| planning.parameter(array, array_type));
            let pattern = Expression::Parameter { index, data_type: DataType::Text };
            self.case_operands.borrow_mut().push(Lowered::plain(pattern));
            let item = make_node::<pg_sys::CaseTestExpr>(NodeTag::T_CaseTestExpr);
            (*item).typeId = pg_sys::TEXTOID;
            (*item).typeMod = -1;
            (*item).collation = pg_sys::exprCollation(array);
            let tested = test(item.cast());
            self.case_operands.borrow_mut().pop();
            Ok(Lowered::plain(Expression::predicate(function, vec![tested?])))
        }
    }

    /// `x = ANY (array)` over an array that PostgreSQL evaluates when the query starts.
    unsafe fn lower_runtime_membership(
        &self,
        scalar: Lowered,
        array: *mut pg_sys::Node,
    ) -> Result<Expression, Refusal> {
        unsafe {
            let coerced = node_as::<pg_sys::ArrayCoerceExpr>(array, NodeTag::T_ArrayCoerceExpr);
            // Its own CaseTestExpr stands for an element. Like every cast it may raise an error.
            let source =
                coerced.filter(|_| !self.conditional.get()).map_or(array, |coerced| coerced.arg.cast());
            if !self.is_runtime_value(source)? || pg_sys::contain_volatile_functions(array) {
                return Err(Refusal::new("ANY or ALL over an array of every row's own"));
            }
            let type_oid = pg_sys::exprType(array);
            let refuse =
                || Refusal(format!("ANY or ALL over a runtime value of type {}", type_name(type_oid)));
            let element_oid = pg_sys::get_element_type(pg_sys::getBaseType(type_oid));
            let item_type = data_type(element_oid, -1).filter(|known| !is_list(known)).ok_or_else(refuse)?;
            let magnitude = numeric::type_magnitude(&item_type);
            let item = Expression::Parameter { index: u32::MAX, data_type: item_type.clone() };
            let item = Lowered::number(item, Scale::None, magnitude);
            let compared = call::compare(Comparison::Equal, scalar, item)?;
            // The elements come in the type in which they are compared.
            let Expression::Call { function: Function::Equal, arguments, .. } = compared else {
                return Err(refuse());
            };
            let [value, item] = <[Expression; 2]>::try_from(arguments).map_err(|_| refuse())?;
            if are_mixed_moments(value.data_type(), item.data_type()) {
                return Err(refuse());
            }
            if matches!(value.data_type(), DataType::Decimal { precision: LONG_DECIMAL_DIGITS.., .. }) {
                return Err(Refusal::new(
                    "ANY or ALL of a number of more than 38 digits over a runtime array",
                ));
            }
            let item_type = match &item {
                Expression::Parameter { data_type, .. } => data_type.clone(),
                Expression::Call { function: Function::Cast, data_type, .. }
                    if item_type.is_integer() && data_type.is_integer() =>
                {
                    data_type.clone()
                }
                _ => return Err(refuse()),
            };
            let data_type = DataType::List(Box::new(item_type));
            let index = with_planning(|planning| planning.parameter(array, data_type.clone()));
            let list = Expression::Parameter { index, data_type };
            Ok(Expression::predicate(Function::In, vec![value, list]))
        }
    }

    /// The elements of an array, or `None` where only run time tells them.
    unsafe fn lower_array_items(&self, array: *mut pg_sys::Node) -> Result<Option<Vec<Lowered>>, Refusal> {
        unsafe {
            if let Some(constant) = node_as::<pg_sys::Const>(array, NodeTag::T_Const) {
                return constant::lower_array_constant(constant).map(Some);
            }
            if let Some(list) = node_as::<pg_sys::ArrayExpr>(array, NodeTag::T_ArrayExpr)
                && !list.multidims
            {
                let items = elements::<pg_sys::Node>(list.elements);
                let items = items.map(|item| self.lower(call::name_as_text(item)));
                return items.collect::<Result<Vec<_>, _>>().map(Some);
            }
            if let Some(relabel) = node_as::<pg_sys::RelabelType>(array, NodeTag::T_RelabelType) {
                return self.lower_array_items(relabel.arg.cast());
            }
            Ok(None)
        }
    }
}

/// Whether a runtime expression can be evaluated without need and without an error: a given value, and an expression that can't leave the
/// range of its type.
unsafe fn is_harmless(node: *mut pg_sys::Node) -> bool {
    unsafe { !contains(node, &|part| !is_harmless_itself(part)) }
}

unsafe fn is_harmless_itself(node: *mut pg_sys::Node) -> bool {
    unsafe {
        match tag_of(node) {
            NodeTag::T_Const
            | NodeTag::T_Param
            | NodeTag::T_SQLValueFunction
            | NodeTag::T_RelabelType
            | NodeTag::T_NullTest
            | NodeTag::T_BooleanTest
            | NodeTag::T_BoolExpr
            | NodeTag::T_CoalesceExpr
            | NodeTag::T_ArrayExpr
            | NodeTag::T_List => true,
            NodeTag::T_FuncExpr => has_no_range((*node.cast::<pg_sys::FuncExpr>()).funcid, node),
            NodeTag::T_OpExpr | NodeTag::T_DistinctExpr => {
                let operator = &mut *node.cast::<pg_sys::OpExpr>();
                pg_sys::set_opfuncid(operator);
                has_no_range(operator.opfuncid, node)
            }
            NodeTag::T_ScalarArrayOpExpr => {
                let operator = &mut *node.cast::<pg_sys::ScalarArrayOpExpr>();
                pg_sys::set_sa_opfuncid(operator);
                has_no_range(operator.opfuncid, node)
            }
            _ => false,
        }
    }
}

/// Whether no arguments make a function fail, or none near what is given in the call.
unsafe fn has_no_range(function_oid: pg_sys::Oid, call: *mut pg_sys::Node) -> bool {
    if u32::from(function_oid) >= pg_sys::FirstNormalObjectId {
        return false;
    }
    let name = function_name(function_oid);
    match name.as_str() {
        "now" | "transaction_timestamp" | "statement_timestamp" => true,
        "numeric_add" | "numeric_sub" | "numeric_mul" | "numeric_uminus" | "numeric_uplus" => true,
        // Near the current moment, a constant, or what the client gave. Only days within one interval of the end of the calendar
        // fail; PostgreSQL fails for them in a custom plan, wherever the sum stands.
        "date_pli"
        | "date_mii"
        | "date_pl_interval"
        | "date_mi_interval"
        | "timestamp_pl_interval"
        | "timestamp_mi_interval"
        | "timestamptz_pl_interval"
        | "timestamptz_mi_interval" => unsafe {
            !contains(call, &|part| tag_of(part) == NodeTag::T_Param && !is_given(part))
        },
        _ => matches!(shipping_of(&name), Some(Shipping::Compare(_))),
    }
}

/// Whether a node is a parameter of the statement, whose value a custom plan has as a constant.
unsafe fn is_given(node: *mut pg_sys::Node) -> bool {
    unsafe {
        node_as::<pg_sys::Param>(node, NodeTag::T_Param)
            .is_some_and(|parameter| parameter.paramkind == pg_sys::ParamKind::PARAM_EXTERN)
    }
}

/// `char(n)` branches of different lengths would lose their blanks.
fn check_padding(type_oid: pg_sys::Oid) -> Result<(), Refusal> {
    if type_oid == pg_sys::BPCHAROID {
        return Err(Refusal::new("a choice among values of type character"));
    }
    Ok(())
}

/// Whether text has a collation. It has none where operands of several collations meet: to compare it is then an error, which
/// PostgreSQL raises with its first row.
pub fn check_determined(type_oid: pg_sys::Oid, collation_oid: pg_sys::Oid) -> Result<(), Refusal> {
    let is_text = matches!(type_oid, pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID);
    if is_text && collation_oid == pg_sys::InvalidOid {
        return Err(Refusal::new("text of several collations"));
    }
    Ok(())
}

/// Whether an engine orders values of the type as PostgreSQL does.
pub fn check_order(type_oid: pg_sys::Oid, collation_oid: pg_sys::Oid) -> Result<(), Refusal> {
    check_determined(type_oid, collation_oid)?;
    match type_oid {
        pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID
            if !collation::is_byte_order(collation_oid) =>
        {
            Err(Refusal(format!("text ordered by collation {}", collation_name(collation_oid))))
        }
        pg_sys::INTERVALOID => Err(Refusal::new("order of intervals")),
        pg_sys::JSONOID => Err(Refusal::new("order of json")),
        _ => Ok(()),
    }
}

/// Whether equality of values of the type is that of their bytes. Text of two collations has none: PostgreSQL raises an
/// error when it compares the first row.
pub fn check_equality(type_oid: pg_sys::Oid, collation_oid: pg_sys::Oid) -> Result<(), Refusal> {
    check_determined(type_oid, collation_oid)?;
    if !collation::is_deterministic(collation_oid) {
        let name = collation_name(collation_oid);
        return Err(Refusal(format!("equality under the nondeterministic collation {name}")));
    }
    if type_oid == pg_sys::INTERVALOID || type_oid == pg_sys::JSONOID {
        return Err(Refusal(format!("equality of {}", type_name(type_oid))));
    }
    if data_type(type_oid, -1).is_none_or(|data_type| is_list(&data_type)) {
        return Err(Refusal(format!("equality of {}", type_name(type_oid))));
    }
    Ok(())
}

/// PostgreSQL's name of a type.
pub fn type_name(type_oid: pg_sys::Oid) -> String {
    unsafe { text_of(pg_sys::format_type_be(type_oid)) }
}

/// PostgreSQL's name of a function.
pub fn function_name(function_oid: pg_sys::Oid) -> String {
    unsafe { text_of(pg_sys::get_func_name(function_oid)) }
}

fn collation_name(collation_oid: pg_sys::Oid) -> String {
    unsafe { text_of(pg_sys::get_collation_name(collation_oid)) }
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_))
}
