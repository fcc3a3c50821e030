"""Writes the report: a Markdown table, and HTML with inline SVG that needs nothing from elsewhere."""

import html
import math

import chart_style

# Places in the colours of charts.
SERIES = {"pystachio": 0, "duckdb": 1, "postgres": 2, "datafusion": 3, "datafusion-mem": 4, "pystachio-warm": 5}


def geometric_mean(values):
    """The geometric mean, or None of nothing."""
    values = list(values)
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None


def ratio_mean(medians, peer, base):
    """Geometric mean of one peer's medians over another's, on the queries that both have."""
    pairs = [(row[peer], row[base]) for row in medians.values() if row.get(peer) and row.get(base)]
    return geometric_mean(one / other for one, other in pairs), len(pairs)


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def markdown(report):
    """The whole report as Markdown."""
    peers, medians = report["peers"], report["medians"]
    lines = [f"# TPC-H SF {report['scale']}, {report['date']}, {report['host']}", "", report["setting"], ""]
    lines += ["Versions: " + ", ".join(f"{name} {version}" for name, version in report["versions"].items()) + ".", ""]
    lines += ["## Seconds (median; in brackets: ratio to DuckDB)", ""]
    lines += ["| query | " + " | ".join(peers) + " | planning ms | one scan |", "|---" + "|---:" * len(peers) + "|---:|---|"]
    for query, row in medians.items():
        base = row.get("duckdb")
        cells = [f"{number(row.get(peer))}" + (f" ({row[peer] / base:.2f})" if base and row.get(peer) else "") for peer in peers]
        lines.append(f"| {query} | " + " | ".join(cells) + f" | {number(report['planning_ms'].get(query), 1)} | {report['one_scan'].get(query, '-')} |")
    totals = [number(sum(row[peer] for row in medians.values() if row.get(peer))) for peer in peers]
    lines += ["| total | " + " | ".join(totals) + " | | |", "", "## Targets", "", "| claim | target | measured | |", "|---|---:|---:|---|"]
    for claim in report["claims"]:
        state = "-" if claim["measured"] is None else ("met" if claim["met"] else "missed")
        lines.append(f"| {claim['text']} | {claim['target']} | {number(claim['measured'], claim['digits'])} | {state} |")
    lines += ["", "## Answers", "", report["answers"], ""]
    if report["notes"]:
        lines += ["## Notes", ""] + [f"- {note}" for note in report["notes"]] + [""]
    return "\n".join(lines)


def page(report):
    """The whole report as one HTML page."""
    claims = "".join(
        f"<tr class='{'met' if claim['met'] else 'missed'}'><td>{html.escape(claim['text'])}</td><td>{html.escape(claim['target'])}</td>"
        f"<td>{number(claim['measured'], claim['digits'])}</td></tr>" for claim in report["claims"])
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in report["notes"])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>pystachio: TPC-H SF {report['scale']}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #24292f; background: #ffffff }}
table {{ border-collapse: collapse }} td, th {{ padding: .15rem .8rem; border-bottom: 1px solid #d0d7de; text-align: left }}
.met td:last-child {{ color: #2f7d4f }} .missed td:last-child {{ color: #b3261e }}
svg {{ max-width: 100%; height: auto }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e6edf3; background: #0d1117 }} td, th {{ border-color: #30363d }} }}
</style></head><body>
<h1>TPC-H SF {report['scale']}</h1>
<p>{html.escape(report['date'])}, {html.escape(report['host'])}. {html.escape(report['setting'])}</p>
<h2>All queries</h2>
{means_chart(report)}
<h2>Each query</h2>
{query_chart(report)}
<h2>Targets</h2><table><tr><th>claim</th><th>target</th><th>measured</th></tr>{claims}</table>
<p>{html.escape(report['answers'])}</p><ul>{notes}</ul>
</body></html>
"""


def means_chart(report):
    """One bar a peer."""
    means = [(peer, ratio_mean(report["medians"], peer, "duckdb")[0]) for peer in report["peers"]]
    means = [(peer, value) for peer, value in means if value]
    if not means:
        return "<p>DuckDB did not run.</p>"
    title = "Geometric mean of the queries' medians over DuckDB's, which is 1; lower is better"
    widest, parts, head = max(value for _, value in means), [chart_style.text(10, 24, title, "title")], 40
    for place, (peer, value) in enumerate(means):
        top = head + place * 28
        width = 560 * value / widest
        parts += [chart_style.text(130, top + 17, peer, anchor="end"),
                  f'<rect class="s{SERIES[peer]}" x="138" y="{top + 4}" width="{width:.1f}" height="18"/>',
                  chart_style.text(146 + width, top + 17, f"{value:.2f}")]
    return chart_style.drawing(780, head + 28 * len(means) + 8, title, parts)


def query_chart(report):
    """A group of bars a query, on a logarithmic axis."""
    peers, medians = report["peers"], report["medians"]
    values = [value for row in medians.values() for value in row.values() if value]
    if not values:
        return "<p>Nothing was measured.</p>"
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    bar, height, left, head = 6, 260, 64, 70
    # A query's name needs some room, however few peers there are.
    group = max(bar * len(peers) + 8, 32)
    width = left + group * len(medians) + 10
    title = "Seconds a query (median), logarithmic; lower is better"

    def level(value):
        return head + height - height * (math.log10(value) - math.log10(low)) / max(math.log10(high) - math.log10(low), 1e-9)

    parts, tick = [chart_style.text(left, 24, title, "title")], low
    for place, peer in enumerate(peers):
        parts += [f'<rect class="s{SERIES[peer]}" x="{left + 130 * place}" y="38" width="12" height="12"/>', chart_style.text(left + 18 + 130 * place, 49, peer)]
    while tick <= high * 1.001:
        parts += [f'<line class="grid" x1="{left}" x2="{width}" y1="{level(tick):.1f}" y2="{level(tick):.1f}"/>',
                  chart_style.text(left - 6, level(tick) + 4, f"{tick:g} s", anchor="end")]
        tick *= 10
    for place, (query, row) in enumerate(medians.items()):
        start = left + place * group + (group - bar * len(peers)) / 2
        for offset, peer in enumerate(peers):
            if row.get(peer):
                top = level(row[peer])
                parts.append(f'<rect class="s{SERIES[peer]}" x="{start + offset * bar:.1f}" y="{top:.1f}" width="{bar - 1}" '
                             f'height="{head + height - top:.1f}"><title>{query} {peer}: {row[peer]:.3f} s</title></rect>')
        parts.append(chart_style.text(left + (place + 0.5) * group, head + height + 16, query, anchor="middle"))
    return chart_style.drawing(max(width, 130 * len(peers) + left, 840), head + height + 28, title, parts)
