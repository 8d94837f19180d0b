package pattern

import (
	"regexp/syntax"
	"unsafe"
)

// op is what an instruction does.
type op uint8

const (
	opFail     op = iota
	opMatch       // the end: the subject matched up to here
	opChar        // one byte c
	opSet         // one byte of set
	opRune        // one UTF-8 character: below 128 of set, else as rune says
	opStar        // bytes of set, as many as possible, one fewer whenever the rest does not match
	opLazy        // bytes of set, as few as possible
	opSplit       // out, and if that does not match, arg
	opSave        // remember where we are in slot arg
	opEnd         // only at the end of the subject
	opDollar      // only at the end of the subject, or before a line feed that ends it
	opAssert      // only where all of empty hold
	opFrontier    // only between a byte outside set and one in it; the ends count as byte 0 (Lua's %f)
	opBalance     // from an opening byte to the one that closes it; pair number arg (Lua's %b)
)

// inst is one instruction.
type inst struct {
	op    op
	c     byte // opChar: the byte. opStar, opLazy with need: the byte that must follow
	need  bool
	empty syntax.EmptyOp
	memo  int16 // row of the memo in which places are noted where this instruction was tried; -1: not noted
	out   uint16
	arg   uint16
	class uint16 // of Lua patterns: the place of set in program.sets; opChar has one too
	set   *set
	rune  *syntax.Inst
}

// noMemo marks instructions that are reached in one way only: whoever led there is noted, that is enough.
const noMemo = -1

// anchoring says where a match may start.
type anchoring uint8

const (
	anywhere anchoring = iota
	atInit             // only where the search starts, and of many matches only the first: Lua's ^
	atFrom             // only where the search starts, or the match before it ended: option "a" of ngx.re
)

// program is a compiled pattern.
type program struct {
	insts    []inst
	entry    uint16 // the instruction to start with
	captures []bool // which of the captures are position captures
	pairs    [][2]byte
	sets     []*set // of Lua patterns: all that occur
	rows     int    // rows of the memo; 0 for Lua patterns, which have a table instead
	anchor   anchoring
	tabled   bool // a Lua pattern: see table
	restore  bool // captures lie on branches: leaving a branch takes back what it captured
	utf8     bool // matches start only at the start of characters
	checked  bool // the subject must be UTF-8
	first    *set // bytes a match can start with; nil: any, or none
	firstC   int  // the one byte a match starts with; -1: it is not one only
}

// size estimates the memory of a program, in bytes.
func (p *program) size() int {
	n := int(unsafe.Sizeof(*p)) + 8*len(p.sets) + len(p.insts)*int(unsafe.Sizeof(inst{})) + len(p.captures) + 2*len(p.pairs)
	seen := make(map[*set]bool)
	for i := range p.insts {
		if in := &p.insts[i]; in.set != nil && !seen[in.set] {
			seen[in.set] = true
			n += int(unsafe.Sizeof(set{}))
		}
		if in := &p.insts[i]; in.rune != nil {
			n += int(unsafe.Sizeof(syntax.Inst{})) + 4*cap(in.rune.Rune)
		}
	}
	return n
}

// finish completes a program of which all instructions are there.
func (p *program) finish() {
	for i := range p.insts {
		in := &p.insts[i]
		if in.op == opStar || in.op == opLazy {
			if next := &p.insts[in.out]; next.op == opChar {
				in.c, in.need = next.c, true
			}
		}
	}
	p.firstC = -1
	var first set
	if p.addFirst(&first, p.entry, make([]bool, len(p.insts))) {
		p.first = &first
		if c, ok := first.single(); ok {
			p.firstC = int(c)
		}
	}
}

// fuseLoops turns repetitions of one byte that are written as split and byte (regexp/syntax does) into one instruction.
func (p *program) fuseLoops() {
	for i := range p.insts {
		split := &p.insts[i]
		if split.op != opSplit {
			continue
		}
		if body := &p.insts[split.out]; body.isByte() && int(body.out) == i {
			*split = inst{op: opStar, set: body.bytes(), out: split.arg}
		} else if body := &p.insts[split.arg]; body.isByte() && int(body.out) == i {
			*split = inst{op: opLazy, set: body.bytes(), out: split.out}
		}
	}
}

func (in *inst) isByte() bool { return in.op == opChar || in.op == opSet }

// bytes is the set of bytes that a byte instruction takes.
func (in *inst) bytes() *set {
	if in.op == opSet {
		return in.set
	}
	s := new(set)
	s.add(in.c)
	return s
}

// chooseRows gives rows of the memo to choices and to instructions that more than one way leads to. Any other
// instruction is run at most once for each time that the one before it is, so that a search takes at most
// instructions × places steps.
func (p *program) chooseRows() {
	ways := make([]int, len(p.insts))
	ways[p.entry] = 1
	for i := range p.insts {
		in := &p.insts[i]
		switch in.op {
		case opFail, opMatch:
			continue
		case opSplit:
			ways[in.arg]++
		default:
		}
		ways[in.out]++
	}
	for i := range p.insts {
		in := &p.insts[i]
		switch {
		case in.op == opFail || in.op == opMatch:
		case in.op == opSplit || in.op == opStar || in.op == opLazy || ways[i] > 1:
			in.memo = int16(p.rows)
			p.rows++
		}
	}
}

// addFirst adds to first the bytes that a match from instruction pc can start with. It is false if that cannot be told,
// or the match can be empty.
func (p *program) addFirst(first *set, pc uint16, seen []bool) bool {
	for !seen[pc] {
		seen[pc] = true
		in := &p.insts[pc]
		switch in.op {
		case opFail:
			return true
		case opMatch, opRune:
			return false
		case opChar:
			first.add(in.c)
			return true
		case opSet:
			first.addSet(in.set)
			return true
		case opBalance:
			first.add(p.pairs[in.arg][0])
			return true
		case opStar, opLazy:
			first.addSet(in.set)
		case opSplit:
			if !p.addFirst(first, in.arg, seen) {
				return false
			}
		case opSave, opEnd, opDollar, opAssert, opFrontier:
			// They take nothing: what follows decides.
		}
		pc = in.out
	}
	return true
}
