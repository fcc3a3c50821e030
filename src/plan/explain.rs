//! Plans in words, as EXPLAIN shows them.

use std::collections::HashMap;

use crate::{
    ActualRows, AggregateCall, AggregatePhase, ColumnId, DataType, ExchangeFacts, ExchangeKind, Expression,
    FrameBound, FrameExclusion, FrameUnit, Function, JoinKind, JoinSide, Literal, NamedExpression, Operator,
    Plan, Relation, RepeatedParts, ScanColumn, ScanExtent, Shown, SortKey, TrimSide, UnnestedArray, Value,
    WindowCall, WindowFrame, WindowFunction,
};

/// What is shown of a plan beside its operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanFacts<'a> {
    /// Show estimated rows.
    pub estimates: bool,
    /// Rows that the operators gave, in preorder; may be empty.
    pub actual_rows: &'a [Option<ActualRows>],
    /// Runs that gave them; shown if it is not one.
    pub run_count: u64,
    /// What is expected of the plan's exchanges, and why they are there; may be empty.
    pub exchanges: &'a [ExchangeFacts],
}

/// One line an operator, indented by two blanks a level, outermost first. Parts that an engine may compute once for all of their
/// readers ([`RepeatedParts`]) have the same number after the word `shared`. One reader's are executed, the others'
/// `never executed`.
///
/// # Units
///
/// Rows: an estimate is of one run, actual rows are the sum of all runs.
pub fn plan_lines(plan: &Plan, facts: PlanFacts<'_>) -> Vec<String> {
    let mut names = Names::default();
    names.collect(&plan.root);
    let parts = RepeatedParts::of(&plan.root, |_| true);
    let mut writer = Writer { facts, names, parts, lines: Vec::new() };
    writer.write(&plan.root, 0, false);
    writer.lines
}

/// An expression in SQL-like words; columns appear as `column id`, parameters as `$place`.
pub fn expression_text(expression: &Expression) -> String {
    Names::default().expression(expression)
}

#[derive(Default)]
struct Names {
    columns: HashMap<ColumnId, String>,
}

impl Names {
    fn collect(&mut self, relation: &Relation) {
        for input in relation.inputs() {
            self.collect(input);
        }
        match &relation.operator {
            Operator::Scan { columns, .. } => {
                for column in columns {
                    self.columns.insert(column.id, column.full_name());
                }
            }
            Operator::Project { expressions, .. } => self.name_all(expressions),
            Operator::Aggregate { groups, aggregates, phase, .. } => {
                self.name_all(groups);
                for call in aggregates {
                    let text = self.aggregate(call, *phase);
                    self.columns.insert(call.id, text);
                }
            }
            Operator::Unnest { arrays, number, .. } => {
                for UnnestedArray { array, columns } in arrays {
                    let text = match array.data_type() {
                        DataType::Int64 => self.unnested(array),
                        _ => format!("unnest({})", self.expression(array)),
                    };
                    match array.data_type().fields() {
                        Some(fields) => self.columns.extend(
                            columns
                                .iter()
                                .zip(fields)
                                .map(|(id, field)| (*id, format!("({text}).{}", field.name))),
                        ),
                        None => self.columns.extend(columns.iter().map(|id| (*id, text.clone()))),
                    }
                }
                self.columns.extend(number.map(|number| (number, "ordinality".to_owned())));
            }
            Operator::UnionAll { inputs, columns } => {
                if let Some((_, ids)) = inputs.first() {
                    for ((id, _), source) in columns.iter().zip(ids) {
                        let text = self.column(*source);
                        self.columns.insert(*id, text);
                    }
                }
            }
            Operator::Window { calls, .. } => {
                for call in calls {
                    let text = self.window_call(call);
                    self.columns.insert(call.id, text);
                }
            }
            _ => {}
        }
    }

