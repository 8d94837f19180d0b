package pattern

const plenty = 1 << 40

// Steps is how many steps the search for the first match, or all, takes if it may take any number.
func (r *Regex) Steps(subject string, all bool) int {
	sc := must(r.prog.start(subject, 0))
	defer sc.end()
	sc.m.steps = plenty
	for must2(sc.next(nil)) && all {
	}
	return plenty - sc.m.steps
}

// Steps is how many steps it takes, once the table is made.
func (p *Pattern) Steps(subject string, all bool) int {
	sc := must(p.prog.start(subject, 0))
	defer sc.end()
	sc.t = p.prog.tabulate(sc.m, subject)
	sc.m.steps = plenty
	for must2(sc.next(nil)) && all {
	}
	return plenty - sc.m.steps
}

// Matches gives all matches found by trying alone, or by the table alone. ok is false if trying takes too long.
func (p *Pattern) Matches(subject string, init int, byTable bool) (all []Match, ok bool) {
	sc := must(p.prog.start(subject, init))
	defer sc.end()
	sc.m.steps = 1 << 18
	if byTable {
		sc.m.steps = 0
	}
	for {
		m, found, err := sc.next(nil)
		switch {
		case err != nil:
			panic(err)
		case !byTable && sc.t != nil:
			return nil, false
		case !found:
			return all, true
		}
		all = append(all, m)
	}
}

func must(sc scan, err error) scan {
	if err != nil {
		panic(err)
	}
	return sc
}

func must2(_ Match, ok bool, err error) bool {
	if err != nil {
		panic(err)
	}
	return ok
}

// CacheSize is how many Lua patterns are kept, and how many bytes they hold.
func CacheSize() (entries, bytes int) {
	for _, g := range []*generation{patterns.young.Load(), patterns.old.Load()} {
		if g != nil {
			g.entries.Range(func(_, v any) bool {
				entries++
				bytes += v.(*Pattern).Size()
				return true
			})
		}
	}
	return entries, bytes
}
