package httpfront

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route is one path with what answers its methods.
type route struct {
	pattern  string // segments behind slashes; {name} stands for one segment
	segments []string
	methods  []method
}

type method struct {
	name  string
	serve func(*exchange) error
}

func get(h func(*exchange) error) method  { return method{http.MethodGet, h} }
func post(h func(*exchange) error) method { return method{http.MethodPost, h} }

// router finds routes. It exists because the library's router redirects paths that it finds unclean and answers
// 404 and 405 in a text of its own. A name in a path is decoded exactly once, after the path has been split,
// so that the model team/bert is /v2/models/team%2Fbert and nothing else.
type router struct {
	routes map[int][]*route // by number of segments, those with more fixed segments first
}

func newRouter(routes []*route) *router {
	t := &router{routes: make(map[int][]*route)}
	for _, r := range routes {
		r.segments = strings.Split(r.pattern[1:], "/")
		t.routes[len(r.segments)] = append(t.routes[len(r.segments)], r)
	}
	for _, same := range t.routes {
		slices.SortStableFunc(same, func(a, b *route) int { return strings.Count(a.pattern, "{") - strings.Count(b.pattern, "{") })
	}
	return t
}

// find gives the route of an escaped path and the decoded values of its names, nil when there is none.
func (t *router) find(escaped string) (*route, map[string]string) {
	if !strings.HasPrefix(escaped, "/") {
		return nil, nil
	}
	got := strings.Split(strings.TrimSuffix(escaped[1:], "/"), "/")
	for _, r := range t.routes[len(got)] {
		if vars, ok := r.match(got); ok {
			return r, vars
		}
	}
	return nil, nil
}

func (r *route) match(got []string) (vars map[string]string, ok bool) {
	for i, s := range r.segments {
		if s[0] != '{' {
			if s != got[i] {
				return nil, false
			}
			continue
		}
		v, err := url.PathUnescape(got[i])
		if err != nil || v == "" {
			return nil, false
		}
		if vars == nil {
			vars = make(map[string]string, 2)
		}
		vars[s[1:len(s)-1]] = v
	}
	return vars, true
}

// method gives the handler of a method; HEAD is GET without a body.
func (r *route) method(name string) func(*exchange) error {
	if name == http.MethodHead {
		name = http.MethodGet
	}
	for _, m := range r.methods {
		if m.name == name {
			return m.serve
		}
	}
	return nil
}

// allow lists the methods of a route for the header of that name.
func (r *route) allow() string {
	var all []string
	for _, m := range r.methods {
		if all = append(all, m.name); m.name == http.MethodGet {
			all = append(all, http.MethodHead)
		}
	}
	return strings.Join(all, ", ")
}
