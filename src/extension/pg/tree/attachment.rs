//! Values that the planner keeps with a relation from one call of ours to the next.

use std::any::TypeId;

use pgrx::PgMemoryContexts;

use super::{Rel, entry::is_ours};

/// Marks a type of value that a relation keeps. The value may have handles in it; the marker itself has no lifetime.
pub trait Attachment: 'static {
    /// The value, with handles of a call.
    type At<'p>;
}

/// A value behind the marker of its type.
#[repr(C)]
struct Kept<T> {
    marker: TypeId,
    value: T,
}

impl<'p> Rel<'p> {
    /// Keeps a value with the relation, in the place of another. It is dropped with the current memory context, which is the one
    /// that the relation and the structures of the handles in the value are in, or one that does not live as long.
    pub fn attach<A: Attachment>(self, value: A::At<'p>) {
        let kept = Kept { marker: TypeId::of::<A>(), value };
        // SAFETY: the foreign-data wrapper of a relation may keep anything there, and the wrapper is ours or becomes ours.
        unsafe {
            (*self.pointer()).fdw_private =
                PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(kept).cast();
        }
    }

    /// What was kept with the relation, if its foreign-data wrapper is ours.
    pub fn attached<A: Attachment>(self) -> Option<&'p A::At<'p>> {
        if !self.has_private() || !self.routine().is_some_and(is_ours) {
            return None;
        }
        // SAFETY: our wrapper keeps nothing else there. What the handles in it are of lives as long as the relation: all were made or
        // read in the planning of one query, whose memory context, or that of a tour of the genetic search, goes as a whole.
        unsafe {
            let kept = (*self.pointer()).fdw_private;
            if *kept.cast::<TypeId>() != TypeId::of::<A>() {
                return None;
            }
            Some(&(*kept.cast::<Kept<A::At<'p>>>()).value)
        }
    }
}
