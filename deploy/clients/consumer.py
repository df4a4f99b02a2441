"""A consumer by kafka-python, a member of a group, that prints a topic's values: ``consumer.py TOPIC``."""

import os
import sys

from kafka import KafkaConsumer

consumer = KafkaConsumer(
    sys.argv[1],
    bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092").split(","),
    group_id=f"readers-of-{sys.argv[1]}",
    auto_offset_reset="earliest",
    api_version=(0, 9),
)
for record in consumer:
    print(record.value.decode(), flush=True)
