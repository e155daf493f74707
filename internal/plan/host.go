package plan

import (
	"fmt"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/request"
)

// Texts reads the texts of an app. It returns nil if the app has none.
func (p *Plan) Texts(a Part) (*locale.Texts, error) {
	if len(a.Locales) == 0 {
		return nil, nil
	}
	offered := p.Config.Apps[a.Name].Locales
	l, err := locale.Parse(offered, systems(a.Locales)...)
	if err == nil {
		return l, nil
	}
	f := a.failure("boot.locales", "Its texts cannot be used.", err)
	if len(offered) > 0 { // the key may be the mistake
		f.Facts = append(f.Facts, failure.Setting(p.Config, "apps."+a.Name+".locales"))
	}
	return nil, f
}

// AppInfo describes an app with these texts, which may be nil.
func (p *Plan) AppInfo(name string, texts *locale.Texts) megactx.AppInfo {
	app := p.Config.Apps[name]
	if texts != nil {
		app.Locales = texts.Names()
	}
	return megactx.AppInfo{
		Name: name, Env: p.Config.Env, Locales: app.Locales, Prefix: app.Prefix,
		LockReason: p.Lock.Because(), BusReason: p.Bus.Because(), LimitReason: p.Limit.Because(),
	}
}

// Host reads the pages and public files of an app. The returned host has no
// logger, no locks and no bus.
func (p *Plan) Host(a Part, info megactx.AppInfo, texts *locale.Texts) (*request.Host, error) {
	views, public, err := a.pages()
	if err != nil {
		return nil, err
	}
	host := &request.Host{App: request.App(info), Views: views, Public: public, Locales: texts}
	return host, host.SetLimits(Limits(p.Config.Apps[a.Name]))
}

// pages reads the pages and public files.
func (p Part) pages() (*request.Views, *request.Public, error) {
	views, err := request.ParseViews(systems(p.Views)...)
	if err != nil {
		return nil, nil, p.failure("boot.views", "Its pages cannot be used.", err)
	}
	public, err := request.ReadPublic(systems(p.Public)...)
	if err != nil {
		return nil, nil, p.failure("boot.public", "Its public files cannot be read.", err)
	}
	return views, public, nil
}

// Limits returns the limits of an app's requests.
func Limits(app config.App) request.Limits {
	return request.Limits{Body: int64(app.BodyLimit), Timeout: app.Timeout, Origins: app.TrustedOrigins}
}

func (p Part) failure(code, text string, err error) *failure.Failure {
	return &failure.Failure{Code: code, Exit: failure.ExitInternal, Text: fmt.Sprintf("The app %q cannot be put together. %s", p.Name, text), Cause: err}
}
