"""The versions that brokers list in ApiVersions."""

__all__ = ["BROKERS"]

# The ranges of brokers (key: first, last), and those that librdkafka up to 2.10 requires: it looks for exact
# versions, and disables compression, message formats, throttling or groups if one is not within the range.
BROKERS = {
    "4.3": {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9),
            12: (0, 4), 13: (0, 5), 14: (0, 5), 17: (0, 1), 18: (0, 4), 22: (0, 5), 55: (0, 2), 60: (0, 2)},
    "4.0": {0: (0, 12), 1: (4, 17), 2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (0, 9),
            12: (0, 4), 13: (0, 5), 14: (0, 5), 17: (0, 1), 18: (0, 4), 22: (0, 5), 55: (0, 2), 60: (0, 2)},
    "3.9": {0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 8: (0, 9), 9: (0, 9), 10: (0, 6), 11: (0, 9),
            12: (0, 4), 13: (0, 5), 14: (0, 5), 17: (0, 1), 18: (0, 4), 22: (0, 5), 55: (0, 2), 60: (0, 1)},
}  # fmt: skip
