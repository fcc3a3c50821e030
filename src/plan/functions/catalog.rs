//! PostgreSQL's functions that mean a function of the plan language, by their names in `pg_catalog`.

use super::{FUNCTIONS, FunctionEntry};

/// Names with one use.
#[derive(Clone, Copy, Debug)]
pub struct CatalogNames {
    /// Names of functions in `pg_catalog`.
    pub names: &'static [&'static str],
    /// How they mean the entry's function.
    pub is: CatalogUse,
}

/// How a function of `pg_catalog` means one of the plan language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogUse {
    /// On the same arguments.
    Itself,
    /// NOT of it.
    Not,
    /// With its second argument negated.
    MinusSecond,
    /// With its two arguments exchanged.
    Exchanged,
}

impl CatalogNames {
    pub(super) const fn itself(names: &'static [&'static str]) -> Self {
        Self { names, is: CatalogUse::Itself }
    }
}

/// The names of an operator's functions over integers and floats, such as `int48pl`, and others.
macro_rules! operator_names {
    ($suffix:literal $(, $other:expr)*) => {
        &[CatalogNames::itself(&[
            concat!("int2", $suffix),
            concat!("int4", $suffix),
            concat!("int8", $suffix),
            concat!("int24", $suffix),
            concat!("int28", $suffix),
            concat!("int42", $suffix),
            concat!("int48", $suffix),
            concat!("int82", $suffix),
            concat!("int84", $suffix),
            concat!("float4", $suffix),
            concat!("float8", $suffix),
            concat!("float48", $suffix),
            concat!("float84", $suffix),
            $($other),*
        ])]
    };
}
pub(super) use operator_names;

/// The entry that a function of `pg_catalog` means, and how; `None` for a name that no entry has.
pub fn function_of_catalog(name: &str) -> Option<(&'static FunctionEntry, CatalogUse)> {
    FUNCTIONS.iter().find_map(|entry| {
        let names = entry.catalog.iter().find(|names| names.names.contains(&name))?;
        Some((*entry, names.is))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Divisions of integers and floats have names of their own, and so has every other function.
    #[test]
    fn a_name_means_one_thing() {
        let mut known = BTreeSet::new();
        for entry in FUNCTIONS {
            for name in entry.catalog.iter().flat_map(|names| names.names) {
                assert!(known.insert(*name), "{name} twice");
            }
        }
    }

    #[test]
    fn operators_are_found_by_their_function() {
        let named = |name| function_of_catalog(name).map(|(entry, is)| (entry.name, is));
        assert_eq!(named("int48lt"), Some(("less", CatalogUse::Itself)));
        assert_eq!(named("textnlike"), Some(("like", CatalogUse::Not)));
        assert_eq!(named("integer_pl_date"), Some(("add_days", CatalogUse::Exchanged)));
        assert_eq!(named("timestamp_mi_interval"), Some(("add_interval", CatalogUse::MinusSecond)));
        assert_eq!(named("numeric_div"), Some(("divide_decimal", CatalogUse::Itself)));
        assert_eq!(named("pg_sleep"), None);
    }
}
