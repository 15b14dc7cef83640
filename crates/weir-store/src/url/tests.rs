use super::*;

fn redis(text: &str) -> RedisUrl {
    match text.parse() {
        Ok(StoreUrl::Redis(url)) => url,
        other => panic!("{text}: {other:?}"),
    }
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

fn as_whom(text: &str) -> Option<(String, String)> {
    redis(text).credentials.map(|found| (found.user, found.password.reveal().to_owned()))
}

#[test]
fn every_scheme_is_parsed() {
    let none = RedisUrl { topology: Topology::Single(tcp("h", 6379)), tls: false, credentials: None, database: 0 };
    for (text, topology, tls, database) in [
        ("redis://h", Topology::Single(tcp("h", 6379)), false, 0),
        ("redis://h:1/", Topology::Single(tcp("h", 1)), false, 0),
        ("redis://[::1]/15", Topology::Single(tcp("::1", 6379)), false, 15),
        ("rediss://[fe80::1]:7/2", Topology::Single(tcp("fe80::1", 7)), true, 2),
        ("redis+unix:///run/r%20s.sock", Topology::Single(Address::Unix("/run/r s.sock".into())), false, 0),
        ("redis+unix:///a@/b?db=3", Topology::Single(Address::Unix("/a@/b".into())), false, 3),
        (
            "redis-sentinel://a,b:2/m%2Fn/4",
            Topology::Sentinel { sentinels: vec![tcp("a", 26379), tcp("b", 2)], master: "m/n".to_owned() },
            false,
            4,
        ),
        ("redis-cluster://a,[::2]:2/0", Topology::Cluster { seeds: vec![tcp("a", 6379), tcp("::2", 2)] }, false, 0),
    ] {
        assert_eq!(redis(text), RedisUrl { topology, tls, database, ..none.clone() }, "{text}");
    }
    assert_eq!("memory".parse(), Ok(StoreUrl::Memory));
}

#[test]
fn credentials_are_decoded_in_every_scheme() {
    let both = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
    for (text, expected) in [
        ("redis://h", None),
        ("redis://user@h", both("user", "")),
        ("redis://:geheim@h", both("", "geheim")),
        ("redis://us%3Aer:ge%2Fhe%40im@h/1", both("us:er", "ge/he@im")),
        ("redis://u:not/en@coded:@h/1", both("u", "not/en@coded:")),
        ("redis+unix://u:p%2F@/run/s", both("u", "p/")),
        ("redis-sentinel://u:p@a,b/m", both("u", "p")),
        ("redis-cluster://:12345@a,b", both("", "12345")),
    ] {
        assert_eq!(as_whom(text), expected, "{text}");
    }
}

#[test]
fn displayed_urls_hide_the_password_and_parse_back() {
    for (text, shown) in [
        ("memory", "memory"),
        ("redis://user:geheim@host", "redis://user:***@host:6379/0"),
        ("redis://:geheim@host/3", "redis://:***@host:6379/3"),
        ("rediss://us%40er@[::1]:1", "rediss://us%40er@[::1]:1/0"),
        ("redis+unix://:geheim@/run/r%3Fs?db=1", "redis+unix://:***@/run/r%3Fs?db=1"),
        ("redis-sentinel://a,b:2/m%2Fn", "redis-sentinel://a:26379,b:2/m%2Fn/0"),
        ("redis-cluster://u:geheim@a,b", "redis-cluster://u:***@a:6379,b:6379"),
    ] {
        let url: StoreUrl = text.parse().unwrap();
        assert_eq!(url.to_string(), shown);
        assert_eq!(serde_json::to_value(&url).unwrap(), shown);
        assert!(!format!("{url:?}").contains("geheim"), "{url:?}");
        if !text.contains("geheim") {
            assert_eq!(shown.parse(), Ok(url));
        }
    }
}

#[test]
fn url_errors_do_not_reveal_the_input() {
    for (text, expected) in [
        ("geheim:geheim@h", "unknown store `geheim`; known are `memory`, `redis://`"),
        ("geheim@h", "not the URL of a store; known are"),
        ("localhost:6379", "`localhost:6379` has no scheme; for a Redis server write `redis://localhost:6379`"),
        ("", "a store's URL begins with one of"),
        ("rediss-cluster://geheim@h", "unknown store `rediss-cluster`"),
        ("redis://", "a host is missing"),
        ("redis://:geheim@:6379", "a host is missing"),
        ("redis://a,b", "redis:// names one server"),
        ("redis://::1", "an IPv6 address must be in brackets"),
        ("redis://[::1", "an IPv6 address must be in brackets"),
        ("redis://[::1]1", "an IPv6 address must be in brackets"),
        ("redis://h:0", "a port must be a number from 1 to 65535"),
        ("redis://h:65536", "a port must be a number from 1 to 65535"),
        ("redis://h:geheim", "a port must be a number from 1 to 65535"),
        ("redis://h?db=1", "the host has invalid characters"),
        ("redis://h/geheim", "the database is not a number"),
        ("redis://h/-1", "the database is not a number"),
        ("redis://h/4294967296", "the database is too large a number"),
        ("redis://:%ff@h", "the password is not UTF-8"),
        ("redis+unix://", "the absolute path of a socket"),
        ("redis+unix://run/s", "the absolute path of a socket"),
        ("redis+unix:///run/", "the absolute path of a socket"),
        ("redis+unix:///run/s?geheim=1", "the only parameter of redis+unix:// is `db`"),
        ("redis-sentinel://a,b", "lacks the name of the master"),
        ("redis-sentinel://a,/m", "a host is missing"),
        ("redis-cluster://a/1", "a Cluster has only database 0"),
    ] {
        let error = text.parse::<StoreUrl>().unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(text.starts_with("geheim:") || !error.contains("geheim"), "{text}: {error}");
    }
    let many = format!("redis-cluster://{}", vec!["h"; 65].join(","));
    assert_eq!(many.parse::<StoreUrl>(), Err("65 servers are named; at most 64 may be".to_owned()));
}
