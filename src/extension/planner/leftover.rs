//! The parts of a query that PostgreSQL still computes, and why: read from the finished plan.
//!
//! PostgreSQL asks the callbacks about some relations only. It calls no wrapper for a join across
//! servers, for row locks, for a recursive query, or for set operations at the top. So the nodes
//! above our scans in the finished plan name the other reasons.
//!
//! Invariants: a reason names a node with a scan of ours below it. A query that is not one scan
//! always has a reason.

use pgrx::pg_sys::{self, NodeTag};

use super::{keyed_join, relation_info::is_ours_oid, sent_rows};
use crate::{
    pg::{
        mirror::function_name,
        tree::{ForeignScan, List, Plan, RangeEntry, Ref, Relids, Statement, server_name, table_name},
    },
    settings,
};

/// Why the statement is not one scan of ours, beyond what the callbacks said. `said` is what they said.
pub fn reasons(statement: Statement<'_>, said: &[String]) -> Vec<String> {
    if !settings::pushdown() {
        return vec!["pystachio.pushdown is off".into()];
    }
    let mut walk = Walk { statement, reasons: said.to_vec(), unnamed: Vec::new() };
    for tree in statement.plan().into_iter().chain(statement.subplans().iter()) {
        walk.visit(tree, None);
    }
    walk.visit_subplans();
    if walk.reasons.is_empty() {
        walk.reasons = std::mem::take(&mut walk.unnamed);
    }
    if walk.reasons.is_empty() {
        walk.reasons.push("no foreign table of pystachio is read".into());
    }
    walk.reasons
}

/// Calls `visit` on every scan of ours in a statement.
pub fn for_each_scan<'p>(statement: Statement<'p>, visit: &mut dyn FnMut(ForeignScan<'p>)) {
    for tree in statement.subplans().iter().chain(statement.plan()) {
        visit_scans(tree, visit);
    }
}

/// The SubPlans of a statement that are no InitPlans: they run once for all rows above them if hashed, else for each.
pub fn repeated_subplans(statement: Statement<'_>) -> Vec<Plan<'_>> {
    let subplans = statement.subplans();
    let mut run_once = vec![false; subplans.len()];
    for tree in subplans.iter().chain(statement.plan()) {
        note_init_plans(tree, &mut run_once);
    }
    subplans.cells().zip(run_once).filter(|(_, once)| !once).filter_map(|(plan, _)| plan).collect()
}

fn note_init_plans(plan: Plan<'_>, run_once: &mut [bool]) {
    for init_plan in plan.init_plans().iter() {
        let place = usize::try_from(init_plan.plan_number() - 1).ok();
        if let Some(noted) = place.and_then(|place| run_once.get_mut(place)) {
            *noted = true;
        }
    }
    for child in children(plan) {
        note_init_plans(child, run_once);
    }
}

fn visit_scans<'p>(plan: Plan<'p>, visit: &mut dyn FnMut(ForeignScan<'p>)) {
    if let Some(scan) = our_scan(plan) {
        visit(scan);
    }
    for child in children(plan) {
        visit_scans(child, visit);
    }
}

struct Walk<'p> {
    statement: Statement<'p>,
    reasons: Vec<String>,
    /// What was left over without a reason of its own.
    unnamed: Vec<String>,
}

/// Which set operation an Append belongs to.
#[derive(Clone, Copy, PartialEq)]
enum SetOperation {
    /// What removes duplicates is above.
    Union,
    /// INTERSECT or EXCEPT, which mark the rows of each side.
    Other,
}

/// What is read below a plan node.
#[derive(Default)]
struct Sources {
    /// Our servers, each once.
    servers: Vec<String>,
    /// Everything else.
    others: Vec<Other>,
}

/// What is read without an engine.
#[derive(PartialEq)]
struct Other {
    words: String,
    is_table: bool,
}

impl Other {
    /// In words, beside scans of these servers.
    fn beside(&self, servers: &[String]) -> String {
        match self.is_table {
            true => {
                format!("{}, which is not a foreign table of server {}", self.words, servers.join(" or "))
            }
            false => self.words.clone(),
        }
    }
}

