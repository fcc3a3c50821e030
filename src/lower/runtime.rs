//! Values that are known when the query starts: PostgreSQL evaluates them then, and the plan has parameters in their place.

use pystachio_plan::{DataType, Expression, Function};

use crate::{
    CatalogFunction, Lowered, Lowering, Part, Refusal, RuntimeValue, Scale, Source, SourceType,
    numeric::type_magnitude,
};

impl Lowering<'_> {
    /// An expression without columns becomes a parameter. `None` if it has columns, or is a constant.
    pub(crate) fn lower_runtime_value(&self, source: &Source) -> Result<Option<Lowered>, Refusal> {
        let Some(origin) = source.origin else { return Ok(None) };
        if let Err(refusal) = self.is_runtime_value(source) {
            return self.lower_where_reached(source).map(Some).ok_or(refusal);
        }
        // What a plan has as text is none where PostgreSQL has it.
        let is_other = matches!(source.of, SourceType::FromText(_));
        let data_type = source.of.scalar_data_type().filter(|_| !is_other);
        let Some(data_type) = data_type else {
            return Err(Refusal::RuntimeValue(source.of.name().to_owned()));
        };
        let index = self.notes.parameter(RuntimeValue::Origin(origin), data_type.clone());
        let parameter = Expression::Parameter { index, data_type: data_type.clone() };
        if source.of == SourceType::Character {
            let trimmed = Expression::call(Function::TrimBlanks, vec![parameter], DataType::Text);
            return Ok(Some(Lowered::plain(trimmed)));
        }
        Ok(Some(Lowered::number(parameter, Scale::None, type_magnitude(&data_type))))
    }

    /// A runtime expression as an expression over values that are given, which an engine evaluates for rows that reach it.
    fn lower_where_reached(&self, source: &Source) -> Option<Lowered> {
        let lowered = self.lower_part(source).ok()?;
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
    pub(crate) fn is_runtime_value(&self, source: &Source) -> Result<bool, Refusal> {
        if !source.is_known_at_start() {
            return Ok(false);
        }
        if self.conditional.get() && source.contains(&|part| !is_harmless_itself(part)) {
            // Evaluating it early could raise an error that PostgreSQL would not raise.
            return Err(Refusal::ConditionalRuntimeValue);
        }
        Ok(true)
    }
}

/// Whether a part of a runtime expression can be evaluated without need and without an error: a given value, and an expression
/// that can't leave the range of its type.
fn is_harmless_itself(part: &Source) -> bool {
    match &part.part {
        Part::Constant(_)
        | Part::Parameter { .. }
        | Part::ServerValue
        | Part::Relabel(_)
        | Part::NullTest { .. }
        | Part::TruthTest { .. }
        | Part::Logic { .. }
        | Part::Coalesce(_)
        | Part::Array { .. } => true,
        Part::Call(call) | Part::Distinct(call) => has_no_range(&call.function, part),
        Part::ArrayComparison(comparison) => has_no_range(&comparison.function, part),
        _ => false,
    }
}

/// Whether no arguments make a function fail, or none near what is given in the call.
fn has_no_range(function: &CatalogFunction, call: &Source) -> bool {
    if !function.is_builtin {
        return false;
    }
    match function.name.as_str() {
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
        | "timestamptz_mi_interval" => {
            !call.contains(&|part| matches!(part.part, Part::Parameter { is_given: false }))
        }
        _ => function.meaning.is_some_and(|meaning| meaning.comparison().is_some()),
    }
}
