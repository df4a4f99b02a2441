"""The differential test: real clients read the same topics directly and through Sidefetch, and must read the same.

``python -m tests.differential`` (``make differential``) draws combinations of client program, settings, topic,
start, steps of the application, event and options of Sidefetch, each by its own seed, and runs them on a real
cluster. Three readers of a combination start together: two directly, one through Sidefetch. The harness knows
clients, brokers and the command line of Sidefetch, and nothing of its internals.

**The verdict** (``verdict``) is a find if the reader through Sidefetch

* is *stuck*: it has to be killed after 25 s, or after four times as long as the direct readers;
* has other *records*, in another order, or twice, in any partition; after an event that takes records away, all
  records that remain, each once;
* ends with another class of *error*, or is *slow* (more than three times as long as the slower direct reader, and
  1 s), or has a *gap* of more than 10 s that no direct reader has;
* delivers *stale* records more than 1.5 s after they were deleted or forbidden: more than twice as many as
  directly, and 20. The time in which the application sleeps or has a partition paused does not count, since its
  client delivers records afterwards that it fetched before;
* has a *commit* acknowledged that the broker has not stored.

The second direct reader is the control: a combination in which it differs from the first by the same rules is
void. A combination that is merely slow, or void, is run up to twice more, and is slow if it is so by the slowest
direct reader of those runs. Clients that Kafka 4 does not serve read directly from a Kafka 3.9 with the same
topics; a current Java client that reads from the cluster of Sidefetch shows which records they must read.

**A find** prints the command that replays it alone (``--replay 1/137``) and is shrunk: options, steps and settings
are left out as long as it still fails. Topics that no event changes are filled once a run.

``raw`` does the same one level lower: random sequences of requests on one connection, judged response by response.

``combinations`` (with ``settings``), ``verdict`` and ``shrink`` are pure; ``topics``, ``events``, ``readers``,
``stage`` and ``trial`` act.
"""
