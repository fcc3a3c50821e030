//! Facts of collations, for engines that compare text byte by byte.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::{FromDatum, pg_sys};
use pystachio_lower::{Collation, TextForm, TextOrder, UnknownLetters};
use pystachio_plan::{Collator, Ctype, LocaleName};

use crate::pg::{
    encoding::text_form,
    list::string,
    locale::{icu_version, is_utf8_locale},
};

/// Locales of libc whose order in UTF-8 is that of bytes.
const BYTE_ORDER_NAMES: [&str; 5] = ["C", "POSIX", "C.UTF-8", "C.utf8", "C.UTF8"];
/// PostgreSQL 17 and later have a provider of their own, whose collations all have the order of code points.
const BUILTIN_PROVIDER: u8 = b'b';

thread_local! {
    static KNOWN: RefCell<HashMap<pg_sys::Oid, Rc<Collation>>> = RefCell::default();
}

/// A collation as lowering takes it; `None` if there is none.
pub fn collation(oid: pg_sys::Oid) -> Option<Rc<Collation>> {
    if oid == pg_sys::InvalidOid {
        return None;
    }
    let known = KNOWN.with_borrow(|known| known.get(&oid).cloned());
    // A user's may have another name by now.
    let is_of_initdb = u32::from(oid) < pg_sys::FirstNormalObjectId;
    if let Some(known) = known.filter(|known| is_of_initdb || known.name == name_of(oid)) {
        return Some(known);
    }
    let found = Rc::new(look_up(oid));
    KNOWN.with_borrow_mut(|known| known.insert(oid, found.clone()));
    Some(found)
}

fn name_of(oid: pg_sys::Oid) -> String {
    // SAFETY: a catalog lookup, which gives a C string, or NULL.
    unsafe { string(pg_sys::get_collation_name(oid)) }
}

fn look_up(oid: pg_sys::Oid) -> Collation {
    let name = name_of(oid);
    let (locale, is_deterministic) = match oid {
        // A database's collation is always deterministic.
        pg_sys::DEFAULT_COLLATION_OID => (database_locale(), true),
        // SAFETY: a catalog lookup of a collation that a node names.
        _ => (collation_locale(oid), unsafe { pg_sys::get_collation_isdeterministic(oid) }),
    };
    Collation { name, is_deterministic, order: order_of(&locale), ctype: ctype_of(&locale) }
}

/// How PostgreSQL orders text, as far as the engine can: by bytes, or by the same library.
fn order_of(locale: &Locale) -> TextOrder {
    match locale.provider {
        BUILTIN_PROVIDER => TextOrder::Bytes,
        pg_sys::COLLPROVIDER_LIBC if BYTE_ORDER_NAMES.contains(&locale.collate.as_str()) => TextOrder::Bytes,
        pg_sys::COLLPROVIDER_LIBC if is_utf8_locale(&locale.collate) => {
            let name = LocaleName::new(&locale.collate);
            name.map_or(TextOrder::Unknown, |name| TextOrder::Collated(Collator::Libc(name)))
        }
        pg_sys::COLLPROVIDER_ICU if !locale.has_rules => {
            let name = icu_version().zip(LocaleName::new(&locale.icu));
            name.map_or(TextOrder::Unknown, |(version, locale)| {
                TextOrder::Collated(Collator::Icu { version, locale })
            })
        }
        _ => TextOrder::Unknown,
    }
}

/// Whether PostgreSQL changes case by libc's tables, character by character, and the engine can read them.
fn ctype_of(locale: &Locale) -> Result<Ctype, UnknownLetters> {
    if locale.provider != pg_sys::COLLPROVIDER_LIBC {
        return Err(UnknownLetters::NotLibc);
    }
    if matches!(locale.ctype.as_str(), "C" | "POSIX") {
        return Ok(Ctype::Ascii);
    }
    if text_form() != TextForm::Utf8 {
        return Err(UnknownLetters::NotUtf8Database);
    }
    match LocaleName::new(&locale.ctype) {
        Some(name) if is_utf8_locale(&locale.ctype) => Ok(Ctype::Libc(name)),
        _ => Err(UnknownLetters::NotUtf8Locale),
    }
}

