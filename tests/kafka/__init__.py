"""Apache Kafka for the tests: real brokers from Maven Central, started and stopped by the tests themselves.

``jars`` fetches a version once and keeps it under ``.cache``; ``cluster`` runs three combined KRaft brokers on
loopback; ``admin`` makes topics and known records; ``metrics`` asks a broker what it counted (JMX). The package
is told versions and ports and never looks at the proxy.
"""
