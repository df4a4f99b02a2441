// franz-go: fetch sessions and topic ids of its own, and every request in the newest version that the brokers share.
// The conversation is that of tests/clients/__init__.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sidefetch/tests/clients/talk"
)

const maxWait = 30 * time.Second

func main() {
	talk.Serve("franz-go", map[string]func(talk.Request) (interface{}, error){
		"read": read, "group": group, "produce": produce, "create": create, "delete": remove, "offsets": offsets,
		"drive": drive,
	})
}

func connect(asked talk.Request, more ...kgo.Opt) (*kgo.Client, error) {
	isolation := kgo.ReadUncommitted()
	if asked.Isolation == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(asked.Bootstrap, ",")...),
		kgo.ClientID(asked.ClientID),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxPartitionBytes(asked.ChunkBytes),
		kgo.FetchMaxBytes(asked.MaxBytes),
		kgo.FetchMaxWait(time.Duration(asked.WaitMs) * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, more...)...)
}

// consume tells of asked.Count records or more, and hands each lot of them to after.
func consume(client *kgo.Client, asked talk.Request, after func([]*kgo.Record)) error {
	for count := 0; count < asked.Count; {
		fetches := client.PollRecords(context.Background(), 100)
		if fetches.IsClientClosed() {
			return kgo.ErrClientClosed
		}
		// It goes on by itself from what it tells; what is lost for good is missed by the test.
		fetches.EachError(func(_ string, _ int32, err error) { talk.Say("heard", err.Error()) })
		records := fetches.Records()
		for _, each := range records {
			record := talk.Record{
				Partition: each.Partition, TimestampMs: each.Timestamp.UnixMilli(), Key: each.Key, Value: each.Value,
			}
			for _, header := range each.Headers {
				record.Headers = append(record.Headers, talk.Header{Key: header.Key, Value: header.Value})
			}
			talk.Tell(record, each.Offset)
		}
		count += len(records)
		after(records)
	}
	return nil
}

func read(asked talk.Request) (interface{}, error) {
	var partitions []int32
	if err := json.Unmarshal(asked.Partitions, &partitions); err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		from[partition] = kgo.NewOffset().AtStart()
	}
	client, err := connect(asked, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: from}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return nil, consume(client, asked, func([]*kgo.Record) {})
}

func group(asked talk.Request) (interface{}, error) {
	client, err := connect(
		asked, kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close() // leaves the group
	return nil, consume(client, asked, func(records []*kgo.Record) {
		committed := map[int32]int64{}
		for _, each := range records {
			committed[each.Partition] = each.Offset + 1
		}
		if len(records) == 0 {
			return
		}
		if err := client.CommitRecords(context.Background(), records...); err != nil {
			talk.Say("heard", err.Error())
			return
		}
		talk.Say("committed", committed)
	})
}

var codecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func produce(asked talk.Request) (interface{}, error) {
	client, err := connect(
		asked, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, each := range asked.Records {
		record := &kgo.Record{
			Topic: asked.Topic, Partition: each.Partition, Timestamp: time.UnixMilli(each.TimestampMs),
			Key: each.Key, Value: each.Value,
		}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		records = append(records, record)
	}
	ctx, done := context.WithTimeout(context.Background(), maxWait)
	defer done()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	places := [][]int64{}
	for _, each := range records {
		places = append(places, []int64{int64(each.Partition), each.Offset})
	}
	return places, nil
}

// with has act talk to the brokers without reading or writing records.
func with(asked talk.Request, act func(context.Context, *kgo.Client) (interface{}, error)) (interface{}, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, done := context.WithTimeout(context.Background(), maxWait)
	defer done()
	return act(ctx, client)
}

func create(asked talk.Request) (interface{}, error) {
	return with(asked, func(ctx context.Context, client *kgo.Client) (interface{}, error) {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.ReplicationFactor = asked.Topic, 2
		if err := json.Unmarshal(asked.Partitions, &topic.NumPartitions); err != nil {
			return nil, err
		}
		request := kmsg.NewPtrCreateTopicsRequest()
		request.Topics = append(request.Topics, topic)
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return nil, err
		}
		return nil, kerr.ErrorForCode(response.Topics[0].ErrorCode)
	})
}

func remove(asked talk.Request) (interface{}, error) {
	return with(asked, func(ctx context.Context, client *kgo.Client) (interface{}, error) {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr(asked.Topic)
		request := kmsg.NewPtrDeleteTopicsRequest()
		request.TopicNames, request.Topics = []string{asked.Topic}, append(request.Topics, topic)
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return nil, err
		}
		return nil, kerr.ErrorForCode(response.Topics[0].ErrorCode)
	})
}

func offsets(asked talk.Request) (interface{}, error) {
	return with(asked, func(ctx context.Context, client *kgo.Client) (interface{}, error) {
		wanted := kmsg.NewMetadataRequestTopic()
		wanted.Topic = kmsg.StringPtr(asked.Topic)
		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Topics = append(metadata.Topics, wanted)
		known, err := metadata.RequestWith(ctx, client)
		if err != nil {
			return nil, err
		}
		found := map[int32][]int64{}
		for _, timestamp := range []int64{-2, -1} { // earliest, latest
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = asked.Topic
			for _, each := range known.Topics[0].Partitions {
				partition := kmsg.NewListOffsetsRequestTopicPartition()
				partition.Partition, partition.Timestamp = each.Partition, timestamp
				topic.Partitions = append(topic.Partitions, partition)
			}
			request := kmsg.NewPtrListOffsetsRequest()
			request.Topics = append(request.Topics, topic)
			response, err := request.RequestWith(ctx, client)
			if err != nil {
				return nil, err
			}
			if len(response.Topics) != 1 {
				return nil, errors.New("not one topic")
			}
			for _, each := range response.Topics[0].Partitions {
				if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
					return nil, err
				}
				found[each.Partition] = append(found[each.Partition], each.Offset)
			}
		}
		return found, nil
	})
}
