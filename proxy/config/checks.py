"""What is wrong with values that are each right by themselves."""

from proxy.config.kinds import Address, show_bytes
from proxy.config.model import Config

__all__ = ["problems_between"]


def problems_between(config: Config) -> list[str]:
    """Each names the option, its value and what is accepted."""
    down = config.downstream
    problems = [
        f"listen: port {address.port} is one of broker-ports ({down.broker_ports}), which stand for brokers;"
        " accepted: a port outside of that range"
        for address in down.listen
        if address.port in down.broker_ports
    ]
    problems += [
        f"listen: {address} is given twice; accepted: each address once"
        for address in sorted({a for a in down.listen if down.listen.count(a) > 1}, key=str)
    ]
    problems += [
        f"advertise: not given, and listen is {address}, to which no client can connect; accepted:"
        " the host that clients reach Sidefetch by"
        for address in down.listen
        if address.is_wildcard and down.advertise is None
    ]
    problems += [
        f"bootstrap-servers: {address} is where Sidefetch itself listens; accepted: addresses of brokers"
        for address in config.upstream.bootstrap_servers
        if any(_same(address, ours) for ours in down.listen)
    ]
    health = config.health.listen
    if health is not None and (health.port in down.broker_ports or health.port in [a.port for a in down.listen]):
        problems.append(
            f"health-listen: port {health.port} is one that clients connect to; accepted: a port other than those"
            " of listen and broker-ports"
        )
    up = config.upstream
    if up.fetch_buffer_bytes > up.memory_bytes / 2:
        most = show_bytes(up.memory_bytes // 2)
        problems.append(
            f"fetch-buffer: {show_bytes(up.fetch_buffer_bytes)} is more than half of memory"
            f" ({show_bytes(up.memory_bytes)}); accepted: at most {most}"
        )
    return problems


def _same(one: Address, other: Address) -> bool:
    def plain(host: str) -> str:
        return "127.0.0.1" if host == "localhost" else host.lower()

    return (plain(one.host), one.port) == (plain(other.host), other.port)
