//! Relational operators.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Aggregate, AggregatePhase, DataType, ExchangeId, ExchangeKind, ExchangeReach, Expression, FileColumn,
    FileSet, RecordField, TableFormat, Value, WindowCall,
    depth::{RELATION_DEPTH_MAX, decode_levels},
};

/// The identity of a column within one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ColumnId(pub u32);

/// What the planner expects of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Rows of output.
    pub rows: f64,
}

/// An operator with its estimate. Cheap to clone: inputs are shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Relation {
    /// The operator and its inputs.
    pub operator: Operator,
    /// What the planner expects of it.
    pub estimate: Estimate,
}

decode_levels!(Relation, RELATION_DEPTH, RELATION_DEPTH_MAX, "plan");

/// A relational operator. Each variant says which columns it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operator {
    /// Rows of Parquet files. Columns: `columns`.
    Scan {
        /// The foreign table's name, for messages and EXPLAIN.
        table: String,
        /// Where the rows are.
        files: FileSet,
        /// What is read, and as which type. May be empty: then only the count of rows matters.
        columns: Vec<ScanColumn>,
        /// Conditions that every row must meet (AND), in no order: what must come after others is a `Filter` above.
        filters: Vec<Expression>,
        /// Which of the rows a rank reads.
        extent: ScanExtent,
    },
    /// The rows for which `predicate` is true. Columns: the input's. A predicate that could fail is not evaluated for a
    /// row that conditions below, of filters and of the scan, drop: what a policy hides, no condition above it sees.
    Filter {
        /// Input.
        input: Arc<Relation>,
        /// A boolean.
        predicate: Expression,
    },
    /// Columns: `expressions`, and nothing else.
    Project {
        /// Input.
        input: Arc<Relation>,
        /// New columns; an id that the input has may pass through as itself.
        expressions: Vec<NamedExpression>,
    },
    /// Columns: left then right; `Semi`, `Anti` and `NullAwareAnti`: left only.
    Join {
        /// Which rows come out.
        kind: JoinKind,
        /// The preserved side of `Left`, `Semi` and the anti joins.
        left: Arc<Relation>,
        /// The other side.
        right: Arc<Relation>,
        /// Equalities; NULL equals nothing. May be empty: then every pair is tried.
        keys: Vec<JoinKey>,
        /// A further condition on the pair, part of the join condition.
        residual: Option<Expression>,
        /// The side that the planner would build the hash table from.
        build: JoinSide,
    },
    /// One row a group; one row in all if `groups` is empty. NULLs form one group. Columns: `groups`,
    /// then `aggregates`. With groups and no aggregates this is DISTINCT.
    Aggregate {
        /// Input.
        input: Arc<Relation>,
        /// What is grouped by.
        groups: Vec<NamedExpression>,
        /// What is computed per group.
        aggregates: Vec<AggregateCall>,
        /// What the aggregates' arguments and results are.
        phase: AggregatePhase,
    },
    /// Rows in order. Columns: the input's.
    Sort {
        /// Input.
        input: Arc<Relation>,
        /// First key first.
        keys: Vec<SortKey>,
    },
    /// Rows `offset` to `offset + count` of the input's order. Columns: the input's.
    Limit {
        /// Input.
        input: Arc<Relation>,
        /// Rows skipped; an Int64 literal or parameter; NULL and absent mean 0; negative is an error.
        offset: Option<Expression>,
        /// Rows kept; NULL and absent mean all; negative is an error.
        count: Option<Expression>,
    },
    /// The rows of all inputs. Columns: `columns`; the n-th takes the n-th of each input's list.
    UnionAll {
        /// Inputs, each with the ids of its columns that go into the union.
        inputs: Vec<(Arc<Relation>, Vec<ColumnId>)>,
        /// Ids and types of the result.
        columns: Vec<(ColumnId, DataType)>,
    },
    /// Each row once for each element of its longest array, in their order; of shorter arrays NULL. Columns: the input's, those of
    /// `arrays`, and `number` where it is wanted. An Int64 stands for the array of the numbers from 1 to it, which may be many.
    Unnest {
        /// Input.
        input: Arc<Relation>,
        /// Arrays.
        arrays: Vec<UnnestedArray>,
        /// The id of the element's number, an Int64 from 1.
        number: Option<ColumnId>,
        /// Whether a row without elements comes out once, with NULL for all.
        keeps_rows: bool,
    },
    /// Each row with functions of the rows around it. Columns: the input's, then those of `calls`.
    Window {
        /// Input.
        input: Arc<Relation>,
        /// Equal values of these make a partition; NULLs are equal. May be empty: then all rows are one.
        partition: Vec<Expression>,
        /// The order within a partition; may be empty.
        order: Vec<SortKey>,
        /// What is computed.
        calls: Vec<WindowCall>,
    },
    /// The input's rows, on the ranks that `kind` says. All ranks of a query run the same tree, and meet here. Columns:
    /// the input's.
    Exchange {
        /// Input.
        input: Arc<Relation>,
        /// Which exchange of the plan this is.
        id: ExchangeId,
        /// Where rows go.
        kind: ExchangeKind,
        /// Whether it is whole, or one of two.
        reach: ExchangeReach,
    },
}

