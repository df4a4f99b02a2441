import csv
import io
import json

from proxy.analysis.report.files import as_csv, as_json
from tests.analysis.report.reports import HOSTILE, report


def test_json_has_all_of_the_model_with_tables_as_objects() -> None:
    reported = json.loads(as_json(report()))

    assert reported["about"]["row_count"] == 48_211_034
    assert reported["advice"][1]["brings"] == {"title": "a month", "value": 412.5, "unit": "usd", "note": ""}
    table = reported["sections"][0]["tables"][0]
    assert table["rows"][0]["client_id"] == HOSTILE
    assert table["rows"][1]["saved_bytes"] == -400_000_000_000
    assert table["units"]["saved_bytes"] == "bytes"


def test_csv_has_a_file_a_table_and_formulas_are_texts() -> None:
    files = as_csv(report())
    rows = list(csv.DictReader(io.StringIO(files["savings_clients.csv"])))

    assert set(files) == {"figures.csv", "advice.csv", "savings_clients.csv"}
    assert rows[0]["client_id"] == HOSTILE
    assert rows[0]["why"] == "'=1+1"
    assert [row["saved_bytes"] for row in rows] == ["2000000000000.0", "-400000000000.0", "10000000000.0"]
