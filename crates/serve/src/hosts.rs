//! Checks the host and the origin of requests.
//!
//! A web page can make a browser send requests to a server on the user's machine or network. With DNS
//! rebinding, where the page's own name resolves to the server's address, the browser even lets the page read
//! the responses. Such a request still names the page's host, so the server accepts only its own hosts:
//!
//! | listening on | accepted in `Host` |
//! |---|---|
//! | a loopback address | `localhost`, names below it, loopback addresses; any port |
//! | any other address | those, and any IP address: rebinding needs a name |
//!
//! and hosts that the user allows. The target of a request in absolute form also names a host; both are
//! checked. A request without `Host` is accepted only with HTTP/1.0, which browsers do not use. An `Origin`,
//! if present, must equal the request's own host and port, or its host must be allowed.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;

use crate::api::error::{ApiError, HOST, ORIGIN};
use crate::request_log::{RequestLog, Trace};

/// The hosts that a server answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// True if the server listens on a loopback address.
    loopback: bool,
    /// Additional allowed hosts, in lower case.
    named: Vec<String>,
    /// True if any host and any origin is allowed.
    any: bool,
}

/// The name that allows any host and any origin.
const ANY: &str = "*";

impl Hosts {
    /// The hosts for a server that listens on `address`, plus the names in `named`; `*` allows all.
    pub fn new(address: IpAddr, named: &[String]) -> Self {
        Self {
            loopback: address.is_loopback(),
            named: named.iter().map(|name| bare(name)).collect(),
            any: named.iter().any(|name| name == ANY),
        }
    }

    /// Rejects requests for other hosts and from pages of other origins. `log` receives a record of each
    /// rejected request.
    pub fn guard(self, router: Router, log: Option<Arc<RequestLog>>) -> Router {
        let guard = Arc::new((self, log));
        router.layer(middleware::from_fn(move |request: Request, next: Next| {
            let guard = Arc::clone(&guard);
            async move {
                let (hosts, log) = &*guard;
                match hosts.check(&request) {
                    Ok(()) => next.run(request).await,
                    Err(error) => {
                        let trace = Arc::new(Trace::new(&request, log.clone()));
                        trace.follow(error.into_response())
                    }
                }
            }
        }))
    }

    fn check<B>(&self, request: &axum::http::Request<B>) -> Result<(), ApiError> {
        if self.any {
            return Ok(());
        }
        let mut given = request.headers().get_all(header::HOST).iter();
        let header = given.next();
        if given.next().is_some() {
            return Err(ApiError::invalid("a request must have one Host header"));
        }
        let header = header.map(authority).transpose()?;
        let target = request.uri().authority();
        for named in header.iter().chain(target) {
            if !self.allows(named.host()) {
                return Err(foreign_host(named.host()));
            }
        }
        // The target in absolute form takes precedence over the header (RFC 9112, section 3.2.2).
        let own = target.or(header.as_ref());
        if own.is_none() && request.version() != Version::HTTP_10 {
            return Err(ApiError::invalid("a request must have a Host header"));
        }
        for origin in request.headers().get_all(header::ORIGIN) {
            if !self.allows_origin(origin, own) {
                return Err(foreign_origin(origin));
            }
        }
        Ok(())
    }

    /// Returns true if the server answers for `host`, given without a port.
    fn allows(&self, host: &str) -> bool {
        let host = bare(host);
        let address: Option<IpAddr> = host.parse().ok();
        let own = match address {
            Some(address) => !self.loopback || address.to_canonical().is_loopback(),
            None => host == "localhost" || host.ends_with(".localhost"),
        };
        own || self.named.contains(&host)
    }

    /// Returns true if pages of this origin may send requests: those of the requested host itself and of
    /// allowed hosts.
    fn allows_origin(&self, origin: &HeaderValue, own: Option<&Authority>) -> bool {
        let Some(origin) = origin.to_str().ok().and_then(|origin| {
            let (_, authority) = origin.split_once("://")?;
            authority.parse::<Authority>().ok()
        }) else {
            // For example `null`, the origin of a file or a sandboxed page.
            return false;
        };
        let same = own.is_some_and(|own| own.as_str().eq_ignore_ascii_case(origin.as_str()));
        same || self.named.contains(&bare(origin.host()))
    }
}

/// Normalizes a host: lower case, without the brackets of an IPv6 address and without a trailing dot.
fn bare(host: &str) -> String {
    let host = host
        .strip_prefix('[')
        .map_or(host, |rest| rest.strip_suffix(']').unwrap_or(rest));
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn authority(host: &HeaderValue) -> Result<Authority, ApiError> {
    let parsed = Authority::try_from(host.as_bytes());
    match parsed {
        Ok(authority) if !authority.as_str().contains('@') => Ok(authority),
        _ => Err(ApiError::invalid("the Host header is not a host")),
    }
}

fn foreign_host(host: &str) -> ApiError {
    let shown: String = host.chars().take(100).collect();
    ApiError::new(
        HOST,
        format!(
            "this server does not answer for the host {shown:?}: start it with --allowed-host {shown} if it is to"
        ),
    )
}

fn foreign_origin(origin: &HeaderValue) -> ApiError {
    let shown = String::from_utf8_lossy(origin.as_bytes());
    let shown: String = shown.chars().take(100).collect();
    ApiError::new(
        ORIGIN,
        format!(
            "pages of {shown:?} may not ask this server: start it with --allowed-host and the page's host if they are to"
        ),
    )
}
