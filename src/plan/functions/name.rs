//! Names of functions with their parameters: `extract:second`, `upper:C`, `variance:1:0`.

use super::{FUNCTIONS, Form};
use crate::{Collator, Ctype, DateField, Function, LocaleName, TrimSide};

/// The function of a name, which is an entry's, and, after colons, its parameters; `None` if there is none.
pub fn function_of_name(text: &str) -> Option<Function> {
    let mut parts = text.split(':');
    let name = parts.next()?;
    let entry = FUNCTIONS.iter().find(|entry| entry.name == name)?;
    let mut flag = || match parts.next()? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    let function = match entry.form {
        Form::Plain(function) => function,
        Form::Moments(make) => {
            let is_sample = flag()?;
            make(is_sample, flag()?)
        }
        Form::Field(make) => make(DateField::of_word(parts.next()?)?),
        Form::Side(make) => make(match parts.next()? {
            "both" => TrimSide::Both,
            "leading" => TrimSide::Leading,
            "trailing" => TrimSide::Trailing,
            _ => return None,
        }),
        Form::Letters(make) => make(match parts.next()? {
            "C" => Ctype::Ascii,
            name => Ctype::Libc(LocaleName::new(name)?),
        }),
        Form::Order(make) => make(match parts.next()? {
            "libc" => Collator::Libc(LocaleName::new(parts.next()?)?),
            "icu" => {
                let version = parts.next()?.parse().ok()?;
                Collator::Icu { version, locale: LocaleName::new(parts.next()?)? }
            }
            _ => return None,
        }),
    };
    parts.next().is_none().then_some(function)
}

impl DateField {
    /// Every field.
    pub const ALL: [Self; 18] = [
        Self::Microseconds,
        Self::Milliseconds,
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Quarter,
        Self::Year,
        Self::Decade,
        Self::Century,
        Self::Millennium,
        Self::DayOfWeek,
        Self::IsoDayOfWeek,
        Self::DayOfYear,
        Self::IsoYear,
        Self::Epoch,
    ];

    /// PostgreSQL's word for the field.
    pub fn word(self) -> &'static str {
        match self {
            Self::Microseconds => "microseconds",
            Self::Milliseconds => "milliseconds",
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
            Self::Decade => "decade",
            Self::Century => "century",
            Self::Millennium => "millennium",
            Self::DayOfWeek => "dow",
            Self::IsoDayOfWeek => "isodow",
            Self::DayOfYear => "doy",
            Self::IsoYear => "isoyear",
            Self::Epoch => "epoch",
        }
    }

    /// The field of such a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_parameters_that_their_functions_have() {
        assert_eq!(function_of_name("add"), Some(Function::Add));
        assert_eq!(function_of_name("extract:isodow"), Some(Function::Extract(DateField::IsoDayOfWeek)));
        assert_eq!(function_of_name("trim:leading"), Some(Function::Trim(TrimSide::Leading)));
        assert_eq!(function_of_name("upper:C"), Some(Function::Upper(Ctype::Ascii)));
        let c = Collator::Libc(LocaleName::C_UTF8);
        assert_eq!(function_of_name("sort_key:libc:C.UTF-8"), Some(Function::SortKey(c)));
        let german =
            LocaleName::new("de").map(|locale| Function::SortKey(Collator::Icu { version: 72, locale }));
        assert_eq!(function_of_name("sort_key:icu:72:de"), german);
        let variance = Function::Variance { sample: true, deviation: false };
        assert_eq!(function_of_name("variance:1:0"), Some(variance));
        for text in ["", "no", "add:1", "extract", "extract:fortnight", "trim", "variance:1", "upper"] {
            assert_eq!(function_of_name(text), None, "{text}");
        }
    }

    #[test]
    fn words_tell_fields_apart() {
        for field in DateField::ALL {
            assert_eq!(DateField::of_word(field.word()), Some(field));
        }
    }
}
