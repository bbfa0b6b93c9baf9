//! The thread that starts the brokers.
//!
//! It runs as long as the owner of the brokers.
//!
//! Linux sends the parent-death signal when the *thread* that forked ends, not its process. A cluster that a
//! short-lived thread started would end with that thread, and every test has such a thread.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::os;

type Request = (Command, SyncSender<io::Result<Child>>);

/// Starts processes that end with this value. If `tied` is not set, they outlive it.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: SyncSender<Request>,
}

impl Spawner {
    /// Starts the thread. It ends when the value is dropped, and the tied processes end with it.
    pub(crate) fn start(tied: bool) -> Spawner {
        let (requests, taken) = sync_channel(1);
        std::thread::spawn(move || serve(&taken, tied));
        Spawner { requests }
    }

    /// Starts a process.
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, answer) = sync_channel(1);
        let gone = || io::Error::other("the thread that starts brokers has ended");
        self.requests.send((command, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

fn serve(requests: &Receiver<Request>, tied: bool) {
    for (mut command, reply) in requests {
        if tied {
            os::die_with_spawning_thread(&mut command);
        }
        // The receiver is dropped only while the owner is dropped, and then the process ends, too.
        let _ = reply.send(command.spawn());
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use super::*;
    use crate::run;

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("600");
        command
    }

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it() {
        let (spawner, mut child) = std::thread::spawn(|| {
            let spawner = Spawner::start(true);
            let child = spawner.spawn(sleeper()).unwrap();
            (spawner, child)
        })
        .join()
        .unwrap();
        let ended = run::wait_within(&mut child, Duration::from_millis(300)).unwrap();
        assert_eq!(ended, None);
        drop(spawner);
        let ended = run::wait_within(&mut child, Duration::from_secs(10)).unwrap();
        assert_eq!(
            ended.and_then(|status| status.signal()),
            Some(rustix::process::Signal::KILL.as_raw())
        );
    }

    #[test]
    fn a_process_that_is_not_tied_lives_on() {
        let spawner = Spawner::start(false);
        let mut child = spawner.spawn(sleeper()).unwrap();
        drop(spawner);
        let ended = run::wait_within(&mut child, Duration::from_millis(300)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ended, None);
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let spawner = Spawner::start(true);
        let error = spawner.spawn(Command::new("/no/such/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
