"""What the README says that can be held against the code."""

import re
from pathlib import Path

from proxy.cli.options import readme_table
from proxy.convert.versions import table as versions

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_options_is_the_programs_own() -> None:
    _, _, rest = README.partition("made from proxy/config; a test keeps it equal -->\n")
    table, end, _ = rest.partition("<!-- end -->")

    assert end
    assert table == readme_table(), f"put this between the marks:\n{readme_table()}"


def test_the_table_of_versions_is_that_of_the_lifts() -> None:
    _, _, rest = README.partition("## Versions that Kafka 4 removed\n")
    table, end, _ = rest.partition("<!-- end -->")
    _, _, table = table.partition("a test keeps it equal -->\n")

    assert end
    assert table == versions.readme_table(), f"put this between the marks:\n{versions.readme_table()}"


def test_every_make_target_that_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for target in set(re.findall(r"\bmake ([a-z]+)\b", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_flag_that_it_names_exists() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "proxy" / "cli").glob("*.py"))
    table = readme_table()

    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", README)) - {"--quick"}:
        assert f"`{flag}`" in table or f'"{flag}"' in sources, flag
