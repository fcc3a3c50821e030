//! Texts as bytes and code points: digests, encodings, digits.

use super::{
    CatalogNames, Example, FailureRule, Form, FunctionEntry, ResultType, Signature,
    TypeClass::{Bytea, Int32, Int64, Text},
};
use crate::{Digest, Function};

const TEXT: ResultType = ResultType::Of(Text);
const BYTEA: ResultType = ResultType::Of(Bytea);
const FORMATS: &[&str] = &["hex", "base64", "escape", "HEX", "octal"];

pub(super) static ASCII: FunctionEntry = FunctionEntry::new(
    "ascii",
    Form::Plain(Function::Ascii),
    "The code point of the first character; 0 of an empty text.",
)
.on_host()
.signatures(&[Signature::new(&[Text], ResultType::Of(Int32), &[Example::of("ascii({a})")])])
.catalog(&[CatalogNames::itself(&["ascii"])]);

pub(super) static CHARACTER: FunctionEntry = FunctionEntry::new(
    "chr",
    Form::Plain(Function::Character),
    "The character of a code point. One that is no character is an error.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(&[Int32], TEXT, &[Example::of("chr({a})")])])
.catalog(&[CatalogNames::itself(&["chr"])]);

pub(super) static TO_HEXADECIMAL: FunctionEntry =
    FunctionEntry::new("to_hex", Form::Plain(Function::ToHexadecimal), "The bits in hexadecimal digits.")
        .expensive()
        .on_host()
        .signatures(&[
            Signature::new(&[Int32], TEXT, &[Example::of("to_hex({a})")]),
            Signature::new(&[Int64], TEXT, &[Example::of("to_hex({a})")]),
        ])
        .catalog(&[CatalogNames::itself(&["to_hex"])]);

pub(super) static MD5: FunctionEntry = FunctionEntry::new(
    "md5",
    Form::Plain(Function::Digest(Digest::Md5)),
    "The MD5 digest of the bytes, in hexadecimal digits.",
)
.expensive()
.on_host()
.signatures(&[
    Signature::new(&[Text], TEXT, &[Example::of("md5({a})")]),
    Signature::new(&[Bytea], TEXT, &[Example::of("md5({a})")]),
])
.catalog(&[CatalogNames::itself(&["md5"])]);

macro_rules! sha {
    ($entry:ident, $name:literal, $digest:ident, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry =
            FunctionEntry::new($name, Form::Plain(Function::Digest(Digest::$digest)), $meaning)
                .expensive()
                .on_host()
                .signatures(&[Signature::new(&[Bytea], BYTEA, &[Example::of(concat!($name, "({a})"))])])
                .catalog(&[CatalogNames::itself(&[$name])]);
    };
}

sha!(SHA224, "sha224", Sha224, "The SHA-224 digest of the bytes.");
sha!(SHA256, "sha256", Sha256, "The SHA-256 digest of the bytes.");
sha!(SHA384, "sha384", Sha384, "The SHA-384 digest of the bytes.");
sha!(SHA512, "sha512", Sha512, "The SHA-512 digest of the bytes.");

pub(super) static ENCODE: FunctionEntry = FunctionEntry::new(
    "encode",
    Form::Plain(Function::Encode),
    "The bytes as text: hex, base64 or escape. Another format is an error.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Bytea, Text], TEXT, &[Example::with("encode({a}, '{n}')", FORMATS)])])
.catalog(&[CatalogNames::itself(&["encode"])]);

pub(super) static DECODE: FunctionEntry = FunctionEntry::new(
    "decode",
    Form::Plain(Function::Decode),
    "The bytes that a text stands for: hex, base64 or escape. A text that is none is an error.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Text, Text], BYTEA, &[Example::with("decode({a}, '{n}')", FORMATS)])])
.catalog(&[CatalogNames::itself(&["decode"])]);
