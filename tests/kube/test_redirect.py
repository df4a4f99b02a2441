"""The rules as text; tests/transparent applies them to the kernel."""

import ipaddress

import pytest

from proxy.kube.redirect import REMOVE, Rules, parse_networks, parse_ports, parse_uids

RULES = """\
table inet sidefetch
delete table inet sidefetch
table inet sidefetch {
	chain output {
		type nat hook output priority -101; policy accept;
		meta skuid { 65532, 1337, 2102 } return
		oifname "lo" return
		tcp dport { 9092-9094 } counter redirect to :15092
	}
}
"""


def redirects(rules: Rules) -> list[str]:
    return [line.strip() for line in rules.script().splitlines() if "redirect to" in line]


def test_without_more_kafkas_ports_are_redirected_to_anywhere_but_here() -> None:
    assert Rules().script() == RULES


def test_networks_have_a_rule_for_each_family() -> None:
    networks = parse_networks("10.1.0.0/16,fd00::/8,192.168.7.7/32")

    assert redirects(Rules(parse_ports("9092"), networks, to=7)) == [
        "ip daddr { 10.1.0.0/16, 192.168.7.7/32 } tcp dport { 9092 } counter redirect to :7",
        "ip6 daddr { fd00::/8 } tcp dport { 9092 } counter redirect to :7",
    ]


def test_networks_of_one_family_leave_the_other_alone() -> None:
    assert redirects(Rules(networks=parse_networks("10.0.0.0/8"))) == [
        "ip daddr { 10.0.0.0/8 } tcp dport { 9092-9094 } counter redirect to :15092"
    ]


def test_redirect_script_removes_existing_rules_first() -> None:
    assert Rules().script().startswith(REMOVE)


def test_ports_and_networks_that_meet_are_put_together() -> None:
    """The kernel takes no set with elements that overlap."""
    assert parse_ports("9093-9096, 9092,9095-9100,19092") == ((9092, 9100), (19092, 19092))
    assert parse_networks("10.0.0.0/9,10.128.0.0/9,10.1.0.0/16") == (ipaddress.ip_network("10.0.0.0/8"),)


@pytest.mark.parametrize("text", ["", "0", "65536", "9094-9092", "9092-", "a", "9092,,9093", "-1", "9092 9093"])
def test_invalid_ports_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="PORT"):
        parse_ports(text)


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "kafka", "10.0.0.0/33", "10.0.0.0/8,"])
def test_invalid_networks_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)network|host bits"):
        parse_networks(text)


def test_users_are_numbers_each_once() -> None:
    assert parse_uids("7, 0,7") == (7, 0)
    for text in ("", "root", "-1", "4294967295", "1.5"):
        with pytest.raises(ValueError, match="user id"):
            parse_uids(text)
