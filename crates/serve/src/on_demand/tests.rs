use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{future, thread};

use emberlm_generate::EventKind;

use super::*;
use crate::residency::Residency;
use crate::worker::{Refusal, Worker};

/// The events, in order.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// An engine that answers a request per step, unless it is held, or stalled by clients that do not read.
struct Fake {
    name: &'static str,
    journal: Journal,
    held: Arc<AtomicBool>,
    stalled: Arc<AtomicBool>,
    waiting: VecDeque<RequestId>,
    answered: u64,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.journal.add(format!("unload {}", self.name));
    }
}

impl WorkerEngine for Fake {
    type Replacement = ();

    fn limits(&self) -> EngineLimits {
        EngineLimits {
            slots: 1,
            context: 1,
        }
    }

    fn sizes(&self) -> ModelSizes {
        ModelSizes {
            vocab_size: 1,
            d_model: 1,
            n_layers: 1,
            heads: 1,
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            passes: self.answered,
            ..Counts::default()
        }
    }

    fn submit(&mut self, _: Work) -> Result<RequestId, SubmitError> {
        let id = RequestId::new();
        self.waiting.push_back(id);
        Ok(id)
    }

    fn step(&mut self, on: &mut dyn FnMut(Event)) -> bool {
        if self.stalled.load(Ordering::SeqCst) {
            return false;
        }
        if self.held.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
            return true;
        }
        let Some(request) = self.waiting.pop_front() else {
            return false;
        };
        self.answered += 1;
        self.journal.add(format!("answer {}", self.name));
        on(Event {
            request,
            sample: 0,
            kind: EventKind::Embedded(Vec::new()),
        });
        true
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    fn pause(&mut self, _: RequestId) {}

    fn resume(&mut self, _: RequestId) {}

    fn cancel(&mut self, request: RequestId) {
        self.waiting.retain(|waiting| *waiting != request);
    }

    fn cancel_sample(&mut self, _: RequestId, _: usize) {}

    fn replace(&mut self, (): ()) {}
}

/// A model of a server, whose engine can be held and whose loading can be made to fail.
struct Model {
    worker: Worker,
    held: Arc<AtomicBool>,
    stalled: Arc<AtomicBool>,
    damaged: Arc<AtomicBool>,
}

impl Model {
    fn start(
        name: &'static str,
        bytes: u64,
        residency: &Arc<Residency>,
        journal: &Journal,
    ) -> Self {
        let model = [(); 3].map(|()| Arc::<AtomicBool>::default());
        let (journal, [of_engine, stalls, broken]) = (journal.clone(), model.clone());
        let load = move || {
            if broken.load(Ordering::SeqCst) {
                return Err("the file is damaged".to_owned());
            }
            journal.add(format!("load {name}"));
            Ok(Fake {
                name,
                journal: journal.clone(),
                held: Arc::clone(&of_engine),
                stalled: Arc::clone(&stalls),
                waiting: VecDeque::new(),
                answered: 0,
            })
        };
        let place = residency.add(bytes);
        place.enter();
        let engine = load().unwrap();
        let reload = Reload {
            place,
            load: Box::new(load),
        };
        let (worker, _) = Worker::start(OnDemand::new(engine, Some(reload)), 10).unwrap();
        let [held, stalled, damaged] = model;
        Self {
            worker,
            held,
            stalled,
            damaged,
        }
    }

