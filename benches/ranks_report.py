"""The report of ranks.py: one Markdown page of whatever has been measured so far.

Definitions: a ratio says how many times faster all ranks are than one (seconds of one over seconds of all). GB/s of the network:
bytes that the rank which sent most sent to others, over the time from its first send until 99 of 100 bytes were there, pauses too; `on their way`:
the time in which anything was on its way to or from it. `of raw`: that rate over the best of raw transfers in the same run.
"""

from report import geometric_mean, number

TOTAL_RATIO_MIN, RAW_SHARE_MIN = 1.7, {"p2p": 0.85, "host": 0.9}
QUERY_COUNT = 22
NVIDIA_JOIN = "0.392 s on 8 V100: 510 M rows a second and GPU"
PAPER_JOIN = "17.2 of 22.3 GiB/s, 77 %"


def file_name(document):
    """Of the report's files, without what they end with."""
    facts = document["facts"]
    return f"{facts['date']}-ranks-{facts['ranks']}-{facts['device']}-sf{document['scale']}"


class Measured:
    """Looks measurements of queries up."""

    def __init__(self, document):
        self.entries = {(entry["mode"], entry["system"], entry["query"]): entry for entry in document["measured"]}
        self.queries = sorted({key[2] for key in self.entries})

    def entry(self, mode, configuration, query):
        return self.entries.get((mode, configuration, query), {})

    def seconds(self, mode, configuration, query):
        return self.entry(mode, configuration, query).get("seconds")

    def ratio(self, mode, configuration, query):
        one, several = self.seconds(mode, "one", query), self.seconds(mode, configuration, query)
        return one / several if one and several else None

    def totals(self, mode, configuration):
        """Seconds of one rank and of a configuration over the queries that both have, and how many these are."""
        pairs = [(self.seconds(mode, "one", query), self.seconds(mode, configuration, query)) for query in self.queries]
        pairs = [pair for pair in pairs if all(pair)]
        return sum(one for one, _ in pairs), sum(several for _, several in pairs), len(pairs)


def _megabytes(count, digits=1):
    return number(count / 1e6 if count is not None else None, digits)


def _cell(entry, digits=1):
    """Milliseconds, or what came instead."""
    if entry.get("error"):
        return "error"
    return number(entry["seconds"] * 1e3, digits) if entry.get("seconds") else "-"


def hot_table(measured):
    """Each query on one rank and on all, and what it moved."""
    lines = ["| query | one, ms | all | fastest | one/all | one/fastest | answer | read, MB | rows moved, M | sent by a rank, MB | GB/s |",
             "|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|"]
    for query in measured.queries:
        one, several, fastest = (measured.entry("hot", name, query) for name in ("one", "all", "fastest"))
        differ = [entry["difference"] for entry in (several, fastest) if entry.get("difference")]
        answer = f"DIFFERS: {differ[0]}" if differ else "same" if several.get("seconds") and one.get("seconds") else "-"
        moved = several.get("moved_rows")
        lines.append(f"| {query} | {_cell(one)} | {_cell(several)} | {_cell(fastest)} | {number(measured.ratio('hot', 'all', query), 2)} | "
                     f"{number(measured.ratio('hot', 'fastest', query), 2)} | {answer} | {_megabytes(one.get('bytes_read'))} | "
                     f"{number(moved / 1e6 if moved is not None else None, 2)} | {_megabytes(several.get('sent_bytes'), 2)} | "
                     f"{number(several.get('network_gb_s'), 1)} |")
    return lines + _total_lines(measured, "hot", ("all", "fastest"), 5)


def _total_lines(measured, mode, configurations, empty):
    """The totals' row of a table that has the modes' seconds first and then so many further columns less the ratios."""
    totals = [measured.totals(mode, name) for name in configurations]
    one = max((total[0] for total in totals), default=0.0)
    ratios = [number(first / second if second else None, 2) for first, second, _ in totals]
    cells = [number(one * 1e3, 1), *(number(second * 1e3, 1) for _, second, _ in totals), *ratios]
    count = min((count for _, _, count in totals), default=0)
    return [f"| total of {count} | " + " | ".join(cells) + " |" + " |" * empty]


