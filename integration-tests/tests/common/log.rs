//! Prints and stores the log of in-process apps.

use std::io;
use std::sync::Mutex;

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Installs the subscriber of this process. Later calls change nothing.
///
/// `RUST_LOG=eos_core=debug` prints more. The stored lines of `eos_core` start at level info, and those of its restores
/// at level debug.
pub(crate) fn init() {
    let printed = fmt::layer()
        .with_writer(io::stderr)
        .with_filter(EnvFilter::from_default_env());
    let kept = fmt::layer()
        .with_ansi(false)
        .with_writer(Kept)
        .with_filter(EnvFilter::new(
            "warn,eos_core=info,eos_core::worker::restore=debug",
        ));
    let _already_installed = tracing_subscriber::registry()
        .with(printed)
        .with(kept)
        .try_init();
}

/// Returns the stored lines of one app, starting at index `from`.
pub(crate) fn lines(app: &str, from: usize) -> Vec<String> {
    let mark = format!("app={app} ");
    let lines = LINES.lock().unwrap_or_else(|broken| broken.into_inner());
    let own = lines.iter().filter(|line| line.contains(&mark));
    own.skip(from).cloned().collect()
}

struct Kept;

impl MakeWriter<'_> for Kept {
    type Writer = Kept;

    fn make_writer(&self) -> Kept {
        Kept
    }
}

/// One write is one line.
impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(|broken| broken.into_inner());
        lines.push(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
