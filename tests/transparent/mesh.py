"""A stand-in for a service mesh's proxy: ``python -m tests.transparent.mesh PORT``.

It accepts connections that the mesh's own rules redirect to it, prints their destination, and forwards them.
"""

import os
import socket
import struct
import sys
import threading
from contextlib import suppress

_SO_ORIGINAL_DST = 80


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)


def _serve(accepted: socket.socket) -> None:
    port, host = struct.unpack("!2xH4s8x", accepted.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
    peer = accepted.getpeername()
    # At once: lines of several threads must not be mixed.
    os.write(1, f"{peer[0]}:{peer[1]} to {socket.inet_ntoa(host)}:{port}\n".encode())
    with accepted, suppress(OSError), socket.create_connection((socket.inet_ntoa(host), port)) as onward:
        back = threading.Thread(target=_pass, args=(onward, accepted))
        back.start()
        _pass(accepted, onward)
        back.join()


def main() -> None:
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
        print("listening", flush=True)
        while True:
            accepted, _ = listening.accept()
            threading.Thread(target=_serve, args=(accepted,), daemon=True).start()


if __name__ == "__main__":
    main()
