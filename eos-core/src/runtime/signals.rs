//! SIGTERM and SIGINT.

use super::handle::Handle;
use crate::worker::StopMode;

/// Stops the app on SIGTERM (whoever sends it will start it again: the partitions stay) and on
/// SIGINT (a person at a terminal is done with it: it leaves the group).
pub(crate) async fn stop_on_signals(handle: Handle) {
    match signal().await {
        Ok(mode) => handle.stop(mode),
        Err(error) => {
            tracing::warn!(%error, "signals can't be heard; stop the app through its handle");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
async fn signal() -> std::io::Result<StopMode> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => StopMode::Restart,
        _ = interrupt.recv() => StopMode::Leave,
    })
}

#[cfg(not(unix))]
async fn signal() -> std::io::Result<StopMode> {
    tokio::signal::ctrl_c().await?;
    Ok(StopMode::Leave)
}
