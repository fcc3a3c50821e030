//! Functions of regular expressions, whose pattern is a constant.

use pystachio_plan::{CatalogUse, Ctype, DataType, Expression, Function, RegularExpression, Value};

use crate::{
    ARRAY_SUBSCRIPT, Call, CatalogFunction, FunctionRefusal, Lowered, LoweredResult, Lowering, Part, Refusal,
    Scale, TextForm,
    call::{CallSite, like, values},
    collation::is_deterministic,
    numeric::type_magnitude,
};

/// The flag that all matches are meant.
const EVERY: char = 'g';

/// What flags say.
#[derive(Clone, Copy, Default)]
struct Flags {
    ignores_case: bool,
    is_every: bool,
}

impl Lowering<'_> {
    /// `(regexp_match(text, pattern))[n]`; `None` for other calls.
    pub(crate) fn lower_matched_element(&self, call: &Call) -> Option<LoweredResult> {
        let [matched, number] = call.arguments.as_slice() else { return None };
        let Part::Call(inner) = &matched.part else { return None };
        let is_match = |function: &CatalogFunction| function.is_builtin && function.name == "regexp_match";
        if !call.function.is_builtin || call.function.name != ARRAY_SUBSCRIPT || !is_match(&inner.function) {
            return None;
        }
        let number = match self.lower(number).ok()?.literal()?.value {
            Value::Int(number) => i32::try_from(number).ok()?,
            _ => return None,
        };
        let part = |parts: Lowered| {
            let Expression::Call { function: Function::MatchedParts(ctype), arguments, .. } =
                parts.expression
            else {
                // NULL, of a NULL pattern.
                return Lowered::plain(Expression::literal(Value::Null, DataType::Text));
            };
            // Elements are counted from 1.
            if number < 1 {
                return Lowered::plain(Expression::literal(Value::Null, DataType::Text));
            }
            let (one, group) = (Expression::int32(1), Expression::int32(number));
            let mut arguments = arguments.into_iter();
            let both = arguments.by_ref().take(2).collect::<Vec<_>>();
            let arguments = both.into_iter().chain([one.clone(), one, group]).chain(arguments).collect();
            Lowered::plain(Expression::call(Function::MatchedPart(ctype), arguments, DataType::Text))
        };
        Some(self.lower(matched).map(part))
    }
}

