//! How an expression of PostgreSQL finds the columns of a relation's plan.

use std::{collections::HashMap, rc::Rc};

use pystachio_plan::{Expression, Value};

use crate::{Lowered, Part, Source};

/// A column as PostgreSQL's expressions name it: range-table index and attribute number.
pub type VarKey = (u32, i16);

/// The columns of a relation, found by PostgreSQL's expressions.
#[derive(Debug)]
pub enum Scope {
    /// A base relation or a labelled subquery.
    Base {
        /// Its range-table index.
        relation_index: u32,
        /// Its columns by attribute number.
        columns: HashMap<i16, Lowered>,
        /// Fields of structs, which are JSON or composite values in PostgreSQL, by the attribute number of their column and the names on
        /// the way to them.
        fields: HashMap<(i16, Vec<String>), Lowered>,
        /// Fields of the elements of arrays of composite values, found in the same way: the expression is the array of them, the rest is that
        /// of one.
        item_fields: HashMap<(i16, Vec<String>), Lowered>,
    },
    /// Results of grouping: whole expressions.
    Expressions(Vec<(Source, Lowered)>),
    /// A scope with window functions.
    Windows {
        /// Everything else.
        input: Rc<Scope>,
        /// The functions.
        functions: Vec<(Source, Lowered)>,
    },
    /// Both inputs of a join.
    Join(Rc<Scope>, Rc<Scope>),
    /// Columns that are NULL in every row: the right side of an anti join.
    Null(Rc<Scope>),
    /// Columns that an outer join may turn into NULL.
    Nullable(Rc<Scope>),
    /// A scope with some columns found elsewhere: a semi join's right keys are its left ones.
    Replaced {
        /// Tried second.
        input: Rc<Scope>,
        /// Tried first.
        columns: HashMap<VarKey, Lowered>,
    },
    /// A scope with columns that engines carry through as bytes, without knowing their values.
    Carried {
        /// Everything else.
        input: Rc<Scope>,
        /// The columns. Nothing finds them but [`Scope::find_carried`].
        columns: HashMap<VarKey, Lowered>,
    },
    /// A scope with PlaceHolderVars that were computed at this relation.
    Placed {
        /// Everything else.
        input: Rc<Scope>,
        /// By `phid`.
        placeholders: HashMap<u32, Lowered>,
    },
}

impl Scope {
    /// The columns of a base relation, none of which has fields that are found by themselves.
    pub fn of_columns(relation_index: u32, columns: HashMap<i16, Lowered>) -> Self {
        Self::Base { relation_index, columns, fields: HashMap::new(), item_fields: HashMap::new() }
    }

    /// The column that the expression is, if it is one as a whole.
    pub fn find(&self, source: &Source) -> Option<Lowered> {
        let found = match &source.part {
            Part::Column(column) => self.find_column((column.relation, column.attribute)),
            Part::Placeholder(placeholder) => self.find_placeholder(placeholder.id),
            _ => None,
        };
        found.or_else(|| self.find_expression(source))
    }

    /// Whether these are exactly the relations that the scope has columns of.
    pub fn is_over(&self, relations: &[u32]) -> bool {
        let mut indexes = Vec::new();
        self.collect_relations(&mut indexes)
            && indexes.len() == relations.len()
            && indexes.iter().all(|index| relations.contains(index))
    }

    /// Adds the range-table indexes of the relations; false where grouping has left none.
    fn collect_relations(&self, indexes: &mut Vec<u32>) -> bool {
        match self {
            Self::Base { relation_index, .. } => {
                indexes.push(*relation_index);
                true
            }
            Self::Expressions(_) => false,
            Self::Join(left, right) => left.collect_relations(indexes) && right.collect_relations(indexes),
            Self::Null(input)
            | Self::Nullable(input)
            | Self::Replaced { input, .. }
            | Self::Windows { input, .. }
            | Self::Carried { input, .. }
            | Self::Placed { input, .. } => input.collect_relations(indexes),
        }
    }

    /// A column by its name.
    pub fn find_column(&self, key: VarKey) -> Option<Lowered> {
        match self {
            Self::Base { relation_index, columns, .. } => {
                if *relation_index == key.0 {
                    columns.get(&key.1).cloned()
                } else {
                    None
                }
            }
            Self::Expressions(_) => None,
            Self::Join(left, right) => left.find_column(key).or_else(|| right.find_column(key)).map(repeated),
            Self::Null(input) => input.find_column(key).map(null_of),
            Self::Nullable(input) => input.find_column(key).map(nullable),
            Self::Replaced { input, columns } => {
                columns.get(&key).cloned().or_else(|| input.find_column(key))
            }
            Self::Windows { input, .. } | Self::Carried { input, .. } | Self::Placed { input, .. } => {
                input.find_column(key)
            }
        }
    }

