//! The search of a job's ranks for each other.
//!
//! Rank 0 listens at the launch's port, or at one of the next if it is taken. Every other rank sends its number and its own port
//! there. When all have come, rank 0 sends the list to everyone, and each rank connects to those before it; the first
//! connection stays the one with rank 0.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use emberlm_trainer::Rank;

use super::greeting::{self, Answer, Connect, Hello, Member};
use crate::TcpLaunch;

/// The time that ranks wait for each other. Machines of one job may start minutes apart.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// The time after which a rank says what it waits for.
const SILENCE: Duration = Duration::from_secs(10);
/// The time for a message on an open connection, so that a foreign program does not keep the others waiting.
const ANSWER: Duration = Duration::from_secs(2);
/// The ports from the launch's on at which rank 0 may listen.
const PORTS: u16 = 16;
/// The pause between two looks for connections.
const PAUSE: Duration = Duration::from_millis(10);

/// The ranks cannot reach each other.
#[derive(Debug, thiserror::Error)]
pub enum TcpJoinError {
    /// No program of the job answers at the address.
    #[error(
        "rank 0 of {world_size} was not found at {address}:{port} within {seconds} s: {reason}"
    )]
    NotFound {
        /// The number of ranks.
        world_size: usize,
        /// The address of the launch.
        address: String,
        /// The port of the launch.
        port: u16,
        /// The time of waiting.
        seconds: u64,
        /// The error of the last attempt.
        reason: String,
    },
    /// Some ranks have not come.
    #[error("of {world_size} ranks, {missing} did not come to port {port} within {seconds} s")]
    Missing {
        /// The number of ranks.
        world_size: usize,
        /// The missing ones.
        missing: String,
        /// The port at which rank 0 listens.
        port: u16,
        /// The time of waiting.
        seconds: u64,
    },
    /// Rank 0 does not expect this process.
    #[error("rank 0 refused this rank: {0}")]
    Refused(String),
    /// No port is free.
    #[error("rank 0 cannot listen at port {port} or the {PORTS} after it: {reason}")]
    NoPort {
        /// The port of the launch.
        port: u16,
        /// The reason for the last one.
        reason: String,
    },
    /// A connection failed.
    #[error("the connection with rank {rank} failed: {reason}")]
    Connection {
        /// The other rank.
        rank: usize,
        /// The reason.
        reason: String,
    },
}

/// The ranks of a job with a connection to each.
pub(super) struct Meeting {
    pub members: Vec<Member>,
    /// By rank; `None` for this rank.
    pub streams: Vec<Option<TcpStream>>,
}

impl Meeting {
    /// The index of a rank among those on its host, and their number: as the launcher says, or by the names of the hosts.
    pub fn local_rank(&self, rank: usize) -> Rank {
        let own = &self.members[rank];
        let [index, size] = own.local.unwrap_or_else(|| {
            let on_host = |of: &&Member| of.host == own.host;
            let before = self.members[..rank].iter().filter(on_host).count();
            [before, self.members.iter().filter(on_host).count()]
        });
        Rank::new(index, size).unwrap_or(Rank::SINGLE)
    }
}

/// Meets all other ranks.
pub(super) fn meet(
    launch: &TcpLaunch,
    host: &str,
    patience: Duration,
    note: impl Fn(&str),
) -> Result<Meeting, TcpJoinError> {
    match launch.rank {
        0 => receive(launch, host, patience, note),
        _ => join(launch, host, patience, note),
    }
}

/// The addresses at which this process listens. A host's own name may stand for a loopback address there, but for another one
/// on other hosts.
fn own_addresses(launch: &TcpLaunch) -> Vec<IpAddr> {
    let loopback = match launch.address.as_str() {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        other => other.parse().ok().filter(IpAddr::is_loopback),
    };
    match loopback {
        Some(address) => vec![address],
        // The first takes connections of both kinds, where IPv6 is available.
        None => vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    }
}

