//! A thread with a connection, and the calls to it.
//!
//! The worker's thread sends commands, and waits for an answer as long as its slice allows. So the worker decodes
//! records while the database writes rows.

use std::fmt;
use std::future::Future;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc as commands, oneshot};

/// The worker's side of the channel. Dropping it ends the thread and closes the connection.
pub(crate) struct Actor<C, A> {
    commands: commands::UnboundedSender<(u64, C)>,
    answers: mpsc::Receiver<(u64, A)>,
    number: u64,
    /// The command whose answer is awaited, to recognise a repeated call.
    waiting: Option<&'static str>,
    /// Ends the thread also in the middle of a statement.
    _stop: oneshot::Sender<()>,
}

impl<C, A> fmt::Debug for Actor<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actor").finish_non_exhaustive()
    }
}

/// The thread's side of the channel.
pub(crate) struct Inbound<C, A> {
    commands: commands::UnboundedReceiver<(u64, C)>,
    answers: mpsc::Sender<(u64, A)>,
}

/// The thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl<C: Send + 'static, A: Send + 'static> Actor<C, A> {
    /// Starts a thread that runs `work` until it ends, or until the actor is dropped.
    pub(crate) fn spawn<W, F>(name: &str, work: W) -> std::io::Result<Self>
    where
        W: FnOnce(Inbound<C, A>) -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let runtime = crate::connect::runtime()?;
        let (command_sender, command_receiver) = commands::unbounded_channel();
        let (answer_sender, answers) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let inbound = Inbound {
            commands: command_receiver,
            answers: answer_sender,
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = work(inbound) => {}
                        _ = stopped => {}
                    }
                });
                // A lookup of a host name cannot be interrupted, so the runtime does not wait for it.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            commands: command_sender,
            answers,
            number: 0,
            waiting: None,
            _stop: stop,
        })
    }

    /// Sends a command without an answer.
    pub(crate) fn tell(&mut self, command: C) {
        // The next `ask` returns an error if the thread has ended.
        let _ = self.commands.send((0, command));
    }

    /// Sends a command, unless the same call was pending, and waits for its answer.
    pub(crate) fn ask(
        &mut self,
        what: &'static str,
        command: impl FnOnce() -> C,
        slice: Duration,
    ) -> Poll<Result<A, Gone>> {
        if self.waiting != Some(what) {
            self.number += 1;
            self.waiting = Some(what);
            if self.commands.send((self.number, command())).is_err() {
                return Poll::Ready(Err(Gone));
            }
        }
        let end = std::time::Instant::now() + slice;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match self.answers.recv_timeout(left) {
                // The answer to a call that was abandoned.
                Ok((number, _)) if number != self.number => {}
                Ok((_, answer)) => {
                    self.waiting = None;
                    return Poll::Ready(Ok(answer));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => return Poll::Pending,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Poll::Ready(Err(Gone)),
            }
        }
    }

    /// Forgets a pending call.
    pub(crate) fn abandon(&mut self) {
        self.waiting = None;
    }
}

impl<C, A> Inbound<C, A> {
    /// Returns the next command, with the number for its answer.
    pub(crate) async fn next(&mut self) -> Option<(u64, C)> {
        self.commands.recv().await
    }

    /// Returns whether no command waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(crate) fn answer(&self, number: u64, answer: A) {
        // The worker may have dropped its side. Then no answer is needed.
        let _ = self.answers.send((number, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> Actor<u32, u32> {
        Actor::spawn("test", |mut inbound: Inbound<u32, u32>| async move {
            while let Some((number, command)) = inbound.next().await {
                tokio::time::sleep(Duration::from_millis(u64::from(command))).await;
                inbound.answer(number, command);
            }
        })
        .unwrap()
    }

    #[test]
    fn a_repeated_call_is_sent_once() {
        let mut actor = echo();
        let pending = actor.ask("a", || 50, Duration::from_millis(1));
        assert_eq!(pending, Poll::Pending);
        let same = actor.ask("a", || 99, Duration::from_secs(5));
        assert_eq!(same, Poll::Ready(Ok(50)));
    }

    #[test]
    fn the_answer_to_an_abandoned_call_is_dropped() {
        let mut actor = echo();
        assert_eq!(actor.ask("a", || 20, Duration::ZERO), Poll::Pending);
        let other = actor.ask("b", || 1, Duration::from_secs(5));
        assert_eq!(other, Poll::Ready(Ok(1)));
    }
}
