import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** {@code java Consumer TOPIC}: prints a topic's values, as a member of a group. */
public class Consumer {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv().getOrDefault("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"));
        settings.put("group.id", "readers-of-" + arguments[0]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(arguments[0]));
            while (true) {
                for (ConsumerRecord<String, String> each : consumer.poll(1000)) { // from 2.0 on: Duration.ofSeconds(1)
                    System.out.println(each.value());
                }
            }
        }
    }
}
