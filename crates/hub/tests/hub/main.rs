//! Downloads from a local server that speaks the Hub's API.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod hostile;
mod server;

use std::fs;
use std::path::Path;
use std::time::Duration;

use emberlm_hub::{Hub, HubError, ModelName, Settings};
use server::{Fault, Server};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn hub(server: &Server, cache: &Path) -> Hub {
    Hub::new(settings(server, cache))
}

fn settings(server: &Server, cache: &Path) -> Settings {
    Settings {
        cache: cache.to_owned(),
        endpoint: server.address(),
        token: Some("hf_secret".to_owned()),
        offline: false,
        retry_pause: Duration::from_millis(1),
    }
}

fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

/// A model of `config.json`, kept in Git, and weights of 1 MiB, kept outside of it.
fn server() -> Server {
    let server = Server::start(COMMIT);
    server.add("config.json", b"{\"model_type\":\"llama\"}".to_vec(), false);
    server.add("model.safetensors", weights(), true);
    server.add("README.md", b"# A model".to_vec(), false);
    server
}

fn weights() -> Vec<u8> {
    (0..1_u32 << 18)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

#[test]
fn a_model_is_downloaded_once_and_then_found_without_the_server() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let hub = hub(&server, folder.path());
    let mut progress = Vec::new();
    let path = hub
        .open(&name("hf:org/tiny"), &mut |now| {
            progress.push((now.done, now.total))
        })
        .unwrap();
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights());
    assert!(path.join("config.json").exists());
    assert!(
        !path.join("README.md").exists(),
        "what a model does not need is not downloaded"
    );
    let total = (weights().len() + 22) as u64;
    assert_eq!(progress.last(), Some(&(total, total)));
    assert!(progress.is_sorted());

    let requests = server.requests().len();
    assert_eq!(hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap(), path);
    assert_eq!(
        hub.open(&name(&format!("hf:org/tiny@{COMMIT}")), &mut |_| ())
            .unwrap(),
        path
    );
    assert_eq!(server.requests().len(), requests);
    let offline = Settings {
        offline: true,
        ..settings(&server, folder.path())
    };
    assert_eq!(
        Hub::new(offline)
            .open(&name("hf:org/tiny"), &mut |_| ())
            .unwrap(),
        path
    );
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_the_host_that_it_redirects_to() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    let requests = server.requests();
    let with_token = |path: &str| {
        let mut found = requests
            .iter()
            .filter(|request| request.path.starts_with(path))
            .peekable();
        assert!(found.peek().is_some(), "no request of {path}");
        found.all(|request| request.token.as_deref() == Some("Bearer hf_secret"))
    };
    assert!(with_token("/api/models/org/tiny"));
    assert!(with_token("/org/tiny/resolve/"));
    assert!(!with_token("/storage/"));
}

#[test]
fn a_broken_transfer_continues_where_it_ended() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    server.fault(Fault::EndAfter(300_000));
    server.fault(Fault::EndAfter(300_000));
    let path = hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights());
    let requests = server.requests();
    let stored = requests
        .iter()
        .filter(|request| request.path.starts_with("/storage/"));
    let ranges = stored.filter_map(|request| request.range.clone());
    assert_eq!(
        ranges.collect::<Vec<_>>(),
        ["bytes=300000-", "bytes=600000-"]
    );
}

#[test]
fn another_call_continues_what_an_earlier_one_left() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    for _ in 0..7 {
        server.fault(Fault::EndAfter(0));
    }
    let hub = hub(&server, folder.path());
    server.fault_first(Fault::EndAfter(100_000));
    let error = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap_err();
    assert!(
        error.to_string().contains("after 100000 of 1048576 bytes"),
        "{error}"
    );
    server.clear_faults();
    let path = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap();
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights());
    let last = server.requests().last().unwrap().range.clone();
    assert_eq!(last.as_deref(), Some("bytes=100000-"));
}

#[test]
fn a_server_without_ranges_is_read_from_the_beginning() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    server.fault(Fault::EndAfter(300_000));
    server.ignore_ranges();
    let path = hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights());
}

#[test]
fn a_file_with_another_hash_is_refused_and_not_kept() {
    for (fault, reason) in [
        (Fault::Flip, "its hash is"),
        (Fault::Pointer, "it is a Git LFS pointer"),
    ] {
        let (server, folder) = (server(), tempfile::tempdir().unwrap());
        server.fault(fault);
        let hub = hub(&server, folder.path());
        let error = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        // Nothing of it is left, so the next call succeeds.
        let path = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap();
        assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights());
    }
}

#[test]
fn a_busy_server_is_asked_again_and_a_refusal_is_not() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    server.fault(Fault::Status(429, Some("0")));
    server.fault(Fault::Status(503, None));
    hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();

    let error = |status| {
        let (server, folder) = (self::server(), tempfile::tempdir().unwrap());
        (0..20).for_each(|_| server.fault(Fault::Status(status, Some("0"))));
        let error = hub(&server, folder.path())
            .open(&name("hf:org/tiny"), &mut |_| ())
            .unwrap_err();
        (error, server.requests().len())
    };
    assert!(matches!(
        error(401),
        (
            HubError::Denied {
                status: 401,
                with_token: true,
                ..
            },
            1
        )
    ));
    assert!(matches!(error(404), (HubError::NotFound { .. }, 1)));
    assert!(matches!(
        error(429),
        (HubError::Status { status: 429, .. }, 6)
    ));
}

