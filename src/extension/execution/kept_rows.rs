//! Keeps the rows of a scan that PostgreSQL starts again.
//!
//! PostgreSQL starts a scan anew for every row of an outer relation, or of an enclosing query. If the parameters have not
//! changed, the rows are the same. From the second start on they are kept (in `work_mem`, then in temporary files), as far as
//! they are read. Later starts do not ask the engine.
#![expect(unsafe_code, reason = "calls PostgreSQL's tuple store")]

use pgrx::pg_sys;

/// Rows in the order in which they came, and a place among them.
pub struct KeptRows {
    store: *mut pg_sys::Tuplestorestate,
    /// Holds the row that was read last.
    slot: *mut pg_sys::TupleTableSlot,
}

impl KeptRows {
    /// A place for rows of the descriptor, in the current memory context.
    ///
    /// # Safety
    ///
    /// `descriptor` is valid, and outlives the rows.
    pub unsafe fn new(descriptor: pg_sys::TupleDesc) -> Self {
        // SAFETY: as the caller says; the operations are PostgreSQL's own.
        unsafe {
            Self {
                store: pg_sys::tuplestore_begin_heap(false, false, pg_sys::work_mem),
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
            }
        }
    }

    /// The next kept row's datums and NULL flags, valid until the next call; `None` after the last.
    ///
    /// # Safety
    ///
    /// As `new`.
    pub unsafe fn next_row(&mut self) -> Option<(&[pg_sys::Datum], &[bool])> {
        // SAFETY: the slot has the attributes of the descriptor that its rows were made for.
        unsafe {
            if pg_sys::tuplestore_ateof(self.store) {
                return None;
            }
            // What comes from a file is a copy in the current memory context, which a scan's is reset after every row, and which
            // the slot frees when it has the next one.
            let current = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = (*self.slot).tts_mcxt;
            let is_found = pg_sys::tuplestore_gettupleslot(self.store, true, false, self.slot);
            pg_sys::CurrentMemoryContext = current;
            if !is_found {
                return None;
            }
            let width = (*(*self.slot).tts_tupleDescriptor).natts;
            if width == 0 {
                return Some((&[], &[]));
            }
            pg_sys::slot_getsomeattrs_int(self.slot, width);
            let width = width as usize;
            let values = std::slice::from_raw_parts((*self.slot).tts_values, width);
            Some((values, std::slice::from_raw_parts((*self.slot).tts_isnull, width)))
        }
    }

    /// Keeps a row. All kept before were read, and this one counts as read.
    ///
    /// # Safety
    ///
    /// The datums are of the descriptor's types.
    pub unsafe fn add(&mut self, values: &[pg_sys::Datum], nulls: &[bool]) {
        // SAFETY: as the caller says; PostgreSQL copies the row.
        unsafe {
            let descriptor = (*self.slot).tts_tupleDescriptor;
            let (values, nulls) = (values.as_ptr().cast_mut(), nulls.as_ptr().cast_mut());
            pg_sys::tuplestore_putvalues(self.store, descriptor, values, nulls);
        }
    }

    /// Goes back to the first row.
    pub fn rewind(&mut self) {
        // SAFETY: the store is this one's own.
        unsafe { pg_sys::tuplestore_rescan(self.store) }
    }

    /// Frees the rows.
    ///
    /// # Safety
    ///
    /// No slot holds a row of these any more.
    pub unsafe fn end(self) {
        // SAFETY: store and slot are this one's own.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::tuplestore_end(self.store);
        }
    }
}
