package luavm

import (
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // ngx.md5 is what it is
	"crypto/sha1" //nolint:gosec // and so is ngx.sha1_bin
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"net/url"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// What scripts for OpenResty find here: what computes, and what a call is. See Script for the list.
var (
	varProxy    = proxy(varIndex)
	headersMeta = indexed(getHeadersIndex) // of the tables of ngx.req.get_headers
	null        = &lua.LUserData{Metatable: lua.LNil}
)

func ngxLib() *lua.LTable {
	t := funcs(map[string]lua.LGFunction{
		"crc32_short": ngxCRC32, "crc32_long": ngxCRC32, "md5": ngxMD5, "md5_bin": ngxMD5Bin, "sha1_bin": ngxSHA1Bin, "hmac_sha1": ngxHMAC,
		"encode_base64": ngxEncodeBase64, "decode_base64": ngxDecodeBase64, "escape_uri": ngxEscapeURI, "unescape_uri": ngxUnescapeURI,
		"now": ngxNow, "time": ngxTime, "update_time": func(*lua.LState) int { return 0 }, "log": ngxLog,
		"today": ngxDate("2006-01-02"), "utctime": ngxDate("2006-01-02 15:04:05"), "localtime": ngxDate("2006-01-02 15:04:05"),
	})
	for name, level := range map[string]int{
		"STDERR": LogStderr, "EMERG": LogEmerg, "ALERT": LogAlert, "CRIT": LogCrit, "ERR": LogErr, "WARN": LogWarn,
		"NOTICE": LogNotice, "INFO": LogInfo, "DEBUG": LogDebug,
	} {
		t.RawSetString(name, lua.LNumber(level))
	}
	t.RawSetString("null", null)
	t.RawSetString("var", varProxy)
	t.RawSetString("req", funcs(map[string]lua.LGFunction{"get_headers": ngxGetHeaders, "get_uri_args": ngxGetArgs}))
	t.RawSetString("re", funcs(reFuncs))
	return t
}

func varIndex(L *lua.LState) int {
	r := runOf(L)
	key, _ := L.Get(2).(lua.LString)
	L.Push(r.variable(string(key)))
	return 1
}

// variable is ngx.var's.
func (r *run) variable(key string) lua.LValue {
	if name, ok := strings.CutPrefix(key, "arg_"); ok {
		return r.arg(name)
	}
	if name, ok := strings.CutPrefix(key, "http_"); ok {
		return r.header("ngx.var.http_", name)
	}
	if key == "remote_user" {
		return r.fact("ngx.var.remote_user", r.in.Caller, r.in.Caller != "")
	}
	r.missing = "ngx.var." + clip(key, 64)
	return lua.LNil
}

// arg is an argument as it would be in the query of a request to nginx.
func (r *run) arg(name string) lua.LValue {
	switch name {
	case "user_id":
		return r.fact("ngx.var.arg_user_id", r.in.User, r.in.User != "")
	case "model":
		return r.fact("ngx.var.arg_model", r.in.Model, true)
	case "version":
		return r.fact("ngx.var.arg_version", r.in.Version, r.in.Version != "")
	}
	v, ok := r.in.Metadata[name]
	if !ok {
		r.missing = "ngx.var.arg_" + clip(name, 64)
		return lua.LNil
	}
	return r.fact("ngx.var.arg_", v, true)
}

func (r *run) varTable(L *lua.LState) *lua.LTable {
	t := newTable()
	args := r.argsTable(L)
	args.ForEach(func(k, v lua.LValue) { r.put(t, "arg_"+show(k), v) })
	for _, name := range sorted(r.in.Headers) {
		r.put(t, "http_"+strings.ReplaceAll(name, "-", "_"), r.header("", name))
	}
	return t
}

func (r *run) argsTable(*lua.LState) *lua.LTable {
	t := newTable()
	for _, name := range sorted(r.in.Metadata) {
		r.put(t, name, r.arg(name))
	}
	for _, name := range []string{"user_id", "model", "version"} {
		t.RawSetString(name, lua.LNil)
		r.put(t, name, r.arg(name))
	}
	return t
}

func ngxGetArgs(L *lua.LState) int {
	L.Push(runOf(L).argsTable(L))
	return 1
}

// ngxGetHeaders gives a table of all headers; one that came several times is a table of its values.
func ngxGetHeaders(L *lua.LState) int {
	r := runOf(L)
	t := newTable()
	for _, name := range sorted(r.in.Headers) {
		values := r.in.Headers[name]
		if len(values) < 2 {
			r.put(t, name, r.header("", name))
			continue
		}
		list := newTable()
		for _, v := range values[:min(len(values), maxListed)] {
			if v := r.fact("", v, true); v != lua.LNil {
				r.entry(1)
				list.Append(v)
			}
		}
		r.put(t, name, list)
	}
	t.Metatable = headersMeta
	L.Push(t)
	return 1
}

// getHeadersIndex finds a header whose name is not written as it is kept.
func getHeadersIndex(L *lua.LState) int {
	t := argTable(L, 1)
	key, ok := L.Get(2).(lua.LString)
	if !ok || len(key) > 256 {
		L.Push(lua.LNil)
		return 1
	}
	name := strings.ToLower(strings.ReplaceAll(string(key), "_", "-"))
	v := t.RawGetString(name)
	if v == lua.LNil {
		runOf(L).missing = "header " + clip(name, 64)
	}
	L.Push(v)
	return 1
}

// argBytes is what ngx hashes: what is no text is taken as tostring has it, and nil is not hashed at all.
func argBytes(r *run, L *lua.LState) string {
	v := L.Get(1)
	if v == lua.LNil {
		r.noKey()
	}
	s := show(v)
	r.work(len(s))
	return s
}

func ngxCRC32(L *lua.LState) int {
	r := runOf(L)
	s := argBytes(r, L)
	sum := uint32(0)
	for len(s) > 0 {
		n := copy(r.scratch[:], s)
		sum = crc32.Update(sum, crc32.IEEETable, r.scratch[:n])
		s = s[n:]
	}
	return pushNumber(L, float64(sum))
}

func ngxMD5(L *lua.LState) int {
	r := runOf(L)
	sum := md5.Sum([]byte(argBytes(r, L))) //nolint:gosec // see above
	return pushText(r, L, hex.EncodeToString(sum[:]))
}

func ngxMD5Bin(L *lua.LState) int {
	r := runOf(L)
	sum := md5.Sum([]byte(argBytes(r, L))) //nolint:gosec // see above
	return pushText(r, L, string(sum[:]))
}

func ngxSHA1Bin(L *lua.LState) int {
	r := runOf(L)
	sum := sha1.Sum([]byte(argBytes(r, L))) //nolint:gosec // see above
	return pushText(r, L, string(sum[:]))
}

func ngxHMAC(L *lua.LState) int {
	r := runOf(L)
	h := hmac.New(sha1.New, []byte(argBytes(r, L)))
	if L.Get(2) == lua.LNil {
		r.noKey()
	}
	message := show(L.Get(2))
	r.work(len(message))
	h.Write([]byte(message))
	return pushText(r, L, string(h.Sum(nil)))
}

func ngxEncodeBase64(L *lua.LState) int {
	r := runOf(L)
	s := argShown(r, L)
	enc := base64.StdEncoding
	if L.Get(2) == lua.LTrue {
		enc = base64.RawStdEncoding
	}
	r.fits(enc.EncodedLen(len(s)))
	return pushText(r, L, enc.EncodeToString([]byte(s)))
}

func ngxDecodeBase64(L *lua.LState) int {
	r := runOf(L)
	s := argText(L, 1)
	r.work(len(s))
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		L.Push(lua.LNil)
		return 1
	}
	return pushText(r, L, string(b))
}

