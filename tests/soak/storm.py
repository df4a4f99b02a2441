"""A run: brokers, a wire that does them harm, Sidefetch, clients, and faults one after another."""

import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from tests.checkout import commit
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch
from tests.soak.faults import FAULTS, ONCE_IN_A_WHILE, Stage, brokers_restarted
from tests.soak.judge import Judge, Stall
from tests.soak.wallclock import WallClock
from tests.soak.watch import Taken, taken
from tests.soak.wire import Wire
from tests.soak.workload import PARTITIONS, Workload

__all__ = ["Act", "Report", "acts_for", "as_json", "weather_out"]

KAFKA: Final = "4.3.1"
_SETTINGS: Final = {
    # All that is acknowledged is on two brokers at least, so that one may be killed.
    "min.insync.replicas": 2,
    # Few: two in each of a broker's eight shards.
    "max.incremental.fetch.session.cache.slots": 16,
}
_OPTIONS: Final = (
    *("--rack", "b", "--upstream-max-wait", "3s", "--response-timeout", "2s", "--metadata-max-age", "20s"),
    *("--verify", "0.05", "--grace", "3s"),
)
_CATCH_UP_S: Final = 120.0
"""After a fault has ended: longer than any client takes to look for a coordinator again."""
_RESTART_SHARE: Final = 0.25
"""The share of the time, at the beginning, in which Sidefetch may be restarted."""
_SETTLED_S: Final = 20.0
_SPARE_DESCRIPTORS: Final = 4
"""The connection to a broker for Metadata, and the descriptors of a thread pool."""
_FOLLOWERS_SESSIONS: Final = 9
"""Each of three brokers has a session with each other one; stopped brokers leave theirs."""
_SPARE_MIB: Final = 32.0
"""The growth allowed between beginning and end; buffers in use, and the allocator's share."""
_RATE: Final = 120.0
_FROM_S, _TO_S = 1.0, 9.0
"""The duration of a fault."""
_COUNTED: Final = re.compile(r"\b(verified|verify_differences|verify_failed|bugs)=(\d+)")


@attrs.frozen
class Act:
    """One fault, and for how long."""

    fault: str
    for_s: float


@attrs.define
class Report:
    """The results of a run."""

    commit: str
    seed: int
    share_reads: str
    kafka: str = KAFKA
    duration_s: float = 0.0
    faults: Counter[str] = attrs.field(factory=Counter)
    acknowledged: int = 0
    unknown: int = 0
    """Records without an acknowledgement or an error."""
    read: dict[str, int] = attrs.field(factory=dict)
    read_again: dict[str, int] = attrs.field(factory=dict)
    """Allowed repetitions: by a member of a group from its last commit on, or since the program was restarted."""
    programs_failed: dict[str, int] = attrs.field(factory=dict)
    """Clients that gave up, and were started anew."""
    lost: int = 0
    doubled: int = 0
    other_records: int = 0
    wrongs: list[str] = attrs.field(factory=list)
    """The first of them."""
    not_recovered: list[str] = attrs.field(factory=list)
    longest_stalls_s: dict[str, float] = attrs.field(factory=dict)
    """By fault, the time from its beginning until all readers had caught up."""
    longest_stall: dict[str, Any] = attrs.field(factory=dict)
    verified: int = 0
    verify_differences: int = 0
    verify_failed: int = 0
    bugs: int = 0
    connections_reset: int = 0
    taken_before: Taken | None = None
    """Before any client was there."""
    taken_at_start: Taken | None = None
    """With all clients, when Sidefetch was started last and has settled."""
    taken_at_end: Taken | None = None
    taken_when_they_have_gone: Taken | None = None
    leaks: list[str] = attrs.field(factory=list)

    @property
    def is_good(self) -> bool:
        """Nothing was lost or doubled, all recovered, and no answer differed."""
        wrong = self.lost + self.doubled + self.other_records + self.verify_differences + self.bugs
        return not wrong and not self.not_recovered and not self.leaks


