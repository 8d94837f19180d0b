package pattern

import (
	"fmt"
	"unicode/utf8"
)

// scan walks over the matches of one subject.
type scan struct {
	prog *program
	s    string
	m    *machine
	t    *table // of Lua patterns, once trying has taken too long
	from int    // where to look for the next match; behind the end of s when there is no more
	any  bool   // there was a match already
}

// start begins a walk at init. Call end when done.
func (p *program) start(subject string, init int) (scan, error) {
	if err := checkSubject(subject); err != nil {
		return scan{}, err
	}
	if p.checked && !utf8.ValidString(subject) {
		return scan{}, ErrUTF8
	}
	sc := scan{prog: p, s: subject, m: p.begin(subject), from: min(max(init, 0), len(subject))}
	if p.tabled {
		sc.m.steps = patience(subject)
	}
	return sc, nil
}

// patience is how many steps are tried before a table is made: about what it costs.
func patience(subject string) int { return 1024 + 4*len(subject) }

func (sc *scan) end() {
	if sc.m != nil {
		sc.m.end()
		sc.m = nil
	}
}

// next is the next match: from where the last one ended, or one further if that was empty. Its captures are written
// into dst.
func (sc *scan) next(dst []Capture) (m Match, ok bool, err error) {
	if sc.from > len(sc.s) || sc.any && sc.prog.anchor == atInit {
		return Match{}, false, nil
	}
	if sc.any {
		sc.m.forget(sc.from)
	}
	start, end, err := sc.search()
	if err != nil || start < 0 {
		sc.from = len(sc.s) + 1
		return Match{}, false, err
	}
	sc.any = true
	sc.from = end
	if start == end {
		sc.from += sc.width(end)
	}
	return Match{Start: start, End: end, Captures: sc.captures(dst)}, true, nil
}

// search finds the next match, by trying as long as that is the fastest way, then by a table.
func (sc *scan) search() (start, end int, err error) {
	if sc.t == nil {
		start, end, err = sc.m.search(sc.prog, sc.s, sc.from)
		if err == nil || !sc.prog.tabled {
			return start, end, err
		}
		sc.t = sc.prog.tabulate(sc.m, sc.s)
		sc.m.steps = MaxSteps
	}
	return sc.t.search(sc.m, sc.prog, sc.s, sc.from)
}

// width is how far to go on after an empty match.
func (sc *scan) width(pos int) int {
	if sc.prog.utf8 && pos < len(sc.s) {
		_, n := utf8.DecodeRuneInString(sc.s[pos:])
		return n
	}
	return 1
}

// captures appends to dst what the captures of the match hold, and forgets it.
func (sc *scan) captures(dst []Capture) []Capture {
	if n := len(sc.prog.captures); dst == nil && n > 0 {
		dst = make([]Capture, 0, n)
	}
	for i, position := range sc.prog.captures {
		c := Capture{Start: int(sc.m.slots[2*i]), End: int(sc.m.slots[2*i+1]), Position: position}
		if position {
			c.End = c.Start
		}
		if c.End < 0 {
			c.Start = -1
		}
		dst = append(dst, c)
	}
	for i := range sc.m.slots {
		sc.m.slots[i] = -1
	}
	return dst
}

// find is the first match from init on.
func (p *program) find(subject string, init int) (Match, bool, error) {
	sc, err := p.start(subject, init)
	if err != nil {
		return Match{}, false, err
	}
	defer sc.end()
	return sc.next(nil)
}

// Iterator hands out the matches of one subject, one after the other. It is not safe for concurrent use. All its
// matches together take as much time as one at worst.
type Iterator struct {
	scan scan
}

// Gmatch begins a walk over all matches, as string.gmatch: a ^ at the beginning of the pattern is a character here. The
// error is ErrSubject.
func (p *Pattern) Gmatch(subject string) (*Iterator, error) {
	sc, err := p.gmatch.start(subject, 0)
	if err != nil {
		return nil, err
	}
	return &Iterator{scan: sc}, nil
}

// Next is the next match. After the last one ok is false, ever after. The error is ErrWork.
func (it *Iterator) Next() (m Match, ok bool, err error) {
	if it.scan.m == nil {
		return Match{}, false, nil
	}
	m, ok, err = it.scan.next(nil)
	if !ok {
		it.Close()
	}
	return m, ok, err
}

// Close gives back what the iterator holds before its end. It may be called twice, or not at all.
func (it *Iterator) Close() {
	it.scan.end()
	it.scan.t = nil
}

// Size is the memory the iterator holds until its end, in bytes.
func (it *Iterator) Size() int {
	if it.scan.m == nil {
		return 0
	}
	n := it.scan.m.size()
	if t := it.scan.t; t != nil {
		n += t.size()
	}
	return n
}

// tooLong is the error of a result that grew beyond limit.
func tooLong(limit int) error {
	return fmt.Errorf("more than %d bytes: %w", limit, ErrResult)
}
