//! The order of texts under collations of libc and ICU.
//!
//! ```text
//! key = what the library makes of the text · 0 · the text
//! ```
//!
//! Keys are compared byte by byte. What `strxfrm` and `ucol_getSortKey` make of two texts is ordered as `strcoll` and `ucol_strcoll` order
//! them, and has no zero byte. Texts that these call equal are ordered by their own bytes, as in PostgreSQL. So keys of different texts
//! differ, and a key tells its text.
//!
//! Invariants: an engine that computes keys runs on the server's host, with the same libraries. Keys are never kept longer than a query.
//!
//! Deliberately absent: collations under which different texts are equal.
//!
//! Source: PostgreSQL 15, `varlena.c` (`varstr_cmp`: `strcoll_l` or `ucol_strcollUTF8`, then `strcmp`).

use std::{
    ffi::CStr,
    hash::{Hash, Hasher},
    sync::Arc,
};

use pystachio_plan::{Collator, Error, ErrorKind, Result};

use crate::{host_locale::HostLocale, icu::IcuLocale};

/// The order of texts by a collator. Equal if it is.
#[derive(Debug)]
pub struct TextOrder {
    collator: Collator,
    locale: Locale,
}

#[derive(Debug)]
enum Locale {
    Libc(HostLocale),
    Icu(IcuLocale),
}

/// Memory for forms of one text after the other.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    units: Vec<u16>,
}

impl TextOrder {
    /// The order of a collator.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a locale that libc does not have or whose characters are not UTF-8, and for a version of ICU that the host does
    /// not have.
    pub fn of(collator: Collator) -> Result<Arc<Self>> {
        let locale = match collator {
            Collator::Libc(name) => {
                let locale = HostLocale::open(name.as_str());
                Locale::Libc(locale.ok_or_else(|| HostLocale::unknown(name))?)
            }
            Collator::Icu { version, locale: name } => {
                let unknown = || {
                    let message = format!(
                        "ICU {version} of the engine's host has no collator for the locale \"{}\"",
                        name.as_str()
                    );
                    Error::new(ErrorKind::NotSupported, message).with_hint(
                        "If ICU was updated after the server was started, restart the server. COLLATE \"C\" needs no library.",
                    )
                };
                Locale::Icu(IcuLocale::open(version, name.as_str()).ok_or_else(unknown)?)
            }
        };
        Ok(Arc::new(Self { collator, locale }))
    }

    /// Appends the key of a text.
    ///
    /// # Errors
    ///
    /// `Internal` if the library has no memory for it.
    pub fn append_key(&self, text: &str, scratch: &mut Scratch, key: &mut Vec<u8>) -> Result<()> {
        match &self.locale {
            Locale::Libc(locale) => {
                scratch.bytes.clear();
                scratch.bytes.extend_from_slice(text.as_bytes());
                scratch.bytes.push(0);
                // PostgreSQL's texts have no zero byte.
                if let Ok(text) = CStr::from_bytes_until_nul(&scratch.bytes) {
                    locale.transform(text, key);
                }
            }
            Locale::Icu(locale) => {
                scratch.units.clear();
                scratch.units.extend(text.encode_utf16());
                if !locale.transform(&scratch.units, key) {
                    return Err(Error::internal("ICU has made no key of a text"));
                }
            }
        }
        key.push(0);
        key.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The text of a key.
///
/// # Errors
///
/// `Internal` for bytes that are no key.
pub fn text_of_key(key: &[u8]) -> Result<&str> {
    let start = key.iter().position(|byte| *byte == 0);
    let text = start.and_then(|start| key.get(start + 1..)).and_then(|text| str::from_utf8(text).ok());
    text.ok_or_else(|| Error::new(ErrorKind::Internal, "bytes that are no key of a text"))
}

impl PartialEq for TextOrder {
    fn eq(&self, other: &Self) -> bool {
        self.collator == other.collator
    }
}

impl Eq for TextOrder {}

impl Hash for TextOrder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.collator.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Ordering, ffi::CString};

    use pystachio_plan::LocaleName;

    use super::*;

    fn order(name: &str) -> Arc<TextOrder> {
        let hint = "scripts/setup.sh makes the locales that tests use";
        let collator = Collator::Libc(LocaleName::new(name).unwrap());
        TextOrder::of(collator).unwrap_or_else(|error| panic!("{error}: {hint}"))
    }

