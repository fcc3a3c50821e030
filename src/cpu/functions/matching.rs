//! Regular expressions, by the crate `regex`: whether a text matches.
//!
//! Invariants: an expression is one that [`RegularExpression`] reads. The planner refuses others.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::array::{ArrayRef, BooleanArray};
use pystachio_engine::CharacterCase;
use pystachio_plan::{Error, ErrorKind, RegularExpression, Result};
use regex::{Regex, RegexBuilder};

use super::invocation::Invocation;

/// Bytes of a compiled expression. Those that the planner allows take far less.
pub(super) const COMPILED_BYTES_MAX: usize = 64 << 20;

/// Matches texts. Equal if letters, case and pattern are.
pub(super) struct Matcher {
    case: Arc<CharacterCase>,
    ignores_case: bool,
    /// The pattern of every row, if it is one.
    constant: Option<(String, Regex)>,
}

impl Matcher {
    /// A matcher, whose pattern is known if it is the same in every row.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a pattern that the planner refuses.
    pub(super) fn new(case: Arc<CharacterCase>, ignores_case: bool, constant: Option<&str>) -> Result<Self> {
        let compiled =
            |pattern: &str| Ok::<_, Error>((pattern.to_owned(), compile(&case, ignores_case, pattern)?));
        let constant = constant.map(compiled).transpose()?;
        Ok(Self { case, ignores_case, constant })
    }

    /// Whether the texts match.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a pattern that the planner refuses.
    pub(super) fn matches(&self, call: &Invocation<'_>) -> Result<ArrayRef> {
        let (text, patterns) = (call.text(0)?, call.text(1)?);
        let mut known = self.constant.clone();
        let mut of_row = |row| {
            let (Some(text), Some(pattern)) = (text.get(row), patterns.get(row)) else { return Ok(None) };
            if known.as_ref().is_none_or(|(known, _)| known != pattern) {
                known = Some((pattern.to_owned(), compile(&self.case, self.ignores_case, pattern)?));
            }
            Ok(known.as_ref().map(|(_, regex)| regex.is_match(text)))
        };
        Ok(Arc::new((0..call.rows).map(&mut of_row).collect::<Result<BooleanArray>>()?))
    }

    fn pattern(&self) -> Option<&str> {
        self.constant.as_ref().map(|(pattern, _)| pattern.as_str())
    }
}

pub(super) fn compile(case: &CharacterCase, ignores_case: bool, pattern: &str) -> Result<Regex> {
    let written = RegularExpression::parse(pattern)?.write(case, ignores_case);
    let compiled = RegexBuilder::new(&written).size_limit(COMPILED_BYTES_MAX).build();
    compiled.map_err(|error| unusable(pattern, &error.to_string()))
}

/// The error of a pattern that the planner should have refused.
pub(super) fn unusable(pattern: &str, why: &str) -> Error {
    let message = format!("regular expression \"{pattern}\" can't be used: {why}");
    Error::new(ErrorKind::NotSupported, message)
        .with_hint("SET pystachio.pushdown = off lets PostgreSQL match it.")
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.case == other.case
            && self.ignores_case == other.ignores_case
            && self.pattern() == other.pattern()
    }
}

impl Eq for Matcher {}

impl Hash for Matcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.case.hash(state);
        self.ignores_case.hash(state);
        self.pattern().hash(state);
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Matcher").field(&self.pattern()).finish()
    }
}
