// Apache's own Java client: makes fetch sessions of its own. The conversation is that of tests/clients/__init__.py.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Client {
    public static void main(String[] arguments) throws Exception {
        Talk.serve(Map.of("read", Client::read, "group", Client::group, "produce", Client::produce,
            "create", Client::create, "delete", Client::delete, "offsets", Client::offsets,
            "drive", Drive.command(ConsumerRecord::timestamp)));
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        return new KafkaConsumer<>(
            Talk.consumerProperties(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static int poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        var polled = consumer.poll(Duration.ofMillis(200));
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            var headers = new ArrayList<List<String>>();
            for (Header header : record.headers()) {
                headers.add(java.util.Arrays.asList(header.key(), Talk.toText(header.value())));
            }
            Talk.say("record", java.util.Arrays.asList(record.partition(), record.offset(), record.timestamp(),
                Talk.toText(record.key()), Talk.toText(record.value()), headers));
        }
        return polled.count();
    }

    private static Object read(JsonNode request) throws Exception {
        var partitions = new ArrayList<TopicPartition>();
        request.get("partitions").forEach(each ->
            partitions.add(new TopicPartition(request.get("topic").asText(), each.asInt())));
        try (var consumer = consumer(request)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (int count = 0; count < request.get("count").asInt(); ) {
                count += poll(consumer);
            }
        }
        return null;
    }

    private static Object group(JsonNode request) throws Exception {
        try (var consumer = consumer(request)) {
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
        var properties = Talk.producerProperties(request);
        var places = new ArrayList<List<Long>>();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            var sent = new ArrayList<Future<RecordMetadata>>();
            for (JsonNode record : request.get("records")) {
                var headers = new ArrayList<Header>();
                record.get(5).forEach(each -> headers.add(new RecordHeader(each.get(0).asText(), Talk.fromText(each.get(1)))));
                sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), record.get(0).asInt(),
                    record.get(2).asLong(), Talk.fromText(record.get(3)), Talk.fromText(record.get(4)), headers)));
            }
            for (Future<RecordMetadata> each : sent) {
                places.add(List.of((long) each.get().partition(), each.get().offset()));
            }
        }
        return places;
    }

    private static Object create(JsonNode request) throws Exception {
        try (var admin = Admin.create(Talk.properties(request))) {
            var topic = new NewTopic(request.get("topic").asText(), request.get("partitions").asInt(), (short) 2);
            admin.createTopics(List.of(topic)).all().get();
        }
        return null;
    }

    private static Object delete(JsonNode request) throws Exception {
        try (var admin = Admin.create(Talk.properties(request))) {
            admin.deleteTopics(List.of(request.get("topic").asText())).all().get();
        }
        return null;
    }

    private static Object offsets(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        var found = new TreeMap<Integer, List<Long>>();
        try (var admin = Admin.create(Talk.properties(request))) {
            var first = new TreeMap<Integer, TopicPartition>();
            for (var each : admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions()) {
                first.put(each.partition(), new TopicPartition(topic, each.partition()));
            }
            var earliest = admin.listOffsets(all(first, OffsetSpec.earliest())).all().get();
            var latest = admin.listOffsets(all(first, OffsetSpec.latest())).all().get();
            first.forEach((partition, each) ->
                found.put(partition, List.of(earliest.get(each).offset(), latest.get(each).offset())));
        }
        return found;
    }

    private static Map<TopicPartition, OffsetSpec> all(Map<Integer, TopicPartition> partitions, OffsetSpec spec) {
        var wanted = new java.util.HashMap<TopicPartition, OffsetSpec>();
        partitions.values().forEach(each -> wanted.put(each, spec));
        return wanted;
    }
}
