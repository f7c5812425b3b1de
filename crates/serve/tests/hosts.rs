//! Checks of the `Host` and `Origin` headers.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Version};
use axum::routing::get;
use emberlm_serve::Hosts;
use tokio::runtime::Builder;
use tower::ServiceExt;

fn status(hosts: &Hosts, target: &str, version: Version, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::get(target).version(version);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let router = Router::new().route("/", get(async || "hello"));
    let answered = hosts
        .clone()
        .guard(router, None)
        .oneshot(request.body(Body::empty()).unwrap());
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(answered).unwrap().status().as_u16()
}

#[test]
fn only_own_hosts_are_accepted() {
    let named = ["llm.example".to_owned()];
    let loopback = Hosts::new([127, 0, 0, 1].into(), &named);
    let open = Hosts::new([0, 0, 0, 0].into(), &named);
    for (host, on_loopback, elsewhere) in [
        ("localhost", 200, 200),
        ("LocalHost:8080", 200, 200),
        ("app.localhost:3000", 200, 200),
        ("localhost.", 200, 200),
        ("127.0.0.1:8080", 200, 200),
        ("127.8.9.1", 200, 200),
        ("[::1]:8080", 200, 200),
        ("[::ffff:127.0.0.1]:8080", 200, 200),
        ("llm.example", 200, 200),
        ("LLM.example:443", 200, 200),
        ("192.168.1.5:8080", 403, 200),
        ("[fe80::1]:8080", 403, 200),
        ("evil.example", 403, 403),
        ("localhost.evil.example", 403, 403),
        ("127.0.0.1.evil.example:8080", 403, 403),
        ("llm.example.evil.example", 403, 403),
        ("evil.example@localhost", 400, 400),
        ("", 400, 400),
        ("a b", 400, 400),
    ] {
        let ask = |hosts| status(hosts, "/", Version::HTTP_11, &[("host", host)]);
        assert_eq!(
            [ask(&loopback), ask(&open)],
            [on_loopback, elsewhere],
            "{host}"
        );
    }
    for (target, version, headers, expected) in [
        ("/", Version::HTTP_11, vec![], 400),
        ("/", Version::HTTP_10, vec![], 200),
        ("/", Version::HTTP_10, vec![("host", "evil.example")], 403),
        (
            "/",
            Version::HTTP_11,
            vec![("host", "localhost"), ("host", "localhost")],
            400,
        ),
        (
            "http://localhost:1/",
            Version::HTTP_11,
            vec![("host", "localhost:1")],
            200,
        ),
        (
            "http://localhost:1/",
            Version::HTTP_11,
            vec![("host", "evil.example")],
            403,
        ),
        (
            "http://evil.example/",
            Version::HTTP_11,
            vec![("host", "localhost")],
            403,
        ),
        ("http://evil.example/", Version::HTTP_10, vec![], 403),
    ] {
        assert_eq!(
            status(&loopback, target, version, &headers),
            expected,
            "{target} {headers:?}"
        );
    }
    for (origin, expected) in [
        ("http://localhost:8080", 200),
        ("https://localhost:8080", 200),
        ("https://llm.example", 200),
        ("https://llm.example:8443", 200),
        ("http://localhost:3000", 403),
        ("http://127.0.0.1:8080", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ] {
        let headers = [("host", "localhost:8080"), ("origin", origin)];
        assert_eq!(
            status(&loopback, "/", Version::HTTP_11, &headers),
            expected,
            "{origin}"
        );
    }
    let any = Hosts::new([127, 0, 0, 1].into(), &["*".to_owned()]);
    let headers = [("host", "evil.example"), ("origin", "null")];
    assert_eq!(status(&any, "/", Version::HTTP_11, &headers), 200);
}