def fresh_table(measured, mode):
    """A mode in which each query has a fresh engine."""
    lines = ["| query | one, ms | all | one/all | read by one, MB | by all |", "|---|---:|---:|---:|---:|---:|"]
    for query in measured.queries:
        one, several = (measured.entry(mode, name, query) for name in ("one", "all"))
        if one or several:
            lines.append(f"| {query} | {_cell(one)} | {_cell(several)} | {number(measured.ratio(mode, 'all', query), 2)} | "
                         f"{_megabytes(one.get('bytes_read'))} | {_megabytes(several.get('bytes_read'))} |")
    return lines + _total_lines(measured, mode, ("all",), 2)


def claims(document, measured):
    """What is aimed at, what was measured, and whether that is it."""
    one, several, count = measured.totals("hot", "fastest")
    slower = [query for query in measured.queries if (ratio := measured.ratio("hot", "fastest", query)) and ratio < 0.95]
    compared = [entry for entry in document["measured"] if entry["mode"] == "hot" and entry["system"] != "one" and entry.get("seconds")
                and measured.entry("hot", "one", entry["query"]).get("seconds")]
    differ = [entry for entry in compared if entry.get("difference")]
    rows = []
    if compared:
        rows.append(("answers of all ranks that are those of one, to the letter", "all", f"{len(compared) - len(differ)} of {len(compared)}", not differ))
    if count:
        rows.append((f"hot, in total, {count} of {QUERY_COUNT} queries: times faster than one rank", f">= {TOTAL_RATIO_MIN}",
                     number(one / several, 2), one / several >= TOTAL_RATIO_MIN))
        rows.append(("queries that are slower by more than 5 %", "none", ", ".join(slower) or "none", not slower))
    for links, share in RAW_SHARE_MIN.items():
        found = [value for entry in document.get("joins", {}).values()
                 if entry["links"] == links and entry["kind"] == "full" and entry["configuration"] == "all" and entry["step"] == "all on"
                 and (value := share_of_raw(entry)) is not None]
        if found:
            rows.append((f"paper's join over {links}: best share of raw transfers", f">= {share:.0%}", f"{max(found):.0%}", max(found) >= share))
    return ["| claim | aim | measured | |", "|---|---:|---:|---|"] + [
        f"| {claim} | {aim} | {value} | {'met' if met else 'missed'} |" for claim, aim, value, met in rows]


def share_of_raw(entry):
    """A join's rate over that of raw transfers; None where one is not known."""
    rate, raw = entry.get("network_gb_s"), entry.get("raw_gb_s")
    return rate / raw if rate and raw else None


def joins_table(entries, ranks):
    lines = ["| links | ranks | kind | columns | step | exchanges | ms | M rows/s and GPU | sent by a rank, MB | within ms | on their way, ms | GB/s | of raw | answer |",
             "|---|---:|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---|"]
    for entry in entries:
        count = 1 if entry["configuration"] == "one" else ranks
        head = f"| {entry['links']} | {count} | {entry['kind']} | {entry['columns']} | {entry['step']} |"
        if entry["error"]:
            lines.append(f"{head} | error | | | | | | | {entry['error']} |")
            continue
        share = share_of_raw(entry)
        kinds = ", ".join(line.split()[0].lower() for line in entry["exchanges"])
        lines.append(f"{head} {kinds or '-'} | {_cell(entry)} | {entry['rows'] / entry['seconds'] / count / 1e6:.0f} | {_megabytes(entry['sent_bytes'])} | "
                     f"{number(entry['window_ms'], 1)} | {number(entry['network_ms'], 1)} | {number(entry['network_gb_s'], 1)} | {f'{share:.0%}' if share is not None else '-'} | "
                     f"{'DIFFERS' if entry['differs'] else 'same'} |")
    return lines


def _joins(document):
    """Both joins' parts of the page."""
    lines, entries = [], document.get("joins", {}).values()
    heads = {"paper_join": ("The paper's distributed join", f"The paper: {PAPER_JOIN} of its link."),
             "large_join": ("NVIDIA's distributed join", f"rapidsai/distributed-join: {NVIDIA_JOIN}.")}
    for join, (title, note) in heads.items():
        of_join = [entry for entry in entries if entry["join"] == join]
        if of_join:
            made = document.get("generated", {}).get(join)
            rows = f" {made['rows']} columns of 8 bytes: {made['gb']:.1f} GB, written in {made['seconds']:.0f} s." if made else ""
            lines += [f"## {title}", "", note + rows, "", *joins_table(of_join, document["facts"]["ranks"]), ""]
    missing = document["facts"].get("ablation_without_settings")
    if missing:
        lines += ["Steps of the ablation that this build has no settings for: " + ", ".join(missing) + ".", ""]
    return lines


