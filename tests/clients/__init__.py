"""Real Kafka clients, each a process of its own that executes one JSON command a line::

    --> {"do": "read", "bootstrap": "127.0.0.1:9092", "topic": "t", "partitions": [0, 1], "count": 1000}
    <-- {"record": [partition, offset, timestamp_ms, key, value, [[name, value], ...]]}     bytes as base64
    <-- {"done": null}                                                     or {"error": "what went wrong"}

================================================  ==============================================================
command (with ``bootstrap`` and ``topic``)        effect; the value of ``done``
================================================  ==============================================================
read     partitions, count                        reads from the start by assignment; null
group    group, count                             joins, reads at least *count*, commits all of it, leaves
produce  records                                  [[partition, offset], ...] as the broker reports them
create   partitions                               null, once the broker has answered
delete                                            the same
offsets                                           {partition: [earliest, latest]}
================================================  ==============================================================

A reader reports ``{"committed": {partition: offset}}`` after each commit, and ``{"heard": "..."}`` for an error
that
it overcomes. With a ``count`` of null (Python programs only) it reads until the next line of input. Optional fields
are ``client_id``, ``wait_ms``, ``chunk_bytes`` and ``max_bytes`` (of a partition, and altogether), and an
``isolation`` of ``read_committed`` (all but kafka-python). Current Java also takes ``rack``, and with it
``rack_age_ms``: the age to which metadata and a preferred replica are kept. ``produce`` takes a ``codec``: none,
gzip, snappy or lz4 (KafkaJS: none or gzip).

``drive`` reads a topic as applications do, with the library's own defaults, for the differential test::

    --> {"do": "drive", "bootstrap": "...", "topic": "t", "settings": {...}, "from": {"0": 0, "1": 17},
         "until": {"0": 999, "1": 500}, "steps": [...], "isolation": "read_committed", "group": null, "rack": null,
         "consumers": 1}
    <-- {"read": [ms, [[partition, offset, crc, timestamp_ms], ...]]}    after each poll; at most 500 records
    <-- {"heard": "..."}, {"committed": {"0": 12}}, and {"done": null} or {"error": "..."}

- ``settings``: options by the library's own names. Sarama and kafka-go take fields of ``Config`` and
  ``ReaderConfig`` (``Consumer.Fetch.Default``), and Sarama ``MaxResponseSize``; franz-go takes options
  (``FetchMaxBytes``) and ``PollRecords``. Go's durations are in milliseconds here.
- ``from``: the partitions and where to start. ``until``: the command ends once each partition that is named here
  has delivered a record with that offset or a later one. There is no timeout.
- ``ms`` counts from the beginning of the command; ``crc`` is the CRC-32 of the key and the value, one after the
  other, null counting as empty; ``timestamp_ms`` is -1 if the library does not know it.
- ``consumers``: the number of readers of one client, and so of its connections, that share the partitions.
- ``steps``: each is taken once, right after the first record of partition ``at[0]`` whose offset is ``at[1]`` or
  greater:

  - ``{"at": [p, o], "do": "seek", "partition": p, "to": n}`` discards the polled records of p and goes on at n;
  - ``{"at": [p, o], "do": "pause", "partition": q, "ms": 300}`` pauses q for that long;
  - ``{"at": [p, o], "do": "assign", "partitions": [q], "ms": 300}`` assigns only these for that long, then all;
  - ``{"at": [p, o], "do": "sleep", "ms": 500}`` does not poll for that long;
  - ``{"at": [p, o], "do": "commit"}`` commits for ``group`` the records delivered so far.

  ``programs`` declares the steps of each program, and which of from, isolation, group, rack and consumers it
  supports. Only KafkaJS joins ``group``; its offsets are committed automatically unless a step commits.

``conversation`` is the tests' side; ``programs`` has each program's name, its command, and the limits of old ones;
``talk`` is shared by the Python programs. They fetch in chunks of ``chunk_bytes`` a partition, so that 1,000
records
take many fetches, and check every checksum.
"""
