package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sidefetch/tests/clients/talk"
)

// The options that the settings of drive may name; beside these, PollRecords is how many records a poll returns.
var options = map[string]any{
	"BrokerMaxReadBytes":     kgo.BrokerMaxReadBytes,
	"DisableFetchSessions":   kgo.DisableFetchSessions,
	"FetchMaxBytes":          kgo.FetchMaxBytes,
	"FetchMaxPartitionBytes": kgo.FetchMaxPartitionBytes,
	"FetchMaxWait":           kgo.FetchMaxWait,
	"FetchMinBytes":          kgo.FetchMinBytes,
	"MaxConcurrentFetches":   kgo.MaxConcurrentFetches,
	"MetadataMaxAge":         kgo.MetadataMaxAge,
	"MetadataMinAge":         kgo.MetadataMinAge,
}

type reader struct {
	client       *kgo.Client
	topic, group string
	pollRecords  int
	assigned     map[int32]bool
}

func drive(asked talk.Request) (any, error) {
	r := reader{topic: asked.Topic, group: asked.Group, pollRecords: -1, assigned: map[int32]bool{}}
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(asked.Bootstrap, ",")...),
		kgo.ClientID(asked.ClientID),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: r.add(asked.From)}),
		kgo.Rack(asked.Rack),
	}
	if asked.Isolation == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	more, err := r.configured(asked.Settings)
	if err != nil {
		return nil, err
	}
	if r.client, err = kgo.NewClient(append(opts, more...)...); err != nil {
		return nil, err
	}
	defer r.client.Close()
	talk.Drive(asked, &r)
	return nil, nil
}

// configured returns the options of the settings; a setting without an argument is true or false.
func (r *reader) configured(settings map[string]json.RawMessage) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	for name, value := range settings {
		option := reflect.ValueOf(options[name])
		var arguments []reflect.Value
		isWanted := true
		argument := reflect.ValueOf(&isWanted)
		switch {
		case name == "PollRecords":
			argument, isWanted = reflect.ValueOf(&r.pollRecords), false
		case !option.IsValid():
			return nil, fmt.Errorf("no setting %s", name)
		case option.Type().NumIn() == 1:
			argument = reflect.New(option.Type().In(0))
			arguments = append(arguments, argument.Elem())
		}
		if err := talk.Decode(value, argument.Interface()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if isWanted {
			opts = append(opts, option.Call(arguments)[0].Interface().(kgo.Opt))
		}
	}
	return opts, nil
}

// add notes partitions that are assigned from now on, and returns where those begin that were not.
func (r *reader) add(offsets map[int32]int64) map[int32]kgo.Offset {
	added := map[int32]kgo.Offset{}
	for partition, offset := range offsets {
		if !r.assigned[partition] {
			added[partition], r.assigned[partition] = kgo.NewOffset().At(offset), true
		}
	}
	return added
}

func (r *reader) Poll(ctx context.Context) []talk.Delivered {
	fetches := r.client.PollRecords(ctx, r.pollRecords)
	if ctx.Err() == nil {
		fetches.EachError(func(_ string, _ int32, err error) { talk.Hear(err) })
	}
	var records []talk.Delivered
	fetches.EachRecord(func(each *kgo.Record) {
		records = append(records, talk.Delivered{
			Partition: each.Partition, Offset: each.Offset, TimestampMs: each.Timestamp.UnixMilli(),
			Key: each.Key, Value: each.Value,
		})
	})
	return records
}

func (r *reader) Assign(offsets map[int32]int64) {
	var removed []int32
	for partition := range r.assigned {
		if _, isKept := offsets[partition]; !isKept {
			removed = append(removed, partition)
			delete(r.assigned, partition)
		}
	}
	r.client.RemoveConsumePartitions(map[string][]int32{r.topic: removed})
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: r.add(offsets)})
}

func (r *reader) Seek(partition int32, offset int64) {
	to := kgo.EpochOffset{Epoch: -1, Offset: offset}
	r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.topic: {partition: to}})
}

func (r *reader) Pause(partition int32) {
	r.client.PauseFetchPartitions(map[string][]int32{r.topic: {partition}})
}

func (r *reader) Resume(partition int32) {
	r.client.ResumeFetchPartitions(map[string][]int32{r.topic: {partition}})
}

// Commit asks the coordinator itself: the library commits only as a member.
func (r *reader) Commit(offsets map[int32]int64) error {
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = r.topic
	for number, offset := range offsets {
		partition := kmsg.NewOffsetCommitRequestTopicPartition()
		partition.Partition, partition.Offset = number, offset
		topic.Partitions = append(topic.Partitions, partition)
	}
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Topics = r.group, append(request.Topics, topic)
	response, err := request.RequestWith(context.Background(), r.client)
	if err != nil {
		return err
	}
	for _, each := range response.Topics[0].Partitions {
		if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}
