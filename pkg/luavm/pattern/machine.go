package pattern

import (
	"regexp/syntax"
	"strings"
	"sync"
	"unicode/utf8"
)

// machine is the state of a search: where it was in vain, and what it has still to try. It notes each pair of an
// instruction and a place in the subject from which no match was found, so that none is tried twice. Whether a match
// is found from there does not depend on how one came there (there are no back-references), so the notes hold for
// later starts too, and for later matches in the same subject.
type machine struct {
	memo   []uint64 // rows of one bit a place
	stride int      // words in a row
	jobs   []job
	slots  []int32 // captured places, -1 for none
	closes [][]uint16
	steps  int // steps that are left
}

// job is something to try if what is being tried does not match. Places fit into 16 bits: see MaxSubject.
type job struct {
	kind jobKind
	pc   uint16
	pos  uint16
	lo   uint16
}

type jobKind uint8

const (
	jobGo      jobKind = iota // go on with pc at pos
	jobStar                   // what follows the opStar at pc at pos, then at the places before it down to lo
	jobLazy                   // take one byte more for the opLazy at pc
	jobRestore                // slot pc was pos (nowhere: none)
)

const nowhere = 0xffff

// maxJobs is how much may be left to try at a time; more is more work than is done. It bounds a machine to 0.5 MiB, beside
// the memo that takes as much at most.
const maxJobs = 1 << 16

var machines = sync.Pool{New: func() any { return &machine{jobs: make([]job, 0, 256)} }}

// begin takes a machine for one subject.
func (p *program) begin(subject string) *machine {
	m := machines.Get().(*machine)
	m.steps = MaxSteps
	m.stride = (len(subject) + 64) >> 6
	if words := p.rows * m.stride; words <= cap(m.memo) {
		m.memo = m.memo[:words]
		clear(m.memo)
	} else {
		m.memo = make([]uint64, words)
	}
	m.slots = m.slots[:0]
	for range 2 * len(p.captures) {
		m.slots = append(m.slots, -1)
	}
	if cap(m.closes) < len(p.pairs) {
		m.closes = make([][]uint16, len(p.pairs))
	}
	m.closes = m.closes[:len(p.pairs)]
	for i := range m.closes {
		m.closes[i] = m.closes[i][:0]
	}
	return m
}

// end gives the machine back.
func (m *machine) end() {
	machines.Put(m)
}

// size is the memory the machine holds, in bytes.
func (m *machine) size() int {
	n := 8*cap(m.memo) + 8*cap(m.jobs) + 4*cap(m.slots)
	for _, c := range m.closes {
		n += 2 * cap(c)
	}
	return n
}

// forget drops the notes of one place. A match that ended there came through it; of all later places the notes are of
// failures only, and earlier ones are never asked for again.
func (m *machine) forget(pos int) {
	bit := uint64(1) << (pos & 63)
	for i := pos >> 6; i < len(m.memo); i += m.stride {
		m.memo[i] &^= bit
	}
}

// note tells whether row was tried at pos before, and notes that it is now.
func (m *machine) note(row int16, pos int) bool {
	word := &m.memo[int(row)*m.stride+pos>>6]
	bit := uint64(1) << (pos & 63)
	tried := *word&bit != 0
	*word |= bit
	return tried
}

// search looks for the first match that starts at from or later. start is -1 if there is none.
func (m *machine) search(p *program, s string, from int) (start, end int, err error) {
	for start := from; start <= len(s); start++ {
		if p.anchor == anywhere {
			start = p.skip(s, start)
			if start < 0 {
				break
			}
		}
		end, err := m.match(p, s, start)
		if err != nil || end >= 0 {
			return start, end, err
		}
		if p.anchor != anywhere {
			break
		}
	}
	return -1, -1, nil
}

// skip is the first place from start on where a match can start, -1 if there is none.
func (p *program) skip(s string, start int) int {
	switch {
	case p.firstC >= 0:
		i := strings.IndexByte(s[start:], byte(p.firstC))
		if i < 0 {
			return -1
		}
		return start + i
	case p.first != nil:
		for ; start < len(s); start++ {
			if p.first.has(s[start]) {
				return start
			}
		}
		return -1
	case p.utf8:
		for start < len(s) && !utf8.RuneStart(s[start]) {
			start++
		}
	}
	return start
}

