"""The raw generator: random sequences of requests on one connection to Sidefetch, compared with the broker itself.

``sequence`` draws steps from a seed, ``run`` carries them out, ``judge`` compares each response with the leader's
own before and after it, and ``shrink`` cuts a failing sequence. Nothing here imports ``proxy``.
"""
