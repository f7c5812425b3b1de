//! Jobs whose ranks are threads of one process.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use emberlm_trainer::Transport;

use super::TcpJoinError;
use super::links::{Channel, End, Links};
use super::rendezvous::{Meeting, meet};
use crate::TcpLaunch;

const PATIENCE: Duration = Duration::from_secs(60);

/// A port that was free a moment ago. If another program takes it, rank 0 takes one of the next.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn launch(rank: usize, world_size: usize, port: u16) -> TcpLaunch {
    TcpLaunch {
        rank,
        world_size,
        address: "127.0.0.1".to_owned(),
        port,
        local: None,
        id: None,
    }
}

/// Lets the ranks meet, on hosts with these names.
fn met(hosts: &[&str], port: u16) -> Vec<Meeting> {
    let size = hosts.len();
    thread::scope(|scope| {
        let start = |(rank, host)| {
            scope.spawn(move || meet(&launch(rank, size, port), host, PATIENCE, |_| {}))
        };
        let threads: Vec<_> = hosts.iter().copied().enumerate().map(start).collect();
        let meetings = threads.into_iter().map(|thread| thread.join().unwrap());
        meetings
            .map(|meeting| meeting.unwrap_or_else(|error| panic!("{error}")))
            .collect()
    })
}

#[test]
fn ranks_meet_and_know_their_place_on_the_host() {
    let meetings = met(&["a", "b", "a", "b", "b"], free_port());
    for (rank, meeting) in meetings.iter().enumerate() {
        let linked: Vec<bool> = meeting.streams.iter().map(Option::is_some).collect();
        let expected: Vec<bool> = (0..5).map(|other| other != rank).collect();
        assert_eq!(linked, expected, "rank {rank}");
        let local = meeting.local_rank(rank);
        let expected = [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)][rank];
        assert_eq!((local.index(), local.world_size()), expected, "rank {rank}");
    }
}

/// As the store of `torchrun`, which listens at the launch's port and does not answer.
#[test]
fn a_foreign_program_at_the_port_is_passed_over() {
    let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = foreign.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in foreign.incoming() {
            let _ = stream.unwrap().write_all(b"220 mail.example.org ready\r\n");
        }
    });
    assert_eq!(met(&["a", "a"], port).len(), 2);
}

/// Two jobs of equal size whose ports lie beside each other, one of which is late.
#[test]
fn ranks_do_not_join_another_job() {
    let port = free_port();
    thread::scope(|scope| {
        let meets = |rank, port| {
            let met = scope.spawn(move || meet(&launch(rank, 2, port), "a", PATIENCE, |_| {}));
            move || {
                met.join()
                    .unwrap()
                    .unwrap_or_else(|error| panic!("{error}"))
            }
        };
        let other = meets(0, port + 1);
        let ours = meets(1, port);
        thread::sleep(Duration::from_millis(300));
        let first = meets(0, port);
        assert_eq!(ours().members[0].port, first().members[0].port);
        meets(1, port + 1)();
        other();
    });
}

#[test]
fn what_others_send_to_rank_0_does_not_disturb_it() {
    let port = free_port();
    thread::scope(|scope| {
        let first = scope.spawn(|| meet(&launch(0, 2, port), "a", PATIENCE, |_| {}));
        let mut sent = 0;
        // A request, a message of a false length, and one that ends early.
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"emberlm\x01\xff\xff\xff\xff{}",
            b"emberlm\x01\x20\0\0\0{",
        ] {
            while let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .and_then(|mut stream| stream.write_all(bytes))
            {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
                thread::sleep(Duration::from_millis(5));
            }
            sent += 1;
        }
        assert_eq!(sent, 3);
        let second = meet(&launch(1, 2, port), "a", PATIENCE, |_| {});
        assert!(second.is_ok() && first.join().unwrap().is_ok());
    });
}

