"""A token server for OAuth, which can be made to fail."""

import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

__all__ = [
    "Handler",
    "Server",
]


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], parse_qs(body)))
        status, said, more = self.server.answer
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A server that grants token-1, token-2…, or a given response."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.life_s = 100
        self.refused: tuple[int, bytes, dict[str, str]] | None = None

    @property
    def answer(self) -> tuple[int, bytes, dict[str, str]]:
        granted = {"access_token": f"token-{len(self.asked)}", "expires_in": self.life_s, "token_type": "Bearer"}
        return self.refused or (200, json.dumps(granted).encode(), {})

    def handle_error(self, *_: object) -> None:
        pass

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}/token"