def as_json(report: Report) -> str:
    return json.dumps(attrs.asdict(report), indent=2) + "\n"


def acts_for(seconds: float, seed: int) -> Iterator[Act]:
    """One after another until the time is up; the same for the same seed, as far as it comes.

    All kinds in an order of chance, then all again in another.
    """
    chance, began_s = random.Random(seed), time.monotonic()
    while True:
        for fault in chance.sample(sorted(FAULTS), len(FAULTS)):
            for_s = round(chance.uniform(_FROM_S, _TO_S), 1)
            share = (time.monotonic() - began_s) / seconds
            if share >= 1:
                return
            if fault not in ONCE_IN_A_WHILE or share < _RESTART_SHARE:
                yield Act(fault, for_s)


def weather_out(
    acts: Iterator[Act],
    seed: int,
    *,
    show_progress: Callable[[str], None],
    watch: bool,
    share_reads: str = "off",
    direct: bool = False,
    log: Path | None = None,
) -> Report:
    """Run *acts* against readers and producers, and judge; *show_progress* gets the progress.

    With *watch*, Sidefetch's resources are measured before, between and after, for some seconds each. With
    *direct*, the clients connect by the wire alone, which shows their own failures. *share_reads* is Sidefetch's
    option. Its log is left in *log*.
    """
    report = Report(commit(), seed, share_reads)
    options = (*_OPTIONS, "--share-reads", share_reads)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="sidefetch-soak-")))
        clock = WallClock(folder / "offset")
        cluster = running.enter_context(KafkaCluster(KAFKA, settings=_SETTINGS))
        wire = running.enter_context(Wire(cluster.tapped, seed=seed))
        sidefetch = running.enter_context(Sidefetch(wire.bootstrap, options=options, env=clock.env))
        operator = Admin(cluster)
        topic = operator.create_topic(unique("storm"), PARTITIONS, replication=3)
        stage = Stage(cluster, operator, topic, wire, sidefetch, clock, random.Random(seed))
        began_s = time.monotonic()
        if watch:
            report.taken_before = taken(sidefetch.process.pid, cluster)
        judge = Judge(PARTITIONS)
        way = wire.bootstrap if direct else sidefetch.bootstrap
        with Workload(judge, topic, bootstrap=cluster.bootstrap, way=way, rate=_RATE, old=not direct) as workload:
            _Run(stage, workload, report, show_progress, watch).run(acts)
        if watch:
            # A log cache that clients share keeps its connections for 10 s after the last one.
            time.sleep(2 if share_reads == "off" else 15)
            report.taken_when_they_have_gone = taken(sidefetch.process.pid, cluster)
            report.leaks = _leaks(report)
        report.duration_s = round(time.monotonic() - began_s, 1)
        report.connections_reset = wire.reset_count
        sidefetch.process.stop(20)
        if log is not None:
            log.write_text(sidefetch.log_text(), encoding="utf-8")
        _read_log(sidefetch.log_text(), report)
    return report


