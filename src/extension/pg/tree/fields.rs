//! How fields of structures are read and written: each by a method of its own, which copies the value.

use pgrx::pg_sys;

use super::{IntegerList, List, OidList, Ref, Relids};

/// What a field is read as.
pub trait Field {
    /// What PostgreSQL's structure has.
    type Raw: Copy;

    /// The value of a field.
    ///
    /// # Safety
    ///
    /// It is the field of a structure that is valid as long as the result's lifetime, and what a pointer leads to has the type that
    /// the field was declared with.
    unsafe fn read(raw: Self::Raw) -> Self;

    /// The value as PostgreSQL has it.
    fn raw(self) -> Self::Raw;
}

macro_rules! plain_fields {
    ($($plain:ty)*) => { $(
        impl Field for $plain {
            type Raw = Self;

            unsafe fn read(raw: Self) -> Self {
                raw
            }

            fn raw(self) -> Self {
                self
            }
        }
    )* };
}

plain_fields! { bool i8 u8 i16 i32 u32 i64 u64 f64 pg_sys::Oid pg_sys::Datum pg_sys::NodeTag }

impl<T> Field for Ref<'_, T> {
    type Raw = *mut T;

    unsafe fn read(raw: *mut T) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::known(raw) }
    }

    fn raw(self) -> *mut T {
        self.pointer()
    }
}

impl<T> Field for Option<Ref<'_, T>> {
    type Raw = *mut T;

    unsafe fn read(raw: *mut T) -> Self {
        // SAFETY: as the caller says.
        unsafe { Ref::at(raw) }
    }

    fn raw(self) -> *mut T {
        self.map_or(std::ptr::null_mut(), Ref::pointer)
    }
}

macro_rules! list_fields {
    ($($list:ty, $raw:ty, [$($parameter:tt)*];)*) => { $(
        impl<$($parameter)*> Field for $list {
            type Raw = *mut $raw;

            unsafe fn read(raw: *mut $raw) -> Self {
                // SAFETY: as the caller says.
                unsafe { Self::new(raw) }
            }

            fn raw(self) -> *mut $raw {
                self.pointer()
            }
        }
    )* };
}

list_fields! {
    List<'p, T>, pg_sys::List, ['p, T];
    IntegerList<'p>, pg_sys::List, ['p];
    OidList<'p>, pg_sys::List, ['p];
    Relids<'p>, pg_sys::Bitmapset, ['p];
}

/// Declares kinds of nodes: `Structure = T_Tag;`.
macro_rules! kinds {
    ($($structure:ident = $tag:ident;)*) => { $(
        // SAFETY: a node of PostgreSQL's.
        unsafe impl $crate::pg::tree::HasTag for ::pgrx::pg_sys::$structure {}

        // SAFETY: PostgreSQL gives such nodes this tag, and no others.
        unsafe impl $crate::pg::tree::Tagged for ::pgrx::pg_sys::$structure {
            const TAG: ::pgrx::pg_sys::NodeTag = ::pgrx::pg_sys::NodeTag::$tag;
        }
    )* };
}

/// Declares fields of a structure: `field as reader: Type;` to read one, `field = writer: Type;` to write one.
///
/// A type must say what the field's pointer leads to.
macro_rules! fields {
    ($life:lifetime $structure:ident { $($rest:tt)* }) => {
        impl<$life> $crate::pg::tree::Ref<$life, ::pgrx::pg_sys::$structure> {
            $crate::pg::tree::fields::fields!(@each $structure $($rest)*);
        }
    };
    (@each $structure:ident) => {};
    (@each $structure:ident $field:ident as $reader:ident: $kind:ty; $($rest:tt)*) => {
        #[doc = concat!("`", stringify!($field), "` of `", stringify!($structure), "`.")]
        #[allow(trivial_casts, trivial_numeric_casts, clippy::unnecessary_cast, reason = "fields differ in the names of their types")]
        pub fn $reader(self) -> $kind {
            // SAFETY: the structure is valid, and its field leads to what PostgreSQL says.
            unsafe {
                <$kind as $crate::pg::tree::fields::Field>::read((*self.pointer()).$field as _)
            }
        }
        $crate::pg::tree::fields::fields!(@each $structure $($rest)*);
    };
    (@each $structure:ident $field:ident = $writer:ident: $kind:ty; $($rest:tt)*) => {
        #[doc = concat!("Writes `", stringify!($field), "` of `", stringify!($structure), "`.")]
        #[allow(trivial_casts, trivial_numeric_casts, clippy::unnecessary_cast, reason = "fields differ in the names of their types")]
        pub fn $writer(self, value: $kind) {
            // SAFETY: the structure is valid, and the value is of the field's type.
            unsafe {
                (*self.pointer()).$field = $crate::pg::tree::fields::Field::raw(value) as _;
            }
        }
        $crate::pg::tree::fields::fields!(@each $structure $($rest)*);
    };
}

pub(super) use {fields, kinds};
