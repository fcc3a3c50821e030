//! Upper and lower case, and letters and digits, as PostgreSQL computes them under collations of libc: character by character.
//!
//! A table from code point to code point is made once per locale by asking libc for every code point, so
//! no row costs a call and an engine without libc at hand (a GPU's) can be given the table.
//!
//! ```text
//! code point ─ >> 8 ─► page_of ──► page ─ & 255 ─► delta, added to the code point
//! ```
//!
//! Invariants: a mapped character is a Unicode scalar value. Pages without a change are one, page 0.
//!
//! Deliberately absent: mappings of a character to several ("ß" stays "ß" in upper case) or that depend on
//! its neighbours; libc has none.
//!
//! Source: PostgreSQL 15, `formatting.c` (`str_toupper`, `str_tolower`, `str_initcap`): `mbstowcs`, `towupper_l` a wide
//! character, `wcstombs`.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, OnceLock},
};

use pystachio_plan::{CharacterClass, Ctype, Error, Letters, Result};

use crate::{host_locale::HostLocale, locking::lock_whole};

const PAGE_BITS: u32 = 8;
const PAGE_CODE_POINTS: usize = 1 << PAGE_BITS;
const PAGE_COUNT: usize = (char::MAX as usize + 1) >> PAGE_BITS;
const _: () = assert!(PAGE_COUNT * PAGE_CODE_POINTS == char::MAX as usize + 1);
const _: () = assert!(PAGE_COUNT < u16::MAX as usize);
/// Tables kept; each takes some 100 KB. More locales than a host's databases use.
const KNOWN_MAX: usize = 32;

/// The tables in use, oldest first.
static KNOWN: Mutex<Vec<Arc<CharacterCase>>> = Mutex::new(Vec::new());

/// The case mappings of a [`Ctype`]. Equal if the ctype is.
pub struct CharacterCase {
    ctype: Ctype,
    upper: CaseMap,
    lower: CaseMap,
    /// A bit for each code point that is a letter or a digit.
    alphanumeric: Box<[u64]>,
    /// Of a libc's locale.
    locale: Option<HostLocale>,
    /// The classes that were asked for, by their places in [`CharacterClass::ALL`].
    classes: [OnceLock<Vec<(char, char)>>; CharacterClass::ALL.len()],
}

/// The mapping of every character to uppercase, or to lowercase.
pub struct CaseMap {
    page_of: Box<[u16]>,
    deltas: Vec<i32>,
    /// How ASCII changes, if it does so as in the locale C.
    plain: Option<AsciiCase>,
    /// Whether a character that is not ASCII changes.
    changes_beyond_ascii: bool,
}

/// The mapping of ASCII characters.
#[derive(Clone, Copy)]
enum AsciiCase {
    Upper,
    Lower,
}

impl CharacterCase {
    /// The case mappings of the ctype.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a locale that libc does not have or whose characters are not UTF-8.
    pub fn of(ctype: Ctype) -> Result<Arc<Self>> {
        let mut known = lock_whole(&KNOWN);
        if let Some(found) = known.iter().find(|case| case.ctype == ctype) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(Self::make(ctype)?);
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        known.push(Arc::clone(&made));
        Ok(made)
    }

    /// The upper case.
    pub fn upper(&self) -> &CaseMap {
        &self.upper
    }

    /// The lower case.
    pub fn lower(&self) -> &CaseMap {
        &self.lower
    }

    /// Whether a character is a letter or a digit.
    #[inline]
    pub fn is_alphanumeric(&self, character: char) -> bool {
        let code_point = u32::from(character);
        let word = self.alphanumeric.get((code_point / u64::BITS) as usize).copied().unwrap_or(0);
        word >> (code_point % u64::BITS) & 1 != 0
    }

    fn make(ctype: Ctype) -> Result<Self> {
        let Ctype::Libc(name) = ctype else {
            let upper = CaseMap::new(|character| Some(character.to_ascii_uppercase()));
            let lower = CaseMap::new(|character| Some(character.to_ascii_lowercase()));
            let alphanumeric = character_set(|character| character.is_ascii_alphanumeric());
            return upper
                .zip(lower)
                .map(|(upper, lower)| Self {
                    ctype,
                    upper,
                    lower,
                    alphanumeric,
                    locale: None,
                    classes: Default::default(),
                })
                .ok_or_else(|| Error::internal("a letter of ASCII has no case"));
        };
        let unknown = || HostLocale::unknown(name);
        let locale = HostLocale::open(name.as_str()).ok_or_else(unknown)?;
        let upper = CaseMap::new(|character| locale.to_upper(character)).ok_or_else(unknown)?;
        let lower = CaseMap::new(|character| locale.to_lower(character)).ok_or_else(unknown)?;
        let alphanumeric = character_set(|character| locale.is_alphanumeric(character));
        Ok(Self { ctype, upper, lower, alphanumeric, locale: Some(locale), classes: Default::default() })
    }
}

