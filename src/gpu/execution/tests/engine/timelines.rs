use std::collections::BTreeMap;

use pystachio_plan::{ActivityKind, JoinKey, JoinKind, JoinSide, SortKey};

use super::*;

/// A sort over a join, of rows of both sides.
fn sorted_join(left: &Table, right: &Table) -> Plan {
    let join = Operator::Join {
        kind: JoinKind::Inner,
        left: left.scan(0),
        right: right.scan(4),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }],
        residual: None,
        build: JoinSide::Right,
    };
    let keys = vec![SortKey { expression: int64(3), descending: true, nulls_first: false }];
    plan(Relation::new(Operator::Sort { input: Relation::new(join, 1.0), keys }, 1.0))
}

#[test]
fn every_kernel_says_what_it_moves() {
    let shape = Shape { seed: 71, row_count: 500, key_count: 1 << 40, repeated_percent: 0, null_percent: 5 };
    let fixture = Fixture::new(PLENTY_BYTES);
    let table = Table::made(shape);
    fixture.run(sorted_join(&table, &table)).unwrap();
    let timelines = fixture.engine.timelines();
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for activity in timelines.iter().flat_map(|timeline| &timeline.activities) {
        if activity.kind == ActivityKind::Kernel {
            *bytes.entry(&activity.name).or_default() += activity.bytes;
        }
    }
    for kernel in ["decode_levels", "decode_indexes", "convert_values", "hash_keys", "gather_cells"] {
        assert!(bytes.contains_key(kernel), "{kernel} is not launched: {bytes:?}");
    }
    let silent: Vec<&&str> = bytes.iter().filter(|(_, bytes)| **bytes == 0).map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "src/gpu/operation/traffic.rs says nothing of {silent:?}");
}
