//! Parts of a plan that occur more than once, such as a common table expression that is read twice.
//!
//! PostgreSQL plans each reference of its own, so the parts differ in the ids of their columns and in nothing else. An engine may
//! compute such a part once and hand its rows to all that read it.
//!
//! Invariants: parts of one group give the same rows, whatever their order, in columns of the same places. A part is an aggregate or
//! a window: it reads all of its input before it gives a row, so no limit above it is what keeps its input from being read.
//!
//! Deliberately absent: parts that are alike but for a condition. Each of them reads less than both would together. Of parts that are
//! alike but for columns, `alike.rs` makes parts that are the same.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{ColumnId, Estimate, JoinKind, Operator, Relation};

/// The part of a join's rows that its other side has, where that side leaves so few of them that reading them is most of the work.
const NARROWING_SHARE: f64 = 0.1;

/// The parts of a plan that are worth computing once.
#[derive(Debug, Default)]
pub struct RepeatedParts {
    /// By the address of each part, its group.
    groups: HashMap<usize, usize>,
}

/// A part that was found, while groups are made.
struct Group<'a> {
    first: &'a Relation,
    /// All parts in canonical form: ids are counted from 0, and nothing is expected.
    canonical: Arc<Relation>,
    parts: Vec<usize>,
    /// Whether a reader wants all of its rows.
    is_read_whole: bool,
}

impl RepeatedParts {
    /// Those below `root`, which must live as long as this is asked.
    ///
    /// A part whose every reader joins it with few rows is none: of such a join's keys only a few groups are computed, again and
    /// again, faster than all of them once. Nor is one for which `is_kept` says that its rows are too many.
    pub fn of(root: &Relation, is_kept: impl Fn(&Relation) -> bool) -> Self {
        if !reads_files_twice(root) {
            return Self::default();
        }
        let mut found = Vec::new();
        find(root, false, &mut found);
        found
            .retain(|group: &Group<'_>| group.parts.len() > 1 && group.is_read_whole && is_kept(group.first));
        let mut groups = HashMap::new();
        for (number, group) in found.iter().enumerate() {
            groups.extend(group.parts.iter().map(|part| (*part, number)));
        }
        let mut readers = BTreeMap::new();
        count_readers(root, &groups, &mut readers);
        readers.retain(|_, count| *count > 1);
        let kept: Vec<usize> = readers.into_keys().collect();
        groups.retain(|_, number| match kept.binary_search(number) {
            Ok(place) => {
                *number = place;
                true
            }
            Err(_) => false,
        });
        Self { groups }
    }

    /// The group of a part; `None` if the part is computed where it is read.
    pub fn group(&self, part: &Relation) -> Option<usize> {
        self.groups.get(&address(part)).copied()
    }
}

fn address(relation: &Relation) -> usize {
    std::ptr::from_ref(relation).addr()
}

/// Counts who reads each group. What is below a part that was met before is read by that one alone.
fn count_readers(relation: &Relation, groups: &HashMap<usize, usize>, readers: &mut BTreeMap<usize, usize>) {
    if let Some(number) = groups.get(&address(relation)) {
        let count = readers.entry(*number).or_insert(0);
        *count += 1;
        if *count > 1 {
            return;
        }
    }
    relation.inputs().into_iter().for_each(|input| count_readers(input, groups, readers));
}

/// Whether two scans read the same files, without which no part occurs twice.
pub(crate) fn reads_files_twice(root: &Relation) -> bool {
    let scans = root.scans();
    let files = scans.iter().filter_map(|scan| match scan {
        Operator::Scan { files, .. } => Some(files),
        _ => None,
    });
    let files: Vec<_> = files.collect();
    files.iter().enumerate().any(|(place, one)| files[..place].contains(one))
}

/// Whether a relation is worth computing once: it reads all of its input before it gives a row.
pub(crate) fn is_part(relation: &Relation) -> bool {
    matches!(relation.operator, Operator::Aggregate { .. } | Operator::Window { .. })
}

/// Of each input of a relation whether its rows are joined with few others, above or here. `is_narrowed`: those of the relation are.
pub(crate) fn narrowed_inputs(relation: &Relation, is_narrowed: bool) -> Vec<bool> {
    match &relation.operator {
        Operator::Aggregate { .. } | Operator::Window { .. } => vec![false],
        Operator::Join { kind, left, right, keys, .. } if !keys.is_empty() => {
            let (few, many) = (left.estimate.rows, right.estimate.rows);
            let left_narrows = few < many * NARROWING_SHARE && *kind != JoinKind::Full;
            let right_narrows =
                many < few * NARROWING_SHARE && matches!(kind, JoinKind::Inner | JoinKind::Semi);
            vec![is_narrowed || right_narrows, is_narrowed || left_narrows]
        }
        _ => vec![is_narrowed; relation.inputs().len()],
    }
}

/// Notes the parts, from the highest down.
fn find<'a>(relation: &'a Relation, is_narrowed: bool, found: &mut Vec<Group<'a>>) {
    if is_part(relation) {
        let canonical = canonical(relation);
        let known = found.iter().position(|group| group.canonical == canonical);
        let place = known.unwrap_or_else(|| {
            found.push(Group { first: relation, canonical, parts: Vec::new(), is_read_whole: false });
            found.len() - 1
        });
        found[place].parts.push(address(relation));
        found[place].is_read_whole |= !is_narrowed;
    }
    for (input, is_narrowed) in relation.inputs().into_iter().zip(narrowed_inputs(relation, is_narrowed)) {
        find(input, is_narrowed, found);
    }
}

