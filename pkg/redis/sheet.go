package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	goredis "github.com/redis/go-redis/v9"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// sheet is one call of draw.lua for the questions that are on it. It is used again and again, by one goroutine at a
// time, and then makes no garbage but the library's.
type sheet struct {
	prefix string // of keys
	oneTag bool   // all keys must have one tag: in a cluster they live in one slot

	tag       string
	places    map[string]int // of keys without their prefix
	rates     []inference.Rate
	keys      [maxKeys]blob
	text      blob // what keys are parts of
	questions []*question
	draws     int

	args         []any
	fills, calls blob
	cmd          *goredis.Cmd
}

const (
	// maxKeys of one call of the script: Redis does nothing else meanwhile.
	maxKeys = 256
	// beforeKeys is how many arguments come before the keys.
	beforeKeys = 3
)

// blob is an argument whose bytes need not be made a string first. The library takes it by these methods.
type blob []byte

func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }
func (b *blob) String() string                 { return string(*b) }

func newSheet(prefix string, oneTag bool) *sheet {
	return &sheet{prefix: prefix, oneTag: oneTag, places: make(map[string]int, maxKeys)}
}

func (s *sheet) clear() {
	clear(s.places)
	clear(s.questions)
	clear(s.args)
	s.rates, s.text, s.questions, s.draws = s.rates[:0], s.text[:0], s.questions[:0], 0
	s.args, s.fills, s.calls, s.cmd, s.tag = s.args[:0], s.fills[:0], s.calls[:0], nil, ""
}

// add puts q on the sheet, if there is room, its keys may be asked for together with the others, and no other question
// says that a bucket of its has another rate, as it may while the configuration changes. A new sheet takes any question.
func (s *sheet) add(q *question) bool {
	if len(s.rates)+len(q.draws) > maxKeys {
		return false
	}
	if s.oneTag {
		switch tag := limit.Tag(q.draws[0].Key); {
		case len(s.questions) == 0:
			s.tag = tag
		case tag != s.tag:
			return false
		}
	}
	known, begun := len(s.rates), len(s.calls)
	s.calls = append(s.calls, q.mode, byte(len(q.draws)))
	for i := range q.draws {
		d := &q.draws[i]
		place, ok := s.places[d.Key]
		if !ok {
			place = s.addKey(d)
		} else if s.rates[place] != d.Rate {
			s.forget(known)
			s.calls = s.calls[:begun]
			return false
		}
		var shadow byte
		if d.Shadow {
			shadow = 1
		}
		s.calls = binary.LittleEndian.AppendUint16(s.calls, uint16(place))
		s.calls = append(s.calls, shadow)
		s.calls = binary.LittleEndian.AppendUint64(s.calls, math.Float64bits(d.Cost))
	}
	s.questions = append(s.questions, q)
	s.draws += len(q.draws)
	return true
}

func (s *sheet) addKey(d *limit.Draw) (place int) {
	place = len(s.rates)
	s.places[d.Key] = place
	s.rates = append(s.rates, d.Rate)
	begin := len(s.text)
	s.text = append(append(s.text, s.prefix...), d.Key...)
	s.keys[place] = s.text[begin:]
	return place
}

// forget takes back the keys from the known ones on.
func (s *sheet) forget(known int) {
	for key, place := range s.places {
		if place >= known {
			delete(s.places, key)
		}
	}
	s.rates = s.rates[:known]
}

// command is the call of the script: by its hash, or with its text where Redis does not know it.
func (s *sheet) command(ctx context.Context, name, script string) *goredis.Cmd {
	s.fills = s.fills[:0]
	for _, r := range s.rates {
		s.fills = binary.LittleEndian.AppendUint64(s.fills, math.Float64bits(r.PerSecond))
		s.fills = binary.LittleEndian.AppendUint64(s.fills, math.Float64bits(r.Burst))
	}
	s.args = append(s.args[:0], name, script, len(s.rates))
	for i := range s.rates {
		s.args = append(s.args, &s.keys[i])
	}
	s.args = append(s.args, &s.fills, &s.calls)
	s.cmd = goredis.NewCmd(ctx, s.args...)
	s.cmd.SetFirstKeyPos(beforeKeys)
	return s.cmd
}

// answer reads what the script said into the questions.
func (s *sheet) answer() error {
	text, err := s.cmd.Text()
	if err == nil && len(text) != 8*s.draws {
		err = fmt.Errorf("%d bytes for %d buckets; is the prefix shared with something else?", len(text), s.draws)
	}
	if err != nil {
		for _, q := range s.questions {
			q.failed = err
		}
		return err
	}
	for _, q := range s.questions {
		for range q.draws {
			q.held = append(q.held, math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[:8]))))
			text = text[8:]
		}
	}
	return nil
}
