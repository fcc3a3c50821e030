use super::*;
use crate::FunctionRefusal;

fn like(name: &str, value: Source, collation: Option<Rc<Collation>>) -> Source {
    let call = Call { collation, ..call_of(name, vec![value, text("a%")]) };
    Source::new(Part::Call(call), SourceType::Bool)
}

#[test]
fn not_like_is_not_of_like() {
    assert_eq!(lowered(&like("textlike", column(NAME), bytes_collation())), "(column 4 LIKE 'a%')");
    assert_eq!(lowered(&like("textnlike", column(NAME), bytes_collation())), "(NOT (column 4 LIKE 'a%'))");
    // Matching knows no order.
    assert_eq!(lowered(&like("textlike", column(NAME), language_collation(true))), "(column 4 LIKE 'a%')");
}

#[test]
fn ilike_needs_letters() {
    assert!(lower(&like("texticlike", column(NAME), bytes_collation())).is_ok());
    let refusal = refused(&like("texticlike", column(NAME), language_collation(true)));
    let why = FunctionRefusal::Letters(UnknownLetters::NotLibc);
    assert_eq!(refusal, Refusal::FunctionUse { name: "texticlike".into(), why });
    assert_eq!(refusal.to_string(), "function texticlike under a collation that libc does not provide");
}

#[test]
fn matching_needs_equality_by_bytes() {
    let refusal = refused(&like("textlike", column(NAME), language_collation(false)));
    assert_eq!(refusal.to_string(), "function textlike under a nondeterministic collation");
    assert_eq!(refused(&like("textlike", column(NAME), None)), Refusal::SeveralCollations);
}

#[test]
fn blanks_count_where_postgresql_counts_them() {
    assert_eq!(
        lowered(&like("bpcharlike", column(CODE), bytes_collation())),
        "(pad_blanks(column 11, 5) LIKE 'a%')"
    );
    let unknown = Source { modifier: -1, ..column(CODE) };
    let refusal = refused(&like("bpcharlike", unknown, bytes_collation()));
    assert_eq!(refusal.to_string(), "function bpcharlike on a character value of unknown length");
    assert_eq!(lowered(&call("length", SourceType::Integer, vec![column(CODE)])), "length(column 11)");
}

#[test]
fn a_constant_of_character_has_no_blanks_at_its_end() {
    let blanks = constant(Value::Text("ab  ".into()), SourceType::Character);
    assert_eq!(lowered(&blanks), "'ab'");
    assert_eq!(lowered(&text("ab  ")), "'ab  '");
}

#[test]
fn a_cast_to_a_length_cuts() {
    let flag = |value| constant(Value::Bool(value), SourceType::Bool);
    let cast = |name, of, is_explicit| call(name, of, vec![column(NAME), integer(7), flag(is_explicit)]);
    assert_eq!(lowered(&cast("varchar", SourceType::Varchar, true)), "left(column 4, 3)");
    assert_eq!(lowered(&cast("bpchar", SourceType::Character, true)), "trim_blanks(left(column 4, 3))");
    let refusal = refused(&cast("varchar", SourceType::Varchar, false));
    assert_eq!(
        refusal.to_string(),
        "function varchar with a length that is no constant, or in an assignment"
    );
}

#[test]
fn right_is_refused_where_the_server_errs() {
    let source = call("right", SourceType::Text, vec![column(NAME), column(NUMBER)]);
    let server = TestServer { right_wraps: true, ..TestServer::default() };
    let (scope, notes) = (scope(), Notes::default());
    let lowering = Lowering::new(&scope, &notes, &server);
    let why = FunctionRefusal::LeastCount;
    assert_eq!(lowering.lower(&source), Err(Refusal::FunctionUse { name: "right".into(), why }));
    let fixed = call("right", SourceType::Text, vec![column(NAME), integer(2)]);
    assert!(lowering.lower(&fixed).is_ok());
    assert!(lower(&source).is_ok());
}

#[test]
fn casts_between_texts_change_no_byte() {
    let relabel = |of| Source::new(Part::Relabel(Box::new(column(NAME))), of);
    assert_eq!(lowered(&relabel(SourceType::Varchar)), "column 4");
    assert_eq!(lowered(&relabel(SourceType::Character)), "trim_blanks(column 4)");
    let xml = refused(&relabel(SourceType::other("xml")));
    assert_eq!(xml.to_string(), "text taken as xml");
}

/// Why an expression is refused in a database of such text; `None` if it is lowered.
fn refused_in(text_form: TextForm, source: &Source) -> Option<String> {
    let server = TestServer { text_form, ..TestServer::default() };
    let refusal = Lowering::new(&scope(), &Notes::default(), &server).lower(source).err()?;
    Some(refusal.to_string())
}

