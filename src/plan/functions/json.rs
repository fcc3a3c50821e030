//! Text of JSON.

use super::{
    Example, Form, FunctionEntry, NullRule, ResultType, Signature,
    TypeClass::{Bool, Date, Decimals, Integers, Text, Time, Timestamps, Uuid},
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
        ]);
