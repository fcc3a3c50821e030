//! The values that a plan needs when it runs.
//!
//! Single values travel beside the plan. Arrays are written into it: `x = ANY (array)` becomes `x IN (…)`, and
//! `x LIKE ANY (array)` a LIKE for each element. An array of a join's keys that are not known takes its condition with it.
#![expect(unsafe_code, reason = "evaluates PostgreSQL's expressions")]

use std::{collections::BTreeMap, rc::Rc};

use pgrx::pg_sys::{self, Datum};
use pystachio_plan::{
    DataType, Error, ErrorKind, Expression, Function, Literal, Plan, Result, Value, close_gates,
    gate_parameters, parameters_of, settle_moments, widen,
};

use crate::{
    pg::{
        list,
        zone::{ServerZone, session_zone_table, zone_table},
    },
    types,
};

/// The expressions of a scan's parameters, ready to be evaluated.
pub struct Parameters {
    parameters: Vec<Parameter>,
    /// What `bind` makes of the plan, if that is the same for all values.
    fixed: Option<FixedPlan>,
}

/// A plan that depends on its parameters' values nowhere, and the parameters that it reads.
struct FixedPlan {
    plan: Rc<Plan>,
    reads: Vec<u32>,
}

struct Parameter {
    state: *mut pg_sys::ExprState,
    type_oid: pg_sys::Oid,
    data_type: DataType,
}

impl Parameters {
    /// Prepares the expressions in the executor's current memory context.
    ///
    /// # Errors
    ///
    /// `Internal` if the plan has other parameters than expressions.
    ///
    /// # Safety
    ///
    /// `node` and `scan` are valid, and `scan` is the plan of `node`.
    pub unsafe fn new(
        node: *mut pg_sys::ForeignScanState,
        scan: *mut pg_sys::ForeignScan,
        data_types: &[DataType],
        plan: &Plan,
    ) -> Result<Self> {
        // SAFETY: the caller says so; fdw_exprs is a list of expressions.
        let parameters: Vec<Parameter> = unsafe {
            let expressions = (*scan).fdw_exprs;
            let states = pg_sys::ExecInitExprList(expressions, node.cast());
            list::pointers::<pg_sys::ExprState>(states)
                .zip(list::pointers::<pg_sys::Node>(expressions))
                .zip(data_types)
                .map(|((state, expression), data_type)| Parameter {
                    state,
                    type_oid: pg_sys::getBaseType(pg_sys::exprType(expression)),
                    data_type: data_type.clone(),
                })
                .collect()
        };
        if parameters.len() != data_types.len() {
            let (found, expected) = (parameters.len(), data_types.len());
            return Err(Error::internal(format!("plan needs {expected} parameters, and has {found}")));
        }
        let fixed = FixedPlan::of(plan, &parameters);
        Ok(Self { parameters, fixed })
    }

    /// The plan with the values of its arrays now, and its other parameters' values. Nothing is read, and no other
    /// parameter evaluated, below a condition without columns that is not true. `keys` are the arrays of a join's keys, as far
    /// as they are known, by their parameters.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a value that the engine has not, naming the parameter.
    ///
    /// # Safety
    ///
    /// `context` is the expression context of the node that the parameters were prepared for. The arrays are of their
    /// parameters' types.
    pub unsafe fn bind(
        &self,
        plan: &Plan,
        context: *mut pg_sys::ExprContext,
        keys: &BTreeMap<u32, Option<Datum>>,
    ) -> Result<(Rc<Plan>, Vec<Literal>)> {
        let mut values = Values {
            literals: self.parameters.iter().map(Parameter::null).collect(),
            lists: vec![None; self.parameters.len()],
        };
        if let Some(fixed) = self.fixed.as_ref().filter(|_| keys.is_empty()) {
            // SAFETY: as the caller says.
            unsafe { self.evaluate(fixed.reads.iter().copied(), context, &mut values)? };
            return Ok((fixed.plan.clone(), values.literals));
        }
        let mut root = plan.root.clone();
        for (index, array) in keys {
            // SAFETY: as the caller says.
            let list = array.and_then(|array| unsafe { self.key_list(*index, array, context) });
            match values.lists.get_mut(*index as usize) {
                Some(place) if list.is_some() => *place = list,
                _ => root = widen(&root, &|condition| is_membership(condition, *index)),
            }
        }
        let gates = gate_parameters(&root);
        // SAFETY: as the caller says.
        unsafe { self.evaluate(gates.iter().copied(), context, &mut values)? };
        let root = close_gates(&root, &values.literals);
        let is_other = |index: &u32| !gates.contains(index) && !keys.contains_key(index);
        let others = parameters_of(&root).into_iter().filter(is_other);
        // SAFETY: as the caller says.
        unsafe { self.evaluate(others, context, &mut values)? };
        let Values { literals, lists } = values;
        let root = match lists.iter().any(Option::is_some) {
            true => root.map_expressions(&mut |expression| expand(expression, &lists)),
            false => root,
        };
        Ok((Rc::new(Plan { root, outputs: plan.outputs.clone() }), literals))
    }

