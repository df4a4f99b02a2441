"""The kernel's original destination of a connection; tests/transparent has real redirects."""

import errno
import socket
import struct

import attrs
import pytest

from proxy.config import Address
from proxy.net.transparent.original import original_destination


@attrs.frozen
class Accepted:
    """A socket whose kernel returns *reported*, or fails with that number."""

    family: socket.AddressFamily
    reported: bytes | int
    name: tuple[str, int] = ("127.0.0.1", 15092)

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert (level, option) == (41 if self.family == socket.AF_INET6 else 0, 80)
        if isinstance(self.reported, int):
            raise OSError(self.reported, "injected")
        assert len(self.reported) == size
        return self.reported

    def getsockname(self) -> tuple[str, int]:
        return self.name


def sockaddr(host: str, port: int) -> bytes:
    """Return the address as the kernel encodes it."""
    if ":" in host:
        packed = struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, host) + bytes(4)
        return struct.pack("=H", socket.AF_INET6) + packed
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton(host))


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1:2"])
def test_it_is_read_in_both_families(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    assert original_destination(Accepted(family, sockaddr(host, 9093))) == Address(host, 9093)


def test_our_own_address_is_none() -> None:
    assert original_destination(Accepted(socket.AF_INET, sockaddr("127.0.0.1", 15092))) is None


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOPROTOOPT])
def test_where_the_kernel_tracks_nothing_nothing_was_redirected(number: int) -> None:
    assert original_destination(Accepted(socket.AF_INET, number)) is None


def test_other_socket_errors_are_raised() -> None:
    with pytest.raises(OSError, match="injected"):
        original_destination(Accepted(socket.AF_INET, errno.ENOTCONN))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connection_without_redirect_has_no_original_destination(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    with listening, socket.create_connection(listening.getsockname()[:2]):
        accepted, _ = listening.accept()
        with accepted:
            assert original_destination(accepted) is None
