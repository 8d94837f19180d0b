package luavm

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What a script sees of its call. Nothing of it is built before it is asked for.
var (
	callProxy     = proxy(callIndex)
	headersProxy  = proxy(headersIndex)
	metadataProxy = proxy(metadataIndex)
	statsMeta     = indexed(statsIndex)
)

// materials are the tables that a walk over what looks like a table walks over.
var materials map[*lua.LTable]func(*run, *lua.LState) *lua.LTable

var callFuncs = map[string]lua.LGFunction{"hash": callHash, "split": callSplit, "sticky": callSticky, "stats": callStats}

func init() {
	materials = map[*lua.LTable]func(*run, *lua.LState) *lua.LTable{
		callProxy: (*run).callTable, headersProxy: (*run).headersTable, metadataProxy: (*run).metadataTable,
		varProxy: (*run).varTable,
	}
}

var callFields = []string{"caller", "headers", "metadata", "model", "params", "rows", "sequence", "user", "version"}

func callIndex(L *lua.LState) int {
	key, _ := L.Get(2).(lua.LString)
	L.Push(runOf(L).callField(string(key)))
	return 1
}

func (r *run) callField(key string) lua.LValue {
	switch key {
	case "user":
		return r.fact("call.user", r.in.User, r.in.User != "")
	case "model":
		return r.fact("call.model", r.in.Model, true)
	case "version":
		return r.fact("call.version", r.in.Version, r.in.Version != "")
	case "caller":
		return r.fact("call.caller", r.in.Caller, r.in.Caller != "")
	case "rows":
		return lua.LNumber(r.in.Rows)
	case "headers":
		return headersProxy
	case "metadata":
		return metadataProxy
	case "params":
		return r.paramsTable()
	case "sequence":
		return r.sequenceTable()
	}
	return lua.LNil
}

// fact makes a value of a string of the call. One that is not there, or too long to be handled, is nil.
func (r *run) fact(what, s string, there bool) lua.LValue {
	if !there || len(s) > maxString {
		r.missing = what
		return lua.LNil
	}
	r.given += len(s)
	if len(s) >= slowBytes {
		r.grow(len(s))
	}
	return lua.LString(s)
}

func headersIndex(L *lua.LState) int {
	r := runOf(L)
	key, _ := L.Get(2).(lua.LString)
	L.Push(r.header("call.headers.", string(key)))
	return 1
}

// header looks up a header, whatever case its name has and with - or _ in it. Several values are joined, as nginx does.
func (r *run) header(prefix, name string) lua.LValue {
	values := r.in.Headers[name]
	if values == nil && len(name) <= len(r.scratch) {
		for i := range len(name) {
			c := name[i]
			switch {
			case c == '_':
				c = '-'
			case 'A' <= c && c <= 'Z':
				c += 'a' - 'A'
			}
			r.scratch[i] = c
		}
		values = r.in.Headers[string(r.scratch[:len(name)])]
	}
	switch len(values) {
	case 0:
		r.missing = prefix + clip(name, 64)
		return lua.LNil
	case 1:
		return r.fact(prefix, values[0], true)
	}
	size := 0
	for _, v := range values {
		if size += len(v) + 2; size > maxString {
			r.missing = prefix + clip(name, 64)
			return lua.LNil
		}
	}
	r.given += size
	r.made(size)
	return lua.LString(strings.Join(values, ", "))
}

func metadataIndex(L *lua.LState) int {
	r := runOf(L)
	key, _ := L.Get(2).(lua.LString)
	v, ok := r.in.Metadata[string(key)]
	if !ok {
		r.missing = "call.metadata." + clip(string(key), 64)
	}
	L.Push(r.fact(r.missing, v, ok))
	return 1
}

// paramsTable gives the request's parameters, read once.
func (r *run) paramsTable() lua.LValue {
	if r.params != nil {
		return r.params
	}
	t := newTable()
	if r.in.Params != nil {
		params := r.in.Params()
		for _, name := range sorted(params) {
			r.put(t, name, r.param(params[name]))
		}
	}
	t.Metatable = readOnly
	r.params = t
	return t
}

func (r *run) param(v any) lua.LValue {
	switch v := v.(type) {
	case string:
		return r.fact("a parameter", v, true)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case uint64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case int:
		return lua.LNumber(v)
	}
	return lua.LNil
}

// maxListed is how many headers, parameters or keys of metadata a table of all of them has. A call with more is no mistake
// of the script's.
const maxListed = 1000

// sorted lists the keys of what a call has, in order.
func sorted[V any](m map[string]V) []string {
	names := slices.Sorted(maps.Keys(m))
	return names[:min(len(names), maxListed)]
}

// put adds an entry of the call's to a table.
func (r *run) put(t *lua.LTable, name string, v lua.LValue) {
	if v != lua.LNil && len(name) <= maxString {
		r.entry(1)
		r.given += len(name)
		r.spend(4)
		t.RawSetString(name, v)
	}
}

// sequenceTable gives the sequence that the call is part of, or nil.
func (r *run) sequenceTable() lua.LValue {
	if r.in.SequenceID == "" {
		r.missing = "call.sequence"
		return lua.LNil
	}
	if r.seq == nil {
		t := newTable()
		r.put(t, "id", r.fact("call.sequence.id", r.in.SequenceID, true))
		r.put(t, "start", lua.LBool(r.in.SequenceStart))
		t.Metatable = readOnly
		r.seq = t
	}
	return r.seq
}

func (r *run) callTable(*lua.LState) *lua.LTable {
	t := newTable()
	for _, name := range callFields {
		r.put(t, name, r.callField(name))
	}
	return t
}

