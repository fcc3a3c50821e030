use pystachio_plan::{Function, RELATION_DEPTH_MAX};

use super::*;
use crate::{AggregateSource, DEPTH_MAX, Placeholder, RowColumn, UnknownPart, check_depth};

fn not(argument: Source) -> Source {
    Source::new(Part::Logic { function: Function::Not, arguments: vec![argument] }, SourceType::Bool)
}

fn nested(depth: usize) -> Source {
    (1..depth).fold(column(FLAG), |inner, _| not(inner))
}

#[test]
fn expressions_nest_up_to_a_limit() {
    assert!(lower(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(refused(&nested(DEPTH_MAX + 1)).to_string(), "an expression nested more than 200 deep");
    let negated = |inner, _| call("int4um", SourceType::Integer, vec![inner]);
    assert!(lower(&(1..DEPTH_MAX).fold(column(NUMBER), negated)).is_ok());
    let chosen = |inner, _| {
        let (branches, otherwise) = (vec![(column(FLAG), integer(1))], Some(Box::new(inner)));
        Source::new(Part::Case { operand: None, branches, otherwise }, SourceType::Integer)
    };
    assert!(lower(&(1..DEPTH_MAX).fold(column(NUMBER), chosen)).is_ok());
    let server = TestServer { has_no_stack: true, ..TestServer::default() };
    let refusal = Lowering::new(&scope(), &Notes::default(), &server).lower(&nested(2));
    assert_eq!(refusal, Err(Refusal::NoStack));
}

#[test]
fn an_expression_that_grows_is_refused() {
    // Each level has the one below twice: a comparison of rows names its first column in two places.
    let level = |inner: Source| {
        let column = |left| RowColumn {
            function: Rc::new(CatalogFunction::builtin("int4lt")),
            collation: None,
            left,
            right: integer(5),
        };
        let columns = vec![column(inner), column(integer(1))];
        let order = Some(Function::Less);
        let condition = Source::new(Part::RowComparison { order, columns }, SourceType::Bool);
        let (branches, otherwise) = (vec![(condition, integer(1))], Some(Box::new(integer(0))));
        Source::new(Part::Case { operand: None, branches, otherwise }, SourceType::Integer)
    };
    let large = (0..20).fold(column(NUMBER), |inner, _| level(inner));
    assert_eq!(refused(&large).to_string(), "an expression of more than 100000 parts");
}

#[test]
fn plans_nest_up_to_a_limit() {
    assert_eq!(check_depth(RELATION_DEPTH_MAX - 10), Ok(()));
    assert_eq!(check_depth(RELATION_DEPTH_MAX - 9), Err(Refusal::PlanTooDeep));
}

#[test]
fn columns_are_found_in_the_scope() {
    let of = |relation, attribute| {
        let part = Part::Column(ColumnReference { relation, attribute, levels_up: 0 });
        Source::new(part, SourceType::Integer)
    };
    assert_eq!(lowered(&of(1, NUMBER)), "column 1");
    assert_eq!(refused(&of(2, NUMBER)), Refusal::ColumnElsewhere);
    assert_eq!(refused(&of(1, 0)), Refusal::WholeRow);
    assert_eq!(refused(&of(1, -1)), Refusal::SystemColumn);
}

#[test]
fn a_placeholder_is_evaluated_over_its_own_relations() {
    let over = |relations, levels_up| {
        let expression = Box::new(column(NUMBER));
        let part = Part::Placeholder(Placeholder { id: 1, levels_up, relations, expression });
        Source::new(part, SourceType::Integer)
    };
    assert_eq!(lowered(&over(vec![1], 0)), "column 1");
    assert_eq!(refused(&over(vec![1, 2], 0)), Refusal::BelowOuterJoin);
    assert_eq!(refused(&over(vec![1], 1)), Refusal::BelowOuterJoin);
}

#[test]
fn groups_are_found_as_whole_expressions() {
    let key = call("upper", SourceType::Text, vec![column(NAME)]);
    let group = Lowered::plain(Expression::column(ColumnId(9), DataType::Text));
    let scope = Scope::Expressions(vec![(key.clone(), group.clone())]);
    let (notes, server) = (Notes::default(), TestServer::default());
    let lowering = Lowering::new(&scope, &notes, &server);
    assert_eq!(lowering.lower(&key), Ok(group));
    let length = lowering.lower(&call("length", SourceType::Integer, vec![key])).unwrap();
    assert_eq!(expression_text(&length.expression), "length(column 9)");
    assert_eq!(lowering.lower(&column(NAME)), Err(Refusal::ColumnElsewhere));
}

#[test]
fn what_is_not_known_equals_nothing() {
    let unknown = Part::Unknown(UnknownPart { kind: "T_XmlExpr".into() });
    let unknown = Source::new(unknown, SourceType::other("xml"));
    assert_ne!(unknown, unknown.clone());
    assert_eq!(evaluated(1, unknown.clone()), evaluated(1, unknown.clone()));
    assert_ne!(evaluated(1, unknown.clone()), evaluated(2, unknown.clone()));
    assert_eq!(refused(&unknown).to_string(), "an expression of kind T_XmlExpr");
    let user_defined = || Rc::new(CatalogFunction::user_defined("f"));
    let of_user = Part::Call(Call { function: user_defined(), collation: None, arguments: Vec::new() });
    let of_user = Source::new(of_user, SourceType::Integer);
    assert_ne!(of_user, of_user.clone());
    assert_eq!(refused(&of_user).to_string(), "function f");
}

#[test]
fn parts_that_rows_do_not_have_are_refused() {
    let of = |part| refused(&Source::new(part, SourceType::Integer));
    assert_eq!(of(Part::Subquery), Refusal::Subquery);
    assert_eq!(of(Part::Grouping { references: Vec::new(), levels_up: 1 }), Refusal::GroupingOfOtherLevel);
    assert_eq!(
        of(Part::Row { fields: Vec::new(), names: Vec::new() }).to_string(),
        "an expression of kind T_RowExpr"
    );
    assert_eq!(of(Part::UnusualCall { name: "unnest".into() }).to_string(), "function unnest");
    let aggregate = AggregateSource {
        function: Rc::new(CatalogFunction::builtin("count")),
        collation: None,
        is_variadic: false,
        is_of_other_level: false,
        is_distinct: false,
        arguments: Vec::new(),
        direct: Vec::new(),
        order: Vec::new(),
        filter: None,
    };
    assert_eq!(of(Part::Aggregate(Rc::new(aggregate))), Refusal::AggregateOutside);
    assert_eq!(
        lowered(&Source::new(Part::Grouping { references: Vec::new(), levels_up: 0 }, SourceType::Integer)),
        "0"
    );
}

#[test]
fn conditions_are_boolean() {
    let (scope, notes, server) = (scope(), Notes::default(), TestServer::default());
    let lowering = Lowering::new(&scope, &notes, &server);
    assert_eq!(lowering.lower_condition(&column(NAME)), Err(Refusal::Condition(DataType::Text)));
    assert!(lowering.lower_condition(&column(FLAG)).is_ok());
}
