//! One expression.

use std::cell::{Cell, RefCell};

use pystachio_plan::{DataType, Expression, Function, Value};

use crate::{
    Call, Constant, DEPTH_MAX, Lowered, LoweredResult, Notes, PARTS_MAX, Part, Refusal, Scale, Scope, Server,
    Source, constant, numeric::type_magnitude, numeric_modifier,
};

/// Lowers expressions over one scope.
pub struct Lowering<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) notes: &'a Notes,
    pub(crate) server: &'a dyn Server,
    /// Set while inside a branch that may not be evaluated.
    pub(crate) conditional: Cell<bool>,
    /// The operands of the simple CASEs around this place.
    pub(crate) case_operands: RefCell<Vec<Lowered>>,
    /// How many parts around this place are being lowered.
    depth: Cell<usize>,
    /// How many comparisons have been tried with quotients that no decimal holds.
    pub(crate) wide_comparisons: Cell<u32>,
}

impl<'a> Lowering<'a> {
    /// A lowering over the scope.
    pub fn new(scope: &'a Scope, notes: &'a Notes, server: &'a dyn Server) -> Self {
        Self {
            scope,
            notes,
            server,
            conditional: Cell::new(false),
            case_operands: RefCell::new(Vec::new()),
            depth: Cell::new(0),
            wide_comparisons: Cell::new(0),
        }
    }