/// A bit for each code point whose character is meant.
fn character_set(is_meant: impl Fn(char) -> bool) -> Box<[u64]> {
    let word = |first: u32| {
        let bits = (0..u64::BITS).filter(|bit| char::from_u32(first + bit).is_some_and(&is_meant));
        bits.fold(0, |word, bit| word | 1 << bit)
    };
    (0..=u32::from(char::MAX)).step_by(u64::BITS as usize).map(word).collect()
}

impl Letters for CharacterCase {
    fn lower(&self, character: char) -> char {
        self.lower.convert_character(character)
    }

    fn upper(&self, character: char) -> char {
        self.upper.convert_character(character)
    }

    fn class(&self, class: CharacterClass) -> Vec<(char, char)> {
        let place = CharacterClass::ALL.iter().position(|known| *known == class).unwrap_or(0);
        let is_of = |character: char| match &self.locale {
            Some(locale) => locale.is_of_class(character, class),
            None => is_of_ascii_class(character, class),
        };
        self.classes
            .get(place)
            .map(|known| known.get_or_init(|| ranges_of(is_of)).clone())
            .unwrap_or_default()
    }
}

/// The characters that are meant, as ranges. Each code point is asked for.
fn ranges_of(is_meant: impl Fn(char) -> bool) -> Vec<(char, char)> {
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut is_open = false;
    for character in '\0'..=char::MAX {
        let is_meant = is_meant(character);
        match ranges.last_mut() {
            Some(range) if is_open && is_meant => range.1 = character,
            _ if is_meant => ranges.push((character, character)),
            _ => {}
        }
        is_open = is_meant;
    }
    ranges
}

/// The class of a character as PostgreSQL's C and POSIX know it.
fn is_of_ascii_class(character: char, class: CharacterClass) -> bool {
    match class {
        CharacterClass::Alnum => character.is_ascii_alphanumeric(),
        CharacterClass::Alpha => character.is_ascii_alphabetic(),
        CharacterClass::Blank => matches!(character, ' ' | '\t'),
        CharacterClass::Cntrl => character.is_ascii_control(),
        CharacterClass::Digit => character.is_ascii_digit(),
        CharacterClass::Graph => character.is_ascii_graphic(),
        CharacterClass::Lower => character.is_ascii_lowercase(),
        CharacterClass::Print => character == ' ' || character.is_ascii_graphic(),
        CharacterClass::Punct => character.is_ascii_punctuation(),
        CharacterClass::Space => matches!(character, ' ' | '\t'..='\r'),
        CharacterClass::Upper => character.is_ascii_uppercase(),
        CharacterClass::Xdigit => character.is_ascii_hexdigit(),
    }
}

impl PartialEq for CharacterCase {
    fn eq(&self, other: &Self) -> bool {
        self.ctype == other.ctype
    }
}

impl Eq for CharacterCase {}

impl Hash for CharacterCase {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ctype.hash(state);
    }
}

impl fmt::Debug for CharacterCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("CharacterCase").field(&self.ctype).finish()
    }
}

impl CaseMap {
    /// The table of a function; `None` if that has no value for a character.
    fn new(convert: impl Fn(char) -> Option<char>) -> Option<Self> {
        let mut page_of = Vec::with_capacity(PAGE_COUNT);
        let mut deltas = vec![0; PAGE_CODE_POINTS];
        let mut page = Vec::with_capacity(PAGE_CODE_POINTS);
        for first in (0..=u32::from(char::MAX)).step_by(PAGE_CODE_POINTS) {
            page.clear();
            for code_point in (first..).take(PAGE_CODE_POINTS) {
                page.push(match char::from_u32(code_point) {
                    // Code points have 21 bits.
                    Some(character) => u32::from(convert(character)?) as i32 - code_point as i32,
                    None => 0,
                });
            }
            if page.iter().all(|delta| *delta == 0) {
                page_of.push(0);
            } else {
                page_of.push((deltas.len() >> PAGE_BITS) as u16);
                deltas.extend_from_slice(&page);
            }
        }
        assert_eq!(page_of.len(), PAGE_COUNT);
        let mut map = Self { page_of: page_of.into(), deltas, plain: None, changes_beyond_ascii: false };
        let changes_ascii_by = |convert: fn(&char) -> char| {
            ('\0'..='\x7f').all(|ascii| map.convert_character(ascii) == convert(&ascii))
        };
        map.plain = if changes_ascii_by(char::to_ascii_uppercase) {
            Some(AsciiCase::Upper)
        } else if changes_ascii_by(char::to_ascii_lowercase) {
            Some(AsciiCase::Lower)
        } else {
            None
        };
        map.changes_beyond_ascii =
            ('\u{80}'..=char::MAX).any(|character| map.convert_character(character) != character);
        Some(map)
    }

    /// What kernels read of it: the number of every page, and the pages' deltas, least byte first.
    pub fn bytes(&self) -> Vec<u8> {
        let pages = self.page_of.iter().flat_map(|page| page.to_le_bytes());
        pages.chain(self.deltas.iter().flat_map(|delta| delta.to_le_bytes())).collect()
    }

