"""A schema registry for tests."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class SchemaRegistry:
    """What ``pages`` has, by path: JSON's values, bytes, where a redirect leads (a text), or a status.
    ``asked`` has the paths of the requests, ``authorizations`` what was shown with them."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked.append(self.path)
                served.authorizations.add(self.headers["authorization"])
                found = served.pages.get(self.path, 404)
                if isinstance(found, str):
                    self.send_response(302)
                    self.send_header("location", found)
                    self.end_headers()
                elif isinstance(found, int):
                    self.send_error(found)
                else:
                    body = found if isinstance(found, bytes) else json.dumps(found).encode()
                    self.send_response(200)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