/// Which rows of its files a scan reads on a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScanExtent {
    /// All of them, on every rank that runs the plan.
    Whole,
    /// Those that are assigned to the rank: each row to one rank, by all ranks in the same way, and about as many bytes to each.
    Partitioned,
    /// Those whose column has a value in the rank's range; rank 0 also those where it is NULL.
    Range {
        /// A column of the scan: integers, dates or timestamps.
        column: ColumnId,
        /// The first value of each rank but the first, ascending, as integers, days or microseconds: one less than there are
        /// ranks.
        cuts: Vec<i64>,
    },
}

/// A column that a scan reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanColumn {
    /// Its id.
    pub id: ColumnId,
    /// The name in the files, matched exactly first and then without regard to case.
    pub name: String,
    /// The id in the files, by which it is found in a file that has ids, whatever its name is there.
    pub field_id: Option<i32>,
    /// The names of the fields on the way from the file's column to the one that is read, matched as `name` is. Empty: the column itself. Below a
    /// list it is the field of each element, and the values are lists.
    pub within: Vec<String>,
    /// The type it is declared as; a file whose type can't be read as this is an error.
    pub data_type: DataType,
    /// Declared NOT NULL: a NULL is an error.
    pub not_null: bool,
    /// The most characters a text may have, from `varchar(n)` or `char(n)`; more is an error.
    pub length_max: Option<u32>,
    /// Whether trailing blanks are removed (`char(n)`).
    pub trim_blanks: bool,
    /// What of a file it has.
    pub content: ColumnContent,
    /// Values that many rows have, as far as that is known: it changes where rows go and never what comes out.
    pub common: Vec<CommonValue>,
}

impl ScanColumn {
    /// Which column of the files it is.
    pub fn file_column(&self) -> FileColumn {
        FileColumn { name: self.name.clone(), field_id: self.field_id }
    }

    /// The type of the file's column as the scan reads it: of fields of a list's elements the list, of structs with that field alone.
    pub fn read_type(&self) -> DataType {
        let DataType::List(item) = &self.data_type else { return self.data_type.clone() };
        let mut is_leaf = true;
        let item = self.within.iter().rev().fold((**item).clone(), |data_type, name| {
            let leaf = std::mem::take(&mut is_leaf);
            DataType::Record(vec![RecordField {
                name: name.clone(),
                data_type,
                length_max: self.length_max.filter(|_| leaf),
                trim_blanks: self.trim_blanks && leaf,
                is_json: false,
            }])
        });
        DataType::List(Box::new(item))
    }

    /// The name with those of the fields, for messages.
    pub fn full_name(&self) -> String {
        std::iter::once(&self.name).chain(&self.within).map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// What a column of a scan has of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColumnContent {
    /// The values of the file's column of that name, or of a folder's key.
    #[default]
    Column,
    /// The same of a column that is declared `json` or `jsonb`: nested values as JSON text.
    Json,
    /// The file's absolute path, in each row.
    FileName,
    /// The number of the row in the file, from 0 on.
    RowNumber,
}

/// A value that many rows of a column have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommonValue {
    /// Of the column's type; NULL too.
    pub value: Value,
    /// Which part of all rows has it, of 1.
    pub share: f64,
}

/// An expression that becomes a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedExpression {
    /// The column's id.
    pub id: ColumnId,
    /// Its value.
    pub expression: Expression,
}

/// Which rows a join gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JoinKind {
    /// Matching pairs.
    Inner,
    /// Matching pairs, and left rows without a match.
    Left,
    /// Matching pairs, and rows of both sides without a match.
    Full,
    /// Left rows with a match, each once.
    Semi,
    /// Left rows without a match.
    Anti,
    /// `left NOT IN (right)` with one key: left rows for which the key equals no right key and neither
    /// is NULL; all left rows if the right side is empty.
    NullAwareAnti,
}