// match tries to match at start. end is -1 if it does not.
func (m *machine) match(p *program, s string, start int) (end int, err error) {
	m.jobs = append(m.jobs[:0], job{kind: jobGo, pc: p.entry, pos: uint16(start)})
	for len(m.jobs) > 0 && m.steps >= 0 {
		pc, pos, ok := m.next(p, s)
		if !ok {
			continue
		}
		if end := m.follow(p, s, pc, pos); end >= 0 {
			return end, nil
		}
	}
	if m.steps < 0 {
		return -1, ErrWork
	}
	return -1, nil
}

// next takes the newest job. ok is false if it leads nowhere.
func (m *machine) next(p *program, s string) (pc, pos int, ok bool) {
	last := len(m.jobs) - 1
	j := &m.jobs[last]
	m.steps--
	pc, pos = int(j.pc), int(j.pos)
	switch j.kind {
	case jobGo:
		m.jobs = m.jobs[:last]
		return pc, pos, true

	case jobLazy:
		m.jobs = m.jobs[:last]
		return pc, pos + 1, pos < len(s) && p.insts[pc].set.has(s[pos])

	case jobStar:
		in, lo := &p.insts[pc], int(j.lo)
		if in.need {
			i := strings.LastIndexByte(s[lo:min(pos+1, len(s))], in.c)
			m.steps -= (pos - lo) >> 3
			if i < 0 {
				m.jobs = m.jobs[:last]
				return 0, 0, false
			}
			pos = lo + i
		}
		if pos > lo {
			j.pos = uint16(pos - 1)
		} else {
			m.jobs = m.jobs[:last]
		}
		return int(in.out), pos, true

	case jobRestore:
		m.slots[pc] = int32(pos)
		if pos == nowhere {
			m.slots[pc] = -1
		}
		m.jobs = m.jobs[:last]
	}
	return 0, 0, false
}

// follow runs instructions from pc at pos until one fails (-1) or the pattern has matched. What else could be tried
// becomes a job. It stops when the steps are used up, too.
func (m *machine) follow(p *program, s string, pc, pos int) (end int) {
	for {
		if m.steps--; m.steps < 0 || len(m.jobs) >= maxJobs {
			m.steps = -1
			return -1
		}
		in := &p.insts[pc]
		if in.memo != noMemo && m.note(in.memo, pos) {
			return -1
		}
		self := uint16(pc)
		pc = int(in.out)
		switch in.op {
		case opMatch:
			return pos
		case opChar:
			if pos >= len(s) || s[pos] != in.c {
				return -1
			}
			pos++
		case opSet:
			if pos >= len(s) || !in.set.has(s[pos]) {
				return -1
			}
			pos++
		case opStar:
			hi := m.run(in, s, pos)
			m.jobs = append(m.jobs, job{kind: jobStar, pc: self, pos: uint16(hi), lo: uint16(pos)})
			return -1
		case opLazy:
			if pos = m.approach(in, s, pos); pos < 0 {
				return -1
			}
			m.jobs = append(m.jobs, job{kind: jobLazy, pc: self, pos: uint16(pos)})
		case opSplit:
			if other := &p.insts[in.arg]; other.op != opChar || pos < len(s) && s[pos] == other.c {
				m.jobs = append(m.jobs, job{kind: jobGo, pc: in.arg, pos: uint16(pos)})
			}
		case opSave:
			if p.restore {
				m.jobs = append(m.jobs, job{kind: jobRestore, pc: in.arg, pos: uint16(m.slots[in.arg])}) // -1 becomes nowhere
			}
			m.slots[in.arg] = int32(pos)
		default:
			if pos = m.rare(p, in, s, pos); pos < 0 {
				return -1
			}
		}
	}
}

// run is how far an opStar gets from pos. It stops early where it was before: from there on nothing matches.
func (m *machine) run(in *inst, s string, pos int) int {
	from := pos
	for pos < len(s) && in.set.has(s[pos]) && (in.memo == noMemo || !m.note(in.memo, pos+1)) {
		pos++
	}
	m.steps -= pos - from
	return pos
}