    /// By the ICU of the host, on which PostgreSQL of the distribution depends.
    fn icu_order(name: &str) -> Arc<TextOrder> {
        let locale = LocaleName::new(name).unwrap();
        let known = (60..=u8::MAX).find_map(|version| TextOrder::of(Collator::Icu { version, locale }).ok());
        known.expect("a library libicui18n")
    }

    fn key(order: &TextOrder, text: &str) -> Vec<u8> {
        let mut scratch = Scratch { bytes: b"left over".to_vec(), units: vec![1, 2, 3] };
        let mut key = Vec::new();
        order.append_key(text, &mut scratch, &mut key).unwrap();
        key
    }

    /// How PostgreSQL orders two texts.
    fn compare(order: &TextOrder, a: &str, b: &str) -> Ordering {
        let Locale::Libc(locale) = &order.locale else { panic!("an order of libc") };
        let [a, b] = [a, b].map(|text| CString::new(text).unwrap());
        locale.compare(&a, &b).then_with(|| a.cmp(&b))
    }

    #[test]
    fn keys_are_ordered_as_texts_are() {
        let pieces = [
            "a",
            "A",
            "b",
            "B",
            "ä",
            "Ä",
            "ch",
            "Ch",
            "cs",
            "dzs",
            "z",
            "ß",
            "ss",
            "é",
            "e\u{301}",
            "ø",
            "-",
            " ",
            "_",
            "'",
            "1",
            "10",
            "2",
            "½",
            "ij",
            "中",
            "日本",
            "ア",
            "а",
            "Я",
            "ё",
            "ا",
            "\u{ad}",
            "\u{200b}",
            "\t",
            "\u{10ffff}",
            "😀",
            "\u{e000}",
        ];
        let mut seed = 11_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let mut text = || (0..next(6)).map(|_| pieces[next(pieces.len())]).collect::<String>();
        let texts: Vec<String> = (0..400).map(|_| text()).collect();
        for name in ["en_US.UTF-8", "sv_SE.UTF-8", "cs_CZ.UTF-8", "C.UTF-8"] {
            let order = order(name);
            let keys: Vec<_> = texts.iter().map(|text| key(&order, text)).collect();
            for (a, key_a) in texts.iter().zip(&keys) {
                assert_eq!(text_of_key(key_a).unwrap(), a, "{name}");
                for (b, key_b) in texts.iter().zip(&keys) {
                    assert_eq!(key_a.cmp(key_b), compare(&order, a, b), "{name}: {a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_locale_has_an_order_of_its_own() {
        let [english, swedish] = ["en_US.UTF-8", "sv_SE.UTF-8"].map(order);
        assert!(key(&english, "ä") < key(&english, "z"));
        assert!(key(&swedish, "ä") > key(&swedish, "z"));
        assert!(key(&english, "a") < key(&english, "B"));
        assert_ne!(english, swedish);
        let [german, swedish, numeric] = ["de", "sv", "en-u-kn-true"].map(icu_order);
        assert!(key(&german, "ä") < key(&german, "z"));
        assert!(key(&swedish, "ä") > key(&swedish, "z"));
        assert!(key(&german, "a10") < key(&german, "a9"));
        assert!(key(&numeric, "a10") > key(&numeric, "a9"));
        assert_eq!(text_of_key(&key(&german, "Straße 中")).unwrap(), "Straße 中");
        // Equal but for their bytes.
        assert!(key(&german, "e\u{301}") < key(&german, "é"));
    }

    #[test]
    fn a_long_text_has_a_key() {
        for order in [order("en_US.UTF-8"), icu_order("en")] {
            let (a, b) = ("ß中".repeat(50_000), "ß中".repeat(50_000) + "a");
            assert!(key(&order, &a) < key(&order, &b));
            assert_eq!(text_of_key(&key(&order, &b)).unwrap(), b);
        }
    }

    #[test]
    fn an_unknown_locale_or_library_is_an_error_that_names_it() {
        let locale = LocaleName::new("xx_XX.UTF-8").unwrap();
        for collator in [Collator::Libc(locale), Collator::Icu { version: 59, locale }] {
            let error = TextOrder::of(collator).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotSupported);
            assert!(error.to_string().contains("xx_XX.UTF-8"), "{error}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for bytes in [&b""[..], b"no zero", b"a\0\xff"] {
            assert_eq!(text_of_key(bytes).unwrap_err().kind, ErrorKind::Internal);
        }
    }
}
