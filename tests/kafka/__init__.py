"""Apache Kafka for the tests: real brokers from Maven Central, started and stopped by the tests themselves.

``jars`` fetches a version once and keeps it under ``.cache``; ``cluster`` runs three combined KRaft brokers on
loopback; ``admin`` creates topics and known records; ``metrics`` reads a broker's counters (JMX). The package gets
versions and ports, and does not depend on the proxy.
"""
