package explain

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// WriteText writes r for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	facts := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(facts, "%s\t%s\n", name, plain(fmt.Sprintf(format, args...)))
	}
	row("model", "%s", r.Question.Model)
	if t := r.Target; t != nil {
		ready := "ready"
		if !t.Ready {
			ready = "not ready"
		}
		version := ""
		if t.Version != "" {
			version = "version " + t.Version + " of "
		}
		row("target", "%s: %s%s on upstream %s, %s", t.Name, version, t.Model, t.Upstream, ready)
		row("", "%s", t.Why)
		if t.Breaker != nil {
			row("", "%s", t.Breaker.words())
		}
		if t.Endpoints != nil {
			row("", "%s", t.Endpoints.words())
		}
		for _, o := range t.Others {
			row("", "version %s: %s", o.Version, o.State)
		}
	}
	for i, s := range r.Split {
		name := ""
		if i == 0 {
			name = "split"
		}
		row(name, "%s", ruleText(s))
	}
	if m := r.Mirror; m != nil {
		row("mirror", "copies of %s %% of calls go to %s", strconv.FormatFloat(m.Percent, 'f', -1, 64), m.To)
	}
	who := r.Question.Caller
	if who != "" {
		who += " "
	}
	row("access", "%s%s: %s", who, r.Access.Verdict, r.Access.Why)
	user := r.User.Name
	if user == "" {
		user = "nobody"
	}
	row("user", "%s: %s", user, r.User.Why)
	if t := r.Timeout; t != nil {
		row("timeout", "%s for a unary call; in a stream %s to the first answer, %s between answers", lasting(t.Max), lasting(t.FirstAnswer), lasting(t.Idle))
		row("", "%s", t.Why)
		if t.Dynamic != nil {
			row("", "%s", t.Dynamic.Why)
		}
	}
	if r.Fallback != nil {
		row("fallback", "%s", r.Fallback.words())
		for _, p := range r.Fallback.PassedOver {
			row("", "%s", p.words())
		}
	}
	for _, n := range r.Notes {
		row("note", "%s", n)
	}
	_ = facts.Flush() // a strings.Builder takes everything
	r.writeLimits(&b)
	if r.Refusal != nil {
		fmt.Fprintf(&b, "\nSuch a call would be refused by %s with %s (HTTP %d): %s.\n", r.Refusal.Stage, r.Refusal.Reason, r.Refusal.HTTP, plain(r.Refusal.Message))
	} else {
		b.WriteString("\nSuch a call would be sent to the model.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ruleText says what one rule would answer.
func ruleText(s inference.Considered) string {
	mark, answer := " ", "no answer"
	if s.Decides {
		mark = "*"
	}
	if s.Target != "" {
		answer = s.Target
	}
	return fmt.Sprintf("%s %s: %s, since %s", mark, s.Rule, answer, s.Why)
}

func (r *Report) writeLimits(b *strings.Builder) {
	if len(r.Limits) == 0 {
		if r.Target != nil {
			b.WriteString("\nNo limit applies.\n")
		}
		return
	}
	b.WriteString("\n")
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "limit\tper\tbucket\trate\tburst\tcost\tmode\tdraw\tleft")
	for _, l := range r.Limits {
		left := l.Note
		if l.Left != nil {
			left = number(*l.Left)
		}
		own := ""
		if l.Override {
			own = " (its own)"
		}
		fmt.Fprintf(
			table, "%s\t%s\t%s\t%s%s\t%s\t%s\t%s\t%s\t%s\n",
			plain(l.Name), l.Per, plain(l.Subject), rate(l.Rate), own, number(l.Burst), l.Cost, l.Mode, l.Draw, left,
		)
	}
	_ = table.Flush()
}

func lasting(d Duration) string {
	if d == 0 {
		return "no limit"
	}
	return d.String()
}

// number rounds down to hundredths: nobody wants to know more, and a bucket must not look fuller than it is.
func number(v float64) string {
	return strconv.FormatFloat(math.Floor(v*100)/100, 'f', -1, 64)
}

// plain keeps names that others chose from moving a terminal's cursor.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}