    /// A function of a window, with its frame if that is not the usual one.
    fn window_call(&self, call: &WindowCall) -> String {
        let name = match call.function {
            WindowFunction::RowNumber => "row_number".to_owned(),
            WindowFunction::Rank => "rank".to_owned(),
            WindowFunction::DenseRank => "dense_rank".to_owned(),
            WindowFunction::PercentRank => "percent_rank".to_owned(),
            WindowFunction::CumeDist => "cume_dist".to_owned(),
            WindowFunction::Ntile(_) => "ntile".to_owned(),
            WindowFunction::Lag(offset) if offset < 0 => "lead".to_owned(),
            WindowFunction::Lag(_) => "lag".to_owned(),
            WindowFunction::FirstValue => "first_value".to_owned(),
            WindowFunction::LastValue => "last_value".to_owned(),
            WindowFunction::NthValue(_) => "nth_value".to_owned(),
            WindowFunction::Aggregate(aggregate) => format!("{aggregate:?}").to_lowercase(),
        };
        let number = match call.function {
            WindowFunction::Ntile(number) | WindowFunction::NthValue(number) => Some(number),
            WindowFunction::Lag(offset) => Some(offset.unsigned_abs()).filter(|offset| *offset != 1),
            _ => None,
        };
        let argument = match (&call.argument, call.function) {
            (None, WindowFunction::Aggregate(_)) => Some("*".to_owned()),
            (argument, _) => argument.as_ref().map(|argument| self.expression(argument)),
        };
        let arguments = join(argument.into_iter().chain(number.map(|number| number.to_string())));
        let frame = if call.function.has_frame() { self.frame(&call.frame) } else { String::new() };
        format!("{name}({arguments}){frame}")
    }

    fn frame(&self, frame: &WindowFrame) -> String {
        let is_usual = frame.start == FrameBound::Unbounded && frame.exclude == FrameExclusion::Nothing;
        let is_peers = matches!(frame.unit, FrameUnit::Range { .. }) && frame.end == FrameBound::Current;
        if is_usual && (frame.is_whole() || is_peers) {
            return String::new();
        }
        let unit = match frame.unit {
            FrameUnit::Rows => "rows",
            FrameUnit::Groups => "groups",
            FrameUnit::Range { .. } => "range",
        };
        let bound = |bound: &FrameBound, outermost| match bound {
            FrameBound::Unbounded => format!("unbounded {outermost}"),
            FrameBound::Current => "current row".to_owned(),
            FrameBound::Preceding(count) => format!("{count} preceding"),
            FrameBound::Following(count) => format!("{count} following"),
            FrameBound::Limit(limit) => self.expression(limit),
        };
        let exclude = match frame.exclude {
            FrameExclusion::Nothing => "",
            FrameExclusion::CurrentRow => " exclude current row",
            FrameExclusion::Group => " exclude group",
            FrameExclusion::Ties => " exclude ties",
        };
        let (start, end) = (bound(&frame.start, "preceding"), bound(&frame.end, "following"));
        format!(" {unit} between {start} and {end}{exclude}")
    }

    fn name_all(&mut self, expressions: &[NamedExpression]) {
        for named in expressions {
            let text = self.expression(&named.expression);
            self.columns.entry(named.id).or_insert(text);
        }
    }

    fn column(&self, id: ColumnId) -> String {
        self.columns.get(&id).cloned().unwrap_or_else(|| format!("column {}", id.0))
    }

    /// What a call computes. One of partial results computes what they are of.
    fn aggregate(&self, call: &AggregateCall, phase: AggregatePhase) -> String {
        if let (AggregatePhase::Final, Some(partial)) = (phase, &call.argument) {
            return self.expression(partial);
        }
        let name = format!("{:?}", call.function).to_lowercase();
        let distinct = if call.distinct { "DISTINCT " } else { "" };
        let argument = call.argument.as_ref().map_or_else(|| "*".to_string(), |part| self.expression(part));
        let filter = call
            .filter
            .as_ref()
            .map_or_else(String::new, |part| format!(" FILTER ({})", self.expression(part)));
        let keys = join(call.order.iter().map(|key| sort_key_text(key, self)));
        let order = if keys.is_empty() { keys } else { format!(" ORDER BY {keys}") };
        format!("{name}({distinct}{argument}{order}){filter}")
    }

    fn list(&self, expressions: &[Expression]) -> String {
        join(expressions.iter().map(|part| self.expression(part)))
    }

    /// What rows are unnested of: an array, or the last number of a series.
    fn unnested(&self, array: &Expression) -> String {
        match array.data_type() {
            DataType::Int64 => format!("generate_series(1, {})", self.expression(array)),
            _ => self.expression(array),
        }
    }

