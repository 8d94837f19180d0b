package pattern

import "fmt"

// compileLua translates a Lua pattern. With anchors a ^ at its beginning is one, else a character (as in gmatch).
func compileLua(lua string, anchors bool) (*program, error) {
	if len(lua) > MaxPattern {
		return nil, &Error{
			Pattern: lua, Problem: fmt.Sprintf("is %d bytes long", len(lua)),
			Remedy: fmt.Sprintf("a pattern may have %d bytes at most; to find a long text as it stands use string.find(s, text, 1, true)", MaxPattern),
		}
	}
	c := &luaCompiler{src: lua, prog: &program{tabled: true}, sets: make(map[set]uint16)}
	if anchors && lua != "" && lua[0] == '^' {
		c.prog.anchor = atInit
		c.at = 1
	}
	c.prog.insts = make([]inst, 0, min(len(lua)+1, 64))
	for c.at < len(lua) {
		if err := c.item(); err != nil {
			return nil, err
		}
	}
	if len(c.open) > 0 {
		at := c.opened[len(c.opened)-1]
		return nil, c.fail(at, at+1, "this capture is never closed", "write ) where it ends, or %( for the character")
	}
	c.emit(inst{op: opMatch})
	c.prog.finish()
	return c.prog, nil
}

// luaCompiler reads a pattern from left to right. Lua's patterns have no branches but repetitions of one byte, so each
// instruction goes on with the next.
type luaCompiler struct {
	src      string
	at       int
	prog     *program
	sets     map[set]uint16 // where in prog.sets; equal sets are kept once
	balances int
	open     []int // captures not closed yet, innermost last
	opened   []int // where they were opened
}

func (c *luaCompiler) fail(from, to int, problem, remedy string) error {
	return &Error{Pattern: c.src, Item: c.src[from:min(to, len(c.src))], Offset: from, Problem: problem, Remedy: remedy}
}

// emit adds an instruction that goes on with the one after it.
func (c *luaCompiler) emit(in inst) {
	in.out, in.memo = uint16(len(c.prog.insts)+1), noMemo
	c.prog.insts = append(c.prog.insts, in)
}

// item translates what stands at c.at: a single-byte class with its repetition, or one of the others.
func (c *luaCompiler) item() error {
	switch c.src[c.at] {
	case '(':
		return c.openCapture()
	case ')':
		return c.closeCapture()
	case '$':
		if c.at == len(c.src)-1 {
			c.at++
			c.emit(inst{op: opEnd})
			return nil
		}
	case '%':
		switch next := c.peek(1); {
		case next == 'b':
			return c.balance()
		case next == 'f':
			return c.frontier()
		case next >= '0' && next <= '9':
			return c.fail(c.at, c.at+2, "back-references are refused: they cannot be matched in bounded time", "capture the text twice, and compare the captures with ==")
		}
	}
	s, err := c.single()
	if err != nil {
		return err
	}
	c.repeat(s)
	return nil
}

// peek is the byte n after c.at, or -1 behind the end.
func (c *luaCompiler) peek(n int) int {
	if c.at+n >= len(c.src) {
		return -1
	}
	return int(c.src[c.at+n])
}

func (c *luaCompiler) openCapture() error {
	n := len(c.prog.captures)
	if n == MaxCaptures {
		return c.fail(c.at, c.at+1, fmt.Sprintf("a pattern may have %d captures at most", MaxCaptures), "match in two steps")
	}
	c.emit(inst{op: opSave, arg: uint16(2 * n)})
	if c.peek(1) == ')' {
		c.prog.captures = append(c.prog.captures, true)
		c.at += 2
		return nil
	}
	c.prog.captures = append(c.prog.captures, false)
	c.open, c.opened = append(c.open, n), append(c.opened, c.at)
	c.at++
	return nil
}

func (c *luaCompiler) closeCapture() error {
	last := len(c.open) - 1
	if last < 0 {
		return c.fail(c.at, c.at+1, "no capture is open here", "write %) for the character")
	}
	c.emit(inst{op: opSave, arg: uint16(2*c.open[last] + 1)})
	c.open, c.opened = c.open[:last], c.opened[:last]
	c.at++
	return nil
}

