"""Fuzzing of every parser that reads from a client or a broker, with damaged messages.

A parser may raise only its documented errors; its time and memory are proportional to the input and bounded by its
limits; and an accepted input satisfies the parser's postconditions. ``targets`` and ``conversations`` define inputs
and postconditions, ``mutation`` makes the inputs, ``harness`` runs them with limits. ``python -m tests.fuzz`` is
the
long form, and ``test_targets`` the short one.
"""
