use pystachio_engine::CharacterCase;
use pystachio_plan::{Ctype, DataType, Expression, Function, LocaleName, Value};

use super::{Device, column, text};

/// C.UTF-8 is on every host that the tests run on.
fn ctype() -> Ctype {
    Ctype::Libc(LocaleName::new("C.UTF-8").expect("a name"))
}

#[test]
fn every_character_is_what_libc_says() {
    let device = Device::new();
    let letters = CharacterCase::of(ctype()).expect("C.UTF-8");
    // Texts of 64 characters each, one of them a letter of ASCII.
    let characters: Vec<char> = ('\0'..=char::MAX).collect();
    let texts: Vec<String> =
        characters.chunks(63).map(|part| part.iter().chain(['q'].iter()).collect()).collect();
    let values: Vec<Value> = texts.iter().cloned().map(Value::Text).collect();
    let columns = [(DataType::Text, values)];
    for (function, map) in
        [(Function::Upper(ctype()), letters.upper()), (Function::Lower(ctype()), letters.lower())]
    {
        let call = Expression::call(function, vec![column(0, DataType::Text)], DataType::Text);
        let found = device.evaluate(&call, &columns, texts.len()).expect("texts");
        for (text, found) in texts.iter().zip(found) {
            assert_eq!(found, Value::Text(map.convert(text)));
        }
    }
}

/// The Kelvin sign (3 bytes) is a k, Ⱥ (2 bytes) has a lower case of 3.
#[test]
fn ilike_is_like_of_lower_case() {
    let device = Device::new();
    let words = ["\u{212a}ÄSE \u{23a}", "käse \u{2c65}", "KASE", "", "k"];
    let patterns = ["K_SE%\u{2c65}", "KÄSE \u{23a}", "käse%", "%", "\u{212a}"];
    let expected = [true, true, false, true, true];
    let values = |texts: [&str; 5]| {
        texts.iter().map(|text| Value::Text((*text).to_owned())).chain([Value::Null]).collect::<Vec<Value>>()
    };
    let columns = [(DataType::Text, values(words)), (DataType::Text, values(patterns))];
    let ilike = |pattern: Expression| {
        Expression::predicate(Function::ILike(ctype()), vec![column(0, DataType::Text), pattern])
    };
    let found = device.evaluate(&ilike(column(1, DataType::Text)), &columns, 6).expect("booleans");
    let all = expected.iter().map(|is_like| Value::Bool(*is_like)).chain([Value::Null]);
    assert_eq!(found, all.collect::<Vec<Value>>());
    for (place, pattern) in patterns.into_iter().enumerate() {
        let found = device.evaluate(&ilike(text(pattern)), &columns, 6).expect("booleans");
        assert_eq!(found[place], Value::Bool(expected[place]), "{pattern}");
    }
}
