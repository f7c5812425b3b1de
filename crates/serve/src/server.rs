//! An HTTP server on one address.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

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
use crate::request_log::RequestLog;

/// Connections at the same time; for one more the one that has been idle for the longest is closed.
pub(crate) const CONNECTIONS: usize = 1024;
/// The default time a client may read nothing while there is something to write.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// The time limit for receiving a request's head; a connection without a request for this time is closed.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(30);
/// Bytes of a request's head at most.
const HEAD: usize = 64 << 10;

/// Threads for what takes its time: long texts, grammars, files. More of it waits.
const BLOCKING: usize = 4;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// The system gives no thread or timer, or took the listener away.
    #[error("the server cannot run: {0}")]
    Run(io::Error),
}

/// A listening address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    write_time: Duration,
    log: Option<Arc<RequestLog>>,
}

impl Server {
    /// Listens; connections wait from here on. Port 0 takes any that is free.
    ///
    /// # Errors
    /// The address is taken, forbidden, or not this machine's.
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

    /// Closes a connection whose client reads nothing for as long as this while there is something to be written.
    pub fn with_write_time(mut self, time: Duration) -> Self {
        self.write_time = time;
        self
    }

    /// Gives `log` a record of each request that is refused for its host or origin.
    pub fn with_log(mut self, log: Arc<RequestLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests to `hosts` until `stop` is sent to or dropped. Requests that are being answered then have `drain` to end in.
    ///
    /// # Errors
    /// The system gives no thread or timer, or took the listener away.
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
            .max_blocking_threads(BLOCKING)
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
            // Sent to or dropped: either is the end.
            _ = &mut stop => break,
        };
        let Ok((stream, client)) = accepted else {
            // Too many open files, say.
            connections.close_idlest();
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Tokens go out as they are made.
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
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        let connections = connections.clone();
        tokio::spawn(async move {
            // What goes wrong with a connection ends it, and nothing else.
            tokio::select! {
                _ = connection => {}
                () = activity.closed() => {}
            }
            connections.forget(&activity);
            drop(place);
        });
    }
    drop(listener);
    // What has not ended by then is cut off.
    let _ = timeout(drain, graceful.shutdown()).await;
}

/// A place for one more connection: that of the one that has been idle for the longest, where there are too many.
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
