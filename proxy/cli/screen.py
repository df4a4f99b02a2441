"""The screen of ``sidefetch top``: the document of ``/api/v1/state``, drawn with the library rich. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from proxy.cli.printable import printable

__all__ = ["draw_screen", "short_bytes"]

_BARS: Final = " ▁▂▃▄▅▆▇█"
_STYLES: Final = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_MOST_CLIENTS: Final = 20
_MOST_PROBLEMS: Final = 5


def draw_screen(document: Mapping[str, Any], failed: str = "") -> RenderableType:
    """Return the screen of ``sidefetch top``, with totals, problems, the last hour, brokers and clients.

    Args:  document: the JSON document of ``/api/v1/state``.
           failed: the reason that the latest request failed; *document* is then from an earlier one.
    """
    parts: list[RenderableType] = [_draw_head(document, failed), _draw_totals(document)]
    if document["problems"]:
        parts.append(Panel(_problems(document), title="Problems", title_align="left", border_style="yellow"))
    parts.append(Panel(_draw_hour(document["minutes"]), title="The last hour, by the minute", title_align="left"))
    parts.append(_brokers(document))
    parts.append(_clients(document["clients"]))
    return Group(*parts)


def short_bytes(count: float) -> str:
    """Return *count* bytes as text with a decimal unit, such as ``1.23 MB``; above 1 kB with three digits."""
    sign, size = "-" if count < 0 else "", abs(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{sign}{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{sign}{size:.3g} {unit}"
        size /= 1000
    return f"{sign}{size:.3g} TB"


def _draw_head(document: Mapping[str, Any], failed: str) -> Text:
    status, style = document["status"], "bold green"
    if failed:
        status, style = f"no response: {failed}", "bold red"
    elif document["is_reached"] is False:
        status, style = "no broker answers", "bold red"
    elif status != "ready":
        style = "bold yellow"
    up_s = (document["now_us"] - document["started_us"]) / 1_000_000
    rack = f"rack {document['rack']}" if document["rack"] else "rack not known"
    facts = [f"cluster {document['cluster_id'] or 'not known yet'}", rack, f"up {_format_duration(up_s)}"]
    text = Text.assemble(("Sidefetch ", "bold"), (printable(status), style))
    return text.append(printable("  " + ", ".join(facts)), "dim")


def _draw_totals(document: Mapping[str, Any]) -> Table:
    total, sessions = document["total"], document["sessions"]
    grid = Table.grid(expand=True, padding=(0, 2))
    for _ in range(5):
        grid.add_column()
    near = _share(total["own_rack_bytes"], total["record_bytes"]) if document["rack"] else "-"
    grid.add_row("Fetches spared", "Bytes saved", "Reading now", "From our rack", "Broker sessions", style="dim")
    grid.add_row(
        _share(total["saved_fetches"], total["client_fetches"]),
        short_bytes(total["saved_bytes"]),
        f"{short_bytes(document['bytes_per_s'])}/s",
        near,
        str(sessions["broker"]["sessions"]),
        style="bold",
    )
    grid.add_row(
        f"{total['client_fetches']:,} to {total['broker_fetches']:,}",
        f"{short_bytes(total['client_talk_bytes'])} to {short_bytes(total['broker_talk_bytes'])}",
        f"{short_bytes(total['record_bytes'])} in all{_deliveries(document)}",
        f"{short_bytes(total['crossed_bytes'])} crossed",
        f"{sessions['broker']['partitions']:,} partitions",
        style="dim",
    )
    return grid


def _deliveries(document: Mapping[str, Any]) -> str:
    """Return a text about how often records of shared reads were delivered; empty if there are none."""
    ratio = document["delivery_ratio"]
    return "" if ratio is None else f", shared ones delivered {ratio:.1f} times"


def _problems(document: Mapping[str, Any]) -> Group:
    lines: list[RenderableType] = []
    for each in document["problems"][:_MOST_PROBLEMS]:
        ago_s = (document["now_us"] - each["last_us"]) / 1_000_000
        head = Text.assemble((printable(each["title"]), _STYLES[each["level"]]))
        times = "once" if each["times"] == 1 else f"{each['times']:,} times"
        lines.append(head.append(f"  {times}, last {_format_duration(ago_s)} ago", "dim"))
        lines.append(Text("  " + printable(each["remedy"])))
    return Group(*lines)


def _draw_hour(minutes: Sequence[Mapping[str, Any]]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for name, style, label in (
        ("client_fetches", "bright_black", "fetches of clients"),
        ("broker_fetches", "green", "fetches to brokers"),
        ("record_bytes", "blue", "records"),
    ):
        values = [minute[name] for minute in minutes]
        most = max(values)
        limit = short_bytes(most) if name == "record_bytes" else f"{most:,}"
        # Both kinds of fetches have the same scale, so that the difference shows the saved fetches.
        scale = max(minute["client_fetches"] for minute in minutes) if name == "broker_fetches" else most
        grid.add_row(
            Text(label, "dim"), Text(_draw_bars(values, max(scale, most)), style), Text(f"at most {limit}", "dim")
        )
    return grid


def _draw_bars(values: Sequence[int], most: int) -> str:
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // most)] if most else " " for value in values)


def _brokers(document: Mapping[str, Any]) -> Table:
    table = Table(title="Brokers", title_justify="left", expand=True)
    for name in ("Broker", "Rack", "Records", "Now", "Fetches", "Sessions", "Asked as"):
        table.add_column(name, justify="right" if name in ("Records", "Now", "Fetches", "Sessions") else "left")
    for each in document["brokers"]:
        is_ours = each["rack"] is not None and each["rack"] == document["rack"]
        requested = sum(each["partitions"].values())
        table.add_row(
            "others" if each["node"] < 0 else str(each["node"]),
            Text(printable(each["rack"] or "-"), "green" if is_ours else ""),
            short_bytes(each["record_bytes"]),
            f"{short_bytes(each['bytes_per_s'])}/s",
            f"{each['fetches']:,}",
            str(each["sessions"]),
            ", ".join(f"{why} {_share(count, requested)}" for why, count in each["partitions"].items() if count)
            or "-",
        )
    return table


def _clients(clients: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Clients", title_justify="left", expand=True)
    for name in ("Client", "Speaks", "Partitions", "Its fetches", "To brokers", "Saved", "Now"):
        table.add_column(name, justify="left" if name in ("Client", "Speaks") else "right")
    ordered = sorted(clients, key=lambda each: -each["delivered_bytes"])
    for each in ordered[:_MOST_CLIENTS]:
        versions = ", ".join(f"v{version}" for version in each["fetch_versions"])
        table.add_row(
            Text(printable(f"{each['client_id'] or '(no name)'} {each['host']}".rstrip())),
            Text(printable(f"{each['software'] or 'Fetch'} {versions}")),
            f"{each['partitions']:,}",
            f"{each['fetches']:,}",
            "shared" if each["shared_fetches"] else f"{each['broker_fetches']:,}",
            "-" if each["shared_fetches"] else short_bytes(each["saved_bytes"]),
            f"{short_bytes(each['bytes_per_s'])}/s",
        )
    if len(ordered) > _MOST_CLIENTS:
        table.add_row(f"and {len(ordered) - _MOST_CLIENTS} more")
    return table


def _share(part: float, all_: float) -> str:
    return f"{100 * part / all_:.1f} %" if all_ > 0 else "-"


def _format_duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