fn listen(launch: &TcpLaunch, ports: RangeInclusive<u16>) -> Result<TcpListener, io::Error> {
    let mut last = io::Error::other("no address");
    for port in ports {
        for address in own_addresses(launch) {
            match TcpListener::bind((address, port)) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    return Ok(listener);
                }
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

/// The next connection, if there is one before `end`.
fn next(listener: &TcpListener, end: Instant) -> Option<(TcpStream, SocketAddr)> {
    while Instant::now() < end {
        match listener.accept() {
            Ok((stream, from)) => {
                let usable = stream
                    .set_nonblocking(false)
                    .and_then(|()| stream.set_read_timeout(Some(ANSWER)))
                    .and_then(|()| stream.set_nodelay(true));
                if usable.is_ok() {
                    return Some((stream, from));
                }
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
    None
}

/// Rank 0's part.
fn receive(
    launch: &TcpLaunch,
    host: &str,
    patience: Duration,
    note: impl Fn(&str),
) -> Result<Meeting, TcpJoinError> {
    let (port, world_size) = (launch.port, launch.world_size);
    let ports = port..=port.saturating_add(PORTS);
    let listener = listen(launch, ports).map_err(|error| TcpJoinError::NoPort {
        port,
        reason: error.to_string(),
    })?;
    let port = listener.local_addr().map_or(port, |of| of.port());
    let own = Member {
        host: host.to_owned(),
        address: None,
        port,
        local: launch.local,
    };
    let mut members = vec![None; world_size];
    members[0] = Some(own);
    let mut streams: Vec<Option<TcpStream>> = (0..world_size).map(|_| None).collect();
    let end = Instant::now() + patience;
    let mut silent_until = Some(Instant::now() + SILENCE);
    while members.iter().any(Option::is_none) {
        let until = silent_until.map_or(end, |silent| silent.min(end));
        let Some((mut stream, from)) = next(&listener, until) else {
            let missing = listed(&members);
            if Instant::now() >= end {
                return Err(TcpJoinError::Missing {
                    world_size,
                    missing,
                    port,
                    seconds: patience.as_secs(),
                });
            }
            note(&format!(
                "waiting for {missing} of {world_size} at port {port}"
            ));
            silent_until = None;
            continue;
        };
        let Ok(hello) = greeting::read::<Hello>(&mut stream) else {
            continue;
        };
        if hello.job != launch.job() {
            // It tries another port.
            let _ = greeting::write(&mut stream, &Answer::AnotherJob);
            continue;
        }
        let address = Some(from.ip().to_canonical()).filter(|ip| !ip.is_loopback());
        let (rank, member) = (
            hello.rank,
            Member {
                address,
                ..hello.member.clone()
            },
        );
        let answer = match refusal(&hello, launch, members.get(rank), &member) {
            Some(reason) => Answer::Refused(reason),
            None => Answer::Welcome,
        };
        let sent = greeting::write(&mut stream, &answer);
        if let (Ok(()), Answer::Welcome) = (sent, answer) {
            members[rank] = Some(member);
            streams[rank] = Some(stream);
        }
    }
    let members: Vec<Member> = members.into_iter().flatten().collect();
    let answer = Answer::Members {
        secret: RandomState::new().hash_one(0),
        members: members.clone(),
    };
    for (rank, stream) in streams.iter_mut().enumerate() {
        if let Some(stream) = stream {
            greeting::write(stream, &answer).map_err(|error| failed(rank, &error))?;
        }
    }
    Ok(Meeting { members, streams })
}

/// The reason for which rank 0 does not take a rank, if there is one. A rank that has lost its connection may come again.
fn refusal(
    hello: &Hello,
    launch: &TcpLaunch,
    known: Option<&Option<Member>>,
    member: &Member,
) -> Option<String> {
    let Hello {
        version,
        world_size,
        rank,
        ..
    } = hello;
    let (own, size) = (env!("CARGO_PKG_VERSION"), launch.world_size);
    match known {
        _ if version != own => Some(format!("it is emberlm {version}, rank 0 is {own}")),
        _ if *world_size != size => {
            Some(format!("it is one of {world_size} ranks, rank 0 of {size}"))
        }
        None => Some(format!("there is no rank {rank} of {size}")),
        Some(Some(known)) if known != member => {
            Some(format!("another process is rank {rank}, on {}", known.host))
        }
        Some(_) => None,
    }
}

/// The ranks that have not come, such as "ranks 1 and 3".
fn listed(members: &[Option<Member>]) -> String {
    let missing = (0..members.len()).filter(|&rank| members[rank].is_none());
    let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
    match missing.split_last() {
        None => "no rank".to_owned(),
        Some((last, [])) => format!("rank {last}"),
        Some((last, rest)) => format!("ranks {} and {last}", rest.join(", ")),
    }
}

/// The part of the other ranks.
fn join(
    launch: &TcpLaunch,
    host: &str,
    patience: Duration,
    note: impl Fn(&str),
) -> Result<Meeting, TcpJoinError> {
    let failed_here = |error: io::Error| failed(launch.rank, &error);
    let listener = listen(launch, 0..=0).map_err(failed_here)?;
    let port = listener.local_addr().map_err(failed_here)?.port();
    let hello = Hello {
        job: launch.job(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        world_size: launch.world_size,
        rank: launch.rank,
        member: Member {
            host: host.to_owned(),
            address: None,
            port,
            local: launch.local,
        },
    };
    let mut first = find(launch, &hello, patience, note)?;
    // Rank 0 waits for the others as long as this rank would.
    let _ = first.set_read_timeout(Some(patience + ANSWER));
    let (secret, members) = match greeting::read::<Answer>(&mut first) {
        Ok(Answer::Members { secret, members }) if members.len() == launch.world_size => {
            (secret, members)
        }
        Ok(Answer::Refused(reason)) => return Err(TcpJoinError::Refused(reason)),
        Ok(_) => return Err(failed(0, &io::Error::other("an unexpected answer"))),
        Err(error) => return Err(failed(0, &error)),
    };
    let of_first = first.peer_addr().map_err(|error| failed(0, &error))?.ip();
    let mut streams: Vec<Option<TcpStream>> = (0..launch.world_size).map(|_| None).collect();
    for (rank, member) in members.iter().enumerate().take(launch.rank).skip(1) {
        let address = SocketAddr::new(member.address.unwrap_or(of_first), member.port);
        let connected = TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
            let rank = launch.rank;
            stream.set_nodelay(true)?;
            greeting::write(&mut stream, &Connect { secret, rank })?;
            Ok(stream)
        });
        streams[rank] = Some(connected.map_err(|error| failed(rank, &error))?);
    }
    streams[0] = Some(first);
    let end = Instant::now() + patience;
    let later = launch.rank + 1..launch.world_size;
    while let Some(rank) = later.clone().find(|&rank| streams[rank].is_none()) {
        let Some((mut stream, _)) = next(&listener, end) else {
            return Err(failed(rank, &io::ErrorKind::TimedOut.into()));
        };
        if let Ok(Connect { secret: told, rank }) = greeting::read(&mut stream)
            && told == secret
            && later.contains(&rank)
        {
            streams[rank] = Some(stream);
        }
    }
    Ok(Meeting { members, streams })
}

/// Finds rank 0.
fn find(
    launch: &TcpLaunch,
    hello: &Hello,
    patience: Duration,
    note: impl Fn(&str),
) -> Result<TcpStream, TcpJoinError> {
    let end = Instant::now() + patience;
    let mut silent_until = Some(Instant::now() + SILENCE);
    let mut reason = String::new();
    loop {
        for port in launch.port..=launch.port.saturating_add(PORTS) {
            match greeted(launch, port, hello) {
                Ok((stream, Answer::Welcome)) => return Ok(stream),
                Ok((_, Answer::Refused(reason))) => return Err(TcpJoinError::Refused(reason)),
                Ok(_) => {}
                // That of the port itself says more than that of the others, which are seldom used.
                Err(error) if port == launch.port => reason = error.to_string(),
                Err(_) => {}
            }
        }
        if Instant::now() >= end {
            return Err(TcpJoinError::NotFound {
                world_size: launch.world_size,
                address: launch.address.clone(),
                port: launch.port,
                seconds: patience.as_secs(),
                reason,
            });
        }
        if silent_until.is_some_and(|until| Instant::now() >= until) {
            note(&format!("looking for rank 0: {launch}: {reason}"));
            silent_until = None;
        }
        thread::sleep(10 * PAUSE);
    }
}

/// Says `hello` to the program at a port of rank 0's host.
fn greeted(launch: &TcpLaunch, port: u16, hello: &Hello) -> io::Result<(TcpStream, Answer)> {
    let mut last = io::Error::other("the name has no address");
    for address in (launch.address.as_str(), port).to_socket_addrs()? {
        let answer = TcpStream::connect_timeout(&address, ANSWER).and_then(|mut stream| {
            stream.set_nodelay(true)?;
            // Rank 0 may first wait for other programs.
            stream.set_read_timeout(Some(5 * ANSWER))?;
            greeting::write(&mut stream, hello)?;
            let answer = greeting::read(&mut stream)?;
            Ok((stream, answer))
        });
        match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn failed(rank: usize, error: &io::Error) -> TcpJoinError {
    TcpJoinError::Connection {
        rank,
        reason: error.to_string(),
    }
}
