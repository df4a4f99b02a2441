package talk

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"reflect"
	"strings"
	"time"
)

const (
	mostRecords = 500
	mostHeard   = 20
)

// A Delivered record is one that the library gave to its application.
type Delivered struct {
	Partition           int32
	Offset, TimestampMs int64 // TimestampMs is -1 where the library does not know it
	Key, Value          []byte
}

// A Reader is a library's consumer of one topic. One goroutine calls all its methods.
type Reader interface {
	// Poll waits for records, or until ctx is done.
	Poll(ctx context.Context) []Delivered
	// Assign replaces the assignment. Partitions that were assigned before go on; others begin at their offset.
	Assign(offsets map[int32]int64)
	// Seek discards what the library has buffered of an assigned partition and goes on at the offset.
	Seek(partition int32, offset int64)
	Pause(partition int32)
	Resume(partition int32)
	Commit(offsets map[int32]int64) error
}

// A Step is something that the application does after it got a certain record; see tests/clients/__init__.py.
type Step struct {
	At         [2]int64 // partition and offset
	Do         string
	Partition  int32
	To         int64
	Partitions []int32
	Ms         int64
}

var heard map[string]bool

// Hear reports an error that the client overcomes, once for each text; it is called by the goroutine of Drive.
func Hear(err error) {
	if text := err.Error(); !heard[text] && len(heard) < mostHeard {
		heard[text] = true
		Say("heard", text)
	}
}

type timer struct {
	due time.Time
	act func()
}

type drive struct {
	reader    Reader
	began     time.Time
	positions map[int32]int64 // the offset after the last record that was reported, or where a seek led
	delivered map[int32]bool
	until     map[int32]int64 // partitions that have not got that far yet
	steps     map[int32][]Step
	timers    []timer
	paused    map[int32]int  // how many steps keep the partition paused
	dropped   map[int32]bool // partitions whose polled records are discarded until the next poll
	assigned  int            // how many steps have assigned partitions
	batch     [][4]int64
}

// Drive reads as the request says, with the steps that it names, until each partition of Until has got that far.
func Drive(asked Request, reader Reader) {
	d := drive{
		reader: reader, began: asked.began, positions: asked.From, until: asked.Until,
		delivered: map[int32]bool{}, steps: map[int32][]Step{}, paused: map[int32]int{},
	}
	heard = map[string]bool{}
	for _, step := range asked.Steps {
		d.steps[int32(step.At[0])] = append(d.steps[int32(step.At[0])], step)
	}
	reader.Assign(maps.Clone(d.positions))
	for len(d.until) > 0 {
		d.runTimers()
		d.dropped = map[int32]bool{}
		for _, record := range d.poll() {
			if !d.dropped[record.Partition] {
				d.take(record)
			}
		}
		d.flush()
	}
}

func (d *drive) poll() []Delivered {
	ctx := context.Background()
	for _, each := range d.timers {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, each.due)
		defer cancel()
	}
	return d.reader.Poll(ctx)
}

func (d *drive) runTimers() {
	waiting := d.timers
	d.timers = nil
	for _, each := range waiting {
		if time.Now().Before(each.due) {
			d.timers = append(d.timers, each)
		} else {
			each.act()
		}
	}
}

func (d *drive) after(ms int64, act func()) {
	d.timers = append(d.timers, timer{time.Now().Add(time.Duration(ms) * time.Millisecond), act})
}

func (d *drive) take(record Delivered) {
	crc := crc32.Update(crc32.ChecksumIEEE(record.Key), crc32.IEEETable, record.Value)
	d.batch = append(d.batch, [4]int64{int64(record.Partition), record.Offset, int64(crc), record.TimestampMs})
	if len(d.batch) == mostRecords {
		d.flush()
	}
	d.positions[record.Partition], d.delivered[record.Partition] = record.Offset+1, true
	if until, isOpen := d.until[record.Partition]; isOpen && record.Offset >= until {
		delete(d.until, record.Partition)
	}
	waiting := d.steps[record.Partition]
	d.steps[record.Partition] = nil
	for _, step := range waiting {
		if record.Offset < step.At[1] {
			d.steps[record.Partition] = append(d.steps[record.Partition], step)
		} else {
			d.flush()
			d.do(step)
		}
	}
}

func (d *drive) do(step Step) {
	switch step.Do {
	case "seek":
		d.positions[step.Partition], d.dropped[step.Partition] = step.To, true
		d.reader.Seek(step.Partition, step.To)
	case "pause":
		d.pause(step)
	case "assign":
		d.assign(step)
	case "sleep":
		time.Sleep(time.Duration(step.Ms) * time.Millisecond)
	case "commit":
		d.commit()
	}
}

func (d *drive) pause(step Step) {
	d.paused[step.Partition]++
	d.reader.Pause(step.Partition)
	d.after(step.Ms, func() {
		if d.paused[step.Partition]--; d.paused[step.Partition] == 0 {
			d.reader.Resume(step.Partition)
		}
	})
}

func (d *drive) assign(step Step) {
	few := map[int32]int64{}
	for _, partition := range step.Partitions {
		few[partition] = d.positions[partition]
	}
	for partition := range d.positions {
		if _, isKept := few[partition]; !isKept {
			d.dropped[partition] = true
		}
	}
	d.reader.Assign(few)
	d.assigned++
	which := d.assigned
	d.after(step.Ms, func() {
		if which == d.assigned { // a later step has not taken over
			d.reader.Assign(maps.Clone(d.positions))
		}
	})
}

func (d *drive) commit() {
	offsets := map[int32]int64{}
	for partition := range d.delivered {
		offsets[partition] = d.positions[partition]
	}
	if err := d.reader.Commit(offsets); err != nil {
		Hear(err)
		return
	}
	Say("committed", offsets)
}

func (d *drive) flush() {
	if len(d.batch) > 0 {
		Say("read", []any{time.Since(d.began).Milliseconds(), d.batch})
		d.batch = nil
	}
}

// Decode reads one value of the settings; a time.Duration is a number of milliseconds.
func Decode(data json.RawMessage, into any) error {
	duration, isDuration := into.(*time.Duration)
	if !isDuration {
		return json.Unmarshal(data, into)
	}
	var ms int64
	err := json.Unmarshal(data, &ms)
	*duration = time.Duration(ms) * time.Millisecond
	return err
}

// Configure sets fields of a library's configuration by their dotted names, such as "Consumer.Fetch.Default".
func Configure(config any, settings map[string]json.RawMessage) error {
	for name, value := range settings {
		field := reflect.ValueOf(config).Elem()
		for part := range strings.SplitSeq(name, ".") {
			if field = field.FieldByName(part); !field.IsValid() {
				return fmt.Errorf("no setting %s", name)
			}
		}
		if err := Decode(value, field.Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
