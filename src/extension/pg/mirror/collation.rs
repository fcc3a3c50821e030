//! Facts of collations, for engines that compare text byte by byte.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pgrx::{FromDatum, pg_sys};
use pystachio_lower::{Collation, TextForm, UnknownLetters};
use pystachio_plan::{Ctype, LocaleName};

use crate::pg::{encoding::text_form, list::string, locale::is_utf8_ctype};

/// Names under which byte order is the collation's order in UTF-8.
const BYTE_ORDER_NAMES: [&str; 6] = ["C", "POSIX", "C.UTF-8", "C.utf8", "C.UTF8", "ucs_basic"];

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
    if oid == pg_sys::DEFAULT_COLLATION_OID {
        // A database's collation is always deterministic.
        let locale = database_locale();
        let is_byte_order = BYTE_ORDER_NAMES.contains(&locale.collate.as_str()) && locale.is_libc;
        return Collation { name, is_deterministic: true, is_byte_order, ctype: ctype_of(&locale) };
    }
    Collation {
        // SAFETY: a catalog lookup of a collation that a node names.
        is_deterministic: unsafe { pg_sys::get_collation_isdeterministic(oid) },
        is_byte_order: oid == pg_sys::C_COLLATION_OID || is_builtin_byte_order(oid, &name),
        ctype: ctype_of(&collation_locale(oid)),
        name,
    }
}

/// Whether PostgreSQL changes case by libc's tables, character by character, and the engine can read them.
fn ctype_of(locale: &Locale) -> Result<Ctype, UnknownLetters> {
    if !locale.is_libc {
        return Err(UnknownLetters::NotLibc);
    }
    if matches!(locale.ctype.as_str(), "C" | "POSIX") {
        return Ok(Ctype::Ascii);
    }
    if text_form() != TextForm::Utf8 {
        return Err(UnknownLetters::NotUtf8Database);
    }
    match LocaleName::new(&locale.ctype) {
        Some(name) if is_utf8_ctype(&locale.ctype) => Ok(Ctype::Libc(name)),
        _ => Err(UnknownLetters::NotUtf8Locale),
    }
}

/// Collations that initdb made under these names are what the names say; a user's own may not be.
fn is_builtin_byte_order(collation: pg_sys::Oid, name: &str) -> bool {
    u32::from(collation) < pg_sys::FirstNormalObjectId && BYTE_ORDER_NAMES.contains(&name)
}

/// A locale as a catalog names it; libc's names are empty if another provider has it.
#[derive(Default)]
struct Locale {
    collate: String,
    ctype: String,
    is_libc: bool,
}

fn database_locale() -> Locale {
    let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
    let numbers = [
        pg_sys::Anum_pg_database_datlocprovider,
        pg_sys::Anum_pg_database_datcollate,
        pg_sys::Anum_pg_database_datctype,
    ];
    // SAFETY: a global that is set before any query runs.
    read_locale(cache, unsafe { pg_sys::MyDatabaseId }, numbers)
}

fn collation_locale(collation: pg_sys::Oid) -> Locale {
    let cache = pg_sys::SysCacheIdentifier::COLLOID as i32;
    let numbers = [
        pg_sys::Anum_pg_collation_collprovider,
        pg_sys::Anum_pg_collation_collcollate,
        pg_sys::Anum_pg_collation_collctype,
    ];
    read_locale(cache, collation, numbers)
}

/// Reads a locale from a row of a catalog: its provider, collate and ctype.
fn read_locale(cache: i32, oid: pg_sys::Oid, [provider, collate, ctype]: [u32; 3]) -> Locale {
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
            is_libc: attribute(provider).map(|datum| datum.value() as u8) == Some(pg_sys::COLLPROVIDER_LIBC),
        };
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}
