//! PostgreSQL's regular expressions, as far as whether a text matches, and by which part, is the same in engines.
//!
//! ```text
//! pattern ──parse──► RegularExpression ──write, with letters──► the syntax of the crate `regex`
//! ```
//!
//! A text matches if any part of it is in the pattern's language. Of such parts PostgreSQL takes one that begins first, and of these
//! the longest, or the shortest if the first quantifier that has a preference is one with `?`. Where a part lies that a group matched is
//! known if groups stand side by side in a sequence: each element of it takes the most, or the least, that leaves a match to the rest.
//!
//! Invariants: the planner and engines read a pattern alike. A pattern of which PostgreSQL raises an error is refused, so that
//! PostgreSQL raises it.
//!
//! Deliberately absent: back-references, look-around, options in a pattern, escapes by numbers, collating elements, word boundaries of
//! other letters than ASCII.
//!
//! Source: PostgreSQL 15, `regc_lex.c`, `regcomp.c` (`parseqatom`), `regexec.c` (`find`, `ccondissect`, `crevcondissect`) and
//! `regc_locale.c`: advanced regular expressions without newline-sensitive matching.

use std::fmt::Write;

use crate::{Error, ErrorKind, Result};

/// The most repetitions that a bound may have.
const REPETITIONS_MAX: u32 = 255;
/// Characters of a range, each of which has cases.
const RANGE_MAX: usize = 1 << 16;
/// Levels of groups. Parsing recurses.
const LEVELS_MAX: usize = 50;
/// How large a pattern may be when what is repeated is written out. PostgreSQL refuses those that are far larger.
const SIZE_MAX: u64 = 5_000;

/// A pattern that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegularExpression {
    root: Node,
    has_classes: bool,
    has_boundaries: bool,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Character(char),
    Any,
    Set(Set),
    Start,
    End,
    Boundary(Boundary),
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    /// A group whose part of a text can be asked for.
    Group(Box<Node>),
    Repeated {
        node: Box<Node>,
        least: u32,
        most: Option<u32>,
        /// None of an exact count, which has that of what is repeated.
        preference: Option<Preference>,
    },
}

/// Which of the parts of a text that match is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preference {
    Longer,
    Shorter,
}

/// A stretch of a sequence: a group, or what is between groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What it matches.
    pub expression: RegularExpression,
    /// What the elements behind it match.
    pub rest: RegularExpression,
    /// Whether it is a group.
    pub is_group: bool,
}

/// A place between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boundary {
    WordStart,
    WordEnd,
    Word,
}

/// A set of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    is_negated: bool,
    ranges: Vec<(char, char)>,
    classes: Vec<CharacterClass>,
}

/// A class of characters of a locale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of POSIX")]
pub enum CharacterClass {
    Alnum,
    Alpha,
    Blank,
    Cntrl,
    Digit,
    Graph,
    Lower,
    Print,
    Punct,
    Space,
    Upper,
    Xdigit,
}

/// What a locale says of characters.
pub trait Letters {
    /// A character in lower case.
    fn lower(&self, character: char) -> char;
    /// A character in upper case.
    fn upper(&self, character: char) -> char;
    /// The characters of a class, as ranges.
    fn class(&self, class: CharacterClass) -> Vec<(char, char)>;
}

impl CharacterClass {
    /// Every class.
    pub const ALL: [Self; 12] = [
        Self::Alnum,
        Self::Alpha,
        Self::Blank,
        Self::Cntrl,
        Self::Digit,
        Self::Graph,
        Self::Lower,
        Self::Print,
        Self::Punct,
        Self::Space,
        Self::Upper,
        Self::Xdigit,
    ];

    /// Its characters, if no locale has others.
    fn fixed(self) -> Option<&'static [(char, char)]> {
        match self {
            Self::Blank => Some(&[('\t', '\t'), (' ', ' ')]),
            Self::Cntrl => Some(&[('\0', '\u{1f}'), ('\u{7f}', '\u{9f}')]),
            Self::Xdigit => Some(&[('0', '9'), ('A', 'F'), ('a', 'f')]),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alnum => "alnum",
            Self::Alpha => "alpha",
            Self::Blank => "blank",
            Self::Cntrl => "cntrl",
            Self::Digit => "digit",
            Self::Graph => "graph",
            Self::Lower => "lower",
            Self::Print => "print",
            Self::Punct => "punct",
            Self::Space => "space",
            Self::Upper => "upper",
            Self::Xdigit => "xdigit",
        }
    }
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::NotSupported, format!("a regular expression with {why}"))
}

