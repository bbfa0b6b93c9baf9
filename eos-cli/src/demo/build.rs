//! The pipeline, built by cargo.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_launcher::paths;

use super::stop::Stop;

/// The pipeline's program.
const APP: &str = "06-word-count";

/// The output of cargo stays hidden for this long. A build that ends sooner prints nothing.
const SILENT: Duration = Duration::from_secs(3);

/// Time limit of a build. The first one compiles librdkafka.
const LIMIT: Duration = Duration::from_secs(3_600);

/// Builds the pipeline. Shows the output of cargo if the build takes long or fails.
pub(crate) fn pipeline(rocksdb: bool, stop: &Stop) -> Result<PathBuf> {
    let Some(checkout) = paths::checkout() else {
        bail!("the example to build is only in a clone of eos: run the demo in one");
    };
    let (compiled, takes) = match rocksdb {
        true => ("librdkafka and RocksDB", "ten minutes and more"),
        false => ("librdkafka", "a few minutes"),
    };
    eprintln!(
        "Building the pipeline; the first time this compiles {compiled} and takes {takes} ..."
    );
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(checkout)
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(["-p", "eos-examples", "--bin", APP])
        .args(rocksdb.then_some("--features=rocksdb"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = cargo
        .spawn()
        .context("start cargo: install Rust from https://rustup.rs")?;
    let outcome = follow(&mut child, stop);
    if outcome.is_err() {
        // Ends cargo, which may still run.
        let _ = child.kill();
        let _ = child.wait();
    }
    let messages = outcome?;
    executable(&messages, APP).with_context(|| format!("cargo built no program {APP}"))
}

/// Waits until cargo ends. Returns the messages on its standard output.
fn follow(child: &mut Child, stop: &Stop) -> Result<Vec<String>> {
    let messages = lines(child.stdout.take());
    let mut progress = Progress {
        lines: lines(child.stderr.take()),
        held_back: Vec::new(),
        begun: Instant::now(),
    };
    let status = stop.wait_for(LIMIT, "cargo has built the pipeline", || {
        progress.show();
        Ok(child.try_wait()?)
    })?;
    progress.held_back.extend(progress.lines.iter());
    if !status.success() {
        let said = progress.held_back.join("\n");
        bail!("the pipeline does not build:\n{said}");
    }
    Ok(messages.iter().collect())
}

/// The output of cargo for people.
struct Progress {
    lines: Receiver<String>,
    held_back: Vec<String>,
    begun: Instant,
}

impl Progress {
    fn show(&mut self) {
        self.held_back.extend(self.lines.try_iter());
        if self.begun.elapsed() > SILENT {
            self.held_back
                .drain(..)
                .for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Reads a pipe on a thread of its own, to its end.
fn lines(pipe: Option<impl std::io::Read + Send + 'static>) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        let pipe = pipe.map(BufReader::new);
        for line in pipe.into_iter().flat_map(BufRead::lines) {
            let Ok(line) = line else { return };
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Returns the path in cargo's message about the finished program `name`.
fn executable(messages: &[String], name: &str) -> Option<PathBuf> {
    let parse = |line: &String| serde_json::from_str::<serde_json::Value>(line).ok();
    messages
        .iter()
        .filter_map(parse)
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_cargos_messages() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"lib"},"executable":null}"#,
            "not json",
            r#"{"reason":"compiler-artifact","target":{"name":"app"},"executable":"/x/app"}"#,
        ]
        .map(str::to_owned);
        assert_eq!(executable(&messages, "app"), Some("/x/app".into()));
        assert_eq!(executable(&messages, "lib"), None);
    }
}
