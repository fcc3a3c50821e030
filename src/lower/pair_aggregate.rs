//! Aggregates of pairs of floats: `corr`, `covar_pop`, `covar_samp` and the `regr_` functions.
//!
//! ```text
//! over rows in which neither y nor x is NULL:
//!   n = count(x)   Sx = sum(x)   Sy = sum(y)
//!   Sxx = deviations(x)   Syy = deviations(y)   Sxy = deviations(x, y)
//! ```
//!
//! Each of these is rounded once. What follows are the steps of PostgreSQL, with its NULLs.
//!
//! Source: PostgreSQL 15, `float.c`, `float8_regr_accum` and the functions behind it.

use pystachio_plan::{
    Aggregate, AggregateCall, CaseBranch, DataType, Expression, Function, RecordField, Value,
};

use crate::{AggregateRefusal, AggregateSource, Lowered, LoweredAggregate, Lowering, Notes, Refusal};

/// The sums that an aggregate is made of.
struct Sums<'a> {
    notes: &'a Notes,
    y: Expression,
    x: Expression,
    filter: Option<Expression>,
    calls: Vec<AggregateCall>,
}

impl Lowering<'_> {
    /// An aggregate of pairs; `None` for another.
    ///
    /// # Errors
    ///
    /// Why no engine computes it.
    pub(crate) fn lower_pair_aggregate(
        &self,
        aggregate: &AggregateSource,
    ) -> Result<Option<LoweredAggregate>, Refusal> {
        let name = aggregate.function.name.as_str();
        if !matches!(name, "corr" | "covar_pop" | "covar_samp") && !name.starts_with("regr_") {
            return Ok(None);
        }
        let refuse = |why| Refusal::AggregateUse { name: name.to_owned(), why };
        let [y, x] = aggregate.arguments.as_slice() else {
            return Err(refuse(AggregateRefusal::SeveralArguments));
        };
        if name != "regr_count" {
            if !self.server.sums_floats() {
                return Err(refuse(AggregateRefusal::FloatSums));
            }
            if aggregate.is_distinct || !aggregate.order.is_empty() {
                return Err(refuse(AggregateRefusal::FloatsInOrder));
            }
        }
        if aggregate.is_distinct {
            return Err(refuse(AggregateRefusal::SeveralArguments));
        }
        let (y, x) = (self.lower(y)?, self.lower(x)?);
        for argument in [&y, &x] {
            if *argument.data_type() != DataType::Float64 {
                return Err(refuse(AggregateRefusal::Of(argument.data_type().clone())));
            }
        }
        let filter = aggregate.filter.as_deref().map(|filter| self.lower_condition(filter)).transpose()?;
        let where_both = |value: &Lowered, other: &Lowered| match other.is_never_null() && !other.could_fail()
        {
            true => value.expression.clone(),
            false => Expression::Case {
                branches: vec![CaseBranch {
                    condition: Expression::predicate(Function::IsNotNull, vec![other.expression.clone()]),
                    result: value.expression.clone(),
                }],
                otherwise: None,
                data_type: DataType::Float64,
            },
        };
        let sums = Sums {
            notes: self.notes,
            y: where_both(&y, &x),
            x: where_both(&x, &y),
            filter,
            calls: Vec::new(),
        };
        sums.lower(name).map(Some)
    }
}