    /// A value of a parameter's type as it is sent to the engine; `None` if it can't be.
    ///
    /// # Safety
    ///
    /// As `bind`; the datum is of the parameter's type.
    pub unsafe fn literal(
        &self,
        index: u32,
        datum: Datum,
        context: *mut pg_sys::ExprContext,
    ) -> Option<Literal> {
        let parameter = self.parameters.get(index as usize)?;
        // SAFETY: as the caller says.
        unsafe {
            let former = pg_sys::MemoryContextSwitchTo((*context).ecxt_per_tuple_memory);
            let literal = types::literal(datum, parameter.type_oid, &parameter.data_type);
            pg_sys::MemoryContextSwitchTo(former);
            literal.ok()
        }
    }

    /// The keys of an array; `None` if one can't be sent to the engine, which then can't filter.
    unsafe fn key_list(&self, index: u32, array: Datum, context: *mut pg_sys::ExprContext) -> Option<List> {
        let parameter = self.parameters.get(index as usize)?;
        let DataType::List(item) = &parameter.data_type else { return None };
        // SAFETY: the caller of `bind` says so.
        unsafe { parameter.list(array, item, context) }.ok().map(Some)
    }

    unsafe fn evaluate(
        &self,
        wanted: impl Iterator<Item = u32>,
        context: *mut pg_sys::ExprContext,
        values: &mut Values,
    ) -> Result<()> {
        for index in wanted.map(|index| index as usize) {
            let Some(parameter) = self.parameters.get(index) else { continue };
            // SAFETY: the caller of `bind` says so.
            let value = unsafe { parameter.evaluate(context) }.map_err(|mut error| {
                // Others are PostgreSQL's.
                if error.kind == ErrorKind::NotSupported {
                    error.message = format!("${}: {}", index + 1, error.message);
                }
                error
            })?;
            match value {
                ParameterValue::Single(literal) => values.literals[index] = literal,
                ParameterValue::List(list) => values.lists[index] = Some(list),
            }
        }
        Ok(())
    }
}

impl FixedPlan {
    /// The plan for any values. `None` if `bind` writes arrays into it, or if a value decides which parameters are read.
    fn of(plan: &Plan, parameters: &[Parameter]) -> Option<Self> {
        let has_arrays = parameters.iter().any(|parameter| matches!(parameter.data_type, DataType::List(_)));
        if has_arrays || !gate_parameters(&plan.root).is_empty() {
            return None;
        }
        let root = close_gates(&plan.root, &[]);
        let reads = parameters_of(&root).into_iter().collect();
        Some(Self { plan: Rc::new(Plan { root, outputs: plan.outputs.clone() }), reads })
    }
}

/// The values of parameters, by index. Those of arrays are lists; their literals are not read once
/// the plan has the elements.
struct Values {
    literals: Vec<Literal>,
    lists: Vec<Option<List>>,
}

enum ParameterValue {
    Single(Literal),
    List(List),
}

/// The elements of an array; `None` for the array NULL. An element without a literal equals nothing.
type List = Option<Vec<Option<Literal>>>;

impl Parameter {
    /// The placeholder of an unused value.
    fn null(&self) -> Literal {
        match &self.data_type {
            DataType::List(_) => types::null_literal(&DataType::Bool),
            data_type => types::null_literal(data_type),
        }
    }

    /// The elements of an array of the parameter's type.
    unsafe fn list(
        &self,
        array: Datum,
        item: &DataType,
        context: *mut pg_sys::ExprContext,
    ) -> Result<Vec<Option<Literal>>> {
        // SAFETY: the context is that of the parameter's node, and the datum has the parameter's type.
        unsafe {
            let (element_oid, _) = types::base_type(pg_sys::get_element_type(self.type_oid), -1);
            let former = pg_sys::MemoryContextSwitchTo((*context).ecxt_per_tuple_memory);
            let elements = types::elements(array, element_oid, item);
            pg_sys::MemoryContextSwitchTo(former);
            elements
        }
    }

