//! Arrays, returned as they are.
#![expect(unsafe_code, reason = "builds PostgreSQL's arrays")]

use std::ops::Range;

use arrow_array::{Array, ListArray};
use pgrx::pg_sys::{self, Datum};
use pystachio_plan::{Error, Result};

use super::{
    block::Cells,
    column::{ColumnReader, ColumnSource},
    numeric::Scales,
};
use crate::scan_private::DisplayScale;

/// How PostgreSQL lays the elements out.
#[derive(Clone, Copy, Debug)]
pub struct ElementLayout {
    type_oid: pg_sys::Oid,
    length: i16,
    by_value: bool,
    alignment: i8,
}

/// Converts arrays of one type.
pub struct ArrayReader {
    layout: ElementLayout,
    elements: ColumnReader,
    context: BlockContext,
}

/// A memory context for values of one block that PostgreSQL makes.
pub struct BlockContext(pg_sys::MemoryContext);

impl ElementLayout {
    /// The layout of an array type's elements; `None` for what is no array.
    pub fn of(array_oid: pg_sys::Oid) -> Option<Self> {
        // SAFETY: a catalog lookup.
        let type_oid = unsafe { pg_sys::get_element_type(array_oid) };
        (type_oid != pg_sys::InvalidOid).then(|| Self::of_elements(type_oid))
    }

    /// The layout of elements of this type.
    pub fn of_elements(type_oid: pg_sys::Oid) -> Self {
        let mut layout = Self { type_oid, length: 0, by_value: false, alignment: 0 };
        // SAFETY: a catalog lookup that fills the fields given.
        unsafe {
            pg_sys::get_typlenbyvalalign(
                type_oid,
                &mut layout.length,
                &mut layout.by_value,
                &mut layout.alignment,
            );
        }
        layout
    }

    /// The type of the elements.
    pub fn type_oid(&self) -> pg_sys::Oid {
        self.type_oid
    }

    /// The elements of an array, whatever its dimensions: their values, whether they are NULL, and how many they are.
    ///
    /// # Safety
    ///
    /// The array is valid, detoasted, and has such elements.
    pub unsafe fn deconstruct(&self, array: *mut pg_sys::ArrayType) -> (*mut Datum, *mut bool, usize) {
        let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        // SAFETY: as the caller says; the others are catalog facts about the elements.
        unsafe {
            pg_sys::deconstruct_array(
                array,
                self.type_oid,
                i32::from(self.length),
                self.by_value,
                self.alignment,
                &mut values,
                &mut nulls,
                &mut count,
            );
        }
        (values, nulls, count.unsigned_abs() as usize)
    }
}

impl ArrayReader {
    /// A reader of arrays with such elements.
    ///
    /// # Errors
    ///
    /// `Internal` for elements that nothing is read as.
    pub fn new(layout: ElementLayout, type_modifier: i32) -> Result<Self> {
        let source = ColumnSource {
            output_index: Some(0),
            display_scale: DisplayScale::OfType,
            type_oid: layout.type_oid,
            type_modifier,
        };
        Ok(Self { layout, elements: ColumnReader::new(source)?, context: BlockContext::new() })
    }

    /// Sets the cells of these rows.
    ///
    /// # Errors
    ///
    /// As of [`ColumnReader::fill`] for an element.
    pub fn fill(&mut self, array: &ListArray, rows: Range<usize>, cells: &mut Cells<'_>) -> Result<()> {
        self.context.reset();
        cells.try_fill(array, rows, |row| self.array(array.value(row).as_ref()))
    }

    fn array(&mut self, items: &dyn Array) -> Result<Datum> {
        let count = items.len();
        let mut values = vec![Datum::null(); count];
        let mut nulls = vec![true; count];
        self.elements.fill_array(
            items,
            &Scales::OfType,
            0..count,
            &mut Cells::contiguous(&mut values, &mut nulls),
        )?;
        let count = i32::try_from(count).map_err(|_| Error::internal("array is too long"))?;
        // SAFETY: as many values and flags as the only dimension says, laid out as the catalog says.
        let array = self.context.enter(|| unsafe {
            if count == 0 {
                pg_sys::construct_empty_array(self.layout.type_oid)
            } else {
                pg_sys::construct_md_array(
                    values.as_mut_ptr(),
                    nulls.as_mut_ptr(),
                    1,
                    [count].as_mut_ptr(),
                    [1].as_mut_ptr(),
                    self.layout.type_oid,
                    i32::from(self.layout.length),
                    self.layout.by_value,
                    self.layout.alignment,
                )
            }
        });
        Ok(Datum::from(array))
    }
}

impl BlockContext {
    /// A child of the current context, which outlives the reader.
    pub fn new() -> Self {
        // SAFETY: the parent is the current context, and the name lives for ever.
        Self(unsafe {
            pg_sys::AllocSetContextCreateExtended(
                pg_sys::CurrentMemoryContext,
                c"pystachio values".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        })
    }

    /// Frees the values of the block before.
    pub fn reset(&self) {
        // SAFETY: the context lives as long as its parent, which outlives the reader.
        unsafe { pg_sys::MemoryContextReset(self.0) };
    }

    /// Makes values in the context.
    pub fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        // SAFETY: the context lives as long as its parent, which outlives the reader. After an ERROR PostgreSQL sets the current
        // context itself.
        unsafe {
            let former = pg_sys::MemoryContextSwitchTo(self.0);
            let made = make();
            pg_sys::MemoryContextSwitchTo(former);
            made
        }
    }
}
