"""Bandwidths over a query's time as SVG: a panel for each technique, all with the same axes, so that they compare by eye."""

import chart_style
from timeline_chart import axis_step

# Every second series is dashed: ranks that do the same lie on one another.
_DASHES = ["none", "5 3"]
_HEADROOM = 1.05
_COLUMNS = 2
_WIDTH, _HEIGHT = 360, 130
# Around a panel: for numbers and title of the vertical axis, the panel's title, and those of the horizontal one.
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 18, 30, 44
_LEGEND_LINE, _LEGEND_WIDTH, _HEAD = 20, 205, 52


def _marks(most):
    """The values at which an axis from 0 has marks: a few round ones."""
    step = axis_step(most)
    return [place * step for place in range(int(most / step + 1e-9) + 1)]


def _axes(x, y, longest_ms, most):
    """Both axes of a panel whose upper left corner is at (x, y), with marks, numbers and titles."""
    lines = [f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" class="plot"/>']
    for value in _marks(longest_ms)[::2]:
        at = x + _WIDTH * value / longest_ms
        lines.append(f'<line x1="{at:.1f}" y1="{y + _HEIGHT}" x2="{at:.1f}" y2="{y + _HEIGHT + 4}" class="axis"/>')
        lines.append(chart_style.text(at, y + _HEIGHT + 16, f"{value:g}", "note", "middle"))
    for value in _marks(most)[::2]:
        at = y + _HEIGHT - _HEIGHT * value / most
        lines.append(f'<line x1="{x}" y1="{at:.1f}" x2="{x + _WIDTH}" y2="{at:.1f}" class="grid"/>')
        lines.append(chart_style.text(x - 6, at + 4, f"{value:g}", "note", "end"))
    lines.append(chart_style.text(x + _WIDTH / 2, y + _HEIGHT + 33, "milliseconds since the query's start", "note", "middle"))
    middle = y + _HEIGHT / 2
    lines.append(chart_style.text(x - 48, middle, "bandwidth, GB/s", "note", "middle", transform=f"rotate(-90 {x - 48} {middle:.1f})"))
    return lines


def _line(x, y, values, span_ms, longest_ms, most, stroke):
    """One series as steps: its bins cover `span_ms` of the axis. `stroke`: class and dashes, as SVG."""
    width = _WIDTH * span_ms / longest_ms / len(values)
    points = []
    for place, value in enumerate(values):
        height = y + _HEIGHT - _HEIGHT * value / most
        points += [f"{x + place * width:.1f},{height:.1f}", f"{x + (place + 1) * width:.1f},{height:.1f}"]
    return f'<polyline points="{" ".join(points)}" {stroke} stroke-width="1.4"/>'


def svg(bandwidths):
    """A drawing of what ranks_timeline.py found: by technique `elapsed_ms` and `series` of GB/s."""
    names = list(dict.fromkeys(name for found in bandwidths.values() for name in found["series"]))
    strokes = {name: f'class="l{place % len(chart_style.SERIES)}" stroke-dasharray="{_DASHES[place % len(_DASHES)]}"'
               for place, name in enumerate(names)}
    longest_ms = max(max(found["elapsed_ms"] for found in bandwidths.values()), 0.01)
    most = max((value for found in bandwidths.values() for values in found["series"].values() for value in values), default=0.0) or 1.0
    most *= _HEADROOM
    panel_width, panel_height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    width = _COLUMNS * panel_width
    a_line = max(1, width // _LEGEND_WIDTH)
    title = "Storage and network over a query's time, with and without each technique"
    legend_height = _HEAD + 12 + _LEGEND_LINE * -(-len(names) // a_line)
    body = [chart_style.text(20, 28, title, "title"),
            chart_style.text(20, 46, "bandwidth in use; all panels have the same axes, and a shorter line is a faster query", "note")]
    for place, name in enumerate(names):
        x, y = 20 + _LEGEND_WIDTH * (place % a_line), _HEAD + 18 + _LEGEND_LINE * (place // a_line)
        body.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 22}" y2="{y - 4}" {strokes[name]} stroke-width="3"/>')
        body.append(chart_style.text(x + 28, y, name))
    for place, (technique, found) in enumerate(bandwidths.items()):
        x = _LEFT + panel_width * (place % _COLUMNS)
        y = legend_height + _TOP + panel_height * (place // _COLUMNS)
        body += [chart_style.text(x, y - 9, f"{technique}: {found['elapsed_ms']:.0f} ms", "name"), *_axes(x, y, longest_ms, most)]
        body += [_line(x, y, values, found["elapsed_ms"], longest_ms, most, strokes[name]) for name, values in found["series"].items()]
    height = legend_height + panel_height * -(-len(bandwidths) // _COLUMNS)
    return chart_style.drawing(width, height, title, body)
