package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

const (
	chunkBytes = 16384
	maxBytes   = 50 * 1024 * 1024
)

// A request is one line of standard input; see tests/clients/__init__.py.
type request struct {
	Do         string
	Bootstrap  string
	Topic      string
	Group      string
	ClientID   string `json:"client_id"`
	Codec      string
	Count      int
	WaitMs     int32           `json:"wait_ms"`
	ChunkBytes int32           `json:"chunk_bytes"`
	MaxBytes   int32           `json:"max_bytes"`
	Partitions json.RawMessage // of read: which; of create: how many
	Records    []record
}

type record struct {
	partition   int32
	timestampMs int64
	key, value  []byte // nil for null
}

func (r *record) UnmarshalJSON(data []byte) error {
	var offset int64
	var headers json.RawMessage
	return json.Unmarshal(data, &[]interface{}{&r.partition, &offset, &r.timestampMs, &r.key, &r.value, &headers})
}

var saying sync.Mutex

func say(what string, value interface{}) {
	line, err := json.Marshal(map[string]interface{}{what: value})
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf("%s\n", line)
}

func toText(data []byte) interface{} {
	if data == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(data)
}

// serve does what standard input says, until it ends.
func serve(commands map[string]func(request) (interface{}, error)) {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		asked := request{ClientID: "sarama", WaitMs: 500, ChunkBytes: chunkBytes, MaxBytes: maxBytes}
		var result interface{}
		if err = json.Unmarshal(line, &asked); err == nil {
			if command := commands[asked.Do]; command == nil {
				err = fmt.Errorf("cannot %s", asked.Do)
			} else {
				result, err = command(asked)
			}
		}
		if err != nil {
			say("error", err.Error())
		} else {
			say("done", result)
		}
	}
}
