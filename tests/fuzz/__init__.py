"""Hostile bytes: every parser that meets a client or a broker, fed with damaged messages.

Whatever comes in, only the errors that a parser documents may come out; it takes time and memory in proportion to
what came in, and to the limits that it is given; and what it lets pass holds what it promises. ``targets`` and
``conversations`` say what is fed and what is promised, ``mutation`` makes the inputs, ``harness`` runs them under
guard. ``python -m tests.fuzz`` is the long form, and ``test_targets`` the short one.
"""