#[test]
fn other_encodings_refuse_what_differs_in_utf8() {
    let (bytes, sorted) = (TextForm::Bytes, TextForm::OneByte { is_ordered: true });
    let (unsorted, other) = (TextForm::OneByte { is_ordered: false }, TextForm::Other);
    let of_text = |name, of| call(name, of, vec![column(NAME)]);
    let refused = |name: &str| Some(format!("function {name} in a database with encoding LATIN9"));
    let length = of_text("length", SourceType::Integer);
    let octets = of_text("octet_length", SourceType::Integer);
    for (form, expected) in [(bytes, refused("length")), (sorted, None), (other, refused("length"))] {
        assert_eq!(refused_in(form, &length), expected, "{form:?}");
    }
    for (form, expected) in
        [(bytes, None), (sorted, refused("octet_length")), (other, refused("octet_length"))]
    {
        assert_eq!(refused_in(form, &octets), expected, "{form:?}");
    }
    let equal = test("texteq", column(NAME), text("a"));
    let less = test("text_lt", column(NAME), text("a"));
    let comparisons = Some("comparisons of text in a database with encoding LATIN9".to_owned());
    let order = Some("order of text in a database with encoding LATIN9".to_owned());
    for (form, of_equal, of_less) in [
        (TextForm::Utf8, None, None),
        (bytes, None, None),
        (sorted, None, None),
        (unsorted, None, order),
        (other, comparisons.clone(), comparisons),
    ] {
        assert_eq!(refused_in(form, &equal), of_equal, "{form:?}");
        assert_eq!(refused_in(form, &less), of_less, "{form:?}");
    }
}

#[test]
fn patterns_over_bytes_have_no_single_character() {
    let pattern = |pattern| {
        let call = call_of("textlike", vec![column(NAME), text(pattern)]);
        refused_in(TextForm::Bytes, &Source::new(Part::Call(call), SourceType::Bool))
    };
    assert_eq!(pattern("%a%"), None);
    assert_eq!(pattern("a_").as_deref(), Some("function textlike in a database with encoding LATIN9"));
}

#[test]
fn counts_that_make_texts_long_are_refused() {
    let padded = |count| call("lpad", SourceType::Text, vec![column(NAME), count, text(" ")]);
    assert_eq!(lowered(&padded(integer(5))), "lpad(column 4, 5, ' ')");
    let why = "function lpad with a count that is no constant, or above 1000";
    assert_eq!(refused(&padded(integer(1_001))).to_string(), why);
    assert_eq!(refused(&padded(column(NUMBER))).to_string(), why);
}

#[test]
fn a_function_has_the_types_of_a_signature() {
    let digest = |name, value| call(name, SourceType::Bytea, vec![value]);
    assert_eq!(lowered(&call("md5", SourceType::Text, vec![column(NAME)])), "md5(column 4)");
    assert_eq!(refused(&digest("sha256", column(NAME))).to_string(), "function sha256 on these types");
    let power = call("power", SourceType::Double, vec![column(FLOAT), column(FLOAT)]);
    assert_eq!(lowered(&power), "(column 9 ^ column 9)");
    let of_numeric = call("ln", SourceType::Numeric, vec![column(PRICE)]);
    assert_eq!(refused(&of_numeric).to_string(), "function ln on these types");
}

#[test]
fn regular_expressions_need_letters_only_where_they_have_some() {
    let matches = |name, pattern: Source, collation| {
        let call = Call { collation, ..call_of(name, vec![column(NAME), pattern]) };
        Source::new(Part::Call(call), SourceType::Bool)
    };
    let language = || language_collation(true);
    assert_eq!(lowered(&matches("textregexeq", text("^a.b"), language())), "(column 4 ~ '^a.b')");
    assert_eq!(lowered(&matches("textregexne", text("a|b"), language())), "(NOT (column 4 ~ 'a|b'))");
    assert_eq!(lowered(&matches("texticregexeq", text("a"), bytes_collation())), "(column 4 ~* 'a')");
    for (name, pattern) in [("texticregexeq", "a"), ("textregexeq", "\\d"), ("textregexeq", "[[:alpha:]]")] {
        let refusal = refused(&matches(name, text(pattern), language())).to_string();
        assert_eq!(refusal, format!("function {name} under a collation that libc does not provide"));
    }
    let refusal = refused(&matches("textregexeq", text("(a)\\1"), bytes_collation()));
    assert_eq!(refusal.to_string(), "function textregexeq with a regular expression with such an escape");
    let varying = refused(&matches("textregexeq", column(NAME), bytes_collation()));
    assert_eq!(varying.to_string(), "function textregexeq with a regular expression that is no constant");
    let flags = |flags| {
        let call = Call {
            collation: bytes_collation(),
            ..call_of("regexp_like", vec![column(NAME), text("a"), text(flags)])
        };
        Source::new(Part::Call(call), SourceType::Bool)
    };
    assert_eq!(lowered(&flags("i")), "(column 4 ~* 'a')");
    assert_eq!(lowered(&flags("c")), "(column 4 ~ 'a')");
    assert!(lower(&flags("n")).is_err());
}

