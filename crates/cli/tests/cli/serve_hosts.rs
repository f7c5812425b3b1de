//! The hosts that `emberlm serve` and `emberlm watch` accept, as a defence against DNS rebinding.

use super::serve::with_model;
use super::support::Sandbox;
use super::support::server::Server;

const PAGE: &str = "GET / HTTP/1.1\r\nhost: ";

/// The status of a page request with this host and these headers.
fn status(server: &Server, host: &str, headers: &str) -> u16 {
    server
        .raw(&format!(
            "{PAGE}{host}\r\nconnection: close\r\n{headers}\r\n"
        ))
        .status
}

fn assert_own_hosts_only(server: &Server) {
    for (host, origin, expected) in [
        ("localhost:PORT", "", 200),
        ("127.0.0.1:PORT", "", 200),
        ("[::1]:PORT", "", 200),
        ("llm.example", "", 200),
        ("evil.example:PORT", "", 403),
        ("127.0.0.1.evil.example:PORT", "", 403),
        ("192.168.1.5", "", 403),
        ("localhost:PORT", "origin: http://localhost:PORT\r\n", 200),
        ("localhost:PORT", "origin: https://llm.example\r\n", 200),
        ("localhost:PORT", "origin: http://evil.example\r\n", 403),
        ("localhost:PORT", "origin: null\r\n", 403),
        ("localhost\r\nhost: evil.example", "", 400),
    ] {
        let [host, origin] = [host, origin].map(|text| text.replace("PORT", server.port()));
        let found = status(server, &host, &origin);
        assert_eq!(found, expected, "{host} {origin}");
    }
    for (head, expected) in [
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\nhost: evil.example\r\n\r\n", 403),
        ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        (
            "GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            403,
        ),
        (
            "GET http://localhost/ HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            200,
        ),
    ] {
        assert_eq!(server.raw(head).status, expected, "{head}");
    }
    let refused = server.raw(&format!("{PAGE}evil.example\r\nconnection: close\r\n\r\n"));
    assert_eq!(refused.json()["error"]["code"], "host_not_allowed");
}

#[test]
fn serve_only_accepts_its_own_hosts() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --allowed-host llm.example");
    assert_own_hosts_only(&server);
    let body = r#"{"model":"run","prompt":"a","max_tokens":1}"#;
    for (headers, expected) in [("origin: http://evil.example\r\n", 403), ("", 200)] {
        let headers = format!("content-type: application/json\r\n{headers}");
        assert_eq!(
            server.ask("POST", "/api/play", &headers, body).status,
            expected
        );
    }
}

#[test]
fn watch_only_accepts_its_own_hosts() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/a/config.toml", "");
    assert_own_hosts_only(&sandbox.serve("watch --allowed-host llm.example"));
    let any = sandbox.serve("watch --allowed-host *");
    assert_eq!(status(&any, "evil.example", "origin: null\r\n"), 200);
}
