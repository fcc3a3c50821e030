"""Reads EXPLAIN: whether a query runs as one scan, and why not."""

import json
import re


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
