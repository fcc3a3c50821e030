"""Rights to name files and to query; absorbed subqueries are checked like others."""

from faults.support import expect_error, require
from harness.libpq import QueryError

_DENIED = ["42501"]


def _roles(session):
    session.run("SET client_min_messages = warning")
    for role in ("reader", "plain", "owner_of_view"):
        try:
            session.run(f"DROP OWNED BY {role} CASCADE")
        except QueryError:
            pass
        session.run(f"DROP ROLE IF EXISTS {role}")
        session.run(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA tpch TO {role}; GRANT CREATE, USAGE ON SCHEMA public TO {role}")
    session.run("GRANT pg_read_server_files TO reader; GRANT USAGE ON FOREIGN SERVER pystachio TO plain, reader, owner_of_view")


def naming_files(place):
    """Only roles that may read the server's files may name one."""
    with place.session() as boss:
        _roles(boss)
        path = f"{place.tpch}/nation.parquet"
        create = f"CREATE FOREIGN TABLE public.mine (n_name text) SERVER pystachio OPTIONS (path '{path}')"
        with place.session(role="plain") as plain:
            expect_error(plain, create, _DENIED, ["pg_read_server_files"])
            expect_error(plain, f'IMPORT FOREIGN SCHEMA "{place.tpch}" FROM SERVER pystachio INTO public', _DENIED)
            expect_error(plain, "SELECT * FROM pystachio.tpch_generate('/tmp/pystachio-denied', 0.01)", _DENIED)
            expect_error(plain, f"SELECT pystachio.optimize_parquet('{path}', '/tmp/pystachio-denied')", _DENIED, ["pg_read_server_files"])
        with place.session(role="reader") as reader:
            reader.run(create)
            require(len(reader.run("SELECT * FROM public.mine").rows) == 25, "the role that names it reads it")
            reader.run("GRANT SELECT ON public.mine TO plain")
            expect_error(reader, f"SELECT pystachio.optimize_parquet('{path}', '/tmp/pystachio-denied')", _DENIED, ["pg_write_server_files"])
        boss.run("ALTER FOREIGN TABLE public.mine OWNER TO plain")
        with place.session(role="plain") as plain:
            require(len(plain.run("SELECT * FROM public.mine").rows) == 25, "an owner may query")
            expect_error(plain, f"ALTER FOREIGN TABLE public.mine OPTIONS (SET path '{place.tpch}/region.parquet')", _DENIED)
        boss.run("DROP FOREIGN TABLE public.mine")


def reading_tables(place):
    """SELECT rights are checked for every table, also within subqueries that the engine runs."""
    with place.session() as boss:
        _roles(boss)
        boss.run("GRANT SELECT ON tpch.orders, tpch.nation, tpch.region TO plain; GRANT SELECT (c_custkey) ON tpch.customer TO plain")
        with place.session(role="plain") as plain:
            require(plain.run("SELECT count(*) FROM orders").scalar() == "15000", "a granted table")
            for query in (
                "SELECT count(*) FROM lineitem",
                "SELECT count(*) FROM orders JOIN lineitem ON l_orderkey = o_orderkey",
                "SELECT count(*) FROM orders WHERE EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey)",
                "SELECT * FROM orders JOIN (SELECT l_orderkey, sum(l_quantity) q FROM lineitem GROUP BY 1) s ON l_orderkey = o_orderkey",
                "SELECT * FROM orders WHERE o_totalprice > (SELECT avg(l_extendedprice) FROM lineitem)",
                "SELECT * FROM orders o WHERE o_totalprice > (SELECT avg(l_extendedprice) FROM lineitem WHERE l_orderkey = o_orderkey)",
                "SELECT * FROM orders WHERE o_orderkey NOT IN (SELECT l_orderkey FROM lineitem)",
                "WITH w AS (SELECT l_orderkey, count(*) c FROM lineitem GROUP BY 1) SELECT * FROM w a JOIN w b USING (l_orderkey)",
                "SELECT count(*) FROM (SELECT o_orderkey FROM orders UNION ALL SELECT l_orderkey FROM lineitem) u",
            ):
                expect_error(plain, query, _DENIED, ["lineitem"])
            require(plain.run("SELECT count(c_custkey) FROM customer").scalar() == "1500", "a granted column")
            expect_error(plain, "SELECT count(c_name) FROM customer", _DENIED, ["customer"])
        boss.run("GRANT SELECT ON tpch.lineitem TO owner_of_view")
        boss.run("CREATE VIEW public.summed AS SELECT l_orderkey, sum(l_quantity) q FROM tpch.lineitem GROUP BY 1")
        boss.run("ALTER VIEW public.summed OWNER TO owner_of_view; GRANT SELECT ON public.summed TO plain")
        with place.session(role="plain") as plain:
            require(int(plain.run("SELECT count(*) FROM orders JOIN public.summed ON l_orderkey = o_orderkey").scalar()) > 1000,
                    "a view's owner's rights count")
            boss.run("REVOKE SELECT ON tpch.lineitem FROM owner_of_view")
            expect_error(plain, "SELECT count(*) FROM orders JOIN public.summed ON l_orderkey = o_orderkey", _DENIED, ["lineitem"])
        boss.run("DROP VIEW public.summed")


def revoked_after_planning(place):
    """A cached plan is checked again."""
    with place.session() as boss:
        _roles(boss)
        boss.run("GRANT SELECT ON tpch.orders, tpch.lineitem TO plain")
        with place.session("SET plan_cache_mode = force_generic_plan", role="plain") as plain:
            plain.run("PREPARE p AS SELECT count(*) FROM orders JOIN (SELECT l_orderkey, count(*) FROM lineitem GROUP BY 1) s "
                      "ON l_orderkey = o_orderkey")
            require(plain.run("EXECUTE p").scalar() == "15000", "before")
            boss.run("REVOKE SELECT ON tpch.lineitem FROM plain")
            expect_error(plain, "EXECUTE p", _DENIED, ["lineitem"])


def row_security(place):
    """A barrier view and row security on a heap table beside ours are not seen through."""
    with place.session("SET client_min_messages = warning") as boss:
        _roles(boss)
        boss.run("DROP TABLE IF EXISTS public.secret; CREATE TABLE public.secret AS SELECT * FROM tpch.nation")
        boss.run("ALTER TABLE public.secret ENABLE ROW LEVEL SECURITY; CREATE POLICY americas ON public.secret USING (n_regionkey = 1)")
        boss.run("GRANT SELECT ON public.secret, tpch.region TO plain")
        boss.run("CREATE VIEW public.barrier WITH (security_barrier) AS SELECT * FROM tpch.nation WHERE n_regionkey = 2")
        boss.run("GRANT SELECT ON public.barrier TO plain")
        with place.session(role="plain") as plain:
            require(plain.run("SELECT count(*) FROM public.secret JOIN region ON n_regionkey = r_regionkey").scalar() == "5", "policy")
            require(plain.run("SELECT count(*) FROM public.barrier WHERE 1 / (n_regionkey - 1) > 0").scalar() == "5",
                    "a condition that fails on hidden rows is not evaluated on them")
        boss.run("DROP TABLE public.secret; DROP VIEW public.barrier")


TESTS = [naming_files, reading_tables, revoked_after_planning, row_security]
