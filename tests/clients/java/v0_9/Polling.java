// How a consumer of 0.9 polls, and what it pauses and resumes: a timeout in ms, and an array.

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

final class Polling {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static TopicPartition[] listed(TopicPartition partition) {
        return new TopicPartition[] {partition};
    }
}
