//! An HTTP server on one address.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::connection::{Connections, TimedStream, answered};
use crate::hosts::Hosts;
use crate::jobs::THREADS;
use crate::limits::{CONNECTIONS, HEAD_TIME};
use crate::request_log::RequestLog;

/// The default write timeout.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// The largest head of a request in bytes.
const HEAD: usize = 64 << 10;

/// The server cannot be started or has failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The operating system cannot provide a thread or a timer, or has closed the listener.
    #[error("the server cannot run: {0}")]
    Run(io::Error),
}

/// A server that listens on an address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    write_time: Duration,
    log: Option<Arc<RequestLog>>,
}

impl Server {
    /// Starts listening; connections are queued until [`Server::run`]. Port 0 picks a free port.
    ///
    /// # Errors
    /// The address is in use, not permitted, or not an address of this machine.
    pub fn bind(host: IpAddr, port: u16) -> Result<Self, ServerError> {
        let address = SocketAddr::new(host, port);
        let failed = |error| ServerError::Address { address, error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            write_time: WRITE_TIME,
            log: None,
        })
    }

    /// Sets the write timeout: a connection is closed if its client does not read pending output for this
    /// long.
    pub fn with_write_time(mut self, time: Duration) -> Self {
        self.write_time = time;
        self
    }

    /// Logs every request that is rejected because of its host or origin.
    pub fn with_log(mut self, log: Arc<RequestLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests for `hosts` until a message is sent to `stop` or its sender is dropped. Requests in
    /// progress then have `drain` to complete.
    ///
    /// # Errors
    /// The operating system cannot provide a thread or a timer, or has closed the listener.
    pub fn run(
        self,
        router: Router,
        hosts: Hosts,
        stop: oneshot::Receiver<()>,
        drain: Duration,
    ) -> Result<(), ServerError> {
        let router = hosts.guard(router, self.log);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .build()
            .map_err(ServerError::Run)?;
        runtime.block_on(async {
            let listener =
                tokio::net::TcpListener::from_std(self.listener).map_err(ServerError::Run)?;
            serve(listener, router, self.write_time, stop, drain).await;
            Ok(())
        })
    }
}

/// Returns true if the time can be written as the header `Date`: from 1970 to 9999. A clock can be wrong, and the header is
/// optional.
fn has_date(now: SystemTime) -> bool {
    const END: Duration = Duration::from_secs(253_402_300_800);
    // Connections stay open for a while.
    const MARGIN: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.is_ok_and(|since| since < END - MARGIN)
}

async fn serve(
    listener: tokio::net::TcpListener,
    router: Router,
    write_time: Duration,
    mut stop: oneshot::Receiver<()>,
    drain: Duration,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = Connections::new();
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = async {
            let accepted = listener.accept().await;
            (place(&places, &connections).await, accepted)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            // A message and a dropped sender both mean stop.
            _ = &mut stop => break,
        };
        let Ok((stream, client)) = accepted else {
            // For example because too many files are open.
            connections.close_idlest();
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Send tokens immediately.
        let _ = stream.set_nodelay(true);
        let activity = connections.open(client);
        let stream = TimedStream::new(stream, Arc::clone(&activity), write_time);
        let (router, used) = (router.clone(), Arc::clone(&activity));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let router = router.clone();
            answered(
                Arc::clone(&used),
                request.map(Body::new),
                async move |request| router.oneshot(request).await,
            )
        });
        http.auto_date_header(has_date(SystemTime::now()));
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        let connections = connections.clone();
        tokio::spawn(async move {
            // An error ends only its own connection.
            tokio::select! {
                _ = connection => {}
                () = activity.closed() => {}
            }
            connections.forget(&activity);
            drop(place);
        });
    }
    drop(listener);
    connections.close_unused();
    // Requests that exceed `drain` are aborted.
    let _ = timeout(drain, graceful.shutdown()).await;
}

/// A permit for one more connection. If there are too many, closes the one that has been idle the longest.
async fn place(places: &Arc<Semaphore>, connections: &Connections) -> Option<OwnedSemaphorePermit> {
    /// The interval at which idle connections are looked for.
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        let place = Arc::clone(places).acquire_owned();
        if places.available_permits() == 0 {
            connections.close_idlest();
        }
        match timeout(PAUSE, place).await {
            Ok(place) => return place.ok(),
            Err(_) => continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_outside_of_the_header_date_have_no_date() {
        const DAY: u64 = 24 * 60 * 60;
        let after = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * DAY);
        assert!(has_date(SystemTime::UNIX_EPOCH) && has_date(after(20_000)));
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert!(
            !has_date(before)
                && !has_date(after(2_932_897))
                && !has_date(after(u64::from(u32::MAX)))
        );
    }
}