    fn expression(&self, expression: &Expression) -> String {
        match expression {
            Expression::Column { id, .. } => self.column(*id),
            Expression::Literal(literal) => literal_text(literal),
            Expression::Parameter { index, .. } => format!("${}", index + 1),
            Expression::Case { branches, otherwise, .. } => {
                let mut text = "CASE".to_string();
                for branch in branches {
                    text += &format!(
                        " WHEN {} THEN {}",
                        self.expression(&branch.condition),
                        self.expression(&branch.result)
                    );
                }
                if let Some(otherwise) = otherwise {
                    text += &format!(" ELSE {}", self.expression(otherwise));
                }
                text + " END"
            }
            Expression::Call { function, arguments, data_type } => self.call(function, arguments, data_type),
        }
    }

    fn call(&self, function: &Function, arguments: &[Expression], data_type: &DataType) -> String {
        let entry = function.entry();
        match entry.shown {
            Shown::Call => self.prefix(entry.name, arguments),
            Shown::Infix(operator) => {
                let parts: Vec<_> = arguments.iter().map(|part| self.expression(part)).collect();
                format!("({})", parts.join(&format!(" {operator} ")))
            }
            Shown::Postfix(words) => format!("({} {words})", self.list(arguments)),
            Shown::Prefix(word) => format!("({word} {})", self.list(arguments)),
            Shown::List => match arguments.split_first() {
                Some((first, [list @ Expression::Parameter { data_type: DataType::List(_), .. }])) => {
                    format!("({} = ANY ({}))", self.expression(first), self.expression(list))
                }
                Some((first, rest)) => format!("({} IN ({}))", self.expression(first), self.list(rest)),
                None => "IN".into(),
            },
            Shown::Any => match arguments {
                [a, b] => format!("({} = ANY ({}))", self.expression(a), self.expression(b)),
                _ => self.prefix(entry.name, arguments),
            },
            Shown::Subscript => match arguments {
                [a, b] => format!("{}[{}]", self.expression(a), self.expression(b)),
                _ => self.prefix(entry.name, arguments),
            },
            Shown::Quotient => match arguments {
                [a, b, _] => format!("({} / {})", self.expression(a), self.expression(b)),
                _ => self.prefix("divide", arguments),
            },
            Shown::Cast => format!("({})::{data_type}", self.list(arguments)),
            Shown::CastOfFirst => {
                format!("({})::{data_type}", self.list(arguments.get(..1).unwrap_or_default()))
            }
            Shown::FieldFrom => format!("{}({} FROM {})", entry.name, field(function), self.list(arguments)),
            Shown::Field => format!("{}({}, {})", entry.name, field(function), self.list(arguments)),
            Shown::Trim => {
                let name = match function {
                    Function::Trim(TrimSide::Leading) => "ltrim",
                    Function::Trim(TrimSide::Trailing) => "rtrim",
                    _ => "btrim",
                };
                self.prefix(name, arguments)
            }
        }
    }

    fn prefix(&self, name: &str, arguments: &[Expression]) -> String {
        format!("{name}({})", self.list(arguments))
    }
}

struct Writer<'a> {
    facts: PlanFacts<'a>,
    names: Names,
    parts: RepeatedParts,
    lines: Vec<String>,
}

impl Writer<'_> {
    /// `is_shared`: below a part that has several readers.
    fn write(&mut self, relation: &Relation, depth: usize, is_shared: bool) {
        let facts = self.facts;
        // Lines are in preorder, as the actual rows are.
        let actual = facts.actual_rows.get(self.lines.len()).copied();
        let mut shown = Vec::new();
        if facts.estimates {
            shown.push(format!("rows={:.0}", relation.estimate.rows));
        }
        match actual {
            Some(Some(actual)) => {
                shown.push(format!("actual={}", actual.row_count));
                if facts.run_count > 1 {
                    shown.push(format!("runs={}", facts.run_count));
                }
                if actual.is_reduced {
                    shown.push("reduced".into());
                }
            }
            Some(None) if is_shared => shown.push("never executed".into()),
            _ => {}
        }
        let mut words = describe(relation, &self.names);
        let group = self.parts.group(relation);
        if let Some(group) = group {
            words += &format!(", shared {}", group + 1);
        }
        if let Operator::Exchange { id, .. } = &relation.operator
            && let Some(exchange) = facts.exchanges.iter().find(|exchange| exchange.id == *id)
        {
            words += &format!(": {}", exchange.reason);
            if facts.estimates {
                shown.insert(1, format!("bytes={:.0}", exchange.bytes));
            }
        }
        let shown = if shown.is_empty() { String::new() } else { format!("  ({})", shown.join(" ")) };
        self.lines.push(format!("{}{words}{shown}", "  ".repeat(depth)));
        for input in relation.inputs() {
            self.write(input, depth + 1, is_shared || group.is_some());
        }
    }
}