impl<'p> Walk<'p> {
    /// `combined_by` is the operation whose inputs an Append would be.
    fn visit(&mut self, plan: Plan<'p>, combined_by: Option<SetOperation>) {
        let below = match plan.tag() {
            NodeTag::T_SetOp => Some(SetOperation::Other),
            NodeTag::T_Unique => Some(SetOperation::Union),
            NodeTag::T_Agg if aggregation(plan).is_some_and(|node| node.key_count() > 0) => {
                Some(SetOperation::Union)
            }
            NodeTag::T_Sort => combined_by,
            _ => None,
        };
        for child in children(plan) {
            self.visit(child, below);
        }
        if our_scan(plan).is_some() {
            if !plan.conditions().is_nil() {
                self.unnamed.push("a filter".into());
            }
            for other in plan.left().map(|input| self.sources(input)).unwrap_or_default().others {
                self.unnamed.push(format!("{}, whose rows are sent to the engine", other.words));
            }
            return;
        }
        let sources = self.sources(plan);
        if sources.servers.is_empty() {
            return;
        }
        if plan.is::<pg_sys::CteScan>() {
            let name = self.entry(plan.scanned()).map(Ref::with_name).unwrap_or_default();
            self.note(&format!("WITH query {name}, which is computed apart"));
            return;
        }
        self.visit_node(plan, combined_by, &sources);
    }

