package main

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/Shopify/sarama"

	"sidefetch/tests/clients/talk"
)

// What Sarama 1.19 lacks (isolation and rack) is set by name, so that this builds with both.

// drive reads by one Consumer or several of one Client, with a PartitionConsumer for each partition. All of them share
// the Client's connection to each broker; each Consumer has fetches of its own.
func drive(asked talk.Request) (any, error) {
	config := sarama.NewConfig()
	config.Version = version
	config.ClientID = asked.ClientID
	config.Consumer.Return.Errors = true
	if asked.Isolation == "read_committed" {
		asked.Settings["Consumer.IsolationLevel"] = json.RawMessage("1")
	}
	if asked.Rack != "" {
		asked.Settings["RackID"] = json.RawMessage(strconv.Quote(asked.Rack))
	}
	sarama.MaxResponseSize = 100 * 1024 * 1024
	if size, isSet := asked.Settings["MaxResponseSize"]; isSet {
		if err := talk.Decode(size, &sarama.MaxResponseSize); err != nil {
			return nil, err
		}
		delete(asked.Settings, "MaxResponseSize")
	}
	if err := talk.Configure(config, asked.Settings); err != nil {
		return nil, err
	}
	client, err := sarama.NewClient(strings.Split(asked.Bootstrap, ","), config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumers := make([]sarama.Consumer, max(asked.Consumers, 1))
	for number := range consumers {
		if consumers[number], err = sarama.NewConsumerFromClient(client); err != nil {
			return nil, err
		}
		defer consumers[number].Close()
	}
	streams := (&talk.Streams{
		DoCommit: func(offsets map[int32]int64) error { return commit(client, asked, offsets) },
	}).Start()
	streams.Read = func(ctx context.Context, partition int32, from int64, to chan<- talk.Delivered) {
		for ctx.Err() == nil {
			reading, err := consumers[int(partition)%len(consumers)].ConsumePartition(asked.Topic, partition, from)
			if err == nil {
				from, err = pass(ctx, streams, reading, from, to)
			}
			if err == sarama.ErrOffsetOutOfRange {
				from = sarama.OffsetOldest
			}
			if err != nil {
				streams.Fail(ctx, err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	defer streams.Stop()
	talk.Drive(asked, streams)
	return nil, nil
}

// pass sends messages on until ctx is done or the library gives up; it returns where to go on and the last error.
func pass(
	ctx context.Context, streams *talk.Streams, reading sarama.PartitionConsumer, next int64, to chan<- talk.Delivered,
) (int64, error) {
	defer reading.Close()
	var last error
	messages, errors := reading.Messages(), reading.Errors()
	for messages != nil || errors != nil {
		select {
		case message, isOpen := <-messages:
			if !isOpen {
				messages = nil
				continue
			}
			select {
			case to <- delivered(message):
				next = message.Offset + 1
			case <-ctx.Done():
				return next, nil
			}
		case err, isOpen := <-errors:
			if !isOpen {
				errors = nil
				continue
			}
			if last = err.Err; last != sarama.ErrOffsetOutOfRange {
				streams.Fail(ctx, last) // the library goes on
			}
		case <-ctx.Done():
			return next, nil
		}
	}
	return next, last
}

func delivered(message *sarama.ConsumerMessage) talk.Delivered {
	timestampMs := int64(-1)
	if !message.Timestamp.IsZero() {
		timestampMs = message.Timestamp.UnixMilli()
	}
	return talk.Delivered{
		Partition: message.Partition, Offset: message.Offset, TimestampMs: timestampMs,
		Key: message.Key, Value: message.Value,
	}
}

// commit asks the coordinator itself: the library's own offset manager commits by the clock alone.
func commit(client sarama.Client, asked talk.Request, offsets map[int32]int64) error {
	coordinator, err := client.Coordinator(asked.Group)
	if err != nil {
		return err
	}
	request := &sarama.OffsetCommitRequest{
		ConsumerGroup: asked.Group, ConsumerGroupGeneration: sarama.GroupGenerationUndefined, Version: 1,
	}
	if version.IsAtLeast(sarama.V0_9_0_0) {
		request.Version, request.RetentionTime = 2, -1
	}
	for partition, offset := range offsets {
		request.AddBlock(asked.Topic, partition, offset, sarama.ReceiveTime, "")
	}
	response, err := coordinator.CommitOffset(request)
	if err != nil {
		return err
	}
	for _, each := range response.Errors[asked.Topic] {
		if each != sarama.ErrNoError {
			return each
		}
	}
	return nil
}
