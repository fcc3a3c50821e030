//! One expression.

use std::rc::Rc;

use pgrx::pg_sys::{self, Node, NodeTag, Oid};
use pystachio_lower::{
    ARRAY_SUBSCRIPT, AggregateSource, ArrayComparison, Call, CatalogFunction, ColumnReference, DEPTH_MAX,
    JSON_SUBSCRIPT, OrderSource, Part, Placeholder, RecordSource, RecordTest, Refusal, RowColumn, Source,
    SourceType, UnknownPart, WindowSource,
};
use pystachio_plan::Function;

use super::{
    Origins,
    catalog::{function, function_name, source_type},
    collation, constant,
    record::comparison_of_records,
};
use crate::{
    pg::{
        compat::{self, RowComparison},
        list::{integers, oids, pointers, string},
        nodes::{contains, is_deeper, list_of, tag_of},
        tree,
    },
    types::{attribute_count, base_type, composite_fields},
};

/// An expression as a value.
///
/// # Errors
///
/// If there is none, or it nests too deep.
pub fn mirror(node: tree::Node<'_>, origins: &Origins) -> Result<Source, Refusal> {
    let node = node.pointer();
    // SAFETY: a valid expression.
    unsafe {
        if is_deeper(node, DEPTH_MAX) {
            return Err(Refusal::TooDeep);
        }
        Ok(Mirror { origins }.expression(node)?.source)
    }
}

/// A composite value by its fields, if it has some that are known.
///
/// # Errors
///
/// As of [`mirror`].
pub fn mirror_record(node: tree::Node<'_>, origins: &Origins) -> Result<Option<RecordSource>, Refusal> {
    let node = node.pointer();
    // SAFETY: a valid expression.
    unsafe {
        if is_deeper(node, DEPTH_MAX) {
            return Err(Refusal::TooDeep);
        }
        Mirror { origins }.record_source(node, &mut Contents::default())
    }
}

/// A source, and facts about its parts.
pub(super) struct Seen {
    source: Source,
    /// Something that PostgreSQL can't evaluate before it has a row.
    has_columns: bool,
    /// Something volatile, as far as that was asked.
    is_volatile: bool,
}

pub(super) struct Mirror<'a> {
    origins: &'a Origins,
}

/// What the parts of one node have in them.
#[derive(Default)]
pub(super) struct Contents {
    has_columns: bool,
    pub(super) has_given: bool,
    is_volatile: bool,
}

/// The function that a node is which takes one value out of `jsonb` or an array by subscripts, of an array by one alone.
fn subscript(node: &pg_sys::SubscriptingRef) -> Option<&'static str> {
    if !node.refassgnexpr.is_null() || !node.reflowerindexpr.is_null() {
        return None;
    }
    if node.refcontainertype == pg_sys::JSONBOID {
        return Some(JSON_SUBSCRIPT);
    }
    // SAFETY: NIL or a valid list.
    let count = unsafe { pg_sys::list_length(node.refupperindexpr) };
    let is_array = source_type(node.refcontainertype).item().is_some();
    (is_array && count == 1).then_some(ARRAY_SUBSCRIPT)
}

/// The name of the field that a node takes out of a value of a named composite type.
unsafe fn field_name(node: &pg_sys::FieldSelect) -> Option<String> {
    // SAFETY: the caller has a valid node; the others are looks into catalogs.
    unsafe {
        let (type_oid, _) = base_type(pg_sys::exprType(node.arg.cast()), -1);
        let relation_oid = pg_sys::get_typ_typrelid(type_oid);
        let name = pg_sys::get_attname(relation_oid, node.fieldnum, true);
        (relation_oid != pg_sys::InvalidOid && !name.is_null()).then(|| string(name))
    }
}

/// The names of the fields of `ROW(…)`; none of a type that has lost a field.
///
/// # Safety
///
/// The node is valid.
unsafe fn field_names(row: &pg_sys::RowExpr) -> Vec<String> {
    // SAFETY: the caller has a valid node, whose names are strings.
    unsafe {
        if row.row_typeid == pg_sys::RECORDOID {
            return pointers::<pg_sys::String>(row.colnames).map(|name| string((*name).sval)).collect();
        }
        let fields = composite_fields(row.row_typeid).unwrap_or_default();
        match usize::try_from(attribute_count(row.row_typeid)) {
            Ok(count) if count == fields.len() => fields.into_iter().map(|field| field.name).collect(),
            _ => Vec::new(),
        }
    }
}

