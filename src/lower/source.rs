//! PostgreSQL's expressions as values: what lowering asks of a node, resolved.
//!
//! ```text
//! node of PostgreSQL ──mirror──► Source ──lower──► Lowered or Refusal
//!                                  └ Origin: the node that PostgreSQL evaluates when the query starts
//! ```
//!
//! Invariants:
//! - Equal sources are equal nodes (`equal()` of PostgreSQL), but for marks of outer joins and places in the query's text.
//!   The converse need not hold: what lowering does not know equals nothing.
//! - A part has an origin if PostgreSQL can evaluate it when the query starts: it has no columns and nothing volatile. A
//!   constant has none.
//! - Parts nest no deeper than [`crate::DEPTH_MAX`] nodes of PostgreSQL.
//!
//! Deliberately absent: pointers and oids. The mirror resolves them.

use std::rc::Rc;

use pystachio_plan::Function;

use crate::{Collation, Constant, Meaning, RecordComparison, SourceType, WindowSource};

/// The number of a node that PostgreSQL evaluates when the query starts. Equal nodes have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(pub u32);

/// An expression.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is.
    pub part: Part,
    /// The type of its value.
    pub of: SourceType,
    /// The type modifier of its value, if that is a `numeric` or a `character`; -1 if it has none.
    pub modifier: i32,
    /// Set if PostgreSQL can evaluate it when the query starts.
    pub origin: Option<Origin>,
    /// A parameter of the statement is in it, for which a custom plan has a constant.
    pub has_given: bool,
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        match (self.origin, other.origin) {
            (Some(own), Some(other)) => own == other,
            (None, None) => self.of == other.of && self.modifier == other.modifier && self.part == other.part,
            _ => false,
        }
    }
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A constant.
    Constant(Constant),
    /// A column, a system column, or a whole row.
    Column(ColumnReference),
    /// An expression that PostgreSQL evaluates at one relation, so that outer joins above make it NULL.
    Placeholder(Placeholder),
    /// A value that is known when the query starts, or when a part of it does.
    Parameter {
        /// One of the statement, for which a custom plan has a constant.
        is_given: bool,
    },
    /// `current_date`, `current_user` and the like.
    ServerValue,
    /// A function or an operator.
    Call(Call),
    /// A function called with VARIADIC, or one that returns a set.
    UnusualCall {
        /// Its name.
        name: String,
    },
    /// `a IS DISTINCT FROM b`, by its operator `=`.
    Distinct(Call),
    /// `NULLIF(a, b)`, by its operator `=`.
    NullIf(Call),
    /// `a operator ANY (array)`, `a operator ALL (array)`.
    ArrayComparison(ArrayComparison),
    /// `(a, b) < (x, y)`.
    RowComparison {
        /// How rows are compared: `<`, `<=`, `>`, `>=`; `None` for another way.
        order: Option<Function>,
        /// In order.
        columns: Vec<RowColumn>,
    },
    /// `composite = composite`.
    RecordComparison(Box<RecordComparison>),
    /// AND, OR, NOT.
    Logic {
        /// Which.
        function: Function,
        /// Their operands.
        arguments: Vec<Source>,
    },
    /// The same bytes as another type, or under another collation.
    Relabel(Box<Source>),
    /// A cast through text.
    CoerceViaText(Box<Source>),
    /// CASE.
    Case {
        /// What the conditions compare, as [`Part::CaseOperand`].
        operand: Option<Box<Source>>,
        /// Conditions and results.
        branches: Vec<(Source, Source)>,
        /// ELSE.
        otherwise: Option<Box<Source>>,
    },
    /// The operand of the CASE around.
    CaseOperand,
    /// COALESCE.
    Coalesce(Vec<Source>),
    /// GREATEST, LEAST.
    Extreme {
        /// Which.
        function: Function,
        /// Under which text is compared.
        collation: Option<Rc<Collation>>,
        /// Among which.
        arguments: Vec<Source>,
    },
    /// IS NULL, IS NOT NULL.
    NullTest {
        /// Which.
        function: Function,
        /// Of which.
        argument: Box<Source>,
        /// Of a composite value the names of its fields, which are tested in its place; empty if they are not known.
        row_fields: Option<Vec<String>>,
    },
    /// `boolean IS TRUE` and the like.
    TruthTest {
        /// Which.
        function: Function,
        /// Of which.
        argument: Box<Source>,
    },
    /// `ARRAY[…]`.
    Array {
        /// Its elements.
        items: Vec<Source>,
        /// The elements are arrays.
        is_nested: bool,
    },
    /// A cast of each element of an array.
    ArrayCast {
        /// The array.
        array: Box<Source>,
        /// The whole, if PostgreSQL can evaluate the array when the query starts and the cast with it.
        evaluated: Option<Origin>,
    },
    /// `(composite).field`.
    Field {
        /// The composite value.
        record: Box<Source>,
        /// The field's name.
        name: String,
    },
    /// `ROW(…)`.
    Row {
        /// The values of its fields.
        fields: Vec<Source>,
        /// Their names; none if they are not known.
        names: Vec<String>,
    },
    /// A SubPlan.
    Subquery,
    /// An aggregate.
    Aggregate(Rc<AggregateSource>),
    /// A window function.
    Window(Rc<WindowSource>),
    /// GROUPING().
    Grouping {
        /// The keys that it tells of, by the references of their clauses.
        references: Vec<u32>,
        /// Of a query so many levels around.
        levels_up: u32,
    },
    /// Everything else.
    Unknown(UnknownPart),
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColumnReference {
    /// Its relation: an index into the range table.
    pub relation: u32,
    /// Its number; 0 is the whole row, and system columns are below.
    pub attribute: i16,
    /// Of a query so many levels around.
    pub levels_up: u32,
}

