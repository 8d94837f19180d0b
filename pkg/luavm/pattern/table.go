package pattern

import "math/bits"

// table answers, for each instruction of a Lua pattern and each place of a subject, whether the pattern matches from
// there on. It is worked out from the last instruction to the first, 64 places at once: Lua's patterns have no branches
// but repetitions of one byte, so an instruction depends on the one after it alone. With it a match is found without
// trying anything in vain. It costs too much for most searches, which are over before it would be made: see patience.
//
// Places are counted from the end (the end itself is 0, place p of a subject of n bytes is n-p), so that what a
// repetition can reach spreads as the carry of an addition does.
type table struct {
	n       int
	rows    []row // of instructions, where it matters to a choice; else nil
	classes []row // of program.sets: which places hold a byte of the set
	bytes   int
}

// size is the memory the table holds, in bytes.
func (t *table) size() int { return t.bytes }

// row is a set of places, one bit each.
type row []uint64

func (r row) has(at int) bool { return r[at>>6]>>(at&63)&1 != 0 }

func (r row) add(at int) { r[at>>6] |= 1 << (at & 63) }

// below is the highest place in the row that is not above at, -1 if there is none. flip is 0, or all ones to look for
// places that are not in the row.
func (r row) below(at int, flip uint64) int {
	word := (r[at>>6] ^ flip) << (63 - at&63) >> (63 - at&63)
	for i := at >> 6; ; {
		if word != 0 {
			return i<<6 + 63 - bits.LeadingZeros64(word)
		}
		if i--; i < 0 {
			return -1
		}
		word = r[i] ^ flip
	}
}

// above is the lowest place in the row that is not below at, -1 if there is none.
func (r row) above(at int) int {
	word := r[at>>6] >> (at & 63) << (at & 63)
	for i := at >> 6; ; {
		if word != 0 {
			return i<<6 + bits.TrailingZeros64(word)
		}
		if i++; i == len(r) {
			return -1
		}
		word = r[i]
	}
}

// step makes r the places from which one byte of class leads into next.
func (r row) step(class, next row) {
	var carry uint64
	for i, word := range next {
		r[i] = class[i] & (word<<1 | carry)
		carry = word >> 63
	}
}

// flood makes r the places from which any number of bytes of class lead into next.
func (r row) flood(class, next row) {
	var high, carry uint64
	for i, word := range next {
		c := class[i]
		reached := c & (word<<1 | high) // by one byte; from there on up to where c has a gap
		high = word >> 63
		var sum uint64
		sum, carry = bits.Add64(c, reached, carry)
		r[i] = word | reached | (sum^c)&c
	}
}

// union makes r the places of a and b.
func (r row) union(a, b row) {
	for i := range r {
		r[i] = a[i] | b[i]
	}
}

// classRow is the places of s that hold a byte of the set.
func classRow(r row, set *set, s string) {
	var in [256]uint64
	for c := range 256 {
		in[c] = uint64(set[c>>5] >> (c & 31) & 1)
	}
	n := len(s)
	for i := range r { // places 64*i and up hold s[n-64*i] and down
		var word uint64
		first := n - i<<6
		for bit := range min(64, first+1) {
			if at := first - bit; at < n {
				word |= in[s[at]] << bit
			}
		}
		r[i] = word
	}
}

// frontier makes r the places of next where a byte outside set comes before, and one of the set after. class is that of
// the set, which lacks what counts as byte 0 at both ends.
func (r row) frontier(set *set, class, next row, n int) {
	for i := range r {
		before := class[i] >> 1
		if i+1 < len(class) {
			before |= class[i+1] << 63
		}
		after := class[i]
		if set.has(0) {
			if i == 0 {
				after |= 1
			}
			if i == n>>6 {
				before |= 1 << (n & 63)
			}
		}
		r[i] = after &^ before & next[i]
	}
}

// kept tells whether the row of instruction k is asked for by a choice, or by the search for a start.
func (p *program) kept(k int) bool {
	if k == 0 || k > 1 && p.insts[k-2].op == opSplit {
		return true
	}
	switch p.insts[k-1].op {
	case opStar, opLazy, opSplit:
		return true
	default:
		return false
	}
}

// tabulate makes the table. m holds the places where %b closes.
func (p *program) tabulate(m *machine, s string) *table {
	n, words := len(s), len(s)>>6+1
	last := len(p.insts) - 1
	t := &table{n: n, rows: make([]row, len(p.insts)), classes: make([]row, len(p.sets))}
	count := len(p.sets) + 3 // three to work with: the last row, and two in turn
	for k := range last {
		if p.kept(k) {
			count++
		}
	}
	arena := make([]uint64, count*words)
	t.bytes = 8 * (len(arena) + 3*len(t.rows) + 3*len(t.classes))
	fresh := func() row {
		r := arena[:words:words]
		arena = arena[words:]
		return r
	}
	for i, set := range p.sets {
		t.classes[i] = fresh()
		classRow(t.classes[i], set, s)
	}
	next := fresh()
	for place := range words {
		next[place] = ^uint64(0)
	}
	t.rows[last] = next
	spare, other := fresh(), fresh()
	for k := last - 1; k >= 0; k-- {
		keep := p.kept(k)
		if keep {
			t.rows[k] = fresh()
		} else {
			t.rows[k] = spare
			spare, other = other, spare
		}
		p.fill(t, m, s, k)
	}
	return t
}

// fill works out the row of instruction k from those after it.
func (p *program) fill(t *table, m *machine, s string, k int) {
	in, r := &p.insts[k], t.rows[k]
	next := t.rows[in.out]
	switch in.op {
	case opChar, opSet:
		r.step(t.classes[in.class], next)
	case opStar, opLazy:
		r.flood(t.classes[in.class], next)
	case opSplit:
		r.union(next, t.rows[in.arg])
	case opEnd:
		clear(r)
		r[0] = next[0] & 1
	case opFrontier:
		r.frontier(in.set, t.classes[in.class], next, t.n)
	case opBalance:
		clear(r)
		for pos := range s {
			if end := m.closing(p, int(in.arg), s, pos); end >= 0 && next.has(t.n-end) {
				r.add(t.n - pos)
			}
		}
	default: // opSave; the others are not in Lua patterns
		copy(r, next)
	}
}

// search is machine.search by the table.
func (t *table) search(m *machine, p *program, s string, from int) (start, end int, err error) {
	at := t.rows[0].below(t.n-from, 0)
	if at < 0 || p.anchor != anywhere && at != t.n-from {
		return -1, -1, nil
	}
	start = t.n - at
	for pc := 0; ; {
		if m.steps--; m.steps < 0 {
			return -1, -1, ErrWork
		}
		in := &p.insts[pc]
		pc = int(in.out)
		switch in.op {
		case opMatch:
			return start, t.n - at, nil
		case opChar, opSet:
			at--
		case opStar:
			m.steps--                                         // it looks through the table twice
			stop := t.classes[in.class].below(at, ^uint64(0)) // the first byte that is not of the class
			at = t.rows[pc].above(stop)
		case opLazy:
			at = t.rows[pc].below(at, 0)
		case opSplit:
			if !t.rows[pc].has(at) {
				pc = int(in.arg)
			}
		case opSave:
			m.slots[in.arg] = int32(t.n - at)
		case opBalance:
			at = t.n - m.closing(p, int(in.arg), s, t.n-at)
		default: // opEnd and opFrontier take nothing, and hold where the table says so
		}
	}
}
