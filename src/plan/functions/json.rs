//! Text of JSON, and of numbers.

use super::{
    Example, Form, FunctionEntry, NullRule, ResultType, Signature,
    TypeClass::{Bool, Bytea, Date, Decimals, Floats, Int32, Integers, Lists, Text, Time, Timestamps, Uuid},
};
use crate::Function;

const TEXT: ResultType = ResultType::Of(Text);
const VALUE: &[Example] = &[Example::of("to_json({a})")];

pub(super) static JSON_TEXT: FunctionEntry =
    FunctionEntry::new("json_text", Form::Plain(Function::JsonText), "The value as JSON; null of NULL.")
        .nulls(NullRule::Never)
        .on_host()
        .signatures(&[
            Signature::new(&[Bool], TEXT, VALUE),
            Signature::new(&[Integers], TEXT, VALUE),
            Signature::new(&[Decimals], TEXT, VALUE),
            Signature::new(&[Date], TEXT, VALUE),
            Signature::new(&[Time], TEXT, VALUE),
            Signature::new(&[Timestamps], TEXT, VALUE),
            Signature::new(&[Uuid], TEXT, VALUE),
            Signature::new(&[Text], TEXT, VALUE),
            Signature::new(&[Floats, Text], TEXT, VALUE),
            Signature::new(&[Decimals, Int32], TEXT, VALUE),
            Signature::new(&[Timestamps, Bytea], TEXT, VALUE),
            Signature::new(&[Lists], TEXT, VALUE),
            Signature::new(&[Lists, Text], TEXT, VALUE),
            Signature::new(&[Lists, Bytea], TEXT, VALUE),
        ]);

pub(super) static NUMBER_TEXT: FunctionEntry =
    FunctionEntry::new("number_text", Form::Plain(Function::NumberText), "The number as its type prints it.")
        .expensive()
        .on_host()
        .signatures(&[
            Signature::new(&[Floats, Text], TEXT, &[Example::of("{a}::text")]),
            Signature::new(&[Decimals], TEXT, &[Example::of("{a}::text")]),
            Signature::new(&[Decimals, Int32], TEXT, &[]),
        ]);
