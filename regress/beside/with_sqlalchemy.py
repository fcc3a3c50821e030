"""SQLAlchemy, over psycopg and over asyncpg: reflected tables, mapped classes, relations, streams; and which tables it lists."""

import asyncio
import urllib.parse

from sqlalchemy import Column, Date, ForeignKey, Integer, MetaData, Numeric, String, Table, create_engine, func, insert, inspect, select, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, joinedload, relationship, selectinload, subqueryload

from beside.support import DATABASE, require_equal
from faults.support import require


class Base(DeclarativeBase):
    """The mapped classes."""


class Customer(Base):
    """A customer with its orders."""

    __tablename__ = "customer"
    c_custkey = Column(Integer, primary_key=True)
    c_name = Column(String)
    c_mktsegment = Column(String)
    c_acctbal = Column(Numeric(15, 2))
    orders = relationship("Order", back_populates="customer", order_by="Order.o_orderkey")


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"
    o_orderkey = Column(Integer, primary_key=True)
    o_custkey = Column(Integer, ForeignKey("customer.c_custkey"))
    o_orderdate = Column(Date)
    o_totalprice = Column(Numeric(15, 2))
    customer = relationship("Customer", back_populates="orders")


def _url(place, driver):
    parameters = place.parameters()
    return f"postgresql+{driver}://{parameters['user']}@/{DATABASE}?host={urllib.parse.quote(parameters['host'])}&port={parameters['port']}"


def _engine(place, schema):
    return create_engine(_url(place, "psycopg"), execution_options={"schema_translate_map": {None: schema}})


def _compare(place, what, action):
    """`action(engine)` must return the same for both schemas; returns it."""
    found = []
    for schema in ("tpch", "tpch_heap"):
        engine = _engine(place, schema)
        found.append(action(engine))
        engine.dispose()
    require_equal(*found, what)
    return found[0]


def reflected_tables(place):
    """Tables whose columns are read from the catalogs, in expressions; a table that is filled from them."""

    def run(engine):
        schema = engine.get_execution_options()["schema_translate_map"][None]
        orders, lines = (Table(name, MetaData(), schema=schema, autoload_with=engine) for name in ("orders", "lineitem"))
        found = [[(column.name, str(column.type)) for column in table.columns] for table in (orders, lines)]
        late = select(orders.c.o_orderpriority, func.count(), func.sum(lines.c.l_extendedprice * (1 - lines.c.l_discount))).join(
            lines, lines.c.l_orderkey == orders.c.o_orderkey).where(lines.c.l_commitdate < lines.c.l_receiptdate).group_by(
            orders.c.o_orderpriority).order_by(orders.c.o_orderpriority)
        with engine.connect() as connection:
            found.append([tuple(row) for row in connection.execute(late)])
            connection.execute(text("CREATE TEMP TABLE kept (key bigint, total numeric)"))
            kept = Table("kept", MetaData(), Column("key", Integer), Column("total", Numeric), schema="pg_temp")
            chosen = select(orders.c.o_orderkey, orders.c.o_totalprice).where(orders.c.o_totalprice > 300000)
            connection.execute(insert(kept).from_select(["key", "total"], chosen))
            found.append([tuple(row) for row in connection.execute(select(kept).order_by(kept.c.key))])
        return found

    found = _compare(place, "reflected tables", run)
    require(all(found), f"rows: {[len(rows) for rows in found]}")


def mapped_classes(place):
    """Relations that are loaded late, by a join, by a subquery and by the keys; pages by the last key."""

    def run(engine):
        found = []
        with Session(engine) as session:
            for option in (joinedload, selectinload, subqueryload, None):
                query = select(Customer).where(Customer.c_custkey < 40).order_by(Customer.c_custkey)
                if option:
                    query = query.options(option(Customer.orders))
                customers = session.execute(query).unique().scalars().all()
                found.append([(one.c_name, one.c_acctbal, [(order.o_orderkey, order.o_orderdate, order.o_totalprice) for order in one.orders])
                              for one in customers])
                session.expunge_all()
            last = 0
            for _ in range(4):
                page = session.execute(select(Order).where(Order.o_orderkey > last).order_by(Order.o_orderkey).limit(25)).scalars().all()
                found.append([(order.o_orderkey, order.customer.c_name) for order in page])
                last = page[-1].o_orderkey
            found.append(session.get(Order, 1).o_totalprice)
            found.append(session.get(Order, -1))
        return found

    _compare(place, "mapped classes", run)


def streams(place):
    """Rows that are fetched in portions by a server-side cursor, and a stream that is left early."""

    def run(engine):
        with engine.connect() as connection:
            query = select(Order.o_orderkey, Order.o_totalprice).order_by(Order.o_orderkey)
            portions = connection.execution_options(yield_per=100).execute(query).partitions()
            found = [[tuple(row) for row in portion] for portion in portions]
            early = connection.execution_options(stream_results=True, max_row_buffer=10).execute(query)
            found.append(tuple(early.fetchone()))
            early.close()
            found.append(connection.execute(select(func.count()).select_from(Customer)).scalar())
        return found

    _compare(place, "streams", run)
    place.wait_idle()


def asynchronous_sessions(place):
    """The same over asyncpg."""

    async def run(schema):
        engine = create_async_engine(_url(place, "asyncpg"), execution_options={"schema_translate_map": {None: schema}})
        async with engine.connect() as connection:
            stream = await connection.stream(select(Order.o_orderkey, Customer.c_name).join(Customer).order_by(Order.o_orderkey).limit(500))
            found = [tuple(row) async for row in stream]
        await engine.dispose()
        return found

    found = [asyncio.run(run(schema)) for schema in ("tpch", "tpch_heap")]
    require(len(found[0]) == 500, f"{len(found[0])} rows")
    require_equal(*found, "asynchronous sessions")


def lists_of_tables(place):
    """What docs/limits.md says of lists of tables."""
    engine = _engine(place, "tpch")
    inspector = inspect(engine)
    require(inspector.get_table_names(schema="tpch") == [], "get_table_names lists foreign tables: docs/limits.md says that it does not")
    require(len(inspector.get_foreign_table_names(schema="tpch")) == 8, "get_foreign_table_names lists foreign tables")
    require([column["name"] for column in inspector.get_columns("region", schema="tpch")] == ["r_regionkey", "r_name", "r_comment"], "columns")
    metadata = MetaData()
    metadata.reflect(engine, schema="tpch")
    require(not metadata.tables, "reflect finds foreign tables: docs/limits.md says that it does not")
    with engine.begin() as connection:
        connection.execute(text("CREATE VIEW tpch.region_view AS SELECT * FROM tpch.region"))
    metadata.reflect(engine, schema="tpch", views=True)
    require(list(metadata.tables) == ["tpch.region_view"], "views over them are found")
    with engine.begin() as connection:
        connection.execute(text("DROP VIEW tpch.region_view"))
    engine.dispose()


TESTS = [reflected_tables, mapped_classes, streams, asynchronous_sessions, lists_of_tables]
