use super::*;

#[test]
fn scales_follow_the_operator() {
    let scale = |name| {
        let source = call(name, SourceType::Numeric, vec![column(PRICE), column(RATE)]);
        lower(&source).unwrap().scale
    };
    assert_eq!(scale("numeric_add"), Scale::Fixed(4));
    assert_eq!(scale("numeric_sub"), Scale::Fixed(4));
    assert_eq!(scale("numeric_mul"), Scale::Fixed(6));
    assert_eq!(scale("numeric_mod"), Scale::Fixed(4));
    // The digits of a quotient depend on the values.
    assert!(matches!(scale("numeric_div"), Scale::Varies(_)));
}

#[test]
fn a_constant_shows_the_digits_that_are_written() {
    for (text, digits) in [("2", 0), ("2.5", 1), ("2.50", 2)] {
        assert_eq!(lower(&numeric(text)).unwrap().scale, Scale::Fixed(digits), "{text}");
    }
}

#[test]
fn a_product_that_may_be_too_long_is_refused() {
    let mut product = column(PRICE);
    for _ in 0..5 {
        product = call("numeric_mul", SourceType::Numeric, vec![product, column(PRICE)]);
    }
    assert!(matches!(refused(&product), Refusal::LongNumeric { scale: 12, .. }), "{}", refused(&product));
}

#[test]
fn a_bucket_is_a_whole_quotient_between_constant_bounds() {
    let bucket = |arguments| call("width_bucket", SourceType::Integer, arguments);
    let of = |low, high, count| bucket(vec![column(PRICE), numeric(low), numeric(high), integer(count)]);
    let lowered = lowered(&of("0", "100", 10));
    assert!(lowered.contains("(column 2 < 0) THEN 0 WHEN (column 2 >= 100) THEN 11 ELSE"), "{lowered}");
    let refused = |source: &Source| refused(source).to_string();
    let varying = bucket(vec![column(PRICE), column(RATE), numeric("1"), integer(2)]);
    assert!(refused(&varying).ends_with("that are no constants"));
    for source in [of("1", "1.0", 5), of("0", "10000000000000", 5), of("0", "1000000000", 10_000)] {
        assert!(refused(&source).ends_with("so far apart that PostgreSQL rounds"));
    }
    let of_float = bucket(vec![column(FLOAT), column(FLOAT), column(FLOAT), integer(2)]);
    assert_eq!(refused(&of_float), "function width_bucket");
}

#[test]
fn integers_meet_in_the_wider_type() {
    let sum = call("int48pl", SourceType::BigInt, vec![column(NUMBER), column(BIG)]);
    assert_eq!(lowered(&sum), "((column 1)::bigint + column 10)");
    let with_constant = call("int84pl", SourceType::BigInt, vec![column(BIG), integer(1)]);
    assert_eq!(lowered(&with_constant), "(column 10 + 1)");
}

#[test]
fn signs_are_no_functions() {
    let plus = call("numeric_uplus", SourceType::Numeric, vec![column(PRICE)]);
    assert_eq!(lower(&plus), lower(&column(PRICE)));
}

#[test]
fn round_takes_a_constant_count_of_digits() {
    let round = |digits| call("round", SourceType::Numeric, vec![column(RATE), digits]);
    let rounded = lower(&round(integer(1))).unwrap();
    assert_eq!(rounded.scale, Scale::Fixed(1));
    assert_eq!(lower(&round(integer(-2))).unwrap().scale, Scale::Fixed(0));
    assert_eq!(
        refused(&round(column(NUMBER))).to_string(),
        "function round to a count of digits that is no constant"
    );
    assert_eq!(refused(&round(integer(38))).to_string(), "function round to 38 digits");
    assert_eq!(
        refused(&round(null(SourceType::Integer))).to_string(),
        "function round to an unknown count of digits"
    );
}

#[test]
fn a_cast_to_numeric_has_the_digits_of_its_modifier() {
    let modifier = ((12 << 16) | 1) + 4;
    let cast = call("numeric", SourceType::Numeric, vec![column(RATE), integer(modifier)]);
    let cast = lower(&Source { modifier: modifier as i32, ..cast }).unwrap();
    assert_eq!((cast.data_type(), &cast.scale), (&decimal(12, 1), &Scale::Fixed(1)));
    let of_integer = lower(&call("numeric", SourceType::Numeric, vec![column(NUMBER)])).unwrap();
    assert_eq!((of_integer.data_type(), &of_integer.scale), (&decimal(10, 0), &Scale::Fixed(0)));
    let of_float = call("numeric", SourceType::Numeric, vec![column(FLOAT)]);
    assert_eq!(refused(&of_float).to_string(), "a cast from double precision to numeric");
}

#[test]
fn a_numeric_of_run_time_is_only_compared() {
    let value = given(0, SourceType::Numeric);
    assert_eq!(lowered(&test("numeric_gt", column(PRICE), value.clone())), "(column 2 > $1)");
    let sum = call("numeric_add", SourceType::Numeric, vec![column(PRICE), value]);
    assert_eq!(refused(&sum).to_string(), "function numeric_add on a runtime numeric");
}
