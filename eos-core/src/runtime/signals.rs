//! SIGTERM and SIGINT.

use std::io;

use crate::worker::StopMode;

/// A listener for the signals of the operating system, from its creation on.
///
/// SIGTERM stops the app for a restart: the partitions stay. SIGINT from a terminal stops it permanently: it leaves the
/// group.
#[derive(Debug)]
pub(crate) struct Signals(Option<System>);

impl Signals {
    /// Starts to listen, or does nothing if the system does not allow it.
    pub(crate) fn hear() -> Self {
        let system = System::hear().inspect_err(|error| {
            tracing::warn!(%error, "signals can't be received; stop the app through its handle");
        });
        Self(system.ok())
    }

    /// Waits for a stop signal.
    pub(crate) async fn asked(&mut self) -> StopMode {
        match &mut self.0 {
            Some(system) => system.asked().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(unix)]
#[derive(Debug)]
struct System {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl System {
    fn hear() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn asked(&mut self) -> StopMode {
        tokio::select! {
            _ = self.terminate.recv() => StopMode::Restart,
            _ = self.interrupt.recv() => StopMode::Leave,
        }
    }
}

#[cfg(windows)]
#[derive(Debug)]
struct System(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl System {
    fn hear() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn asked(&mut self) -> StopMode {
        self.0.recv().await;
        StopMode::Leave
    }
}