impl RegularExpression {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// `NotSupported` for one that engines do not have, or that PostgreSQL does not have; the message says why.
    pub fn parse(pattern: &str) -> Result<Self> {
        if pattern.starts_with("***") || (pattern.starts_with("(?") && !pattern.starts_with("(?:")) {
            return Err(refused("options"));
        }
        let mut parser =
            Parser { rest: pattern.chars().collect(), place: 0, has_classes: false, has_boundaries: false };
        let root = parser.alternatives(0)?;
        if parser.peek().is_some() {
            return Err(refused("unbalanced parentheses"));
        }
        if root.size() > SIZE_MAX {
            return Err(refused("too many repetitions"));
        }
        Ok(Self { root, has_classes: parser.has_classes, has_boundaries: parser.has_boundaries })
    }

    /// Whether it depends on the letters of a locale where case counts.
    pub fn has_classes(&self) -> bool {
        self.has_classes
    }

    /// Whether it has boundaries of words, which are known of ASCII alone.
    pub fn has_boundaries(&self) -> bool {
        self.has_boundaries
    }

    /// How many groups it has whose parts of a text can be asked for.
    pub fn group_count(&self) -> usize {
        let mut count = 0;
        self.root.walk(&mut |node| count += usize::from(matches!(node, Node::Group(_))));
        count
    }

    /// Whether the shortest part that matches is taken, and not the longest.
    pub fn prefers_shorter(&self) -> bool {
        self.root.preference() == Some(Preference::Shorter)
    }

    /// Whether a part is repeated zero times, of which PostgreSQL forgets what it prefers and which groups it has.
    pub fn has_nothing_repeated(&self) -> bool {
        let mut is_there = false;
        self.root.walk(&mut |node| is_there |= matches!(node, Node::Repeated { most: Some(0), .. }));
        is_there
    }

    /// The stretches whose parts of a text tell those of the groups; `None` where groups are repeated, alternatives, or within each
    /// other, or where one stretch prefers both.
    pub fn stretches(&self) -> Option<Vec<Stretch>> {
        let nodes = match &self.root {
            Node::Sequence(nodes) => nodes.as_slice(),
            other => std::slice::from_ref(other),
        };
        // Where each stretch begins.
        let mut begins = Vec::new();
        let mut follows_group = true;
        for (place, node) in nodes.iter().enumerate() {
            let is_group = matches!(node, Node::Group(_));
            if is_group || follows_group {
                begins.push(place);
            }
            follows_group = is_group;
        }
        let part = |nodes: &[Node]| {
            let root = Node::Sequence(nodes.to_vec());
            Self { root, has_classes: self.has_classes, has_boundaries: self.has_boundaries }
        };
        let ends = begins.iter().skip(1).copied().chain([nodes.len()]);
        let mut stretches = Vec::new();
        for (begin, end) in begins.iter().zip(ends) {
            let (stretch, rest) = (nodes.get(*begin..end)?, nodes.get(end..)?);
            let expression = part(stretch);
            let is_group = matches!(stretch, [Node::Group(_)]);
            if expression.group_count() != usize::from(is_group) || expression.root.is_mixed() {
                return None;
            }
            stretches.push(Stretch { expression, rest: part(rest), is_group });
        }
        Some(stretches)
    }

    /// The pattern in the syntax of the crate `regex`, for matching whole characters.
    pub fn write(&self, letters: &dyn Letters, ignores_case: bool) -> String {
        let mut target = String::new();
        Writer { letters, ignores_case }.node(&self.root, &mut target);
        target
    }
}

impl Node {
    /// How many nodes there are when repetitions are written out.
    fn size(&self) -> u64 {
        match self {
            Self::Sequence(nodes) | Self::Alternatives(nodes) => {
                nodes.iter().fold(1, |size: u64, node| size.saturating_add(node.size()))
            }
            Self::Group(node) => node.size().saturating_add(1),
            Self::Repeated { node, least, most, .. } => {
                let times = most.unwrap_or(*least).max(*least).max(1);
                node.size().saturating_mul(times.into()).saturating_add(1)
            }
            // Classes of a locale have hundreds of ranges.
            Self::Set(set) => 1 + 20 * set.classes.len() as u64,
            _ => 1,
        }
    }