fn describe(relation: &Relation, names: &Names) -> String {
    match &relation.operator {
        Operator::Scan { table, files, columns, filters, extent } => {
            let mut text = match extent {
                _ if files.is_sent() => format!("Rows of {table}"),
                ScanExtent::Whole => format!("Scan {table}"),
                ScanExtent::Partitioned => format!("Partitioned scan {table}"),
                ScanExtent::Range { column, .. } => {
                    let name = columns.iter().find(|known| known.id == *column).map(ScanColumn::full_name);
                    format!("Scan {table} partitioned by ranges of {}", name.as_deref().unwrap_or("a column"))
                }
            };
            if files.format.version().is_some() {
                text += &format!(" ({})", files.format);
            }
            if !columns.is_empty() {
                text += &format!(" [{}]", join(columns.iter().map(ScanColumn::full_name)));
            }
            if let Some(filter) = Expression::all_of(filters.clone()) {
                text += &format!(" filter {}", names.expression(&filter));
            }
            text
        }
        Operator::Filter { predicate, .. } => format!("Filter {}", names.expression(predicate)),
        Operator::Project { expressions, .. } => {
            let computed = expressions
                .iter()
                .filter(|named| !matches!(named.expression, Expression::Column { .. }))
                .map(|named| names.expression(&named.expression));
            let text = join(computed);
            if text.is_empty() { "Project".into() } else { format!("Project {text}") }
        }
        Operator::Join { kind, keys, residual, build, .. } => {
            let kind = match kind {
                JoinKind::Inner => "Inner",
                JoinKind::Left => "Left",
                JoinKind::Full => "Full",
                JoinKind::Semi => "Semi",
                JoinKind::Anti => "Anti",
                JoinKind::NullAwareAnti => "Null-aware anti",
            };
            let mut text = format!("{kind} join");
            if !keys.is_empty() {
                let pairs = keys
                    .iter()
                    .map(|key| format!("{} = {}", names.expression(&key.left), names.expression(&key.right)));
                text += &format!(" on {}", pairs.collect::<Vec<_>>().join(" AND "));
            }
            if let Some(residual) = residual {
                text += &format!(" if {}", names.expression(residual));
            }
            match build {
                JoinSide::Left => text + ", build left",
                JoinSide::Right => text + ", build right",
            }
        }
        Operator::Aggregate { groups, aggregates, phase, .. } => {
            let keys = join(groups.iter().map(|named| names.expression(&named.expression)));
            let calls = join(aggregates.iter().map(|call| names.aggregate(call, *phase)));
            let (distinct, aggregate) = match phase {
                AggregatePhase::Whole => ("Distinct", "Aggregate"),
                AggregatePhase::Partial => ("Partial distinct", "Partial aggregate"),
                AggregatePhase::Final => ("Final distinct", "Final aggregate"),
            };
            match (keys.is_empty(), calls.is_empty()) {
                (false, true) => format!("{distinct} {keys}"),
                (false, false) => format!("{aggregate} {calls} by {keys}"),
                (true, _) => format!("{aggregate} {calls}"),
            }
        }
        Operator::Sort { keys, .. } => {
            format!("Sort by {}", join(keys.iter().map(|key| sort_key_text(key, names))))
        }
        Operator::Limit { offset, count, .. } => {
            let count = count.as_ref().map_or_else(|| "all".to_string(), |part| names.expression(part));
            let offset = offset
                .as_ref()
                .map_or_else(String::new, |part| format!(" offset {}", names.expression(part)));
            format!("Limit {count}{offset}")
        }
        Operator::Unnest { arrays, number, keeps_rows, .. } => {
            let numbered = if number.is_some() { " with ordinality" } else { "" };
            let kept = if *keeps_rows { ", keeping rows without elements" } else { "" };
            let arrays: Vec<_> = arrays.iter().map(|unnested| names.unnested(&unnested.array)).collect();
            format!("Unnest {}{numbered}{kept}", arrays.join(", "))
        }
        Operator::Window { partition, order, calls, .. } => {
            let calls = join(calls.iter().map(|call| names.window_call(call)));
            let mut over = Vec::new();
            if !partition.is_empty() {
                over.push(format!("partition by {}", names.list(partition)));
            }
            if !order.is_empty() {
                over.push(format!("order by {}", join(order.iter().map(|key| sort_key_text(key, names)))));
            }
            format!("Window {calls} over ({})", over.join(" "))
        }
        Operator::UnionAll { inputs, .. } => format!("Union all of {}", inputs.len()),
        Operator::Exchange { id, kind, reach, .. } => match kind {
            ExchangeKind::Hash { keys } => format!("Shuffle {}{reach} by {}", id.0, names.list(keys)),
            ExchangeKind::HashOrBroadcast { keys, bytes_max, heavy } => {
                let (keys, heavy) = (names.list(keys), heavy_text(heavy));
                format!("Shuffle {} by {keys}, or broadcast up to {bytes_max} bytes{heavy}", id.0)
            }
            ExchangeKind::HashOrStay { keys, partner, heavy } => {
                let (keys, heavy) = (names.list(keys), heavy_text(heavy));
                format!("Shuffle {} by {keys}, or stay if {} is broadcast{heavy}", id.0, partner.0)
            }
            ExchangeKind::Broadcast => format!("Broadcast {}{reach}", id.0),
            ExchangeKind::Gather => format!("Gather {}{reach}", id.0),
            ExchangeKind::Merge { keys } => {
                let keys = join(keys.iter().map(|key| sort_key_text(key, names)));
                format!("Merge {}{reach} by {keys}", id.0)
            }
            ExchangeKind::Own { keys } if keys.is_empty() => format!("Own {} of rank 0", id.0),
            ExchangeKind::Own { keys } => format!("Own {} by {}", id.0, names.list(keys)),
        },
    }
}

