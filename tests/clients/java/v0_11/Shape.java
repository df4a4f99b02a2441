// A record of 0.11: as it is today.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

final class Shape {
    static long timestamp(ConsumerRecord<byte[], byte[]> record) {
        return record.timestamp();
    }

    static List<List<String>> headers(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), Talk.toText(header.value())));
        }
        return headers;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode told) {
        List<Header> headers = new ArrayList<>();
        told.get(5).forEach(each -> headers.add(new RecordHeader(each.get(0).asText(), Talk.fromText(each.get(1)))));
        return new ProducerRecord<>(topic, told.get(0).asInt(), told.get(2).asLong(), Talk.fromText(told.get(3)),
            Talk.fromText(told.get(4)), headers);
    }
}
