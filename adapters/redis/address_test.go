package redis

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for url, want := range map[string]address{
		"redis://h":                    {scheme: "redis", hosts: []string{"h:6379"}},
		"redis://h:1/3":                {scheme: "redis", hosts: []string{"h:1"}, db: 3},
		"redis://u:p%40@h:1":           {scheme: "redis", hosts: []string{"h:1"}, user: "u", password: "p@"},
		"redis://p@h:1":                {scheme: "redis", hosts: []string{"h:1"}, password: "p"},
		"redis://[::1]:7":              {scheme: "redis", hosts: []string{"[::1]:7"}},
		"redis://[::1]":                {scheme: "redis", hosts: []string{"[::1]:6379"}},
		"rediss://h":                   {scheme: "rediss", hosts: []string{"h:6379"}, secure: true},
		"redis://h?tls=true&db=2":      {scheme: "redis", hosts: []string{"h:6379"}, secure: true, db: 2},
		"redis+cluster://a:1,b:2":      {scheme: "redis+cluster", kind: cluster, hosts: []string{"a:1", "b:2"}},
		"redis+cluster://u:p@a:1, b/0": {scheme: "redis+cluster", kind: cluster, hosts: []string{"a:1", "b:6379"}, user: "u", password: "p"},
		"redis+sentinel://a,b:2/m?sentinel_password=s&db=1": {
			scheme: "redis+sentinel", kind: sentinel, hosts: []string{"a:26379", "b:2"}, master: "m", sentinelPassword: "s", db: 1,
		},
	} {
		got, err := parseAddress(url)
		if err != nil || got.String() != want.String() || !same(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", url, got, err, want)
		}
	}
}

func same(a, b address) bool {
	hosts := strings.Join(a.hosts, ",") == strings.Join(b.hosts, ",")
	return hosts && a.kind == b.kind && a.secure == b.secure && a.user == b.user && a.password == b.password &&
		a.master == b.master && a.db == b.db && a.sentinelUser == b.sentinelUser && a.sentinelPassword == b.sentinelPassword
}

// An error names the part that is wrong and keeps the password to itself.
func TestBadAddresses(t *testing.T) {
	for url, want := range map[string]string{
		"":                                  "scheme",
		"h:6379":                            "scheme",
		"http://h":                          "scheme",
		"redis://":                          "host",
		"redis://h:port":                    "host",
		"redis://h:0":                       "host",
		"redis://a,b":                       "redis+cluster",
		"redis://h/x":                       "database",
		"redis://h?database=1":              "query",
		"redis://h?tls=maybe":               "tls",
		"redis+cluster://a,,b":              "host",
		"redis+cluster://a/1":               "cluster has no databases",
		"redis+cluster://a?db=1":            "cluster",
		"redis+sentinel://a":                "master",
		"redis+sentinel://a/m/n":            "master",
		"redis://user:s3cret%zz@h":          "percent",
		"redis+sentinel://user:s3cret@a,b/": "master",
		"redis://user:s3cret@h:port":        "host",
	} {
		_, err := parseAddress(url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an error about %s", url, err, want)
		}
	}
}
