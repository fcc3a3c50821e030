//! Which parts of a text match a regular expression.
//!
//! The crate `regex` says where the first match begins: that does not depend on what it prefers. An automaton of all matches that begin
//! there says where the one ends that PostgreSQL takes. Parts of groups are found from left to right: a stretch of the expression
//! has the longest or shortest part behind which the rest matches.
//!
//! Invariants: [`RegularExpression`] proves the answer for each expression that gets here. The planner refuses others.
//!
//! Source: PostgreSQL 15, `regexp.c` (`setup_regexp_matches`), `varlena.c` (`replace_text_regexp`, `appendStringInfoRegexpSubstr`).

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Range,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int32Array, ListBuilder, StringViewBuilder},
    datatypes::Int32Type,
};
use pystachio_engine::CharacterCase;
use pystachio_plan::{Error, RegularExpression, Result};
use regex::Regex;
use regex_automata::{
    Anchored, Input, MatchKind,
    hybrid::dfa::{Cache, DFA, OverlappingState},
    nfa::thompson,
};

use super::{
    invocation::Invocation,
    lanes::{Lanes, TextLanes},
    matching::{COMPILED_BYTES_MAX, compile, unusable},
};

/// A function of the parts of a text that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PartFunction {
    /// The text with other parts in their places.
    Replace,
    /// Their count.
    Count,
    /// One of them, or of a group's.
    One,
    /// Those of all groups in the first.
    Groups,
}

/// Finds the parts of texts that match. Equal if letters, function, case and pattern are.
pub(super) struct PartFinder {
    case: Arc<CharacterCase>,
    function: PartFunction,
    /// The pattern of every row, if it is one.
    constant: Option<Arc<Compiled>>,
}

/// A pattern, compiled.
struct Compiled {
    pattern: String,
    ignores_case: bool,
    /// Finds where a match begins.
    first: Regex,
    /// Finds where it ends.
    whole: Ends,
    /// What leads to the parts of groups.
    stretches: Vec<CompiledStretch>,
    group_count: usize,
}

struct CompiledStretch {
    ends: Ends,
    rest: Ends,
    is_group: bool,
}

/// The ends of the matches that begin at one place.
struct Ends {
    automaton: DFA,
    prefers_shorter: bool,
}

/// What a search needs besides: states of the automata.
struct Caches {
    whole: Cache,
    stretches: Vec<(Cache, Cache)>,
}

/// A match, and the parts of groups.
struct Found {
    whole: Range<usize>,
    groups: Vec<Range<usize>>,
}

impl PartFinder {
    /// A finder, whose pattern and whether case is ignored are known if they are the same in every row.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a pattern that the planner refuses.
    pub(super) fn new(
        case: Arc<CharacterCase>,
        function: PartFunction,
        constant: Option<(String, bool)>,
    ) -> Result<Self> {
        let compiled = |(pattern, ignores_case): (String, bool)| {
            Compiled::new(&case, ignores_case, &pattern).map(Arc::new)
        };
        let constant = constant.map(compiled).transpose()?;
        Ok(Self { case, function, constant })
    }

