//! Functions of doubles that the C library computes.

use super::{
    CatalogNames, Example, FailureRule, Form, FunctionEntry, ResultType, Shown, Signature, TypeClass::Float64,
};
use crate::{FloatFunction, Function};

/// A function of one double.
macro_rules! of_one {
    ($entry:ident, $name:literal, $function:ident, $failure:ident, $names:expr, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry =
            FunctionEntry::new($name, Form::Plain(Function::Float(FloatFunction::$function)), $meaning)
                .failure(FailureRule::$failure)
                .on_host()
                .signatures(&[Signature::new(
                    &[Float64],
                    ResultType::Same,
                    &[Example::of(concat!($name, "({a})"))],
                )])
                .catalog(&[CatalogNames::itself($names)]);
    };
}

of_one!(CUBE_ROOT, "cbrt", CubeRoot, Never, &["cbrt", "dcbrt"], "The cube root.");
of_one!(EXPONENTIAL, "exp", Exponential, Always, &["exp", "dexp"], "The exponential.");
of_one!(
    NATURAL_LOGARITHM,
    "ln",
    NaturalLogarithm,
    Always,
    &["ln", "dlog1"],
    "The natural logarithm. One of zero or a negative number is an error."
);
of_one!(
    DECIMAL_LOGARITHM,
    "log",
    DecimalLogarithm,
    Always,
    &["log", "log10", "dlog10"],
    "The logarithm to base 10. One of zero or a negative number is an error."
);
of_one!(SINE, "sin", Sine, Always, &["sin"], "The sine. One of an infinite number is an error.");
of_one!(COSINE, "cos", Cosine, Always, &["cos"], "The cosine. One of an infinite number is an error.");
of_one!(TANGENT, "tan", Tangent, Always, &["tan"], "The tangent. One of an infinite number is an error.");
of_one!(
    COTANGENT,
    "cot",
    Cotangent,
    Always,
    &["cot"],
    "The cotangent. One of an infinite number is an error."
);
of_one!(
    ARC_SINE,
    "asin",
    ArcSine,
    Always,
    &["asin"],
    "The arc sine. One of a number outside -1 to 1 is an error."
);
of_one!(
    ARC_COSINE,
    "acos",
    ArcCosine,
    Always,
    &["acos"],
    "The arc cosine. One of a number outside -1 to 1 is an error."
);
of_one!(ARC_TANGENT, "atan", ArcTangent, Never, &["atan"], "The arc tangent.");
of_one!(
    HYPERBOLIC_SINE,
    "sinh",
    HyperbolicSine,
    Never,
    &["sinh"],
    "The hyperbolic sine; infinite where it is too large."
);
of_one!(
    HYPERBOLIC_COSINE,
    "cosh",
    HyperbolicCosine,
    Never,
    &["cosh"],
    "The hyperbolic cosine; infinite where it is too large."
);
of_one!(HYPERBOLIC_TANGENT, "tanh", HyperbolicTangent, Never, &["tanh"], "The hyperbolic tangent.");
of_one!(HYPERBOLIC_ARC_SINE, "asinh", HyperbolicArcSine, Never, &["asinh"], "The inverse hyperbolic sine.");
of_one!(
    HYPERBOLIC_ARC_COSINE,
    "acosh",
    HyperbolicArcCosine,
    Always,
    &["acosh"],
    "The inverse hyperbolic cosine. One of a number below 1 is an error."
);
of_one!(
    HYPERBOLIC_ARC_TANGENT,
    "atanh",
    HyperbolicArcTangent,
    Always,
    &["atanh"],
    "The inverse hyperbolic tangent. One of a number outside -1 to 1 is an error."
);

/// Radians and degrees are a quotient and a product, which devices have.
macro_rules! of_angle {
    ($entry:ident, $name:literal, $function:ident, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry =
            FunctionEntry::new($name, Form::Plain(Function::Float(FloatFunction::$function)), $meaning)
                .failure(FailureRule::Always)
                .signatures(&[Signature::new(
                    &[Float64],
                    ResultType::Same,
                    &[Example::of(concat!($name, "({a})"))],
                )])
                .catalog(&[CatalogNames::itself(&[$name])]);
    };
}

of_angle!(DEGREES, "degrees", Degrees, "The angle in degrees.");
of_angle!(RADIANS, "radians", Radians, "The angle in radians.");

pub(super) static POWER: FunctionEntry = FunctionEntry::new(
    "power",
    Form::Plain(Function::Float(FloatFunction::Power)),
    "The power. One that is no real number is an error.",
)
.failure(FailureRule::Always)
.on_host()
.shown(Shown::Infix("^"))
.signatures(&[Signature::new(
    &[Float64, Float64],
    ResultType::Same,
    &[Example::of("power({a}, {b})"), Example::of("{a} ^ {b}")],
)])
.catalog(&[CatalogNames::itself(&["power", "pow", "dpow"])]);

pub(super) static ARC_TANGENT_OF_QUOTIENT: FunctionEntry = FunctionEntry::new(
    "atan2",
    Form::Plain(Function::Float(FloatFunction::ArcTangentOfQuotient)),
    "The arc tangent of the quotient, in the quadrant of both numbers.",
)
.on_host()
.signatures(&[Signature::new(&[Float64, Float64], ResultType::Same, &[Example::of("atan2({a}, {b})")])])
.catalog(&[CatalogNames::itself(&["atan2"])]);
