"""Rules that select client fetches by client id and topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fetch_rules import FetchRules

NAMES = st.text("abc:=/ ._-é", min_size=1).filter(lambda name: name == name.strip())
TOPICS = st.text("abcXYZ09._-", min_size=1, max_size=249)
RULES = st.builds(FetchRules, st.booleans(), st.frozensets(NAMES), st.frozensets(TOPICS))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", FetchRules()),
        ("all", FetchRules(everything=True)),
        ("client:billing", FetchRules(clients=frozenset({"billing"}))),
        ("client:a:b", FetchRules(clients=frozenset({"a:b"}))),
        (" topic:t , client:c,all", FetchRules(True, frozenset({"c"}), frozenset({"t"}))),
    ],
)
def test_rules_are_a_list_of_all_clients_and_topics(text: str, rules: FetchRules) -> None:
    assert FetchRules.parse(text) == rules


@pytest.mark.parametrize(
    "text", ["ALL", "all:", "client", "client:", "topic:", "topic:a b", "group:g", "t", "all,", ","]
)
def test_anything_else_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match="is neither all nor client:ID nor topic:NAME"):
        FetchRules.parse(text)


@given(RULES)
def test_rules_parse_to_the_same_after_they_are_shown(rules: FetchRules) -> None:
    assert FetchRules.parse(str(rules)) == rules


@pytest.mark.parametrize(
    ("text", "client_id", "topics", "matches"),
    [
        ("", "c", ["t"], False),
        ("all", None, [], True),
        ("client:c", "c", ["t"], True),
        ("client:c", "C", ["c"], False),
        ("client:c", None, ["t"], False),
        ("topic:t", "t", ["u"], False),
        ("topic:t", None, ["u", "t"], True),
        ("client:c,topic:t", "d", ["t"], True),
    ],
)
def test_a_fetch_matches_by_its_client_or_by_one_of_its_topics(
    text: str, client_id: str | None, topics: list[str], matches: bool
) -> None:
    assert FetchRules.parse(text).matches(client_id, topics) is matches


def test_it_is_true_where_anything_can_match() -> None:
    assert not FetchRules()
    assert all(FetchRules.parse(text) for text in ("all", "client:c", "topic:t"))
