"""Proxy a real Prometheus and falsify its answers when a test asks for it."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

Lie = Callable[[str], str]
"""From the value of a sample to what is said instead."""


class Liar:
    """Stands before a PromQL server at `url`; `with` starts and ends it. It is honest while there is no `lie`."""

    def __init__(self, server: str) -> None:
        self.lie: Lie | None = None
        self.falsified = 0
        """The number of falsified samples."""
        liar = self

        class ProxyHandler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._relay(None)

            def do_POST(self) -> None:
                self._relay(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def log_message(self, *_: object) -> None: ...

            def _relay(self, body: bytes | None) -> None:
                kept = {
                    name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers
                }
                asked = urllib.request.Request(server + self.path, data=body, headers=kept)
                try:
                    with urllib.request.urlopen(asked, timeout=30) as answer:
                        status, content = answer.status, answer.read()
                except urllib.error.HTTPError as refusal:
                    status, content = refusal.code, refusal.read()
                except OSError:
                    self.close_connection = True  # it is away, and so are we
                    return
                content = liar.falsify(content)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), ProxyHandler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def falsify(self, content: bytes) -> bytes:
        """Return an answer with falsified samples of containers."""
        lie = self.lie
        if lie is None or b'"matrix"' not in content:
            return content
        answer = json.loads(content)
        for series in answer["data"]["result"]:
            if "pod" not in series["metric"]:
                continue  # a count, by which it is only decided how to ask
            series["values"] = [[at, lie(value)] for at, value in series["values"]]
            self.falsified += len(series["values"])
        return json.dumps(answer).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
