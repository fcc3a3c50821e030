#!/usr/bin/env python3
"""The workload of web analytics: 43 queries over one wide table of page views (web_data.py makes it).

usage: web.py data FOLDER [--rows N] [--writer duckdb|pyarrow] [--files N]
       web.py duckdb FOLDER [--runs N]                                   times and answers of the DuckDB that is installed
       web.py ours FOLDER CONNINFO [--runs N] [--device cuda] [--choices "gpu auto cpu"] [--limit SECONDS]
       web.py heap FOLDER CONNINFO                                       times and answers over a heap table of the same rows
       web.py report FOLDER                                              prints the table

All steps take the options of `data`, which name the files. Each step leaves its results in FOLDER/web-<rows>-<writer>-<files>.<step>.json,
query by query. Uncached: over a server without a column cache, over files in the page cache. Hot: with the cache, after a run that fills
it. Times are the least of some runs; processor times, which other work on the machine disturbs less, their mean over runs of a second. Order decides each answer, so answers are compared row by row: as text with the heap table's, and within a
tolerance of numbers with DuckDB's.
"""

import functools
import multiprocessing
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

from answers import difference_of, same_answer  # noqa: E402
from report import geometric_mean  # noqa: E402
from tpcds import Step, as_text, ran_on, read_results, timed, workload_parser  # noqa: E402
import web_data  # noqa: E402

DATABASE = "bench_web"
# Schema, and its server's options.
PLACES = {"hot": "", "uncached": ", cache '0'"}
SUMS = 90
# The kernel counts processor time in hundredths of a second.
MEASURED_S = 1.0
ROW_GROUP_ROWS = {"duckdb": 122_880, "pyarrow": 1_048_576}
# A user, a page and a site that have many rows.
USER = web_data.user_of(3)
PAGE = web_data.page_hash_of(1, 1)
REFERRER = web_data.page_hash_of(1, 2)
SITE = 1

