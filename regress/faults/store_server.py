"""Servers that speak S3 (moto) and that are a catalog of Iceberg, and a proxy before each that notes requests and does what networks and stores do wrong."""

import base64
import contextlib
import hmac
import html
import http.client
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse

from faults.support import HANG_S, require

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"
# moto believes every signature.
_SIGNED = "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_MOTO = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


# Finds a port, starts a program that listens at it, and ends it with the input.
_LAUNCH = """
import socket, subprocess, sys, time
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
server = subprocess.Popen([part.replace("{port}", str(port)) for part in sys.argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while server.poll() is None:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except OSError:
        time.sleep(0.05)
print(port, flush=True)
sys.stdin.read()
server.kill()
server.wait()
"""


class Fault:
    """Something that goes wrong with requests: of a method, whose path has a text, with or without a range that begins behind the first bytes."""

    def __init__(self, method, text, act, times):
        self.method, self.text, self.act, self.times = method, text, act, times
        self.seen = 0

    def is_due(self, request):
        """Whether it happens to this request."""
        if request.command != self.method or self.text not in request.path or self.seen >= self.times:
            return False
        self.seen += 1
        return True


class Proxy:
    """A server behind the proxy: a program that prints its port and ends with its input."""

    def __init__(self, command):
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._port = int(self._server.stdout.readline())
        self.own_endpoint = f"http://127.0.0.1:{self._port}"
        self._lock = threading.Lock()
        self._requests, self._faults = [], []
        self.refused_keys = set()
        self._proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._proxy.daemon_threads = True
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._proxy.server_address[1]}"

    def close(self):
        """Ends both."""
        self._proxy.shutdown()
        self._server.stdin.close()
        self._server.wait(HANG_S)

    def requests(self, method=None):
        """The requests since the last call, as (method, path, range, key id or token)."""
        with self._lock:
            taken, self._requests = self._requests, []
        return [request for request in taken if method in (None, request[0])]

    def forwarded(self, _command, path, _headers):
        """The path by which the server is asked; what it needs in its headers is put there."""
        return path

    def added_headers(self, _command, _status, _content):
        """What the server's answers lack."""
        return []

    def own_answer(self, _request):
        """What is answered in the server's place: a status, headers and content. None of what is forwarded."""
        return None

    @contextlib.contextmanager
    def fault(self, method, text, act, times=1 << 30):
        """While within, `act` answers so many requests. It gets the request."""
        fault = Fault(method, text, act, times)
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    def _handler(self):
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                """Says nothing."""

            def answer(self, status, headers, content):
                """Sends an answer."""
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection", "server", "date", "content-length"):
                        self.send_header(name, value)
                length = next((value for name, value in headers if name.lower() == "content-length"), len(content))
                self.send_header("Content-Length", length if self.command == "HEAD" else len(content))
                self.end_headers()
                if self.command != "HEAD":
                    # An engine whose other request has failed may be gone.
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        self.wfile.write(content)

            def break_off(self, headers, content, after):
                """Promises all of an answer, sends the first bytes, and closes the connection."""
                self.send_response(206)
                for name, value in headers:
                    if name.lower() in ("content-range", "etag", "last-modified"):
                        self.send_header(name, value)
                self.send_header("Content-Length", len(content))
                self.end_headers()
                self.wfile.write(content[:after])
                self.wfile.flush()
                self.close_connection = True

            def forward(self):
                """What the server answers."""
                connection = http.client.HTTPConnection("127.0.0.1", store._port, timeout=HANG_S)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "host")}
                headers["Host"] = self.headers["Host"]
                connection.request(self.command, store.forwarded(self.command, self.path, headers), self.body, headers)
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                return answer.status, answer.getheaders() + store.added_headers(self.command, answer.status, content), content

            def serve(self):
                """Notes a request, and answers it."""
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                key = re.search(r"Credential=([^/]*)/|Bearer (.*)", self.headers.get("Authorization", ""))
                key = (key.group(1) or key.group(2)) if key else None
                with store._lock:
                    store._requests.append((self.command, self.path, self.headers.get("Range"), key))
                    fault = next((fault for fault in store._faults if fault.is_due(self)), None)
                if key in store.refused_keys:
                    self.answer(403, [], b"<Error><Code>AccessDenied</Code></Error>")
                elif fault:
                    fault.act(self)
                else:
                    self.answer(*(store.own_answer(self) or self.forward()))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        return Handler


