//! The embedded broker in a process of its own: `eos kafka up --embedded`.
//!
//! It needs neither Java nor Docker and starts at once. It holds all data in memory, and the data is lost when it ends.
//! The process runs this same program, which then does nothing else.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use eos_broker::EmbeddedKafka;
use eos_broker::wire::StartError;
use kafka_launcher::{ProcessId, paths, ports, ready};
use serde::{Deserialize, Serialize};

/// Time limit of the start. It takes milliseconds, but longer on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Time limit for binding a port that is in use. Another `eos kafka up` that checks whether the port is free holds it
/// for a moment.
const BIND_LIMIT: Duration = Duration::from_secs(1);

/// The beginning of the log line with the broker's address.
const LISTENING: &str = "bootstrap.servers=";

/// An embedded broker that was left running.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Embedded {
    process: ProcessId,
    port: u16,
    /// The directory of its log.
    dir: PathBuf,
}

impl Embedded {
    /// Starts a broker and waits until it is ready. Calls `started` before the wait, so that another command can end
    /// the broker if this program is interrupted.
    pub(crate) fn start(
        port: Option<u16>,
        dir: &Path,
        started: impl FnOnce(&Embedded) -> Result<()>,
    ) -> Result<Embedded> {
        let port = match port {
            // Another Kafka on this port would respond in its place.
            Some(port) if !ports::is_free(port) => {
                bail!("port {port} is taken: choose another with --port, or omit --port")
            }
            Some(port) => port,
            None => *ports::free(1)?.first().context("a free port")?,
        };
        paths::create_dir(dir)?;
        let log = dir.join("broker.log");
        let out = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let program = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(program)
            .args(["kafka", "serve-embedded", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            // A process group of its own, so that Ctrl-C does not reach it.
            .process_group(0)
            .spawn()
            .context("start the embedded broker")?;
        let process = ProcessId::of(child.id()).context("the embedded broker ended at once")?;
        let embedded = Embedded {
            process,
            port,
            dir: dir.to_owned(),
        };
        let outcome = started(&embedded).and_then(|()| embedded.await_ready(&mut child, &log));
        if let Err(error) = outcome {
            // Without a state file, no other command can end the process.
            let _ended_already = child.kill();
            let _collected = child.wait();
            return Err(error.context(format!("the embedded broker's log is {}", log.display())));
        }
        Ok(embedded)
    }

    /// Waits until the broker has logged its address and is ready.
    fn await_ready(&self, child: &mut Child, log: &Path) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let mut possible = || match child.try_wait()? {
            Some(status) => {
                let printed = fs::read_to_string(log).unwrap_or_default();
                bail!("it ended ({status}): {}", printed.trim_end())
            }
            None => Ok(()),
        };
        while !fs::read_to_string(log)?.contains(LISTENING) {
            possible()?;
            ensure!(Instant::now() < deadline, "it does not listen yet");
            thread::sleep(Duration::from_millis(10));
        }
        ready::wait(&[self.bootstrap()], 1, deadline, possible)
    }

    /// Returns the address for clients.
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Ends the broker and removes its directory. All its data is lost.
    pub(crate) fn destroy(&self) -> Result<()> {
        self.process.kill()?;
        paths::remove_dir(&self.dir)
    }
}

/// Runs the embedded broker until the process ends.
///
/// # Errors
/// When it cannot listen on the port within a second.
pub(crate) fn serve_embedded(port: u16) -> Result<()> {
    let deadline = Instant::now() + BIND_LIMIT;
    let kafka = loop {
        match EmbeddedKafka::builder().port(port).start() {
            Err(StartError::Listen { source, .. })
                if source.kind() == ErrorKind::AddrInUse && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            started => break started?,
        }
    };
    println!("embedded dev broker, not Apache Kafka: in memory, for development and tests");
    println!("{LISTENING}{}", kafka.bootstrap());
    loop {
        std::thread::park();
    }
}
