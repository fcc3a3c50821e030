#!/usr/bin/env python3
"""A REST catalog of Iceberg over pyiceberg's catalog in a file: what clients need that list namespaces and read tables.

usage: rest_catalog.py FOLDER ENDPOINT LENT_ENDPOINT

Makes tables in the warehouse s3://lake/warehouse of the store at ENDPOINT, which clients are to reach at LENT_ENDPOINT, listens at a port of 127.0.0.1, prints it, and ends with its
standard input. The catalog `main` is below a prefix; its lists have two tables a page. Tokens are given to the clients of CLIENTS. A line
of input is a statement that changes a table, which is answered with a line.
"""

import http.server
import json
import secrets
import sys
import threading
import urllib.parse

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import LessThan

PREFIX = ["v1", "ws", "main"]
PAGE = 2
CLIENTS = {"reader": "hush-reader", "short": "hush-short"}
FIXED_TOKEN = "hush-fixed-token"
KEYS = {"s3.access-key-id": "lent-key", "s3.secret-access-key": "hush-lent"}
# Tables in the order of their names. That of a name that is no word in SQL has a place of its own.
TABLES = {("sales",): ["orders", "parts", "with.point", "zeros"], ("sales", "eu"): ["orders"]}


def rows(first, count):
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "kind": [f"k{number % 3}" for number in range(first, first + count)]})


class Catalog:
    """The tables, and the tokens that are valid."""

    def __init__(self, folder, endpoint, lent_endpoint):
        store = {"s3.endpoint": endpoint, "s3.access-key-id": "maker", "s3.secret-access-key": "none", "s3.region": "us-east-1"}
        self.change(f"lend {lent_endpoint}")
        self.catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse="s3://lake/warehouse", **store)
        self.lock = threading.Lock()
        self.tokens = {FIXED_TOKEN}
        for namespace, names in TABLES.items():
            self.catalog.create_namespace(namespace)
            for name in names:
                table = self.catalog.create_table((*namespace, name), rows(0, 1).schema)
                if name != "zeros":
                    table.append(rows(0, 100 if len(namespace) == 1 else 10))

    def change(self, statement):
        """`append TABLE`, `delete TABLE`, `lend ENDPOINT`, `lend nothing`, `forget tokens`."""
        words = statement.split()
        if words[0] == "append":
            self.catalog.load_table(words[1]).append(rows(1000, 50))
        elif words[0] == "delete":
            self.catalog.load_table(words[1]).delete(LessThan("id", 10))
        elif words == ["forget", "tokens"]:
            self.tokens = {FIXED_TOKEN}
        elif words[0] == "lend":
            self.lent = {} if words[1] == "nothing" else {**KEYS, "s3.endpoint": words[1], "s3.path-style-access": "true"}
        return "done"

    def answer(self, method, path, query, form, authorization, delegation):
        """The status and the content of an answer."""
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if (method, parts) == ("POST", ["v1", "oauth", "tokens"]):
            client = form.get("client_id", [""])[0]
            if form.get("grant_type") != ["client_credentials"] or CLIENTS.get(client) != form.get("client_secret", [""])[0]:
                return 401, {"error": "invalid_client"}
            token = secrets.token_hex()
            self.tokens.add(token)
            return 200, {"access_token": token, "token_type": "bearer", "expires_in": 1 if client == "short" else 3600}
        if authorization.removeprefix("Bearer ") not in self.tokens:
            return 401, {"error": {"message": "hush-message", "type": "NotAuthorizedException", "code": 401}}
        if parts == ["v1", "config"]:
            if query.get("warehouse") != ["main"]:
                return 404, {"error": {"message": "no such warehouse", "type": "NotFoundException", "code": 404}}
            return 200, {"defaults": {}, "overrides": {"prefix": "/".join(PREFIX[1:])}}
        if parts[: len(PREFIX)] != PREFIX or parts[3] != "namespaces" or method != "GET":
            return 404, {"error": {"message": "no such route", "type": "NotFoundException", "code": 404}}
        namespace = tuple(parts[4].split("\x1f"))
        try:
            if len(parts) == 6:
                names = sorted(self.catalog.list_tables(namespace))
                first = int(query.get("pageToken", ["0"])[0] or 0)
                page = {"identifiers": [{"namespace": list(namespace), "name": name[-1]} for name in names[first : first + PAGE]]}
                if first + PAGE < len(names):
                    page["next-page-token"] = str(first + PAGE)
                return 200, page
            table = self.catalog.load_table((*namespace, parts[6]))
        except NoSuchNamespaceError:
            return 404, {"error": {"message": "no namespace", "type": "NoSuchNamespaceException", "code": 404}}
        except NoSuchTableError:
            return 404, {"error": {"message": "no table", "type": "NoSuchTableException", "code": 404}}
        loaded = {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json()), "config": {}}
        if delegation == "vended-credentials":
            loaded["config"] = self.lent
            if self.lent:
                loaded["storage-credentials"] = [{"prefix": table.location(), "config": self.lent}]
        return 200, loaded


def handler(catalog):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def serve(self):
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            with catalog.lock:
                status, content = catalog.answer(self.command, path, urllib.parse.parse_qs(query), urllib.parse.parse_qs(body),
                                                 self.headers.get("Authorization", ""), self.headers.get("X-Iceberg-Access-Delegation"))
            content = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = serve

    return Handler


def main():
    catalog = Catalog(*sys.argv[1:])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(catalog))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        with catalog.lock:
            print(catalog.change(line.strip()), flush=True)
    server.shutdown()


if __name__ == "__main__":
    main()