    /// The character in this case.
    #[inline]
    pub fn convert_character(&self, character: char) -> char {
        let code_point = u32::from(character);
        let page = self.page_of.get((code_point >> PAGE_BITS) as usize).copied().unwrap_or(0);
        let place = usize::from(page) << PAGE_BITS | code_point as usize & (PAGE_CODE_POINTS - 1);
        let delta = self.deltas.get(place).copied().unwrap_or(0);
        char::from_u32(code_point.wrapping_add_signed(delta)).unwrap_or(character)
    }

    /// The text in this case.
    pub fn convert(&self, text: &str) -> String {
        let mut converted = String::with_capacity(text.len());
        self.append(text, &mut converted);
        converted
    }

    /// Appends the text in this case.
    pub fn append(&self, text: &str, target: &mut String) {
        if let Some(plain) = self.plain
            && (!self.changes_beyond_ascii || text.is_ascii())
        {
            let begin = target.len();
            target.push_str(text);
            if let Some(appended) = target.get_mut(begin..) {
                match plain {
                    AsciiCase::Upper => appended.make_ascii_uppercase(),
                    AsciiCase::Lower => appended.make_ascii_lowercase(),
                }
            }
            return;
        }
        target.extend(text.chars().map(|character| self.convert_character(character)));
    }
}

impl fmt::Debug for CaseMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CaseMap").field("pages", &(self.deltas.len() >> PAGE_BITS)).finish()
    }
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{ErrorKind, LocaleName};

    use super::*;

    fn libc_ctype(name: &str) -> Ctype {
        Ctype::Libc(LocaleName::new(name).expect("a name"))
    }

    #[test]
    fn ascii_changes_no_other_letters() {
        let case = CharacterCase::of(Ctype::Ascii).expect("no locale is needed");
        for text in ["", "abcXYZ[]{}@`", "àÉßıİKſ", "日本語 😀 a"] {
            assert_eq!(case.upper().convert(text), text.to_ascii_uppercase());
            assert_eq!(case.lower().convert(text), text.to_ascii_lowercase());
        }
    }

    /// C.UTF-8 is on every host that the tests run on; its table has the simple mappings of Unicode.
    #[test]
    fn letters_beyond_ascii_change_one_by_one() {
        let case = CharacterCase::of(libc_ctype("C.UTF-8")).expect("C.UTF-8");
        assert_eq!(case.upper().convert("straße ÿ ǆ ῳ 𐐨 x"), "STRAßE Ÿ Ǆ ῼ 𐐀 X");
        assert_eq!(case.lower().convert("ÀÉ Ǆ ẞ 𐐀 ΑΣ X"), "àé ǆ ß 𐐨 ασ x");
    }

    /// The Kelvin sign (3 bytes) is a k, Ⱥ (2 bytes) has a lower case of 3.
    #[test]
    fn lengths_may_change() {
        let case = CharacterCase::of(libc_ctype("C.UTF-8")).expect("C.UTF-8");
        assert_eq!(case.lower().convert("\u{212a}|\u{23a}"), "k|\u{2c65}");
        assert_eq!(case.upper().convert("\u{2c65}|\u{17f}"), "\u{23a}|S");
    }

    #[test]
    fn every_code_point_is_what_libc_says() {
        let locale = HostLocale::open("C.UTF-8").expect("C.UTF-8");
        let case = CharacterCase::of(libc_ctype("C.UTF-8")).expect("C.UTF-8");
        for character in '\0'..=char::MAX {
            assert_eq!(Some(case.upper().convert_character(character)), locale.to_upper(character));
            assert_eq!(Some(case.lower().convert_character(character)), locale.to_lower(character));
            assert_eq!(case.is_alphanumeric(character), locale.is_alphanumeric(character));
        }
    }

    /// As Turkish: a text of ASCII alone has no shorter way.
    #[test]
    fn ascii_may_become_other_letters() {
        let upper = CaseMap::new(|character| {
            Some(if character == 'i' { 'İ' } else { character.to_ascii_uppercase() })
        });
        assert_eq!(upper.expect("a table").convert("istanbul"), "İSTANBUL");
    }

    #[test]
    fn a_map_without_a_value_is_none() {
        assert!(CaseMap::new(|character| (character != 'x').then_some(character)).is_none());
    }

    #[test]
    fn tables_are_made_once() {
        let (first, second) =
            (CharacterCase::of(libc_ctype("C.UTF-8")), CharacterCase::of(libc_ctype("C.UTF-8")));
        assert!(Arc::ptr_eq(&first.expect("C.UTF-8"), &second.expect("C.UTF-8")));
    }

    #[test]
    fn unknown_locales_are_refused_by_name() {
        let error = CharacterCase::of(libc_ctype("xx_XX.UTF-8")).expect_err("no such locale");
        assert_eq!(error.kind, ErrorKind::NotSupported);
        assert!(error.message.contains("\"xx_XX.UTF-8\""), "{}", error.message);
    }

    #[test]
    fn locales_of_other_encodings_are_refused() {
        for name in ["C", "POSIX"] {
            let error = CharacterCase::of(libc_ctype(name)).expect_err("not UTF-8");
            assert_eq!(error.kind, ErrorKind::NotSupported);
        }
    }
}
