// Apache's own Java client: makes fetch sessions of its own. The conversation is that of tests/clients/__init__.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
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
    private static final int CHUNK_BYTES = 16384;
    private static final int MAX_BYTES = 50 * 1024 * 1024;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            try {
                say("done", run(request));
            } catch (Exception wrong) {
                wrong.printStackTrace();
                say("error", wrong.toString());
            }
        }
    }

    private static Object run(JsonNode request) throws Exception {
        return switch (request.get("do").asText()) {
            case "read" -> read(request);
            case "group" -> group(request);
            case "produce" -> produce(request);
            case "create" -> create(request);
            case "delete" -> delete(request);
            case "offsets" -> offsets(request);
            default -> throw new IllegalArgumentException(request.toString());
        };
    }

    private static void say(String what, Object value) throws Exception {
        var answer = new TreeMap<String, Object>();
        answer.put(what, value);
        OUT.println(JSON.writeValueAsString(answer));
    }

    private static String toText(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    private static byte[] fromText(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static Properties properties(JsonNode request) {
        var properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        properties.put("client.id", request.path("client_id").asText("java"));
        return properties;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        var properties = properties(request);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", request.path("isolation").asText("read_uncommitted"));
        properties.put("max.partition.fetch.bytes", request.path("chunk_bytes").asInt(CHUNK_BYTES));
        properties.put("fetch.max.bytes", request.path("max_bytes").asInt(MAX_BYTES));
        properties.put("fetch.max.wait.ms", request.path("wait_ms").asInt(500));
        properties.put("session.timeout.ms", 6000);
        properties.put("heartbeat.interval.ms", 500);
        if (request.has("group")) {
            properties.put("group.id", request.get("group").asText());
        }
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static int poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        var polled = consumer.poll(Duration.ofMillis(200));
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            var headers = new ArrayList<List<String>>();
            for (Header header : record.headers()) {
                headers.add(java.util.Arrays.asList(header.key(), toText(header.value())));
            }
            say("record", java.util.Arrays.asList(record.partition(), record.offset(), record.timestamp(),
                toText(record.key()), toText(record.value()), headers));
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
                    say("committed", after);
                }
            }
        }
        return null;
    }

    private static Object produce(JsonNode request) throws Exception {
        var properties = properties(request);
        properties.put("linger.ms", 20);
        var places = new ArrayList<List<Long>>();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            var sent = new ArrayList<Future<RecordMetadata>>();
            for (JsonNode record : request.get("records")) {
                var headers = new ArrayList<Header>();
                record.get(5).forEach(each -> headers.add(new RecordHeader(each.get(0).asText(), fromText(each.get(1)))));
                sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), record.get(0).asInt(),
                    record.get(2).asLong(), fromText(record.get(3)), fromText(record.get(4)), headers)));
            }
            for (Future<RecordMetadata> each : sent) {
                places.add(List.of((long) each.get().partition(), each.get().offset()));
            }
        }
        return places;
    }

    private static Object create(JsonNode request) throws Exception {
        try (var admin = Admin.create(properties(request))) {
            var topic = new NewTopic(request.get("topic").asText(), request.get("partitions").asInt(), (short) 2);
            admin.createTopics(List.of(topic)).all().get();
        }
        return null;
    }

    private static Object delete(JsonNode request) throws Exception {
        try (var admin = Admin.create(properties(request))) {
            admin.deleteTopics(List.of(request.get("topic").asText())).all().get();
        }
        return null;
    }

    private static Object offsets(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        var found = new TreeMap<Integer, List<Long>>();
        try (var admin = Admin.create(properties(request))) {
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
