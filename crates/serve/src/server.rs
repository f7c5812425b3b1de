//! An address that is listened on, until the program is told to stop.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use axum::Router;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// It.
        address: SocketAddr,
        /// Why.
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
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is sent to or dropped. Requests that are being answered are answered whole.
    ///
    /// # Errors
    /// The system gives no thread or timer, or took the listener away.
    pub fn run(self, router: Router, stop: oneshot::Receiver<()>) -> Result<(), ServerError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Run)?;
        runtime.block_on(async {
            let listener =
                tokio::net::TcpListener::from_std(self.listener).map_err(ServerError::Run)?;
            axum::serve(listener, router)
                .with_graceful_shutdown(async {
                    // Sent to or dropped: either is the end.
                    let _ = stop.await;
                })
                .await
                .map_err(ServerError::Run)
        })
    }
}