#[test]
fn parts_that_match_are_known_where_no_group_is_repeated() {
    let call = |name: &str, arguments: Vec<Source>| {
        let call = Call { collation: bytes_collation(), ..call_of(name, arguments) };
        Source::new(Part::Call(call), SourceType::Text)
    };
    let replaced = |pattern: &str, replacement: &str, flags: &str| {
        call("regexp_replace", vec![column(NAME), text(pattern), text(replacement), text(flags)])
    };
    assert_eq!(lowered(&replaced("(a)+", "", "gi")), "replace_matches(column 4, '(a)+', '', 1, 0, true)");
    assert_eq!(
        lowered(&replaced("(a)b", "\\1", "")),
        "replace_matches(column 4, '(a)b', '\\1', 1, 1, false)"
    );
    let part = call("substring", vec![column(NAME), text("b(a)")]);
    assert_eq!(lowered(&part), "matched_part(column 4, 'b(a)', 1, 1, 1, false)");
    let element = |number| {
        let parts = call("regexp_match", vec![column(NAME), text("(a)(b)")]);
        Source::new(
            Part::Call(call_of(crate::ARRAY_SUBSCRIPT, vec![parts, integer(number)])),
            SourceType::Text,
        )
    };
    assert_eq!(lowered(&element(2)), "matched_part(column 4, '(a)(b)', 1, 1, 2, false)");
    assert_eq!(lowered(&element(0)), "NULL");
    let reason = |source: &Source| refused(source).to_string();
    let groups =
        "function regexp_replace with groups of a regular expression whose parts of a text are not known";
    assert_eq!(reason(&replaced("(a)+", "\\1", "")), groups);
    assert_eq!(reason(&replaced("((a)b)", "<\\2>", "")), groups);
    assert_eq!(
        reason(&replaced("a", "", "n")),
        "function regexp_replace with flags that are no constants of c, g and i"
    );
    assert_eq!(
        reason(&replaced("a{0}b", "", "")),
        "function regexp_replace with a regular expression that repeats a part zero times"
    );
    let varying = call("regexp_replace", vec![column(NAME), text("a"), column(NAME)]);
    assert_eq!(reason(&varying), "function regexp_replace with a replacement that is no constant");
    assert!(lower(&call("regexp_substr", vec![column(NAME), text("a"), integer(0)])).is_err());
}

#[test]
fn numbers_are_shown_as_they_are_printed() {
    let to_text = |source| Source::new(Part::CoerceViaText(Box::new(source)), SourceType::Text);
    assert_eq!(lowered(&to_text(column(FLOAT))), "number_text(column 9, $1)");
    assert_eq!(lowered(&to_text(column(PRICE))), "number_text(column 2)");
    let quotient = call("numeric_div", SourceType::Numeric, vec![column(PRICE), column(RATE)]);
    assert!(lowered(&to_text(quotient)).starts_with("number_text((column 2 / column 3), quotient_scale("));
    let joined = call("concat", SourceType::Text, vec![column(FLAG), column(PRICE), column(NUMBER)]);
    assert_eq!(
        lowered(&joined),
        "concat_skipping_nulls(CASE WHEN (column 8 IS TRUE) THEN 't' WHEN (column 8 IS FALSE) THEN 'f' END, \
         number_text(column 2), (column 1)::text)"
    );
    let quoted = |name: &str| lowered(&call(name, SourceType::Text, vec![column(NAME)]));
    assert_eq!(quoted("quote_ident"), "quote_ident(column 4, $1, $2)");
    assert_eq!(quoted("quote_nullable"), "coalesce(quote_literal(column 4), 'NULL')");
}

#[test]
fn formats_show_texts_and_integers() {
    let formatted = |arguments| call("format", SourceType::Text, arguments);
    assert_eq!(
        lowered(&formatted(vec![text("%s: %L%%"), column(NAME), column(NUMBER)])),
        "(coalesce(column 4, '') || ': ' || coalesce(quote_literal((column 1)::text), 'NULL') || '%')"
    );
    let reason = |arguments| refused(&formatted(arguments)).to_string();
    assert_eq!(
        lowered(&formatted(vec![text("%s %s"), column(FLAG), column(FLOAT)])),
        "(coalesce(CASE WHEN (column 8 IS TRUE) THEN 't' WHEN (column 8 IS FALSE) THEN 'f' END, '') || ' ' || \
         coalesce(number_text(column 9, $1), ''))"
    );
    assert_eq!(lowered(&formatted(vec![text("%I"), text("a")])), "quote_ident('a', $1, $2)");
    assert_eq!(reason(vec![text("%I"), column(NAME)]), "function format with a name that may be NULL");
    assert_eq!(reason(vec![text("%1$s"), column(NAME)]), "function format with %1 in its text");
    assert_eq!(reason(vec![text("%s"), column(SPAN)]), "function format of interval");
    assert_eq!(reason(vec![text("%s")]), "function format with these arguments");
    assert_eq!(reason(vec![text("x"), column(NAME)]), "function format with these arguments");
}
