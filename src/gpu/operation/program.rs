//! Programs of expressions over chunks.

use pystachio_plan::Result;

use crate::{
    device::{Chunk, Column},
    program::{Code, Computed},
};

/// Running byte-code. Expressions are compiled to it for every device alike, by [`crate::program::Program`] and
/// [`crate::program::Filter`], which call this. See [`super::Device`] for what every operation has in common.
pub trait ProgramOperations {
    /// The outputs of byte-code over a chunk: one column an output, each of the chunk's rows. Waits if a row can fail
    /// and the lane does not defer that, or if text is made.
    ///
    /// # Errors
    ///
    /// Those of the functions, with PostgreSQL's messages.
    ///
    /// # Panics
    ///
    /// If the chunk's columns are not of the types that the byte-code was compiled for.
    fn run(&self, code: &Code, outputs: &[&Computed], chunk: &Chunk) -> Result<Vec<Column>>;
}
