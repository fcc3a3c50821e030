"""Step skew of ranks.py: a join by a column of seven values, whose rows are split over the ranks and not.

    lineitem, by l_shipmode ─┐
                             ├─ LEFT JOIN: no row of lineitem may be dropped, and nothing matches
    orders, by o_comment ────┘

Without the split the ranks that own the values have all rows of lineitem, some of them more than others, or all rows of orders go to all ranks. Each way is
measured over tables that were analyzed; the split one also over the same files as tables that were not, of which the engine counts some rows itself: its
first run has that.
"""

import gpu
import ranks_traffic
from harness.libpq import QueryError, Session
from ranks_techniques import statements

SERVER = "gpu"
SCHEMA = "not_analyzed"
_QUERY = ("SELECT count(*), sum(length(l_comment)), sum(length(l_shipinstruct)), sum(l_extendedprice), count(o_comment), count(o_clerk), "
          "count(o_orderpriority), count(o_orderstatus), sum(o_totalprice) FROM lineitem LEFT JOIN orders ON l_shipmode = o_comment")
_NOT_SPLIT = {"exchange_heavy_keys": "off"}


def _ways(bench):
    """By name the ranks, the schema and the settings."""
    analyzed = bench.schema(SERVER)
    return {"one rank": ("one", analyzed, {}), "not split": ("all", analyzed, _NOT_SPLIT), "split": ("all", analyzed, {}),
            "split, not analyzed": ("all", SCHEMA, {})}


def run_skew(bench):
    """Returns how many answers are not those of one rank, or not there."""
    with Session(bench.conninfo) as session:
        session.run(f'DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}; '
                    f'IMPORT FOREIGN SCHEMA "{bench.data}" LIMIT TO (orders, lineitem) FROM SERVER {SERVER} INTO {SCHEMA}')
    wrong, wanted, configured = 0, None, None
    for name, (configuration, schema, settings) in _ways(bench).items():
        if not bench.has_time():
            break
        if configuration != configured:
            bench.configure(configuration)
            configured = configuration
        peer = bench.open(statements(settings), schema)
        try:
            answer = None
            seconds = [gpu.timed(lambda: peer.receive(_QUERY)) for _ in range(bench.options.runs)]
            answer = peer.run(_QUERY)
            figures, _ = ranks_traffic.measure(peer.session, SERVER, _QUERY)
        except QueryError as error:
            print(f"skew {name}  fails: {gpu.first_line(error)}", flush=True)
            wrong += 1
            continue
        finally:
            peer.close()
        wanted = wanted or answer
        wrong += answer != wanted
        found = {"first_s": seconds[0], "seconds": min(seconds), "sent_bytes": figures["sent_bytes"], "is_same": answer == wanted}
        bench.results.note("skew", name, found)
        print(f"skew {name}  first {seconds[0]:.4f}, best {min(seconds):.4f} s, sent {figures['sent_bytes'] / 1e6:.2f} MB"
              + ("" if answer == wanted else "  DIFFERS"), flush=True)
    return wrong
