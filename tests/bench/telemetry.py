"""The cost of telemetry: the same records with no exporter, and with all of them."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tests.bench.frame import Expectation, Table, Way, measure
from tests.bench.stage import NODE, address_of, create_topics, fill, reading_way
from tests.kafka.cluster import KafkaCluster
from tests.ports import free_port_range
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_TOPIC: Final = "telemetry"
_PARTITIONS: Final = 4
_LEAST_OFF: Final = 0.98
_ROUNDS: Final = 15
"""Not configured and off run the same code; the medians of five differ by some per cent all the same."""


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """MB/s of records of 1 KiB; traces go to a server that takes everything and looks at nothing."""
    create_topics(cluster, {_TOPIC: _PARTITIONS})
    show_progress("writing records")
    megabytes = 64 if quick else 256
    fill(cluster, _TOPIC, _PARTITIONS, megabytes=megabytes)
    with contextlib.ExitStack() as stage:
        sink = {"OTEL_EXPORTER_OTLP_ENDPOINT": stage.enter_context(_sink())}

        def ledger() -> str:
            return stage.enter_context(tempfile.TemporaryDirectory(prefix="sidefetch-bench-"))

        def way_of(name: str, options: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> Way:
            sidefetch = stage.enter_context(Sidefetch(cluster.bootstrap, options=options, env=env))
            return reading_way(name, address_of(NODE, sidefetch.bootstrap), _TOPIC, _PARTITIONS, megabytes)

        admin = f"127.0.0.1:{free_port_range(1)}"
        rarely = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
        ways = [
            way_of("not configured"),
            way_of("off", ("--traces", "off")),
            way_of("1 %", ("--ledger", ledger(), "--ledger-sample", "0.01"), {**sink, **rarely}),
            way_of("full", ("--ledger", ledger(), "--admin-listen", admin), sink),
        ]
        show_progress("warming up")
        for way in ways:
            way.run()
        table = measure(
            "telemetry, reading 1 KiB records",
            "MB/s",
            ways,
            rounds=3 if quick else _ROUNDS,
            show_progress=show_progress,
        )
    off = table.ratio("off")
    return [
        table.expecting(
            Expectation(
                f"telemetry off: {off:.2f} of not configured, at least {_LEAST_OFF}", is_met=off >= _LEAST_OFF
            )
        )
    ]


class _Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def _sink() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taker)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
