//! The values that a plan needs when it runs.
#![expect(unsafe_code, reason = "evaluates PostgreSQL's expressions")]

use pgrx::pg_sys;
use pystachio_plan::{DataType, Error, Literal, Result, Value};

use crate::{pg::list, types};

/// The expressions of a scan's parameters, ready to be evaluated.
pub struct Parameters {
    parameters: Vec<Parameter>,
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
        Ok(Self { parameters })
    }

    /// The values now.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a value that the engine has not, naming the parameter.
    ///
    /// # Safety
    ///
    /// `context` is the expression context of the node that the parameters were prepared for.
    pub unsafe fn evaluate(&self, context: *mut pg_sys::ExprContext) -> Result<Vec<Literal>> {
        self.parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| {
                let mut is_null = false;
                // SAFETY: as the caller says; the datum has the expression's type.
                unsafe {
                    let datum = pg_sys::ExecEvalExprSwitchContext(parameter.state, context, &mut is_null);
                    if is_null {
                        return Ok(Literal::new(Value::Null, null_type(&parameter.data_type)));
                    }
                    types::literal(datum, parameter.type_oid, &parameter.data_type)
                }
                .map_err(|mut error| {
                    error.message = format!("${}: {}", index + 1, error.message);
                    error
                })
            })
            .collect()
    }
}

/// A literal always has a type of its own: a NULL `numeric` has the smallest.
fn null_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Numeric => DataType::Decimal { precision: 1, scale: 0 },
        other => other.clone(),
    }
}
