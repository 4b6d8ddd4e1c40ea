"""A loopback server that answers as a Prometheus or a VictoriaMetrics did when it was recorded.

While recording, it passes each request on to the real server and keeps the answer.
"""

import base64
import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal, Self

from harness.peers.prometheus import Recorded
from harness.peers.victoriametrics import victoriametrics
from harness.recordings import Recording, is_recording
from trimtab.usage.prometheus.remote_read.protocol import HEADERS

Kind = Literal["prometheus", "victoriametrics"]

_READ = "/api/v1/read"


@dataclass(frozen=True)
class Answer:
    """A recorded answer of a server."""

    status: int
    media_type: str
    text: str = ""
    binary: str = ""
    """The content as base64, if it is no text."""

    @classmethod
    def from_content(cls, status: int, media_type: str, content: bytes) -> Self:
        try:
            return cls(status, media_type, text=content.decode())
        except UnicodeDecodeError:
            return cls(status, media_type, binary=base64.b64encode(content).decode())

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.binary) if self.binary else self.text.encode()

    def normalized(self) -> object:
        """Return the answer without what a server may choose, such as the order of series."""
        if self.status >= 400:
            return self.status  # the text may name the port of the client
        if self.binary or not self.media_type.startswith("application/json"):
            return self
        document = json.loads(self.text)
        document.pop("stats", None)  # VictoriaMetrics reports its duration
        data = document.get("data")
        series = data.get("result") if isinstance(data, dict) else data
        if isinstance(series, list):
            series.sort(key=lambda each: json.dumps(each, sort_keys=True))
        return self.status, document


class RecordedServers:
    """The servers of one file of recordings, each with a name, the metrics that it held, and its answers."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @contextmanager
    def serve(self, name: str, metrics: str, *flags: str, kind: Kind = "prometheus") -> Iterator[str]:
        """Answer as a server with these metrics did, given as OpenMetrics text; yield the address."""
        held = {"kind": kind, "metrics": metrics, "flags": list(flags)}
        with ExitStack() as stack:
            real = ""
            if is_recording():
                self._recording.keep(name, held)
                real = stack.enter_context(_start(held))
            assert self._recording.find(name) == held, f"{name} has other metrics: run `make recordings`"
            lock = Lock()

            def answer(path: str, body: bytes) -> Answer:
                question = f"{name} {_question(path, body)}"
                if real:
                    given = _ask(real, path, body)
                    with lock:
                        self._recording.keep(question, asdict(given))
                return Answer(**self._recording.find(question))

            yield stack.enter_context(_listening(answer))

    def compare(self) -> int:
        """Ask real servers all that was asked when they were recorded; return how many answers are the same."""
        compared = 0
        for name in [each for each in self._recording if " " not in each]:
            with _start(self._recording.find(name)) as url:
                for question in [each for each in self._recording if each.startswith(f"{name} ")]:
                    path, body = json.loads(question.partition(" ")[2])
                    form = [] if path == _READ else [(key, value) for key, value in body]
                    content = (
                        base64.b64decode(body) if path == _READ else urllib.parse.urlencode(form).encode()
                    )
                    then = Answer(**self._recording.find(question))
                    assert _ask(url, path, content).normalized() == then.normalized(), question
                    compared += 1
        return compared


@contextmanager
def _start(held: dict[str, Any]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        if held["kind"] == "prometheus":
            with Recorded(Path(folder), held["metrics"], flags=held["flags"]) as server:
                yield server.url
        else:
            with victoriametrics(Path(folder), held["metrics"], *held["flags"]) as url:
                yield url


def _question(path: str, body: bytes) -> str:
    """Return what distinguishes requests: a form is the same as a query."""
    path, _, query = path.partition("?")
    if path == _READ:
        return json.dumps([path, base64.b64encode(body).decode()])
    return json.dumps([path, sorted(urllib.parse.parse_qsl(query) + urllib.parse.parse_qsl(body.decode()))])


def _ask(url: str, path: str, body: bytes) -> Answer:
    headers = HEADERS if path == _READ else {}
    is_get = path.startswith("/api/v1/label")  # which Prometheus has no POST for
    where = f"{url}{path}{'?' + body.decode() if is_get and body else ''}"
    request = urllib.request.Request(where, None if is_get else body or None, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return Answer.from_content(response.status, response.headers["Content-Type"], response.read())
    except urllib.error.HTTPError as error:
        return Answer.from_content(error.code, error.headers["Content-Type"], error.read())


@contextmanager
def _listening(answer: Callable[[str, bytes], Answer]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each content waits 40 ms for the headers to be acknowledged
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                found = answer(self.path, body)
            except LookupError as error:  # which the test then shows as what the server refused
                text = json.dumps({"status": "error", "errorType": "bad_data", "error": str(error)})
                found = Answer(400, "application/json", text)
            content = found.content
            self.send_response(found.status)
            self.send_header("Content-Type", found.media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - the name that http.server calls

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Print nothing of clients that went away."""

    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