// approach takes bytes for an opLazy until the one that must follow comes, if there is such a one; -1 if it does not.
func (m *machine) approach(in *inst, s string, pos int) int {
	if !in.need {
		return pos
	}
	from := pos
	for pos < len(s) && s[pos] != in.c {
		if !in.set.has(s[pos]) || in.memo != noMemo && m.note(in.memo, pos+1) {
			pos = len(s)
			break
		}
		pos++
	}
	m.steps -= pos - from
	if pos >= len(s) {
		return -1
	}
	return pos
}

// rare runs the instructions that are not in every pattern. It gives the place after it, -1 if it fails.
func (m *machine) rare(p *program, in *inst, s string, pos int) int {
	ok := false
	switch in.op {
	case opRune:
		return in.character(s, pos)
	case opBalance:
		return m.closing(p, int(in.arg), s, pos)
	case opEnd:
		ok = pos == len(s)
	case opDollar:
		ok = pos == len(s) || pos == len(s)-1 && s[pos] == '\n'
	case opAssert:
		ok = in.empty&^assertions(s, pos) == 0
		if in.empty&syntax.EmptyBeginLine != 0 && pos == len(s) && pos > 0 {
			ok = false // in PCRE no line begins behind the last line feed
		}
	case opFrontier:
		var before, after byte
		if pos > 0 {
			before = s[pos-1]
		}
		if pos < len(s) {
			after = s[pos]
		}
		ok = !in.set.has(before) && in.set.has(after)
	default: // opFail; the others are in follow
	}
	if !ok {
		return -1
	}
	return pos
}

// character takes one UTF-8 character. What is none counts as U+FFFD, one byte wide.
func (in *inst) character(s string, pos int) int {
	if pos >= len(s) {
		return -1
	}
	if c := s[pos]; c < utf8.RuneSelf {
		if in.set.has(c) {
			return pos + 1
		}
		return -1
	}
	r, width := utf8.DecodeRuneInString(s[pos:])
	if !in.rune.MatchRune(r) {
		return -1
	}
	return pos + width
}

// closing is the place behind the byte that closes what opens at pos, for pair number n; -1 if nothing opens there, or
// it is never closed. All places are worked out at once when the first is asked for: searching from each of them alone
// would take quadratic time on a subject that only opens.
func (m *machine) closing(p *program, n int, s string, pos int) int {
	if len(m.closes[n]) == 0 {
		m.closes[n] = pairUp(m.closes[n], s, p.pairs[n])
		m.steps -= len(s)
	}
	if c := m.closes[n][pos]; c != nowhere {
		return int(c)
	}
	return -1
}

// pairUp writes into dst, for each place of s, the place behind the closing byte, or nowhere.
func pairUp(dst []uint16, s string, pair [2]byte) []uint16 {
	for range len(s) + 1 {
		dst = append(dst, nowhere)
	}
	if pair[0] == pair[1] { // as in Lua the next one closes
		last := -1
		for i := range len(s) {
			if s[i] == pair[0] {
				if last >= 0 {
					dst[last] = uint16(i + 1)
				}
				last = i
			}
		}
		return dst
	}
	open := -1 // the innermost place still open; dst holds the one around it for as long
	for i := range len(s) {
		switch {
		case s[i] == pair[0]:
			dst[i] = uint16(open) // -1 becomes nowhere
			open = i
		case s[i] == pair[1] && open >= 0:
			around := int(int16(dst[open]))
			dst[open] = uint16(i + 1)
			open = around
		}
	}
	for open >= 0 {
		around := int(int16(dst[open]))
		dst[open] = nowhere
		open = around
	}
	return dst
}

// assertions tells what holds at pos. Words are of ASCII letters, digits and _, whatever the options.
func assertions(s string, pos int) syntax.EmptyOp {
	before, after := rune(-1), rune(-1)
	if pos > 0 {
		before = rune(s[pos-1])
	}
	if pos < len(s) {
		after = rune(s[pos])
	}
	return syntax.EmptyOpContext(before, after)
}
