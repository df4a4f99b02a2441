"""The code broken on purpose: each patch here must make the tests fail that it names.

A patch is a unified diff with a few lines before it: what the mutation means, and one ``Killed-by:`` line for each
test that must notice. ``python -m tests.mutants`` applies each to a copy of the tree and runs those tests::

    A session's epoch does not wrap to 1 after the largest.

    Killed-by: tests/session/test_epochs.py::test_after_the_last_epoch_comes_1
    --- a/proxy/session/epochs.py
    +++ b/proxy/session/epochs.py
    ...
"""
