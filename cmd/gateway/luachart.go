package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// text is a bar chart of the shares, and who would move.
func (s *splitting) text() string {
	var b strings.Builder
	wide := widest(s.Shares, s.Before)
	fmt.Fprintf(&b, "%s: where %s go\n\n", s.Script, thousands(s.Users)+" users")
	chart(&b, s.Shares, wide)
	if s.Changed != nil {
		fmt.Fprintf(&b, "\nAgainst %s:\n\n", s.Against)
		chart(&b, s.Before, wide)
		fmt.Fprintf(&b, "\n%s of %s users change target (%.2f %%).\n", thousands(*s.Changed), thousands(s.Users), percent(*s.Changed, s.Users))
		if len(s.Moves) > 0 {
			b.WriteString("\n" + s.moves())
		}
	}
	if s.GivenUp > 0 {
		fmt.Fprintf(&b, "\nGiven up after %s users: %d runs have taken all of their deadline.\n", thousands(s.Users), s.GivenUp)
	}
	if s.Error != nil {
		fmt.Fprintf(&b, "\nFor user %s: %s\n", s.Error.User, luavm.Problem{Name: s.Error.Script, Line: s.Error.Line, Message: s.Error.Message})
		b.WriteString("Such calls go to the model's stable target.\n")
	}
	return b.String()
}

func chart(b *strings.Builder, shares []share, wide int) {
	number := 0
	for _, one := range shares {
		number = max(number, len(thousands(one.Users)))
	}
	for _, one := range shares {
		fmt.Fprintf(b, "  %s  %6.2f %%  %*s  %s\n", pad(one.Target, wide), one.Part, number, thousands(one.Users), bar(one.Part))
	}
}

// widest is how many characters the longest name has.
func widest(lists ...[]share) int {
	wide := 0
	for _, list := range lists {
		for _, one := range list {
			wide = max(wide, utf8.RuneCountInString(one.Target))
		}
	}
	return wide
}

// moves is a table of who goes from where to where.
func (s *splitting) moves() string {
	rows := [][]string{{"from", "to", "users", "such as"}}
	for _, m := range s.Moves {
		rows = append(rows, []string{m.From, m.To, thousands(m.Users), m.Like})
	}
	return table(rows)
}

// table sets rows in columns. No line ends in blanks.
func table(rows [][]string) string {
	wide := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += "  " + pad(cell, wide[i])
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// bar draws percents in eighths of a cell; what is more than nothing is seen.
func bar(percents float64) string {
	const eighths = "▏▎▍▌▋▊▉█"
	n := int(percents/100*barCells*8 + 0.5)
	if n == 0 && percents > 0 {
		n = 1
	}
	text := strings.Repeat("█", n/8)
	if rest := n % 8; rest > 0 {
		text += string([]rune(eighths)[rest-1])
	}
	return text
}

func pad(text string, wide int) string {
	return text + strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(text)))
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