def _bandwidths(document):
    """What the drawing says in numbers."""
    found = document.get("bandwidths", {})
    if not found:
        return []
    query = next(iter(found.values()))
    where = "not in the page cache" if query["cold"] else "in the page cache"
    lines = [f"## Storage and network of {query['query']}", "", f"On all ranks, files {where}, nothing on the GPUs; drawn in {file_name(document)}.svg.", "",
             "| technique | ms | T_min, ms | ms/T_min | read, MB | sent by a rank, MB | on their way, ms | GB/s | highest GB/s of storage | of network |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for technique, entry in found.items():
        most = {kind: max((max(values) for name, values in entry["series"].items() if name.startswith(kind)), default=None)
                for kind in ("storage", "network")}
        t_min = entry["t_min_ms"]
        lines.append(f"| {technique} | {entry['elapsed_ms']:.1f} | {number(t_min, 2)} | {number(entry['elapsed_ms'] / t_min if t_min else None, 2)} | {_megabytes(entry['read_bytes'])} | {_megabytes(entry['sent_bytes'])} | "
                     f"{number(entry['network_ms'], 1)} | {number(entry['network_gb_s'], 1)} | {number(most['storage'], 1)} | {number(most['network'], 1)} |")
    rates = [(document["facts"].get(name), what) for name, what in (("storage_bytes_per_s", "reading the files"), ("link_bytes_per_s", "raw transfers"))]
    lines += ["", "T_min by " + " and ".join(f"{rate / 1e9:.1f} GB/s of {what}" for rate, what in rates if rate) + "."] if any(rate for rate, _ in rates) else []
    missing = document["facts"].get("techniques_without_settings")
    if missing:
        lines += ["", "Techniques that this build has no settings for: " + ", ".join(missing) + "."]
    return lines + [""]


def _kills(document):
    lines = []
    for struck, found in document.get("kill", {}).items():
        if not found["error"]:
            lines.append(f"- {struck}: no query failed after it.")
            continue
        lines.append(f"- {struck}, after {found['queries_before']} queries: an error after {number(found['error_s'], 2)} s "
                     f"(`{found['error']}`), rows again after {number(found['next_s'], 2)} s, all ranks connected again after "
                     f"{number(found['connected_s'], 2)} s.")
    return ["## Ranks that fail", "", *lines, ""] if lines else []


def _skew(document):
    skew = document.get("skew", {})
    if not skew:
        return []
    lines = ["## Keys that many rows have", "", "| lineitem LEFT JOIN orders by seven values | first s | best s | MB sent | answer |", "|---|---:|---:|---:|---|"]
    lines += [f"| {name} | {number(found['first_s'], 3)} | {number(found['seconds'], 3)} | {number(found['sent_bytes'] / 1e6, 1)} | "
              f"{'same' if found['is_same'] else 'differs'} |" for name, found in skew.items()]
    return [*lines, ""]


def markdown(document):
    """The whole page."""
    facts, measured = document["facts"], Measured(document)
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [f"# {facts['ranks']} ranks, TPC-H SF {document['scale']}, {facts['date']}", "",
             f"{facts['ranks']} × {facts['gpu']} (device {facts['device']}); {facts['threads']} threads ({facts['processor']}), "
             f"{facts['memory_gib']} GiB. {versions}; {facts['built']}. Hot: the best of {facts['runs']} runs.", "", *claims(document, measured), ""]
    if any(key[0] == "hot" for key in measured.entries):
        lines += ["## Hot", "", *hot_table(measured), "", f"Geometric mean of one/all: "
                  f"{number(geometric_mean(ratio for query in measured.queries if (ratio := measured.ratio('hot', 'all', query))), 2)}.", ""]
    lines += _kills(document) + _skew(document) + _joins(document) + _bandwidths(document)
    for mode, title in (("warm", "Warm: files in the page cache, a fresh engine for each query"), ("cold", "Cold: nothing in memory")):
        if any(key[0] == mode for key in measured.entries):
            lines += [f"## {title}", "", *fresh_table(measured, mode), ""]
    return "\n".join(lines)
