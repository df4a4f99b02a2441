// Apache's Java client of 0.9, 0.10 and 0.11, one source for all: what a record has in each is in Shape.java.
// The conversation is that of tests/clients/__init__.py.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class OldClient {
    public static void main(String[] arguments) throws Exception {
        Talk.serve(Map.of(
            "read", OldClient::read, "group", OldClient::group, "produce", OldClient::produce,
            "offsets", OldClient::offsets, "drive", Drive.command(Shape::timestamp)));
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode request, String reset) {
        var properties = Talk.consumerProperties(request);
        properties.put("auto.offset.reset", reset);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static int poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(200);
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            Talk.say("record", Arrays.asList(record.partition(), record.offset(), Shape.timestamp(record),
                Talk.toText(record.key()), Talk.toText(record.value()), Shape.headers(record)));
        }
        return polled.count();
    }

    private static Object read(JsonNode request) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        request.get("partitions").forEach(each ->
            partitions.add(new TopicPartition(request.get("topic").asText(), each.asInt())));
        try (var consumer = consumer(request, "earliest")) {
            consumer.assign(partitions);
            for (int count = 0; count < request.get("count").asInt(); ) {
                count += poll(consumer);
            }
        }
        return null;
    }

    private static Object group(JsonNode request) throws Exception {
        try (var consumer = consumer(request, "earliest")) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            for (int count = 0; count < request.get("count").asInt(); ) {
                int more = poll(consumer);
                count += more;
                if (more > 0) {
                    consumer.commitSync();
                    var after = new TreeMap<Integer, Long>();
                    consumer.assignment().forEach(each -> after.put(each.partition(), consumer.position(each)));
                    Talk.say("committed", after);
                }
            }
        }
        return null;
    }

    private static Object produce(JsonNode request) throws Exception {
        var places = new ArrayList<List<Long>>();
        try (var producer = new KafkaProducer<>(
                Talk.producerProperties(request), new ByteArraySerializer(), new ByteArraySerializer())) {
            var sent = new ArrayList<Future<RecordMetadata>>();
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(Shape.record(request.get("topic").asText(), record)));
            }
            for (Future<RecordMetadata> each : sent) {
                places.add(List.of((long) each.get().partition(), each.get().offset()));
            }
        }
        return places;
    }

    /** Where a consumer without a position begins, by either rule: 0.9 has no other way to ask. */
    private static Object offsets(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        var found = new TreeMap<Integer, List<Long>>();
        try (var first = consumer(request, "earliest"); var last = consumer(request, "latest")) {
            for (PartitionInfo info : first.partitionsFor(topic)) {
                var partition = new TopicPartition(topic, info.partition());
                first.assign(List.of(partition));
                last.assign(List.of(partition));
                found.put(info.partition(), List.of(first.position(partition), last.position(partition)));
            }
        }
        return found;
    }
}