impl CallSite<'_> {
    /// A match with a constant regular expression. Flags, which `regexp_like` may have, say whether case counts.
    pub(crate) fn matches(
        &self,
        function: Function,
        is: CatalogUse,
        mut arguments: Vec<Lowered>,
    ) -> LoweredResult {
        let mut ignores_case = matches!(function, Function::MatchesIgnoringCase(_));
        if arguments.len() == 3 {
            ignores_case = self.flags(arguments.pop(), false)?.ignores_case;
        }
        let [text, pattern] = self.two(arguments)?;
        let (_, ctype) = self.expression(&pattern, ignores_case)?;
        let arguments = vec![text, pattern];
        self.check_texts(&arguments, 2)?;
        let make = if ignores_case { Function::MatchesIgnoringCase } else { Function::Matches };
        Ok(like(make(ctype), is, arguments))
    }

    /// A constant pattern, and the letters that it is matched by.
    fn expression(
        &self,
        pattern: &Lowered,
        ignores_case: bool,
    ) -> Result<(RegularExpression, Ctype), Refusal> {
        let Some(Value::Text(expression)) = pattern.literal().map(|literal| &literal.value) else {
            return Err(self.refuse(FunctionRefusal::VaryingExpression));
        };
        let parsed = RegularExpression::parse(expression)
            .map_err(|why| self.refuse(FunctionRefusal::Expression(why.message)))?;
        let has_letters = ignores_case || parsed.has_classes() || parsed.has_boundaries();
        let ctype = if has_letters { self.ctype()? } else { Ctype::Ascii };
        if parsed.has_boundaries() && ctype != Ctype::Ascii {
            let why = "a regular expression with boundaries of words, except under C and POSIX";
            return Err(self.refuse(FunctionRefusal::Expression(why.to_owned())));
        }
        Ok((parsed, ctype))
    }

    /// `regexp_replace` with the arguments behind its pattern and replacement: flags; or a start, a number and flags.
    pub(crate) fn replace_matches(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let mut arguments = arguments.into_iter();
        let texts: Vec<Lowered> = arguments.by_ref().take(3).collect();
        let rest: Vec<Lowered> = arguments.collect();
        let is_flags = rest.first().is_some_and(|first| *first.data_type() == DataType::Text);
        let mut rest = rest.into_iter();
        let (start, number) = if is_flags { (None, None) } else { (rest.next(), rest.next()) };
        let has_number = number.is_some();
        let flags = self.flags(rest.next(), true)?;
        let start = self.count(start, 1, 1)?;
        // A number that is given counts more than the flag.
        let number = match self.count(number, 0, 1)? {
            _ if !has_number && flags.is_every => 0,
            number => number,
        };
        self.check_texts(&texts, 3)?;
        let [_, pattern, replacement] = texts.as_slice() else {
            return Err(self.refuse(FunctionRefusal::Arguments));
        };
        let (parsed, ctype) = self.expression(pattern, flags.ignores_case)?;
        let Some(Value::Text(replaced_by)) = replacement.literal().map(|literal| &literal.value) else {
            return Err(self.refuse(FunctionRefusal::VaryingReplacement));
        };
        self.check_extent(&parsed, names_group(replaced_by))?;
        let mut arguments = values(texts);
        arguments.extend([Expression::int32(start), Expression::int32(number), flag(flags.ignores_case)]);
        let function = Function::ReplaceMatches(ctype);
        Ok(Lowered::plain(Expression::call(function, arguments, DataType::Text)))
    }

    /// `regexp_count`, with a start and flags perhaps.
    pub(crate) fn count_matches(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let mut arguments = arguments.into_iter();
        let texts: Vec<Lowered> = arguments.by_ref().take(2).collect();
        let start = self.count(arguments.next(), 1, 1)?;
        let flags = self.flags(arguments.next(), false)?;
        let (parsed, ctype) = self.pattern_of(&texts, flags)?;
        self.check_extent(&parsed, false)?;
        let mut arguments = values(texts);
        arguments.extend([Expression::int32(start), flag(flags.ignores_case)]);
        let expression = Expression::call(Function::CountMatches(ctype), arguments, DataType::Int32);
        Ok(Lowered::number(expression, Scale::None, type_magnitude(&DataType::Int32)))
    }

    /// `regexp_substr`, with a start, a number, flags and a group perhaps.
    pub(crate) fn matched_part(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let mut arguments = arguments.into_iter();
        let texts: Vec<Lowered> = arguments.by_ref().take(2).collect();
        let start = self.count(arguments.next(), 1, 1)?;
        let number = self.count(arguments.next(), 1, 1)?;
        let flags = self.flags(arguments.next(), false)?;
        let group = self.count(arguments.next(), 0, 0)?;
        let (parsed, ctype) = self.pattern_of(&texts, flags)?;
        self.part(texts, (&parsed, ctype), [start, number, group], flags)
    }

    /// `substring(text FROM pattern)`: the first group's part, if there is a group.
    pub(crate) fn substring_by_pattern(&self, texts: Vec<Lowered>) -> LoweredResult {
        // That of places has these values in more databases and under more collations.
        if !is_deterministic(self.collation()) {
            return Err(self.refuse(FunctionRefusal::NondeterministicCollation));
        }
        if self.server.text_form() != TextForm::Utf8 {
            return Err(self.refuse(FunctionRefusal::Encoding(self.server.encoding_name())));
        }
        let flags = Flags::default();
        let (parsed, ctype) = self.pattern_of(&texts, flags)?;
        self.part(texts, (&parsed, ctype), [1, 1, 1], flags)
    }

    /// `regexp_match`, with flags perhaps.
    pub(crate) fn matched_parts(&self, arguments: Vec<Lowered>) -> LoweredResult {
        let mut arguments = arguments.into_iter();
        let texts: Vec<Lowered> = arguments.by_ref().take(2).collect();
        let flags = self.flags(arguments.next(), false)?;
        let (parsed, ctype) = self.pattern_of(&texts, flags)?;
        self.check_extent(&parsed, parsed.group_count() > 0)?;
        let mut arguments = values(texts);
        arguments.push(flag(flags.ignores_case));
        let data_type = DataType::List(Box::new(DataType::Text));
        Ok(Lowered::plain(Expression::call(Function::MatchedParts(ctype), arguments, data_type)))
    }

    fn part(
        &self,
        texts: Vec<Lowered>,
        (parsed, ctype): (&RegularExpression, Ctype),
        numbers: [i32; 3],
        flags: Flags,
    ) -> LoweredResult {
        let [_, _, group] = numbers;
        self.check_extent(parsed, group > 0 && parsed.group_count() > 0)?;
        let mut arguments = values(texts);
        arguments.extend(numbers.map(Expression::int32));
        arguments.push(flag(flags.ignores_case));
        Ok(Lowered::plain(Expression::call(Function::MatchedPart(ctype), arguments, DataType::Text)))
    }

    fn pattern_of(&self, texts: &[Lowered], flags: Flags) -> Result<(RegularExpression, Ctype), Refusal> {
        self.check_texts(texts, 2)?;
        let pattern = texts.get(1).ok_or_else(|| self.refuse(FunctionRefusal::Arguments))?;
        self.expression(pattern, flags.ignores_case)
    }

    /// Whether it is known which part of a text matches, and which parts groups do.
    fn check_extent(&self, parsed: &RegularExpression, asks_groups: bool) -> Result<(), Refusal> {
        if parsed.has_nothing_repeated() {
            return Err(self.refuse(FunctionRefusal::NothingRepeated));
        }
        if asks_groups && parsed.stretches().is_none() {
            return Err(self.refuse(FunctionRefusal::Groups));
        }
        Ok(())
    }

    /// A constant number, at least so large; a default where it is not given. PostgreSQL raises the error of those that are less.
    fn count(&self, argument: Option<Lowered>, least: i32, default: i32) -> Result<i32, Refusal> {
        let Some(argument) = argument else { return Ok(default) };
        match argument.literal().map(|literal| &literal.value) {
            Some(Value::Int(number)) if *number >= i64::from(least) => {
                i32::try_from(*number).map_err(|_| self.refuse(FunctionRefusal::Arguments))
            }
            _ => Err(self.refuse(FunctionRefusal::Arguments)),
        }
    }

    /// Constant flags, of which the last one on case counts.
    fn flags(&self, argument: Option<Lowered>, allows_every: bool) -> Result<Flags, Refusal> {
        let mut flags = Flags::default();
        let Some(argument) = argument else { return Ok(flags) };
        let refused = || self.refuse(FunctionRefusal::Flags);
        let Some(Value::Text(given)) = argument.literal().map(|literal| &literal.value) else {
            return Err(refused());
        };
        for character in given.chars() {
            match character {
                'i' => flags.ignores_case = true,
                'c' => flags.ignores_case = false,
                EVERY if allows_every => flags.is_every = true,
                _ => return Err(refused()),
            }
        }
        Ok(flags)
    }
}

fn flag(is_set: bool) -> Expression {
    Expression::literal(Value::Bool(is_set), DataType::Bool)
}

/// Whether a replacement names the part of a group.
fn names_group(replacement: &str) -> bool {
    let mut characters = replacement.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && matches!(characters.next(), Some('1'..='9')) {
            return true;
        }
    }
    false
}
