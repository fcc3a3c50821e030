//! Fields of JSON that are fields of a struct in the files: `column -> 'a' ->> 'b'` reads the field instead of JSON.
//!
//! | in SQL | of a field that is | is |
//! |---|---|---|
//! | `->>`, `#>>`, after any number of `->`, `#>` and subscripts | text | the field |
//! | the same | an integer | the field as text |
//! | the same, cast to the field's own type or a wider integer | an integer, `numeric`, `boolean`, date or timestamp | the field |
//!
//! A missing struct and a NULL are NULL in both. The text in JSON of these types reads back as the same value.
//!
//! Deliberately absent: `->` and `#>` whose value is JSON, in which a field that is NULL is `null`; floats, whose zero has no sign in `jsonb`.

use pystachio_plan::{DataType, Expression, Function, Value};

use crate::{
    Call, ColumnReference, Constant, Lowered, Lowering, Part, Scale, Source, SourceType,
    numeric::type_magnitude,
};

/// What `jsonb[…]` is called, which is no function of PostgreSQL's.
pub const JSON_SUBSCRIPT: &str = "jsonb subscript";

impl Lowering<'_> {
    /// The text of a field, if the call is one of these.
    pub(crate) fn lower_field_text(&self, call: &Call) -> Option<Lowered> {
        let field = self.field_of_text(call)?;
        match field.data_type() {
            DataType::Text => Some(field),
            integer if integer.is_integer() => {
                let text = Expression::call(Function::Cast, vec![field.expression], DataType::Text);
                Some(Lowered::plain(text))
            }
            _ => None,
        }
    }

    /// A field from its text, as a value of the type that its text is cast to.
    pub(crate) fn lower_field_cast(&self, argument: &Source, to: &SourceType) -> Option<Lowered> {
        let Part::Call(call) = &argument.part else { return None };
        let field = self.field_of_text(call)?;
        let (from, to) = (field.data_type().clone(), to.data_type()?);
        match (&from, &to) {
            (DataType::Decimal { scale, .. }, DataType::Numeric) => {
                Some(Lowered { scale: Scale::Fixed(i32::from(*scale)), ..field })
            }
            (
                DataType::Bool
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::Date
                | DataType::Timestamp
                | DataType::TimestampTz,
                to,
            ) if from == *to => Some(field),
            (from, to) if from.is_integer() && to.is_integer() && from.widened(to).as_ref() == Some(to) => {
                let wider = Expression::call(Function::Cast, vec![field.expression], to.clone());
                Some(Lowered::number(wider, Scale::None, type_magnitude(from)))
            }
            _ => None,
        }
    }

    /// The field whose text a call gives.
    fn field_of_text(&self, call: &Call) -> Option<Lowered> {
        let is_text = ["jsonb_object_field_text", "json_object_field_text"];
        let is_path_text = ["jsonb_extract_path_text", "json_extract_path_text"];
        let mut path = Vec::new();
        let column = way_of(call, &is_text, &is_path_text, &mut path)?;
        self.scope.find_field((column.relation, column.attribute), &path)
    }
}

/// The column and the names that a call goes from it: by one of the functions, and by those that give JSON below it.
fn way_of(
    call: &Call,
    of_name: &[&str],
    of_path: &[&str],
    path: &mut Vec<String>,
) -> Option<ColumnReference> {
    let name = call.function.name.as_str();
    let [json, step] = call.arguments.as_slice() else { return None };
    let Part::Constant(step) = &step.part else { return None };
    if !call.function.is_builtin {
        return None;
    }
    let names = match step {
        Constant::Value(Value::Text(name_of_field)) if of_name.contains(&name) => vec![name_of_field.clone()],
        Constant::Array(steps) if of_path.contains(&name) => {
            let names = steps.iter().map(|step| match step {
                Constant::Value(Value::Text(name)) => Some(name.clone()),
                _ => None,
            });
            names.collect::<Option<Vec<String>>>()?
        }
        _ => return None,
    };
    let column = match &json.part {
        Part::Column(column) if column.levels_up == 0 => *column,
        Part::Call(call) => {
            let of_name = ["jsonb_object_field", "json_object_field", JSON_SUBSCRIPT];
            let of_path = ["jsonb_extract_path", "json_extract_path"];
            way_of(call, &of_name, &of_path, path)?
        }
        _ => return None,
    };
    path.extend(names);
    Some(column)
}
