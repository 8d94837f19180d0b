package httpfront

import "net/http"

// probe answers 200 while ask says so, else unwell. With a name the answer has a body, {"name": bool}; Triton's
// probes have none.
func probe(ask func() bool, unwell int, name string) func(*exchange) error {
	return func(x *exchange) error {
		status, text := http.StatusOK, "true"
		if !ask() {
			status, text = unwell, "false"
		}
		x.w.Header().Set("Cache-Control", "no-store")
		if name == "" {
			x.write(status, "", nil, false)
			return nil
		}
		x.write(status, jsonType, []byte(`{"`+name+`":`+text+`}`), false)
		return nil
	}
}