    fn visit_node(&mut self, plan: Plan<'p>, combined_by: Option<SetOperation>, sources: &Sources) {
        match plan.tag() {
            NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                self.combine("join", plan, sources);
            }
            NodeTag::T_Append | NodeTag::T_MergeAppend => {
                let Some((inputs, relids)) = append_parts(plan) else { return };
                if inputs.len() < 2 {
                    return;
                }
                let word = match (self.partitioned_table(relids), combined_by) {
                    (Some(table), _) => format!("partitions of {table}"),
                    (None, Some(SetOperation::Union)) => "UNION".to_owned(),
                    (None, _) => "UNION ALL".to_owned(),
                };
                match sources.servers.len() {
                    // The operation above has its own name.
                    _ if combined_by == Some(SetOperation::Other) => {}
                    1 if sources.others.is_empty() => self.note(&format!("{word} at the top")),
                    _ => self.combine(&word, plan, sources),
                }
            }
            NodeTag::T_SetOp => {
                let operation = match plan.downcast::<pg_sys::SetOp>().map(|node| node.command()) {
                    Some(pg_sys::SetOpCmd::SETOPCMD_INTERSECT) => "INTERSECT",
                    Some(pg_sys::SetOpCmd::SETOPCMD_INTERSECT_ALL) => "INTERSECT ALL",
                    Some(pg_sys::SetOpCmd::SETOPCMD_EXCEPT) => "EXCEPT",
                    _ => "EXCEPT ALL",
                };
                self.note(operation);
            }
            NodeTag::T_RecursiveUnion => self.note("WITH RECURSIVE"),
            NodeTag::T_WindowAgg => self.note("window functions"),
            NodeTag::T_LockRows => self.note("row locks (FOR UPDATE, FOR SHARE)"),
            NodeTag::T_ProjectSet => self.note("a function in the target that returns a set"),
            NodeTag::T_ModifyTable => {
                let command = match plan.downcast::<pg_sys::ModifyTable>().map(|node| node.operation()) {
                    Some(pg_sys::CmdType::CMD_INSERT) => "INSERT",
                    Some(pg_sys::CmdType::CMD_UPDATE) => "UPDATE",
                    Some(pg_sys::CmdType::CMD_DELETE) => "DELETE",
                    _ => "MERGE",
                };
                self.note(command);
            }
            NodeTag::T_Agg if aggregation(plan).is_some_and(|node| !node.grouping_sets().is_nil()) => {
                self.note("GROUPING SETS");
            }
            NodeTag::T_Result if has_constant_condition(plan) => self.note("a condition without columns"),
            NodeTag::T_ForeignScan => self.note("a scan of another foreign-data wrapper"),
            // The join itself is below, or above.
            NodeTag::T_CustomScan if keyed_join::is_part(plan) || sent_rows::is_sending(plan) => {}
            NodeTag::T_Agg | NodeTag::T_Group => self.unnamed.push("grouping".into()),
            NodeTag::T_Unique => self.unnamed.push("DISTINCT".into()),
            NodeTag::T_Sort | NodeTag::T_IncrementalSort => self.unnamed.push("ORDER BY".into()),
            NodeTag::T_Limit => self.unnamed.push("LIMIT".into()),
            other => {
                let name = format!("{other:?}");
                self.unnamed.push(format!("a plan node of kind {}", name.trim_start_matches("T_")));
            }
        }
    }

    /// Names what keeps the inputs of a join or union apart.
    fn combine(&mut self, word: &str, plan: Plan<'p>, sources: &Sources) {
        for other in &sources.others {
            let start = format!("{word} with {}", other.words);
            if !self.reasons.iter().any(|known| known.starts_with(&start)) {
                self.note(&format!("{word} with {}", other.beside(&sources.servers)));
            }
        }
        match sources.servers.as_slice() {
            [server] if sources.others.is_empty() => {
                let has_parameters =
                    plan.downcast::<pg_sys::NestLoop>().is_some_and(|join| !join.parameters().is_nil());
                let kind = if has_parameters { "LATERAL" } else { "a join" };
                self.unnamed.push(format!("{kind} within server {server}"));
            }
            [_] => {}
            servers => self.note(&format!("{word} across servers {}", servers.join(" and "))),
        }
    }

    /// Queries that expressions run for every row, and whole queries that are not ours.
    fn visit_subplans(&mut self) {
        let main = self.statement.plan().map(|plan| self.sources(plan)).unwrap_or_default();
        for subplan in self.statement.subplans().iter() {
            let sources = self.sources(subplan);
            if main.servers.is_empty() == sources.servers.is_empty() {
                continue;
            }
            for other in &sources.others {
                self.note(&format!("a subquery over {}", other.beside(&main.servers)));
            }
            for other in &main.others {
                self.note(&format!("a query over {}", other.beside(&sources.servers)));
            }
        }
        let is_said = self.reasons.iter().any(|reason| reason.contains("SubPlan"));
        for subplan in repeated_subplans(self.statement) {
            let reads_ours = !main.servers.is_empty() || !self.sources(subplan).servers.is_empty();
            if reads_ours && !is_said {
                self.note("a subquery that stays a SubPlan");
            }
        }
    }

    fn note(&mut self, reason: &str) {
        let is_known = |known: &String| {
            known == reason
                || known
                    .split_once(": ")
                    .is_some_and(|(subject, detail)| detail == reason || subject == reason)
        };
        if !self.reasons.iter().any(is_known) {
            self.reasons.push(reason.to_owned());
        }
    }

    fn sources(&self, plan: Plan<'p>) -> Sources {
        let mut sources = Sources::default();
        self.collect_sources(plan, &mut sources);
        sources.servers.sort();
        sources
    }

    fn collect_sources(&self, plan: Plan<'p>, sources: &mut Sources) {
        let (words, is_table) = match plan.tag() {
            NodeTag::T_ForeignScan => {
                let Some(scan) = plan.downcast::<pg_sys::ForeignScan>() else { return };
                let server = server_name(scan.server_oid());
                if is_ours_oid(scan.server_oid()) {
                    add(&mut sources.servers, server);
                    return;
                }
                match scan.scanned() {
                    0 => (format!("tables of server {server}"), false),
                    relation => (format!("foreign table {}", self.table_name(Some(relation))), true),
                }
            }
            NodeTag::T_SeqScan
            | NodeTag::T_SampleScan
            | NodeTag::T_IndexScan
            | NodeTag::T_IndexOnlyScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_TidScan
            | NodeTag::T_TidRangeScan => (format!("table {}", self.table_name(plan.scanned())), true),
            NodeTag::T_FunctionScan => (format!("function {} in FROM", function_names(plan)), false),
            NodeTag::T_TableFuncScan => {
                (format!("table function {}", self.entry_name(plan.scanned())), false)
            }
            NodeTag::T_ValuesScan => ("VALUES".to_owned(), false),
            NodeTag::T_NamedTuplestoreScan => {
                (format!("transition table {}", self.entry_name(plan.scanned())), false)
            }
            NodeTag::T_WorkTableScan => ("the WITH RECURSIVE query itself".to_owned(), false),
            NodeTag::T_CteScan => {
                if let Some(query) = self.with_query(plan) {
                    self.collect_sources(query, sources);
                }
                return;
            }
            NodeTag::T_Result if plan.left().is_none() => ("rows without a table".to_owned(), false),
            _ => {
                for child in children(plan) {
                    self.collect_sources(child, sources);
                }
                return;
            }
        };
        add(&mut sources.others, Other { words, is_table });
    }

    /// The query of WITH that a node reads.
    fn with_query(&self, plan: Plan<'p>) -> Option<Plan<'p>> {
        let number = plan.downcast::<pg_sys::CteScan>()?.number();
        self.statement.subplans().get(usize::try_from(number - 1).ok()?)
    }

    fn table_name(&self, relation: Option<u32>) -> String {
        self.entry(relation).map(|entry| table_name(entry.table_oid())).unwrap_or_default()
    }

    /// The table whose partitions, or children by inheritance, an Append reads.
    fn partitioned_table(&self, relids: Relids<'p>) -> Option<String> {
        let entry = self.statement.entry(relids.iter().next()?)?;
        let is_table = entry.kind() == pg_sys::RTEKind::RTE_RELATION;
        is_table.then(|| table_name(entry.table_oid()))
    }

    /// The name that the query calls an entry of FROM by.
    fn entry_name(&self, relation: Option<u32>) -> String {
        self.entry(relation).and_then(Ref::names).map(|alias| alias.name()).unwrap_or_default()
    }

    fn entry(&self, relation: Option<u32>) -> Option<RangeEntry<'p>> {
        self.statement.entry(relation? as usize)
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// The plan node as a scan of ours, if it is one.
pub fn our_scan(plan: Plan<'_>) -> Option<ForeignScan<'_>> {
    plan.downcast::<pg_sys::ForeignScan>().filter(|scan| is_ours_oid(scan.server_oid()))
}

fn aggregation(plan: Plan<'_>) -> Option<Ref<'_, pg_sys::Agg>> {
    plan.downcast()
}

fn has_constant_condition(plan: Plan<'_>) -> bool {
    plan.downcast::<pg_sys::Result>().is_some_and(|result| result.constant_condition().is_some())
}

/// The inputs of an Append, and the relations whose members they read.
fn append_parts(plan: Plan<'_>) -> Option<(List<'_, pg_sys::Plan>, Relids<'_>)> {
    let append = plan.downcast::<pg_sys::Append>().map(|append| (append.plans(), append.relids()));
    let merge = || plan.downcast::<pg_sys::MergeAppend>().map(|append| (append.plans(), append.relids()));
    append.or_else(merge)
}

/// The plan nodes directly below one; SubPlans are in the statement.
fn children(plan: Plan<'_>) -> Vec<Plan<'_>> {
    let mut found = Vec::new();
    if let Some((inputs, _)) = append_parts(plan) {
        found.extend(inputs.iter());
    } else if let Some(subquery) = plan.downcast::<pg_sys::SubqueryScan>() {
        found.push(subquery.plan());
    } else if let Some(scan) = plan.downcast::<pg_sys::CustomScan>() {
        found.extend(scan.plans().iter());
    }
    found.extend(plan.left());
    found.extend(plan.right());
    found
}

fn function_names(plan: Plan<'_>) -> String {
    let functions = plan.downcast::<pg_sys::FunctionScan>().map_or(List::nil(), Ref::functions);
    let names = functions.iter().map(|function| match function.call().downcast::<pg_sys::FuncExpr>() {
        Some(call) => function_name(call.function()),
        None => "of a constant".to_owned(),
    });
    names.collect::<Vec<_>>().join(", ")
}