    /// Sends a request and waits for its answer.
    async fn ask(&self) -> Result<(), Refusal> {
        let mut ticket = self.worker.submit_embedding(vec![vec![0]]).await?;
        assert!(ticket.next().await.is_some());
        Ok(())
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn models_that_fit_together_stay_loaded() {
    let (residency, journal) = (Residency::new(5), Journal::default());
    let [a, b] = ["a", "b"].map(|name| Model::start(name, 2, &residency, &journal));
    block_on(async {
        for _ in 0..2 {
            a.ask().await.unwrap();
            b.ask().await.unwrap();
        }
    });
    assert_eq!(
        journal.lines(),
        [
            "load a", "load b", "answer a", "answer b", "answer a", "answer b"
        ]
    );
}

#[test]
fn the_model_that_was_used_least_recently_makes_room() {
    let (residency, journal) = (Residency::new(4), Journal::default());
    let [a, b, c] = ["a", "b", "c"].map(|name| Model::start(name, 2, &residency, &journal));
    assert_eq!(journal.lines(), ["load a", "load b", "unload a", "load c"]);
    block_on(async {
        b.ask().await.unwrap();
        // Not `b`, which was just used.
        a.ask().await.unwrap();
        b.ask().await.unwrap();
        // Not `b`, again.
        c.ask().await.unwrap();
    });
    let expected = [
        "answer b", "unload c", "load a", "answer a", "answer b", "unload a", "load c", "answer c",
    ];
    assert_eq!(journal.lines()[4..], expected);
    // The totals of unloaded engines count.
    while a.worker.counts().passes != 1 {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_model_answers_its_requests_before_it_leaves_and_later_ones_afterwards() {
    let (residency, journal) = (Residency::new(1), Journal::default());
    let [a, b] = ["a", "b"].map(|name| Model::start(name, 1, &residency, &journal));
    block_on(async {
        b.held.store(true, Ordering::SeqCst);
        let mut running = b.worker.submit_embedding(vec![vec![0]]).await.unwrap();
        let wait = Duration::from_millis(50);
        let of_a = a.ask();
        let of_b = async {
            tokio::time::sleep(wait).await;
            b.ask().await
        };
        let release = async {
            tokio::time::sleep(2 * wait).await;
            b.held.store(false, Ordering::SeqCst);
            running.next().await
        };
        let (mut of_a, mut of_b, mut release) = (Box::pin(of_a), Box::pin(of_b), Box::pin(release));
        let mut done = [false; 3];
        future::poll_fn(|context| {
            done[0] = done[0] || of_a.as_mut().poll(context).is_ready();
            done[1] = done[1] || of_b.as_mut().poll(context).is_ready();
            done[2] = done[2] || release.as_mut().poll(context).is_ready();
            match done {
                [true, true, true] => std::task::Poll::Ready(()),
                _ => std::task::Poll::Pending,
            }
        })
        .await;
    });
    let expected = [
        "answer b", "unload b", "load a", "answer a", "unload a", "load b", "answer b",
    ];
    assert_eq!(journal.lines()[3..], expected);
}

/// The handle of an answered request outlives the engine that answered it.
#[test]
fn a_handle_that_is_dropped_late_ends_no_other_request() {
    let (residency, journal) = (Residency::new(1), Journal::default());
    let [a, b] = ["a", "b"].map(|name| Model::start(name, 1, &residency, &journal));
    block_on(async {
        let mut answered = Vec::new();
        for model in [&a, &b, &a] {
            let mut ticket = model.worker.submit_embedding(vec![vec![0]]).await.unwrap();
            assert!(ticket.next().await.is_some());
            answered.push(ticket);
        }
        a.held.store(true, Ordering::SeqCst);
        let mut waiting = a.worker.submit_embedding(vec![vec![0]]).await.unwrap();
        drop(answered);
        a.held.store(false, Ordering::SeqCst);
        assert!(waiting.next().await.is_some());
    });
}

/// A client that does not read would keep its model loaded until its time is over.
#[test]
fn a_client_that_does_not_read_keeps_no_model_loaded() {
    let (residency, journal) = (Residency::new(1), Journal::default());
    let [a, b] = ["a", "b"].map(|name| Model::start(name, 1, &residency, &journal));
    block_on(async {
        b.stalled.store(true, Ordering::SeqCst);
        let mut unread = b.worker.submit_embedding(vec![vec![0]]).await.unwrap();
        a.ask().await.unwrap();
        assert!(unread.next().await.is_none());
        assert!(matches!(unread.failure(), Refusal::Unread));
    });
}

#[test]
fn a_model_that_cannot_be_loaded_again_is_an_error_of_its_request_only() {
    let (residency, journal) = (Residency::new(1), Journal::default());
    let [a, b] = ["a", "b"].map(|name| Model::start(name, 1, &residency, &journal));
    block_on(async {
        a.damaged.store(true, Ordering::SeqCst);
        let refused = a.ask().await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the model cannot be loaded: the file is damaged"
        );
        b.ask().await.unwrap();
        a.damaged.store(false, Ordering::SeqCst);
        a.ask().await.unwrap();
    });
}
