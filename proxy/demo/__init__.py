"""An embedded Kafka cluster for demos and tests, and the commands ``sidefetch demo`` and ``sidefetch try``.

The cluster keeps everything in memory and speaks the real protocol on loopback: ``cluster`` runs ``broker``s, which
read and write messages with the library kio (``messages``) and take their responses from ``state`` (topics,
leaders), ``log`` (records), ``fetching`` (long polls, and sessions by ``proxy.session.downstream``) and ``groups``.
It replicates nothing: the replicas of a partition share one log, so every replica on a running broker is in sync,
and the high watermark is the log's end.
"""