impl Sums<'_> {
    fn lower(mut self, name: &str) -> Result<LoweredAggregate, Refusal> {
        let value = match name {
            "regr_count" => {
                let count = self.count();
                return Ok(LoweredAggregate { calls: self.calls, value: Lowered::plain(count) });
            }
            "regr_sxx" => self.deviations_of_x(),
            "regr_syy" => self.deviations_of_y(),
            "regr_sxy" => self.deviations(),
            "regr_avgx" => divided(self.sum_of_x(), self.number()),
            "regr_avgy" => divided(self.sum_of_y(), self.number()),
            "covar_pop" => divided(self.deviations(), self.number()),
            "covar_samp" => {
                // NULL of one pair.
                let less = of(Function::Subtract, vec![self.number(), float(1.0)]);
                divided(self.deviations(), or_null(less))
            }
            "corr" => {
                let both = vec![or_null(self.deviations_of_x()), or_null(self.deviations_of_y())];
                let root = of(Function::SquareRoot, vec![of(Function::Multiply, both)]);
                divided(self.deviations(), root)
            }
            "regr_r2" => self.determination(),
            "regr_slope" => divided(self.deviations(), or_null(self.deviations_of_x())),
            "regr_intercept" => {
                let product = of(Function::Multiply, vec![self.sum_of_x(), self.deviations()]);
                let risen = divided(product, or_null(self.deviations_of_x()));
                divided(of(Function::Subtract, vec![self.sum_of_y(), risen]), self.number())
            }
            _ => return Err(Refusal::Aggregate(name.to_owned())),
        };
        Ok(LoweredAggregate { calls: self.calls, value: Lowered::plain(value) })
    }

    /// `regr_r2`: 1 where all y are the same.
    fn determination(&mut self) -> Expression {
        let (own, of_x) = (self.deviations(), or_null(self.deviations_of_x()));
        let of_y = self.deviations_of_y();
        let squared = of(Function::Multiply, vec![own.clone(), own]);
        let both = of(Function::Multiply, vec![of_x.clone(), of_y.clone()]);
        let is_level = Expression::predicate(Function::Equal, vec![of_y, float(0.0)]);
        let has_slope = Expression::predicate(Function::IsNotNull, vec![of_x]);
        Expression::Case {
            branches: vec![
                CaseBranch {
                    condition: Expression::predicate(Function::And, vec![is_level, has_slope.clone()]),
                    result: float(1.0),
                },
                CaseBranch { condition: has_slope, result: divided(squared, both) },
            ],
            otherwise: None,
            data_type: DataType::Float64,
        }
    }

    /// The result of a call, which is made once.
    fn call(&mut self, function: Aggregate, argument: Expression, data_type: DataType) -> Expression {
        let known = self
            .calls
            .iter()
            .find(|known| known.function == function && known.argument.as_ref() == Some(&argument));
        let id = known.map_or_else(|| self.notes.new_column(), |known| known.id);
        if known.is_none() {
            self.calls.push(AggregateCall {
                id,
                function,
                argument: Some(argument),
                distinct: false,
                filter: self.filter.clone(),
                data_type: data_type.clone(),
                order: Vec::new(),
            });
        }
        Expression::column(id, data_type)
    }

    fn count(&mut self) -> Expression {
        self.call(Aggregate::Count, self.x.clone(), DataType::Int64)
    }

    fn number(&mut self) -> Expression {
        let count = self.count();
        of(Function::Cast, vec![count])
    }

    fn sum_of_x(&mut self) -> Expression {
        let sum = self.call(Aggregate::Sum, self.x.clone(), DataType::Float64);
        from_zero(sum)
    }

    fn sum_of_y(&mut self) -> Expression {
        let sum = self.call(Aggregate::Sum, self.y.clone(), DataType::Float64);
        from_zero(sum)
    }

    fn deviations_of_x(&mut self) -> Expression {
        self.call(Aggregate::Deviations, self.x.clone(), DataType::Float64)
    }

    fn deviations_of_y(&mut self) -> Expression {
        self.call(Aggregate::Deviations, self.y.clone(), DataType::Float64)
    }

    fn deviations(&mut self) -> Expression {
        let field = |name: &str| RecordField {
            name: name.to_owned(),
            data_type: DataType::Float64,
            length_max: None,
            trim_blanks: false,
            is_json: false,
        };
        let pair = DataType::Record(vec![field("x"), field("y")]);
        let pair = Expression::call(Function::Row, vec![self.x.clone(), self.y.clone()], pair);
        self.call(Aggregate::Deviations, pair, DataType::Float64)
    }
}

fn of(function: Function, arguments: Vec<Expression>) -> Expression {
    Expression::call(function, arguments, DataType::Float64)
}

fn float(value: f64) -> Expression {
    Expression::literal(Value::Float(value), DataType::Float64)
}

/// NULL of 0.
fn or_null(value: Expression) -> Expression {
    of(Function::NullIf, vec![value, float(0.0)])
}

fn divided(a: Expression, b: Expression) -> Expression {
    of(Function::Divide, vec![a, b])
}

/// PostgreSQL begins with 0, which a sum of -0 does not change.
fn from_zero(sum: Expression) -> Expression {
    of(Function::Add, vec![sum, float(0.0)])
}
