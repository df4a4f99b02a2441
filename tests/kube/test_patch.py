"""JSON Patches between documents."""

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.inject import inject
from proxy.kube.patch import Operation, apply, difference
from tests.kube.pods import DEFAULTS, pod

_scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "~/~1"])
_keys = st.sampled_from(["a", "b/c", "d~e", "name", ""])
_things = st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"v": st.integers(0, 1)})
_documents = st.recursive(
    _scalars,
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(_keys, each, max_size=3) | st.lists(_things, max_size=4)
    ),
    max_leaves=8,
)


def exact(document: Any) -> Any:
    """Return the document with booleans distinguished from numbers."""
    if isinstance(document, dict):
        return {key: exact(value) for key, value in document.items()}
    return [exact(each) for each in document] if isinstance(document, list) else (type(document), document)


@given(before=_documents, after=_documents)
def test_applied_difference_yields_the_target_document(before: Any, after: Any) -> None:
    made = apply(deepcopy(before), difference(before, after))

    assert exact(made) == exact(after)


@given(document=_documents)
def test_difference_of_equal_documents_is_empty(document: Any) -> None:
    assert list(difference(document, deepcopy(document))) == []


def test_keys_are_escaped_as_pointers_want_it() -> None:
    operation = Operation("add", ("metadata", "annotations", "a/b~c", 0), 1)

    assert operation.as_json() == {"op": "add", "path": "/metadata/annotations/a~1b~0c/0", "value": 1}
    assert Operation("remove", ("a",)).as_json() == {"op": "remove", "path": "/a"}


def test_a_pod_is_changed_where_something_is_added_and_nowhere_else() -> None:
    before = pod(secret="kafka")

    operations = [each.as_json() for each in difference(before, inject(before, DEFAULTS).pod)]

    assert sorted((each["op"], each["path"]) for each in operations) == [
        ("add", "/metadata/annotations/sidefetch.io~1status"),
        ("add", "/spec/initContainers/0"),
        ("add", "/spec/volumes/1"),
        ("replace", "/spec/containers/0/env/1/value"),
        ("replace", "/spec/initContainers/1/env/0/value"),
    ]