/// A locale as a catalog names it; libc's names are empty if another provider has it.
#[derive(Default)]
struct Locale {
    collate: String,
    ctype: String,
    /// ICU's name of it; empty if another provider has it.
    icu: String,
    /// It has rules of its own besides.
    has_rules: bool,
    /// A letter, as the catalogs have it.
    provider: u8,
}

// The attributes of ICU have other names in each version.
#[cfg(feature = "pg15")]
const ICU_OF_DATABASE: [Option<u32>; 2] = [Some(pg_sys::Anum_pg_database_daticulocale), None];
#[cfg(feature = "pg16")]
const ICU_OF_DATABASE: [Option<u32>; 2] =
    [Some(pg_sys::Anum_pg_database_daticulocale), Some(pg_sys::Anum_pg_database_daticurules)];
#[cfg(any(feature = "pg17", feature = "pg18"))]
const ICU_OF_DATABASE: [Option<u32>; 2] =
    [Some(pg_sys::Anum_pg_database_datlocale), Some(pg_sys::Anum_pg_database_daticurules)];
#[cfg(feature = "pg15")]
const ICU_OF_COLLATION: [Option<u32>; 2] = [Some(pg_sys::Anum_pg_collation_colliculocale), None];
#[cfg(feature = "pg16")]
const ICU_OF_COLLATION: [Option<u32>; 2] =
    [Some(pg_sys::Anum_pg_collation_colliculocale), Some(pg_sys::Anum_pg_collation_collicurules)];
#[cfg(any(feature = "pg17", feature = "pg18"))]
const ICU_OF_COLLATION: [Option<u32>; 2] =
    [Some(pg_sys::Anum_pg_collation_colllocale), Some(pg_sys::Anum_pg_collation_collicurules)];

fn database_locale() -> Locale {
    let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
    let numbers = [
        pg_sys::Anum_pg_database_datlocprovider,
        pg_sys::Anum_pg_database_datcollate,
        pg_sys::Anum_pg_database_datctype,
    ];
    // SAFETY: a global that is set before any query runs.
    read_locale(cache, unsafe { pg_sys::MyDatabaseId }, numbers, ICU_OF_DATABASE)
}

fn collation_locale(collation: pg_sys::Oid) -> Locale {
    let cache = pg_sys::SysCacheIdentifier::COLLOID as i32;
    let numbers = [
        pg_sys::Anum_pg_collation_collprovider,
        pg_sys::Anum_pg_collation_collcollate,
        pg_sys::Anum_pg_collation_collctype,
    ];
    read_locale(cache, collation, numbers, ICU_OF_COLLATION)
}

/// Reads a locale from a row of a catalog: its provider, collate and ctype, ICU's name and rules.
fn read_locale(
    cache: i32,
    oid: pg_sys::Oid,
    [provider, collate, ctype]: [u32; 3],
    [icu, rules]: [Option<u32>; 2],
) -> Locale {
    // SAFETY: a row of the cache is read before it is released; its attributes have the types that the catalog gives them.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, oid.into());
        if tuple.is_null() {
            return Default::default();
        }
        let attribute = |number: u32| {
            let mut is_null = false;
            let datum = pg_sys::SysCacheGetAttr(cache, tuple, number as i16, &raw mut is_null);
            (!is_null).then_some(datum)
        };
        let text = |number| attribute(number).and_then(|datum| String::from_datum(datum, false));
        let found = Locale {
            collate: text(collate).unwrap_or_default(),
            ctype: text(ctype).unwrap_or_default(),
            icu: icu.and_then(text).unwrap_or_default(),
            has_rules: rules.and_then(text).is_some(),
            provider: attribute(provider).map_or(0, |datum| datum.value() as u8),
        };
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}