/// How many heavy keys there are. Not which: they are statistics of a table, which some users may not read.
fn heavy_text(heavy: &[Value]) -> String {
    if heavy.is_empty() { String::new() } else { format!("; heavy keys split: {}", heavy.len()) }
}

fn sort_key_text(key: &SortKey, names: &Names) -> String {
    let direction = if key.descending { " DESC" } else { "" };
    let nulls = match (key.descending, key.nulls_first) {
        (false, true) => " NULLS FIRST",
        (true, false) => " NULLS LAST",
        _ => "",
    };
    format!("{}{direction}{nulls}", names.expression(&key.expression))
}

/// A timestamp, with the zone that it is shown in.
fn timestamp_text(microseconds: i64, zone: &str) -> String {
    let date = date_text(microseconds.div_euclid(86_400_000_000));
    let seconds = microseconds.rem_euclid(86_400_000_000) / 1_000_000;
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!("{} {hour:02}:{minute:02}:{:02}{zone}'", date.trim_end_matches('\''), seconds % 60)
}

fn literal_text(literal: &Literal) -> String {
    match &literal.value {
        Value::Null => "NULL".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) if literal.data_type == DataType::Date => date_text(*value),
        Value::Int(value) if literal.data_type == DataType::Timestamp => timestamp_text(*value, ""),
        Value::Int(value) if literal.data_type == DataType::TimestampTz => timestamp_text(*value, "+00"),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Decimal(unscaled) => decimal_text(*unscaled, &literal.data_type),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Bytes(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("'\\x{digits}'")
        }
        Value::Interval(interval) => format!(
            "interval '{} months {} days {} microseconds'",
            interval.months, interval.days, interval.microseconds
        ),
    }
}

