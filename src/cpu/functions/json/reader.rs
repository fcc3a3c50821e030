//! The tokens of a document, and the part of it that a path leads to.
//!
//! Source: PostgreSQL 15, `jsonapi.c` (`json_lex`, `json_lex_string`, `json_lex_number`, `report_parse_error`), `jsonfuncs.c`
//! (`get_worker`, `jsonb_get_element`).

use std::{borrow::Cow, ops::Range};

use pystachio_plan::{Error, ErrorKind, JsonStep, Result};

use super::super::decimal_text;

/// The rules that a document must obey beyond the syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Nothing: a value of `json`.
    Json,
    /// Escapes are of characters that a text can have: a value of `json` whose texts are read.
    JsonDecoded,
    /// Numbers are of `numeric` besides.
    Jsonb,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Comma,
    Colon,
    Text {
        /// Whether a backslash is in it.
        has_escape: bool,
    },
    Number,
    True,
    False,
    Null,
    /// The end of the document.
    End,
}

/// A document that is read from its start.
pub(super) struct Reader<'a> {
    text: &'a str,
    form: Form,
    /// Where the last token starts and ends.
    token: Range<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, form: Form) -> Self {
        Self { text, form, token: 0..0 }
    }

    /// Reads the whole document; its first token.
    pub(super) fn whole(&mut self) -> Result<Token> {
        let first = self.next()?;
        self.skip(first)?;
        self.end()?;
        Ok(first)
    }

    /// The place of the part that a path leads to, after reading the whole document.
    pub(super) fn part(&mut self, steps: &[JsonStep]) -> Result<Option<Range<usize>>> {
        let first = self.next()?;
        let part = self.find(first, steps)?;
        self.end()?;
        Ok(part)
    }

    /// The number of elements of a document that is an array.
    pub(super) fn length(&mut self) -> Result<Option<i32>> {
        let first = self.next()?;
        let mut count = None;
        match first {
            Token::ArrayStart => {
                let mut elements = 0;
                self.elements(|reader, element| {
                    elements += 1;
                    reader.skip(element)
                })?;
                count = Some(elements);
            }
            _ => self.skip(first)?,
        }
        self.end()?;
        Ok(count)
    }

    /// Whether a document is an object with a field, an array with a text, or a text that is this one.
    pub(super) fn has_key(&mut self, key: &str) -> Result<bool> {
        let first = self.next()?;
        let mut found = false;
        match first {
            Token::ObjectStart => self.fields(|reader, name, value| {
                found |= name.is(key)?;
                reader.skip(value)
            })?,
            Token::ArrayStart => self.elements(|reader, item| {
                found |= reader.is_text(item, key)?;
                reader.skip(item)
            })?,
            _ => {
                found = self.is_text(first, key)?;
                self.skip(first)?;
            }
        }
        self.end()?;
        Ok(found)
    }

    /// Whether the last token is a text that is this one.
    fn is_text(&self, token: Token, text: &str) -> Result<bool> {
        match token {
            Token::Text { has_escape } => Name { token: self.token_text(), has_escape }.is(text),
            _ => Ok(false),
        }
    }

    /// The last token.
    pub(super) fn token_text(&self) -> &'a str {
        &self.text[self.token.clone()]
    }

    /// The part of a value, whose first token was read, that a path leads to. The value is read to its end.
    fn find(&mut self, first: Token, steps: &[JsonStep]) -> Result<Option<Range<usize>>> {
        let Some((step, rest)) = steps.split_first() else {
            let start = self.token.start;
            self.skip(first)?;
            return Ok(Some(start..self.token.end));
        };
        let mut found = None;
        match (first, step) {
            (Token::ObjectStart, JsonStep::Field(name) | JsonStep::Either(name)) => {
                // Of equal names the last one counts. `json #>` keeps a part of an earlier one if the last one lacks it.
                let keeps = matches!(step, JsonStep::Either(_)) && self.form != Form::Jsonb;
                self.fields(|reader, own, value| {
                    if !own.is(name)? {
                        return reader.skip(value);
                    }
                    let part = reader.find(value, rest)?;
                    if part.is_some() || !keeps {
                        found = part;
                    }
                    Ok(())
                })?;
            }
            (Token::ArrayStart, _) => {
                let Some(place) = step.element() else {
                    self.skip(first)?;
                    return Ok(None);
                };
                let start = self.token.clone();
                let place = match usize::try_from(place) {
                    Ok(place) => Some(place),
                    Err(_) => {
                        let mut count = 0usize;
                        self.elements(|reader, element| {
                            count += 1;
                            reader.skip(element)
                        })?;
                        let place = count.checked_sub(place.unsigned_abs() as usize);
                        if place.is_some() {
                            self.token = start;
                        }
                        place
                    }
                };
                let Some(place) = place else { return Ok(None) };
                let mut number = 0;
                self.elements(|reader, element| {
                    number += 1;
                    match number == place + 1 {
                        true => found = reader.find(element, rest)?,
                        false => reader.skip(element)?,
                    }
                    Ok(())
                })?;
            }
            // `jsonb` has a single value as an array of it.
            (
                Token::Text { .. } | Token::Number | Token::True | Token::False | Token::Null,
                JsonStep::Element(0 | -1),
            ) if self.form == Form::Jsonb => return self.find(first, rest),
            _ => self.skip(first)?,
        }
        Ok(found)
    }

    /// Reads an object whose first token was read. `visit` reads each value, whose first token was read.
    pub(super) fn fields(
        &mut self,
        mut visit: impl FnMut(&mut Self, Name<'a>, Token) -> Result<()>,
    ) -> Result<()> {
        let mut token = self.next()?;
        if token == Token::ObjectEnd {
            return Ok(());
        }
        let mut wanted = "string or \"}\"";
        loop {
            let Token::Text { has_escape } = token else { return Err(self.unexpected(wanted)) };
            let name = Name { token: self.token_text(), has_escape };
            if self.next()? != Token::Colon {
                return Err(self.unexpected("\":\""));
            }
            let value = self.next()?;
            visit(self, name, value)?;
            match self.next()? {
                Token::Comma => {}
                Token::ObjectEnd => return Ok(()),
                _ => return Err(self.unexpected("\",\" or \"}\"")),
            }
            token = self.next()?;
            wanted = "string";
        }
    }

    /// Reads an array whose first token was read. `visit` reads each element, whose first token was read.
    pub(super) fn elements(&mut self, mut visit: impl FnMut(&mut Self, Token) -> Result<()>) -> Result<()> {
        let mut token = self.next()?;
        if token == Token::ArrayEnd {
            return Ok(());
        }
        loop {
            visit(self, token)?;
            match self.next()? {
                Token::Comma => {}
                Token::ArrayEnd => return Ok(()),
                _ => return Err(self.unexpected("\",\" or \"]\"")),
            }
            token = self.next()?;
        }
    }

    /// Reads a value to its end, whose first token was read.
    pub(super) fn skip(&mut self, first: Token) -> Result<()> {
        // Of each open container, whether it is an object.
        let mut open: Vec<bool> = Vec::new();
        let mut token = first;
        loop {
            // The token starts a value.
            match token {
                Token::ObjectStart => {
                    token = self.next()?;
                    if token != Token::ObjectEnd {
                        self.name(token, "string or \"}\"")?;
                        open.push(true);
                        token = self.next()?;
                        continue;
                    }
                }
                Token::ArrayStart => {
                    token = self.next()?;
                    if token != Token::ArrayEnd {
                        open.push(false);
                        continue;
                    }
                }
                Token::Text { .. } | Token::Number | Token::True | Token::False | Token::Null => {}
                _ => return Err(self.unexpected("JSON value")),
            }
            // The value has ended. Containers around it may end here too.
            loop {
                let Some(is_object) = open.last() else { return Ok(()) };
                match (self.next()?, is_object) {
                    (Token::Comma, true) => {
                        token = self.next()?;
                        self.name(token, "string")?;
                        break;
                    }
                    (Token::Comma, false) => break,
                    (Token::ObjectEnd, true) | (Token::ArrayEnd, false) => {
                        open.pop();
                    }
                    (_, true) => return Err(self.unexpected("\",\" or \"}\"")),
                    (_, false) => return Err(self.unexpected("\",\" or \"]\"")),
                }
            }
            token = self.next()?;
        }
    }

    /// Reads what follows a name of an object, which is the last token.
    fn name(&mut self, token: Token, wanted: &str) -> Result<()> {
        if !matches!(token, Token::Text { .. }) {
            return Err(self.unexpected(wanted));
        }
        match self.next()? {
            Token::Colon => Ok(()),
            _ => Err(self.unexpected("\":\"")),
        }
    }

    /// Reads the end of the document.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.next()? {
            Token::End => Ok(()),
            _ => Err(self.unexpected("end of input")),
        }
    }

    /// The next token.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Token> {
        let bytes = self.text.as_bytes();
        let mut start = self.token.end;
        while matches!(bytes.get(start), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            start += 1;
        }
        self.token = start..start;
        let Some(first) = bytes.get(start) else { return Ok(Token::End) };
        self.token.end = start + 1;
        Ok(match first {
            b'{' => Token::ObjectStart,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayStart,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return self.number(),
            _ => return self.word(),
        })
    }

    fn word(&mut self) -> Result<Token> {
        self.token.end = self.word_end(self.token.start);
        match self.token_text() {
            "true" => Ok(Token::True),
            "false" => Ok(Token::False),
            "null" => Ok(Token::Null),
            _ => {
                if self.token.is_empty() {
                    self.token.end += 1;
                }
                Err(self.invalid_token())
            }
        }
    }

    /// Where what looks like a word ends.
    fn word_end(&self, from: usize) -> usize {
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        let rest = self.text.as_bytes().get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| is_of_word(byte)).count()
    }

    fn number(&mut self) -> Result<Token> {
        let bytes = self.text.as_bytes();
        let mut end = self.token.start;
        let digits = |end: &mut usize| {
            let from = *end;
            while bytes.get(*end).is_some_and(u8::is_ascii_digit) {
                *end += 1;
            }
            *end > from
        };
        if bytes.get(end) == Some(&b'-') {
            end += 1;
        }
        let mut is_valid = match bytes.get(end) {
            Some(b'0') => {
                end += 1;
                true
            }
            _ => digits(&mut end),
        };
        if is_valid && bytes.get(end) == Some(&b'.') {
            end += 1;
            is_valid = digits(&mut end);
        }
        if is_valid && matches!(bytes.get(end), Some(b'e' | b'E')) {
            end += 1;
            if matches!(bytes.get(end), Some(b'+' | b'-')) {
                end += 1;
            }
            is_valid = digits(&mut end);
        }
        self.token.end = self.word_end(end);
        if !is_valid || self.token.end > end {
            return Err(self.invalid_token());
        }
        if self.form == Form::Jsonb {
            decimal_text::check(self.token_text())?;
        }
        Ok(Token::Number)
    }

    fn string(&mut self) -> Result<Token> {
        let bytes = self.text.as_bytes();
        let mut at = self.token.end;
        let mut has_escape = false;
        loop {
            at += plain_length(&bytes[at..]);
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escape = true;
                    at = self.escape(at)?;
                }
                Some(control) => {
                    let message = format!("Character with value 0x{control:02x} must be escaped.");
                    return Err(invalid_json(message));
                }
                None => {
                    self.token.end = at;
                    return Err(self.invalid_token());
                }
            }
        }
        self.token.end = at + 1;
        if has_escape && self.form != Form::Json {
            decoded(self.token_text())?;
        }
        Ok(Token::Text { has_escape })
    }

    /// Reads an escape, which starts at a place; where it ends.
    fn escape(&mut self, at: usize) -> Result<usize> {
        let rest = &self.text[at + 1..];
        match rest.chars().next() {
            Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => Ok(at + 2),
            Some('u') => {
                let digits = rest.as_bytes().get(1..5);
                match digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    true => Ok(at + 6),
                    false => {
                        Err(invalid_json("\"\\u\" must be followed by four hexadecimal digits.".to_owned()))
                    }
                }
            }
            Some(other) => Err(invalid_json(format!("Escape sequence \"\\{other}\" is invalid."))),
            None => {
                self.token.end = self.text.len();
                Err(self.invalid_token())
            }
        }
    }

    fn invalid_token(&self) -> Error {
        // A character of several bytes is one.
        let end = (self.token.end..self.text.len()).find(|place| self.text.is_char_boundary(*place));
        let token = &self.text[self.token.start..end.unwrap_or(self.text.len())];
        invalid_json(format!("Token \"{token}\" is invalid."))
    }

    fn unexpected(&self, wanted: &str) -> Error {
        if self.token.is_empty() {
            return invalid_json("The input string ended unexpectedly.".to_owned());
        }
        invalid_json(format!("Expected {wanted}, but found \"{}\".", self.token_text()))
    }
}