    /// A name for plans.
    pub(super) fn name(&self) -> &'static str {
        match self.function {
            PartFunction::Replace => "replace_matches",
            PartFunction::Count => "count_matches",
            PartFunction::One => "matched_part",
            PartFunction::Groups => "matched_parts",
        }
    }

    /// # Errors
    ///
    /// `NotSupported` for a pattern that the planner refuses.
    pub(super) fn evaluate(&self, call: &Invocation<'_>) -> Result<ArrayRef> {
        match self.function {
            PartFunction::Replace => {
                let (text, replacement) = (call.text(0)?, call.text(2)?);
                let (start, number) = (call.lanes::<Int32Type>(3)?, call.lanes::<Int32Type>(4)?);
                let mut search = Search::new(self, call, 5)?;
                call.write_texts(|row, target| {
                    let (Some(text), Some(replacement)) = (text.get(row), replacement.get(row)) else {
                        return Ok(false);
                    };
                    let (Some(start), Some(number)) = (start.get(row), number.get(row)) else {
                        return Ok(false);
                    };
                    let Some((pattern, caches)) = search.pattern(row)? else { return Ok(false) };
                    pattern.replace(caches, text, replacement, (start, number), target)?;
                    Ok(true)
                })
            }
            PartFunction::Count => {
                let (text, start) = (call.text(0)?, call.lanes::<Int32Type>(2)?);
                let mut search = Search::new(self, call, 3)?;
                let count = |row| {
                    let (Some(text), Some(start)) = (text.get(row), start.get(row)) else { return Ok(None) };
                    let Some((pattern, caches)) = search.pattern(row)? else { return Ok(None) };
                    let mut count = 0;
                    let mut from = offset_of(text, start);
                    while let Some(found) = pattern.find(caches, text, from, false)? {
                        count += 1;
                        from = behind(text, &found.whole);
                    }
                    Ok(Some(count))
                };
                Ok(Arc::new((0..call.rows).map(count).collect::<Result<Int32Array>>()?))
            }
            PartFunction::One => {
                let text = call.text(0)?;
                let [start, number, group]: [Lanes<'_, i32>; 3] =
                    [call.lanes::<Int32Type>(2)?, call.lanes::<Int32Type>(3)?, call.lanes::<Int32Type>(4)?];
                let mut search = Search::new(self, call, 5)?;
                call.write_texts(|row, target| {
                    let (Some(text), Some(start)) = (text.get(row), start.get(row)) else { return Ok(false) };
                    let (Some(number), Some(group)) = (number.get(row), group.get(row)) else {
                        return Ok(false);
                    };
                    let Some((pattern, caches)) = search.pattern(row)? else { return Ok(false) };
                    let found = pattern.find_number(caches, text, (start, number), group > 0)?;
                    let Some(part) = found.and_then(|found| found.part(group)) else { return Ok(false) };
                    target.push_str(text.get(part).unwrap_or_default());
                    Ok(true)
                })
            }
            PartFunction::Groups => {
                let text = call.text(0)?;
                let mut search = Search::new(self, call, 2)?;
                let mut builder = ListBuilder::new(StringViewBuilder::new());
                for row in 0..call.rows {
                    let found = match (text.get(row), search.pattern(row)?) {
                        (Some(text), Some((pattern, caches))) => {
                            pattern.find(caches, text, Some(0), true)?.map(|found| (text, found))
                        }
                        _ => None,
                    };
                    if let Some((text, found)) = &found {
                        for part in found.parts() {
                            builder.values().append_value(text.get(part.clone()).unwrap_or_default());
                        }
                    }
                    builder.append(found.is_some());
                }
                Ok(Arc::new(builder.finish()))
            }
        }
    }
}

/// The patterns of rows, of which the last one is kept.
struct Search<'a> {
    finder: &'a PartFinder,
    patterns: TextLanes,
    /// Whether case is ignored.
    cases: ArrayRef,
    known: Option<(Arc<Compiled>, Caches)>,
}

impl<'a> Search<'a> {
    fn new(finder: &'a PartFinder, call: &Invocation<'_>, place_of_case: usize) -> Result<Self> {
        let known = finder.constant.clone().map(|compiled| {
            let caches = compiled.caches();
            (compiled, caches)
        });
        Ok(Self { finder, patterns: call.text(1)?, cases: call.array(place_of_case)?, known })
    }

    fn pattern(&mut self, row: usize) -> Result<Option<(&Compiled, &mut Caches)>> {
        let Some(pattern) = self.patterns.get(row) else { return Ok(None) };
        if self.cases.is_null(row) {
            return Ok(None);
        }
        let ignores_case = self.cases.as_boolean().value(row);
        let is_known = |(known, _): &(Arc<Compiled>, Caches)| {
            known.pattern == pattern && known.ignores_case == ignores_case
        };
        if !self.known.as_ref().is_some_and(is_known) {
            let compiled = Compiled::new(&self.finder.case, ignores_case, pattern)?;
            let caches = compiled.caches();
            self.known = Some((Arc::new(compiled), caches));
        }
        Ok(self.known.as_mut().map(|(compiled, caches)| (&**compiled, caches)))
    }
}

