"""A page on this machine with the live wrist picture: pictures and a state that the page asks for again and again.

It listens on 127.0.0.1 only: through ssh it is reached with `ssh -L 8765:127.0.0.1:8765`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError

HOST = "127.0.0.1"
QUALITY = 92


@contextmanager
def serving(
    port: int, pictures: Callable[[], dict[str, np.ndarray]], state: Callable[[], dict[str, Any]]
) -> Generator[str]:
    """Serves while the block runs; yields the page's address. Port 0 takes a free one. Raises UserError.

    `pictures` gives the uint8 RGB views by name, `state` what else the page shows.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.split("?")[0].strip("/")
            if name == "":
                self._answer("text/html; charset=utf-8", page())
            elif name == "state.json":
                self._answer("application/json", json.dumps(state()).encode())
            elif name.removesuffix(".jpg") in (shown := pictures()):
                self._answer("image/jpeg", jpeg(shown[name.removesuffix(".jpg")]))
            else:
                self.send_error(404)

        def _answer(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing: the terminal shows the camera."""

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise UserError(f"--port {port} cannot be used ({error.strerror}); take another, or 0 for a free one") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="camera-page", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=2.0)


def page() -> bytes:
    """The page."""
    return files("robocoach.pipelines").joinpath("camera_page.html").read_bytes()


def jpeg(image: np.ndarray) -> bytes:
    """A uint8 RGB picture as JPEG."""
    import cv2

    fine, coded = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    assert fine
    return coded.tobytes()
