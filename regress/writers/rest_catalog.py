#!/usr/bin/env python3
"""A REST catalog of Iceberg over pyiceberg's catalog in a file: what clients need that list namespaces and read tables.

usage: rest_catalog.py FOLDER ENDPOINT LENT_ENDPOINT

Makes tables in the warehouse s3://lake/warehouse of the store at ENDPOINT, which clients are to reach at LENT_ENDPOINT, listens at a port of 127.0.0.1, prints it, and ends with its
standard input. The catalog `main` is below a prefix; its lists have two tables a page. Tokens are given to the clients of CLIENTS, or requests
are signed by those of SIGNERS, as services of AWS demand. A line of input is a statement that changes a table, which is answered with a line.
"""

import hashlib
import hmac
import http.server
import json
import re
import secrets
import sys
import threading
import urllib.parse

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import LessThan

# Below it names are as they are in URLs, and are not encoded again.
PREFIX = ["v1", "arn:ws/1", "main"]
PAGE = 2
CLIENTS = {"reader": "hush-reader", "short": "hush-short"}
FIXED_TOKEN = "hush-fixed-token"
# Keys that sign, each with its secret and the token that it needs.
SIGNERS = {"signer": ("hush-signer", None), "session": ("hush/session+", "hush-session-token"), "expired": ("hush-expired", "hush-old-token")}
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/, ]+)/(\d{8})/([^/, ]+)/([^/, ]+)/aws4_request, ?SignedHeaders=([^, ]+), ?Signature=([0-9a-f]{64})"
)
KEYS = {"s3.access-key-id": "lent-key", "s3.secret-access-key": "hush-lent"}
# Tables in the order of their names. That of a name that is no word in SQL has a place of its own.
# Views of the namespace `sales`: their texts by dialects, and the names of their columns.
VIEWS = {
    "a_over_big": ({"postgres": "SELECT max(id) AS top FROM sales.big"}, ["top"]),
    "big": ({"spark": "SELECT none", "postgresql": "SELECT id, kind FROM orders WHERE id > 50"}, ["id", "Kind"]),
    "joined": ({"postgresql": "WITH o AS (SELECT * FROM Sales.orders) SELECT o.id, count(*) AS n FROM o JOIN main.sales.parts p USING (id) GROUP BY o.id"}, []),
    "spark": ({"spark": "SELECT id, upper(kind) AS k FROM sales.orders"}, ["id", "k"]),
    "quoted": ({"spark": "SELECT `id` FROM orders"}, ["id"]),
    "bad_drop": ({"postgresql": "DROP TABLE public.kept"}, []),
    "bad_two": ({"postgresql": "SELECT 1 AS a; DROP TABLE public.kept"}, []),
    "bad_into": ({"postgresql": "SELECT 1 AS a INTO public.kept2"}, []),
    "bad_delete": ({"postgresql": "WITH d AS (DELETE FROM orders RETURNING id) SELECT * FROM d"}, []),
    "bad_lock": ({"postgresql": "SELECT id FROM orders FOR UPDATE"}, []),
    "bad_call": ({"postgresql": "SELECT pg_read_file('/etc/hostname') AS t"}, []),
    "bad_own_call": ({"postgresql": "SELECT public.kept_call() AS t"}, []),
    "bad_operator": ({"postgresql": "SELECT id FROM orders WHERE id OPERATOR(public.===) 1"}, []),
    "bad_place": ({"postgresql": "SELECT * FROM public.kept"}, []),
    "bad_system": ({"postgresql": "SELECT (WITH pg_authid AS (SELECT 1 AS x) SELECT x FROM pg_authid) AS a, b.rolname AS b FROM pg_authid b"}, []),
    "bad_columns": ({"postgresql": "SELECT id FROM orders"}, ["a", "b"]),
    "bad_parameter": ({"postgresql": "SELECT $1 AS a"}, []),
    "bad_bytes": ({"postgresql": "SELECT 1 AS a\0"}, []),
    "empty": ({}, []),
}
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
        self.signing, self.config = None, {}
        for namespace, names in TABLES.items():
            self.catalog.create_namespace(namespace)
            for name in names:
                table = self.catalog.create_table((*namespace, name), rows(0, 1).schema)
                if name != "zeros":
                    table.append(rows(0, 100 if len(namespace) == 1 else 10))

    def change(self, statement):
        """`append TABLE`, `delete TABLE`, `lend ENDPOINT [END]`, `lend nothing`, `forget tokens`, `sign SERVICE REGION`, `tell SERVICE REGION`, `trust`.

        With `sign` all requests must be signed. With `tell` those for the configuration need not, which says how others are signed.
        """
        words = statement.split()
        if words[0] == "append":
            self.catalog.load_table(words[1]).append(rows(1000, 50))
        elif words[0] == "delete":
            self.catalog.load_table(words[1]).delete(LessThan("id", 10))
        elif words == ["forget", "tokens"]:
            self.tokens = {FIXED_TOKEN}
        elif words[0] in ("sign", "tell"):
            self.signing = (words[1], words[2])
            told = {"rest.sigv4-enabled": "true", "rest.signing-name": words[1], "rest.signing-region": words[2]}
            self.config = told if words[0] == "tell" else {}
        elif words == ["trust"]:
            self.signing, self.config = None, {}
        elif words[0] == "lend":
            self.lent = {} if words[1] == "nothing" else {**KEYS, "s3.endpoint": words[1], "s3.path-style-access": "true"}
            if words[2:]:
                self.lent["s3.session-token-expires-at-ms"] = words[2]
        return "done"

    def refusal(self, method, path, query, body, headers):
        """Why AWS would refuse a request; None if it is signed well."""
        found = AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
        if not found:
            return "MissingAuthenticationTokenException"
        key, day, region, service, signed, signature = found.groups()
        secret, token = SIGNERS.get(key, ("", None))
        signed = signed.split(";")
        needed = {"host", *(name.lower() for name in headers if name.lower().startswith(("x-amz-", "x-iceberg-")))}
        date = headers.get("X-Amz-Date", "")
        digest = hashlib.sha256(body).hexdigest()
        if (service, region) != self.signing or date[:8] != day or not needed <= set(signed) or headers.get("X-Amz-Content-Sha256") != digest:
            return "InvalidSignatureException"
        encode = lambda text, safe="": urllib.parse.quote(text, safe=safe + "-_.~")
        pairs = sorted((encode(name), encode(value)) for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True))
        canonical = [method, encode(path, "/"), "&".join("=".join(pair) for pair in pairs)]
        canonical += [f"{name}:{' '.join(headers[name].split())}" for name in signed] + ["", ";".join(signed), digest]
        scope = f"{day}/{region}/{service}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256("\n".join(canonical).encode()).hexdigest()])
        derived = f"AWS4{secret}".encode()
        for part in (*scope.split("/"), text):
            derived = hmac.digest(derived, part.encode(), "sha256")
        if not secret or not hmac.compare_digest(derived.hex(), signature):
            return "InvalidSignatureException"
        if headers.get("X-Amz-Security-Token") != token:
            return "UnrecognizedClientException"
        return "ExpiredTokenException" if key == "expired" else None

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
        if self.signing is None and authorization.removeprefix("Bearer ") not in self.tokens:
            return 401, {"error": {"message": "hush-message", "type": "NotAuthorizedException", "code": 401}}
        if parts == ["v1", "config"]:
            if query.get("warehouse") != ["main"]:
                return 404, {"error": {"message": "no such warehouse", "type": "NotFoundException", "code": 404}}
            defaults = {"view-endpoints-supported": "true", **self.config}
            return 200, {"defaults": defaults, "overrides": {"prefix": "/".join(urllib.parse.quote(part, safe="") for part in PREFIX[1:])}}
        if parts[: len(PREFIX)] != PREFIX or parts[3] != "namespaces" or method != "GET":
            return 404, {"error": {"message": "no such route", "type": "NotFoundException", "code": 404}}
        namespace = tuple(parts[4].split("\x1f"))
        if len(parts) == 7 and parts[5] == "views":
            return (200, view(parts[6])) if namespace == ("sales",) and parts[6] in VIEWS else (404, {"error": {"type": "NoSuchViewException"}})
        try:
            if len(parts) == 6:
                names = sorted(self.catalog.list_tables(namespace))
                if parts[5] == "views":
                    names = sorted((*namespace, name) for name in VIEWS if namespace == ("sales",))
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


