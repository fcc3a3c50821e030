//! The values that a choice has, by their scales.

use pystachio_plan::{CaseBranch, DataType, Expression, Function, Value};

use crate::{Lowered, Scale, numeric::is_null};

/// The values that a CASE or COALESCE chooses among, each of a scale that is known.
pub(crate) struct Outcomes {
    /// In the order in which they are tried; without a condition, what is left.
    outcomes: Vec<Outcome>,
    data_type: DataType,
}

struct Outcome {
    condition: Option<Expression>,
    value: Expression,
    scale: i32,
}

impl Outcomes {
    /// The outcomes of a numeric; `None` if it is no choice, or one of values whose scales vary.
    pub(crate) fn of(value: &Lowered) -> Option<Self> {
        let Scale::Varies(scales) = &value.scale else { return None };
        let Expression::Case { branches, otherwise, .. } = &**scales else { return None };
        let (values, last): (Vec<&Expression>, _) = match &value.expression {
            Expression::Case { branches: own, otherwise: last, .. } => {
                let is_same = own.len() == branches.len()
                    && own.iter().zip(branches).all(|(own, scale)| own.condition == scale.condition);
                if !is_same || last.is_some() != otherwise.is_some() {
                    return None;
                }
                (own.iter().map(|branch| &branch.result).collect(), last.as_deref())
            }
            Expression::Call { function: Function::Coalesce, arguments, .. } => {
                let is_tested = |(value, scale): (&Expression, &CaseBranch)| {
                    scale.condition == Expression::predicate(Function::IsNotNull, vec![value.clone()])
                };
                let is_same = arguments.len() == branches.len() && otherwise.is_none();
                if !is_same || !arguments.iter().zip(branches).all(is_tested) {
                    return None;
                }
                (arguments.iter().collect(), None)
            }
            _ => return None,
        };
        let outcome = |condition, value: &Expression, scale: &Expression| {
            let scale = literal_integer(scale)?;
            Some(Outcome { condition, value: value.clone(), scale })
        };
        let conditional = values
            .into_iter()
            .zip(branches)
            .map(|(value, branch)| outcome(Some(branch.condition.clone()), value, &branch.result));
        let mut outcomes = conditional.collect::<Option<Vec<_>>>()?;
        if let (Some(value), Some(scale)) = (last, otherwise) {
            outcomes.push(outcome(None, value, scale)?);
        }
        Some(Self { outcomes, data_type: value.data_type().clone() })
    }

    /// The scales that there are, greatest first.
    pub(crate) fn scales(&self) -> Vec<i32> {
        let not_null = self.outcomes.iter().filter(|outcome| !is_null(&outcome.value));
        let mut scales: Vec<_> = not_null.map(|outcome| outcome.scale).collect();
        scales.sort_unstable_by(|a, b| b.cmp(a));
        scales.dedup();
        scales
    }

    /// Whether all values of a scale are the constant zero.
    pub(crate) fn is_zero(&self, scale: i32) -> bool {
        let zero = Value::Decimal(0);
        let mut of_scale =
            self.outcomes.iter().filter(|outcome| outcome.scale == scale && !is_null(&outcome.value));
        of_scale.all(|outcome| {
            let value = match &outcome.value {
                // A constant that the choice has made as wide as its other values.
                Expression::Call { function: Function::Cast, arguments, .. } => arguments.first(),
                value => Some(value),
            };
            matches!(value, Some(Expression::Literal(literal)) if literal.value == zero)
        })
    }

    /// The values of a scale, and NULL in the place of others.
    pub(crate) fn values_of(&self, scale: i32) -> Expression {
        let null = Expression::literal(Value::Null, self.data_type.clone());
        self.choice(self.data_type.clone(), &null, |outcome| match outcome.scale == scale {
            true => outcome.value.clone(),
            false => null.clone(),
        })
    }

    /// Whether the value is of a scale and not the constant NULL.
    pub(crate) fn is_chosen(&self, scale: i32) -> Expression {
        let literal = |is_so| Expression::literal(Value::Bool(is_so), DataType::Bool);
        self.choice(DataType::Bool, &literal(false), |outcome| {
            literal(outcome.scale == scale && !is_null(&outcome.value))
        })
    }

    /// A choice by the same conditions, as short as it can be if nothing is chosen otherwise.
    fn choice(
        &self,
        data_type: DataType,
        nothing: &Expression,
        of: impl Fn(&Outcome) -> Expression,
    ) -> Expression {
        let mut results: Vec<_> =
            self.outcomes.iter().map(|outcome| (outcome.condition.clone(), of(outcome))).collect();
        let has_otherwise = self.outcomes.last().is_some_and(|outcome| outcome.condition.is_none());
        let otherwise = if has_otherwise { results.pop().map(|(_, result)| result) } else { None };
        let otherwise = otherwise.unwrap_or_else(|| nothing.clone());
        while otherwise == *nothing && results.last().is_some_and(|(_, result)| result == nothing) {
            results.pop();
        }
        let branches: Vec<_> = results
            .into_iter()
            .filter_map(|(condition, result)| Some(CaseBranch { condition: condition?, result }))
            .collect();
        match branches.as_slice() {
            [] => otherwise,
            // A value or NULL: the value.
            [only]
                if is_null(&otherwise)
                    && only.condition
                        == Expression::predicate(Function::IsNotNull, vec![only.result.clone()]) =>
            {
                only.result.clone()
            }
            _ => {
                let otherwise = (!is_null(&otherwise)).then(|| Box::new(otherwise));
                Expression::Case { branches, otherwise, data_type }
            }
        }
    }
}

fn literal_integer(expression: &Expression) -> Option<i32> {
    match expression {
        Expression::Literal(literal) => match literal.value {
            Value::Int(number) => i32::try_from(number).ok(),
            _ => None,
        },
        _ => None,
    }
}
