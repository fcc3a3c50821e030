//! What kernels are given and say, as kernels/abi has it: `build.rs` makes all of this of those headers.
#![expect(
    dead_code,
    missing_docs,
    non_snake_case,
    unsafe_code,
    reason = "generated: the headers have the comments"
)]
#![expect(clippy::undocumented_unsafe_blocks, reason = "generated: zeros are a value of every structure")]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
