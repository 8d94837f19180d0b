package stats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// format is the first byte of a marshalled Snapshot. Another format, or other buckets, need another number.
const format = 1

// maxTotal is how many attempts a marshalled Snapshot may tell of, so that sums of thousands do not overflow.
const maxTotal = uint64(1) << 50

var (
	errTruncated = errors.New("stats: a marshalled snapshot ends too early")
	errDamaged   = errors.New("stats: a marshalled snapshot is damaged")
)

// MarshalBinary gives s in a form that another replica can read: a format byte, From and To in nanoseconds
// since 1970, then for each count that is not zero the distance to the place of the one before, and the count; all varints.
func (s Snapshot) MarshalBinary() ([]byte, error) { return s.AppendBinary(nil) }

// AppendBinary is MarshalBinary behind b.
func (s Snapshot) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, format)
	b = binary.AppendVarint(b, nanos(s.From))
	b = binary.AppendVarint(b, nanos(s.To))
	if s.counts == nil {
		return b, nil
	}
	last := -1
	s.counts.each(func(o Outcome, bucket int, n uint64) bool {
		place := int(o)*buckets + bucket
		b = binary.AppendUvarint(b, uint64(place-last))
		b = binary.AppendUvarint(b, n)
		last = place
		return true
	})
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary wrote. It fails on anything else, and then s is as it was.
func (s *Snapshot) UnmarshalBinary(b []byte) error {
	if len(b) == 0 {
		return errTruncated
	}
	if b[0] != format {
		return fmt.Errorf("stats: snapshot of format %d, this build reads %d; let all replicas run the same version", b[0], format)
	}
	b = b[1:]
	var got Snapshot
	for _, at := range []*time.Time{&got.From, &got.To} {
		ns, n := binary.Varint(b)
		if n <= 0 {
			return errTruncated
		}
		b = b[n:]
		if ns != 0 {
			*at = time.Unix(0, ns)
		}
	}
	if err := got.readCounts(b); err != nil {
		return err
	}
	*s = got
	return nil
}

func (s *Snapshot) readCounts(b []byte) error {
	place, left := -1, maxTotal
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		if n <= 0 {
			return errTruncated
		}
		b = b[n:]
		count, n := binary.Uvarint(b)
		if n <= 0 {
			return errTruncated
		}
		b = b[n:]
		if step == 0 || step > uint64(int(outcomes)*buckets) || count == 0 || count > left {
			return errDamaged
		}
		left -= count
		place += int(step)
		if place >= int(outcomes)*buckets {
			return errDamaged
		}
		s.writable().add(Outcome(place/buckets), place%buckets, count)
	}
	return nil
}

// nanos is 0 for the zero time, which has no nanoseconds since 1970.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// nth is the value that would be at i if list were sorted. It sorts list.
func nth(list []int64, i int) int64 {
	slices.Sort(list)
	return list[i]
}