class Store(Proxy):
    """moto behind the proxy."""

    def __init__(self):
        python = subprocess.run([SCRIPTS / "moto.sh"], check=True, capture_output=True, text=True).stdout.strip()
        super().__init__([python, "-c", _MOTO])

    def ask(self, method, path, body=None, headers=None):
        """A request to moto itself; its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=HANG_S)
        connection.request(method, path, body, {"Authorization": _SIGNED.format("owner"), **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        require(answer.status < 300, f"moto answered {answer.status} to {method} {path}: {content[:300]}")
        return content

    def put(self, key, content, **headers):
        """Puts an object: content, or a file."""
        self.ask("PUT", f"/lake/{key}", content.read_bytes() if isinstance(content, pathlib.Path) else content, headers)

    def keys(self, prefix):
        """The keys of the objects that begin so."""
        listed = self.ask("GET", f"/lake?list-type=2&prefix={prefix}").decode()
        return re.findall(r"<Key>([^<]*)</Key>", listed)

    def uploads(self):
        """How many uploads are not complete."""
        return self.ask("GET", "/lake?uploads").decode().count("<UploadId>")


class Catalog(Proxy):
    """A catalog of tables in a store behind the proxy (regress/writers/rest_catalog.py)."""

    def __init__(self, store):
        self.python = subprocess.run([SCRIPTS / "writers.sh", "lakes"], check=True, capture_output=True, text=True).stdout.strip()
        self._folder = tempfile.TemporaryDirectory()
        super().__init__([self.python, ROOT / "regress" / "writers" / "rest_catalog.py", self._folder.name, store.own_endpoint, store.endpoint])

    def close(self):
        super().close()
        self._folder.cleanup()

    def change(self, statement):
        """Has the catalog change a table, or itself."""
        self._server.stdin.write(f"{statement}\n")
        self._server.stdin.flush()
        require(self._server.stdout.readline() == "done\n", f"the catalog did: {statement}")


class Emulator(Proxy):
    """A program that acts as another store (scripts/emulators.sh) behind the proxy."""

    def __init__(self, name, arguments):
        program = subprocess.run([SCRIPTS / "emulators.sh", name], check=True, capture_output=True, text=True).stdout.strip()
        super().__init__([sys.executable, "-c", _LAUNCH, program, *arguments])

    def ask(self, method, path, body=None, headers=None):
        """A request to the program itself; its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=HANG_S)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        require(answer.status < 300, f"{answer.status} to {method} {path}: {content[:300]}")
        return content