impl Found {
    /// The part of a group, or all of the match.
    fn part(&self, group: i32) -> Option<Range<usize>> {
        match usize::try_from(group).ok()?.checked_sub(1) {
            None => Some(self.whole.clone()),
            Some(place) => self.parts().get(place).cloned(),
        }
    }

    /// The parts of groups, or all of the match where there are none.
    fn parts(&self) -> &[Range<usize>] {
        if self.groups.is_empty() { std::slice::from_ref(&self.whole) } else { &self.groups }
    }
}

impl Compiled {
    fn new(case: &CharacterCase, ignores_case: bool, pattern: &str) -> Result<Self> {
        let parsed = RegularExpression::parse(pattern)?;
        let ends = |part: &RegularExpression| Ends::new(part, case, ignores_case, pattern);
        let stretches = match parsed.group_count() {
            0 => Vec::new(),
            _ => parsed.stretches().unwrap_or_default(),
        };
        let stretches = stretches.iter().map(|stretch| {
            Ok(CompiledStretch {
                ends: ends(&stretch.expression)?,
                rest: ends(&stretch.rest)?,
                is_group: stretch.is_group,
            })
        });
        Ok(Self {
            pattern: pattern.to_owned(),
            ignores_case,
            first: compile(case, ignores_case, pattern)?,
            whole: ends(&parsed)?,
            stretches: stretches.collect::<Result<_>>()?,
            group_count: parsed.group_count(),
        })
    }

    fn caches(&self) -> Caches {
        let of_stretch = |stretch: &CompiledStretch| {
            (stretch.ends.automaton.create_cache(), stretch.rest.automaton.create_cache())
        };
        Caches {
            whole: self.whole.automaton.create_cache(),
            stretches: self.stretches.iter().map(of_stretch).collect(),
        }
    }

    /// The first match that begins at an offset or behind it; with the parts of groups, if they are asked for.
    fn find(
        &self,
        caches: &mut Caches,
        text: &str,
        from: Option<usize>,
        asks_groups: bool,
    ) -> Result<Option<Found>> {
        let Some(from) = from else { return Ok(None) };
        let start = match self.whole.is_at_start() {
            true if from > 0 => return Ok(None),
            true => 0,
            false => match self.first.find_at(text, from) {
                Some(first) => first.start(),
                None => return Ok(None),
            },
        };
        let Some(end) = self.whole.end(&mut caches.whole, text, start..text.len())? else {
            return match self.whole.is_at_start() {
                true => Ok(None),
                false => Err(Error::internal("a match has no end")),
            };
        };
        let groups = if asks_groups && self.group_count > 0 {
            self.groups(caches, text, start..end)?
        } else {
            Vec::new()
        };
        Ok(Some(Found { whole: start..end, groups }))
    }

    /// The match of a number behind a start.
    fn find_number(
        &self,
        caches: &mut Caches,
        text: &str,
        (start, number): (i32, i32),
        asks_groups: bool,
    ) -> Result<Option<Found>> {
        let mut from = offset_of(text, start);
        for count in 1.. {
            let is_last = count == number;
            match self.find(caches, text, from, asks_groups && is_last)? {
                Some(found) if is_last => return Ok(Some(found)),
                Some(found) => from = behind(text, &found.whole),
                None => break,
            }
        }
        Ok(None)
    }

