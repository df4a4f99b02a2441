"""Mutants: files that each break the code in one way, and name the tests that must fail then.

Run ``python -m tests.mutants``, or with the beginnings of some names. A mutant is a TOML file::

    meaning = "A session's epoch does not wrap to 1 after the largest."
    killed_by = [
      "tests/session/test_epochs.py::test_after_the_last_epoch_comes_1",
    ]

    [[change]]
    file = "proxy/session/epochs.py"
    old = '''
        return 1 if epoch == LAST else epoch + 1
    '''
    new = '''
        return epoch + 1
    '''

``old`` is whole lines that occur once in the file, and as few as that needs: the code around them may change.
"""