    /// The plan expression with exactly PostgreSQL's value.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn lower(&self, source: &Source) -> LoweredResult {
        let depth = self.depth.get();
        if depth >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        if let Some(found) = self.scope.find(source) {
            return Ok(found);
        }
        if !self.server.has_stack() {
            return Err(Refusal::NoStack);
        }
        self.depth.set(depth + 1);
        let lowered = self.lower_whole(source);
        self.depth.set(depth);
        if depth == 0 && lowered.is_err() && source.has_given {
            self.notes.lose_parameter();
        }
        lowered
    }

    fn lower_whole(&self, source: &Source) -> LoweredResult {
        if let Some(value) = self.lower_runtime_value(source)? {
            return Ok(value);
        }
        let lowered = self.lower_part(source)?;
        // Columns may stand for expressions of subqueries, so that this grows with every level of these.
        let size = lowered.size();
        if size.depth > DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        if size.parts > PARTS_MAX {
            return Err(Refusal::TooManyParts);
        }
        Ok(lowered)
    }

    /// A condition.
    ///
    /// # Errors
    ///
    /// Why there is none; NULL-valued text and the like can't be one.
    pub fn lower_condition(&self, source: &Source) -> Result<Expression, Refusal> {
        let lowered = self.lower(source)?;
        match lowered.data_type() {
            DataType::Bool => Ok(lowered.expression),
            other => Err(Refusal::Condition(other.clone())),
        }
    }

    /// Something that need not be evaluated for every row.
    ///
    /// # Errors
    ///
    /// As of [`Lowering::lower`].
    pub fn lower_conditionally(&self, source: &Source) -> LoweredResult {
        let outside = self.conditional.replace(true);
        let lowered = self.lower(source);
        self.conditional.set(outside);
        lowered
    }

    /// The part by what it is, whether or not PostgreSQL could evaluate it when the query starts.
    pub(crate) fn lower_part(&self, source: &Source) -> LoweredResult {
        match &source.part {
            Part::Constant(constant) => constant::lower_constant(constant, &source.of, self.notes),
            Part::Call(call) => self.lower_call(call, source),
            Part::UnusualCall { name } => Err(Refusal::Function(name.clone())),
            Part::Distinct(call) => {
                let (a, b) = self.lower_equal_operands(call, source)?;
                Ok(Lowered::plain(Expression::predicate(Function::IsDistinctFrom, vec![a, b])))
            }
            Part::NullIf(call) => self.lower_null_if(call, source),
            Part::ArrayComparison(comparison) => self.lower_array_comparison(comparison),
            Part::RowComparison { order, columns } => self.lower_row_comparison(*order, columns),
            Part::RecordComparison(comparison) => self.lower_record_comparison(comparison),
            Part::Logic { function, arguments } => self.lower_logic(*function, arguments),
            Part::Relabel(argument) => self.lower_relabel(argument, source),
            Part::CoerceViaText(argument) => self.lower_coerce_via_text(argument, source),
            Part::Case { operand, branches, otherwise } => {
                self.lower_case(source, operand.as_deref(), branches, otherwise.as_deref())
            }
            Part::CaseOperand => {
                self.case_operands.borrow().last().cloned().ok_or(Refusal::CaseOperandOutside)
            }
            Part::Coalesce(arguments) => self.lower_coalesce(arguments),
            Part::Extreme { function, collation, arguments } => {
                self.lower_extreme(*function, collation.as_deref(), &source.of, arguments)
            }
            Part::NullTest { function, argument, row_fields: Some(names) } => {
                self.lower_null_test_of_row(*function, argument, names)
            }
            Part::NullTest { function, argument, .. } => {
                let argument = self.lower(argument)?;
                Ok(Lowered::plain(Expression::predicate(*function, vec![argument.expression])))
            }
            Part::TruthTest { function, argument } => {
                let argument = self.lower_condition(argument)?;
                Ok(Lowered::plain(Expression::predicate(*function, vec![argument])))
            }
            Part::Column(column) => Err(match column.attribute {
                0 => Refusal::WholeRow,
                ..0 => Refusal::SystemColumn,
                _ if self.scope.find_carried((column.relation, column.attribute)).is_some() => {
                    Refusal::CarriedColumn
                }
                _ => Refusal::ColumnElsewhere,
            }),
            Part::Placeholder(placeholder) => {
                // Over exactly its own relations no outer join has made it NULL yet.
                if placeholder.levels_up != 0 || !self.scope.is_over(&placeholder.relations) {
                    return Err(Refusal::BelowOuterJoin);
                }
                self.lower(&placeholder.expression)
            }
            Part::Subquery => Err(Refusal::Subquery),
            Part::Aggregate(_) => Err(Refusal::AggregateOutside),
            Part::Window(_) => Err(Refusal::WindowOutside),
            // Groups of several sets have it as a column, and all else is grouped by every key.
            Part::Grouping { levels_up: 0, .. } => Ok(Lowered::plain(Expression::int32(0))),
            Part::Grouping { .. } => Err(Refusal::GroupingOfOtherLevel),
            Part::Parameter { .. } => Err(Refusal::Kind("T_Param".into())),
            Part::ServerValue => Err(Refusal::Kind("T_SQLValueFunction".into())),
            Part::Array { .. } => Err(Refusal::Kind("T_ArrayExpr".into())),
            Part::ArrayCast { .. } => Err(Refusal::Kind("T_ArrayCoerceExpr".into())),
            Part::Field { record, name } => {
                let field = self.lower_field(record, name)?;
                field.ok_or_else(|| Refusal::Kind("T_FieldSelect".into()))
            }
            Part::Row { .. } => Err(Refusal::Kind("T_RowExpr".into())),
            Part::Unknown(unknown) => Err(Refusal::Kind(unknown.kind.clone())),
        }
    }

    /// `IS NULL` of a composite value: of each of its fields. Fields of NULL are NULL. One that is a composite value itself, or an array, is no
    /// column of a scan.
    ///
    /// Source: PostgreSQL 15, `execExprInterp.c`, `ExecEvalRowNullInt`.
    fn lower_null_test_of_row(&self, function: Function, record: &Source, names: &[String]) -> LoweredResult {
        let mut tests = Vec::with_capacity(names.len());
        for name in names {
            let field = self.lower_field(record, name)?.ok_or(Refusal::NullTestOfRow)?;
            tests.push(Expression::predicate(function, vec![field.expression]));
        }
        let all = Expression::all_of(tests).ok_or(Refusal::NullTestOfRow)?;
        Ok(Lowered::plain(all))
    }

    /// A field of a composite value that a column has, at any depth, or an element of the array that a column has.
    fn lower_field(&self, record: &Source, name: &str) -> Result<Option<Lowered>, Refusal> {
        let (mut record, mut path) = (record, vec![name.to_owned()]);
        loop {
            match &record.part {
                Part::Field { record: outer, name } => {
                    path.insert(0, name.clone());
                    record = outer;
                }
                Part::Relabel(argument) => record = argument,
                Part::Column(column) if column.levels_up == 0 => {
                    return Ok(self.scope.find_field((column.relation, column.attribute), &path));
                }
                Part::Call(call) => return self.lower_field_of_element(call, &path),
                _ => return Ok(None),
            }
        }
    }

    fn lower_logic(&self, function: Function, arguments: &[Source]) -> LoweredResult {
        let outside = self.conditional.get();
        let mut lowered = Ok(Vec::new());
        for (place, argument) in arguments.iter().enumerate() {
            // The first may decide alone.
            self.conditional.set(outside || place > 0);
            lowered = lowered.and_then(|mut lowered: Vec<Expression>| {
                lowered.push(self.lower_condition(argument)?);
                Ok(lowered)
            });
        }
        self.conditional.set(outside);
        Ok(Lowered::plain(Expression::predicate(function, lowered?)))
    }

    fn lower_relabel(&self, argument: &Source, source: &Source) -> LoweredResult {
        let lowered = self.lower(argument)?;
        let (from, to) = (&argument.of, &source.of);
        if from == to || (from.is_unpadded_text() && to.is_unpadded_text()) {
            return Ok(lowered);
        }
        if from.is_unpadded_text() && *to == crate::SourceType::Character {
            let trimmed = Expression::call(Function::TrimBlanks, vec![lowered.expression], DataType::Text);
            return Ok(Lowered::plain(trimmed));
        }
        Err(Refusal::Relabel { from: from.name().to_owned(), to: to.name().to_owned() })
    }

    /// A text cast to `numeric(p,s)`, which PostgreSQL does in two steps; `None` for other calls.
    pub(crate) fn lower_numeric_of_text(&self, call: &Call) -> Option<LoweredResult> {
        let [number, modifier] = call.arguments.as_slice() else { return None };
        let (Part::CoerceViaText(text), Part::Constant(Constant::Value(Value::Int(modifier)))) =
            (&number.part, &modifier.part)
        else {
            return None;
        };
        let is_cast = call.function.is_builtin
            && call.function.name == "numeric"
            && number.of == crate::SourceType::Numeric
            && text.of.is_collated_text();
        let modifier = i32::try_from(*modifier).ok()?;
        let (precision, own_scale) = numeric_modifier(modifier).filter(|_| is_cast)?;
        // PostgreSQL allows more digits behind the point than there are.
        let data_type = number.of.data_type_with(modifier).filter(|_| precision >= own_scale)?;
        let DataType::Decimal { scale, .. } = data_type else { return None };
        Some(self.parse(text, data_type, Scale::Fixed(i32::from(scale))))
    }

    /// A value that is read from a text.
    fn parse(&self, text: &Source, data_type: DataType, scale: Scale) -> LoweredResult {
        let text = self.lower(text)?.expression;
        let has_bases = Expression::literal(Value::Bool(self.server.reads_bases()), DataType::Bool);
        let magnitude = type_magnitude(&data_type);
        let value = Expression::call(Function::Parse, vec![text, has_bases], data_type);
        Ok(Lowered::number(value, scale, magnitude))
    }

    fn lower_coerce_via_text(&self, argument: &Source, source: &Source) -> LoweredResult {
        use crate::SourceType::{BigInt, Integer, SmallInt, Time, Uuid};
        if let Some(field) = self.lower_field_cast(argument, &source.of) {
            return Ok(field);
        }
        if let Some(document) = self.lower_json_cast(argument, &source.of) {
            return document;
        }
        if argument.of.is_collated_text()
            && is_read_from_text(&argument.of, &source.of)
            && let Some(data_type) = source.of.data_type()
        {
            return self.parse(argument, data_type, Scale::None);
        }
        let is_plain = matches!(argument.of, SmallInt | Integer | BigInt | Time | Uuid);
        if is_plain && source.of.is_unpadded_text() {
            let argument = self.lower(argument)?;
            let text = Expression::call(Function::Cast, vec![argument.expression], DataType::Text);
            return Ok(Lowered::plain(text));
        }
        if source.of.is_unpadded_text() {
            if let Some(text) = self.lower_text_of_moment(argument)? {
                return Ok(text);
            }
            if let Some(text) = self.lower_text_of_number(argument)? {
                return Ok(text);
            }
        }
        Err(Refusal::Cast { from: argument.of.name().to_owned(), to: source.of.name().to_owned() })
    }
}

/// Whether engines read a type's values from a type of text as PostgreSQL does: those that no setting and no time decides. The blanks at
/// the end of a `character`, which plans lack, matter to a `uuid`.
fn is_read_from_text(from: &crate::SourceType, to: &crate::SourceType) -> bool {
    use crate::SourceType::{BigInt, Bool, Double, Integer, Real, SmallInt, Uuid};
    match to {
        SmallInt | Integer | BigInt | Real | Double | Bool => true,
        Uuid => from.is_unpadded_text(),
        _ => false,
    }
}
