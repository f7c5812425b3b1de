//! Requests to the Hub, with retries.

use std::io::{ErrorKind, Read};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::uri::{Authority, InvalidUri};
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::cache::is_commit;
use crate::error::HubError;
use crate::name::{ModelName, is_inside};
use crate::settings::Settings;

/// The number of times that a request is repeated without progress.
const RETRIES: u32 = 5;
/// The longest pause before a retry, also if the server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The number of redirects that a request follows.
const REDIRECTS: usize = 10;
/// The limit of a repository's description in bytes.
const INFO_LIMIT: u64 = 64 << 20;
/// The time limit of a repository's description.
const INFO_TIME: Duration = Duration::from_secs(60);
/// The time limit of a part of a file. A transfer that takes longer continues in another request.
const PART_TIME: Duration = Duration::from_secs(600);

/// A client of one Hub.
pub(crate) struct Client<'a> {
    settings: &'a Settings,
    agent: Agent,
}

/// A repository at a commit.
#[derive(Debug)]
pub(crate) struct Repository {
    /// The commit.
    pub(crate) commit: String,
    /// Its files.
    pub(crate) files: Vec<RemoteFile>,
}

/// A file of a repository.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFile {
    /// The path in the repository.
    pub(crate) path: String,
    /// The size in bytes.
    pub(crate) size: u64,
    /// The hash.
    pub(crate) hash: Hash,
}

/// The hash of a file, by which its content is named in the cache.
#[derive(Clone, Debug)]
pub(crate) enum Hash {
    /// SHA-256 of the content, for large files.
    Sha256(String),
    /// Git's SHA-1 of the content with its length, for files stored in Git.
    Git(String),
}

impl Hash {
    /// The name in the cache.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Sha256(hash) | Self::Git(hash) => hash,
        }
    }
}

/// A failed attempt.
pub(crate) enum Failure {
    /// Repeating it does not help.
    Final(HubError),
    /// It may succeed if it is repeated, after the pause that the server asks for.
    Passing(HubError, Option<Duration>),
}

