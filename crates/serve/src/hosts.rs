//! The hosts that a server answers for, and the origins of pages that may ask it.
//!
//! A web page can make a browser ask a server on its user's machine or network: by DNS rebinding, where the page's own name
//! resolves to the server's address, the browser even takes the answers for the page's own. Such a request names the page's
//! host, so a server answers only for hosts that are its own:
//!
//! | listening on | accepted in `Host` |
//! |---|---|
//! | a loopback address | `localhost`, names below it, loopback addresses; any port |
//! | any other address | those, and any IP address: rebinding needs a name |
//!
//! and names that were given. A request-target in absolute form names a host too, and both are checked. A request without
//! `Host` is answered in HTTP/1.0 only, which no browser speaks. Where there is an `Origin`, it must be the request's own
//! (the same host and port), or its host be a name that was given.

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
    /// True if only this machine can reach the server.
    loopback: bool,
    /// Further names, in lower case.
    named: Vec<String>,
    /// True if any host and any origin may ask.
    any: bool,
}

/// The name that allows any host and any origin.
const ANY: &str = "*";

impl Hosts {
    /// For a server that listens on `address`; `named` are also allowed, `*` for all.
    pub fn new(address: IpAddr, named: &[String]) -> Self {
        Self {
            loopback: address.is_loopback(),
            named: named.iter().map(|name| bare(name)).collect(),
            any: named.iter().any(|name| name == ANY),
        }
    }

    /// Refuses requests to other hosts, and from pages of other origins. `log` receives a record of each that is refused.
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
        // A target in absolute form counts before the header (RFC 9112, section 3.2.2).
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

    /// Returns true if the server answers for this host, which has no port.
    fn allows(&self, host: &str) -> bool {
        let host = bare(host);
        let address: Option<IpAddr> = host.parse().ok();
        let own = match address {
            Some(address) => !self.loopback || address.to_canonical().is_loopback(),
            None => host == "localhost" || host.ends_with(".localhost"),
        };
        own || self.named.contains(&host)
    }

    /// Returns true if pages of this origin may ask: those that came from the host that is asked, and those of named hosts.
    fn allows_origin(&self, origin: &HeaderValue, own: Option<&Authority>) -> bool {
        let Some(origin) = origin.to_str().ok().and_then(|origin| {
            let (_, authority) = origin.split_once("://")?;
            authority.parse::<Authority>().ok()
        }) else {
            // Such as `null`, that of a file or of a page in a sandbox.
            return false;
        };
        let same = own.is_some_and(|own| own.as_str().eq_ignore_ascii_case(origin.as_str()));
        same || self.named.contains(&bare(origin.host()))
    }
}

/// A host's name or address in lower case, without the brackets around an IPv6 address and the dot after a whole name.
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
