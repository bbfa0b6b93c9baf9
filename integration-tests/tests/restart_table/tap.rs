//! What the apps of this test log, to find out which row of the table each start took.

use std::io;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on everything that apps of this process log is kept.
pub(crate) fn listen() {
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(Tap);
    let filter = EnvFilter::new("warn,eos_core=info");
    let _already_there = log.with_env_filter(filter).try_init();
}

/// The lines of one app, from the `from`-th on.
pub(crate) fn lines(app: &str, from: usize) -> Vec<String> {
    let mark = format!("app={app} ");
    let lines = LINES.lock().unwrap_or_else(|broken| broken.into_inner());
    let own = lines.iter().filter(|line| line.contains(&mark));
    own.skip(from).cloned().collect()
}

struct Tap;

impl MakeWriter<'_> for Tap {
    type Writer = Tap;

    fn make_writer(&self) -> Tap {
        Tap
    }
}

/// One write is one line.
impl io::Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(|broken| broken.into_inner());
        lines.push(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
