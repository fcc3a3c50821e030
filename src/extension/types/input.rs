//! Values of `jsonb` and of enums: PostgreSQL reads the texts that engines send.
#![expect(unsafe_code, reason = "calls PostgreSQL's input function")]

use pgrx::pg_sys;

use super::{array::BlockContext, block::Cells};

/// Turns texts into values of a type, and holds the memory of a block's values.
pub struct InputReader {
    input: pg_sys::FmgrInfo,
    /// What the input function is told of the type.
    parameter: pg_sys::Oid,
    type_modifier: i32,
    context: BlockContext,
}

impl InputReader {
    /// A reader whose values live in a child of the current memory context.
    pub fn new(type_oid: pg_sys::Oid, type_modifier: i32) -> Self {
        let mut input = pg_sys::FmgrInfo::default();
        let (mut function, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: catalog lookups into places of ours. The function's structure keeps memory of the current context, which
        // outlives it.
        unsafe {
            pg_sys::getTypeInputInfo(type_oid, &raw mut function, &raw mut parameter);
            pg_sys::fmgr_info(function, &raw mut input);
        }
        Self { input, parameter, type_modifier, context: BlockContext::new() }
    }

    /// Replaces texts by the values that they are. Raises an ERROR for a text that the type lacks.
    pub fn read(&mut self, cells: &mut Cells<'_>, row_count: usize) {
        self.context.reset();
        let (input, parameter, type_modifier) = (&raw mut self.input, self.parameter, self.type_modifier);
        self.context.enter(|| {
            cells.replace(row_count, |text| {
                // SAFETY: a text in memory of this block, and the function that `new` looked up.
                unsafe {
                    let text = pg_sys::text_to_cstring(text.cast_mut_ptr());
                    pg_sys::InputFunctionCall(input, text, parameter, type_modifier)
                }
            });
        });
    }
}
