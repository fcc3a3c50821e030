//! What PostgreSQL's functions mean in the plan language, by their names in `pg_catalog`, which the registry of functions has
//! ([`pystachio_plan::function_of_catalog`]).
//!
//! Three classes. *Same*: in the registry, always PostgreSQL's value. *Caveat*: in the registry with a condition that lowering
//! checks (a collation, a constant argument, a time zone). *Refused*: everything else.

use pystachio_plan::{CatalogUse, Caveat, Function, TrimSide, function_of_catalog};

/// What a function of `pg_catalog` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A function of the plan, whose field or letters the call tells, and how its arguments are those of the call.
    Function(Function, CatalogUse),
    /// Its argument.
    Argument,
    /// A cast to `varchar(n)` or `char(n)`: the first n characters.
    FirstCharacters,
}

impl Meaning {
    /// The meaning of a name; `None` for a function that no engine has.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "int2up" | "int4up" | "int8up" | "float4up" | "float8up" | "numeric_uplus" => {
                return Some(Self::Argument);
            }
            "varchar" | "bpchar" => return Some(Self::FirstCharacters),
            _ => {}
        }
        let (entry, is) = function_of_catalog(name)?;
        let function = match entry.form.any() {
            Function::Trim(_) => Function::Trim(match name {
                "ltrim" => TrimSide::Leading,
                "rtrim" => TrimSide::Trailing,
                _ => TrimSide::Both,
            }),
            function => function,
        };
        Some(Self::Function(function, is))
    }

    /// The function of the plan that it is, of the same arguments.
    pub(crate) fn function(self) -> Option<Function> {
        match self {
            Self::Function(function, CatalogUse::Itself) => Some(function),
            _ => None,
        }
    }

    /// The comparison that it is, if it is one.
    pub fn comparison(self) -> Option<Comparison> {
        self.function().and_then(Comparison::of)
    }

    /// Whether it is LIKE, ILIKE or the negation of one.
    pub(crate) fn is_like(self) -> bool {
        matches!(self, Self::Function(Function::Like | Function::ILike(_), _))
    }

    /// Whether it takes values of any type, as they are printed.
    pub(crate) fn shows_arguments(self) -> bool {
        matches!(self.function(), Some(Function::ConcatSkippingNulls | Function::ConcatSeparated))
    }

    /// Whether lowering must check a condition.
    pub(crate) fn has_caveat(self, caveat: Caveat) -> bool {
        self.caveats().contains(&caveat)
    }

    fn caveats(self) -> &'static [Caveat] {
        match self {
            Self::Function(function, _) => function.entry().caveats,
            Self::Argument | Self::FirstCharacters => &[],
        }
    }

    /// The place of the time zone among so many arguments, if one is.
    pub(crate) fn zone_place(self, argument_count: usize) -> Option<usize> {
        self.caveats().iter().find_map(|caveat| match caveat {
            Caveat::TimeZone { place, of } if *of == argument_count => Some(*place),
            _ => None,
        })
    }
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Comparison {
    /// The comparison that a function of the plan is.
    pub fn of(function: Function) -> Option<Self> {
        Some(match function {
            Function::Equal => Self::Equal,
            Function::NotEqual => Self::NotEqual,
            Function::Less => Self::Less,
            Function::LessEqual => Self::LessEqual,
            Function::Greater => Self::Greater,
            Function::GreaterEqual => Self::GreaterEqual,
            _ => return None,
        })
    }

    /// The plan's word.
    pub fn to_plan(self) -> Function {
        match self {
            Self::Equal => Function::Equal,
            Self::NotEqual => Function::NotEqual,
            Self::Less => Function::Less,
            Self::LessEqual => Function::LessEqual,
            Self::Greater => Function::Greater,
            Self::GreaterEqual => Function::GreaterEqual,
        }
    }

    /// The same comparison with its operands exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            same => same,
        }
    }

    /// Whether the operands' order matters, so that text needs a collation of byte order.
    pub(crate) fn is_ordering(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{Ctype, FUNCTIONS};

    use super::*;

    fn meaning(function: Function) -> Option<Meaning> {
        Some(Meaning::Function(function, CatalogUse::Itself))
    }

    #[test]
    fn operators_are_found_by_their_function() {
        let comparison = |name| Meaning::of(name).and_then(Meaning::comparison);
        assert_eq!(comparison("int48lt"), Some(Comparison::Less));
        assert_eq!(comparison("date_le_timestamp"), Some(Comparison::LessEqual));
        assert_eq!(comparison("date_lt_timestamptz"), Some(Comparison::Less));
        assert_eq!(comparison("timestamp_eq_timestamptz"), Some(Comparison::Equal));
        assert_eq!(comparison("texteq"), Some(Comparison::Equal));
        assert_eq!(comparison("text_ge"), Some(Comparison::GreaterEqual));
        assert_eq!(comparison("texteqname"), Some(Comparison::Equal));
        assert_eq!(comparison("namegttext"), Some(Comparison::Greater));
        assert_eq!(comparison("numeric_mul"), None);
        assert_eq!(Meaning::of("numeric_mul"), meaning(Function::Multiply));
        assert_eq!(Meaning::of("float84div"), meaning(Function::Divide));
        assert_eq!(Meaning::of("ltrim"), meaning(Function::Trim(TrimSide::Leading)));
        assert_eq!(Meaning::of("int4up"), Some(Meaning::Argument));
        assert_eq!(Meaning::of("pg_sleep"), None);
    }

    #[test]
    fn a_name_tells_how_arguments_are_used() {
        let not_like = Meaning::Function(Function::ILike(Ctype::Ascii), CatalogUse::Not);
        assert_eq!(Meaning::of("bpcharicnlike"), Some(not_like));
        assert!(not_like.is_like());
        let earlier = Meaning::Function(Function::AddInterval, CatalogUse::MinusSecond);
        assert_eq!(Meaning::of("date_mi_interval"), Some(earlier));
        let exchanged = Meaning::Function(Function::AddDays, CatalogUse::Exchanged);
        assert_eq!(Meaning::of("integer_pl_date"), Some(exchanged));
    }

    #[test]
    fn zones_stand_where_functions_have_them() {
        let place = |name, count| Meaning::of(name).and_then(|meaning| meaning.zone_place(count));
        assert_eq!(place("timezone", 2), Some(0));
        assert_eq!(place("timezone", 1), None);
        assert_eq!(place("date_trunc", 3), Some(2));
        assert_eq!(place("date_trunc", 2), None);
        assert_eq!(place("textlike", 2), None);
    }

    #[test]
    fn every_name_of_the_registry_has_a_meaning() {
        for entry in FUNCTIONS {
            for name in entry.catalog.iter().flat_map(|names| names.names) {
                assert!(Meaning::of(name).is_some(), "{name}");
            }
        }
    }
}
