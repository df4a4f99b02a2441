// How a consumer since 2.0 polls, and what it pauses and resumes: a Duration, and a collection.

import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

final class Polling {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(Duration.ofMillis(timeoutMs));
    }

    static List<TopicPartition> listed(TopicPartition partition) {
        return List.of(partition);
    }
}