QUERIES = [
    ("rows", "SELECT count(*) FROM views"),
    ("rows of ads", "SELECT count(*) FROM views WHERE ad_engine <> 0"),
    ("sums and an average", "SELECT sum(ad_engine), count(*), avg(screen_width) FROM views"),
    ("average of 64-bit ids", "SELECT avg(user_id) FROM views"),
    ("users", "SELECT count(DISTINCT user_id) FROM views"),
    ("phrases", "SELECT count(DISTINCT search_phrase) FROM views"),
    ("first and last day", "SELECT min(event_date), max(event_date) FROM views"),
    ("views by ad engine", "SELECT ad_engine, count(*) FROM views WHERE ad_engine <> 0 GROUP BY ad_engine ORDER BY 2 DESC, 1"),
    ("users by region", "SELECT region_id, count(DISTINCT user_id) AS users FROM views GROUP BY region_id ORDER BY users DESC, region_id LIMIT 10"),
    ("regions in numbers", """SELECT region_id, sum(ad_engine), count(*) AS views, avg(screen_width), count(DISTINCT user_id) FROM views
        GROUP BY region_id ORDER BY views DESC, region_id LIMIT 10"""),
    ("users by phone", """SELECT mobile_model, count(DISTINCT user_id) AS users FROM views WHERE mobile_model <> ''
        GROUP BY mobile_model ORDER BY users DESC, mobile_model LIMIT 10"""),
    ("users by maker and phone", """SELECT mobile_vendor, mobile_model, count(DISTINCT user_id) AS users FROM views WHERE mobile_model <> ''
        GROUP BY mobile_vendor, mobile_model ORDER BY users DESC, mobile_vendor, mobile_model LIMIT 10"""),
    ("top phrases", """SELECT search_phrase, count(*) AS views FROM views WHERE search_phrase <> ''
        GROUP BY search_phrase ORDER BY views DESC, search_phrase LIMIT 10"""),
    ("phrases by users", """SELECT search_phrase, count(DISTINCT user_id) AS users FROM views WHERE search_phrase <> ''
        GROUP BY search_phrase ORDER BY users DESC, search_phrase LIMIT 10"""),
    ("phrases of search engines", """SELECT search_engine, search_phrase, count(*) AS views FROM views WHERE search_phrase <> ''
        GROUP BY search_engine, search_phrase ORDER BY views DESC, search_engine, search_phrase LIMIT 10"""),
    ("top users", "SELECT user_id, count(*) AS views FROM views GROUP BY user_id ORDER BY views DESC, user_id LIMIT 10"),
    ("top phrases of users", """SELECT user_id, search_phrase, count(*) AS views FROM views
        GROUP BY user_id, search_phrase ORDER BY views DESC, user_id, search_phrase LIMIT 10"""),
    ("first phrases of users", """SELECT user_id, search_phrase, count(*) FROM views
        GROUP BY user_id, search_phrase ORDER BY user_id, search_phrase LIMIT 10"""),
    ("users by minute and phrase", """SELECT user_id, extract(minute FROM event_time) AS minute, search_phrase, count(*) AS views FROM views
        GROUP BY user_id, minute, search_phrase ORDER BY views DESC, user_id, minute, search_phrase LIMIT 10"""),
    ("one user's views", f"SELECT view_id, event_time FROM views WHERE user_id = {USER} ORDER BY event_time DESC, view_id LIMIT 20"),
    ("URLs with a word", "SELECT count(*) FROM views WHERE url LIKE '%dorlodorgu%'"),
    ("phrases to URLs with a word", """SELECT search_phrase, min(url), count(*) AS views FROM views WHERE url LIKE '%dorlodorgu%' AND search_phrase <> ''
        GROUP BY search_phrase ORDER BY views DESC, search_phrase LIMIT 10"""),
    ("phrases to titles with a word", """SELECT search_phrase, min(url), min(title), count(*) AS views, count(DISTINCT user_id) FROM views
        WHERE title LIKE '%museum%' AND url NOT LIKE '%.shop.%' AND search_phrase <> ''
        GROUP BY search_phrase ORDER BY views DESC, search_phrase LIMIT 10"""),
    ("whole rows with a word", "SELECT * FROM views WHERE url LIKE '%shipakabe%' ORDER BY event_time, view_id LIMIT 10"),
    ("first phrases by time", "SELECT search_phrase FROM views WHERE search_phrase <> '' ORDER BY event_time, view_id LIMIT 10"),
    ("first phrases by text", "SELECT search_phrase FROM views WHERE search_phrase <> '' ORDER BY search_phrase LIMIT 10"),
    ("first phrases by time and text", "SELECT search_phrase FROM views WHERE search_phrase <> '' ORDER BY event_time, search_phrase LIMIT 10"),
    ("lengths of URLs by site", """SELECT site_id, avg(length(url)) AS characters, count(*) AS views FROM views WHERE url <> ''
        GROUP BY site_id HAVING count(*) > 500 ORDER BY characters DESC, site_id LIMIT 25"""),
    ("hosts of referrers", r"""SELECT regexp_replace(referrer, '^https?://(?:www[.])?([^/:?#]+).*$', '\1') AS host, avg(length(referrer)) AS characters,
            count(*) AS views, min(referrer) FROM views WHERE referrer <> ''
        GROUP BY host HAVING count(*) > 200 ORDER BY characters DESC, host LIMIT 25"""),
    (f"{SUMS} sums", f"SELECT {', '.join(f'sum(window_width + {number})' for number in range(SUMS))} FROM views"),
    ("engines and addresses", """SELECT search_engine, client_ip, count(*) AS views, sum(is_refresh), avg(screen_width) FROM views
        WHERE search_phrase <> '' GROUP BY search_engine, client_ip ORDER BY views DESC, search_engine, client_ip LIMIT 10"""),
    ("searches and addresses", """SELECT view_id, client_ip, count(*) AS views, sum(is_refresh), avg(screen_width) FROM views
        WHERE search_phrase <> '' GROUP BY view_id, client_ip ORDER BY views DESC, view_id, client_ip LIMIT 10"""),
    ("views and addresses", """SELECT view_id, client_ip, count(*) AS views, sum(is_refresh), avg(screen_width) FROM views
        GROUP BY view_id, client_ip ORDER BY views DESC, view_id, client_ip LIMIT 10"""),
    ("top URLs", "SELECT url, count(*) AS views FROM views GROUP BY url ORDER BY views DESC, url LIMIT 10"),
    ("top URLs and a constant", "SELECT 1 AS one, url, count(*) AS views FROM views GROUP BY one, url ORDER BY views DESC, url LIMIT 10"),
    ("addresses and their neighbours", """SELECT client_ip, client_ip - 1, client_ip - 2, client_ip - 3, count(*) AS views FROM views
        GROUP BY client_ip, client_ip - 1, client_ip - 2, client_ip - 3 ORDER BY views DESC, client_ip LIMIT 10"""),
    ("a site's URLs", f"""SELECT url, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' AND is_counted = 1 AND is_refresh = 0 AND url <> ''
        GROUP BY url ORDER BY views DESC, url LIMIT 10"""),
    ("a site's titles", f"""SELECT title, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' AND is_counted = 1 AND is_refresh = 0 AND title <> ''
        GROUP BY title ORDER BY views DESC, title LIMIT 10"""),
    ("a site's links, a later page", f"""SELECT url, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' AND is_refresh = 0 AND is_link <> 0 AND is_download = 0
        GROUP BY url ORDER BY views DESC, url LIMIT 10 OFFSET 50"""),
    ("a site's ways from source to page", f"""SELECT traffic_source, search_engine, ad_engine,
            CASE WHEN search_engine = 0 AND ad_engine = 0 THEN referrer ELSE '' END AS origin, url, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' AND is_refresh = 0
        GROUP BY traffic_source, search_engine, ad_engine, origin, url
        ORDER BY views DESC, traffic_source, search_engine, ad_engine, origin, url LIMIT 10 OFFSET 100"""),
    ("a referrer's pages by day", f"""SELECT url_hash, event_date, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' AND is_refresh = 0
            AND traffic_source IN (-1, 1, 4) AND referrer_hash = {REFERRER}
        GROUP BY url_hash, event_date ORDER BY views DESC, url_hash, event_date LIMIT 10 OFFSET 10"""),
    ("a page's windows", f"""SELECT window_width, window_height, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' AND is_refresh = 0 AND url_hash = {PAGE}
        GROUP BY window_width, window_height ORDER BY views DESC, window_width, window_height LIMIT 10 OFFSET 20"""),
    ("a site's minutes", f"""SELECT date_trunc('minute', event_time) AS minute, count(*) AS views FROM views
        WHERE site_id = {SITE} AND event_date BETWEEN DATE '2025-03-14' AND DATE '2025-03-15' AND is_refresh = 0 AND is_counted = 1
        GROUP BY minute ORDER BY minute LIMIT 10 OFFSET 100"""),
]


