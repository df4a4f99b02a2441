"""The values that the status page shows, without a browser: its script runs in Node with a stub DOM."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import attrs

from proxy.telemetry.document import document
from proxy.telemetry.state import ReadingState
from tests.prerequisites import require
from tests.telemetry.records import NOW_US, Link, busy, exchange, facts_of, fetch

PAGE: Final = Path(__file__).parents[2] / "proxy" / "net" / "observability" / "page.html"
BEFORE: Final = """
const nodes = {}, tables = {};
const node = () => ({textContent: "", hidden: true, dataset: {}, style: {}, getAttribute: () => null,
  setAttribute() {}, addEventListener() {}});
globalThis.document = {getElementById: (id) => nodes[id] ||= node(), body: node(), hidden: true};
globalThis.ResizeObserver = class { observe() {} };
globalThis.setTimeout = () => {};
"""
AFTER: Final = """
keyed = bar = problems = brokers = hour = () => {};
table = (id, items, key, columns) => {
  tables[id] = items.map((each) => columns.map((column) => column.of(each)));
};
show(JSON.parse(require("fs").readFileSync(0)));
const texts = Object.entries(nodes).map(([id, each]) => [id, {text: each.textContent, hidden: each.hidden}]);
console.log(JSON.stringify({...Object.fromEntries(texts), tables}));
"""


def shown(reported: dict[str, Any]) -> dict[str, Any]:
    """Return the text of each element of the page that shows *reported*, and the cells of its tables."""
    require("node")
    script = re.search(r"<script>\n(.*)</script>", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert script is not None
    command = ["node", "-e", BEFORE + script[1].replace('"use strict";', "") + AFTER]
    done = subprocess.run(command, input=json.dumps(reported), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def test_page_shows_how_often_records_were_delivered_where_reads_are_shared() -> None:
    state = ReadingState("a", NOW_US)
    cache = Link(9, "", client_id=None, is_shared_cache=True)
    state.observe(cache, fetch(record_bytes=2_000, response_bytes=2_100), NOW_US)
    for number in range(5):
        shared = exchange(client_id=f"c{number}", source_bytes=2_000, is_shared=True)
        state.observe(Link(number, client_id=f"c{number}"), shared, NOW_US)

    page = shown(document(attrs.evolve(facts_of(state), share_reads="principal")))

    assert page["shared"]["hidden"] is False
    assert page["delivery-ratio"]["text"] == "5.0 times"
    assert page["delivery-of"]["text"] == "2.00 kB from brokers, 10.0 kB to clients"
    assert {tuple(row[4:6]) for row in page["tables"]["clients"]} == {("shared", "–")}


def test_page_shows_no_deliveries_where_reads_are_not_shared() -> None:
    page = shown(document(facts_of(busy())))

    assert page["shared"]["hidden"] is True
    assert [row[4:6] for row in page["tables"]["clients"]] == [["1", "800 B"]]