/// The names of the fields that a value of a named composite type has; none of others.
unsafe fn row_fields(record: *mut Node) -> Vec<String> {
    // SAFETY: the caller has a valid node.
    let (type_oid, _) = unsafe { base_type(pg_sys::exprType(record), -1) };
    let fields = composite_fields(type_oid).unwrap_or_default();
    fields.into_iter().map(|field| field.name).collect()
}

impl Contents {
    pub(super) fn add(&mut self, seen: Seen) -> Source {
        self.has_columns |= seen.has_columns;
        self.has_given |= seen.source.has_given;
        self.is_volatile |= seen.is_volatile;
        seen.source
    }
}

impl Mirror<'_> {
    /// # Safety
    ///
    /// The node is a valid expression.
    pub(super) unsafe fn expression(&self, node: *mut Node) -> Result<Seen, Refusal> {
        let mut contents = Contents::default();
        // SAFETY: the caller says that the node is valid.
        unsafe {
            if pg_sys::stack_is_too_deep() {
                return Err(Refusal::NoStack);
            }
            let (part, of) = self.part(node, &mut contents)?;
            let has_modifier = matches!(of, SourceType::Numeric | SourceType::Character);
            let modifier = if has_modifier { pg_sys::exprTypmod(node) } else { -1 };
            let has_given = contents.has_given;
            let mut source = Source { part, of, modifier, origin: None, has_given };
            let is_constant = matches!(source.part, Part::Constant(_));
            if !contents.has_columns && !contents.is_volatile && !is_constant {
                contents.is_volatile =
                    pg_sys::contain_volatile_functions(node) || pg_sys::expression_returns_set(node);
                if !contents.is_volatile {
                    source.origin = Some(self.origins.number(node));
                }
            }
            Ok(Seen { source, has_columns: contents.has_columns, is_volatile: contents.is_volatile })
        }
    }

    /// What a node is, and its type.
    ///
    /// # Safety
    ///
    /// The node is a valid expression.
    unsafe fn part(&self, node: *mut Node, contents: &mut Contents) -> Result<(Part, SourceType), Refusal> {
        // SAFETY: the caller says that the node is valid, and the tag says what it is.
        unsafe {
            let part = match tag_of(node) {
                NodeTag::T_Const => {
                    let known = &*node.cast::<pg_sys::Const>();
                    Part::Constant(constant(known.constvalue, known.constisnull, known.consttype))
                }
                NodeTag::T_Var => {
                    contents.has_columns = true;
                    let var = &*node.cast::<pg_sys::Var>();
                    Part::Column(ColumnReference {
                        relation: var.varno as u32,
                        attribute: var.varattno,
                        levels_up: var.varlevelsup,
                    })
                }
                NodeTag::T_PlaceHolderVar => self.placeholder(&*node.cast(), contents)?,
                NodeTag::T_Param => {
                    let kind = (*node.cast::<pg_sys::Param>()).paramkind;
                    let is_given = kind == pg_sys::ParamKind::PARAM_EXTERN;
                    contents.has_given = is_given;
                    Part::Parameter { is_given }
                }
                NodeTag::T_SQLValueFunction => Part::ServerValue,
                NodeTag::T_FuncExpr => {
                    let call = &*node.cast::<pg_sys::FuncExpr>();
                    let part = self.call(call.funcid, call.args, call.inputcollid, contents)?;
                    match call.funcvariadic || call.funcretset {
                        true => Part::UnusualCall { name: function_name(call.funcid) },
                        false => Part::Call(part),
                    }
                }
                NodeTag::T_OpExpr | NodeTag::T_DistinctExpr => self.binary(node, contents)?,
                NodeTag::T_NullIfExpr => Part::NullIf(self.operator(node.cast(), contents)?),
                NodeTag::T_ScalarArrayOpExpr => self.array_comparison(&mut *node.cast(), contents)?,
                NodeTag::T_RowCompareExpr => self.row_comparison(&*node.cast(), contents)?,
                NodeTag::T_BoolExpr => {
                    let logic = &*node.cast::<pg_sys::BoolExpr>();
                    let function = match logic.boolop {
                        pg_sys::BoolExprType::AND_EXPR => Function::And,
                        pg_sys::BoolExprType::OR_EXPR => Function::Or,
                        _ => Function::Not,
                    };
                    Part::Logic { function, arguments: self.list(logic.args, contents)? }
                }
                NodeTag::T_SubscriptingRef if subscript(&*node.cast()).is_some() => {
                    self.subscripts(&*node.cast(), contents)?
                }
                NodeTag::T_RelabelType => {
                    Part::Relabel(self.boxed((*node.cast::<pg_sys::RelabelType>()).arg, contents)?)
                }
                NodeTag::T_CoerceViaIO => {
                    Part::CoerceViaText(self.boxed((*node.cast::<pg_sys::CoerceViaIO>()).arg, contents)?)
                }
                NodeTag::T_CaseExpr => self.case(&*node.cast(), contents)?,
                NodeTag::T_CaseTestExpr => {
                    contents.has_columns = true;
                    Part::CaseOperand
                }
                NodeTag::T_CoalesceExpr => {
                    Part::Coalesce(self.list((*node.cast::<pg_sys::CoalesceExpr>()).args, contents)?)
                }
                NodeTag::T_MinMaxExpr => {
                    let call = &*node.cast::<pg_sys::MinMaxExpr>();
                    let is_greatest = call.op == pg_sys::MinMaxOp::IS_GREATEST;
                    Part::Extreme {
                        function: if is_greatest { Function::Greatest } else { Function::Least },
                        collation: collation(call.inputcollid),
                        arguments: self.list(call.args, contents)?,
                    }
                }
                NodeTag::T_NullTest => {
                    let test = &*node.cast::<pg_sys::NullTest>();
                    let is_null = test.nulltesttype == pg_sys::NullTestType::IS_NULL;
                    Part::NullTest {
                        function: if is_null { Function::IsNull } else { Function::IsNotNull },
                        argument: self.boxed(test.arg, contents)?,
                        row_fields: test.argisrow.then(|| row_fields(test.arg.cast())),
                    }
                }
                NodeTag::T_BooleanTest => {
                    let test = &*node.cast::<pg_sys::BooleanTest>();
                    let function = truth_test(test.booltesttype);
                    Part::TruthTest { function, argument: self.boxed(test.arg, contents)? }
                }
                NodeTag::T_ArrayExpr => {
                    let array = &*node.cast::<pg_sys::ArrayExpr>();
                    let items = pointers::<Node>(array.elements).map(|item| name_as_text(item));
                    let items = items.map(|item| Ok(contents.add(self.expression(item)?)));
                    Part::Array { items: items.collect::<Result<_, _>>()?, is_nested: array.multidims }
                }
                NodeTag::T_ArrayCoerceExpr => self.array_cast(node.cast(), contents)?,
                NodeTag::T_FieldSelect if field_name(&*node.cast()).is_some() => {
                    let field = &*node.cast::<pg_sys::FieldSelect>();
                    let name = field_name(field).unwrap_or_default();
                    Part::Field { record: self.boxed(field.arg, contents)?, name }
                }
                NodeTag::T_RowExpr => {
                    let row = &*node.cast::<pg_sys::RowExpr>();
                    Part::Row { fields: self.list(row.args, contents)?, names: field_names(row) }
                }
                NodeTag::T_Aggref => {
                    let known = self.origins.aggregate(node);
                    let (aggregate, has_given) = match known {
                        Some(known) => known,
                        None => {
                            let aggregate = Rc::new(self.aggregate(&*node.cast(), contents)?);
                            self.origins.keep_aggregate(node, aggregate.clone(), contents.has_given);
                            (aggregate, contents.has_given)
                        }
                    };
                    (contents.has_columns, contents.has_given) = (true, has_given);
                    Part::Aggregate(aggregate)
                }
                NodeTag::T_WindowFunc => {
                    let window = self.window(&*node.cast(), contents)?;
                    contents.has_columns = true;
                    Part::Window(Rc::new(window))
                }
                NodeTag::T_GroupingFunc => {
                    contents.has_columns = true;
                    let grouping = &*node.cast::<pg_sys::GroupingFunc>();
                    let references = integers(grouping.refs).map(|reference| reference as u32).collect();
                    Part::Grouping { references, levels_up: grouping.agglevelsup }
                }
                other => {
                    note_unknown(node, contents);
                    match other {
                        NodeTag::T_SubPlan | NodeTag::T_AlternativeSubPlan => Part::Subquery,
                        other => Part::Unknown(UnknownPart { kind: format!("{other:?}") }),
                    }
                }
            };
            let of = match part {
                // Core knows no type of some of these.
                Part::Unknown(_) if contents.has_columns => SourceType::other(""),
                _ => source_type(type_of(node)),
            };
            Ok((part, of))
        }
    }

    /// # Safety
    ///
    /// The node is a valid expression.
    unsafe fn boxed<T>(&self, node: *mut T, contents: &mut Contents) -> Result<Box<Source>, Refusal> {
        // SAFETY: as the caller says.
        Ok(Box::new(contents.add(unsafe { self.expression(node.cast())? })))
    }

    /// The expression, if there is one.
    ///
    /// # Safety
    ///
    /// The node is NULL or a valid expression.
    unsafe fn optional<T>(
        &self,
        node: *mut T,
        contents: &mut Contents,
    ) -> Result<Option<Box<Source>>, Refusal> {
        // SAFETY: as the caller says.
        if node.is_null() { Ok(None) } else { unsafe { self.boxed(node, contents).map(Some) } }
    }

    /// # Safety
    ///
    /// NIL or a valid list of valid expressions.
    unsafe fn list(&self, list: *mut pg_sys::List, contents: &mut Contents) -> Result<Vec<Source>, Refusal> {
        // SAFETY: as the caller says.
        unsafe { pointers::<Node>(list).map(|node| Ok(contents.add(self.expression(node)?))).collect() }
    }

    /// # Safety
    ///
    /// The list is valid.
    unsafe fn call(
        &self,
        function_oid: Oid,
        arguments: *mut pg_sys::List,
        collation_oid: Oid,
        contents: &mut Contents,
    ) -> Result<Call, Refusal> {
        let function = function(function_oid);
        let is_comparison = function.meaning.is_some_and(|meaning| meaning.comparison().is_some());
        // SAFETY: as the caller says.
        let arguments = unsafe {
            let nodes = pointers::<Node>(arguments);
            let nodes = nodes.map(|node| if is_comparison { name_as_text(node) } else { node });
            nodes.map(|node| Ok(contents.add(self.expression(node)?))).collect::<Result<Vec<_>, _>>()?
        };
        Ok(Call { function, collation: collation(collation_oid), arguments })
    }

    /// `json['a']['b']` and `array[n]` as calls, of which each takes one subscript.
    ///
    /// # Safety
    ///
    /// The node is valid, and a [`subscript`].
    unsafe fn subscripts(
        &self,
        node: &pg_sys::SubscriptingRef,
        contents: &mut Contents,
    ) -> Result<Part, Refusal> {
        // SAFETY: as the caller says.
        let (container, subscripts) = unsafe {
            let container = contents.add(self.expression(node.refexpr.cast())?);
            let subscripts = pointers::<Node>(node.refupperindexpr);
            let subscripts = subscripts.map(|subscript| Ok(contents.add(self.expression(subscript)?)));
            (container, subscripts.collect::<Result<Vec<_>, Refusal>>()?)
        };
        let function = Rc::new(CatalogFunction::builtin(subscript(node).unwrap_or(JSON_SUBSCRIPT)));
        let part = subscripts.into_iter().fold(container.part, |part, subscript| {
            let inner = Source { has_given: contents.has_given, ..Source::new(part, container.of.clone()) };
            Part::Call(Call {
                function: function.clone(),
                collation: None,
                arguments: vec![inner, subscript],
            })
        });
        Ok(part)
    }

    /// # Safety
    ///
    /// The node is a valid one that is laid out as an operator's.
    unsafe fn operator(
        &self,
        operator: *mut pg_sys::OpExpr,
        contents: &mut Contents,
    ) -> Result<Call, Refusal> {
        // SAFETY: as the caller says.
        unsafe {
            pg_sys::set_opfuncid(operator);
            self.call((*operator).opfuncid, (*operator).args, (*operator).inputcollid, contents)
        }
    }

    /// An operator, or `IS DISTINCT FROM` by its operator `=`.
    ///
    /// # Safety
    ///
    /// The node is a valid one that is laid out as an operator's.
    unsafe fn binary(&self, node: *mut Node, contents: &mut Contents) -> Result<Part, Refusal> {
        // SAFETY: as the caller says.
        unsafe {
            let operator = node.cast::<pg_sys::OpExpr>();
            let is_distinct = tag_of(node) == NodeTag::T_DistinctExpr;
            pg_sys::set_opfuncid(operator);
            if let Some(comparison) = comparison_of_records((*operator).opfuncid)
                && let [left, right] = pointers((*operator).args).collect::<Vec<_>>()[..]
            {
                let test =
                    if is_distinct { RecordTest::IsDistinct } else { RecordTest::Comparison(comparison) };
                if let Some(part) = self.record_comparison(test, [left, right], contents)? {
                    return Ok(part);
                }
            }
            let call = self.operator(operator, contents)?;
            Ok(if is_distinct { Part::Distinct(call) } else { Part::Call(call) })
        }
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn placeholder(
        &self,
        placeholder: &pg_sys::PlaceHolderVar,
        contents: &mut Contents,
    ) -> Result<Part, Refusal> {
        let mut relations = Vec::new();
        // SAFETY: as the caller says.
        let expression = unsafe {
            let mut relation = pg_sys::bms_next_member(placeholder.phrels, -1);
            while relation >= 0 {
                relations.push(relation.unsigned_abs());
                relation = pg_sys::bms_next_member(placeholder.phrels, relation);
            }
            self.boxed(placeholder.phexpr, contents)?
        };
        contents.has_columns = true;
        let (id, levels_up) = (placeholder.phid, placeholder.phlevelsup);
        Ok(Part::Placeholder(Placeholder { id, levels_up, relations, expression }))
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn array_comparison(
        &self,
        call: &mut pg_sys::ScalarArrayOpExpr,
        contents: &mut Contents,
    ) -> Result<Part, Refusal> {
        // SAFETY: as the caller says.
        let (function, operands) = unsafe {
            pg_sys::set_sa_opfuncid(call);
            if let Some(part) = self.record_in_array(call, contents)? {
                return Ok(part);
            }
            (function(call.opfuncid), self.list(call.args, contents)?)
        };
        let operands = <[Source; 2]>::try_from(operands).ok();
        Ok(Part::ArrayComparison(ArrayComparison {
            function,
            collation: collation(call.inputcollid),
            is_any: call.useOr,
            operands: operands.map(|[scalar, array]| Box::new((scalar, array))),
        }))
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn row_comparison(
        &self,
        call: &pg_sys::RowCompareExpr,
        contents: &mut Contents,
    ) -> Result<Part, Refusal> {
        let order = match compat::row_comparison(call) {
            RowComparison::Less => Some(Function::Less),
            RowComparison::LessEqual => Some(Function::LessEqual),
            RowComparison::Greater => Some(Function::Greater),
            RowComparison::GreaterEqual => Some(Function::GreaterEqual),
            RowComparison::Other => None,
        };
        // SAFETY: as the caller says. The lists have one length.
        let columns = unsafe {
            let operands = pointers::<Node>(call.largs).zip(pointers::<Node>(call.rargs));
            let operators = oids(call.opnos).zip(oids(call.inputcollids));
            let column = |((left, right), (operator, collation_oid))| {
                Ok(RowColumn {
                    function: function(pg_sys::get_opcode(operator)),
                    collation: collation(collation_oid),
                    left: contents.add(self.expression(name_as_text(left))?),
                    right: contents.add(self.expression(name_as_text(right))?),
                })
            };
            operands.zip(operators).map(column).collect::<Result<Vec<_>, _>>()?
        };
        Ok(Part::RowComparison { order, columns })
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn case(&self, case: &pg_sys::CaseExpr, contents: &mut Contents) -> Result<Part, Refusal> {
        // SAFETY: as the caller says.
        unsafe {
            let operand = self.optional(case.arg, contents)?;
            let branches = pointers::<pg_sys::CaseWhen>(case.args).map(|when| {
                let condition = contents.add(self.expression((*when).expr.cast())?);
                Ok((condition, contents.add(self.expression((*when).result.cast())?)))
            });
            let branches = branches.collect::<Result<_, _>>()?;
            Ok(Part::Case { operand, branches, otherwise: self.optional(case.defresult, contents)? })
        }
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn array_cast(
        &self,
        cast: *mut pg_sys::ArrayCoerceExpr,
        contents: &mut Contents,
    ) -> Result<Part, Refusal> {
        // SAFETY: as the caller says.
        unsafe {
            let array = self.boxed((*cast).arg, contents)?;
            let is_evaluated = array.is_known_at_start() && !pg_sys::contain_volatile_functions(cast.cast());
            let evaluated = is_evaluated.then(|| self.origins.number(cast.cast()));
            // Its operand stands for an element.
            contents.has_columns = true;
            Ok(Part::ArrayCast { array, evaluated })
        }
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn aggregate(
        &self,
        aggregate: &pg_sys::Aggref,
        contents: &mut Contents,
    ) -> Result<AggregateSource, Refusal> {
        // SAFETY: as the caller says.
        let (arguments, order, direct, filter) = unsafe {
            let entries: Vec<_> = pointers::<pg_sys::TargetEntry>(aggregate.args).collect();
            let mut source = |entry: *mut pg_sys::TargetEntry| {
                Ok::<_, Refusal>(contents.add(self.expression((*entry).expr.cast())?))
            };
            let own = entries.iter().filter(|entry| !(***entry).resjunk);
            let arguments = own.map(|entry| source(*entry)).collect::<Result<Vec<_>, _>>()?;
            // DISTINCT sorts by all arguments, those of ORDER BY first.
            let has_distinct = !aggregate.aggdistinct.is_null();
            let clauses = if has_distinct { aggregate.aggdistinct } else { aggregate.aggorder };
            let mut order = Vec::new();
            for clause in pointers::<pg_sys::SortGroupClause>(clauses) {
                let is_key = |entry: &&*mut pg_sys::TargetEntry| {
                    (***entry).ressortgroupref == (*clause).tleSortGroupRef
                };
                let entry = *entries.iter().find(is_key).ok_or(Refusal::SortOperator)?;
                let operator = (*clause).sortop;
                let is_builtin = u32::from(operator) < pg_sys::FirstNormalObjectId;
                order.push(OrderSource {
                    key: source(entry)?,
                    collation: collation(pg_sys::exprCollation((*entry).expr.cast())),
                    descending: tree::operator_descends(operator).filter(|_| is_builtin),
                    nulls_first: (*clause).nulls_first,
                });
            }
            let direct = pointers::<Node>(aggregate.aggdirectargs).map(|node| match is_vector(node) {
                true => Ok(contents.add(self.expression(node)?)),
                false => {
                    let kind = "an array of several dimensions".to_owned();
                    let part = Part::Unknown(UnknownPart { kind });
                    Ok(Source::new(part, source_type(type_of(node))))
                }
            });
            let direct = direct.collect::<Result<Vec<_>, Refusal>>()?;
            (arguments, order, direct, self.optional(aggregate.aggfilter, contents)?)
        };
        Ok(AggregateSource {
            function: function(aggregate.aggfnoid),
            collation: collation(aggregate.inputcollid),
            is_variadic: aggregate.aggvariadic,
            is_of_other_level: aggregate.agglevelsup > 0
                || aggregate.aggsplit != pg_sys::AggSplit::AGGSPLIT_SIMPLE,
            is_distinct: !aggregate.aggdistinct.is_null(),
            arguments,
            direct,
            order,
            filter,
        })
    }

    /// # Safety
    ///
    /// The node is valid.
    unsafe fn window(
        &self,
        call: &pg_sys::WindowFunc,
        contents: &mut Contents,
    ) -> Result<WindowSource, Refusal> {
        // SAFETY: as the caller says.
        let (arguments, filter) =
            unsafe { (self.list(call.args, contents)?, self.optional(call.aggfilter, contents)?) };
        Ok(WindowSource {
            function: function(call.winfnoid),
            is_aggregate: call.winagg,
            collation: collation(call.inputcollid),
            arguments,
            filter,
            window: call.winref,
        })
    }
}

/// Whether a node is no constant array, or one whose elements are numbered from 1 on, as those of a mirror are.
///
/// # Safety
///
/// The node is valid.
unsafe fn is_vector(node: *mut Node) -> bool {
    // SAFETY: as the caller says. Numbers of dimensions and their lower bounds follow the head of an array.
    unsafe {
        if tag_of(node) != NodeTag::T_Const {
            return true;
        }
        let value = &*node.cast::<pg_sys::Const>();
        if value.constisnull || pg_sys::get_element_type(value.consttype) == pg_sys::InvalidOid {
            return true;
        }
        let array = pg_sys::pg_detoast_datum(value.constvalue.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let bounds = array.add(1).cast::<i32>();
        (*array).ndim == 0 || ((*array).ndim == 1 && *bounds.add(1) == 1)
    }
}

/// Notes facts about the parts of a node that has no mirror.
///
/// # Safety
///
/// The node is a valid expression.
unsafe fn note_unknown(node: *mut Node, contents: &mut Contents) {
    // SAFETY: the caller says that the node is valid, and so are those below it.
    unsafe {
        contents.has_columns = contains(node, &|part| is_of_rows(tag_of(part)));
        contents.has_given = contains(node, &|part| {
            tag_of(part) == NodeTag::T_Param
                && (*part.cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_EXTERN
        });
    }
}

/// Whether PostgreSQL can't evaluate such a node before it has a row, or a query around it.
fn is_of_rows(tag: NodeTag) -> bool {
    matches!(
        tag,
        NodeTag::T_Var
            | NodeTag::T_PlaceHolderVar
            | NodeTag::T_Aggref
            | NodeTag::T_CaseTestExpr
            | NodeTag::T_SubPlan
            | NodeTag::T_AlternativeSubPlan
            | NodeTag::T_WindowFunc
            | NodeTag::T_GroupingFunc
    )
}

/// The type of an expression's value. Most nodes say it; core is asked for others.
///
/// # Safety
///
/// The node is a valid expression.
pub(super) unsafe fn type_of(node: *mut Node) -> Oid {
    // SAFETY: the caller says that the node is valid, and the tag says what it is.
    unsafe {
        match tag_of(node) {
            NodeTag::T_Var => (*node.cast::<pg_sys::Var>()).vartype,
            NodeTag::T_Const => (*node.cast::<pg_sys::Const>()).consttype,
            NodeTag::T_FuncExpr => (*node.cast::<pg_sys::FuncExpr>()).funcresulttype,
            NodeTag::T_OpExpr => (*node.cast::<pg_sys::OpExpr>()).opresulttype,
            NodeTag::T_BoolExpr
            | NodeTag::T_NullTest
            | NodeTag::T_BooleanTest
            | NodeTag::T_ScalarArrayOpExpr => pg_sys::BOOLOID,
            NodeTag::T_RelabelType => (*node.cast::<pg_sys::RelabelType>()).resulttype,
            NodeTag::T_CaseExpr => (*node.cast::<pg_sys::CaseExpr>()).casetype,
            NodeTag::T_CaseTestExpr => (*node.cast::<pg_sys::CaseTestExpr>()).typeId,
            NodeTag::T_CoalesceExpr => (*node.cast::<pg_sys::CoalesceExpr>()).coalescetype,
            NodeTag::T_Aggref => (*node.cast::<pg_sys::Aggref>()).aggtype,
            _ => pg_sys::exprType(node),
        }
    }
}

fn truth_test(kind: pg_sys::BoolTestType::Type) -> Function {
    match kind {
        pg_sys::BoolTestType::IS_TRUE => Function::IsTrue,
        pg_sys::BoolTestType::IS_NOT_TRUE => Function::IsNotTrue,
        pg_sys::BoolTestType::IS_FALSE => Function::IsFalse,
        pg_sys::BoolTestType::IS_NOT_FALSE => Function::IsNotFalse,
        pg_sys::BoolTestType::IS_UNKNOWN => Function::IsNull,
        _ => Function::IsNotNull,
    }
}

/// A value of type `name`, such as `current_user`, as the text that comparisons of `name` with `text` take it for;
/// anything else as it is.
///
/// # Safety
///
/// The node is a valid expression.
unsafe fn name_as_text(node: *mut Node) -> *mut Node {
    // SAFETY: as the caller says.
    unsafe {
        if type_of(node) != pg_sys::NAMEOID {
            return node;
        }
        let cast = pg_sys::makeFuncExpr(
            Oid::from(pg_sys::F_TEXT_NAME),
            pg_sys::TEXTOID,
            list_of([node]),
            pg_sys::DEFAULT_COLLATION_OID,
            pg_sys::C_COLLATION_OID,
            pg_sys::CoercionForm::COERCE_IMPLICIT_CAST,
        );
        cast.cast()
    }
}
