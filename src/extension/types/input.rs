//! Values that PostgreSQL reads itself: `jsonb` and enums from texts, and values that the engine
//! only carried from the bytes that PostgreSQL's send function made.
#![expect(unsafe_code, reason = "calls PostgreSQL's input and receive functions")]

use pgrx::pg_sys;

use super::{array::BlockContext, block::Cells, writer::Varlena};

/// Turns texts or bytes into values of a type, and holds the memory of a block's values.
pub struct InputReader {
    input: pg_sys::FmgrInfo,
    /// Whether it reads bytes, by the type's receive function.
    receives: bool,
    /// What the input function is told of the type.
    parameter: pg_sys::Oid,
    type_modifier: i32,
    context: BlockContext,
}

impl InputReader {
    /// A reader of texts, whose values live in a child of the current memory context.
    pub fn new(type_oid: pg_sys::Oid, type_modifier: i32) -> Self {
        let mut input = pg_sys::FmgrInfo::default();
        let (mut function, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: catalog lookups into places of ours. The function's structure keeps memory of the current context, which
        // outlives it.
        unsafe {
            pg_sys::getTypeInputInfo(type_oid, &raw mut function, &raw mut parameter);
            pg_sys::fmgr_info(function, &raw mut input);
        }
        Self { input, receives: false, parameter, type_modifier, context: BlockContext::new() }
    }

    /// A reader of bytes that the type's send function has made, whose values live in a child of the current memory context.
    pub fn receiving(type_oid: pg_sys::Oid) -> Self {
        let mut input = pg_sys::FmgrInfo::default();
        let (mut function, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: as of texts.
        unsafe {
            pg_sys::getTypeBinaryInputInfo(type_oid, &raw mut function, &raw mut parameter);
            pg_sys::fmgr_info(function, &raw mut input);
        }
        Self { input, receives: true, parameter, type_modifier: -1, context: BlockContext::new() }
    }

    /// Replaces texts or bytes by the values that they are. Raises an ERROR for some that the type lacks.
    pub fn read(&mut self, cells: &mut Cells<'_>, row_count: usize) {
        self.context.reset();
        let (input, parameter, type_modifier) = (&raw mut self.input, self.parameter, self.type_modifier);
        let receives = self.receives;
        self.context.enter(|| {
            cells.replace(row_count, |text| {
                if receives {
                    // SAFETY: bytes in memory of this block, which the function reads as a message.
                    return unsafe {
                        let varlena = Varlena::of(text);
                        let length = varlena.bytes().len() as i32;
                        let mut message = pg_sys::StringInfoData {
                            data: varlena.bytes().as_ptr().cast_mut().cast(),
                            len: length,
                            maxlen: length,
                            cursor: 0,
                        };
                        pg_sys::ReceiveFunctionCall(input, &raw mut message, parameter, type_modifier)
                    };
                }
                // SAFETY: a text in memory of this block, and the function that `new` looked up.
                unsafe {
                    let text = pg_sys::text_to_cstring(text.cast_mut_ptr());
                    pg_sys::InputFunctionCall(input, text, parameter, type_modifier)
                }
            });
        });
    }
}