/// The name of a field.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    token: &'a str,
    has_escape: bool,
}

impl<'a> Name<'a> {
    pub(super) fn is(self, name: &str) -> Result<bool> {
        match self.has_escape {
            true => Ok(decoded(self.token)? == name),
            false => Ok(&self.token.as_bytes()[1..self.token.len() - 1] == name.as_bytes()),
        }
    }

    pub(super) fn decoded(self) -> Result<Cow<'a, str>> {
        decoded(self.token)
    }
}

/// How many bytes of a string there are before a quotation mark, a backslash or a control character.
fn plain_length(bytes: &[u8]) -> usize {
    const EACH: u64 = u64::MAX / 0xff;
    const HIGH: u64 = EACH << 7;
    // In the lowest byte for which it is so, and perhaps in others above it, the highest bit is set.
    let below = |word: u64, bound: u64| word.wrapping_sub(EACH * bound) & !word & HIGH;
    let (words, rest) = bytes.as_chunks();
    let mut length = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let ends = below(word ^ (EACH * u64::from(b'"')), 1)
            | below(word ^ (EACH * u64::from(b'\\')), 1)
            | below(word, 0x20);
        if ends != 0 {
            return length + ends.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    length + rest.iter().take_while(|byte| is_plain(byte)).count()
}

/// The text of a token, whose escapes are valid but for what they say.
pub(super) fn decoded(token: &str) -> Result<Cow<'_, str>> {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    let mut text = String::with_capacity(inner.len());
    // The first half of a character that takes two escapes.
    let mut high: Option<u32> = None;
    let mut rest = inner.chars();
    let lone = || invalid_json("Unicode low surrogate must follow a high surrogate.".to_owned());
    while let Some(next) = rest.next() {
        let escaped = if next == '\\' { rest.next() } else { None };
        if escaped == Some('u') {
            let digits: String = rest.by_ref().take(4).collect();
            let code = u32::from_str_radix(&digits, 16).unwrap_or_default();
            match (high.take(), code) {
                (Some(_), 0xd800..=0xdbff) => {
                    let message = "Unicode high surrogate must not follow a high surrogate.";
                    return Err(invalid_json(message.to_owned()));
                }
                (None, 0xd800..=0xdbff) => high = Some(code),
                (Some(high), 0xdc00..=0xdfff) => {
                    let code = 0x10000 + ((high & 0x3ff) << 10) + (code & 0x3ff);
                    text.extend(char::from_u32(code));
                }
                (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(lone()),
                (None, 0) => {
                    let message = "unsupported Unicode escape sequence";
                    return Err(Error::new(ErrorKind::UntranslatableCharacter, message)
                        .with_detail("\\u0000 cannot be converted to text."));
                }
                (None, code) => text.extend(char::from_u32(code)),
            }
            continue;
        }
        if high.is_some() {
            return Err(lone());
        }
        text.push(match escaped {
            None => next,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(same) => same,
        });
    }
    match high {
        Some(_) => Err(lone()),
        None => Ok(Cow::Owned(text)),
    }
}

/// PostgreSQL's error of a text that is no JSON.
pub(super) fn invalid_json(detail: String) -> Error {
    Error::new(ErrorKind::InvalidText, "invalid input syntax for type json").with_detail(detail)
}