    /// A column that is carried through, by its name.
    pub fn find_carried(&self, key: VarKey) -> Option<Lowered> {
        match self {
            Self::Base { .. } | Self::Expressions(_) => None,
            Self::Join(left, right) => left.find_carried(key).or_else(|| right.find_carried(key)),
            Self::Null(input) => input.find_carried(key).map(null_of),
            Self::Nullable(input) => input.find_carried(key).map(nullable),
            Self::Replaced { input, .. } | Self::Windows { input, .. } | Self::Placed { input, .. } => {
                input.find_carried(key)
            }
            Self::Carried { input, columns } => {
                columns.get(&key).cloned().or_else(|| input.find_carried(key))
            }
        }
    }

    /// A field of a struct by the name of its column, and the names on the way to it.
    pub fn find_field(&self, key: VarKey, path: &[String]) -> Option<Lowered> {
        match self {
            Self::Base { relation_index, fields, .. } => {
                (*relation_index == key.0).then(|| fields.get(&(key.1, path.to_vec())).cloned())?
            }
            Self::Expressions(_) => None,
            Self::Join(left, right) => left.find_field(key, path).or_else(|| right.find_field(key, path)),
            Self::Null(input) => input.find_field(key, path).map(null_of),
            Self::Nullable(input) => input.find_field(key, path).map(nullable),
            Self::Replaced { input, .. }
            | Self::Windows { input, .. }
            | Self::Carried { input, .. }
            | Self::Placed { input, .. } => input.find_field(key, path),
        }
    }

    /// The arrays of a field of elements by the name of their column, and the names on the way to the field.
    pub fn find_item_field(&self, key: VarKey, path: &[String]) -> Option<Lowered> {
        match self {
            Self::Base { relation_index, item_fields, .. } => {
                (*relation_index == key.0).then(|| item_fields.get(&(key.1, path.to_vec())).cloned())?
            }
            Self::Expressions(_) => None,
            Self::Join(left, right) => {
                left.find_item_field(key, path).or_else(|| right.find_item_field(key, path))
            }
            Self::Null(input) => input.find_item_field(key, path).map(null_of),
            Self::Nullable(input) => input.find_item_field(key, path).map(nullable),
            Self::Replaced { input, .. }
            | Self::Windows { input, .. }
            | Self::Carried { input, .. }
            | Self::Placed { input, .. } => input.find_item_field(key, path),
        }
    }

    /// A PlaceHolderVar by its number.
    pub fn find_placeholder(&self, id: u32) -> Option<Lowered> {
        match self {
            Self::Base { .. } | Self::Expressions(_) => None,
            Self::Join(left, right) => {
                left.find_placeholder(id).or_else(|| right.find_placeholder(id)).map(repeated)
            }
            Self::Null(input) => input.find_placeholder(id).map(null_of),
            Self::Nullable(input) => input.find_placeholder(id).map(nullable),
            Self::Replaced { input, .. } | Self::Windows { input, .. } | Self::Carried { input, .. } => {
                input.find_placeholder(id)
            }
            Self::Placed { input, placeholders } => {
                placeholders.get(&id).cloned().or_else(|| input.find_placeholder(id))
            }
        }
    }

    fn find_expression(&self, source: &Source) -> Option<Lowered> {
        let of = |entries: &[(Source, Lowered)]| {
            entries.iter().find(|(known, _)| known == source).map(|(_, lowered)| lowered.clone())
        };
        match self {
            Self::Expressions(entries) => of(entries),
            Self::Windows { input, functions } => of(functions).or_else(|| input.find_expression(source)),
            _ => None,
        }
    }
}

/// A value that a join has in several rows.
fn repeated(lowered: Lowered) -> Lowered {
    Lowered { total_magnitude: f64::INFINITY, ..lowered }
}

fn nullable(lowered: Lowered) -> Lowered {
    Lowered { not_null: false, ..lowered }
}

fn null_of(lowered: Lowered) -> Lowered {
    let data_type = lowered.expression.data_type().clone();
    Lowered { expression: Expression::literal(Value::Null, data_type), not_null: false, ..lowered }
}
