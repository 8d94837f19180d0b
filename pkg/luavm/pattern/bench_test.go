package pattern_test

import (
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"

func BenchmarkFind(b *testing.B) {
	for _, c := range []struct{ name, lua, s string }{
		{"literal", "Chrome", agent},
		{"prefix", "^user%-", "user-4711"},
		{"digits", "^user%-(%d+)$", "user-4711"},
		{"version", "Chrome/(%d+)%.", agent},
		{"lazy", "%((.-)%)", agent},
		{"address", "^(%d+)%.(%d+)%.(%d+)%.(%d+)$", "192.168.100.200"},
		{"no match", "Edge/(%d+)", agent},
	} {
		p, err := pattern.Compile(c.lua)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = p.Find(c.s, 0)
			}
		})
	}
}

func BenchmarkRegexFind(b *testing.B) {
	for _, c := range []struct{ name, regex, options, s string }{
		{"prefix", "^user-", "jo", "user-4711"},
		{"digits", `^user-(\d+)$`, "jo", "user-4711"},
		{"version", `Chrome/(?<major>\d+)\.`, "jo", agent},
		{"branches", "(?:bot|crawler|spider)", "ijo", agent},
	} {
		r, err := pattern.CompileRegex(c.regex, c.options)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = r.Find(c.s, 0)
			}
		})
	}
}

func BenchmarkGsub(b *testing.B) {
	p, err := pattern.Compile("(%w+)=(%w+)")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = p.GsubString("a=1;b=2;c=3;d=4", "%2=%1", -1, pattern.MaxResult)
	}
}

func BenchmarkCached(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = pattern.Cached("^user%-(%d+)$")
		}
	})
}

// BenchmarkCompile shows what a script pays that makes up its patterns.
func BenchmarkCompile(b *testing.B) {
	for name, lua := range map[string]string{
		"usual":   "^user%-(%d+)$",
		"longest": strings.Repeat("[%w_]-", 170),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = pattern.Compile(lua)
			}
		})
	}
	for _, c := range []struct{ name, regex, options string }{
		{"usual", `^user-(\d+)$`, "jo"},
		{"longest", strings.Repeat(`[\w.]+?`, 145), "i"},
		{"branches", strings.Repeat(`a|`, 500), "i"},
		{"classes of characters", strings.Repeat(`\p{L}`, 8), "iu"},
		{"classes together", `[\p{L}\P{N}\p{S}\P{M}\p{P}\p{Han}\P{Greek}\p{Lu}]`, "iu"},
		{"hyphens", strings.Repeat(`[\x{0}-\x{10ffff}]`, 55), "iu"},
		{"shorthand", strings.Repeat(`\H`, 500), "iu"},
		{"shorthand in one set", "[" + strings.Repeat(`\H\V`, 250) + "]", "iu"},
		{"counted", `(?:(?:(?:a{9}b){9}){9}){9}`, ""},
		{"nested", strings.Repeat("(?:", 250) + strings.Repeat(")", 250), ""},
		{"nested stars", strings.Repeat("(?:", 200) + "a" + strings.Repeat(")*", 200), ""},
		{"letters", strings.Repeat("k", 1000), "iu"},
	} {
		b.Run("regex "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			var err error
			for b.Loop() {
				_, err = pattern.CompileRegex(c.regex, c.options)
			}
			if err != nil {
				b.ReportMetric(1, "refused")
			}
		})
	}
}