    /// Visits the node and those in it.
    fn walk(&self, visit: &mut dyn FnMut(&Node)) {
        visit(self);
        match self {
            Self::Sequence(nodes) | Self::Alternatives(nodes) => {
                nodes.iter().for_each(|node| node.walk(visit));
            }
            Self::Group(node) | Self::Repeated { node, .. } => node.walk(visit),
            _ => {}
        }
    }

    /// What it prefers: of a sequence it is the first preference in it, and alternatives prefer longer parts.
    fn preference(&self) -> Option<Preference> {
        match self {
            Self::Sequence(nodes) => nodes.iter().find_map(Node::preference),
            Self::Alternatives(_) => Some(Preference::Longer),
            Self::Group(node) => node.preference(),
            Self::Repeated { node, preference, .. } => preference.or_else(|| node.preference()),
            _ => None,
        }
    }

    /// Whether something in it prefers longer parts, and something shorter ones.
    fn is_mixed(&self) -> bool {
        let (mut has_longer, mut has_shorter) = (false, false);
        self.walk(&mut |node| {
            has_longer |= node.preference() == Some(Preference::Longer);
            has_shorter |= node.preference() == Some(Preference::Shorter);
        });
        has_longer && has_shorter
    }

    /// Whether a quantifier may follow.
    fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Start | Self::End | Self::Boundary(_))
    }
}

