// consumer TOPIC: prints a topic's values, by Sarama.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/Shopify/sarama"
)

func main() {
	address := os.Getenv("KAFKA_BOOTSTRAP_SERVERS")
	if address == "" {
		address = "127.0.0.1:9092"
	}
	config := sarama.NewConfig()
	config.Version = sarama.V0_10_2_0
	consumer, err := sarama.NewConsumer(strings.Split(address, ","), config)
	if err != nil {
		log.Fatal(err)
	}
	topic := os.Args[1]
	partitions, err := consumer.Partitions(topic)
	if err != nil {
		log.Fatal(err)
	}
	var readers sync.WaitGroup
	for _, partition := range partitions {
		reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			log.Fatal(err)
		}
		readers.Add(1)
		go func() {
			defer readers.Done()
			for message := range reader.Messages() {
				fmt.Println(string(message.Value))
			}
		}()
	}
	readers.Wait()
}
