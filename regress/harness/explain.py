"""Reads EXPLAIN: whether a query runs as one scan, why not, on what it runs, and what its operators gave."""

import json
import re


# A line of a plan: an exchange that moves rows, its number and its reason.
EXCHANGE = r" *(Shuffle|Broadcast|Gather|Merge) \d+.*: \w"


class PlanShape:
    """`one_scan`: a single Foreign Scan, with InitPlans that are single Foreign Scans too."""

    def __init__(self, one_scan, nodes, reasons):
        self.one_scan, self.nodes, self.reasons = one_scan, nodes, reasons


def plan_shape(session, query):
    """Explains `query` (one statement that EXPLAIN takes) and returns its PlanShape."""
    text = session.run("EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) " + query).scalar()
    document = json.loads(text)
    nodes, reasons = [], []
    one_scan = _is_one_scan(document[0]["Plan"])
    _collect(document[0]["Plan"], nodes)
    _reasons(document, reasons)
    return PlanShape(one_scan, nodes, sorted(set(reasons)))


def runs_on(session, query):
    """What the scans of `query` will run on: a device, or `cpu` with the reason; empty where a server has one engine."""
    text = session.run("EXPLAIN (FORMAT JSON) " + query).scalar()
    nodes = []
    _collect_plans(json.loads(text)[0]["Plan"], nodes)
    return [node["Runs On"] for node in nodes if "Runs On" in node]


def ran_on(session, query):
    """Runs `query` (one statement that EXPLAIN takes): what its scans ran on, and the bytes that they spilled."""
    text = session.run("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + query).scalar()
    nodes = []
    _collect_plans(json.loads(text)[0]["Plan"], nodes)
    places = [node["Ran On"] for node in nodes if "Ran On" in node]
    return places, sum(node.get("Spilled Bytes", 0) for node in nodes)


def ranks_of(session, query):
    """Runs `query` (one statement that EXPLAIN takes): by scan that says which ranks ran it, what it says, the plan's exchanges with
    the reason for each, and what they moved."""
    text = session.run("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + query).scalar()
    nodes = []
    _collect_plans(json.loads(text)[0]["Plan"], nodes)
    planned = [[line.strip() for line in node.get("Rank Plan", []) if re.match(EXCHANGE, line)] for node in nodes]
    return [(node["Ranks"], plan, node.get("Exchanges", [])) for node, plan in zip(nodes, planned) if "Ranks" in node]


class PlanOperator:
    """An operator of the pushed plan: `estimate` and `actual` rows (None if not told), whether operators above kept it from giving
    all of its rows, and whether it was executed: of a shared part only one reader's is."""

    def __init__(self, line):
        found = re.fullmatch(r"( *)(.*?)  \(rows=(\d+)(?: actual=(\d+))?( reduced)?( never executed)?\)", line)
        if not found:
            raise ValueError(f"not an operator of a plan with rows: {line!r}")
        self.depth, self.text, self.estimate = len(found[1]) // 2, found[2], int(found[3])
        self.actual, self.reduced, self.executed = found[4] and int(found[4]), bool(found[5]), not found[6]

    @property
    def kind(self):
        """`scan`, `join`, `aggregate`, or the first word."""
        if re.match(r"(Inner|Left|Full|Semi|Anti|Null-aware anti) join", self.text):
            return "join"
        word = self.text.split()[0].lower()
        return "aggregate" if word == "distinct" else word

    @property
    def factor(self):
        """How far the estimate is off, 1 for right. Of a reduced operator only an estimate below counts."""
        estimate, actual = max(self.estimate, 1), max(self.actual, 1)
        return actual / estimate if self.reduced else max(actual / estimate, estimate / actual)


def plan_operators(session, query):
    """Runs `query` (one statement that EXPLAIN takes) and returns the PlanOperators of its scans, a list a scan."""
    text = session.run("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + query).scalar()
    nodes = []
    _collect_plans(json.loads(text)[0]["Plan"], nodes)
    return [[PlanOperator(line) for line in node["Engine Plan"]] for node in nodes if "Engine Plan" in node]


def _collect_plans(plan, nodes):
    nodes.append(plan)
    for child in plan.get("Plans", []):
        _collect_plans(child, nodes)


def _is_one_scan(plan):
    if plan["Node Type"] != "Foreign Scan":
        return False
    children = plan.get("Plans", [])
    return all(child.get("Parent Relationship") == "InitPlan" and _is_one_scan(child) for child in children)


def _collect(plan, nodes):
    nodes.append(plan["Node Type"])
    for child in plan.get("Plans", []):
        _collect(child, nodes)


def _reasons(value, reasons):
    """Properties whose name says that something was not pushed down, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if re.search(r"not pushed|refus", key, re.IGNORECASE):
                reasons.extend([inner] if isinstance(inner, str) else [str(item) for item in inner])
            else:
                _reasons(inner, reasons)
    elif isinstance(value, list):
        for inner in value:
            _reasons(inner, reasons)