struct Parser {
    rest: Vec<char>,
    place: usize,
    has_classes: bool,
    has_boundaries: bool,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.place).copied()
    }

    fn peek_second(&self) -> Option<char> {
        self.rest.get(self.place + 1).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.place += usize::from(next.is_some());
        next
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.place += usize::from(is_there);
        is_there
    }

    /// Branches up to the parenthesis that ends them, which is left.
    fn alternatives(&mut self, level: usize) -> Result<Node> {
        if level > LEVELS_MAX {
            return Err(refused("too many levels"));
        }
        let mut branches = vec![self.branch(level)?];
        while self.take('|') {
            branches.push(self.branch(level)?);
        }
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => Node::Alternatives(branches),
        })
    }

    fn branch(&mut self, level: usize) -> Result<Node> {
        let mut nodes = Vec::new();
        while let Some(next) = self.peek()
            && !matches!(next, '|' | ')')
        {
            let node = self.atom(level)?;
            nodes.push(self.quantified(node)?);
        }
        Ok(Node::Sequence(nodes))
    }

    fn atom(&mut self, level: usize) -> Result<Node> {
        Ok(match self.next() {
            Some('^') => Node::Start,
            Some('$') => Node::End,
            Some('.') => Node::Any,
            Some('[') => Node::Set(self.set()?),
            Some('(') => {
                let is_asked_for = !self.take('?');
                if !is_asked_for && !self.take(':') {
                    return Err(refused("look-around or options"));
                }
                let group = self.alternatives(level + 1)?;
                if !self.take(')') {
                    return Err(refused("unbalanced parentheses"));
                }
                // A group may be repeated, whatever is in it.
                if is_asked_for { Node::Group(Box::new(group)) } else { Node::Sequence(vec![group]) }
            }
            Some('*' | '+' | '?') => return Err(refused("a quantifier of nothing")),
            Some('{') if self.peek().is_some_and(|next| next.is_ascii_digit()) => {
                return Err(refused("a quantifier of nothing"));
            }
            Some('\\') => self.escape()?,
            Some(character) => Node::Character(character),
            None => return Err(refused("an end where none is")),
        })
    }

    fn escape(&mut self) -> Result<Node> {
        let shorthand = |parser: &mut Self, is_negated, class, ranges| {
            parser.has_classes = true;
            Node::Set(Set { is_negated, ranges, classes: vec![class] })
        };
        let escaped = self.next().ok_or_else(|| refused("a backslash at its end"))?;
        Ok(match escaped {
            'd' => shorthand(self, false, CharacterClass::Digit, Vec::new()),
            'D' => shorthand(self, true, CharacterClass::Digit, Vec::new()),
            's' => shorthand(self, false, CharacterClass::Space, Vec::new()),
            'S' => shorthand(self, true, CharacterClass::Space, Vec::new()),
            'w' => shorthand(self, false, CharacterClass::Alnum, vec![('_', '_')]),
            'W' => shorthand(self, true, CharacterClass::Alnum, vec![('_', '_')]),
            'A' => Node::Start,
            'Z' => Node::End,
            'm' => self.boundary(Boundary::WordStart),
            'M' => self.boundary(Boundary::WordEnd),
            'y' => self.boundary(Boundary::Word),
            other => Node::Character(escaped_character(other)?),
        })
    }

    fn boundary(&mut self, boundary: Boundary) -> Node {
        self.has_boundaries = true;
        Node::Boundary(boundary)
    }

    fn quantified(&mut self, node: Node) -> Result<Node> {
        let begin = self.place;
        let is_bound = self.peek() == Some('{');
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') if self.peek_second().is_some_and(|next| next.is_ascii_digit()) => {
                self.place += 1;
                self.bound()?
            }
            _ => return Ok(node),
        };
        let is_exact = is_bound && !self.rest.get(begin..self.place).unwrap_or_default().contains(&',');
        // Of a bound this is its brace.
        self.place += 1;
        let preference = if self.take('?') { Preference::Shorter } else { Preference::Longer };
        let has_another = match self.peek() {
            Some('*' | '+' | '?') => true,
            Some('{') => self.peek_second().is_some_and(|next| next.is_ascii_digit()),
            _ => false,
        };
        if has_another || !node.is_repeatable() {
            return Err(refused("a quantifier of a quantifier or of a place"));
        }
        let preference = Some(preference).filter(|_| !is_exact);
        Ok(Node::Repeated { node: Box::new(node), least, most, preference })
    }

    /// The numbers of a bound, up to its brace.
    fn bound(&mut self) -> Result<(u32, Option<u32>)> {
        let least = self.number()?;
        let most = match self.peek() {
            Some('}') => Some(least),
            Some(',') => {
                self.place += 1;
                if self.peek() == Some('}') { None } else { Some(self.number()?) }
            }
            _ => return Err(refused("an invalid bound")),
        };
        if self.peek() != Some('}') || most.is_some_and(|most| most < least) {
            return Err(refused("an invalid bound"));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<u32> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|next| next.to_digit(10)) {
            self.place += 1;
            let sum = number.unwrap_or(0) * 10 + digit;
            if sum > REPETITIONS_MAX {
                return Err(refused("an invalid bound"));
            }
            number = Some(sum);
        }
        number.ok_or_else(|| refused("an invalid bound"))
    }

    /// What is between brackets, of which the first is read.
    fn set(&mut self) -> Result<Set> {
        let mut set = Set { is_negated: self.take('^'), ranges: Vec::new(), classes: Vec::new() };
        let mut is_first = true;
        loop {
            let next = self.next().ok_or_else(|| refused("unbalanced brackets"))?;
            match next {
                ']' if !is_first => return Ok(set),
                '[' if matches!(self.peek(), Some(':' | '.' | '=')) => set.classes.push(self.named_class()?),
                '\\' => self.escape_in_set(&mut set)?,
                // A hyphen at another place than the first or last is an error, or the end of a range.
                '-' if !is_first && self.peek() != Some(']') => {
                    return Err(refused("a hyphen between brackets"));
                }
                first => {
                    let last = self.range_end(first)?;
                    set.ranges.push((first, last));
                }
            }
            is_first = false;
        }
    }

    /// The last character of the range that begins with the first.
    fn range_end(&mut self, first: char) -> Result<char> {
        if self.peek() != Some('-') || matches!(self.peek_second(), Some(']') | None) {
            return Ok(first);
        }
        self.place += 1;
        match self.next() {
            Some(last)
                if !matches!(last, '[' | '\\' | '-')
                    && (first..=last).count() <= RANGE_MAX
                    && first <= last
                    && first != '-' =>
            {
                Ok(last)
            }
            _ => Err(refused("an invalid range")),
        }
    }

    fn named_class(&mut self) -> Result<CharacterClass> {
        if !self.take(':') {
            return Err(refused("a collating element"));
        }
        let begin = self.place;
        while self.peek().is_some_and(|next| next.is_ascii_lowercase()) {
            self.place += 1;
        }
        let name: String = self.rest.get(begin..self.place).unwrap_or_default().iter().collect();
        let class = CharacterClass::ALL.into_iter().find(|class| class.name() == name);
        match class {
            Some(class) if self.take(':') && self.take(']') => {
                self.has_classes |= class.fixed().is_none();
                if self.peek() == Some('-') && self.peek_second() != Some(']') {
                    return Err(refused("a range from a class"));
                }
                Ok(class)
            }
            _ => Err(refused("an unknown class")),
        }
    }

    fn escape_in_set(&mut self, set: &mut Set) -> Result<()> {
        let escaped = self.next().ok_or_else(|| refused("unbalanced brackets"))?;
        match escaped {
            'd' => set.classes.push(CharacterClass::Digit),
            's' => set.classes.push(CharacterClass::Space),
            'w' => {
                set.classes.push(CharacterClass::Alnum);
                set.ranges.push(('_', '_'));
            }
            other => {
                let character = escaped_character(other)?;
                set.ranges.push((character, character));
            }
        }
        self.has_classes |= matches!(escaped, 'd' | 's' | 'w');
        if self.peek() == Some('-') && self.peek_second() != Some(']') {
            return Err(refused("a range from an escape"));
        }
        Ok(())
    }
}

