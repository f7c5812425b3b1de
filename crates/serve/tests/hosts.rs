//! Checks of the `Host` and `Origin` headers.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Version};
use axum::routing::get;
use emberlm_serve::Hosts;
use tokio::runtime::Builder;
use tower::ServiceExt;

use crate::tables::check_table;

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
    check_table("hosts", |row| {
        let (kind, row) = row.split_once(' ').unwrap();
        let ask = |hosts, headers: &[(&str, &str)]| {
            status(hosts, "/", Version::HTTP_11, headers).to_string()
        };
        match kind {
            "host" => {
                let host: String = serde_json::from_str(row).unwrap();
                [&loopback, &open]
                    .map(|hosts| ask(hosts, &[("host", &host)]))
                    .join(" ")
            }
            "origin" => {
                let origin: String = serde_json::from_str(row).unwrap();
                ask(
                    &loopback,
                    &[("host", "localhost:8080"), ("origin", &origin)],
                )
            }
            _ => {
                let mut words = row.split(' ');
                let target = words.next().unwrap();
                let version = match words.next() {
                    Some("1.0") => Version::HTTP_10,
                    _ => Version::HTTP_11,
                };
                let headers: Vec<(&str, &str)> = words.map(|host| ("host", host)).collect();
                status(&loopback, target, version, &headers).to_string()
            }
        }
    });
    let any = Hosts::new([127, 0, 0, 1].into(), &["*".to_owned()]);
    let headers = [("host", "evil.example"), ("origin", "null")];
    assert_eq!(status(&any, "/", Version::HTTP_11, &headers), 200);
}
