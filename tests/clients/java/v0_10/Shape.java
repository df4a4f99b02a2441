// A record of 0.10: a timestamp, no headers.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Shape {
    static long timestamp(ConsumerRecord<byte[], byte[]> record) {
        return record.timestamp();
    }

    static List<List<String>> headers(ConsumerRecord<byte[], byte[]> record) {
        return List.of();
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode told) {
        return new ProducerRecord<>(
            topic, told.get(0).asInt(), told.get(2).asLong(), Talk.fromText(told.get(3)), Talk.fromText(told.get(4)));
    }
}