class _Run:
    def __init__(
        self, stage: Stage, workload: Workload, report: Report, show_progress: Callable[[str], None], watch: bool
    ) -> None:
        self._stage = stage
        self._workload = workload
        self._report = report
        self._show_progress = show_progress
        self._watch = watch
        self._reported = 0

    def run(self, acts: Iterator[Act]) -> None:
        while not all(self._workload.ends()):
            time.sleep(0.1)
        self._until_all_read("the beginning")
        pid = 0
        for act in acts:
            if self._watch and pid != self._stage.sidefetch.process.pid:
                pid = self._stage.sidefetch.process.pid
                time.sleep(_SETTLED_S)
                self._report.taken_at_start = taken(pid, self._stage.cluster)
            self._report.faults[act.fault] += 1
            FAULTS[act.fault](self._stage, act.for_s)
            self._until_all_read(act.fault, act.for_s)
        if self._watch:
            # Whatever else has left sessions behind at brokers (followers do, which crash) is not to be counted.
            brokers_restarted(self._stage, 0)
            self._until_all_read("the last restart of brokers")
        self._workload.stop_producing()
        self._until_all_read("the end")
        if self._watch:
            self._report.taken_at_end = taken(self._stage.sidefetch.process.pid, self._stage.cluster)
        self._judge()

    def _until_all_read(self, after: str, for_s: float = 0.0) -> None:
        """All that was acknowledged until now."""
        began_s, ends = time.monotonic(), self._workload.ends()
        while behind := self._workload.behind(ends):
            if time.monotonic() > began_s + _CATCH_UP_S:
                self._report.not_recovered.append(f"{after}: {', '.join(behind)}")
                self._show_progress(f"behind after {after}: {', '.join(behind)}")
                break
            time.sleep(0.1)
        with self._workload.judging() as judge:
            stall = judge.take_longest_stall(time.monotonic())
            wrongs, records = judge.wrongs[self._reported :], judge.acknowledged
            self._reported += len(wrongs)
        self._note(after, stall)
        caught_up_s = time.monotonic() - began_s
        self._show_progress(
            f"{after} ({for_s:g} s): all read after {caught_up_s:.1f} s, longest stall {stall.for_s:.1f} s"
            f" of {stall.reader}; {records} records"
        )
        for wrong in wrongs:
            self._show_progress(f"wrong: {wrong}")

    def _note(self, after: str, stall: Stall) -> None:
        stalls, longest = self._report.longest_stalls_s, self._report.longest_stall
        for_s = round(stall.for_s, 1)
        stalls[after] = max(stalls.get(after, 0.0), for_s)
        if for_s > longest.get("for_s", 0.0):
            self._report.longest_stall = {"for_s": for_s, "reader": stall.reader, "fault": after}

    def _judge(self) -> None:
        report, workload = self._report, self._workload
        with workload.judging() as judge:
            judge.give_up()
            report.acknowledged, report.unknown = judge.acknowledged, workload.unknown
            report.read = {reader.name: reader.read for reader in judge.readers}
            report.read_again = {reader.name: reader.repeated for reader in judge.readers}
            report.programs_failed = dict(workload.heard)
            by_kind: Counter[str] = Counter()
            for wrong in judge.wrongs:
                by_kind[wrong.kind] += wrong.count
            report.lost, report.doubled = by_kind["lost"], by_kind["doubled"]
            report.other_records = by_kind["another record"]
            report.wrongs = [*map(str, judge.wrongs[:20])]
        for failure in workload.failures:
            self._show_progress(f"a client gave up: {failure}")


def _read_log(log: str, report: Report) -> None:
    """Read the final counts of processes that were stopped, and the warnings of those that were killed."""
    counted: Counter[str] = Counter()
    for line in log.splitlines():
        if " stopped " in line:
            counted.update({name: int(count) for name, count in _COUNTED.findall(line)})
    report.verified, report.verify_failed = counted["verified"], counted["verify_failed"]
    report.verify_differences = max(counted["verify_differences"], log.count(" verify-mismatch "))
    report.bugs = max(counted["bugs"], log.count(" error unhandled-exception "))


def _leaks(report: Report) -> list[str]:
    before, start = report.taken_before, report.taken_at_start
    end, gone = report.taken_at_end, report.taken_when_they_have_gone
    assert before is not None
    assert end is not None
    assert gone is not None
    leaks = []
    if gone.descriptors > before.descriptors + _SPARE_DESCRIPTORS:
        leaks.append(f"{gone.descriptors - before.descriptors} descriptors")
    if gone.sessions > _FOLLOWERS_SESSIONS:
        leaks.append(f"{gone.sessions - _FOLLOWERS_SESSIONS} sessions")
    if start is not None and end.resident_mib > start.resident_mib + _SPARE_MIB:
        leaks.append(f"{end.resident_mib - start.resident_mib:.1f} MiB")
    return leaks