/// An expression that outer joins above make NULL.
#[derive(Clone, Debug)]
pub struct Placeholder {
    /// Its number in the query.
    pub id: u32,
    /// Of a query so many levels around.
    pub levels_up: u32,
    /// The relations over which it is evaluated: indexes into the range table.
    pub relations: Vec<u32>,
    /// Its value there.
    pub expression: Box<Source>,
}

impl PartialEq for Placeholder {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.levels_up) == (other.id, other.levels_up)
    }
}

/// A function of PostgreSQL.
#[derive(Clone, Debug)]
pub struct CatalogFunction {
    /// Its name.
    pub name: String,
    /// It is one of PostgreSQL's own, so that its name says what it does.
    pub is_builtin: bool,
    /// What it means, if it is one of PostgreSQL's own.
    pub meaning: Option<Meaning>,
}

impl CatalogFunction {
    /// One of PostgreSQL's own.
    pub fn builtin(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { meaning: Meaning::of(&name), name, is_builtin: true }
    }

    /// One of a user's.
    pub fn user_defined(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_builtin: false, meaning: None }
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.is_builtin && other.is_builtin && self.name == other.name
    }
}

/// A call of a function, or of an operator through its function.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function.
    pub function: Rc<CatalogFunction>,
    /// Under which it works.
    pub collation: Option<Rc<Collation>>,
    /// Its arguments; those of type `name` of a comparison are cast to `text`.
    pub arguments: Vec<Source>,
}

/// A comparison with the elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayComparison {
    /// The operator's function.
    pub function: Rc<CatalogFunction>,
    /// Under which it works.
    pub collation: Option<Rc<Collation>>,
    /// ANY, and not ALL.
    pub is_any: bool,
    /// The left operand; `None` if the call has no two operands.
    pub operands: Option<Box<(Source, Source)>>,
}

/// A column of a comparison of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowColumn {
    /// The function of its operator.
    pub function: Rc<CatalogFunction>,
    /// Under which it works.
    pub collation: Option<Rc<Collation>>,
    /// Of the left row.
    pub left: Source,
    /// Of the right row.
    pub right: Source,
}