/// The Hub's description of a repository.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl<'a> Client<'a> {
    /// A client with the address and token of the settings.
    pub(crate) fn new(settings: &'a Settings) -> Self {
        const CONNECT: Duration = Duration::from_secs(30);
        const RESPONSE: Duration = Duration::from_secs(60);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(RESPONSE))
            .user_agent(concat!("emberlm/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            settings,
            agent: agent.into(),
        }
    }

    /// The repository's commit and files at the revision of `name`.
    pub(crate) fn repository(&self, name: &ModelName) -> Result<Repository, HubError> {
        let url = format!(
            "{}/api/models/{}/revision/{}?blobs=true",
            self.settings.endpoint,
            name.repository(),
            encoded(name.revision(), false)
        );
        self.with_retries(|| {
            // Interruptions of transfers pass, but without a network there is none.
            let response = self.request(&url, 0, name, INFO_TIME);
            let response = response.map_err(|failure| match failure {
                Failure::Passing(error @ HubError::Unreachable { .. }, _) => Failure::Final(error),
                other => other,
            })?;
            let mut text = Vec::new();
            let mut body = response.into_body().into_reader().take(INFO_LIMIT);
            body.read_to_end(&mut text)
                .map_err(|error| Failure::Passing(network(&url, &error), None))?;
            repository(&url, name, &text).map_err(Failure::Final)
        })
    }

    /// The address of a file at `commit`.
    pub(crate) fn address(&self, name: &ModelName, commit: &str, file: &str) -> String {
        let (endpoint, repository) = (&self.settings.endpoint, name.repository());
        format!(
            "{endpoint}/{repository}/resolve/{commit}/{}",
            encoded(file, true)
        )
    }

    /// Requests `url` from the byte `start` on. The response may begin at byte 0 nevertheless.
    pub(crate) fn get(
        &self,
        url: &str,
        start: u64,
        name: &ModelName,
    ) -> Result<Response<Body>, Failure> {
        self.request(url, start, name, PART_TIME)
    }

    /// [`Client::get`] with a limit of the time in which the body is received.
    fn request(
        &self,
        url: &str,
        start: u64,
        name: &ModelName,
        time: Duration,
    ) -> Result<Response<Body>, Failure> {
        let mut address = url.to_owned();
        // Errors have the address before redirects: one after them can contain a signature that gives access.
        let failed = |error| self.failure(url, &error);
        let mut response = self.send(&address, start, time).map_err(failed)?;
        for followed in 0.. {
            let Some(target) = target_of(&response, &address) else {
                break;
            };
            let target = match followed < REDIRECTS {
                true => target,
                false => Err(format!("it redirects more than {REDIRECTS} times")),
            };
            let refused = |reason| {
                let url = url.to_owned();
                Failure::Final(HubError::Answer { url, reason })
            };
            address = target.map_err(refused)?;
            response = self.send(&address, start, time).map_err(failed)?;
        }
        let status = response.status();
        let endpoint = || self.settings.endpoint.clone();
        let code = status.as_u16();
        Err(match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Final(HubError::Denied {
                name: name.to_string(),
                endpoint: endpoint(),
                status: code,
                with_token: self.settings.token.is_some(),
            }),
            StatusCode::NOT_FOUND => Failure::Final(HubError::NotFound {
                name: name.to_string(),
                endpoint: endpoint(),
            }),
            _ => {
                let url = url.to_owned();
                let error = HubError::Status { url, status: code };
                let seconds = response.headers().get("retry-after");
                let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                match code == 408 || code == 429 || status.is_server_error() {
                    true => Failure::Passing(error, seconds.map(Duration::from_secs)),
                    false => Failure::Final(error),
                }
            }
        })
    }

    /// Sends one request. The token is sent only to the Hub's own origin: another port is another service.
    fn send(
        &self,
        address: &str,
        start: u64,
        time: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let request = self.agent.get(address);
        let mut request = request.config().timeout_recv_body(Some(time)).build();
        let is_hub = is_same_origin(address, &self.settings.endpoint);
        if let Some(token) = self.settings.token.as_ref().filter(|_| is_hub) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        request.call()
    }

    /// The failure of a request without a response. Answers that break the protocol do not pass.
    fn failure(&self, url: &str, error: &ureq::Error) -> Failure {
        use ureq::Error;
        match error {
            Error::BadUri(_) | Error::Http(_) | Error::LargeResponseHeader(..) => {
                Failure::Final(HubError::Answer {
                    url: url.to_owned(),
                    reason: error.to_string(),
                })
            }
            error => Failure::Passing(self.failed(url, error), None),
        }
    }

    /// The error of a request without a response.
    fn failed(&self, url: &str, error: &ureq::Error) -> HubError {
        use ureq::{Error, Timeout};
        let connects = match error {
            Error::HostNotFound
            | Error::ConnectionFailed
            | Error::Timeout(Timeout::Connect | Timeout::Resolve) => false,
            // The others are failures to find the host or to connect to it.
            Error::Io(error) => matches!(
                error.kind(),
                ErrorKind::BrokenPipe
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::ConnectionReset
                    | ErrorKind::InvalidData
                    | ErrorKind::TimedOut
                    | ErrorKind::UnexpectedEof
                    | ErrorKind::WouldBlock
            ),
            _ => true,
        };
        match connects {
            true => network(url, error),
            false => HubError::Unreachable {
                endpoint: self.settings.endpoint.clone(),
                reason: error.to_string(),
            },
        }
    }

    /// Repeats `attempt` until it succeeds, fails finally, or has failed too often.
    pub(crate) fn with_retries<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, HubError> {
        let mut failed = 0;
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(failure) => self.pause_or_fail(failure, &mut failed)?,
            }
        }
    }

    /// Waits before the next attempt after `failed` attempts without progress.
    ///
    /// # Errors
    /// The failure is final, or there were too many.
    pub(crate) fn pause_or_fail(&self, failure: Failure, failed: &mut u32) -> Result<(), HubError> {
        match failure {
            Failure::Final(error) => Err(error),
            Failure::Passing(error, _) if *failed >= RETRIES => Err(error),
            // All pauses together are shorter.
            Failure::Passing(error, Some(asked)) if asked > LONGEST_PAUSE * RETRIES => Err(error),
            Failure::Passing(_, asked) => {
                let doubled = self.settings.retry_pause * 2_u32.pow(*failed);
                thread::sleep(asked.unwrap_or(doubled).min(LONGEST_PAUSE));
                *failed += 1;
                Ok(())
            }
        }
    }
}

