"""The ledger's files: whole for whoever reads them, and no more of them than there is room for."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.net.observability.backlog import LedgerLine
from proxy.net.observability.ledger_folder import FileLimits, LedgerFolder
from proxy.telemetry.rows import Loss
from tests.disks import limited_files

ROW_BYTES = 100


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def lost_line(loss: Loss, at_us: int = 5, cluster_id: str | None = None) -> bytes:
    reported = {
        "seq": loss.last,
        "proxy_id": loss.proxy_id,
        "reason": loss.reason,
        "at_us": at_us,
        "cluster_id": cluster_id,
    }
    return json.dumps(reported).encode() + b"\n"


def line(seq: int, proxy_id: str = "p") -> LedgerLine:
    data = json.dumps({"seq": seq, "proxy_id": proxy_id, "cluster_id": "c"}).encode()
    return LedgerLine(seq, data.ljust(ROW_BYTES - 1) + b"\n")


def writer(
    path: Path, proxy_id: str = "p", *, clock: Clock | None = None, rows: int = 4, files: int = 3
) -> LedgerFolder:
    limits = FileLimits(rows * ROW_BYTES, 60.0, files * rows * ROW_BYTES)
    return LedgerFolder(path, proxy_id, limits, clock or Clock())


def write(folder: LedgerFolder, *seqs: int, losses: tuple[Loss, ...] = ()) -> None:
    folder.write(losses, [line(seq) for seq in seqs], lost_line)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def rows(path: Path) -> list[int]:
    return [json.loads(text)["seq"] for text in path.read_text().splitlines()]


def test_readers_see_a_file_only_when_it_is_finished(tmp_path: Path) -> None:
    folder = writer(tmp_path)
    write(folder, 0, 1)
    assert names(tmp_path) == [".p-000000000000.open"]

    folder.finish()

    assert names(tmp_path) == ["p-000000000000-000000000002.jsonl"]
    assert rows(tmp_path / names(tmp_path)[0]) == [0, 1]


def test_a_full_file_is_finished_and_the_next_begun(tmp_path: Path) -> None:
    folder = writer(tmp_path)
    for seq in range(5):
        write(folder, seq)
        folder.rotate()

    assert names(tmp_path) == [".p-000000000004.open", "p-000000000000-000000000004.jsonl"]


def test_an_old_file_is_finished_though_it_is_not_full(tmp_path: Path) -> None:
    clock = Clock()
    folder = writer(tmp_path, clock=clock)
    write(folder, 0)
    clock.now_s = 59
    folder.rotate()
    assert names(tmp_path) == [".p-000000000000.open"]

    clock.now_s = 60
    folder.rotate()

    assert names(tmp_path) == ["p-000000000000-000000000001.jsonl"]


def test_where_nothing_was_written_there_is_no_file(tmp_path: Path) -> None:
    folder = writer(tmp_path)
    folder.finish()
    folder.rotate()

    assert names(tmp_path) == []


def test_oldest_files_are_deleted_at_max_size_and_returned_as_losses(tmp_path: Path) -> None:
    folder = writer(tmp_path, rows=2, files=3)
    losses = []
    for seq in range(12):
        losses += folder.make_room()
        write(folder, seq)
        folder.rotate()
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 6 * ROW_BYTES

    assert losses == [Loss("p", "max-size", seq, seq + 1) for seq in (0, 2, 4)]
    assert names(tmp_path)[0] == "p-000000000006-000000000008.jsonl"


def test_files_that_are_none_of_the_ledgers_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.jsonl", "p-1-2.jsonl", ".p-0.open"):
        (tmp_path / name).write_bytes(b"x" * 10_000)
    folder = writer(tmp_path)

    assert folder.make_room() == []
    assert folder.recover(lost_line) == []
    assert len(names(tmp_path)) == 3


def test_rows_that_do_not_fit_on_disk_are_not_written_partially(tmp_path: Path) -> None:
    folder = writer(tmp_path, rows=10)
    write(folder, 0, 1)
    with limited_files(250), pytest.raises(OSError, match="File too large"):
        write(folder, 2, 3)
    assert (tmp_path / ".p-000000000000.open").stat().st_size == 2 * ROW_BYTES

    write(folder, 2, 3)
    folder.finish()

    assert rows(tmp_path / "p-000000000000-000000000004.jsonl") == [0, 1, 2, 3]


def test_deleted_open_file_is_returned_as_loss_and_replaced(tmp_path: Path) -> None:
    folder = writer(tmp_path)
    write(folder, 0, 1)
    assert folder.take_vanished() is None
    (tmp_path / ".p-000000000000.open").unlink()

    loss = folder.take_vanished()

    assert loss == Loss("p", "file-gone", 0, 1)
    write(folder, 2, losses=(loss,))
    folder.finish()
    assert names(tmp_path) == ["p-000000000002-000000000003.jsonl"]


def test_a_folder_that_is_away_takes_nothing_until_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.mkdir()
    folder = writer(path)
    write(folder, 0)
    shutil.rmtree(path)
    assert folder.take_vanished() == Loss("p", "file-gone", 0, 0)
    with pytest.raises(FileNotFoundError):
        write(folder, 1)
    path.mkdir()

    write(folder, 1)
    folder.finish()

    assert rows(path / "p-000000000001-000000000002.jsonl") == [1]


# ---------------------------------------------------------------------------------------- after a crash


def crashed(path: Path, *seqs: int, torn: bytes = b"", proxy_id: str = "old") -> Path:
    """Create the files that a killed process leaves."""
    left = path / f".{proxy_id}-{seqs[0] if seqs else 0:012}.open"
    left.write_bytes(b"".join(line(seq, proxy_id).data for seq in seqs) + torn)
    return left


def test_file_left_open_by_crashed_process_is_finished(tmp_path: Path) -> None:
    crashed(tmp_path, 3, 4)

    assert writer(tmp_path).recover(lost_line) == [".old-000000000003.open"]
    assert names(tmp_path) == ["old-000000000003-000000000005.jsonl"]


@pytest.mark.parametrize(
    "torn", [b'{"seq": 5, "proxy_id"', b"\0" * 50, b'{"seq": 5, "p\n\0\0\n', b"\0" * 3_000_000], ids=len
)
def test_torn_row_is_replaced_by_a_lost_row(tmp_path: Path, torn: bytes) -> None:
    crashed(tmp_path, 3, 4, torn=torn)

    writer(tmp_path).recover(lost_line)

    reported = [
        json.loads(text) for text in (tmp_path / "old-000000000003-000000000006.jsonl").read_text().splitlines()
    ]
    assert [row["seq"] for row in reported] == [3, 4, 5]
    assert (reported[2]["proxy_id"], reported[2]["reason"], reported[2]["cluster_id"]) == ("old", "torn", "c")


def test_file_with_only_a_torn_row_is_finished_with_a_lost_row(tmp_path: Path) -> None:
    crashed(tmp_path, torn=b'{"seq"')

    writer(tmp_path).recover(lost_line)

    assert rows(tmp_path / "old-000000000000-000000000001.jsonl") == [0]


def test_an_empty_file_that_a_crash_has_left_is_deleted(tmp_path: Path) -> None:
    crashed(tmp_path)

    writer(tmp_path).recover(lost_line)

    assert names(tmp_path) == []


def test_file_name_range_ignores_lost_rows_of_other_processes(tmp_path: Path) -> None:
    left = crashed(tmp_path, 3, 4)
    left.write_bytes(left.read_bytes() + lost_line(Loss("elder", "max-size", 0, 900)))

    writer(tmp_path).recover(lost_line)

    assert names(tmp_path) == ["old-000000000003-000000000005.jsonl"]
    assert rows(tmp_path / names(tmp_path)[0]) == [3, 4, 900]


def test_file_that_cannot_be_finished_does_not_block_recovery_of_others(tmp_path: Path) -> None:
    (tmp_path / ".old-000000000000.open").mkdir()
    crashed(tmp_path, 3, 4, proxy_id="older")

    assert writer(tmp_path).recover(lost_line) == [".older-000000000003.open"]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_links_in_the_folder_change_no_other_file(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    folder, other = tmp_path / "ledger", tmp_path / "other"
    folder.mkdir()
    other.write_text("[" * 100_000)
    link(folder / ".old-000000000003.open", other)
    link(folder / ".p-000000000000.open", other)
    (folder / ".older-000000000003.open").write_text("[" * 100_000)

    assert writer(folder).recover(lost_line) == [".older-000000000003.open"]
    with pytest.raises(OSError, match=r"symbolic|single name"):
        write(writer(folder), 0)

    assert other.read_text() == "[" * 100_000


def test_file_open_in_another_process_is_not_recovered(tmp_path: Path) -> None:
    other = writer(tmp_path, "other")
    other.write((), [line(0, "other")], lost_line)

    assert writer(tmp_path).recover(lost_line) == []

    other.finish()
    assert names(tmp_path) == ["other-000000000000-000000000001.jsonl"]
