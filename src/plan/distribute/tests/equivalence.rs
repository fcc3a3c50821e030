//! On any number of ranks plans give what they give on one: thousands of them at random.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        DistributeRequest, Distributed, Distribution, Partitioning, RankPolicy, RunTimeChoices, distribute,
    },
    generator::{Case, Expected, Generator},
    interpreter::{Cell, Fault, Outcome, Random, Ranks, Row},
};
use crate::{ColumnId, ExchangeId, ExchangeKind, ExchangeReach, Expression, Operator, Plan, Relation, Value};

const PLANS: u64 = 5_000;
const MUTATED_PLANS: u64 = 1_000;
/// Ranks, and the hosts that they are on.
const SHAPES: [(u32, u32); 8] = [(1, 1), (2, 1), (3, 1), (4, 1), (4, 2), (4, 4), (2, 2), (6, 3)];

/// The seed of the first plan: `PYSTACHIO_SEED`, or always the same.
fn first_seed() -> u64 {
    std::env::var("PYSTACHIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The columns that a plan returns, of the rows of rank 0.
fn outputs(plan: &Plan, rows: &[Vec<Row>]) -> Vec<Row> {
    let columns = plan.root.columns();
    let place = |id: &ColumnId| columns.iter().position(|(known, _)| known == id);
    let places: Vec<_> = plan.outputs.iter().map(|id| place(id).expect("an output is a column")).collect();
    rows[0].iter().map(|row| places.iter().map(|place| row[*place]).collect()).collect()
}

fn run(plan: &Plan, case: &Case, (ranks, hosts): (u32, u32), seed: u64) -> Outcome<Vec<Row>> {
    let mut ranks = Ranks {
        count: ranks as usize,
        hosts: hosts as usize,
        tables: &case.tables,
        parameters: &case.parameters,
        random: Random(seed),
        choices: seed,
        is_checked: ranks > 1,
    };
    let rows = ranks.run(&plan.root)?;
    Ok(outputs(plan, &rows))
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}

/// The plan without the limit at its top.
fn without_limit(plan: &Plan) -> Plan {
    fn strip(relation: &Relation) -> Arc<Relation> {
        match &relation.operator {
            Operator::Limit { input, .. } => input.clone(),
            _ => relation.map_inputs(&mut |input| strip(input)),
        }
    }
    Plan { root: strip(&plan.root), outputs: plan.outputs.clone() }
}

/// Whether each of some rows is one of others, each of which stands for one.
fn are_among(rows: Vec<Row>, all: Vec<Row>) -> bool {
    let mut left: BTreeMap<Vec<Cell>, usize> = BTreeMap::new();
    all.into_iter().for_each(|row| *left.entry(row).or_default() += 1);
    rows.into_iter().all(|row| match left.get_mut(&row) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    })
}

/// What a plan gives on one rank.
struct Reference {
    rows: Vec<Row>,
    unlimited: Vec<Row>,
}

impl Reference {
    fn of(case: &Case) -> Outcome<Self> {
        let rows = run(&case.plan, case, (1, 1), 7)?;
        let unlimited = match case.expected {
            Expected::Some => run(&without_limit(&case.plan), case, (1, 1), 7)?,
            _ => Vec::new(),
        };
        Ok(Self { rows, unlimited })
    }

    fn agrees(&self, rows: Vec<Row>, expected: Expected) -> bool {
        match expected {
            Expected::Order => rows == self.rows,
            Expected::Rows => sorted(rows) == sorted(self.rows.clone()),
            Expected::Some => rows.len() == self.rows.len() && are_among(rows, self.unlimited.clone()),
        }
    }
}

fn distributed(case: &Case, generator: &mut Generator, shape: (u32, u32)) -> Distributed {
    let costs = generator.costs(shape);
    let two_level = generator.two_level();
    let (scans, policy) = (&case.scans, RankPolicy::All);
    let choices = RunTimeChoices { broadcast: true, heavy_keys: true };
    let request = DistributeRequest { costs: &costs, scans, policy, choices, two_level };
    distribute(&case.plan, request).expect("a plan that one rank runs can be distributed")
}

/// Counts what of a distributed plan the test has seen.
fn note(relation: &Relation, seen: &mut BTreeMap<String, usize>) {
    let place = |input: &Relation| match Distribution::of(input) {
        Ok(Distribution::Partitioned { by: Partitioning::Hash, .. }) => "hashed",
        Ok(Distribution::Partitioned { by: Partitioning::Range { .. }, .. }) => "ranged",
        Ok(Distribution::Replicated) => "replicated",
        Ok(Distribution::Single) => "single",
        Ok(Distribution::Chosen { .. }) => "chosen",
        Ok(Distribution::Halfway(_)) => "halfway",
        _ => "arbitrary",
    };
    let with = |heavy: &[Value]| match heavy {
        [] => "",
        [Value::Null] => ", NULL is heavy",
        _ => ", keys are heavy",
    };
    let word = match &relation.operator {
        Operator::Exchange { kind, reach, .. } if *reach != ExchangeReach::All => match kind {
            ExchangeKind::Hash { .. } => format!("shuffle{reach}"),
            ExchangeKind::Broadcast => format!("broadcast{reach}"),
            ExchangeKind::Gather => format!("gather{reach}"),
            ExchangeKind::Merge { .. } => format!("merge{reach}"),
            kind => panic!("{kind:?} has no levels"),
        },
        Operator::Exchange { kind, input, .. } => match kind {
            ExchangeKind::Hash { .. } => format!("shuffle of {}", place(input)),
            ExchangeKind::HashOrBroadcast { heavy, .. } => {
                format!("shuffle or broadcast of {}{}", place(input), with(heavy))
            }
            ExchangeKind::HashOrStay { heavy, .. } => {
                format!("shuffle or none of {}{}", place(input), with(heavy))
            }
            ExchangeKind::Broadcast => format!("broadcast of {}", place(input)),
            ExchangeKind::Gather => "gather".to_owned(),
            ExchangeKind::Merge { .. } => "merge".to_owned(),
            ExchangeKind::Own { keys } if keys.is_empty() => "own of one rank".to_owned(),
            ExchangeKind::Own { .. } => "own by keys".to_owned(),
        },
        Operator::Join { kind, left, right, .. } => format!("{kind:?} join {} {}", place(left), place(right)),
        Operator::Aggregate { phase, groups, input, .. } => {
            format!(
                "{phase:?} aggregate of {}, {}",
                place(input),
                if groups.is_empty() { "no groups" } else { "groups" }
            )
        }
        Operator::UnionAll { .. } => format!("union {}", place(relation)),
        _ => String::new(),
    };
    *seen.entry(word).or_default() += 1;
    relation.inputs().into_iter().for_each(|input| note(input, seen));
}

/// What must have been seen, or the test is worth little.
const WANTED: [&str; 55] = [
    "shuffle between hosts",
    "shuffle within hosts",
    "broadcast between hosts",
    "broadcast within hosts",
    "gather between hosts",
    "gather within hosts",
    "merge between hosts",
    "merge within hosts",
    "shuffle or broadcast of arbitrary, keys are heavy",
    "shuffle or none of arbitrary, keys are heavy",
    "shuffle or none of arbitrary, NULL is heavy",
    "Inner join ranged ranged",
    "Left join ranged ranged",
    "Full join ranged ranged",
    "Semi join ranged ranged",
    "Anti join ranged ranged",
    "Inner join ranged replicated",
    "Whole aggregate of ranged, groups",
    "shuffle of ranged",
    "shuffle or broadcast of arbitrary",
    "shuffle or none of arbitrary",
    "shuffle or none of single",
    "Inner join chosen chosen",
    "Left join chosen chosen",
    "Anti join chosen chosen",
    "shuffle of arbitrary",
    "shuffle of hashed",
    "shuffle of single",
    "broadcast of arbitrary",
    "broadcast of hashed",
    "broadcast of single",
    "gather",
    "merge",
    "own of one rank",
    "own by keys",
    "Inner join hashed hashed",
    "Inner join hashed replicated",
    "Inner join replicated arbitrary",
    "Left join hashed hashed",
    "Left join arbitrary replicated",
    "Full join hashed hashed",
    "Full join single single",
    "Semi join hashed hashed",
    "Semi join arbitrary replicated",
    "Anti join hashed hashed",
    "Anti join hashed replicated",
    "NullAwareAnti join arbitrary replicated",
    "Whole aggregate of hashed, groups",
    "Whole aggregate of replicated, no groups",
    "Whole aggregate of single, groups",
    "Partial aggregate of arbitrary, groups",
    "Partial aggregate of single, no groups",
    "Final aggregate of hashed, groups",
    "Final aggregate of replicated, no groups",
    "union arbitrary",
];

#[test]
fn plans_give_the_same_rows_on_any_number_of_ranks() {
    let first = first_seed();
    println!("plans of seeds {first} to {}", first + PLANS - 1);
    let mut seen = BTreeMap::new();
    let (mut tried, mut with_rows) = (0, 0);
    for seed in first..first + PLANS {
        let mut generator = Generator::new(seed);
        let case = generator.case();
        let reference = match Reference::of(&case) {
            Ok(reference) => reference,
            Err(Fault::TooLarge) => continue,
            Err(Fault::Wrong(why)) => panic!("seed {seed}: the plan is wrong: {why}"),
        };
        for (ranks, hosts) in SHAPES {
            let distributed = distributed(&case, &mut generator, (ranks, hosts));
            let plan = &distributed.plan;
            if ranks > 1 {
                note(&plan.root, &mut seen);
            }
            match run(plan, &case, (ranks, hosts), seed) {
                Ok(rows) if reference.agrees(rows.clone(), case.expected) => {
                    tried += 1;
                    with_rows += usize::from(rows.len() > 1);
                }
                Err(Fault::TooLarge) => {}
                other => panic!(
                    "seed {seed}, {ranks} ranks on {hosts} hosts: {other:?}\nis not {:?}\n{}\nand on one rank\n{}",
                    reference.rows,
                    super::plans::text(&distributed),
                    crate::plan_lines(&case.plan, crate::PlanFacts::default()).join("\n"),
                ),
            }
        }
    }
    println!("{tried} runs, {with_rows} with more than a row; {seen:#?}");
    assert!(tried as u64 > PLANS * SHAPES.len() as u64 * 9 / 10, "{tried} runs");
    let missing: Vec<_> = WANTED.into_iter().filter(|word| !seen.contains_key(*word)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

/// A plan in which one exchange is another, or none.
fn with_exchange(relation: &Arc<Relation>, id: ExchangeId, kind: Option<&ExchangeKind>) -> Arc<Relation> {
    match (&relation.operator, kind) {
        (Operator::Exchange { input, id: own, .. }, None) if *own == id => input.clone(),
        (Operator::Exchange { input, id: own, reach, .. }, Some(kind)) if *own == id => {
            let operator = Operator::Exchange { input: input.clone(), id, kind: kind.clone(), reach: *reach };
            Relation::new(operator, relation.estimate.rows)
        }
        _ => relation.map_inputs(&mut |input| with_exchange(input, id, kind)),
    }
}

fn exchanges(relation: &Relation, found: &mut Vec<(ExchangeId, ExchangeKind, Vec<Expression>)>) {
    if let Operator::Exchange { input, id, kind, .. } = &relation.operator {
        let columns = input.columns().into_iter();
        let columns = columns.map(|(id, data_type)| Expression::column(id, data_type));
        found.push((*id, kind.clone(), columns.collect()));
    }
    relation.inputs().into_iter().for_each(|input| exchanges(input, found));
}

fn has_limit(relation: &Relation) -> bool {
    matches!(relation.operator, Operator::Limit { .. })
        || relation.inputs().into_iter().any(|input| has_limit(input))
}

/// The exchange with a heavy value less, and with one more.
fn with_other_heavy(kind: &ExchangeKind) -> Vec<ExchangeKind> {
    let changed = |change: fn(&mut Vec<Value>)| {
        let mut kind = kind.clone();
        match &mut kind {
            ExchangeKind::HashOrBroadcast { heavy, .. } | ExchangeKind::HashOrStay { heavy, .. } => {
                change(heavy);
                Some(kind)
            }
            _ => None,
        }
    };
    let less = changed(|heavy| drop(heavy.pop()));
    let more = changed(|heavy| heavy.push(Value::Int(3)));
    less.into_iter().chain(more).collect()
}

/// Exchanges that a plan does not have, in the place of one that it has.
fn mutants(plan: &Plan, random: &mut Random) -> Vec<(String, Plan)> {
    let mut found = Vec::new();
    exchanges(&plan.root, &mut found);
    let mut mutants = Vec::new();
    for (id, kind, columns) in found {
        let mut others = vec![
            None,
            Some(ExchangeKind::Broadcast),
            Some(ExchangeKind::Gather),
            Some(ExchangeKind::Own { keys: Vec::new() }),
        ];
        if !columns.is_empty() {
            let key = || vec![columns[0].clone()];
            let keys = vec![random.pick(&columns).clone()];
            let heavy = Vec::new();
            let chosen =
                ExchangeKind::HashOrBroadcast { keys: keys.clone(), bytes_max: 1, heavy: heavy.clone() };
            let stays = ExchangeKind::HashOrStay { keys: keys.clone(), partner: ExchangeId(0), heavy };
            others.extend([Some(ExchangeKind::Hash { keys }), Some(ExchangeKind::Own { keys: key() })]);
            others.extend([Some(chosen), Some(stays)]);
        }
        others.extend(with_other_heavy(&kind).into_iter().map(Some));
        others.retain(|other| other.as_ref() != Some(&kind));
        for other in others {
            let root = with_exchange(&plan.root, id, other.as_ref());
            mutants
                .push((format!("{kind:?} became {other:?}"), Plan { root, outputs: plan.outputs.clone() }));
        }
    }
    mutants
}

#[test]
fn plans_with_an_exchange_gone_wrong_are_refused_or_right() {
    let first = first_seed();
    println!("plans of seeds {first} to {}", first + MUTATED_PLANS - 1);
    let (mut refused, mut refused_wrong, mut accepted) = (0, 0, 0);
    for seed in first..first + MUTATED_PLANS {
        let mut generator = Generator::new(seed);
        let case = generator.case();
        // A limit of each rank's rows is right below the limit of all, and nowhere else: no rule says so.
        if has_limit(&case.plan.root) {
            continue;
        }
        let Ok(reference) = Reference::of(&case) else { continue };
        let shape = if seed % 2 == 0 { (3, 1) } else { (4, 2) };
        let distributed = distributed(&case, &mut generator, shape);
        for (what, mutant) in mutants(&distributed.plan, &mut Random(seed)) {
            let is_right = match run(&mutant, &case, shape, seed) {
                Ok(rows) => reference.agrees(rows, Expected::Rows),
                Err(Fault::TooLarge) => continue,
                Err(Fault::Wrong(_)) => false,
            };
            let is_accepted =
                matches!(Distribution::of(&mutant.root), Ok(Distribution::Single | Distribution::Replicated));
            assert!(is_right || !is_accepted, "seed {seed}: {what} is accepted and wrong");
            accepted += usize::from(is_accepted);
            refused += usize::from(!is_accepted);
            refused_wrong += usize::from(!is_accepted && !is_right);
        }
    }
    println!("{accepted} accepted and right; {refused} refused, {refused_wrong} of them wrong");
    assert!(refused_wrong * 5 > refused && accepted > 100, "{refused_wrong} of {refused} and {accepted}");
}
