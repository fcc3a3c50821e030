"""Writes the report: a Markdown table, and HTML with inline SVG that needs nothing from elsewhere."""

import html
import math

COLOURS = {"pystachio": "#2f7d4f", "pystachio-warm": "#7fbf4d", "duckdb": "#d9a400", "datafusion": "#c65d2e",
           "datafusion-mem": "#e3a27f", "postgres": "#336791"}


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
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }}
table {{ border-collapse: collapse }} td, th {{ padding: .15rem .8rem; border-bottom: 1px solid #ddd; text-align: left }}
.met td:last-child {{ color: #2f7d4f }} .missed td:last-child {{ color: #b3261e }}
svg text {{ font: 12px system-ui, sans-serif; fill: #333 }}
</style></head><body>
<h1>TPC-H SF {report['scale']}</h1>
<p>{html.escape(report['date'])}, {html.escape(report['host'])}. {html.escape(report['setting'])}</p>
<h2>Geometric mean of the queries' medians, DuckDB = 1</h2>
{means_chart(report)}
<h2>Seconds by query (logarithmic)</h2>
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
    widest, parts = max(value for _, value in means), []
    for place, (peer, value) in enumerate(means):
        top = place * 28
        width = 560 * value / widest
        parts.append(f"<text x='130' y='{top + 17}' text-anchor='end'>{peer}</text>"
                     f"<rect x='138' y='{top + 4}' width='{width:.1f}' height='18' fill='{COLOURS[peer]}'/>"
                     f"<text x='{146 + width:.1f}' y='{top + 17}'>{value:.2f}</text>")
    return f"<svg viewBox='0 0 780 {28 * len(means)}' width='780' role='img'>{''.join(parts)}</svg>"


def query_chart(report):
    """A group of bars a query, on a logarithmic axis."""
    peers, medians = report["peers"], report["medians"]
    values = [value for row in medians.values() for value in row.values() if value]
    if not values:
        return "<p>Nothing was measured.</p>"
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    bar, height, left = 6, 260, 50
    group = bar * len(peers) + 8
    width = left + group * len(medians) + 10

    def level(value):
        return height - height * (math.log10(value) - math.log10(low)) / max(math.log10(high) - math.log10(low), 1e-9)

    parts, tick = [], low
    while tick <= high * 1.001:
        parts.append(f"<line x1='{left}' x2='{width}' y1='{level(tick):.1f}' y2='{level(tick):.1f}' stroke='#ddd'/>"
                     f"<text x='{left - 6}' y='{level(tick) + 4:.1f}' text-anchor='end'>{tick:g}</text>")
        tick *= 10
    for place, (query, row) in enumerate(medians.items()):
        start = left + 4 + place * group
        for offset, peer in enumerate(peers):
            if row.get(peer):
                top = level(row[peer])
                parts.append(f"<rect x='{start + offset * bar}' y='{top:.1f}' width='{bar - 1}' height='{height - top:.1f}' "
                             f"fill='{COLOURS[peer]}'><title>{query} {peer}: {row[peer]:.3f} s</title></rect>")
        parts.append(f"<text x='{start + group / 2 - 4:.1f}' y='{height + 16}' text-anchor='middle'>{query}</text>")
    legend = "".join(f"<rect x='{left + 130 * place}' y='{height + 28}' width='12' height='12' fill='{COLOURS[peer]}'/>"
                     f"<text x='{left + 16 + 130 * place}' y='{height + 39}'>{peer}</text>" for place, peer in enumerate(peers))
    return f"<svg viewBox='0 0 {max(width, 840)} {height + 48}' width='{max(width, 840)}' role='img'>{''.join(parts)}{legend}</svg>"
