// Package talk is the programs' side of the conversation of tests/clients/__init__.py, for those written in Go.
package talk

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	chunkBytes = 16384
	maxBytes   = 50 * 1024 * 1024
)

// A Request is one line of standard input; see tests/clients/__init__.py.
type Request struct {
	Do         string
	Bootstrap  string
	Topic      string
	Group      string
	ClientID   string `json:"client_id"`
	Codec      string
	Isolation  string
	Count      int
	WaitMs     int32           `json:"wait_ms"`
	ChunkBytes int32           `json:"chunk_bytes"`
	MaxBytes   int32           `json:"max_bytes"`
	Partitions json.RawMessage // of read: which; of create: how many
	Records    []Record

	// Of drive alone.
	Settings map[string]json.RawMessage
	From     map[int32]int64
	Until    map[int32]int64
	Steps    []Step
	Rack     string
	// Readers of one client, among which the partitions are dealt out.
	Consumers int
	began     time.Time
}

// A Record is one to produce.
type Record struct {
	Partition   int32
	TimestampMs int64
	Key, Value  []byte // nil for null
	Headers     []Header
}

// A Header is one of a record's.
type Header struct {
	Key   string
	Value []byte // nil for null
}

func (r *Record) UnmarshalJSON(data []byte) error {
	var offset int64
	return json.Unmarshal(data, &[]interface{}{&r.Partition, &offset, &r.TimestampMs, &r.Key, &r.Value, &r.Headers})
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]interface{}{&h.Key, &h.Value})
}

var saying sync.Mutex

// Say writes one line.
func Say(what string, value interface{}) {
	line, err := json.Marshal(map[string]interface{}{what: value})
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf("%s\n", line)
}

// Tell tells of a record that has been read.
func Tell(record Record, offset int64) {
	headers := [][]interface{}{}
	for _, each := range record.Headers {
		headers = append(headers, []interface{}{each.Key, toText(each.Value)})
	}
	Say("record", []interface{}{
		record.Partition, offset, record.TimestampMs, toText(record.Key), toText(record.Value), headers,
	})
}

func toText(data []byte) interface{} {
	if data == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(data)
}

// Serve does what standard input says, until it ends.
func Serve(clientID string, commands map[string]func(Request) (interface{}, error)) {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		asked := Request{ClientID: clientID, WaitMs: 500, ChunkBytes: chunkBytes, MaxBytes: maxBytes, began: time.Now()}
		var result interface{}
		if err = json.Unmarshal(line, &asked); err == nil {
			if command := commands[asked.Do]; command == nil {
				err = fmt.Errorf("cannot %s", asked.Do)
			} else {
				result, err = command(asked)
			}
		}
		if err != nil {
			Say("error", err.Error())
		} else {
			Say("done", result)
		}
	}
}
