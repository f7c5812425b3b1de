//! Servers that lie, stall, or redirect to where the client must not go.

use std::fs;
use std::time::Duration;

use emberlm_hub::{Hub, Settings};

use super::server::{Fault, Server};
use super::{COMMIT, hub, name, server, settings, weights};

/// A server whose answers all have this status and these headers.
fn answering(answer: &'static str) -> (Server, tempfile::TempDir) {
    let server = server();
    server.answer_always(answer);
    (server, tempfile::tempdir().unwrap())
}

#[test]
fn the_token_stays_at_the_hubs_own_port() {
    let (other, server, folder) = (server(), server(), tempfile::tempdir().unwrap());
    // The same host, but another port is another program.
    server.redirect_to(&other.address());
    hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    let tokens = |server: &Server| {
        let requests = server.requests().into_iter();
        requests.filter_map(|request| request.token).count()
    };
    assert!(tokens(&server) > 0);
    assert_eq!((tokens(&other), other.requests().is_empty()), (0, false));
}

#[test]
fn answers_that_no_repetition_improves_are_reported_at_once() {
    for (answer, reason) in [
        (
            "302 Found\r\nLocation: /api/models/org/tiny/revision/main",
            "redirects more than 10 times",
        ),
        (
            "302 Found\r\nLocation: file:///etc/passwd",
            "redirects to `file:///etc/passwd`",
        ),
        (
            "302 Found\r\nLocation: ftp://example.invalid/?signature=x",
            "redirects to `ftp://example.invalid/`: ",
        ),
        ("302 Found", "redirects without an address"),
        ("302 Found\r\nLocation: http://[::zz", "unexpected answer: "),
        ("204 No Content", "status 204"),
        ("416 Range Not Satisfiable", "status 416"),
        // Longer than all pauses together.
        (
            "429 Too Many Requests\r\nRetry-After: 99999999999",
            "status 429",
        ),
    ] {
        let (server, folder) = answering(answer);
        // Longer than any test waits: nothing is repeated.
        let settings = Settings {
            retry_pause: Duration::from_secs(3600),
            ..settings(&server, folder.path())
        };
        let error = Hub::new(settings)
            .open(&name("hf:org/tiny"), &mut |_| ())
            .unwrap_err();
        assert!(error.to_string().contains(reason), "{answer}: {error}");
    }
}

#[test]
fn a_transfer_that_hardly_grows_ends() {
    for ranges in [true, false] {
        let (server, folder) = (server(), tempfile::tempdir().unwrap());
        (1..1000).for_each(|bytes| server.fault(Fault::EndAfter(bytes)));
        if !ranges {
            server.ignore_ranges();
        }
        let error = hub(&server, folder.path())
            .open(&name("hf:org/tiny"), &mut |_| ())
            .unwrap_err();
        assert!(error.to_string().contains("of 1048576 bytes"), "{error}");
        assert!(server.requests().len() < 30, "{}", server.requests().len());
    }
}

#[test]
fn a_partial_file_longer_than_the_servers_is_downloaded_again() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    server.fault(Fault::EndAfter(300_000));
    server.fault(Fault::NoRange);
    let path = hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights());
}

#[test]
fn descriptions_that_lie_are_refused() {
    let id = "0".repeat(40);
    let file =
        |path: &str, size: u64| serde_json::json!({"rfilename": path, "size": size, "blobId": id});
    let described = |commit: &str, files: Vec<serde_json::Value>| {
        let (server, folder) = (Server::start(commit), tempfile::tempdir().unwrap());
        server.describe(serde_json::json!({"sha": commit, "siblings": files}).to_string());
        let pinned = format!("hf:org/tiny@{COMMIT}");
        let error = hub(&server, folder.path()).open(&name(&pinned), &mut |_| ());
        error.unwrap_err().to_string()
    };
    let usual = || vec![file("config.json", 2), file("model.safetensors", 2)];
    let other = described(&"f".repeat(40), usual());
    assert!(other.contains("describes the commit ffff"), "{other}");
    let sizes = vec![
        file("config.json", u64::MAX),
        file("model.safetensors", u64::MAX),
    ];
    let sizes = described(COMMIT, sizes);
    assert!(sizes.contains("more than 2^64 bytes"), "{sizes}");
    // 200,000 files that a model would need: the first of them is asked for, and is absent.
    let many = (0..200_000).map(|number| file(&format!("{number}.json"), 2));
    let many = described(COMMIT, many.chain(usual()).collect());
    assert!(many.contains("not found"), "{many}");
}
