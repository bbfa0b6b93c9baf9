//! What has to be done once in a while and nobody waits for, on a thread of its own.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Something that has to be done once in a while.
pub(super) struct Chore {
    /// How often.
    pub(super) every: Duration,
    /// What. It may take its time: the others wait for it, and nobody else does.
    pub(super) act: Box<dyn FnMut() + Send>,
}

/// The thread. It ends once this is dropped and what it does at that moment is done.
#[derive(Debug)]
pub(super) struct Chores {
    _going_on: Option<Sender<()>>,
}

impl Chores {
    /// Starts the thread, if there is anything to do.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(chores: Vec<Chore>) -> io::Result<Self> {
        if chores.is_empty() {
            return Ok(Self { _going_on: None });
        }
        let (going_on, over) = channel();
        let work = move || run(chores, &over);
        std::thread::Builder::new()
            .name("eos-chores".into())
            .spawn(work)?;
        Ok(Self {
            _going_on: Some(going_on),
        })
    }
}

/// Does each in its time, for the first time after that.
fn run(chores: Vec<Chore>, over: &Receiver<()>) {
    let begun = Instant::now();
    let mut due: Vec<(Instant, Chore)> = chores
        .into_iter()
        .map(|chore| (begun + chore.every, chore))
        .collect();
    while let Some((at, chore)) = due.iter_mut().min_by_key(|(at, _)| *at) {
        let wait = at.saturating_duration_since(Instant::now());
        match over.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        (chore.act)();
        *at = Instant::now() + chore.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_is_done_in_its_time_until_it_is_over() {
        let done = [0, 1].map(|_| Arc::new(AtomicU32::new(0)));
        let chore = |n: usize, every| {
            let done = Arc::clone(&done[n]);
            Chore {
                every: Duration::from_millis(every),
                act: Box::new(move || {
                    done.fetch_add(1, Ordering::Relaxed);
                }),
            }
        };
        let chores = Chores::start(vec![chore(0, 3_600_000), chore(1, 1)]).unwrap();
        let patience = Instant::now() + Duration::from_secs(30);
        while done[1].load(Ordering::Relaxed) < 5 {
            assert!(Instant::now() < patience);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(chores);
        let ended = || Arc::strong_count(&done[0]) == 1;
        while !ended() {
            assert!(Instant::now() < patience);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(done[0].load(Ordering::Relaxed), 0, "not due yet");
    }
}