/// The character that an escape stands for.
fn escaped_character(escaped: char) -> Result<char> {
    Ok(match escaped {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'f' => '\u{c}',
        'v' => '\u{b}',
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => other,
        _ => return Err(refused("such an escape")),
    })
}

struct Writer<'a> {
    letters: &'a dyn Letters,
    ignores_case: bool,
}

impl Writer<'_> {
    fn node(&self, node: &Node, target: &mut String) {
        match node {
            Node::Character(character) if !self.ignores_case => push_character(*character, target),
            // A letter that is of neither case does not stand for itself then.
            Node::Character(character) => match self.cases(*character) {
                [lower, upper] if lower == upper => push_character(lower, target),
                [lower, upper] => push_set(false, vec![(upper, upper), (lower, lower)], target),
            },
            Node::Any => target.push_str("(?s:.)"),
            Node::Set(set) => self.set(set, target),
            Node::Start => target.push_str("\\A"),
            Node::End => target.push_str("\\z"),
            Node::Boundary(Boundary::WordStart) => target.push_str("(?-u:\\b{start})"),
            Node::Boundary(Boundary::WordEnd) => target.push_str("(?-u:\\b{end})"),
            Node::Boundary(Boundary::Word) => target.push_str("(?-u:\\b)"),
            Node::Sequence(nodes) => nodes.iter().for_each(|node| self.grouped(node, target)),
            Node::Alternatives(branches) => {
                for (place, branch) in branches.iter().enumerate() {
                    if place > 0 {
                        target.push('|');
                    }
                    self.node(branch, target);
                }
            }
            Node::Group(node) => self.grouped(node, target),
            Node::Repeated { node, least, most, .. } => {
                target.push_str("(?:");
                self.node(node, target);
                target.push(')');
                match (least, most) {
                    (0, None) => target.push('*'),
                    (1, None) => target.push('+'),
                    (0, Some(1)) => target.push('?'),
                    (least, None) => target.push_str(&format!("{{{least},}}")),
                    (least, Some(most)) => target.push_str(&format!("{{{least},{most}}}")),
                }
            }
        }
    }

    /// A part of a sequence, in which alternatives need a group.
    fn grouped(&self, node: &Node, target: &mut String) {
        match node {
            Node::Alternatives(_) => {
                target.push_str("(?:");
                self.node(node, target);
                target.push(')');
            }
            _ => self.node(node, target),
        }
    }

    /// A character in lower case and in upper case.
    fn cases(&self, character: char) -> [char; 2] {
        [self.letters.lower(character), self.letters.upper(character)]
    }

    fn set(&self, set: &Set, target: &mut String) {
        let mut ranges = set.ranges.clone();
        if self.ignores_case {
            for (first, last) in &set.ranges {
                let cases = (*first..=*last).flat_map(|character| self.cases(character));
                ranges.extend(cases.filter(|case| !(first..=last).contains(&case)).map(|case| (case, case)));
            }
        }
        for class in &set.classes {
            let class = match class {
                CharacterClass::Lower | CharacterClass::Upper if self.ignores_case => CharacterClass::Alpha,
                class => *class,
            };
            match class.fixed() {
                Some(fixed) => ranges.extend(fixed),
                None => ranges.extend(self.letters.class(class)),
            }
        }
        push_set(set.is_negated, ranges, target);
    }
}

fn push_set(is_negated: bool, ranges: Vec<(char, char)>, target: &mut String) {
    // The crate has no set without a character.
    if ranges.is_empty() {
        target.push_str(if is_negated { "(?s:.)" } else { "[a&&b]" });
        return;
    }
    target.push_str(if is_negated { "[^" } else { "[" });
    for (first, last) in ranges {
        push_character(first, target);
        if first != last {
            target.push('-');
            push_character(last, target);
        }
    }
    target.push(']');
}