/// Returns true if two addresses have the same scheme, host and port.
fn is_same_origin(a: &str, b: &str) -> bool {
    let origin = |address: &str| {
        let parts = address.parse::<Uri>().ok()?.into_parts();
        Some((parts.scheme?, parts.authority?))
    };
    origin(a).is_some_and(|a| origin(b) == Some(a))
}

/// The address to which the response to a request for `address` redirects, or the reason that it is not followed. `None`
/// if the response is no redirect.
fn target_of(response: &Response<Body>, address: &str) -> Option<Result<String, String>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get("location");
    let location = location.and_then(|location| location.to_str().ok());
    Some(match location {
        Some(location) => redirected(address, location),
        None => Err("it redirects without an address".to_owned()),
    })
}

/// The address of a redirect from `address` to `location`, which is complete or an absolute path.
fn redirected(address: &str, location: &str) -> Result<String, String> {
    let (shown, _) = location.split_once('?').unwrap_or((location, ""));
    let refused = |rule: &str| format!("it redirects to `{shown}`: {rule}");
    let invalid = |error: InvalidUri| refused(&error.to_string());
    let base: Uri = address.parse().map_err(invalid)?;
    let (scheme, host) = (base.scheme_str(), base.authority().map(Authority::as_str));
    let (scheme, host) = (scheme.unwrap_or_default(), host.unwrap_or_default());
    let target = match location {
        location if location.starts_with("//") => format!("{scheme}:{location}"),
        location if location.starts_with('/') => format!("{scheme}://{host}{location}"),
        location => location.to_owned(),
    };
    let target_scheme = target.parse::<Uri>().map_err(invalid)?;
    match (target_scheme.scheme_str(), scheme) {
        (Some("https"), _) | (Some("http"), "http") => Ok(target),
        (Some("http"), _) => Err(refused(
            "a connection that is not encrypted is not used instead of one that is",
        )),
        _ => Err(refused(
            "only complete addresses with https:// or http:// are followed",
        )),
    }
}

/// Reads and checks the description of the repository of `name`.
fn repository(url: &str, name: &ModelName, text: &[u8]) -> Result<Repository, HubError> {
    let answer = |reason: String| HubError::Answer {
        url: url.to_owned(),
        reason,
    };
    if text.len() as u64 >= INFO_LIMIT {
        return Err(answer(format!(
            "it is longer than {} MiB",
            INFO_LIMIT >> 20
        )));
    }
    let info: Info = serde_json::from_slice(text).map_err(|error| answer(error.to_string()))?;
    if !is_commit(&info.sha) {
        return Err(answer(format!(
            "`sha` must be a commit, but is `{}`",
            info.sha
        )));
    }
    let revision = name.revision();
    if is_commit(revision) && !info.sha.eq_ignore_ascii_case(revision) {
        return Err(answer(format!("it describes the commit {}", info.sha)));
    }
    let files = info.siblings.into_iter().map(|sibling| {
        let path = sibling.rfilename;
        if !is_inside(&path) {
            return Err(answer(format!(
                "`{path}` is not a path within the repository"
            )));
        }
        let (hash, size) = match (sibling.lfs, sibling.blob_id, sibling.size) {
            (Some(lfs), _, _) => (Hash::Sha256(lfs.sha256), lfs.size),
            (None, Some(id), Some(size)) => (Hash::Git(id), size),
            _ => return Err(answer(format!("`{path}` has no hash or size"))),
        };
        let digits = match hash {
            Hash::Sha256(_) => 64,
            Hash::Git(_) => 40,
        };
        let name = hash.name();
        match name.len() == digits && name.chars().all(|c| c.is_ascii_hexdigit()) {
            true => Ok(RemoteFile { path, size, hash }),
            false => Err(answer(format!("`{path}` has the invalid hash `{name}`"))),
        }
    });
    let files: Vec<RemoteFile> = files.collect::<Result<_, _>>()?;
    let mut sizes = files.iter().map(|file| file.size);
    if sizes.try_fold(0, u64::checked_add).is_none() {
        return Err(answer("its files have more than 2^64 bytes".to_owned()));
    }
    Ok(Repository {
        commit: info.sha,
        files,
    })
}

pub(crate) fn network(url: &str, error: &dyn std::fmt::Display) -> HubError {
    HubError::Network {
        url: url.to_owned(),
        reason: error.to_string(),
    }
}

/// Percent-encodes a path. Slashes are kept if `slashes`.
fn encoded(path: &str, slashes: bool) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(byte.into())
            }
            b'/' if slashes => text.push('/'),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}
