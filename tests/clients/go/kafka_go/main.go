// kafka-go: a connection for each partition, and Fetch v2, v5 or v10. It can only drive; see tests/clients/__init__.py.
package main

import (
	"context"
	"log"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"sidefetch/tests/clients/talk"
)

func main() {
	talk.Serve("kafka-go", map[string]func(talk.Request) (any, error){"drive": drive})
}

func drive(asked talk.Request) (any, error) {
	config := kafka.ReaderConfig{
		Brokers:     strings.Split(asked.Bootstrap, ","),
		Topic:       asked.Topic,
		Dialer:      &kafka.Dialer{ClientID: asked.ClientID, Timeout: 10 * time.Second, DualStack: true},
		MaxBytes:    1e6, // the default, which the library does not apply before it compares MinBytes with it
		ErrorLogger: log.New(os.Stderr, "", log.Ltime|log.Lmicroseconds),
	}
	if asked.Isolation == "read_committed" {
		config.IsolationLevel = kafka.ReadCommitted
	}
	if err := talk.Configure(&config, asked.Settings); err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil { // NewReader would panic
		return nil, err
	}
	streams := (&talk.Streams{DoCommit: func(offsets map[int32]int64) error { return commit(asked, offsets) }}).Start()
	streams.Read = func(ctx context.Context, partition int32, from int64, to chan<- talk.Delivered) {
		own := config
		own.Partition = int(partition)
		reader := kafka.NewReader(own)
		defer func() { go reader.Close() }() // waits for the broker's answer
		if err := reader.SetOffset(from); err != nil {
			streams.Fail(ctx, err)
		}
		for ctx.Err() == nil {
			message, err := reader.ReadMessage(ctx)
			if err != nil {
				streams.Fail(ctx, err) // the reader goes on
				continue
			}
			record := talk.Delivered{
				Partition: partition, Offset: message.Offset, TimestampMs: message.Time.UnixMilli(),
				Key: message.Key, Value: message.Value,
			}
			select {
			case to <- record:
			case <-ctx.Done():
			}
		}
	}
	defer streams.Stop()
	talk.Drive(asked, streams)
	return nil, nil
}

func commit(asked talk.Request, offsets map[int32]int64) error {
	request := &kafka.OffsetCommitRequest{GroupID: asked.Group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{}}
	for partition, offset := range offsets {
		each := kafka.OffsetCommit{Partition: int(partition), Offset: offset}
		request.Topics[asked.Topic] = append(request.Topics[asked.Topic], each)
	}
	client := &kafka.Client{
		Addr: kafka.TCP(strings.Split(asked.Bootstrap, ",")...), Transport: &kafka.Transport{ClientID: asked.ClientID},
	}
	response, err := client.OffsetCommit(context.Background(), request)
	if err != nil {
		return err
	}
	for _, each := range response.Topics[asked.Topic] {
		if each.Error != nil {
			return each.Error
		}
	}
	return nil
}
