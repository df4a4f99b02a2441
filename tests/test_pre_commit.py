"""The hooks of pre-commit are the checks of ``make lint``."""

import re
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]


def test_the_hooks_run_the_commands_of_make_lint() -> None:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    commands = recipe[1].replace("$(BIN)", ".venv/bin").replace("\t", "").splitlines()

    (repository,) = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"]

    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == commands
    assert {(hook["language"], hook["pass_filenames"]) for hook in repository["hooks"]} == {("system", False)}