/// One of a join's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JoinSide {
    /// The left input.
    Left,
    /// The right input.
    Right,
}

/// An equality between an expression over the left input and one over the right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinKey {
    /// Over the left input's columns.
    pub left: Expression,
    /// Over the right input's columns.
    pub right: Expression,
}

/// One aggregate of an [`Operator::Aggregate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// The id of its result.
    pub id: ColumnId,
    /// Which aggregate.
    pub function: Aggregate,
    /// None for `count(*)`, otherwise one.
    pub argument: Option<Expression>,
    /// Whether equal inputs count once.
    pub distinct: bool,
    /// FILTER (WHERE …): only rows for which this is true.
    pub filter: Option<Expression>,
    /// The type of its result.
    pub data_type: DataType,
    /// In which order inputs come. Empty for all but [`Aggregate::Array`], which alone tells one from another.
    pub order: Vec<SortKey>,
}

/// One key of a sort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortKey {
    /// The value sorted by.
    pub expression: Expression,
    /// Greatest first.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// A whole query for an engine: an operator tree and the columns it returns, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The tree.
    pub root: Arc<Relation>,
    /// The columns returned. May be empty: then only the count of rows matters.
    pub outputs: Vec<ColumnId>,
}

/// An array whose elements become rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnnestedArray {
    /// The array, or an Int64: the last number of a series from 1 on.
    pub array: Expression,
    /// The id of the element; of elements of a composite type those of their fields, in order.
    pub columns: Vec<ColumnId>,
}

impl AggregateCall {
    /// What it reads of a row: argument, filter, and the keys of its order.
    pub fn inputs(&self) -> impl Iterator<Item = &Expression> {
        let keys = self.order.iter().map(|key| &key.expression);
        self.argument.iter().chain(&self.filter).chain(keys)
    }

    /// The same, to be changed.
    pub fn inputs_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let keys = self.order.iter_mut().map(|key| &mut key.expression);
        self.argument.iter_mut().chain(&mut self.filter).chain(keys)
    }
}

impl UnnestedArray {
    /// The columns with their types.
    pub fn typed_columns(&self) -> Vec<(ColumnId, DataType)> {
        let types: Vec<DataType> = match self.array.data_type().item() {
            DataType::Record(fields) => fields.iter().map(|field| field.data_type.clone()).collect(),
            single => vec![single.clone()],
        };
        self.columns.iter().copied().zip(types).collect()
    }
}

impl Relation {
    /// An operator with its estimated rows.
    pub fn new(operator: Operator, rows: f64) -> Arc<Self> {
        Arc::new(Self { operator, estimate: Estimate { rows } })
    }

    /// The ids and types of the operator's columns, in order.
    pub fn columns(&self) -> Vec<(ColumnId, DataType)> {
        match &self.operator {
            Operator::Scan { columns, .. } => {
                columns.iter().map(|column| (column.id, column.data_type.clone())).collect()
            }
            Operator::UnionAll { columns, .. } => columns.clone(),
            Operator::Filter { input, .. }
            | Operator::Sort { input, .. }
            | Operator::Limit { input, .. }
            | Operator::Exchange { input, .. } => input.columns(),
            Operator::Project { expressions, .. } => named_columns(expressions),
            Operator::Unnest { input, arrays, number, .. } => {
                let mut columns = input.columns();
                columns.extend(arrays.iter().flat_map(UnnestedArray::typed_columns));
                columns.extend(number.map(|number| (number, DataType::Int64)));
                columns
            }
            Operator::Window { input, calls, .. } => {
                let mut columns = input.columns();
                columns.extend(calls.iter().map(|call| (call.id, call.data_type.clone())));
                columns
            }
            Operator::Join { kind, left, right, .. } => {
                let mut columns = left.columns();
                if kind.keeps_right_columns() {
                    columns.extend(right.columns());
                }
                columns
            }
            Operator::Aggregate { groups, aggregates, .. } => {
                let mut columns = named_columns(groups);
                columns.extend(aggregates.iter().map(|call| (call.id, call.data_type.clone())));
                columns
            }
        }
    }