    /// The parts of groups in a match.
    fn groups(&self, caches: &mut Caches, text: &str, whole: Range<usize>) -> Result<Vec<Range<usize>>> {
        let mut groups = Vec::with_capacity(self.group_count);
        let mut start = whole.start;
        let mut stretches = self.stretches.iter().zip(&mut caches.stretches).peekable();
        // Stretches behind the last group tell nothing more.
        while groups.len() < self.group_count
            && let Some((stretch, (ends, rest))) = stretches.next()
        {
            let end = match stretches.peek() {
                None => Some(whole.end),
                Some(_) => stretch.end(ends, rest, text, start..whole.end)?,
            };
            let end = end.ok_or_else(|| Error::internal("a part of a match has no end"))?;
            if stretch.is_group {
                groups.push(start..end);
            }
            start = end;
        }
        match groups.len() == self.group_count {
            true => Ok(groups),
            false => Err(unusable(&self.pattern, "the parts of its groups are not known")),
        }
    }

    /// Appends the text with a match, or all of them, replaced.
    fn replace(
        &self,
        caches: &mut Caches,
        text: &str,
        replacement: &str,
        (start, number): (i32, i32),
        target: &mut String,
    ) -> Result<()> {
        let asks_groups = !self.stretches.is_empty() && replacement.contains('\\');
        let mut from = offset_of(text, start);
        let (mut copied, mut count) = (0, 0);
        while let Some(Found { whole, .. }) = self.find(caches, text, from, false)? {
            count += 1;
            from = behind(text, &whole);
            if number > 0 && count != number {
                continue;
            }
            // There may be many matches, of which one is wanted.
            let groups = match asks_groups {
                true => self.groups(caches, text, whole.clone())?,
                false => Vec::new(),
            };
            target.push_str(text.get(copied..whole.start).unwrap_or_default());
            push_replacement(text, replacement, &whole, &groups, target);
            copied = whole.end;
            if number > 0 {
                break;
            }
        }
        target.push_str(text.get(copied..).unwrap_or_default());
        Ok(())
    }
}

impl CompiledStretch {
    /// Where the stretch ends in a range that it begins: the preferred place behind which the rest matches.
    fn end(
        &self,
        ends: &mut Cache,
        rest: &mut Cache,
        text: &str,
        range: Range<usize>,
    ) -> Result<Option<usize>> {
        let is_followed = |end: usize, rest: &mut Cache| self.rest.matches_all(rest, text, end..range.end);
        let Some(preferred) = self.ends.end(ends, text, range.clone())? else { return Ok(None) };
        // As a rule the first is the one, and to find all takes much longer.
        if is_followed(preferred, rest)? {
            return Ok(Some(preferred));
        }
        let mut candidates = self.ends.all(ends, text, range.clone())?;
        if !self.ends.prefers_shorter {
            candidates.reverse();
        }
        for end in candidates.into_iter().filter(|end| *end != preferred) {
            if is_followed(end, rest)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }
}

impl Ends {
    fn new(
        expression: &RegularExpression,
        case: &CharacterCase,
        ignores_case: bool,
        pattern: &str,
    ) -> Result<Self> {
        let written = expression.write(case, ignores_case);
        // As large as it must be: states are made as texts need them.
        let form = DFA::config().match_kind(MatchKind::All).skip_cache_capacity_check(true);
        let limit = thompson::Config::new().nfa_size_limit(Some(COMPILED_BYTES_MAX));
        let automaton = DFA::builder().configure(form).thompson(limit).build(&written);
        let automaton = automaton.map_err(|error| unusable(pattern, &error.to_string()))?;
        Ok(Self { automaton, prefers_shorter: expression.prefers_shorter() })
    }

    /// Whether matches begin at the start of a text and nowhere else.
    fn is_at_start(&self) -> bool {
        self.automaton.get_nfa().is_always_start_anchored()
    }

    /// The end that is preferred of the matches that begin with a range and end in it.
    fn end(&self, cache: &mut Cache, text: &str, range: Range<usize>) -> Result<Option<usize>> {
        self.search(cache, text, range, self.prefers_shorter)
    }

    /// Whether a range of a text is a match.
    fn matches_all(&self, cache: &mut Cache, text: &str, range: Range<usize>) -> Result<bool> {
        let end = range.end;
        Ok(self.search(cache, text, range, false)? == Some(end))
    }

