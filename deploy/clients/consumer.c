/* consumer TOPIC: prints a topic's values, by librdkafka, as a member of a group.
 *
 *   cc -o consumer consumer.c -lrdkafka
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char wrong[512];
    if (rd_kafka_conf_set(conf, name, value, wrong, sizeof wrong) != RD_KAFKA_CONF_OK) {
        fprintf(stderr, "%s\n", wrong);
        exit(1);
    }
}

int main(int count, char **arguments) {
    char wrong[512], group[300];
    const char *address = getenv("KAFKA_BOOTSTRAP_SERVERS");
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    if (count != 2) {
        fprintf(stderr, "usage: consumer TOPIC\n");
        return 2;
    }
    set(conf, "bootstrap.servers", address ? address : "127.0.0.1:9092");
    snprintf(group, sizeof group, "readers-of-%s", arguments[1]);
    set(conf, "group.id", group);
    set(conf, "auto.offset.reset", "earliest");

    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, wrong, sizeof wrong);
    if (consumer == NULL) {
        fprintf(stderr, "%s\n", wrong);
        return 1;
    }
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, arguments[1], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t error = rd_kafka_subscribe(consumer, topics);
    if (error) {
        fprintf(stderr, "%s\n", rd_kafka_err2str(error));
        return 1;
    }
    for (;;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 1000);
        if (message == NULL) {
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            printf("%.*s\n", (int)message->len, (const char *)message->payload);
            fflush(stdout);
        }
        rd_kafka_message_destroy(message);
    }
}
