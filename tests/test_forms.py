"""The tests that ``pytest --short`` leaves out."""

import itertools

import pytest

from tests.forms import covering

pytest_plugins = ["pytester"]


@pytest.fixture
def forms(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder in which tests are run with ``--short`` and without."""
    pytester.makeconftest(
        "from tests.conftest import pytest_addoption, pytest_collection_modifyitems\n"
        "def pytest_configure(config):\n"
        "    for name in ('long', 'each_once', 'in_turn'):\n"
        "        config.addinivalue_line('markers', name)\n"
    )
    return pytester


@pytest.mark.parametrize("sizes", [(2, 2), (2, 12), (3, 2, 4), (1,)])
def test_every_value_occurs_in_as_few_combinations_as_the_longest_parameter_has(sizes: tuple[int, ...]) -> None:
    combinations = [dict(enumerate(values)) for values in itertools.product(*map(range, sizes))]
    named = [{str(name): value for name, value in each.items()} for each in combinations]

    chosen = covering(named)

    assert {pair for index in chosen for pair in named[index].items()} == {
        p for each in named for p in each.items()
    }
    assert len(chosen) == max(sizes)
    for name, values in enumerate(map(range, sizes)):
        often = [sum(named[index][str(name)] == value for index in chosen) for value in values]
        assert max(often) - min(often) <= 1, f"{often} of parameter {name}"


def test_the_short_form_keeps_one_of_each_and_the_long_form_all(forms: pytest.Pytester) -> None:
    forms.makepyfile(
        """
        import pytest

        @pytest.mark.each_once
        @pytest.mark.parametrize("a", [1, 2, 3])
        @pytest.mark.parametrize("b", [1, 2])
        def test_matrix(a, b):
            pass

        @pytest.mark.parametrize("way", [pytest.param("direct", marks=pytest.mark.long), "through"])
        def test_ways(way):
            pass

        def test_plain():
            pass
        """
    )

    forms.runpytest_inprocess("-p", "no:cacheprovider", "--short").assert_outcomes(passed=5, deselected=4)
    forms.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=9)


def test_short_form_runs_each_slow_test_once_and_rotates_parameter_values(forms: pytest.Pytester) -> None:
    forms.makepyfile(
        """
        import pytest

        pytestmark = [pytest.mark.in_turn, pytest.mark.parametrize("broker", ["old", "new"])]

        def test_kills(broker):
            pass

        def test_moves(broker):
            pass

        def test_stalls(broker):
            pass

        @pytest.mark.each_once
        def test_reads(broker):
            pass
        """
    )

    run = forms.runpytest_inprocess("-p", "no:cacheprovider", "--short", "-v")

    run.assert_outcomes(passed=5, deselected=3)
    run.stdout.fnmatch_lines(["*test_kills?old?*", "*test_moves?new?*", "*test_stalls?old?*", "*test_reads?old?*"])
    forms.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=8)
