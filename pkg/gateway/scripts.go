package gateway

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/scripts"
	"github.com/model-gateway/model-gateway/pkg/stage/split"
)

// openScripts reads the scripts that split calls, and follows their files and what operators of other replicas do.
func (g *Gateway) openScripts(cfg *config.Config) {
	g.scriptsFor.Store(cfg)
	o := scripts.Options{
		Dir: cfg.Lua.Dir,
		StateDir: func() string {
			return g.scriptsFor.Load().StateDir
		},
		Limits: func() luavm.Limits { return luavm.Limits{Deadline: g.scriptsFor.Load().Lua.Deadline} },
		Uses:   func(script string) scripts.Use { return scripts.Use(g.scriptsFor.Load().UseOf(script)) },
		Names:  func() []string { return g.scriptsFor.Load().ScriptNames() },
		Stats:  scripts.FromRegistry(g.stats), Metrics: g.metrics, Log: g.log,
		Changed: g.scriptChanged,
	}
	if g.protection.redis != nil {
		o.Shared = redis.NewOverrides(g.protection.redis, "scripts")
	}
	g.scripts = scripts.New(o)
	g.split = split.Stage{Scripts: g.scripts, Counts: g.metrics}
	if g.protection.redis != nil {
		g.split.Records = redis.NewSequences(g.protection.redis)
	}
	g.catalog.Scripted(func(model string) bool { return split.ScriptOf(g.scripts.Has, model) != "" })
	ctx, end := context.WithCancel(context.Background())
	g.watching.Go(func() { g.scripts.Watch(ctx) })
	g.endWatch = end
}

// reloadScripts holds scripts against what the configuration says now. One that does not hold any more is in the log.
func (g *Gateway) reloadScripts(cfg *config.Config) {
	g.scriptsFor.Store(cfg)
	if g.scripts != nil {
		_ = g.scripts.Reload() // the store has logged what it refuses
	}
}

// closeScripts ends what follows scripts.
func (g *Gateway) closeScripts() {
	if g.endWatch != nil {
		g.endWatch()
	}
	g.watching.Wait()
}

// scriptChanged keeps the record of what files, and operators of other replicas, have made run.
func (g *Gateway) scriptChanged(c scripts.Change) {
	e := admin.Entry{
		Who: c.Who, What: "script " + c.Script, Scope: scripts.ThisReplica, OldHash: c.OldHash, NewHash: c.NewHash, Result: admin.Done,
	}
	if c.Err != nil {
		e.Result = "refused: " + c.Err.Error()
	}
	g.opts.Audit.Append(e)
}