def view(name):
    """What the catalog answers about a view of `sales`."""
    texts, columns = VIEWS[name]
    version = {"version-id": 7, "schema-id": 1, "timestamp-ms": 0, "summary": {}, "default-catalog": "main", "default-namespace": ["sales"],
               "representations": [{"type": "sql", "sql": text, "dialect": dialect} for dialect, text in texts.items()]}
    fields = [{"id": number, "name": column, "required": False, "type": "string"} for number, column in enumerate(columns)]
    metadata = {"view-uuid": "0", "format-version": 1, "location": "s3://lake/views", "current-version-id": 7,
                "versions": [{"version-id": 6, "representations": [{"type": "sql", "sql": "SELECT 6", "dialect": "postgresql"}]}, version],
                "schemas": [{"type": "struct", "schema-id": 1, "fields": fields}], "version-log": [], "properties": {}}
    return {"metadata-location": "s3://lake/views/1.json", "metadata": metadata, "config": {}}


def handler(catalog):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def serve(self):
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            refusal = None
            with catalog.lock:
                if catalog.signing and not (catalog.config and path.endswith("/v1/config")):
                    refusal = catalog.refusal(self.command, path, query, body, self.headers)
                if refusal:
                    status, content = 403, {"message": "hush-message"}
                else:
                    status, content = catalog.answer(self.command, path, urllib.parse.parse_qs(query), urllib.parse.parse_qs(body.decode()),
                                                     self.headers.get("Authorization", ""), self.headers.get("X-Iceberg-Access-Delegation"))
            content = json.dumps(content).encode()
            self.send_response(status)
            if refusal:
                self.send_header("x-amzn-ErrorType", f"{refusal}:http://internal.amazon.com/coral/hush/")
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