    unsafe fn evaluate(&self, context: *mut pg_sys::ExprContext) -> Result<ParameterValue> {
        let zone = |table| ParameterValue::Single(Literal::new(Value::Bytes(table), DataType::Bytea));
        let mut is_null = false;
        // SAFETY: the expression was prepared for this context's node; the datum has the expression's type.
        unsafe {
            let datum = pg_sys::ExecEvalExprSwitchContext(self.state, context, &mut is_null);
            match &self.data_type {
                DataType::List(_) if is_null => Ok(ParameterValue::List(None)),
                DataType::List(item) => {
                    self.list(datum, item, context).map(|elements| ParameterValue::List(Some(elements)))
                }
                // No other value of these types is wanted as bytes.
                DataType::Bytea if self.type_oid == pg_sys::NAMEOID => session_zone_table().map(zone),
                data_type if is_null => Ok(ParameterValue::Single(types::null_literal(data_type))),
                DataType::Bytea if self.type_oid != pg_sys::BYTEAOID => {
                    zone_table(datum, self.type_oid).map(zone)
                }
                data_type => types::literal(datum, self.type_oid, data_type).map(ParameterValue::Single),
            }
        }
    }
}

/// Whether a condition is `x IN (…)` with the array of a parameter.
fn is_membership(condition: &Expression, parameter: u32) -> bool {
    let Expression::Call { function: Function::In, arguments, .. } = condition else { return false };
    matches!(arguments.as_slice(), [_, Expression::Parameter { index, .. }] if *index == parameter)
}

/// The plan with every comparison of several types of dates and timestamps as one of one type, by the session's time zone now.
pub fn with_settled_moments(plan: &Plan, parameters: &[Literal]) -> Plan {
    Plan {
        root: settle_moments(&plan.root, parameters, &ServerZone::of_session()),
        outputs: plan.outputs.clone(),
    }
}

/// Writes an array's elements into `x IN (array)` and `x LIKE ANY (array)`.
fn expand(expression: &mut Expression, lists: &[Option<List>]) {
    match expression {
        Expression::Call { function: Function::In, .. } => expand_membership(expression, lists),
        Expression::Call { function: Function::Or | Function::And, .. } => expand_test(expression, lists),
        _ => {}
    }
}

/// OR or AND of one test, which has an array in the place of an element: of one test for each element.
fn expand_test(expression: &mut Expression, lists: &[Option<List>]) {
    let Expression::Call { function, arguments, .. } = expression else { return };
    let [test] = arguments.as_slice() else { return };
    let mut found = None;
    test.walk(&mut |part| {
        if let Expression::Parameter { index, .. } = part
            && let Some(Some(list)) = lists.get(*index as usize)
        {
            found = Some((*index, list));
        }
    });
    let Some((array, list)) = found else { return };
    let Some(items) = list else {
        *expression = Expression::literal(Value::Null, DataType::Bool);
        return;
    };
    let with_item = |item: &Literal| {
        let mut test = test.clone();
        test.map_parts(&mut |part| {
            if matches!(part, Expression::Parameter { index, .. } if *index == array) {
                *part = Expression::Literal(item.clone());
            }
        });
        test
    };
    let mut tests: Vec<_> = items.iter().flatten().map(with_item).collect();
    *expression = match tests.len() {
        0 => Expression::literal(Value::Bool(*function == Function::And), DataType::Bool),
        1 => tests.remove(0),
        _ => Expression::predicate(*function, tests),
    };
}

fn expand_membership(expression: &mut Expression, lists: &[Option<List>]) {
    let Expression::Call { function: Function::In, arguments, .. } = expression else { return };
    let [value, Expression::Parameter { index, .. }] = arguments.as_slice() else { return };
    let Some(Some(list)) = lists.get(*index as usize) else { return };
    *expression = match list {
        None => Expression::literal(Value::Null, DataType::Bool),
        // Not even NULL is compared with nothing.
        Some(items) if items.is_empty() => Expression::literal(Value::Bool(false), DataType::Bool),
        Some(items) => {
            let literals: Vec<_> = items.iter().flatten().cloned().map(Expression::Literal).collect();
            if literals.is_empty() {
                // False, and NULL for NULL.
                Expression::predicate(Function::NotEqual, vec![value.clone(), value.clone()])
            } else {
                let arguments = std::iter::once(value.clone()).chain(literals).collect();
                Expression::predicate(Function::In, arguments)
            }
        }
    };
}
