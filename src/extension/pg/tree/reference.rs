//! Handles.

use std::{fmt, marker::PhantomData, ptr::NonNull};

use pgrx::{
    PgMemoryContexts,
    pg_sys::{self, NodeTag},
};

/// A structure of PostgreSQL that is there as long as `'p`, one call of ours by PostgreSQL. Two are equal if they are one structure;
/// see [`Node::equals`] for their content.
pub struct Ref<'p, T> {
    pointer: NonNull<T>,
    call: PhantomData<&'p T>,
}

/// A node of any kind.
pub type Node<'p> = Ref<'p, pg_sys::Node>;

/// A structure that begins with a tag, which says what kind of node it is.
///
/// # Safety
///
/// It does.
pub unsafe trait HasTag {}

/// A kind of node.
///
/// # Safety
///
/// A node has this form where its tag is `TAG`.
pub unsafe trait Tagged: HasTag {
    /// Its tag.
    const TAG: NodeTag;
}

// SAFETY: a node is a tag.
unsafe impl HasTag for pg_sys::Node {}

impl<T> Clone for Ref<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<'_, T> {}

impl<T> PartialEq for Ref<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }
}

impl<T> Eq for Ref<'_, T> {}

impl<T> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pointer.fmt(formatter)
    }
}

impl<'p, T> Ref<'p, T> {
    /// The structure at a pointer; `None` of NULL.
    ///
    /// # Safety
    ///
    /// The pointer is NULL, or of a structure that is valid as long as `'p`.
    pub unsafe fn at(pointer: *mut T) -> Option<Self> {
        NonNull::new(pointer).map(|pointer| Self { pointer, call: PhantomData })
    }

    /// The structure at a pointer that PostgreSQL never leaves NULL. If it does, that is an ERROR.
    ///
    /// # Safety
    ///
    /// As of [`Self::at`].
    pub unsafe fn known(pointer: *mut T) -> Self {
        // SAFETY: as the caller says.
        match unsafe { Self::at(pointer) } {
            Some(known) => known,
            None => pgrx::error!("PostgreSQL's planner left out a {}", std::any::type_name::<T>()),
        }
    }

    /// The pointer, for PostgreSQL's own functions.
    pub fn pointer(self) -> *mut T {
        self.pointer.as_ptr()
    }

    /// A number that no other structure has while this one is there.
    pub fn address(self) -> usize {
        self.pointer.addr().get()
    }

    /// Where structures are made that are to live as long as this call.
    pub fn memory(self) -> Memory<'p> {
        Memory(PhantomData)
    }

    /// The same structure by the name that it has as the first part of another.
    ///
    /// # Safety
    ///
    /// The structure begins with a `U`.
    pub(super) unsafe fn cast<U>(self) -> Ref<'p, U> {
        Ref { pointer: self.pointer.cast(), call: PhantomData }
    }
}

impl<'p, T: HasTag> Ref<'p, T> {
    /// The structure as a node of any kind.
    pub fn node(self) -> Node<'p> {
        // SAFETY: it begins with a tag, and so does a node.
        unsafe { self.cast() }
    }

    /// What kind of node it is.
    pub fn tag(self) -> NodeTag {
        // SAFETY: it begins with its tag.
        unsafe { (*self.pointer().cast::<pg_sys::Node>()).type_ }
    }

    /// Whether it is of a kind.
    pub fn is<U: Tagged>(self) -> bool {
        self.tag() == U::TAG
    }

    /// The node as one of a kind, if it is.
    pub fn downcast<U: Tagged>(self) -> Option<Ref<'p, U>> {
        // SAFETY: the tag says that it has that form.
        self.is::<U>().then(|| unsafe { self.cast() })
    }

    /// A copy of the node and of all that it points to.
    pub fn deep_copy(self) -> Self {
        // SAFETY: the copy is in the current memory context, and of the same kind.
        unsafe { Self::known(pg_sys::copyObjectImpl(self.pointer().cast()).cast()) }
    }

    /// Whether two nodes have the same content.
    pub fn equals<U: HasTag>(self, other: Ref<'_, U>) -> bool {
        // SAFETY: both are valid.
        unsafe { pg_sys::equal(self.pointer().cast(), other.pointer().cast()) }
    }
}

impl<T: Tagged> Ref<'_, T> {
    /// A copy of this one structure, which shares what it points to.
    pub fn shallow_copy(self) -> Self {
        let copy = self.memory().make::<T>();
        // SAFETY: two structures of the same kind.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer(), copy.pointer(), 1) };
        copy
    }

    /// Gives the structure the content of another, with which it then shares all that it points to.
    pub fn replace_with(self, other: Self) {
        // SAFETY: two structures of the same kind, which may be one.
        unsafe { std::ptr::copy(other.pointer(), self.pointer(), 1) }
    }
}

/// Where structures are made that live at least as long as `'p`: the memory context in which PostgreSQL has called us.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'p>(PhantomData<&'p ()>);

impl<'p> Memory<'p> {
    /// Keeps a value as long as the structures that are made here. It is dropped with them.
    pub fn keep<T: 'p>(self, value: T) -> &'p T {
        // SAFETY: the memory context lives as long as `'p`.
        unsafe { &*PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(value) }
    }

    /// A node of zeroes.
    pub fn make<T: Tagged>(self) -> Ref<'p, T> {
        // SAFETY: new memory of the node's length, which is valid zeroed.
        unsafe {
            let node = pg_sys::palloc0(size_of::<T>()).cast::<pg_sys::Node>();
            (*node).type_ = T::TAG;
            Ref::known(node.cast())
        }
    }
}
