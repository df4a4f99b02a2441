// The command "drive" of tests/clients/__init__.py, one source for all versions: what differs is in Polling.java.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.ToLongFunction;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

final class Drive {
    private static final int MOST_RECORDS = 500;
    private static final int MOST_HEARD = 20;
    private static final CRC32 CRC = new CRC32();

    private final long beganNs = System.nanoTime();
    private final String topic;
    private final ToLongFunction<ConsumerRecord<byte[], byte[]>> timestamp;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<Integer, TopicPartition> partitions = new TreeMap<>();
    private final Map<Integer, Long> next = new TreeMap<>();
    private final Set<Integer> delivered = new HashSet<>();
    private final Map<Integer, Long> missing = new HashMap<>();
    private final List<JsonNode> steps = new ArrayList<>();
    private final Map<Integer, Long> resumesAtMs = new HashMap<>();
    private final Set<String> heard = new LinkedHashSet<>();
    private final StringBuilder records = new StringBuilder();
    private Set<Integer> assigned;
    private final Set<Integer> placed = new HashSet<>();
    private long assignsAllAtMs = Long.MAX_VALUE;
    private int count;

    static Talk.Command command(ToLongFunction<ConsumerRecord<byte[], byte[]>> timestamp) {
        return request -> new Drive(request, timestamp).run();
    }

    private Drive(JsonNode request, ToLongFunction<ConsumerRecord<byte[], byte[]>> timestamp) {
        this.timestamp = timestamp;
        topic = request.get("topic").asText();
        request.get("from").fields().forEachRemaining(each -> {
            int partition = Integer.parseInt(each.getKey());
            partitions.put(partition, new TopicPartition(topic, partition));
            next.put(partition, each.getValue().asLong());
        });
        request.get("until").fields().forEachRemaining(each ->
            missing.put(Integer.parseInt(each.getKey()), each.getValue().asLong()));
        request.path("steps").forEach(steps::add);
        var properties = Talk.properties(request);
        properties.put("enable.auto.commit", "false");
        for (String[] each : new String[][] {{"isolation", "isolation.level"}, {"group", "group.id"}, {"rack", "client.rack"}}) {
            if (request.hasNonNull(each[0])) {
                properties.put(each[1], request.get(each[0]).asText());
            }
        }
        request.get("settings").fields().forEachRemaining(each ->
            properties.put(each.getKey(), each.getValue().asText()));
        consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object run() throws Exception {
        try (consumer) {
            assign(partitions.keySet());
            while (!missing.isEmpty()) {
                long now = elapsedMs();
                if (now >= assignsAllAtMs) {
                    assignsAllAtMs = Long.MAX_VALUE;
                    assign(partitions.keySet());
                }
                placeNew();
                resumesAtMs.entrySet().removeIf(each -> each.getValue() <= now && resume(each.getKey()));
                take(poll());
                flush();
            }
        }
        return null;
    }

    private ConsumerRecords<byte[], byte[]> poll() throws Exception {
        try {
            return Polling.poll(consumer, 100);
        } catch (RetriableException passing) {
            hear(passing);
            return ConsumerRecords.empty();
        }
    }

    private void hear(Exception passing) throws Exception {
        if (heard.size() < MOST_HEARD && heard.add(passing.toString())) {
            Talk.say("heard", passing.toString());
        }
    }

    private void take(ConsumerRecords<byte[], byte[]> polled) throws Exception {
        for (TopicPartition partition : polled.partitions()) {
            for (ConsumerRecord<byte[], byte[]> record : polled.records(partition)) {
                report(record);
                if (takeSteps(record)) {
                    break;
                }
            }
        }
    }

    private void report(ConsumerRecord<byte[], byte[]> record) throws Exception {
        CRC.reset();
        for (byte[] each : new byte[][] {record.key(), record.value()}) {
            if (each != null) {
                CRC.update(each, 0, each.length);
            }
        }
        records.append(count++ == 0 ? "[" : ",[").append(record.partition()).append(',').append(record.offset())
            .append(',').append(CRC.getValue()).append(',').append(timestamp.applyAsLong(record)).append(']');
        next.put(record.partition(), record.offset() + 1);
        delivered.add(record.partition());
        missing.computeIfPresent(record.partition(), (partition, until) -> record.offset() >= until ? null : until);
        if (count == MOST_RECORDS) {
            flush();
        }
    }

    private void flush() {
        if (count > 0) {
            Talk.sayLine("{\"read\":[" + elapsedMs() + ",[" + records + "]]}");
            records.setLength(0);
            count = 0;
        }
    }

    /** Return whether one of the steps after the record discards what else was polled of its partition. */
    private boolean takeSteps(ConsumerRecord<byte[], byte[]> record) throws Exception {
        boolean sought = false;
        for (int i = 0; i < steps.size(); ) {
            JsonNode step = steps.get(i), at = step.get("at");
            if (at.get(0).asInt() == record.partition() && at.get(1).asLong() <= record.offset()) {
                steps.remove(i);
                take(step);
                sought |= step.get("do").asText().equals("seek");
            } else {
                i++;
            }
        }
        return sought;
    }

    private void take(JsonNode step) throws Exception {
        int partition = step.path("partition").asInt();
        long endsMs = elapsedMs() + step.path("ms").asLong();
        switch (step.get("do").asText()) {
            case "seek":
                next.put(partition, step.get("to").asLong());
                if (assigned.contains(partition)) {
                    consumer.seek(partitions.get(partition), next.get(partition));
                }
                break;
            case "pause":
                if (assigned.contains(partition)) {
                    consumer.pause(Polling.listed(partitions.get(partition)));
                }
                resumesAtMs.merge(partition, endsMs, Math::max);
                break;
            case "assign":
                var some = new HashSet<Integer>();
                step.get("partitions").forEach(each -> some.add(each.asInt()));
                assign(some);
                assignsAllAtMs = endsMs;
                break;
            case "sleep":
                flush();
                Thread.sleep(step.get("ms").asLong());
                break;
            case "commit":
                commit();
                break;
            default:
                throw new UnsupportedOperationException("cannot " + step);
        }
    }

    private void assign(Set<Integer> some) {
        assigned = Set.copyOf(some);
        placed.retainAll(some);
        var those = new ArrayList<TopicPartition>();
        some.forEach(each -> those.add(partitions.get(each)));
        consumer.assign(those);
    }

    /** Seek where partitions that were assigned before the next poll are to be read: they have no position yet. */
    private void placeNew() {
        for (int each : assigned) {
            if (placed.add(each)) {
                consumer.seek(partitions.get(each), next.get(each));
                if (resumesAtMs.containsKey(each)) {
                    consumer.pause(Polling.listed(partitions.get(each)));
                }
            }
        }
    }

    /** Return true; a partition that is not assigned now is assigned unpaused later. */
    private boolean resume(int partition) {
        if (assigned.contains(partition)) {
            consumer.resume(Polling.listed(partitions.get(partition)));
        }
        return true;
    }

    private void commit() throws Exception {
        var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
        var said = new TreeMap<Integer, Long>();
        for (int each : delivered) {
            if (assigned.contains(each)) {
                offsets.put(partitions.get(each), new OffsetAndMetadata(next.get(each)));
                said.put(each, next.get(each));
            }
        }
        try {
            consumer.commitSync(offsets);
            Talk.say("committed", said);
        } catch (RetriableException passing) {
            hear(passing);
        }
    }

    private long elapsedMs() {
        return (System.nanoTime() - beganNs) / 1_000_000;
    }
}
