//! Lists and sets of relations.

use std::marker::PhantomData;

use pgrx::pg_sys;

use super::{Node, Ref};
use crate::pg::list;

/// A list of structures; `NIL` is one without any.
pub struct List<'p, T> {
    pointer: *mut pg_sys::List,
    items: PhantomData<Ref<'p, T>>,
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

/// Whether they are one list.
impl<T> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }
}

impl<T> Eq for List<'_, T> {}

impl<'p, T> List<'p, T> {
    /// A list of PostgreSQL's.
    ///
    /// # Safety
    ///
    /// NIL, or a list of pointers to `T` that is valid as long as `'p`.
    pub unsafe fn new(pointer: *mut pg_sys::List) -> Self {
        Self { pointer, items: PhantomData }
    }

    /// The list without items.
    pub fn nil() -> Self {
        Self { pointer: std::ptr::null_mut(), items: PhantomData }
    }

    /// A new list.
    pub fn of(items: impl IntoIterator<Item = Ref<'p, T>>) -> Self {
        items.into_iter().fold(Self::nil(), Self::with)
    }

    /// The pointer, for PostgreSQL's own functions.
    pub fn pointer(self) -> *mut pg_sys::List {
        self.pointer
    }

    /// How many items it has.
    pub fn len(self) -> usize {
        // SAFETY: NIL or a valid list.
        unsafe { self.pointer.as_ref() }.map_or(0, |list| list.length.unsigned_abs() as usize)
    }

    /// Whether it has no items.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether it is no list at all. PostgreSQL tells by that whether a query has a clause.
    pub fn is_nil(self) -> bool {
        self.pointer.is_null()
    }

    /// The items; `None` for those that are NULL.
    pub fn cells(
        self,
    ) -> impl DoubleEndedIterator<Item = Option<Ref<'p, T>>> + ExactSizeIterator + use<'p, T> {
        (0..self.len()).map(move |place| self.cell(place))
    }

    /// The items that are not NULL.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Ref<'p, T>> + use<'p, T> {
        self.cells().flatten()
    }

    /// The item at a place, unless it is NULL or there is none.
    pub fn get(self, place: usize) -> Option<Ref<'p, T>> {
        if place < self.len() { self.cell(place) } else { None }
    }

    /// The first item.
    pub fn first(self) -> Option<Ref<'p, T>> {
        self.get(0)
    }

    fn cell(self, place: usize) -> Option<Ref<'p, T>> {
        // The list may have got shorter since its length was read.
        if place >= self.len() {
            return None;
        }
        // SAFETY: a list of pointers to `T`, of which this is one.
        unsafe { Ref::at((*(*self.pointer).elements.add(place)).ptr_value.cast()) }
    }

    /// The list with one more item at its end. PostgreSQL changes the list itself unless it is NIL.
    #[must_use]
    pub fn with(self, item: Ref<'p, T>) -> Self {
        // SAFETY: a valid list, and an item of its kind.
        unsafe { Self::new(pg_sys::lappend(self.pointer, item.pointer().cast())) }
    }

    /// The list as a node; NIL is none.
    pub fn node(self) -> Option<Node<'p>> {
        // SAFETY: a list is a node.
        unsafe { Ref::at(self.pointer.cast()) }
    }

    /// A copy of the list and of all that is in it.
    #[must_use]
    pub fn deep_copy(self) -> Self {
        // SAFETY: a list of nodes, whose copy has the same kinds.
        unsafe { Self::new(pg_sys::copyObjectImpl(self.pointer.cast()).cast()) }
    }
}

impl<'p> Node<'p> {
    /// The items of a node that is a list of nodes.
    pub fn as_list(self) -> Option<List<'p, pg_sys::Node>> {
        // SAFETY: the tag says that it is a list of pointers; those in expressions are of nodes.
        (self.tag() == pg_sys::NodeTag::T_List).then(|| unsafe { List::new(self.pointer().cast()) })
    }
}

macro_rules! number_lists {
    ($($(#[$doc:meta])* $name:ident: $item:ty, $read:ident, $append:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name<'p> {
            pointer: *mut pg_sys::List,
            call: PhantomData<&'p ()>,
        }

        impl<'p> $name<'p> {
            /// A list of PostgreSQL's.
            ///
            /// # Safety
            ///
            /// NIL, or a list of such items that is valid as long as `'p`.
            pub unsafe fn new(pointer: *mut pg_sys::List) -> Self {
                Self { pointer, call: PhantomData }
            }

            /// The pointer, for PostgreSQL's own functions.
            pub fn pointer(self) -> *mut pg_sys::List {
                self.pointer
            }

            /// A copy of the list.
            #[must_use]
            pub fn deep_copy(self) -> Self {
                // SAFETY: a valid list of such items.
                unsafe { Self::new(pg_sys::copyObjectImpl(self.pointer.cast()).cast()) }
            }

            /// The items.
            pub fn iter(self) -> impl Iterator<Item = $item> + use<'p> {
                // SAFETY: a list of such items, which outlives the iterator.
                unsafe { list::$read(self.pointer) }
            }

            /// The list with one more item at its end. PostgreSQL changes the list itself unless it is NIL.
            #[must_use]
            pub fn with(self, item: $item) -> Self {
                // SAFETY: a valid list of such items.
                unsafe { Self::new(pg_sys::$append(self.pointer, item)) }
            }
        }
    )* };
}

number_lists! {
    /// A list of integers.
    IntegerList: i32, integers, lappend_int;
    /// A list of oids.
    OidList: pg_sys::Oid, oids, lappend_oid;
}

impl<'p> OidList<'p> {
    /// A new list, which lives as long as this call.
    pub fn of(_memory: super::Memory<'p>, items: impl IntoIterator<Item = pg_sys::Oid>) -> Self {
        let nil = Self { pointer: std::ptr::null_mut(), call: PhantomData };
        items.into_iter().fold(nil, Self::with)
    }
}

/// A set of numbers of relations; NULL is the empty one.
#[derive(Clone, Copy, Debug)]
pub struct Relids<'p> {
    pointer: *mut pg_sys::Bitmapset,
    call: PhantomData<&'p ()>,
}

/// Whether they have the same members.
impl PartialEq for Relids<'_> {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: two valid sets.
        unsafe { pg_sys::bms_equal(self.pointer, other.pointer) }
    }
}

impl<'p> Relids<'p> {
    /// A set of PostgreSQL's.
    ///
    /// # Safety
    ///
    /// NULL, or a set that is valid as long as `'p`.
    pub unsafe fn new(pointer: *mut pg_sys::Bitmapset) -> Self {
        Self { pointer, call: PhantomData }
    }

    /// The pointer, for PostgreSQL's own functions.
    pub fn pointer(self) -> *mut pg_sys::Bitmapset {
        self.pointer
    }

    /// Whether it has no members.
    pub fn is_empty(self) -> bool {
        self.pointer.is_null()
    }

    /// Whether all members are in another set.
    pub fn is_subset(self, other: Self) -> bool {
        // SAFETY: two valid sets.
        unsafe { pg_sys::bms_is_subset(self.pointer, other.pointer) }
    }

    /// The members, from the least.
    pub fn iter(self) -> impl Iterator<Item = usize> + use<'p> {
        let mut last = -1;
        std::iter::from_fn(move || {
            // SAFETY: a valid set.
            last = unsafe { pg_sys::bms_next_member(self.pointer, last) };
            usize::try_from(last).ok()
        })
    }
}