#[test]
fn ranks_that_are_not_expected_are_told_why() {
    let port = free_port();
    thread::scope(|scope| {
        let first = scope.spawn(|| meet(&launch(0, 3, port), "a", PATIENCE, |_| {}));
        let refused = |rank, size| match meet(&launch(rank, size, port), "b", PATIENCE, |_| {}) {
            Err(TcpJoinError::Refused(reason)) => reason,
            other => panic!("{:?}", other.err()),
        };
        assert_eq!(refused(1, 2), "it is one of 2 ranks, rank 0 of 3");
        // Of two that call themselves rank 1, the later one is refused.
        let (sender, ends) = mpsc::channel();
        for host in ["a", "b"] {
            let sender = sender.clone();
            scope.spawn(move || {
                let met = meet(&launch(1, 3, port), host, PATIENCE, |_| {});
                sender.send(met.err()).unwrap();
            });
        }
        match ends.recv().unwrap() {
            Some(TcpJoinError::Refused(reason)) => {
                let expected = "another process is rank 1, on ";
                assert!(reason.starts_with(expected), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert!(meet(&launch(2, 3, port), "b", PATIENCE, |_| {}).is_ok());
        assert!(ends.recv().unwrap().is_none());
        assert!(first.join().unwrap().is_ok());
    });
}

#[test]
fn the_missing_ranks_are_named() {
    let (port, patience) = (free_port(), Duration::from_millis(200));
    let error = meet(&launch(0, 4, port), "a", patience, |_| {}).err();
    let message = error.map(|error| error.to_string()).unwrap_or_default();
    let expected = "of 4 ranks, ranks 1, 2 and 3 did not come to port ";
    assert!(message.starts_with(expected), "{message}");
    let error = meet(&launch(1, 4, port), "a", patience, |_| {}).err();
    let message = error.map(|error| error.to_string()).unwrap_or_default();
    let expected = format!("rank 0 of 4 was not found at 127.0.0.1:{port} within 0 s: ");
    assert!(message.starts_with(&expected), "{message}");
}

/// Links of two ranks, and what ends them.
fn pair() -> [(std::sync::Arc<Links>, mpsc::Receiver<End>); 2] {
    let mut meetings = met(&["a", "a"], free_port()).into_iter();
    [(); 2].map(|()| {
        let (sender, ends) = mpsc::channel();
        let ended = move |end, _: &Links| sender.send(end).unwrap_or_default();
        (
            Links::new(meetings.next().unwrap().streams, ended).unwrap(),
            ends,
        )
    })
}

#[test]
fn channels_have_their_own_order() {
    let [(one, _ends), (two, _others)] = pair();
    let long = vec![7; 3 << 20];
    one.send(1, Channel::Numbers, &long).unwrap();
    one.send(1, Channel::Bytes, b"first").unwrap();
    one.send(1, Channel::Bytes, b"").unwrap();
    assert_eq!(two.receive(0, Channel::Bytes).unwrap(), b"first");
    assert_eq!(two.receive(0, Channel::Bytes).unwrap(), b"");
    assert_eq!(two.receive(0, Channel::Numbers).unwrap(), long);
}

#[test]
fn a_rank_ends_by_leaving_aborting_or_breaking_off() {
    let [(one, ends), (two, others)] = pair();
    thread::scope(|scope| {
        scope.spawn(|| one.leave());
        two.leave();
    });
    let error = two.receive(0, Channel::Bytes).unwrap_err();
    assert_eq!(error, "rank 0 has left the job");
    // No end is reported, also not when the connections close.
    drop((one, two));
    assert!(ends.recv().is_err() && others.recv().is_err());

    let [(one, ends), (two, others)] = pair();
    one.abort(3);
    assert_eq!(others.recv().unwrap(), End::Aborted(3));
    // Who aborts the job does not report that the others end.
    drop(two);
    assert!(ends.recv().is_err());

    let mut meetings = met(&["a", "a"], free_port()).into_iter();
    let (sender, ends) = mpsc::channel();
    let ended = move |end, _: &Links| sender.send(end).unwrap_or_default();
    let _links = Links::new(meetings.next().unwrap().streams, ended).unwrap();
    drop(meetings);
    let expected = End::Lost(1, "its connection has ended".to_owned());
    assert_eq!(ends.recv().unwrap(), expected);
}

/// Each rank receives the slices for it in rank order.
#[test]
fn numbers_reach_their_ranks() {
    let port = free_port();
    thread::scope(|scope| {
        let start = |rank: usize| {
            scope.spawn(move || {
                let launch = launch(rank, 3, port);
                let job =
                    super::TcpJob::join(&launch, |_| {}, |reason| panic!("{reason}")).unwrap();
                let transport = job.transport();
                let sent: Vec<f32> = (0..4).map(|n| (10 * rank + n) as f32 + 0.5).collect();
                let (mut slices, mut gathered) = (vec![0.0; 4], vec![0.0; 8]);
                transport.all_to_all(&sent, &mut slices).unwrap();
                transport.all_gather(&sent, &mut gathered).unwrap();
                let bytes = transport.all_gather_bytes(&vec![rank as u8; rank]).unwrap();
                assert_eq!(bytes, [vec![], vec![1], vec![2, 2]]);
                let of = |other: usize, range: std::ops::Range<usize>| -> Vec<f32> {
                    range.map(|n| (10 * other + n) as f32 + 0.5).collect()
                };
                let others: Vec<usize> = (0..3).filter(|&other| other != rank).collect();
                // The slice for this rank in another's: its place among the others of that rank.
                let place = |other: usize| rank - usize::from(rank > other);
                let expected: Vec<f32> = others
                    .iter()
                    .flat_map(|&other| of(other, 2 * place(other)..2 * place(other) + 2))
                    .collect();
                assert_eq!(slices, expected, "rank {rank}");
                let expected: Vec<f32> = others.iter().flat_map(|&other| of(other, 0..4)).collect();
                assert_eq!(gathered, expected, "rank {rank}");
                job.finish();
            })
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}