func (r *run) headersTable(*lua.LState) *lua.LTable {
	t := newTable()
	for _, name := range sorted(r.in.Headers) {
		r.put(t, name, r.header("", name))
	}
	return t
}

func (r *run) metadataTable(*lua.LState) *lua.LTable {
	t := newTable()
	for _, name := range sorted(r.in.Metadata) {
		r.put(t, name, r.fact("", r.in.Metadata[name], true))
	}
	return t
}

// argKey is a key to be hashed. A call that does not have it ends the run.
func argKey(r *run, L *lua.LState, i int) string {
	v := L.Get(i)
	if v == lua.LNil {
		r.noKey()
	}
	s, ok := text(v)
	if !ok {
		L.RaiseError("a key to be hashed must be a string or a number, not a %s", v.Type())
	}
	r.work(len(s))
	return s
}

// argPlace is the place of a key in a split, 0 to 1<<32, by the salt at argument i or else the model's name.
func argPlace(r *run, L *lua.LState, i int) uint64 {
	return uint64(inference.Hash(argKey(r, L, 1), optText(L, i, r.in.Model)))
}

// callHash is hash(key, salt): 32 bits.
func callHash(L *lua.LState) int {
	r := runOf(L)
	return pushNumber(L, float64(inference.Hash(argKey(r, L, 1), optText(L, 2, ""))))
}

// callSticky is sticky(key, percent, salt): whether key is among the first percent.
func callSticky(L *lua.LState) int {
	r := runOf(L)
	percent := argNumber(L, 2)
	if math.IsNaN(percent) || percent < 0 || percent > 100 {
		argError(L, 2, "a percentage from 0 to 100 expected")
	}
	L.Push(lua.LBool(float64(argPlace(r, L, 3)) < percent/100*(1<<32)))
	return 1
}

// maxWeights is how many names a split may have.
const maxWeights = 64

type weight struct {
	name  string
	share float64
}

// callSplit is split(key, {name = weight, ...}, salt). See Script for how the names are laid out.
func callSplit(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 2)
	var room [8]weight
	weights := room[:0]
	next := lua.LNil
	for {
		k, v := t.Next(next)
		if k == lua.LNil {
			break
		}
		next = k
		name, ok := k.(lua.LString)
		share, isNumber := toNumber(v)
		if !ok || !isNumber || len(weights) > maxWeights {
			argError(L, 2, badWeights)
		}
		weights = append(weights, weight{string(name), share})
	}
	r.spend(1 + len(weights) + r.holes/slowHoles)
	total, problem := ordered(weights)
	if problem != "" {
		argError(L, 2, problem)
	}
	L.Push(lua.LString(pick(weights, total, argPlace(r, L, 3))))
	return 1
}

// splitOf is split(key, salt) with weights that stand in the source.
func splitOf(weights []weight, total float64) *lua.LFunction {
	values := make([]lua.LValue, len(weights)) // made once instead of in each run
	for i, w := range weights {
		values[i] = lua.LString(w.name)
	}
	return function(func(L *lua.LState) int {
		name := pick(weights, total, argPlace(runOf(L), L, 2))
		for i := range weights {
			if weights[i].name == name {
				L.Push(values[i])
			}
		}
		return 1
	})
}

const badWeights = "up to 64 names with weights of 0 or more expected, such as {model_v1 = 90, model_v2 = 10}"

// ordered sorts weights by name and sums them up, or says what is wrong with them.
func ordered(weights []weight) (total float64, problem string) {
	for _, w := range weights {
		if !(w.share >= 0) || math.IsInf(w.share, 0) {
			return 0, badWeights
		}
		total += w.share
	}
	switch {
	case len(weights) > maxWeights:
		return 0, badWeights
	case !(total > 0) || math.IsInf(total, 0):
		return 0, "weights that make up more than 0 expected"
	}
	slices.SortFunc(weights, func(a, b weight) int { return cmp.Compare(a.name, b.name) })
	return total, ""
}

// pick gives whose part of all places a place is in, as inference.Spans lays them out with the first as the rest: the
// second from the lowest place up, the third from the highest down, the fourth behind the second. So a weight that grows
// takes users from the first name only, as long as there are three at most.
func pick(weights []weight, total float64, place uint64) string {
	const all = 1 << 32
	low, high, up := uint64(0), uint64(all), true
	for _, w := range weights[1:] {
		width := min(uint64(math.Round(w.share/total*all)), high-low)
		switch {
		case up && place < low+width && place >= low, !up && place >= high-width && place < high:
			return w.name
		case up:
			low += width
		default:
			high -= width
		}
		up = !up
	}
	return weights[0].name
}

// callStats is stats(target).
func callStats(L *lua.LState) int {
	r := runOf(L)
	name := argText(L, 1)
	if r.in.Stats != nil {
		if s, ok := r.in.Stats(name); ok {
			L.Push(&lua.LUserData{Value: &s, Metatable: statsMeta})
			return 1
		}
	}
	L.Push(lua.LNil)
	return 1
}

func statsIndex(L *lua.LState) int {
	s := L.Get(1).(*lua.LUserData).Value.(*Stats)
	key, _ := L.Get(2).(lua.LString)
	ms := func(d time.Duration) int { return pushNumber(L, float64(d)/float64(time.Millisecond)) }
	switch key {
	case "calls":
		return pushNumber(L, float64(s.Calls))
	case "errors":
		return pushNumber(L, float64(s.Errors))
	case "error_rate":
		return pushNumber(L, s.ErrorRate)
	case "p50":
		return ms(s.P50)
	case "p99":
		return ms(s.P99)
	case "p999":
		return ms(s.P999)
	}
	L.Push(lua.LNil)
	return 1
}
