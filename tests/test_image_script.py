"""The files that deploy/image.py copies; tests/kube/test_image.py shows that they suffice."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "deploy" / "image.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_is_copied_with_every_link_that_leads_to_it(script: ModuleType, tmp_path: Path) -> None:
    real, root = tmp_path / "usr" / "lib", tmp_path / "root"
    real.mkdir(parents=True)
    (real / "thing.so.1.2").write_bytes(b"\x7fELF")
    (real / "thing.so.1").symlink_to("thing.so.1.2")
    (tmp_path / "lib").symlink_to("usr/lib")

    new = script.copy_with_links(tmp_path / "lib" / "thing.so.1", root)

    copy = script.place_under(root, tmp_path)
    assert new == [copy / "usr" / "lib" / "thing.so.1.2"]
    assert os.readlink(copy / "lib") == "usr/lib"
    assert os.readlink(copy / "usr" / "lib" / "thing.so.1") == "thing.so.1.2"
    assert (copy / "lib" / "thing.so.1").read_bytes() == b"\x7fELF"
    assert script.copy_with_links(real / "thing.so.1.2", root) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ldd is Linux's")
def test_find_libraries_returns_linked_libraries_and_loader(script: ModuleType) -> None:
    names = {
        path.name.partition(".")[0] for path in script.find_libraries([Path(sys.executable).resolve(), SCRIPT])
    }

    assert "libc" in names
    assert any(name.startswith("ld-") for name in names)