/// A call of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateSource {
    /// The aggregate.
    pub function: Rc<CatalogFunction>,
    /// Under which it works.
    pub collation: Option<Rc<Collation>>,
    /// VARIADIC.
    pub is_variadic: bool,
    /// Of a query around, or a part of an aggregate.
    pub is_of_other_level: bool,
    /// DISTINCT.
    pub is_distinct: bool,
    /// Its arguments; of an ordered-set aggregate those of WITHIN GROUP.
    pub arguments: Vec<Source>,
    /// What an ordered-set aggregate has before WITHIN GROUP.
    pub direct: Vec<Source>,
    /// ORDER BY, the order in which DISTINCT sorts, or that of WITHIN GROUP.
    pub order: Vec<OrderSource>,
    /// FILTER.
    pub filter: Option<Box<Source>>,
}

/// A key of an aggregate's order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderSource {
    /// What is sorted by.
    pub key: Source,
    /// Under which text is.
    pub collation: Option<Rc<Collation>>,
    /// Greatest first; `None` if the operator is none of PostgreSQL's own.
    pub descending: Option<bool>,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// A node that lowering does not know. It equals nothing, itself included.
#[derive(Clone, Debug)]
pub struct UnknownPart {
    /// Its kind, as PostgreSQL's sources name it.
    pub kind: String,
}

impl PartialEq for UnknownPart {
    fn eq(&self, _other: &Self) -> bool {
        false
    }
}

impl Source {
    /// A part that PostgreSQL evaluates for each row.
    pub fn new(part: Part, of: SourceType) -> Self {
        Self { part, of, modifier: -1, origin: None, has_given: false }
    }

    /// Whether PostgreSQL can evaluate it when the query starts, or it is a constant.
    pub fn is_known_at_start(&self) -> bool {
        self.origin.is_some() || matches!(self.part, Part::Constant(_))
    }

    /// Whether it satisfies the test, or a part below that lowering knows.
    pub fn contains(&self, test: &dyn Fn(&Source) -> bool) -> bool {
        test(self) || self.children().into_iter().any(|part| part.contains(test))
    }

    /// The parts directly below.
    pub fn children(&self) -> Vec<&Source> {
        match &self.part {
            Part::Constant(_)
            | Part::Column(_)
            | Part::Parameter { .. }
            | Part::ServerValue
            | Part::UnusualCall { .. }
            | Part::CaseOperand
            | Part::Subquery
            | Part::Grouping { .. }
            | Part::Unknown(_) => Vec::new(),
            Part::Placeholder(placeholder) => vec![&placeholder.expression],
            Part::Call(call) | Part::Distinct(call) | Part::NullIf(call) => call.arguments.iter().collect(),
            Part::ArrayComparison(comparison) => {
                comparison.operands.iter().flat_map(|operands| [&operands.0, &operands.1]).collect()
            }
            Part::RecordComparison(comparison) => {
                comparison.left.sources().chain(comparison.right.sources()).collect()
            }
            Part::RowComparison { columns, .. } => {
                columns.iter().flat_map(|column| [&column.left, &column.right]).collect()
            }
            Part::Logic { arguments, .. } | Part::Extreme { arguments, .. } | Part::Coalesce(arguments) => {
                arguments.iter().collect()
            }
            Part::Relabel(argument)
            | Part::CoerceViaText(argument)
            | Part::Field { record: argument, .. }
            | Part::NullTest { argument, .. }
            | Part::TruthTest { argument, .. }
            | Part::ArrayCast { array: argument, .. } => vec![argument],
            Part::Case { operand, branches, otherwise } => {
                let branches = branches.iter().flat_map(|(condition, result)| [condition, result]);
                operand.iter().map(|operand| &**operand).chain(branches).chain(otherwise.as_deref()).collect()
            }
            Part::Array { items, .. } | Part::Row { fields: items, .. } => items.iter().collect(),
            Part::Window(window) => window.arguments.iter().chain(window.filter.as_deref()).collect(),
            Part::Aggregate(aggregate) => {
                let keys = aggregate.order.iter().map(|order| &order.key);
                let inputs = aggregate.arguments.iter().chain(&aggregate.direct).chain(keys);
                inputs.chain(aggregate.filter.as_deref()).collect()
            }
        }
    }
}
