"""A session over libpq itself, by ctypes: results as the server prints them, errors with SQLSTATE, cancel.

Invariants:
- Values are the server's text, or None for NULL; nothing is converted.
- A statement that fails raises QueryError and leaves the session usable.
- A session belongs to one thread; `cancel` may be called from another one.

Deliberately absent: pooling, transactions, types.
"""

import ctypes
import ctypes.util
import os
import select
import socket
import time

_CONNECTION_OK = 0
_EMPTY_QUERY, _COMMAND_OK, _TUPLES_OK, _COPY_OUT, _COPY_IN = 0, 1, 2, 3, 4
_TRANSACTION_STATUS = {0: "idle", 1: "active", 2: "open", 3: "failed"}
_DIAG = {"severity": b"S", "sqlstate": b"C", "message": b"M", "detail": b"D", "hint": b"H"}


def _load():
    library = ctypes.CDLL(ctypes.util.find_library("pq") or "libpq.so.5")
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures = {
        "PQconnectdb": (pointer, [text]),
        "PQstatus": (number, [pointer]),
        "PQerrorMessage": (text, [pointer]),
        "PQfinish": (None, [pointer]),
        "PQexec": (pointer, [pointer, text]),
        "PQprepare": (pointer, [pointer, text, text, number, pointer]),
        "PQexecPrepared": (pointer, [pointer, text, number, ctypes.POINTER(text), pointer, pointer, number]),
        "PQsendQuery": (number, [pointer, text]),
        "PQsetSingleRowMode": (number, [pointer]),
        "PQconsumeInput": (number, [pointer]),
        "PQisBusy": (number, [pointer]),
        "PQgetResult": (pointer, [pointer]),
        "PQsocket": (number, [pointer]),
        "PQbackendPID": (number, [pointer]),
        "PQresultStatus": (number, [pointer]),
        "PQresultErrorMessage": (text, [pointer]),
        "PQresultErrorField": (text, [pointer, number]),
        "PQntuples": (number, [pointer]),
        "PQnfields": (number, [pointer]),
        "PQfname": (text, [pointer, number]),
        "PQftype": (ctypes.c_uint, [pointer, number]),
        "PQfmod": (number, [pointer, number]),
        "PQgetvalue": (pointer, [pointer, number, number]),
        "PQgetlength": (number, [pointer, number, number]),
        "PQgetisnull": (number, [pointer, number, number]),
        "PQcmdTuples": (text, [pointer]),
        "PQclear": (None, [pointer]),
        "PQgetCancel": (pointer, [pointer]),
        "PQcancel": (number, [pointer, text, number]),
        "PQfreeCancel": (None, [pointer]),
        "PQgetCopyData": (number, [pointer, ctypes.POINTER(pointer), number]),
        "PQfreemem": (None, [pointer]),
        "PQputCopyData": (number, [pointer, text, number]),
        "PQputCopyEnd": (number, [pointer, text]),
        "PQtransactionStatus": (number, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    processor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
    library.PQsetNoticeProcessor.argtypes = [pointer, processor, pointer]
    return library, processor


_pq, _NoticeProcessor = _load()


class QueryError(Exception):
    """An error that the server reported, or (sqlstate 08006) the loss of the connection."""

    def __init__(self, sqlstate, message, detail=None, hint=None):
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate, self.message, self.detail, self.hint = sqlstate, message, detail, hint


class Result:
    """All rows of a statement: names, (type oid, type modifier) pairs, rows of texts."""

    def __init__(self, names, types, rows, affected):
        self.names, self.types, self.rows, self.affected = names, types, rows, affected

    def scalar(self):
        """The only value of the only row."""
        if len(self.rows) != 1 or len(self.rows[0]) != 1:
            raise ValueError(f"one value expected, got {len(self.rows)} rows")
        return self.rows[0][0]


class Session:
    """One connection. `notices` collects the texts of NOTICE, WARNING and INFO messages."""

    def __init__(self, conninfo, setup=()):
        self.notices = []
        self.on_notice = None
        self._connection = _pq.PQconnectdb(conninfo.encode())
        if not self._connection or _pq.PQstatus(self._connection) != _CONNECTION_OK:
            message = _pq.PQerrorMessage(self._connection).decode(errors="replace").strip()
            _pq.PQfinish(self._connection)
            self._connection = None
            raise QueryError("08001", message)
        self._processor = _NoticeProcessor(self._take_notice)
        _pq.PQsetNoticeProcessor(self._connection, self._processor, None)
        for statement in setup:
            self.run(statement)

    def _take_notice(self, _, text):
        line = text.decode(errors="replace").rstrip()
        self.notices.append(line)
        if self.on_notice:
            self.on_notice(line)

    @property
    def backend_pid(self):
        """Process id of the server process of this session."""
        return _pq.PQbackendPID(self._connection)

    def run(self, sql):
        """Runs one or more statements and returns the result of the last one that has one."""
        return self._take(_pq.PQexec(self._connection, sql.encode()))

    def prepare(self, name, sql):
        """Makes a statement of the protocol, as drivers do. The server finds the types of its parameters."""
        self._take(_pq.PQprepare(self._connection, name.encode(), sql.encode(), 0, None))

    def execute(self, name, parameters=()):
        """Runs a prepared statement, with texts, or None for NULL, as parameters, and returns its result."""
        values = (ctypes.c_char_p * len(parameters))(*(None if value is None else value.encode() for value in parameters))
        return self._take(_pq.PQexecPrepared(self._connection, name.encode(), len(parameters), values, None, None, 0))

    def receive(self, sql):
        """Runs one statement until all of its rows are here, and looks at none."""
        result = _pq.PQexec(self._connection, sql.encode())
        if not result or _pq.PQresultStatus(result) not in (_COMMAND_OK, _TUPLES_OK):
            self._take(result)
        else:
            _pq.PQclear(result)

    def run_with_rows(self, sql, rows):
        """Runs statements, giving the text that `rows()` returns to each of them that copies rows in, and returns the result of
        the last one that has one. The first error is raised when all have run."""
        self.start(sql)
        return self._last_of(rows=rows)

    def _last_of(self, wait=lambda: None, rows=None):
        """The last result of what was sent; the first error is raised when all have come. `wait` is called before each."""
        last, error = None, None
        while True:
            wait()
            result = _pq.PQgetResult(self._connection)
            if not result:
                break
            if rows is not None and _pq.PQresultStatus(result) == _COPY_IN:
                _pq.PQclear(result)
                data = rows().encode()
                _pq.PQputCopyData(self._connection, data, len(data))
                _pq.PQputCopyEnd(self._connection, None)
                continue
            try:
                last = self._take(result)
            except QueryError as failure:
                error = error or failure
                if self.transaction == "unknown":
                    break
        if error:
            raise error
        return last

    @property
    def transaction(self):
        """Where the session's transaction stands: `idle`, `active`, `open`, `failed`, or `unknown` once the connection is lost."""
        return _TRANSACTION_STATUS.get(_pq.PQtransactionStatus(self._connection), "unknown")

    def start(self, sql):
        """Sends statements and returns at once; `finish` waits for them."""
        if not _pq.PQsendQuery(self._connection, sql.encode()):
            raise self._connection_error()

    def is_busy(self):
        """Whether the answer to `start` is not complete yet."""
        if not _pq.PQconsumeInput(self._connection):
            return False
        return bool(_pq.PQisBusy(self._connection))

    def finish(self, timeout_s=None):
        """Waits for what `start` sent. Raises TimeoutError if the server does not answer in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s

        def wait():
            while self.is_busy():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"no answer within {timeout_s} s")
                select.select([_pq.PQsocket(self._connection)], [], [], left)

        return self._last_of(wait)

    def cancel(self):
        """Asks the server to cancel the running statement, as Ctrl-C in psql does."""
        handle = _pq.PQgetCancel(self._connection)
        message = ctypes.create_string_buffer(256)
        done = _pq.PQcancel(handle, message, len(message))
        _pq.PQfreeCancel(handle)
        if not done:
            raise QueryError("08006", message.value.decode(errors="replace"))

    def drop_socket(self):
        """Closes the socket under libpq, as the death of a client does."""
        with socket.socket(fileno=os.dup(_pq.PQsocket(self._connection))) as stream:
            stream.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Ends the session."""
        if self._connection:
            _pq.PQfinish(self._connection)
            self._connection = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _connection_error(self):
        return QueryError("08006", _pq.PQerrorMessage(self._connection).decode(errors="replace").strip())

    def _take(self, result):
        if not result:
            raise self._connection_error()
        try:
            status = _pq.PQresultStatus(result)
            if status == _COPY_OUT:
                return self._take_copy()
            if status not in (_EMPTY_QUERY, _COMMAND_OK, _TUPLES_OK):
                raise self._error_of(result)
            return self._rows_of(result)
        finally:
            _pq.PQclear(result)

    def _take_copy(self):
        rows, place = [], ctypes.c_void_p()
        while True:
            size = _pq.PQgetCopyData(self._connection, ctypes.byref(place), 0)
            if size < 0:
                break
            rows.append((ctypes.string_at(place.value, size).decode().rstrip("\n"),))
            _pq.PQfreemem(place)
        while True:
            result = _pq.PQgetResult(self._connection)
            if not result:
                return Result(["copy"], [(25, -1)], rows, len(rows))
            try:
                if _pq.PQresultStatus(result) not in (_COMMAND_OK, _TUPLES_OK):
                    raise self._error_of(result)
            finally:
                _pq.PQclear(result)

    @staticmethod
    def _error_of(result):
        fields = {}
        for name, code in _DIAG.items():
            value = _pq.PQresultErrorField(result, ord(code))
            fields[name] = value.decode(errors="replace") if value else None
        message = fields["message"] or _pq.PQresultErrorMessage(result).decode(errors="replace").strip()
        # Without a SQLSTATE the message is libpq's own: the connection is gone.
        return QueryError(fields["sqlstate"] or "08006", message, fields["detail"], fields["hint"])

    @staticmethod
    def _rows_of(result):
        columns = range(_pq.PQnfields(result))
        names = [_pq.PQfname(result, column).decode() for column in columns]
        types = [(_pq.PQftype(result, column), _pq.PQfmod(result, column)) for column in columns]
        rows = []
        for row in range(_pq.PQntuples(result)):
            values = []
            for column in columns:
                if _pq.PQgetisnull(result, row, column):
                    values.append(None)
                else:
                    size = _pq.PQgetlength(result, row, column)
                    values.append(ctypes.string_at(_pq.PQgetvalue(result, row, column), size).decode())
            rows.append(tuple(values))
        affected = _pq.PQcmdTuples(result)
        return Result(names, types, rows, int(affected) if affected else 0)
