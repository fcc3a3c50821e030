"""What all charts look like: letters, colours that suit light and dark pages, and the head of an SVG that needs nothing from elsewhere.

Colours are of classes, and follow the reader's scheme where the viewer has one; otherwise, as in a PNG, they are those on white. So
no chart is drawn with colours of its own.
"""

import html

# By place: enough hues for eight series that lie beside one another, each on white and on black.
SERIES = (("#2f7d4f", "#56c288"), ("#c77f2a", "#e0a458"), ("#3b6ea8", "#79aee8"), ("#8e5ea2", "#c79be0"), ("#b03a48", "#f0808c"),
          ("#2f8f8f", "#62d0d0"), ("#7a6a4f", "#c2ae8a"), ("#5d6b76", "#a7b4bf"))
_LIGHT = ("text { fill: #24292f } .note { fill: #57606a } .paper { fill: #ffffff } .plot { fill: #f6f8fa } "
          ".grid { stroke: #d0d7de } .axis { stroke: #57606a }")
_DARK = ("text { fill: #e6edf3 } .note { fill: #9da7b1 } .paper { fill: #0d1117 } .plot { fill: #161b22 } "
         ".grid { stroke: #30363d } .axis { stroke: #9da7b1 }")
# A letter of text at its size has about this many pixels.
LETTER_WIDTH = 6.6


def _series(place):
    """Of each series its area (fill) and its line (stroke), on white (0) or on black (1)."""
    return " ".join(f".s{number} {{ fill: {colours[place]} }} .l{number} {{ stroke: {colours[place]}; fill: none }}"
                    for number, colours in enumerate(SERIES))


def style():
    """The content of a style element."""
    return ("text { font: 12px system-ui, sans-serif } .title { font-size: 15px; font-weight: 600 } .name { font-weight: 600 } "
            f".note {{ font-size: 11px }} {_LIGHT} {_series(0)} "
            f"@media (prefers-color-scheme: dark) {{ {_DARK} {_series(1)} }}")


def text(x, y, words, kind="", anchor="start", **attributes):
    """Words at a place. `kind`: a class: title, name, note."""
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    kind = f' class="{kind}"' if kind else ""
    # Words begin at their place by themselves.
    anchor = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{anchor}{kind}{more}>{html.escape(words)}</text>'


def drawing(width, height, title, body):
    """An SVG on paper of its own, with a title that is also read aloud."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{html.escape(title)}</title>", f"<style>{style()}</style>", '<rect class="paper" width="100%" height="100%"/>', *body, "</svg>", ""])
