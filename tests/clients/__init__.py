"""Real Kafka clients, each a process of its own that does what it is told, one JSON command a line::

    --> {"do": "read", "bootstrap": "127.0.0.1:9092", "topic": "t", "partitions": [0, 1], "count": 1000}
    <-- {"record": [partition, offset, timestamp_ms, key, value, [[name, value], ...]]}     bytes as base64
    <-- {"done": null}                                                     or {"error": "what went wrong"}

================================================  ==============================================================
command (with ``bootstrap`` and ``topic``)        what it does; the value of ``done``
================================================  ==============================================================
read     partitions, count                        reads from the start by assignment; null
group    group, count                             joins, reads at least *count*, commits what it has read, leaves
produce  records                                  [[partition, offset], ...] as the broker said
create   partitions                               null, once the broker has answered
delete                                            the same
offsets                                           {partition: [earliest, latest]}
================================================  ==============================================================

A reader says ``{"committed": {partition: offset}}`` after each commit, and ``{"heard": "..."}`` of an error that it
overcomes. With a ``count`` of null (Python programs only) it reads until the next line comes, whatever it is. It
may be told a ``client_id``, ``wait_ms``, ``chunk_bytes`` and ``max_bytes`` (of a partition, and altogether), and
an ``isolation`` of ``read_committed`` (all but kafka-python). Java of today may be told its ``rack``, and with it
``rack_age_ms``: how old it lets metadata and a preferred replica grow. ``produce`` may be told a ``codec``: none,
gzip, snappy or lz4 (KafkaJS: none or gzip).

``conversation`` is the tests' side; ``programs`` has each program's name, its command, and what old ones cannot;
``talk`` is what the Python programs share, as those of a folder share theirs. They fetch in chunks of
``chunk_bytes`` a partition, so that 1,000 records take many fetches, and check every checksum.
"""
