// Sarama 1.19.0 speaking as if to the brokers of a version: "sarama 0.8.2.0". It never asks brokers for their versions.
// The conversation is that of tests/clients/__init__.py.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/sarama"

	"sidefetch/tests/clients/talk"
)

var version sarama.KafkaVersion

func main() {
	var err error
	if version, err = sarama.ParseKafkaVersion(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	sarama.Logger = log.New(os.Stderr, "", log.Ltime|log.Lmicroseconds)
	commands := map[string]func(talk.Request) (interface{}, error){
		"read": read, "group": simpleGroup, "produce": produce, "offsets": offsets, "drive": drive,
	}
	if version.IsAtLeast(sarama.V0_10_2_0) { // what Sarama asks for before it joins a group or makes a topic
		commands["group"], commands["create"], commands["delete"] = group, create, remove
	}
	talk.Serve("sarama", commands)
}

func config(asked talk.Request) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.ClientID = asked.ClientID
	config.ChannelBufferSize = 0
	config.Consumer.Fetch.Default = asked.ChunkBytes
	config.Consumer.Fetch.Max = 0
	config.Consumer.MaxWaitTime = time.Duration(asked.WaitMs) * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.CommitInterval = 50 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	sarama.MaxResponseSize = asked.MaxBytes
	return config
}

func connect(asked talk.Request) (sarama.Client, error) {
	return sarama.NewClient(strings.Split(asked.Bootstrap, ","), config(asked))
}

func tell(message *sarama.ConsumerMessage) {
	timestampMs := int64(-1)
	if !message.Timestamp.IsZero() {
		timestampMs = message.Timestamp.UnixNano() / int64(time.Millisecond)
	}
	talk.Tell(talk.Record{
		Partition: message.Partition, TimestampMs: timestampMs, Key: message.Key, Value: message.Value,
	}, message.Offset)
}

// consume tells of asked.Count messages or more from the offset that begin gives for each partition, and marks each.
func consume(
	client sarama.Client, asked talk.Request, partitions []int32, begin func(int32) int64, mark func(partition int32, next int64),
) error {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	messages, failed, stop := make(chan *sarama.ConsumerMessage), make(chan error), make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(stop)
	for _, partition := range partitions {
		from, err := consumer.ConsumePartition(asked.Topic, partition, begin(partition))
		if err != nil {
			return err
		}
		reading.Add(1)
		go func() {
			defer reading.Done()
			defer from.Close()
			for {
				select {
				case message := <-from.Messages():
					select {
					case messages <- message:
					case <-stop:
						return
					}
				case err := <-from.Errors():
					select {
					case failed <- err:
					case <-stop:
					}
					return
				case <-stop:
					return
				}
			}
		}()
	}
	for count := 0; count < asked.Count; count++ {
		select {
		case message := <-messages:
			tell(message)
			mark(message.Partition, message.Offset+1)
		case err := <-failed:
			return err
		}
	}
	return nil
}

func read(asked talk.Request) (interface{}, error) {
	var partitions []int32
	if err := json.Unmarshal(asked.Partitions, &partitions); err != nil {
		return nil, err
	}
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	oldest := func(int32) int64 { return sarama.OffsetOldest }
	return nil, consume(client, asked, partitions, oldest, func(int32, int64) {})
}

// simpleGroup keeps offsets with the brokers and takes all partitions: before 0.9 there was no group to join.
func simpleGroup(asked talk.Request) (interface{}, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(asked.Group, client)
	if err != nil {
		return nil, err
	}
	partitions, err := client.Partitions(asked.Topic)
	if err != nil {
		return nil, err
	}
	managed := map[int32]sarama.PartitionOffsetManager{}
	for _, partition := range partitions {
		if managed[partition], err = manager.ManagePartition(asked.Topic, partition); err != nil {
			return nil, err
		}
	}
	begin := func(partition int32) int64 {
		next, _ := managed[partition].NextOffset()
		return next
	}
	committed := map[int32]int64{}
	mark := func(partition int32, next int64) {
		managed[partition].MarkOffset(next, "")
		committed[partition] = next
	}
	err = consume(client, asked, partitions, begin, mark)
	for _, each := range managed {
		each.AsyncClose()
	}
	for _, each := range managed { // until the last commit is acknowledged or has failed
		for wrong := range each.Errors() {
			if err == nil {
				err = wrong
			}
		}
	}
	manager.Close()
	talk.Say("committed", committed)
	return nil, err
}

// A member tells of what it is given, until there are enough.
type member struct {
	leave     context.CancelFunc
	enough    int
	telling   sync.Mutex
	count     int
	committed map[int32]int64
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		if !m.take(session, message) {
			return nil
		}
	}
	return nil
}

func (m *member) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) bool {
	m.telling.Lock()
	defer m.telling.Unlock()
	if m.count == m.enough {
		return false
	}
	tell(message)
	session.MarkMessage(message, "")
	m.committed[message.Partition] = message.Offset + 1
	if m.count++; m.count == m.enough {
		m.leave()
	}
	return true
}

func group(asked talk.Request) (interface{}, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	joined, err := sarama.NewConsumerGroupFromClient(asked.Group, client)
	if err != nil {
		return nil, err
	}
	go func() {
		for err := range joined.Errors() {
			talk.Say("heard", err.Error())
		}
	}()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	reader := &member{leave: leave, enough: asked.Count, committed: map[int32]int64{}}
	for ctx.Err() == nil { // a session ends with each rebalance
		if err := joined.Consume(ctx, []string{asked.Topic}, reader); err != nil {
			joined.Close()
			return nil, err
		}
	}
	if err := joined.Close(); err != nil {
		return nil, err
	}
	talk.Say("committed", reader.committed)
	return nil, nil
}

var codecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
}

func produce(asked talk.Request) (interface{}, error) {
	config := config(asked)
	config.Producer.Compression = codecs[asked.Codec]
	producer, err := sarama.NewSyncProducer(strings.Split(asked.Bootstrap, ","), config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := []*sarama.ProducerMessage{}
	for _, each := range asked.Records {
		message := &sarama.ProducerMessage{
			Topic: asked.Topic, Partition: each.Partition,
			Timestamp: time.Unix(each.TimestampMs/1000, each.TimestampMs%1000*int64(time.Millisecond)),
		}
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err.(sarama.ProducerErrors)[0]
	}
	places := [][]int64{}
	for _, each := range messages {
		places = append(places, []int64{int64(each.Partition), each.Offset})
	}
	return places, nil
}

func create(asked talk.Request) (interface{}, error) {
	detail := &sarama.TopicDetail{ReplicationFactor: 2}
	if err := json.Unmarshal(asked.Partitions, &detail.NumPartitions); err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin(strings.Split(asked.Bootstrap, ","), config(asked))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return nil, admin.CreateTopic(asked.Topic, detail, false)
}

func remove(asked talk.Request) (interface{}, error) {
	admin, err := sarama.NewClusterAdmin(strings.Split(asked.Bootstrap, ","), config(asked))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return nil, admin.DeleteTopic(asked.Topic)
}

func offsets(asked talk.Request) (interface{}, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	partitions, err := client.Partitions(asked.Topic)
	if err != nil {
		return nil, err
	}
	found := map[int32][]int64{}
	for _, partition := range partitions {
		for _, which := range []int64{sarama.OffsetOldest, sarama.OffsetNewest} {
			offset, err := client.GetOffset(asked.Topic, partition, which)
			if err != nil {
				return nil, err
			}
			found[partition] = append(found[partition], offset)
		}
	}
	return found, nil
}
