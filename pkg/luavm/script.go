package luavm

import (
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Script is a compiled script. It is immutable, and any number of goroutines may run it at once.
//
// A script is one file of Lua 5.1. It is run anew for each call that its rule is asked about, and returns
//
//	return "model_v2"              the name of a target
//	return "model_v2", "premium"   and why, for answers' headers, explain and logs
//	return nil                     no opinion: the next rule decides, in the end the stable target
//
// Whether there is such a target is for the caller to check. Anything else that is returned is a mistake (wrong_type).
//
// # The call
//
//	call.model, call.user, call.caller, call.version   strings, or nil where the call has none
//	call.rows                 rows of the first input, a number
//	call.headers["x-region"]  incoming metadata, in any case, with _ for - as well; several values are joined by ", "
//	call.metadata.tenant      metadata of the message
//	call.params.priority      parameters of a KServe request: strings, numbers, booleans
//	call.sequence             nil, or {id = "...", start = true}
//
// All of it can be walked over with pairs, none of it can be written. A string of more than 64 KiB is as if it was not
// there.
//
// # Decisions
//
//	hash(key, salt)        32 bits, evenly filled, the same in all replicas and releases (inference.Hash); no salt: ""
//	split(key, {model_v1 = 90, model_v2 = 10}, salt)
//	                       one of the names, by weight: the same key always gets the same one
//	sticky(key, percent, salt)
//	                       whether key is among the first percent; whoever is stays so when the percentage grows
//	stats("model_v2")      what a target did lately, or nil: calls, errors, error_rate (0 to 1), p50, p99, p999 (ms)
//
// The salt of split and sticky is by default the model's name, so that two models do not try new versions on the same
// users. Names of a split are laid out in alphabetical order: the first gets what the others leave, the second has the
// lowest places (those that sticky takes), the third the highest. With up to three names, a weight that grows takes users
// from the first name only.
//
// Hashing nil (hash, split, sticky, ngx.crc32_short, ngx.md5 and so on), or joining to a key what the call does not have,
// ends the run as no_key: the call goes to the stable target, and nobody is blamed. pcall does not catch it.
//
// What only the caller can bring about ends a run as too_long, in the same way: a subject of a pattern, or a string, beyond
// its bound in a run that asked for 512 bytes or more of its call, and a text of the call's that is not UTF-8 where option
// "u" of ngx.re asks for that.
//
// # What scripts for OpenResty find
//
//	ngx.var.arg_user_id, arg_model, arg_version   the effective user, the model and the version asked for
//	ngx.var.arg_NAME       metadata of the message
//	ngx.var.http_NAME      a header, with _ for -
//	ngx.req.get_headers()  a table of all headers; several values of one are a table
//	ngx.req.get_uri_args() a table of what arg_ finds
//	ngx.crc32_short, crc32_long, md5, md5_bin, sha1_bin, hmac_sha1
//	ngx.encode_base64, decode_base64, escape_uri, unescape_uri
//	ngx.re.match, find, gmatch, sub, gsub         see package pattern for what is matched
//	ngx.now(), time(), today(), utctime(), localtime()   the time of the call, in UTC
//	ngx.log(ngx.INFO, ...) up to 16 times a run, 2 KiB each; the levels are nginx's
//	ngx.null
//
// # Lua
//
// There are string, table and math, and of the basic functions those that compute: pcall, xpcall, error, assert, pairs,
// ipairs, next, select, unpack, type, tostring, tonumber, rawget, rawset, rawequal, setmetatable, getmetatable. There is no
// input or output, no load or require, no coroutines, no goto, no os or debug; Compile says for each what to use instead.
// Tables of one's own may have metatables. Globals do not outlive the run.
//
// # Bounds of a run
//
// Time: Limits.Deadline. Strings: 64 KiB each, 4 MiB in all. Tables: indexes up to 10,000, 10,000 new entries in all tables
// together. Calls: 64 inside each other; 4,000 arguments or results of a library function. Patterns: subjects of 4 KiB.
// Names that are returned: 256 bytes. A source: 64 KiB, 150 brackets and blocks inside each other. What exceeds a bound of
// memory or time ends the run whatever the script does; pcall does not catch it.
type Script struct {
	Name   string // as problems and errors name it
	Source string
	Hash   string // SHA-256 of Source, in hex

	deadline time.Duration
	proto    *lua.FunctionProto
	fn       *lua.LFunction // shared by all runs; nil when each needs a table of globals of its own
	slow     int32          // how much its literals can slow one instruction down, see run.step
	targets  []string
	memory   int64
}

// Targets gives the names that the script's `return`s may give, as far as can be told without running it, sorted:
// to be checked against the targets that are declared.
func (s *Script) Targets() []string { return append([]string(nil), s.targets...) }

// Memory is an estimate of the bytes that the compiled script holds. Warm states of the interpreter belong to no
// script: there are about as many as there have lately been runs at once, of some 15 KiB each, and they go when idle.
func (s *Script) Memory() int64 { return s.memory }
