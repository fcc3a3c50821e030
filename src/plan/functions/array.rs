//! Arrays that columns have.

use super::{
    CatalogNames, Example, Form, FunctionEntry, NullRule, ResultType, Shown, Signature,
    TypeClass::{Any, Bool, Int32, Lists},
};
use crate::Function;

pub(super) static EQUALS_ANY: FunctionEntry = FunctionEntry::new(
    "equals_any",
    Form::Plain(Function::EqualsAny),
    "Whether an element of the array equals the first; NULL if none does and the first or an element is NULL.",
)
.nulls(NullRule::SomeNull)
.shown(Shown::Any)
.on_host()
.signatures(&[Signature::new(&[Any, Lists], ResultType::Of(Bool), &[Example::of("{a} = ANY ({b})")])]);

pub(super) static CARDINALITY: FunctionEntry = FunctionEntry::new(
    "cardinality",
    Form::Plain(Function::Cardinality),
    "The number of an array's elements.",
)
.on_host()
.signatures(&[Signature::new(&[Lists], ResultType::Of(Int32), &[Example::of("cardinality({a})")])])
.catalog(&[CatalogNames::itself(&["cardinality", "array_length"])]);

pub(super) static ELEMENT: FunctionEntry = FunctionEntry::new(
    "element",
    Form::Plain(Function::Element),
    "The element of an array with this number, from 1; NULL if there is none.",
)
.nulls(NullRule::StrictAndOwn)
.shown(Shown::Subscript)
.on_host()
.signatures(&[Signature::new(&[Lists, Int32], ResultType::Of(Any), &[Example::of("({a})[{b}]")])]);
