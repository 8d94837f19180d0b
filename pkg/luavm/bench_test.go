package luavm

import "testing"

// bench runs src on a call that has everything, with a deadline, as in production.
func bench(b *testing.B, src string) {
	b.Helper()
	s, err := Compile("rule.lua", []byte(src), Limits{Deadline: MaxDeadline})
	if err != nil {
		b.Fatal(err)
	}
	in := facts()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCanary is the users' script; it must not cost more than 1.5 µs and 10 allocations.
func BenchmarkCanary(b *testing.B) { bench(b, canary(b)) }

func BenchmarkNothing(b *testing.B) { bench(b, `return nil`) }

func BenchmarkCall(b *testing.B) {
	bench(b, `if call.headers["x-user-type"] == "premium" and call.rows > 4 then return "model_v2" end`)
}

func BenchmarkSplit(b *testing.B) {
	bench(b, `return split(call.user, {model_v1 = 90, model_v2 = 10})`)
}

func BenchmarkSticky(b *testing.B) {
	bench(b, `return sticky(call.user, 10) and "model_v2" or "model_v1"`)
}

func BenchmarkStats(b *testing.B) {
	bench(b, `local s = stats("model_v2"); if s and s.p99 > 50 then return "model_v1", "slow" end return "model_v2"`)
}

func BenchmarkPattern(b *testing.B) {
	bench(b, `return call.user:match("^user%-%d+$") and "model_v2" or "model_v1"`)
}

func BenchmarkGlobals(b *testing.B) {
	bench(b, `h = ngx.crc32_short(ngx.var.arg_user_id); return h % 100 < 10 and "model_v2" or "model_v1"`)
}

func BenchmarkNoKey(b *testing.B) {
	s := mustCompile(b, canary(b))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(b.Context(), &Input{}); err == nil {
			b.Fatal("a key came from nowhere")
		}
	}
}

func BenchmarkCanaryParallel(b *testing.B) {
	s := mustCompile(b, canary(b))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		in := facts()
		for pb.Next() {
			if _, err := s.Run(b.Context(), in); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkColdState(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newState()
	}
}

func BenchmarkCompile(b *testing.B) {
	src := []byte(canary(b))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile("rule.lua", src, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTheUsersScriptAllocatesLittle(t *testing.T) {
	if raceFactor > 1 {
		t.Skip("the race detector allocates")
	}
	s := mustCompile(t, canary(t))
	in := facts()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := s.Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}); n > 10 {
		t.Errorf("%v allocations, of 10", n)
	}
}