    fn search(
        &self,
        cache: &mut Cache,
        text: &str,
        range: Range<usize>,
        is_shortest: bool,
    ) -> Result<Option<usize>> {
        let input = Input::new(text).range(range).anchored(Anchored::Yes).earliest(is_shortest);
        let found = self.automaton.try_search_fwd(cache, &input);
        let found = found.map_err(|error| Error::internal(error.to_string()))?;
        Ok(found.map(|found| found.offset()))
    }

    /// The ends of all matches that begin with a range and end in it, ascending.
    fn all(&self, cache: &mut Cache, text: &str, range: Range<usize>) -> Result<Vec<usize>> {
        let input = Input::new(text).range(range).anchored(Anchored::Yes);
        let mut state = OverlappingState::start();
        let mut ends = Vec::new();
        loop {
            let searched = self.automaton.try_search_overlapping_fwd(cache, &input, &mut state);
            searched.map_err(|error| Error::internal(error.to_string()))?;
            match state.get_match() {
                Some(found) => ends.push(found.offset()),
                None => return Ok(ends),
            }
        }
    }
}

/// The offset of the character of a number from 1; `None` behind the end.
fn offset_of(text: &str, number: i32) -> Option<usize> {
    let skipped = usize::try_from(number.saturating_sub(1)).unwrap_or(0);
    let begins = text.char_indices().map(|(offset, _)| offset);
    begins.chain([text.len()]).nth(skipped)
}

/// Where the search goes on behind a match: one character further if it is empty; `None` behind the end.
fn behind(text: &str, whole: &Range<usize>) -> Option<usize> {
    if !whole.is_empty() {
        return Some(whole.end);
    }
    let next = text.get(whole.end..)?.chars().next()?;
    Some(whole.end + next.len_utf8())
}

/// Appends what a match is replaced by.
fn push_replacement(
    text: &str,
    replacement: &str,
    whole: &Range<usize>,
    groups: &[Range<usize>],
    target: &mut String,
) {
    let mut characters = replacement.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\\' {
            target.push(character);
            continue;
        }
        let part = match characters.peek() {
            Some('&') => Some(whole),
            Some('\\') => {
                characters.next();
                target.push('\\');
                continue;
            }
            Some(digit @ '1'..='9') => {
                let group = digit.to_digit(10).and_then(|number| groups.get(number as usize - 1));
                characters.next();
                target.push_str(group.and_then(|part| text.get(part.clone())).unwrap_or_default());
                continue;
            }
            _ => None,
        };
        match part {
            Some(part) => {
                characters.next();
                target.push_str(text.get(part.clone()).unwrap_or_default());
            }
            // It stands for itself.
            None => target.push('\\'),
        }
    }
}

impl PartialEq for PartFinder {
    fn eq(&self, other: &Self) -> bool {
        let pattern = |finder: &Self| {
            finder.constant.as_ref().map(|compiled| (compiled.pattern.clone(), compiled.ignores_case))
        };
        self.case == other.case && self.function == other.function && pattern(self) == pattern(other)
    }
}

impl Eq for PartFinder {}

impl Hash for PartFinder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.case.hash(state);
        self.function.hash(state);
        if let Some(compiled) = &self.constant {
            compiled.pattern.hash(state);
            compiled.ignores_case.hash(state);
        }
    }
}

