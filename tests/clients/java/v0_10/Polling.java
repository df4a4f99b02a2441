// How a consumer of 0.10 to 1.1 polls, and what it pauses and resumes: a timeout in ms, and a collection.

import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

final class Polling {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static List<TopicPartition> listed(TopicPartition partition) {
        return List.of(partition);
    }
}