func ngxEscapeURI(L *lua.LState) int {
	r := runOf(L)
	s := argShown(r, L)
	r.fits(len(s))
	return pushText(r, L, strings.ReplaceAll(url.QueryEscape(s), "+", "%20"))
}

func ngxUnescapeURI(L *lua.LState) int {
	r := runOf(L)
	s := argShown(r, L)
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch b, err := hex.DecodeString(s[min(i+1, len(s)):min(i+3, len(s))]); {
		case s[i] == '%' && err == nil && len(b) == 1:
			out = append(out, b[0])
			i += 2
		case s[i] == '+':
			out = append(out, ' ')
		default:
			out = append(out, s[i])
		}
	}
	return pushText(r, L, string(out))
}

// argShown is an argument as a text; nil is "".
func argShown(r *run, L *lua.LState) string {
	if L.Get(1) == lua.LNil {
		return ""
	}
	s := show(L.Get(1))
	r.work(len(s))
	return s
}

// fits ends the run before a string is made that is longer than allowed.
func (r *run) fits(n int) {
	if n > maxString {
		r.made(n)
	}
}

// clock is the time of the call.
func (r *run) clock() time.Time {
	if r.now.IsZero() {
		if r.now = r.in.Now; r.now.IsZero() {
			r.now = time.Now()
		}
	}
	return r.now
}

func ngxNow(L *lua.LState) int {
	return pushNumber(L, float64(runOf(L).clock().UnixMilli())/1000)
}

func ngxTime(L *lua.LState) int {
	return pushNumber(L, float64(runOf(L).clock().Unix()))
}

// ngxDate tells the time in UTC, so that all replicas tell the same.
func ngxDate(layout string) lua.LGFunction {
	return func(L *lua.LState) int {
		r := runOf(L)
		return pushText(r, L, r.clock().UTC().Format(layout))
	}
}

// What a run may log.
const (
	maxLogs    = 16
	maxLogText = 2 << 10
)

func ngxLog(L *lua.LState) int {
	r := runOf(L)
	level := argInt(L, 1)
	if level < LogStderr || level > LogDebug {
		argError(L, 1, "a level such as ngx.INFO expected")
	}
	if r.in.Log == nil || r.logged == maxLogs {
		return 0
	}
	r.logged++
	var b strings.Builder
	for i := 2; i <= L.GetTop() && b.Len() < maxLogText; i++ {
		b.WriteString(clip(show(L.Get(i)), maxLogText))
	}
	r.spend(slice / 4)
	r.in.Log(level, clip(b.String(), maxLogText))
	return 0
}