    /// The same tree with `change` applied to every expression and to all parts of it, innermost first.
    pub fn map_expressions(&self, change: &mut dyn FnMut(&mut Expression)) -> Arc<Relation> {
        let mut changed = self.map_inputs(&mut |input| input.map_expressions(change));
        Arc::make_mut(&mut changed).expressions_mut().into_iter().for_each(|part| part.map_parts(change));
        changed
    }

    /// The same tree with the ids that `change` gives for its columns, the lowest operators first.
    pub fn map_columns(&self, change: &mut dyn FnMut(ColumnId) -> ColumnId) -> Arc<Relation> {
        let mut changed = self.map_inputs(&mut |input| input.map_columns(change));
        let relation = Arc::make_mut(&mut changed);
        match &mut relation.operator {
            Operator::Scan { columns, extent, .. } => {
                columns.iter_mut().for_each(|column| column.id = change(column.id));
                if let ScanExtent::Range { column, .. } = extent {
                    *column = change(*column);
                }
            }
            Operator::Project { expressions: named, .. } | Operator::Aggregate { groups: named, .. } => {
                named.iter_mut().for_each(|named| named.id = change(named.id));
            }
            Operator::UnionAll { inputs, columns } => {
                inputs.iter_mut().flat_map(|(_, ids)| ids).for_each(|id| *id = change(*id));
                columns.iter_mut().for_each(|(id, _)| *id = change(*id));
            }
            Operator::Unnest { arrays, number, .. } => {
                arrays.iter_mut().flat_map(|unnested| &mut unnested.columns).for_each(|id| *id = change(*id));
                number.iter_mut().for_each(|number| *number = change(*number));
            }
            Operator::Window { calls, .. } => calls.iter_mut().for_each(|call| call.id = change(call.id)),
            Operator::Filter { .. }
            | Operator::Join { .. }
            | Operator::Sort { .. }
            | Operator::Limit { .. }
            | Operator::Exchange { .. } => {}
        }
        if let Operator::Aggregate { aggregates, .. } = &mut relation.operator {
            aggregates.iter_mut().for_each(|call| call.id = change(call.id));
        }
        for expression in relation.expressions_mut() {
            expression.map_parts(&mut |part| {
                if let Expression::Column { id, .. } = part {
                    *id = change(*id);
                }
            });
        }
        changed
    }

    /// The expressions of this operator alone, to be changed.
    fn expressions_mut(&mut self) -> Vec<&mut Expression> {
        match &mut self.operator {
            Operator::Scan { filters, .. } => filters.iter_mut().collect(),
            Operator::Filter { predicate, .. } => vec![predicate],
            Operator::Project { expressions, .. } => {
                expressions.iter_mut().map(|named| &mut named.expression).collect()
            }
            Operator::Join { keys, residual, .. } => {
                keys.iter_mut().flat_map(|key| [&mut key.left, &mut key.right]).chain(residual).collect()
            }
            Operator::Aggregate { groups, aggregates, .. } => {
                let inputs = aggregates.iter_mut().flat_map(AggregateCall::inputs_mut);
                groups.iter_mut().map(|named| &mut named.expression).chain(inputs).collect()
            }
            Operator::Sort { keys, .. } => keys.iter_mut().map(|key| &mut key.expression).collect(),
            Operator::Limit { offset, count, .. } => offset.iter_mut().chain(count).collect(),
            Operator::UnionAll { .. } => Vec::new(),
            Operator::Unnest { arrays, .. } => {
                arrays.iter_mut().map(|unnested| &mut unnested.array).collect()
            }
            Operator::Window { partition, order, calls, .. } => {
                let keys = order.iter_mut().map(|key| &mut key.expression);
                let calls = calls.iter_mut().flat_map(WindowCall::expressions_mut);
                partition.iter_mut().chain(keys).chain(calls).collect()
            }
            Operator::Exchange { kind, .. } => kind.expressions_mut().collect(),
        }
    }

    /// The same operator over what `change` makes of its inputs.
    pub fn map_inputs(&self, change: &mut dyn FnMut(&Arc<Relation>) -> Arc<Relation>) -> Arc<Relation> {
        let mut changed = self.clone();
        changed.inputs_mut().into_iter().for_each(|input| *input = change(input));
        Arc::new(changed)
    }