#[test]
fn answers_that_would_leave_the_cache_are_refused() {
    for path in ["../../evil.json", "/etc/evil.json", "a/../../evil.json"] {
        let (server, folder) = (server(), tempfile::tempdir().unwrap());
        server.add(path, b"{}".to_vec(), false);
        let error = hub(&server, folder.path())
            .open(&name("hf:org/tiny"), &mut |_| ())
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("not a path within the repository"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let (server, folder) = (Server::start("../../../evil"), tempfile::tempdir().unwrap());
    server.add("config.json", b"{}".to_vec(), false);
    let error = hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap_err();
    assert!(
        error.to_string().contains("`sha` must be a commit"),
        "{error}"
    );
}

#[test]
fn pull_follows_a_branch_and_keeps_the_contents_that_did_not_change() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let hub = hub(&server, folder.path());
    let first = hub.pull(&name("hf:org/tiny"), &mut |_| ()).unwrap();
    let newer = COMMIT.replace('0', "f");
    server.set_commit(&newer);
    server.add("config.json", b"{\"model_type\":\"gpt2\"}".to_vec(), false);
    assert_eq!(
        hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap(),
        first.path
    );
    let before = server.requests().len();
    let second = hub.pull(&name("hf:org/tiny"), &mut |_| ()).unwrap();
    assert_eq!(second.commit, newer);
    assert_eq!(
        hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap(),
        second.path
    );
    let requests = server.requests().split_off(before);
    assert!(
        requests
            .iter()
            .all(|request| !request.path.contains("model.safetensors")),
        "{requests:?}"
    );
    let cached = hub.cache().models();
    let listed = |at: usize| (cached[at].commit.as_str(), cached[at].revisions.len());
    assert_eq!((listed(0), listed(1)), ((COMMIT, 0), (newer.as_str(), 1)));
}

#[test]
fn a_gguf_file_is_pulled_alone() {
    let server = Server::start(COMMIT);
    for quantized in ["Q4_0", "Q8_0"] {
        server.add(&format!("tiny-{quantized}.gguf"), b"GGUF".to_vec(), true);
    }
    let folder = tempfile::tempdir().unwrap();
    let hub = hub(&server, folder.path());
    let error = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap_err();
    assert!(
        matches!(&error, HubError::Choice { files, .. } if files.len() == 2),
        "{error}"
    );
    let path = hub
        .open(&name("hf:org/tiny/tiny-Q8_0.gguf"), &mut |_| ())
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF");
    let cached: Vec<String> = hub
        .cache()
        .models()
        .iter()
        .map(|model| model.name.to_string())
        .collect();
    assert_eq!(cached, ["hf:org/tiny/tiny-Q8_0.gguf"]);
}

#[test]
fn a_model_without_one_of_its_shards_is_incomplete() {
    let (first, second) = (
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    );
    let server = Server::start(COMMIT);
    let index = format!("{{\"weight_map\":{{\"a\":\"{first}\",\"b\":\"{second}\"}}}}");
    server.add("config.json", b"{}".to_vec(), false);
    server.add("model.safetensors.index.json", index.into_bytes(), false);
    server.add(first, b"first".to_vec(), true);
    server.add(second, b"second".to_vec(), true);
    let folder = tempfile::tempdir().unwrap();
    let path = hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    fs::remove_file(path.join(second)).unwrap();
    let offline = Settings {
        offline: true,
        ..settings(&server, folder.path())
    };
    let error = Hub::new(offline)
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap_err();
    assert!(
        error.to_string().contains(&format!("{second} is missing")),
        "{error}"
    );
    // Its content is still there, so nothing is requested but the description.
    let before = server.requests().len();
    hub(&server, folder.path())
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap();
    assert_eq!(server.requests().len(), before + 1);
    assert_eq!(fs::read(path.join(second)).unwrap(), b"second");
}

#[test]
fn offline_an_unknown_model_is_an_error_without_a_request() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let offline = Settings {
        offline: true,
        ..settings(&server, folder.path())
    };
    let error = Hub::new(offline)
        .open(&name("hf:org/tiny"), &mut |_| ())
        .unwrap_err();
    assert!(matches!(error, HubError::Offline { .. }), "{error}");
    assert!(server.requests().is_empty());
}

/// The fixture is made by `make_cache.py` with the Python package `huggingface_hub`.
#[test]
fn what_python_has_downloaded_is_found() {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cache");
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    copy(&cache, folder.path());
    let offline = Settings {
        offline: true,
        ..settings(&server, folder.path())
    };
    let hub = Hub::new(offline);
    let path = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap();
    assert_eq!(
        fs::read(path.join("model.safetensors")).unwrap(),
        b"weights"
    );
    assert_eq!(
        hub.open(&name("hf:org/tiny@v1"), &mut |_| ()).unwrap(),
        path
    );
    // Of this model, Python has downloaded only the configuration.
    let error = hub.open(&name("hf:org/partial"), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("no weights"), "{error}");
    let missing: Vec<bool> = hub
        .cache()
        .models()
        .iter()
        .map(|model| model.missing.is_some())
        .collect();
    assert_eq!(missing, [true, false]);
}

/// Copies a folder with its symbolic links.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_symlink() {
            #[cfg(unix)]
            std::os::unix::fs::symlink(fs::read_link(&path).unwrap(), target).unwrap();
        } else if path.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

#[test]
fn a_hub_that_cannot_be_reached_is_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than any test waits: nothing is repeated.
    let retry_pause = Duration::from_secs(3600);
    for endpoint in ["http://127.0.0.1:1", "http://no-such-host.invalid"] {
        let hub = Hub::new(Settings {
            cache: folder.path().to_owned(),
            endpoint: endpoint.to_owned(),
            token: None,
            offline: false,
            retry_pause,
        });
        let error = hub.open(&name("hf:org/tiny"), &mut |_| ()).unwrap_err();
        assert!(matches!(error, HubError::Unreachable { .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot reach {endpoint}: ")),
            "{error}"
        );
    }
}
