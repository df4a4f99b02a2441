// The programs' side of the conversation of tests/clients/__init__.py, for those written in Java.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;

final class Talk {
    private static final int CHUNK_BYTES = 16384;
    private static final int MAX_BYTES = 50 * 1024 * 1024;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    interface Command {
        Object run(JsonNode request) throws Exception;
    }

    /** Do what standard input says, until it ends. */
    static void serve(Map<String, Command> commands) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            try {
                Command command = commands.get(request.get("do").asText());
                if (command == null) {
                    throw new UnsupportedOperationException("cannot " + request.get("do").asText());
                }
                say("done", command.run(request));
            } catch (Exception wrong) {
                wrong.printStackTrace();
                say("error", wrong.toString());
            }
        }
    }

    static void say(String what, Object value) throws Exception {
        sayLine(JSON.writeValueAsString(Collections.singletonMap(what, value)));
    }

    static void sayLine(String line) {
        OUT.println(line);
    }

    static String toText(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static byte[] fromText(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static Properties properties(JsonNode request) {
        var properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        properties.put("client.id", request.path("client_id").asText("java"));
        return properties;
    }

    static Properties consumerProperties(JsonNode request) {
        var properties = properties(request);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", request.path("isolation").asText("read_uncommitted"));
        properties.put("max.partition.fetch.bytes", request.path("chunk_bytes").asInt(CHUNK_BYTES));
        properties.put("fetch.max.bytes", request.path("max_bytes").asInt(MAX_BYTES));
        properties.put("max.poll.records", 100);
        properties.put("fetch.max.wait.ms", request.path("wait_ms").asInt(500));
        properties.put("session.timeout.ms", 6000);
        properties.put("heartbeat.interval.ms", 500);
        if (request.has("rack")) {
            properties.put("client.rack", request.get("rack").asText());
            properties.put("metadata.max.age.ms", request.get("rack_age_ms").asInt());
        }
        if (request.has("group")) {
            properties.put("group.id", request.get("group").asText());
        }
        return properties;
    }

    static Properties producerProperties(JsonNode request) {
        var properties = properties(request);
        properties.put("acks", "all");
        properties.put("linger.ms", 20);
        properties.put("compression.type", request.path("codec").asText("none"));
        return properties;
    }
}