// balance translates %bxy.
func (c *luaCompiler) balance() error {
	if c.at+4 > len(c.src) {
		return c.fail(c.at, len(c.src), "%b needs two characters: what opens and what closes", "such as %b()")
	}
	pair := [2]byte{c.src[c.at+2], c.src[c.at+3]}
	n := 0
	for n < len(c.prog.pairs) && c.prog.pairs[n] != pair {
		n++
	}
	if n == len(c.prog.pairs) {
		if n == maxPairs {
			return c.fail(c.at, c.at+4, fmt.Sprintf("a pattern may have %d different pairs of %%b at most", maxPairs), "match in two steps")
		}
		c.prog.pairs = append(c.prog.pairs, pair)
	}
	if c.balances++; c.balances > maxBalances {
		return c.fail(c.at, c.at+4, fmt.Sprintf("a pattern may have %d times %%b at most", maxBalances), "match in two steps")
	}
	c.emit(inst{op: opBalance, arg: uint16(n)})
	c.at += 4
	return nil
}

// How often %b may be in one pattern, and with how many different pairs: a search keeps 8 KiB for each pair.
const (
	maxBalances = 32
	maxPairs    = 8
)

// frontier translates %f[set].
func (c *luaCompiler) frontier() error {
	if c.peek(2) != '[' {
		return c.fail(c.at, c.at+2, "%f needs a set", "such as %f[%w], which is where a word begins")
	}
	c.at += 2
	s, err := c.bracket()
	if err != nil {
		return err
	}
	class := c.intern(s)
	c.emit(inst{op: opFrontier, class: class, set: c.prog.sets[class]})
	return nil
}

// single reads a single-byte class: a character, ., %x or a set.
func (c *luaCompiler) single() (s set, err error) {
	switch ch := c.src[c.at]; ch {
	case '.':
		c.at++
		return full, nil
	case '[':
		return c.bracket()
	case '%':
		if c.at+1 == len(c.src) {
			return s, c.fail(c.at, c.at+1, "a pattern cannot end with %", "write %% for the character")
		}
		s = escaped(c.src[c.at+1])
		c.at += 2
	default:
		s.add(ch)
		c.at++
	}
	return s, nil
}

// escaped is what %ch stands for.
func escaped(ch byte) set {
	s, ok := class(ch)
	if !ok {
		s.add(ch)
	}
	return s
}

// bracket reads a set, from its [ to its ].
func (c *luaCompiler) bracket() (s set, err error) {
	end, err := c.bracketEnd()
	if err != nil {
		return s, err
	}
	at := c.at + 1
	negated := c.src[at] == '^'
	if negated {
		at++
	}
	for at < end {
		ch := c.src[at]
		switch {
		case ch == '%' && at+1 < end:
			class := escaped(c.src[at+1])
			s.addSet(&class)
			at += 2
		case at+2 < end && c.src[at+1] == '-':
			s.addRange(ch, c.src[at+2]) // whatever it is: [a-%a] goes from a to %, and has an a
			at += 3
		default:
			s.add(ch)
			at++
		}
	}
	c.at = end + 1
	if negated {
		s = s.complement()
	}
	return s, nil
}

// bracketEnd finds the ] of the set that begins at c.at: the first one that is neither escaped nor the set's first
// character. Lua looks for it before it looks at what is inside, so [a-%] has no end.
func (c *luaCompiler) bracketEnd() (int, error) {
	at := c.at + 1
	if at < len(c.src) && c.src[at] == '^' {
		at++
	}
	for first := true; at < len(c.src); first = false {
		switch {
		case c.src[at] == ']' && !first:
			return at, nil
		case c.src[at] == '%':
			at++
		}
		at++
	}
	return 0, c.fail(c.at, len(c.src), "this set is never closed", "write ] where it ends, or %[ for the character")
}

// repeat emits a single-byte class with the repetition that follows it.
func (c *luaCompiler) repeat(s set) {
	class := c.intern(s)
	loop := inst{class: class, set: c.prog.sets[class]}
	one := inst{op: opSet, class: class, set: loop.set}
	if ch, ok := s.single(); ok {
		one = inst{op: opChar, class: class, c: ch}
	}
	switch c.peek(0) {
	case '*':
		loop.op = opStar
		c.emit(loop)
	case '+':
		loop.op = opStar
		c.emit(one)
		c.emit(loop)
	case '-':
		loop.op = opLazy
		c.emit(loop)
	case '?':
		c.emit(inst{op: opSplit, arg: uint16(len(c.prog.insts) + 2)})
		c.emit(one)
	default:
		c.emit(one)
		return
	}
	c.at++
}

// intern gives the number of a set.
func (c *luaCompiler) intern(s set) uint16 {
	n, ok := c.sets[s]
	if !ok {
		n = uint16(len(c.prog.sets))
		c.sets[s] = n
		c.prog.sets = append(c.prog.sets, &s)
	}
	return n
}
