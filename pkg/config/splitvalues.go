package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Lua says where scripts are and what a run may take.
type Lua struct {
	Dir string // folder with the scripts; it may not be there
	// DirStated says that the file or the environment names Dir.
	DirStated bool
	Deadline  time.Duration // of one run, at most 5ms
}

// SplitRule is a rule of a model's split. Exactly one of To, Script and Weights is set.
type SplitRule struct {
	Name       string // how people tell it from others
	When       *When  // nil: for every call
	To         string // name of a target
	Script     string // name of a script: its file's, without .lua
	Weights    []Weight
	Salt       string            // of the hash that places users; set where Weights are
	SetHeaders map[string]string // as those of Model, for calls that the rule decides
	Place      Place
}

// Weight is a target's share of users.
type Weight struct {
	Target string
	Share  float64 // of 100
}

// When is a condition on one value of a call. Exactly one of Header, Metadata and Who is set.
type When struct {
	Header   string // lower case
	Metadata string // a key of the message's own metadata
	Who      string // WhoUser or WhoCaller
	Op       string // WhenIs, WhenPrefix or WhenRegex
	// Values that it compares with: any of them holds for WhenIs; one prefix, or one expression of RE2, that holds anywhere
	// in the value.
	Values []string
}

// Whom a condition may be about.
const (
	WhoUser   = "user"
	WhoCaller = "caller"
)

// How a condition compares.
const (
	WhenIs     = "is"
	WhenPrefix = "prefix"
	WhenRegex  = "regex"
)

// subject names what the condition is about.
func (w *When) subject() string {
	switch {
	case w.Header != "":
		return "header " + w.Header
	case w.Metadata != "":
		return "metadata " + w.Metadata
	}
	return w.Who
}

// String is the comparison in words, such as `is "premium"`.
func (w *When) String() string {
	const most = 5
	quoted := make([]string, 0, most)
	for _, v := range w.Values[:min(len(w.Values), most)] {
		quoted = append(quoted, strconv.Quote(clip(v)))
	}
	text := strings.Join(quoted, ", ")
	if more := len(w.Values) - most; more > 0 {
		text += fmt.Sprintf(" or one of %d more", more)
	}
	switch {
	case w.Op == WhenPrefix:
		return "begins with " + text
	case w.Op == WhenRegex:
		return "matches " + text
	case len(w.Values) > 1:
		return "is one of " + text
	}
	return "is " + text
}

// Mirror says where copies of calls go.
type Mirror struct {
	To      string  // name of a target
	Percent float64 // of calls, above 0 and at most 100
}

// Place is where something stands in the file, for what is found out about it later.
type Place struct {
	Path      string
	Line, Col int    // from 1; 0 in a configuration without a file
	Excerpt   string // as in Mistake
}