    /// The inputs, to be changed.
    pub(crate) fn inputs_mut(&mut self) -> Vec<&mut Arc<Relation>> {
        match &mut self.operator {
            Operator::Scan { .. } => Vec::new(),
            Operator::Filter { input, .. }
            | Operator::Project { input, .. }
            | Operator::Aggregate { input, .. }
            | Operator::Sort { input, .. }
            | Operator::Limit { input, .. }
            | Operator::Unnest { input, .. }
            | Operator::Window { input, .. }
            | Operator::Exchange { input, .. } => vec![input],
            Operator::Join { left, right, .. } => vec![left, right],
            Operator::UnionAll { inputs, .. } => inputs.iter_mut().map(|(input, _)| input).collect(),
        }
    }

    /// The expressions of this operator alone.
    pub fn expressions(&self) -> Vec<&Expression> {
        match &self.operator {
            Operator::Scan { filters, .. } => filters.iter().collect(),
            Operator::Filter { predicate, .. } => vec![predicate],
            Operator::Project { expressions, .. } => {
                expressions.iter().map(|named| &named.expression).collect()
            }
            Operator::Join { keys, residual, .. } => {
                keys.iter().flat_map(|key| [&key.left, &key.right]).chain(residual).collect()
            }
            Operator::Aggregate { groups, aggregates, .. } => {
                let inputs = aggregates.iter().flat_map(AggregateCall::inputs);
                groups.iter().map(|named| &named.expression).chain(inputs).collect()
            }
            Operator::Sort { keys, .. } => keys.iter().map(|key| &key.expression).collect(),
            Operator::Limit { offset, count, .. } => offset.iter().chain(count).collect(),
            Operator::UnionAll { .. } => Vec::new(),
            Operator::Unnest { arrays, .. } => arrays.iter().map(|unnested| &unnested.array).collect(),
            Operator::Window { partition, order, calls, .. } => {
                let keys = order.iter().map(|key| &key.expression);
                partition.iter().chain(keys).chain(calls.iter().flat_map(WindowCall::expressions)).collect()
            }
            Operator::Exchange { kind, .. } => kind.expressions().collect(),
        }
    }

    /// Operators from this one down to the lowest.
    pub fn depth(&self) -> usize {
        1 + self.inputs().into_iter().map(|input| input.depth()).max().unwrap_or(0)
    }

    /// The scans of the tree, from left to right.
    pub fn scans(&self) -> Vec<&Operator> {
        if matches!(self.operator, Operator::Scan { .. }) {
            return vec![&self.operator];
        }
        self.inputs().into_iter().flat_map(|input| input.scans()).collect()
    }

    /// The same tree, whose scans of rows of PostgreSQL's read the files that the engine has made of each input.
    pub fn with_sent_files(&self, files: &BTreeMap<u32, Vec<String>>) -> Arc<Relation> {
        let mut changed = self.map_inputs(&mut |input| input.with_sent_files(files));
        if let Operator::Scan { files: set, .. } = &mut Arc::make_mut(&mut changed).operator
            && let TableFormat::Sent(number) = set.format
        {
            set.paths = files.get(&number).cloned().unwrap_or_default();
        }
        changed
    }

    /// The operators directly below this one.
    pub fn inputs(&self) -> Vec<&Arc<Relation>> {
        match &self.operator {
            Operator::Scan { .. } => Vec::new(),
            Operator::Filter { input, .. }
            | Operator::Project { input, .. }
            | Operator::Aggregate { input, .. }
            | Operator::Sort { input, .. }
            | Operator::Limit { input, .. }
            | Operator::Unnest { input, .. }
            | Operator::Window { input, .. }
            | Operator::Exchange { input, .. } => vec![input],
            Operator::Join { left, right, .. } => vec![left, right],
            Operator::UnionAll { inputs, .. } => inputs.iter().map(|(input, _)| input).collect(),
        }
    }
}

#[cfg(test)]
impl Relation {
    /// A scan of no file and no column.
    pub(crate) fn empty_scan(rows: f64) -> Arc<Self> {
        let operator = Operator::Scan {
            table: "t".to_owned(),
            files: FileSet::parquet(Vec::new()),
            columns: Vec::new(),
            filters: Vec::new(),
            extent: ScanExtent::Whole,
        };
        Self::new(operator, rows)
    }
}

impl JoinKind {
    /// Whether the right side's columns are in the result.
    pub fn keeps_right_columns(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::Full)
    }
}

fn named_columns(expressions: &[NamedExpression]) -> Vec<(ColumnId, DataType)> {
    expressions.iter().map(|named| (named.id, named.expression.data_type().clone())).collect()
}