def processor_s(pids):
    """Processor time that processes have taken so far."""
    stats = [pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def measured(action, pids, runs):
    """The least time of an action, and the mean of the processor time of it."""
    times, begin, spent = [], time.perf_counter(), processor_s(pids)
    while len(times) < runs or (runs > 1 and time.perf_counter() - begin < MEASURED_S):
        times.append(timed(action)[0])
    return {"s": min(times), "processor_s": (processor_s(pids) - spent) / len(times)}


def form(options):
    return f"web-{options.rows}-{options.writer}-{options.files}"


def results(options, step):
    return pathlib.Path(options.folder) / f"{form(options)}.{step}.json"


def queries(options):
    """Number, name and text of each query."""
    wanted = options.queries.split()
    numbered = [(f"{place:02}", name, sql) for place, (name, sql) in enumerate(QUERIES, 1)]
    return [query for query in numbered if not wanted or query[0] in wanted]


def write_pyarrow(path, batches):
    import pyarrow
    import pyarrow.parquet

    # A row group is what is written at once, so batches are collected.
    collected, first = [], next(batches)
    with pyarrow.parquet.ParquetWriter(path, first.schema) as writer:
        def write():
            writer.write_table(pyarrow.Table.from_batches(collected), row_group_size=ROW_GROUP_ROWS["pyarrow"])
            collected.clear()

        collected.append(first)
        for batch in batches:
            if sum(part.num_rows for part in collected) + batch.num_rows > ROW_GROUP_ROWS["pyarrow"]:
                write()
            collected.append(batch)
        write()


def write_duckdb(path, batches):
    import duckdb
    import pyarrow

    first = next(batches)

    def all_batches():
        yield first
        yield from batches

    with duckdb.connect() as connection:
        connection.register("made", pyarrow.RecordBatchReader.from_batches(first.schema, all_batches()))
        connection.execute(f"COPY (SELECT * FROM made) TO '{path}' (FORMAT parquet)")


def make_file(folder, rows, files, writer, number):
    first, end = (rows * edge // files for edge in (number, number + 1))
    path = folder / f"part_{number:04}.parquet"
    {"duckdb": write_duckdb, "pyarrow": write_pyarrow}[writer](path, web_data.batches(first, end - first, rows))
    path.chmod(0o644)


def make_data(options):
    folder = pathlib.Path(options.folder) / form(options) / "views"
    if (folder.parent / "complete").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder.parent, folder):
        place.chmod(0o755)
    begin = time.monotonic()
    with multiprocessing.Pool(min(os.cpu_count(), options.files)) as pool:
        pool.map(functools.partial(make_file, folder, options.rows, options.files, options.writer), range(options.files), 1)
    (folder.parent / "complete").touch()
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"web: {options.rows} rows, {size / 1e6:.0f} MB in {time.monotonic() - begin:.0f} s", flush=True)


