package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

const (
	noCode   = "a rule is one file; write the code into it"
	noIO     = "a rule does no input or output"
	noAnswer = "a rule only decides: return a target's name, or nil for no opinion"
	noState  = "nothing is kept between calls; what must stay the same for a user comes from hash(key, salt), sticky or split"
)

// removed holds what Lua or OpenResty have and a rule does not, and what to use instead.
var removed = map[string]string{
	"load": noCode, "loadstring": noCode, "loadfile": noCode, "dofile": noCode, "require": noCode, "module": noCode, "package": noCode,
	"io": noIO, "os": "the time is ngx.time() in seconds, ngx.now() with milliseconds, or ngx.utctime() as text",
	"print": "use ngx.log(ngx.INFO, ...)", "debug": "use ngx.log(ngx.INFO, ...)",
	"coroutine": "a rule decides at once; use functions", "collectgarbage": "memory is freed by itself", "newproxy": "use a table",
	"getfenv": "use local variables", "setfenv": "use local variables", "string.dump": noCode,
	"math.randomseed": "random numbers are seeded by themselves; what must stay the same for a user comes from hash(key, salt)",
	"bit":             "compute with %, math.floor and powers of 2", "jit": "leave it out",

	"ngx.say": noAnswer, "ngx.print": noAnswer, "ngx.exit": noAnswer, "ngx.exec": noAnswer, "ngx.redirect": noAnswer,
	"ngx.status": noAnswer, "ngx.header": noAnswer, "ngx.resp": noAnswer, "ngx.eof": noAnswer, "ngx.flush": noAnswer,
	"ngx.location": noIO, "ngx.socket": noIO, "ngx.timer": noIO, "ngx.thread": noIO, "ngx.sleep": "a rule decides at once",
	"ngx.shared": noState, "ngx.ctx": noState, "ngx.worker": noState,
	"ngx.req.read_body": "a rule sees no tensors; use call.params, call.metadata or headers", "ngx.req.get_body_data": "a rule sees no tensors; use call.params, call.metadata or headers",
	"ngx.req.set_header": "use set_headers of the configuration", "ngx.req.get_post_args": "use call.params",
}

// unknownField reports whether path names a field that a table of the library does not have.
func unknownField(path string) bool {
	names := strings.Split(path, ".")
	at := lua.LValue(library)
	for i, name := range names {
		t, ok := at.(*lua.LTable)
		if !ok {
			return false
		}
		if t == callProxy {
			return i == 1 && !isCallField(name)
		}
		if t == varProxy {
			return i == 2 && name != "remote_user" && !strings.HasPrefix(name, "arg_") && !strings.HasPrefix(name, "http_")
		}
		if i > 0 && t.Metatable != readOnly {
			return false
		}
		if at = t.RawGetString(name); at == lua.LNil {
			return i > 0
		}
	}
	return false
}

func isCallField(name string) bool {
	for _, f := range callFields {
		if f == name {
			return true
		}
	}
	return false
}

// suggest gives what is probably meant by a name that is not known.
func suggest(path string) string {
	best, most := "", 3
	for _, name := range known() {
		if d := distance(path, name); d < most {
			best, most = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; is " + best + " meant?"
}

// known lists all names of the library.
func known() []string {
	var names []string
	var add func(prefix string, t *lua.LTable)
	add = func(prefix string, t *lua.LTable) {
		t.ForEach(func(k, v lua.LValue) {
			names = append(names, prefix+show(k))
			if inner, ok := v.(*lua.LTable); ok {
				add(prefix+show(k)+".", inner)
			}
		})
	}
	add("", library)
	for _, f := range callFields {
		names = append(names, "call."+f)
	}
	return names
}

// distance is how many letters must be changed, put in or left out to make b of a.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// patterns refuses patterns that stand in the source and cannot be used.
func (in *inspector) patterns(e *ast.FuncCallExpr) {
	name, args := e.Method, e.Args
	if e.Func != nil {
		path := in.path(e.Func)
		if re, ok := strings.CutPrefix(path, "ngx.re."); ok {
			in.regex(re, args)
			return
		}
		name, _ = strings.CutPrefix(path, "string.")
		if name == path || len(args) == 0 {
			return
		}
		args = args[1:]
	}
	switch name {
	case "find", "match", "gmatch", "gsub":
	default:
		return
	}
	if len(args) == 0 || name == "find" && len(args) > 2 {
		return
	}
	if lit, ok := args[0].(*ast.StringExpr); ok {
		if _, err := pattern.Compile(lit.Value); err != nil {
			in.errors = append(in.errors, in.u.at(lit.Line(), lit.Value, parse.TString, "%s", err.Error()))
		}
	}
}

// regex refuses a regular expression of ngx.re in the same way.
func (in *inspector) regex(name string, args []ast.Expr) {
	at := 2
	switch name {
	case "match", "find", "gmatch":
	case "sub", "gsub":
		at = 3
	default:
		return
	}
	if len(args) < 2 {
		return
	}
	lit, ok := args[1].(*ast.StringExpr)
	options := ""
	if len(args) > at {
		o, literal := args[at].(*ast.StringExpr)
		if _, none := args[at].(*ast.NilExpr); !literal && !none {
			return
		}
		if literal {
			options = o.Value
		}
	}
	if ok {
		if _, err := pattern.CompileRegex(lit.Value, options); err != nil {
			in.errors = append(in.errors, in.u.at(lit.Line(), lit.Value, parse.TString, "%s", err.Error()))
		}
	}
}