fn decimal_text(unscaled: i128, data_type: &DataType) -> String {
    let DataType::Decimal { scale, .. } = data_type else { return unscaled.to_string() };
    let scale = usize::from(*scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Civil date from days since 1970-01-01. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", section `civil_from_days`.
fn date_text(days: i64) -> String {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("'{year:04}-{month:02}-{day:02}'")
}

/// The word for the field that a function has; nothing for one without.
fn field(function: &Function) -> &'static str {
    match function {
        Function::Extract(field)
        | Function::DatePart(field)
        | Function::DateTrunc(field)
        | Function::DateTruncInZone(field) => field.word(),
        _ => "",
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_read_as_sql() {
        let decimal = DataType::Decimal { precision: 15, scale: 2 };
        let text = |value, data_type| literal_text(&Literal::new(value, data_type));
        assert_eq!(text(Value::Decimal(-5), decimal.clone()), "-0.05");
        assert_eq!(text(Value::Decimal(12345), decimal), "123.45");
        assert_eq!(text(Value::Int(9204), DataType::Date), "'1995-03-15'");
        assert_eq!(text(Value::Int(0), DataType::Timestamp), "'1970-01-01 00:00:00'");
        assert_eq!(text(Value::Int(-1), DataType::TimestampTz), "'1969-12-31 23:59:59+00'");
        assert_eq!(text(Value::Text("it's".into()), DataType::Text), "'it''s'");
    }

    #[test]
    fn calls_read_as_sql() {
        let column = Expression::column(ColumnId(3), DataType::Text);
        let length = Expression::call(Function::OctetLength, vec![column], DataType::Int32);
        let equal = Expression::predicate(Function::Equal, vec![length, Expression::int32(3)]);
        assert_eq!(expression_text(&equal), "(octet_length(column 3) = 3)");
        let name = crate::LocaleName::new("C.UTF-8").map(crate::Ctype::Libc);
        for ctype in [Some(crate::Ctype::Ascii), name].into_iter().flatten() {
            let column = Expression::column(ColumnId(3), DataType::Text);
            let upper = Expression::call(Function::Upper(ctype), vec![column], DataType::Text);
            assert_eq!(expression_text(&upper), "upper(column 3)");
        }
    }

    #[test]
    fn estimates_stand_beside_actual_rows() {
        let scan = Relation::empty_scan(7.4);
        let limit = Operator::Limit { input: scan, offset: None, count: None };
        let plan = Plan { root: Relation::new(limit, 5.0), outputs: Vec::new() };
        let rows = |row_count, is_reduced| Some(ActualRows { row_count, is_reduced });
        let lines = |estimates, actual_rows: &[_], run_count| {
            plan_lines(&plan, PlanFacts { estimates, actual_rows, run_count, exchanges: &[] }).join("|")
        };
        assert_eq!(lines(false, &[], 0), "Limit all|  Scan t");
        assert_eq!(lines(true, &[], 1), "Limit all  (rows=5)|  Scan t  (rows=7)");
        assert_eq!(
            lines(true, &[rows(4, false), rows(6, true)], 1),
            "Limit all  (rows=5 actual=4)|  Scan t  (rows=7 actual=6 reduced)"
        );
        assert_eq!(lines(false, &[rows(8, false), None], 2), "Limit all  (actual=8 runs=2)|  Scan t");
    }

    #[test]
    fn a_shared_part_is_executed_for_one_reader() {
        let groups = |id| {
            let aggregate = Operator::Aggregate {
                input: Relation::empty_scan(7.0),
                groups: vec![NamedExpression { id: ColumnId(id), expression: Expression::int32(3) }],
                aggregates: Vec::new(),
                phase: AggregatePhase::Whole,
            };
            (ColumnId(id), Relation::new(aggregate, 1.0))
        };
        let inputs = vec![groups(1), groups(2)].into_iter().map(|(id, input)| (input, vec![id])).collect();
        let union = Operator::UnionAll { inputs, columns: vec![(ColumnId(3), DataType::Int32)] };
        let plan = Plan { root: Relation::new(union, 2.0), outputs: Vec::new() };
        let rows = |row_count| Some(ActualRows { row_count, is_reduced: false });
        let actual_rows = &[rows(2), rows(1), None, rows(1), rows(7)];
        let lines = plan_lines(&plan, PlanFacts { actual_rows, run_count: 1, ..PlanFacts::default() });
        assert_eq!(
            lines[1..].join("|"),
            concat!(
                "  Distinct 3, shared 1  (actual=1)|    Scan t  (never executed)|",
                "  Distinct 3, shared 1  (actual=1)|    Scan t  (actual=7)",
            )
        );
    }
}
