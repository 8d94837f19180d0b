package pattern_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

var perl = flag.String("perl", "", "record testdata/perl.txt anew with this perl")

const recordedPerl = "testdata/perl.txt"

// perlRecorder writes where each expression matches, and its captures. Perl is what PCRE is compatible with.
const perlRecorder = `
no warnings;
sub octal { my $s = shift; $s =~ s/\\(\d\d\d)/chr($1)/ge; return $s }
while (<STDIN>) {
  chomp;
  my ($re, $options, $s, $init) = split /\t/;
  $re = octal($re); $s = octal($s);
  my $compiled = eval { qr/(?$options:$re)/ };
  if (!defined $compiled) { print "error\n"; next }
  pos($s) = $init;
  if ($s =~ /$compiled/g) {
    print join(" ", map { defined $-[$_] ? "$-[$_],$+[$_]" : "-1,-1" } 0 .. $#+), "\n";
  } else { print "none\n" }
}
`

// everyByte writes s in a way that has neither tabs nor line feeds.
func everyByte(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\%03d`, s[i])
	}
	return b.String()
}

// perlRegex is a regular expression as PCRE has it. empty tells whether it can match nothing: repeating that, RE2 (and
// we) go on where Perl stops, and captures differ, so it is not repeated.
func perlRegex(r *rand.Rand, depth int) (expr string, empty bool) {
	var b strings.Builder
	empty = true
	for range 1 + r.IntN(4) {
		item, nothing := "", false
		switch n := r.IntN(14); {
		case n < 3 && depth > 0:
			item, nothing = perlRegex(r, depth-1)
			item = pick(r, "(", "(", "(?:", "(?i:", "(?m:", "(?s-i:", "(?<n"+strconv.Itoa(r.IntN(1000))+">") + item + ")"
		case n == 3 && depth > 0:
			one, none1 := perlRegex(r, depth-1)
			other, none2 := perlRegex(r, depth-1)
			item, nothing = "(?:"+one+"|"+other+")", none1 || none2
		case n == 4:
			b.WriteString(pick(r, "^", "$", "$", `\b`, `\B`, `\A`, `\z`, `\Z`, "(?i)", "(?m)"))
			continue
		case n < 9:
			item = pick(r, ".", `\d`, `\w`, `\W`, `\s`, `\S`, `\h`, `\H`, `\v`, `\V`, `\N`, "[ab]", "[^a]", "[a-c]", `[\w.]`, `[\w-.]`, `[^\s_-]`, "[[:alpha:]]", "[[:^punct:]]", `[\S\n]`,
				`\x61`, `\x{e9}`, `\.`, `[\x80-\xff]`, `[^\xc3]`, `[]a]`, `[^]a]`, "[a-]", `[\d-a]`, `[[a]`, `\012`, `\e`, `\cA`, `[\b]`, `[\101]`, `[A-C]`, `[^A-Z]`, "}", "]", "\xc3\xa9", "[\xc3\xa9]")
		default:
			item = pick(r, "a", "a", "b", "b", "c", "0", "1", "_", ",", "A", `\n`)
		}
		b.WriteString(item)
		if !nothing {
			repeat := pick(r, "", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}")
			b.WriteString(repeat)
			nothing = repeat != "" && strings.ContainsAny(repeat[:1]+strings.TrimPrefix(repeat, "{")[:1], "*?0")
		}
		b.WriteString(pick(r, "", "", "", "", "", " ", "#"))
		empty = empty && nothing
	}
	return b.String(), empty
}

func recordPerl(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 5))
	var asked []string
	for range *cases {
		s := []byte(randomSubject(r, 14))
		for i := range s {
			if r.IntN(8) == 0 {
				s[i] = "\n\t\v\xa0\x85Bb"[r.IntN(7)]
			}
		}
		if r.IntN(4) == 0 {
			s = append(s, '\n')
		}
		init := 0
		if r.IntN(3) == 0 {
			init = r.IntN(len(s) + 1)
		}
		options := pick(r, "", "", "i", "m", "s", "x", "ims")
		expr, _ := perlRegex(r, 2)
		asked = append(asked, fmt.Sprintf("%s\t%s\t%s\t%d", everyByte(expr), options, everyByte(string(s)), init))
	}
	file := filepath.Join(t.TempDir(), "record.pl")
	if err := os.WriteFile(file, []byte(perlRecorder), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), *perl, file)
	cmd.Stdin = strings.NewReader(strings.Join(asked, "\n") + "\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(asked) {
		t.Fatalf("%d answers to %d cases", len(answers), len(asked))
	}
	var b bytes.Buffer
	for i := range asked {
		fmt.Fprintf(&b, "%s\t%s\n", asked[i], answers[i])
	}
	if err := os.WriteFile(recordedPerl, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRegexesMatchAsPerls compares with what a real Perl answered, on bytes.
func TestRegexesMatchAsPerls(t *testing.T) {
	if *perl != "" {
		recordPerl(t)
	}
	f, err := os.Open(recordedPerl)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	compared := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Split(sc.Text(), "\t")
		if len(fields) != 5 {
			t.Fatalf("%d fields in %q", len(fields), sc.Text())
		}
		expr, options, s := luaUnquote(t, fields[0]), fields[1], luaUnquote(t, fields[2])
		init, err := strconv.Atoi(fields[3])
		if err != nil {
			t.Fatal(err)
		}
		r, err := pattern.CompileRegex(expr, options)
		if fields[4] == "error" {
			continue
		}
		if err != nil {
			if testing.Verbose() {
				t.Logf("refused: %v", err)
			}
			continue
		}
		compared++
		got := "none"
		m, ok, err := r.Find(s, init)
		if err != nil {
			t.Fatalf("%q in %q: %v", expr, s, err)
		}
		if ok {
			got = fmt.Sprintf("%d,%d", m.Start, m.End)
			for _, c := range m.Captures {
				got += fmt.Sprintf(" %d,%d", c.Start, c.End)
			}
		}
		if got != fields[4] {
			t.Errorf("%q with %q in %q from %d: got %s, Perl's %s", expr, options, s, init, got, fields[4])
		}
	}
	if compared < *cases/2 {
		t.Errorf("only %d were not refused", compared)
	}
}