/// The relation with ids counted from 0, without estimates and common values: neither changes which rows come out.
pub(crate) fn canonical(relation: &Relation) -> Arc<Relation> {
    let mut ids: HashMap<ColumnId, ColumnId> = HashMap::new();
    let mut renamed = relation.map_columns(&mut |id| {
        let next = ColumnId(ids.len() as u32);
        *ids.entry(id).or_insert(next)
    });
    forget_expectations(&mut renamed);
    renamed
}

fn forget_expectations(relation: &mut Arc<Relation>) {
    let relation = Arc::make_mut(relation);
    relation.estimate = Estimate { rows: 0.0 };
    if let Operator::Scan { columns, .. } = &mut relation.operator {
        columns.iter_mut().for_each(|column| column.common.clear());
    }
    relation.inputs_mut().into_iter().for_each(forget_expectations);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Aggregate, AggregateCall, AggregatePhase, CommonValue, DataType, Expression, FileSet, JoinKey,
        JoinSide, NamedExpression, ScanColumn, ScanExtent, Value, with_common_values,
    };

    fn column(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int64)
    }

    fn scan(path: &str, ids: [u32; 2], rows: f64) -> Arc<Relation> {
        let columns = ids.iter().zip(["a", "b"]).map(|(id, name)| ScanColumn {
            id: ColumnId(*id),
            name: name.to_owned(),
            field_id: None,
            within: Vec::new(),
            data_type: DataType::Int64,
            not_null: false,
            length_max: None,
            trim_blanks: false,
            content: Default::default(),
            common: Vec::new(),
        });
        let operator = Operator::Scan {
            table: "t".to_owned(),
            files: FileSet::parquet(vec![path.to_owned()]),
            columns: columns.collect(),
            filters: vec![],
            extent: ScanExtent::Whole,
        };
        Relation::new(operator, rows)
    }

    /// `SELECT a, function(b) … GROUP BY a`; its ids are `id`, and the next three.
    fn sums(path: &str, id: u32, function: Aggregate, rows: f64) -> Arc<Relation> {
        let call = AggregateCall {
            id: ColumnId(id + 3),
            function,
            argument: Some(column(id + 1)),
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let operator = Operator::Aggregate {
            input: scan(path, [id, id + 1], 1000.0),
            groups: vec![NamedExpression { id: ColumnId(id + 2), expression: column(id) }],
            aggregates: vec![call],
            phase: AggregatePhase::Whole,
        };
        Relation::new(operator, rows)
    }

    /// Groups of groups: the inner ones, and `SELECT DISTINCT` of their values as `id + 5`.
    fn distinct_sums(id: u32) -> (Arc<Relation>, Arc<Relation>) {
        let inner = sums("x", id, Aggregate::Max, 100.0);
        let operator = Operator::Aggregate {
            input: inner.clone(),
            groups: vec![NamedExpression { id: ColumnId(id + 5), expression: column(id + 3) }],
            aggregates: vec![],
            phase: AggregatePhase::Whole,
        };
        (inner, Relation::new(operator, 100.0))
    }

    fn join(left: &Arc<Relation>, right: &Arc<Relation>, keys: [u32; 2], rows: f64) -> Arc<Relation> {
        let operator = Operator::Join {
            kind: JoinKind::Inner,
            left: left.clone(),
            right: right.clone(),
            keys: vec![JoinKey { left: column(keys[0]), right: column(keys[1]) }],
            residual: None,
            build: JoinSide::Right,
        };
        Relation::new(operator, rows)
    }

    #[test]
    fn parts_that_differ_in_ids_are_one_group() {
        let (one, other) = (sums("x", 0, Aggregate::Max, 100.0), sums("x", 10, Aggregate::Max, 90.0));
        let root = join(&one, &other, [2, 12], 100.0);
        let parts = RepeatedParts::of(&root, |_| true);
        assert_eq!((parts.group(&one), parts.group(&other)), (Some(0), Some(0)));
        assert_eq!(parts.group(&root), None);
        let parts = RepeatedParts::of(&root, |part| part.estimate.rows < 100.0);
        assert_eq!((parts.group(&one), parts.group(&other)), (None, None));
    }

    #[test]
    fn other_files_and_other_aggregates_are_other_parts() {
        let one = sums("x", 0, Aggregate::Max, 100.0);
        for other in [sums("y", 10, Aggregate::Max, 100.0), sums("x", 10, Aggregate::Min, 100.0)] {
            let parts = RepeatedParts::of(&join(&one, &other, [2, 12], 100.0), |_| true);
            assert_eq!((parts.group(&one), parts.group(&other)), (None, None));
        }
    }

    #[test]
    fn common_values_that_one_part_knows_do_not_tell_parts_apart() {
        let (one, other) = (sums("x", 0, Aggregate::Max, 100.0), sums("x", 10, Aggregate::Max, 100.0));
        let nulls = CommonValue { value: Value::Null, share: 0.5 };
        let compared = [ColumnId(0)].into_iter().collect();
        let one_knows = with_common_values(&one, &compared, &mut |_, _| vec![nulls.clone()]);
        assert_ne!(one_knows, one);
        let root = join(&one_knows, &other, [2, 12], 100.0);
        let parts = RepeatedParts::of(&root, |_| true);
        assert_eq!((parts.group(&one_knows), parts.group(&other)), (Some(0), Some(0)));
    }

    #[test]
    fn what_is_within_a_part_is_not_read_twice() {
        let ((inner, one), (_, other)) = (distinct_sums(0), distinct_sums(10));
        let parts = RepeatedParts::of(&join(&one, &other, [5, 15], 10.0), |_| true);
        assert_eq!((parts.group(&one), parts.group(&other), parts.group(&inner)), (Some(0), Some(0), None));
        // Read outside too, it is.
        let third = sums("x", 20, Aggregate::Max, 100.0);
        let root = join(&join(&one, &other, [5, 15], 10.0), &third, [5, 22], 10.0);
        let parts = RepeatedParts::of(&root, |_| true);
        assert!(parts.group(&inner).is_some_and(|group| parts.group(&third) == Some(group)));
    }

    #[test]
    fn few_rows_on_the_other_side_of_every_reader_keep_parts_apart() {
        let few = |id| scan("few", [id, id + 1], 1.0);
        let (one, other) = (sums("x", 0, Aggregate::Max, 100.0), sums("x", 10, Aggregate::Max, 100.0));
        let narrowed = join(&one, &few(30), [2, 30], 1.0);
        let root = join(&narrowed, &join(&other, &few(40), [12, 40], 1.0), [2, 12], 1.0);
        assert_eq!(RepeatedParts::of(&root, |_| true).group(&one), None);
        let all = Operator::Sort { input: other.clone(), keys: vec![] };
        let inputs = vec![(narrowed, vec![ColumnId(2)]), (Relation::new(all, 100.0), vec![ColumnId(12)])];
        let union = Operator::UnionAll { inputs, columns: vec![(ColumnId(50), DataType::Int64)] };
        let union = Relation::new(union, 100.0);
        let parts = RepeatedParts::of(&union, |_| true);
        assert_eq!((parts.group(&one), parts.group(&other)), (Some(0), Some(0)));
    }

    #[test]
    fn what_is_within_parts_that_stay_apart_may_be_shared() {
        let few = |id| scan("few", [id, id + 1], 1.0);
        let ((inner, one), (same, other)) = (distinct_sums(0), distinct_sums(10));
        let narrowed = [join(&one, &few(30), [5, 30], 1.0), join(&other, &few(40), [15, 40], 1.0)];
        let parts = RepeatedParts::of(&join(&narrowed[0], &narrowed[1], [5, 15], 1.0), |_| true);
        assert_eq!((parts.group(&one), parts.group(&other)), (None, None));
        assert!(parts.group(&inner).is_some_and(|group| parts.group(&same) == Some(group)));
    }
}
