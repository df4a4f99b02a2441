package talk

import (
	"context"
	"reflect"
)

const bufferedRecords = 100

// Streams is a Reader of a library that has one consumer for each partition.
type Streams struct {
	// Read sends a partition's records from the offset on until ctx is done; it runs in a goroutine of its own.
	Read func(ctx context.Context, partition int32, from int64, to chan<- Delivered)
	// SetPaused pauses or resumes the library's consumer; nil where it only stops when nobody takes its records.
	SetPaused func(partition int32, isPaused bool)
	// DoCommit commits offsets.
	DoCommit func(offsets map[int32]int64) error

	streams map[int32]*stream
	ended   map[int32]<-chan struct{} // by partition, when its last stream has ended
	paused  map[int32]bool
	errors  chan error
}

type stream struct {
	records chan Delivered
	stop    context.CancelFunc
}

// Start makes the Streams ready for one Drive.
func (s *Streams) Start() *Streams {
	s.streams, s.ended, s.paused = map[int32]*stream{}, map[int32]<-chan struct{}{}, map[int32]bool{}
	s.errors = make(chan error)
	return s
}

// Fail reports an error that Read has met and overcomes.
func (s *Streams) Fail(ctx context.Context, err error) {
	select {
	case s.errors <- err:
	case <-ctx.Done():
	}
}

// Stop ends all streams, and returns when they have ended.
func (s *Streams) Stop() {
	s.Assign(nil)
	for _, ended := range s.ended {
		<-ended
	}
}

func (s *Streams) Assign(offsets map[int32]int64) {
	for partition := range s.streams {
		if _, isKept := offsets[partition]; !isKept {
			s.end(partition)
		}
	}
	for partition, offset := range offsets {
		if s.streams[partition] == nil {
			s.begin(partition, offset)
		}
	}
}

func (s *Streams) Seek(partition int32, offset int64) {
	s.end(partition)
	s.begin(partition, offset)
}

func (s *Streams) Pause(partition int32)  { s.setPaused(partition, true) }
func (s *Streams) Resume(partition int32) { s.setPaused(partition, false) }

func (s *Streams) setPaused(partition int32, isPaused bool) {
	s.paused[partition] = isPaused
	if s.SetPaused != nil {
		s.SetPaused(partition, isPaused)
	}
}

func (s *Streams) Commit(offsets map[int32]int64) error { return s.DoCommit(offsets) }

func (s *Streams) end(partition int32) {
	s.streams[partition].stop()
	delete(s.streams, partition)
}

func (s *Streams) begin(partition int32, from int64) {
	ctx, stop := context.WithCancel(context.Background())
	began, before, ended := &stream{make(chan Delivered, bufferedRecords), stop}, s.ended[partition], make(chan struct{})
	s.streams[partition], s.ended[partition] = began, ended
	go func() {
		defer close(ended)
		if before != nil {
			<-before // libraries refuse a second consumer of a partition
		}
		if ctx.Err() == nil {
			s.Read(ctx, partition, from, began.records)
		}
	}()
}

func (s *Streams) Poll(ctx context.Context) []Delivered {
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.errors)},
	}
	streams := []*stream{nil, nil}
	for partition, each := range s.streams {
		if !s.paused[partition] {
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(each.records)})
			streams = append(streams, each)
		}
	}
	chosen, value, _ := reflect.Select(cases)
	switch chosen {
	case 0:
		return nil
	case 1:
		Hear(value.Interface().(error))
		return nil
	}
	records := []Delivered{value.Interface().(Delivered)}
	for {
		select {
		case record := <-streams[chosen].records:
			records = append(records, record)
			if len(records) < mostRecords {
				continue
			}
		default:
		}
		return records
	}
}