class Azure(Emulator):
    """Azurite, with the container `lake`, and the key of its account."""

    ACCOUNT = "devstoreaccount1"
    # The one that all installations have.
    KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self):
        super().__init__("azurite", ["--blobHost", "127.0.0.1", "--blobPort", "{port}", "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"])
        self.endpoint = f"{self.endpoint}/{self.ACCOUNT}"
        self.ask("PUT", f"/{self.ACCOUNT}/lake?restype=container&{self.token('racwdl')}")

    def token(self, permissions):
        """A shared access signature of the account with these rights."""
        values = {"sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": permissions, "se": "2099-01-01T00:00:00Z", "spr": "https,http"}
        text = "\n".join([self.ACCOUNT, values["sp"], values["ss"], values["srt"], "", values["se"], "", values["spr"], values["sv"], "", ""])
        signature = base64.b64encode(hmac.digest(base64.b64decode(self.KEY), text.encode(), "sha256")).decode()
        return urllib.parse.urlencode({**values, "sig": signature})

    def put(self, key, path):
        """Puts an object: a file."""
        self.ask("PUT", f"/{self.ACCOUNT}/lake/{key}?{self.token('racwdl')}", path.read_bytes(), {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2021-12-02"})

    def keys(self, prefix):
        """The keys of the objects that begin so."""
        listed = self.ask("GET", f"/{self.ACCOUNT}/lake?restype=container&comp=list&prefix={prefix}&{self.token('rl')}").decode()
        return re.findall(r"<Name>([^<]*)</Name>", listed)


class Google(Emulator):
    """fake-gcs-server with the bucket `lake`."""

    def __init__(self):
        super().__init__("gcs", ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", "{port}", "-public-host", "127.0.0.1:{port}"])
        self.ask("POST", "/storage/v1/b?project=p", '{"name": "lake"}', {"Content-Type": "application/json"})
        self.begun, self.parts = 0, {}

    def put(self, key, path):
        """Puts an object: a file."""
        self._put(key, path.read_bytes())

    def _put(self, key, content):
        self.ask("POST", f"/upload/storage/v1/b/lake/o?uploadType=media&name={urllib.parse.quote(key, safe='')}", content, {"Content-Type": "application/octet-stream"})

    def own_answer(self, request):
        """Uploads in parts, of which it knows nothing: parts are kept until they are completed."""
        path, _, query = request.path.partition("?")
        asked = urllib.parse.parse_qs(query, keep_blank_values=True)
        upload = asked.get("uploadId", [None])[0]
        xml = [("Content-Type", "application/xml")]
        if request.command == "POST" and "uploads" in asked:
            with self._lock:
                self.begun += 1
                upload = f"upload-{self.begun}"
                self.parts[upload] = {}
            return 200, xml, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode()
        if upload is None:
            return None
        if upload not in self.parts:
            return 404, xml, b"<Error><Code>NoSuchUpload</Code></Error>"
        if request.command == "PUT":
            number = int(asked["partNumber"][0])
            self.parts[upload][number] = request.body
            return 200, [("ETag", f'"{upload}-{number}"')], b""
        parts = self.parts.pop(upload)
        if request.command == "DELETE":
            return 204, [], b""
        named = re.findall(r"<ETag>([^<]*)</ETag>\s*<PartNumber>(\d+)</PartNumber>", request.body.decode())
        if not named or any(html.unescape(tag).strip('"') != f"{upload}-{number}" for tag, number in named):
            return 400, xml, b"<Error><Code>InvalidPart</Code></Error>"
        self._put(urllib.parse.unquote(path.removeprefix("/lake/")), b"".join(parts[int(number)] for _, number in named))
        return 200, xml, b'<CompleteMultipartUploadResult><ETag>"completed"</ETag></CompleteMultipartUploadResult>'

    def keys(self, prefix):
        """The keys of the objects that begin so."""
        listed = json.loads(self.ask("GET", f"/storage/v1/b/lake/o?prefix={urllib.parse.quote(prefix, safe='')}"))
        return [item["name"] for item in listed.get("items", [])]

    def forwarded(self, command, path, headers):
        """It knows its own name alone, and of PUT that of signed URLs."""
        headers["Host"] = f"127.0.0.1:{self._port}"
        return path + ("&" if "?" in path else "?") + "X-Goog-Algorithm=none" if command == "PUT" else path

    def added_headers(self, command, status, content):
        """It says in JSON what the store says in headers."""
        if command != "PUT" or status != 200:
            return []
        said = json.loads(content)
        return [("ETag", f'"{said["etag"]}"'), ("x-goog-generation", said["generation"])]


def status(code):
    """Answers with a status."""
    return lambda request: request.answer(code, [], b"<Error><Code>SlowDown</Code></Error>" if code == 503 else b"")


def cut(after):
    """Answers, and closes the connection after so many bytes."""
    def act(request):
        code, headers, content = request.forward()
        if code == 206:
            request.break_off(headers, content, after)
        else:
            request.answer(code, headers, content)
    return act


def unanswered(request):
    """Has the store do what was asked for, and closes the connection without an answer."""
    request.forward()
    request.close_connection = True


def shortened(request):
    """Says that it sends all, and sends less: the length is that of what it sends."""
    code, headers, content = request.forward()
    request.answer(code, headers, content[: len(content) // 2])


def unconditional(change):
    """Runs `change` once, and then answers whatever version was demanded, as a store does that knows no conditions."""
    changed = []

    def act(request):
        if not changed:
            changed.append(change())
        del request.headers["If-Match"]
        request.answer(*request.forward())
    return act


def after(change):
    """Runs `change` once, and answers."""
    changed = []

    def act(request):
        if not changed:
            changed.append(change())
        request.answer(*request.forward())
    return act