impl fmt::Debug for PartFinder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = self.constant.as_ref().map(|compiled| &compiled.pattern);
        formatter.debug_tuple("PartFinder").field(&self.function).field(&pattern).finish()
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::Ctype;

    use super::*;

    type WholeAndGroups = (Range<usize>, Vec<Range<usize>>);

    fn compiled(pattern: &str) -> Compiled {
        Compiled::new(&CharacterCase::of(Ctype::Ascii).unwrap(), false, pattern).unwrap()
    }

    /// The match from an offset on, by trying every end of every stretch.
    fn tried(expression: &Compiled, text: &str, from: usize) -> Option<WholeAndGroups> {
        let mut caches = expression.caches();
        let start = expression.first.find_at(text, from)?.start();
        let end = expression.whole.end(&mut caches.whole, text, start..text.len()).unwrap().unwrap();
        let (mut groups, mut begin) = (Vec::new(), start);
        for (stretch, (ends, rest)) in expression.stretches.iter().zip(&mut caches.stretches) {
            let mut candidates = stretch.ends.all(ends, text, begin..end).unwrap();
            if !stretch.ends.prefers_shorter {
                candidates.reverse();
            }
            let mut candidates = candidates.into_iter();
            let stop =
                candidates.find(|stop| stretch.rest.matches_all(rest, text, *stop..end).unwrap()).unwrap();
            groups.extend(stretch.is_group.then_some(begin..stop));
            begin = stop;
        }
        Some((start..end, groups))
    }

    /// The parts that an expression finds from each offset on.
    fn found(expression: &Compiled, text: &str) -> Vec<Option<WholeAndGroups>> {
        let mut caches = expression.caches();
        let offsets = text.char_indices().map(|(offset, _)| offset).chain([text.len()]);
        let mut find = |offset| {
            let found = expression.find(&mut caches, text, Some(offset), true).unwrap();
            found.map(|Found { whole, groups }| (whole, groups))
        };
        offsets.map(&mut find).collect()
    }

    /// A text of which the first match, or all, are replaced by their groups.
    fn replaced(expression: &Compiled, text: &str, number: i32) -> String {
        let mut target = String::new();
        let mut caches = expression.caches();
        expression.replace(&mut caches, text, "<\\1|\\2>", (1, number), &mut target).unwrap();
        target
    }

    /// The same, by trying every end of every stretch.
    fn replaced_by_trying(expression: &Compiled, text: &str, number: usize) -> String {
        let (mut target, mut copied, mut count) = (String::new(), 0, 0);
        let mut from = Some(0);
        while let Some((whole, groups)) = from.and_then(|from| tried(expression, text, from)) {
            count += 1;
            from = behind(text, &whole);
            if number == 0 || count == number {
                let part = |group: usize| groups.get(group).map_or("", |part| &text[part.clone()]);
                target += &format!("{}<{}|{}>", &text[copied..whole.start], part(0), part(1));
                copied = whole.end;
            }
        }
        target + &text[copied..]
    }

    #[test]
    fn preferred_ends_are_those_that_trying_all_finds() {
        let patterns = [
            "(a+)(b*)c",
            "^(a*)(b?)",
            "x(.)y",
            "^([^/]*)/([^/]*)$",
            "(é+)x?",
            "^(a+?)(b*)",
            "([ab])c+?",
            "^https?://(?:www[.])?([^/:?#]+).*$",
            "(a*)(ab|b)(b*)",
            "(a+?)(a*b?)c",
            "(.*)b(.*)",
            "^(a|ab)(c|bcd)(d*)$",
            "(a+)(a+)",
        ];
        let mut seed = 7_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let pieces = ["a", "b", "c", "ab", "é", "x", "y", "/", "http://", "https://www.", "#", "d", "€", "."];
        let mut match_count = 0;
        for pattern in patterns {
            let expression = compiled(pattern);
            for _ in 0..200 {
                let text: String = (0..next(9)).map(|_| pieces[next(pieces.len())]).collect();
                let offsets = text.char_indices().map(|(offset, _)| offset).chain([text.len()]);
                let wanted: Vec<_> = offsets.map(|from| tried(&expression, &text, from)).collect();
                match_count += wanted.iter().flatten().count();
                assert_eq!(found(&expression, &text), wanted, "{pattern} in {text}");
                for number in [0, 1, 2] {
                    let wanted = replaced_by_trying(&expression, &text, number as usize);
                    assert_eq!(
                        replaced(&expression, &text, number),
                        wanted,
                        "{pattern} in {text}, match {number}"
                    );
                }
            }
        }
        assert!(match_count > 1000, "{match_count}");
    }
}
