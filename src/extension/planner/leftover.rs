//! What PostgreSQL still does of a query, and why: read from the finished plan.
//!
//! The callbacks give reasons for what they were offered. Much is never offered: core calls no wrapper for a
//! join with a heap table or across servers, for window functions, for set operations at the top. What
//! stands above our scans in the finished plan names the rest.
//!
//! Invariants: only what has a scan of ours below it is named, and a query that is not one scan always has a
//! reason.

use pgrx::pg_sys::{self, NodeTag};

use super::{
    keyed_join,
    nodes::{element_count, elements, node_as, tag_of, text_of},
    relation_info::is_ours_oid,
};
use crate::{pg::mirror::function_name, settings};

/// Why the statement is not one scan of ours, beyond what the callbacks said. `said` is what they said.
pub unsafe fn reasons(statement: *mut pg_sys::PlannedStmt, said: &[String]) -> Vec<String> {
    unsafe {
        if !settings::pushdown() {
            return vec!["pystachio.pushdown is off".into()];
        }
        let mut walk = Walk { statement, reasons: said.to_vec(), unnamed: Vec::new() };
        walk.visit((*statement).planTree, None);
        for subplan in elements::<pg_sys::Plan>((*statement).subplans) {
            if !subplan.is_null() {
                walk.visit(subplan, None);
            }
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
}

/// Calls `visit` on every scan of ours in a statement.
pub unsafe fn for_each_scan(
    statement: *mut pg_sys::PlannedStmt,
    visit: &mut dyn FnMut(*mut pg_sys::ForeignScan),
) {
    unsafe {
        let trees = elements::<pg_sys::Plan>((*statement).subplans).chain([(*statement).planTree]);
        for tree in trees.filter(|tree| !tree.is_null()) {
            visit_scans(tree, visit);
        }
    }
}

/// The SubPlans of a statement that are no InitPlans: they run once for all rows above them if hashed, else for each.
pub unsafe fn repeated_subplans(statement: *mut pg_sys::PlannedStmt) -> Vec<*mut pg_sys::Plan> {
    unsafe {
        let subplans: Vec<_> = elements::<pg_sys::Plan>((*statement).subplans).collect();
        let mut run_once = vec![false; subplans.len()];
        for tree in subplans.iter().copied().chain([(*statement).planTree]).filter(|tree| !tree.is_null()) {
            note_init_plans(tree, &mut run_once);
        }
        let repeated = subplans.into_iter().zip(run_once).filter(|(plan, once)| !plan.is_null() && !once);
        repeated.map(|(plan, _)| plan).collect()
    }
}

unsafe fn note_init_plans(plan: *mut pg_sys::Plan, run_once: &mut [bool]) {
    unsafe {
        for init_plan in elements::<pg_sys::SubPlan>((*plan).initPlan) {
            let place = usize::try_from((*init_plan).plan_id - 1).ok();
            if let Some(noted) = place.and_then(|place| run_once.get_mut(place)) {
                *noted = true;
            }
        }
        for child in children(plan) {
            note_init_plans(child, run_once);
        }
    }
}

unsafe fn visit_scans(plan: *mut pg_sys::Plan, visit: &mut dyn FnMut(*mut pg_sys::ForeignScan)) {
    unsafe {
        if is_our_scan(plan) {
            visit(plan.cast());
        }
        for child in children(plan) {
            visit_scans(child, visit);
        }
    }
}

struct Walk {
    statement: *mut pg_sys::PlannedStmt,
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

impl Walk {
    /// `combined_by` is the operation whose inputs an Append would be.
    unsafe fn visit(&mut self, plan: *mut pg_sys::Plan, combined_by: Option<SetOperation>) {
        unsafe {
            let below = match tag_of(plan.cast()) {
                NodeTag::T_SetOp => Some(SetOperation::Other),
                NodeTag::T_Unique => Some(SetOperation::Union),
                NodeTag::T_Agg if (*plan.cast::<pg_sys::Agg>()).numCols > 0 => Some(SetOperation::Union),
                NodeTag::T_Sort => combined_by,
                _ => None,
            };
            for child in children(plan) {
                self.visit(child, below);
            }
            if is_our_scan(plan) {
                if !(*plan).qual.is_null() {
                    self.unnamed.push("a filter".into());
                }
                return;
            }
            let sources = self.sources(plan);
            if sources.servers.is_empty() {
                return;
            }
            if tag_of(plan.cast()) == NodeTag::T_CteScan {
                let entry = self.entry(scan_relation(plan));
                let name = entry.map(|entry| text_of((*entry).ctename)).unwrap_or_default();
                self.note(&format!("WITH query {name}, which is computed apart"));
                return;
            }
            self.visit_node(plan, combined_by, &sources);
        }
    }

    unsafe fn visit_node(
        &mut self,
        plan: *mut pg_sys::Plan,
        combined_by: Option<SetOperation>,
        sources: &Sources,
    ) {
        unsafe {
            match tag_of(plan.cast()) {
                NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                    self.combine("join", plan, sources);
                }
                NodeTag::T_Append | NodeTag::T_MergeAppend => {
                    if element_count(append_children(plan)) < 2 {
                        return;
                    }
                    let word = match (self.partitioned_table(plan), combined_by) {
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
                    let operation = match (*plan.cast::<pg_sys::SetOp>()).cmd {
                        pg_sys::SetOpCmd::SETOPCMD_INTERSECT => "INTERSECT",
                        pg_sys::SetOpCmd::SETOPCMD_INTERSECT_ALL => "INTERSECT ALL",
                        pg_sys::SetOpCmd::SETOPCMD_EXCEPT => "EXCEPT",
                        _ => "EXCEPT ALL",
                    };
                    self.note(operation);
                }
                NodeTag::T_RecursiveUnion => self.note("WITH RECURSIVE"),
                NodeTag::T_WindowAgg => self.note("window functions"),
                NodeTag::T_LockRows => self.note("row locks (FOR UPDATE, FOR SHARE)"),
                NodeTag::T_ProjectSet => self.note("a function in the target that returns a set"),
                NodeTag::T_ModifyTable => {
                    let command = match (*plan.cast::<pg_sys::ModifyTable>()).operation {
                        pg_sys::CmdType::CMD_INSERT => "INSERT",
                        pg_sys::CmdType::CMD_UPDATE => "UPDATE",
                        pg_sys::CmdType::CMD_DELETE => "DELETE",
                        _ => "MERGE",
                    };
                    self.note(command);
                }
                NodeTag::T_Agg if !(*plan.cast::<pg_sys::Agg>()).groupingSets.is_null() => {
                    self.note("GROUPING SETS");
                }
                NodeTag::T_Result if !(*plan.cast::<pg_sys::Result>()).resconstantqual.is_null() => {
                    self.note("a condition without columns");
                }
                NodeTag::T_ForeignScan => self.note("a scan of another foreign-data wrapper"),
                // The join itself is below, or above.
                NodeTag::T_CustomScan if keyed_join::is_part(plan) => {}
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
    }

    /// Names what keeps the inputs of a join or union apart.
    unsafe fn combine(&mut self, word: &str, plan: *mut pg_sys::Plan, sources: &Sources) {
        for other in &sources.others {
            let start = format!("{word} with {}", other.words);
            if !self.reasons.iter().any(|known| known.starts_with(&start)) {
                self.note(&format!("{word} with {}", other.beside(&sources.servers)));
            }
        }
        match sources.servers.as_slice() {
            [server] if sources.others.is_empty() => {
                let has_parameters = unsafe {
                    node_as::<pg_sys::NestLoop>(plan.cast(), NodeTag::T_NestLoop)
                        .is_some_and(|join| !join.nestParams.is_null())
                };
                let kind = if has_parameters { "LATERAL" } else { "a join" };
                self.unnamed.push(format!("{kind} within server {server}"));
            }
            [_] => {}
            servers => self.note(&format!("{word} across servers {}", servers.join(" and "))),
        }
    }

    /// Queries that expressions run for every row, and whole queries that are not ours.
    unsafe fn visit_subplans(&mut self) {
        unsafe {
            let main = self.sources((*self.statement).planTree);
            for subplan in elements::<pg_sys::Plan>((*self.statement).subplans) {
                if subplan.is_null() {
                    continue;
                }
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
    }

    fn note(&mut self, reason: &str) {
        let is_known = |known: &String| {
            known == reason || known.split_once(": ").is_some_and(|(_, known)| known == reason)
        };
        if !self.reasons.iter().any(is_known) {
            self.reasons.push(reason.to_owned());
        }
    }

    unsafe fn sources(&self, plan: *mut pg_sys::Plan) -> Sources {
        let mut sources = Sources::default();
        unsafe { self.collect_sources(plan, &mut sources) };
        sources.servers.sort();
        sources
    }

    unsafe fn collect_sources(&self, plan: *mut pg_sys::Plan, sources: &mut Sources) {
        unsafe {
            let (words, is_table) = match tag_of(plan.cast()) {
                NodeTag::T_ForeignScan if is_our_scan(plan) => {
                    add(&mut sources.servers, server_name((*plan.cast::<pg_sys::ForeignScan>()).fs_server));
                    return;
                }
                NodeTag::T_ForeignScan => {
                    let scan = &*plan.cast::<pg_sys::ForeignScan>();
                    let server = server_name(scan.fs_server);
                    match scan.scan.scanrelid {
                        0 => (format!("tables of server {server}"), false),
                        relation => (format!("foreign table {}", self.table_name(relation)), true),
                    }
                }
                NodeTag::T_SeqScan
                | NodeTag::T_SampleScan
                | NodeTag::T_IndexScan
                | NodeTag::T_IndexOnlyScan
                | NodeTag::T_BitmapHeapScan
                | NodeTag::T_TidScan
                | NodeTag::T_TidRangeScan => {
                    (format!("table {}", self.table_name(scan_relation(plan))), true)
                }
                NodeTag::T_FunctionScan => {
                    (format!("function {} in FROM", function_names(plan.cast())), false)
                }
                NodeTag::T_TableFuncScan => {
                    (format!("table function {}", self.entry_name(scan_relation(plan))), false)
                }
                NodeTag::T_ValuesScan => ("VALUES".to_owned(), false),
                NodeTag::T_NamedTuplestoreScan => {
                    (format!("transition table {}", self.entry_name(scan_relation(plan))), false)
                }
                NodeTag::T_WorkTableScan => ("the WITH RECURSIVE query itself".to_owned(), false),
                NodeTag::T_CteScan => {
                    let place = (*plan.cast::<pg_sys::CteScan>()).ctePlanId - 1;
                    let mut subplans = elements::<pg_sys::Plan>((*self.statement).subplans);
                    let query = usize::try_from(place).ok().and_then(|place| subplans.nth(place));
                    if let Some(query) = query.filter(|query| !query.is_null()) {
                        self.collect_sources(query, sources);
                    }
                    return;
                }
                NodeTag::T_Result if (*plan).lefttree.is_null() => ("rows without a table".to_owned(), false),
                _ => {
                    for child in children(plan) {
                        self.collect_sources(child, sources);
                    }
                    return;
                }
            };
            add(&mut sources.others, Other { words, is_table });
        }
    }

    unsafe fn table_name(&self, relation: pg_sys::Index) -> String {
        unsafe {
            let entry = self.entry(relation);
            let name = entry.map(|entry| text_of(pg_sys::get_rel_name((*entry).relid)));
            name.unwrap_or_default()
        }
    }

    /// The table whose partitions, or children by inheritance, an Append reads.
    unsafe fn partitioned_table(&self, append: *mut pg_sys::Plan) -> Option<String> {
        unsafe {
            let relations = match tag_of(append.cast()) {
                NodeTag::T_Append => (*append.cast::<pg_sys::Append>()).apprelids,
                _ => (*append.cast::<pg_sys::MergeAppend>()).apprelids,
            };
            let relation = pg_sys::bms_next_member(relations, -1);
            let entry = self.entry(pg_sys::Index::try_from(relation).ok()?)?;
            let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION;
            is_table.then(|| text_of(pg_sys::get_rel_name((*entry).relid)))
        }
    }

    /// The name that the query calls an entry of FROM by.
    unsafe fn entry_name(&self, relation: pg_sys::Index) -> String {
        unsafe {
            let alias = self.entry(relation).map(|entry| (*entry).eref).filter(|alias| !alias.is_null());
            alias.map(|alias| text_of((*alias).aliasname)).unwrap_or_default()
        }
    }

    unsafe fn entry(&self, relation: pg_sys::Index) -> Option<*mut pg_sys::RangeTblEntry> {
        unsafe { elements((*self.statement).rtable).nth((relation as usize).checked_sub(1)?) }
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

unsafe fn is_our_scan(plan: *mut pg_sys::Plan) -> bool {
    unsafe {
        node_as::<pg_sys::ForeignScan>(plan.cast(), NodeTag::T_ForeignScan)
            .is_some_and(|scan| is_ours_oid(scan.fs_server))
    }
}

unsafe fn scan_relation(plan: *mut pg_sys::Plan) -> pg_sys::Index {
    unsafe { (*plan.cast::<pg_sys::Scan>()).scanrelid }
}

unsafe fn append_children(plan: *mut pg_sys::Plan) -> *mut pg_sys::List {
    unsafe {
        match tag_of(plan.cast()) {
            NodeTag::T_Append => (*plan.cast::<pg_sys::Append>()).appendplans,
            _ => (*plan.cast::<pg_sys::MergeAppend>()).mergeplans,
        }
    }
}

/// The plan nodes directly below one; SubPlans are in the statement.
unsafe fn children(plan: *mut pg_sys::Plan) -> Vec<*mut pg_sys::Plan> {
    unsafe {
        let mut found: Vec<*mut pg_sys::Plan> = match tag_of(plan.cast()) {
            NodeTag::T_Append | NodeTag::T_MergeAppend => elements(append_children(plan)).collect(),
            NodeTag::T_SubqueryScan => vec![(*plan.cast::<pg_sys::SubqueryScan>()).subplan],
            NodeTag::T_CustomScan => elements((*plan.cast::<pg_sys::CustomScan>()).custom_plans).collect(),
            _ => Vec::new(),
        };
        found.extend([(*plan).lefttree, (*plan).righttree]);
        found.retain(|child| !child.is_null());
        found
    }
}

unsafe fn function_names(scan: *mut pg_sys::FunctionScan) -> String {
    unsafe {
        let functions = elements::<pg_sys::RangeTblFunction>((*scan).functions);
        let names = functions.map(|function| {
            match node_as::<pg_sys::FuncExpr>((*function).funcexpr, NodeTag::T_FuncExpr) {
                Some(call) => function_name(call.funcid),
                None => "of a constant".to_owned(),
            }
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

unsafe fn server_name(server_oid: pg_sys::Oid) -> String {
    unsafe { text_of((*pg_sys::GetForeignServer(server_oid)).servername) }
}