fn push_character(character: char, target: &mut String) {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' => target.push(character),
        // Writing to a text does not fail.
        other => _ = write!(target, "\\x{{{:x}}}", u32::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ascii;

    impl Letters for Ascii {
        fn lower(&self, character: char) -> char {
            character.to_ascii_lowercase()
        }
        fn upper(&self, character: char) -> char {
            character.to_ascii_uppercase()
        }
        fn class(&self, class: CharacterClass) -> Vec<(char, char)> {
            match class {
                CharacterClass::Digit => vec![('0', '9')],
                _ => vec![('a', 'z')],
            }
        }
    }

    fn written(pattern: &str, ignores_case: bool) -> Option<String> {
        RegularExpression::parse(pattern).ok().map(|parsed| parsed.write(&Ascii, ignores_case))
    }

    #[test]
    fn patterns_are_written_in_the_other_syntax() {
        let cases = [
            ("^a.b$", r"\Aa(?s:.)b\z"),
            ("a|b(c|d)*", r"a|b(?:(?:c|d))*"),
            (r"\d+x{2,3}?", r"(?:[0-9])+(?:x){2,3}"),
            ("[]a-c-]", r"[\x{5d}a-c\x{2d}]"),
            ("[^[:alpha:]_]", r"[^\x{5f}a-z]"),
            (r"a{b}\.", r"a\x{7b}b\x{7d}\x{2e}"),
            (r"\mfoo\M", r"(?-u:\b{start})foo(?-u:\b{end})"),
            ("a||b", "a||b"),
            ("", ""),
        ];
        for (pattern, expected) in cases {
            assert_eq!(written(pattern, false).as_deref(), Some(expected), "{pattern}");
        }
        assert_eq!(written("aB1[b-d]", true).as_deref(), Some("[Aa][Bb]1[b-dBCD]"));
    }

    #[test]
    fn groups_side_by_side_make_stretches() {
        let shown = |pattern: &str| {
            let parsed = RegularExpression::parse(pattern).unwrap();
            let stretches = parsed.stretches()?;
            let shown = stretches.iter().map(|stretch| {
                let text = stretch.expression.write(&Ascii, false);
                let rest = stretch.rest.write(&Ascii, false);
                (text, rest, stretch.is_group, stretch.expression.prefers_shorter())
            });
            Some(shown.collect::<Vec<_>>())
        };
        let of = |text: &str, rest: &str, is_group, is_shorter| {
            (text.to_owned(), rest.to_owned(), is_group, is_shorter)
        };
        assert_eq!(shown("ab*"), Some(vec![of("a(?:b)*", "", false, false)]));
        assert_eq!(
            shown("a(b+?)c"),
            Some(vec![
                of("a", "(?:b)+c", false, false),
                of("(?:b)+", "c", true, true),
                of("c", "", false, false)
            ])
        );
        for unknown in ["(a)*", "(a(b))", "a|(b)", "(?:(a))", "a+b*?(c)", "(a|b*?)"] {
            assert_eq!(shown(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_first_preference_counts() {
        let shorter = ["a*?", "ab*?c*", "(a+?)b*", "(?:a*?){2}b+", "a{1,2}?"];
        let longer = ["a*", "ab*c*?", "a*?|b", "(?:a|b)c*?", "a{2}b*", "abc"];
        let prefers = |pattern: &&str| RegularExpression::parse(pattern).unwrap().prefers_shorter();
        assert!(shorter.iter().all(prefers));
        assert!(!longer.iter().any(prefers));
        assert!(RegularExpression::parse("(a*){0,0}b").unwrap().has_nothing_repeated());
    }

    #[test]
    fn what_could_differ_is_refused() {
        let refused = [
            "***:a",
            "(?i)a",
            "(?=a)",
            "a(?!b)",
            r"(a)\1",
            r"\x41",
            r"\cA",
            "a**",
            "^*",
            "*a",
            "(",
            ")",
            "[a",
            "a{2,1}",
            "a{256}",
            "a{,3}b{",
            r"a\",
            "[[.a.]]",
            "[[:<:]]",
            "[a-c-e]",
            "[c-a]",
            "[[:alpha:]-z]",
            r"\Y",
            r"[\D]",
            "a{1x}",
            "(?:a{200}){200}",
            r"\é",
        ];
        for pattern in refused {
            let is_literal = pattern == "a{,3}b{";
            assert_eq!(RegularExpression::parse(pattern).is_ok(), is_literal, "{pattern}");
        }
    }
}