def run_duckdb(options):
    import duckdb

    step = Step(results(options, "duckdb"))
    step.record(version=duckdb.__version__)
    connection = duckdb.connect()
    connection.execute(f"SET threads = {os.cpu_count()}")
    connection.execute("SET default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'")
    connection.execute(f"CREATE VIEW views AS SELECT * FROM read_parquet('{options.folder}/{form(options)}/views/*.parquet')")
    for number, _, sql in queries(options):
        first, rows = timed(lambda sql=sql: connection.execute(sql).fetchall())
        found = measured(lambda sql=sql: connection.execute(sql).fetchall(), [os.getpid()], options.runs)
        step.record("queries", number, first=first, rows=as_text(rows), **found)


def make_tables(options):
    from harness.libpq import Session

    with Session(options.conninfo) as session:
        if not session.run(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'").rows:
            session.run(f"CREATE DATABASE {DATABASE} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    folder = pathlib.Path(options.folder) / form(options)
    with Session(f"{options.conninfo} dbname={DATABASE}", ["SET client_min_messages = warning"]) as session:
        session.run("CREATE EXTENSION IF NOT EXISTS pystachio")
        for place, settings in PLACES.items():
            session.run(f"DROP SERVER IF EXISTS {place} CASCADE")
            session.run(f"CREATE SERVER {place} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{options.device}'{settings}{options.server_options})")
            session.run(f"DROP SCHEMA IF EXISTS {place} CASCADE")
            session.run(f"CREATE SCHEMA {place}")
            session.run(f'IMPORT FOREIGN SCHEMA "{folder}" FROM SERVER {place} INTO {place}')
            session.run(f"ANALYZE {place}.views")


def run_ours(options):
    from harness.libpq import QueryError, Session

    step = Step(results(options, "ours"))
    make_tables(options)
    deadline = time.monotonic() + options.limit
    for choice in options.choices.split():
        for place in PLACES:
            # The option of the server is of the CPU engine's cache.
            gpu_cache = ["SET pystachio.gpu_disable = 'cache'"] if place == "uncached" else []
            setup = [f"SET search_path = {place}", "SET statement_timeout = '300s'", f"SET pystachio.engine_choice = {choice}", *gpu_cache]
            with Session(f"{options.conninfo} dbname={DATABASE}", setup) as session:
                for number, _, sql in queries(options):
                    if time.monotonic() > deadline:
                        print("web: the time is over; the rest is not measured", flush=True)
                        return
                    try:
                        rows = session.run(sql).rows
                        engines = [row[0] for row in session.run(f"SELECT pid FROM pystachio.engines WHERE server = '{place}' AND pid > 0").rows]
                        found = measured(lambda sql=sql: session.receive(sql), [*engines, session.backend_pid], options.runs)
                        step.record(choice, number, place, rows=rows, **found, **ran_on(session, sql))
                    except QueryError as error:
                        step.record(choice, number, place, error=str(error).splitlines()[0])
                        print(f"web {number} {choice} {place}: {str(error).splitlines()[0]}", flush=True)


def run_heap(options):
    from harness.libpq import Session

    step = Step(results(options, "heap"))
    make_tables(options)
    with Session(f"{options.conninfo} dbname={DATABASE}", ["SET client_min_messages = warning", "SET statement_timeout = '600s'"]) as session:
        session.run("DROP SCHEMA IF EXISTS heap CASCADE")
        session.run("CREATE SCHEMA heap")
        session.run("CREATE TABLE heap.views AS SELECT * FROM uncached.views")
        session.run("VACUUM ANALYZE heap.views")
        session.run("SET search_path = heap")
        for number, _, sql in queries(options):
            first, found = timed(lambda sql=sql: session.run(sql))
            hot, _ = timed(lambda sql=sql: session.receive(sql))
            step.record("queries", number, s=min(first, hot), rows=found.rows)


def milliseconds(seconds):
    return "" if seconds is None else f"{seconds * 1000:.1f}"


def notes_on(run, entry, theirs, kept):
    """What falls short of a run of a query, compared with DuckDB's and the heap table's."""
    if "error" in entry:
        return [f"{run}: {entry['error']}"]
    notes = []
    if "rows" in kept and (told := difference_of(kept["rows"], entry["rows"])):
        notes.append(f"{run} against heap: {told}")
    if "rows" in theirs and (told := same_answer(theirs["rows"], entry["rows"])):
        notes.append(f"{run} against DuckDB: {told}")
    if not entry["is_one_scan"]:
        notes.append(f"{run}: not one scan")
    if kept.get("s", entry["s"]) < entry["s"]:
        notes.append(f"{run}: slower than heap")
    return notes


def report(options):
    ours, peer, heap = (read_results(results(options, step)) for step in ("ours", "duckdb", "heap"))
    runs = {f"{choice} {place}": (choice, place) for choice in ours if choice in ("gpu", "auto", "cpu") for place in PLACES}
    columns = [*runs, f"DuckDB {peer.get('version', '')}"]
    print("| query | what | " + " | ".join(f"{name} ms | processor ms" for name in columns) + " | heap ms | notes |")
    print("|---|---|" + "---:|---:|" * len(columns) + "---:|---|")
    for number, name, _ in queries(options):
        theirs, kept = (document.get("queries", {}).get(number, {}) for document in (peer, heap))
        found = {run: ours[choice].get(number, {}).get(place, {}) for run, (choice, place) in runs.items()}
        notes = [note for run, entry in found.items() if entry for note in notes_on(run, entry, theirs, kept)]
        times = [milliseconds(entry.get(key)) for entry in [*found.values(), theirs] for key in ("s", "processor_s")]
        print(f"| {number} | {name} | {' | '.join(times)} | {milliseconds(kept.get('s'))} | {'; '.join(notes)} |")
    for run, (choice, place) in runs.items():
        for name, document, key in (("DuckDB's time", peer, "s"), ("DuckDB's processor time", peer, "processor_s"), ("heap's time", heap, "s")):
            others = document.get("queries", {})
            pairs = [(entry[place][key], others[number][key]) for number, entry in ours[choice].items()
                     if entry.get(place, {}).get(key) and others.get(number, {}).get(key)]
            if pairs:
                ratios = [own / other for own, other in pairs]
                print(f"\n{run}: {len(ratios)} queries take {geometric_mean(ratios):.2f} of {name} by geometric mean; "
                      f"longer: {sum(ratio > 1 for ratio in ratios)}, more than twice as long: {sum(ratio > 2 for ratio in ratios)}; "
                      f"sums {sum(own for own, _ in pairs):.2f} s and {sum(other for _, other in pairs):.2f} s")


def main():
    parser = workload_parser("Web analytics over one wide table", ["data", "duckdb", "ours", "heap", "report"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--writer", choices=["duckdb", "pyarrow"], default="duckdb")
    parser.add_argument("--files", type=int, default=4)
    options = parser.parse_args()
    {"data": make_data, "duckdb": run_duckdb, "ours": run_ours, "heap": run_heap, "report": report}[options.step](options)


if __name__ == "__main__":
    main()
