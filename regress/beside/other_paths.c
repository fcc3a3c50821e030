/*
 * A library that offers paths of its own for tables and joins, as other extensions do: each passes on the rows of a foreign scan, at
 * a cost of its choice. For PostgreSQL 15 to 18.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/extensible.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

void _PG_init(void);

/* The cost of a path as a multiple of the foreign scan's; below 0 there are none. */
static double cost_factor = -1;
static set_rel_pathlist_hook_type next_rel_hook = NULL;
static set_join_pathlist_hook_type next_join_hook = NULL;

static TupleTableSlot *
next_row(ScanState *scan)
{
    CustomScanState *state = (CustomScanState *) scan;
    TupleTableSlot *row = ExecProcNode((PlanState *) linitial(state->custom_ps));

    if (TupIsNull(row))
        return ExecClearTuple(scan->ss_ScanTupleSlot);
    return ExecCopySlot(scan->ss_ScanTupleSlot, row);
}

static bool
is_row_still_right(ScanState *scan, TupleTableSlot *row)
{
    return true;
}

static void
begin_scan(CustomScanState *state, EState *estate, int flags)
{
    CustomScan *plan = (CustomScan *) state->ss.ps.plan;

    state->custom_ps = list_make1(ExecInitNode((Plan *) linitial(plan->custom_plans), estate, flags));
}

static TupleTableSlot *
run_scan(CustomScanState *state)
{
    return ExecScan(&state->ss, next_row, is_row_still_right);
}

static void
end_scan(CustomScanState *state)
{
    ExecEndNode((PlanState *) linitial(state->custom_ps));
}

static void
scan_again(CustomScanState *state)
{
    PlanState *below = (PlanState *) linitial(state->custom_ps);

    if (state->ss.ps.chgParam != NULL)
        UpdateChangedParamSet(below, state->ss.ps.chgParam);
    if (below->chgParam == NULL)
        ExecReScan(below);
}

static const CustomExecMethods run_methods = {
    .CustomName = "OtherPaths",
    .BeginCustomScan = begin_scan,
    .ExecCustomScan = run_scan,
    .EndCustomScan = end_scan,
    .ReScanCustomScan = scan_again,
};

static Node *
make_state(CustomScan *plan)
{
    CustomScanState *state = (CustomScanState *) newNode(sizeof(CustomScanState), T_CustomScanState);

    state->methods = &run_methods;
    return (Node *) state;
}

static const CustomScanMethods plan_methods = {.CustomName = "OtherPaths", .CreateCustomScanState = make_state};

static Plan *
make_plan(PlannerInfo *root, RelOptInfo *relation, CustomPath *path, List *targets, List *clauses, List *plans)
{
    CustomScan *plan = makeNode(CustomScan);

    /* The foreign scan has checked the conditions. */
    plan->scan.plan.targetlist = targets;
    plan->custom_plans = plans;
    plan->custom_scan_tlist = copyObject(((Plan *) linitial(plans))->targetlist);
    plan->flags = path->flags;
    plan->methods = &plan_methods;
    return &plan->scan.plan;
}

static const CustomPathMethods path_methods = {.CustomName = "OtherPaths", .PlanCustomPath = make_plan};

static void
offer_path(RelOptInfo *relation)
{
    ListCell *cell;

    if (cost_factor < 0)
        return;
    foreach(cell, relation->pathlist)
    {
        Path *found = (Path *) lfirst(cell);

        if (IsA(found, ForeignPath) && found->param_info == NULL)
        {
            /* The relation frees the paths that it finds dominated. */
            ForeignPath *below = (ForeignPath *) palloc(sizeof(ForeignPath));
            CustomPath *path = makeNode(CustomPath);

            *below = *(ForeignPath *) found;
            path->path.pathtype = T_CustomScan;
            path->path.parent = relation;
            path->path.pathtarget = relation->reltarget;
            path->path.rows = found->rows;
            path->path.startup_cost = found->startup_cost * cost_factor;
            path->path.total_cost = found->total_cost * cost_factor;
            path->flags = 0;
            path->custom_paths = list_make1(below);
            path->methods = &path_methods;
            add_path(relation, (Path *) path);
            return;
        }
    }
}

static void
on_table(PlannerInfo *root, RelOptInfo *relation, Index index, RangeTblEntry *entry)
{
    if (next_rel_hook)
        next_rel_hook(root, relation, index, entry);
    offer_path(relation);
}

static void
on_join(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner, JoinType type, JoinPathExtraData *extra)
{
    if (next_join_hook)
        next_join_hook(root, joined, outer, inner, type, extra);
    offer_path(joined);
}

void
_PG_init(void)
{
    DefineCustomRealVariable("other_paths.cost_factor", "Cost of the library's paths as a multiple of foreign scans'", NULL,
                             &cost_factor, -1, -1, 1000, PGC_USERSET, 0, NULL, NULL, NULL);
    RegisterCustomScanMethods(&plan_methods);
    next_rel_hook = set_rel_pathlist_hook;
    set_rel_pathlist_hook = on_table;
    next_join_hook = set_join_pathlist_hook;
    set_join_pathlist_hook = on_join;
}
