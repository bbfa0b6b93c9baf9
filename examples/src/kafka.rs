//! The Kafka that an example runs on: one of its own in this process, or the one it is told.

use std::io::{BufWriter, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use eos_broker::{EmbeddedKafka, Follower, Keys};

/// The usual address of `eos kafka up`.
const USUAL: &str = "localhost:9092";
const VARIABLE: &str = "EOS_BOOTSTRAP_SERVERS";

/// The default of `eos kafka topic`.
const PARTITIONS: i32 = 6;

/// How often it is looked for new results.
const PERIOD: Duration = Duration::from_millis(100);
/// So many results of a topic are shown at a time; the rest is counted.
const SHOWN: usize = 8;

/// A topic and the lines that are in it from the start, each a record.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    topic: &'static str,
    lines: &'static str,
    keys: Keys,
}

impl Input {
    /// Lines `key:value`.
    #[must_use]
    pub fn keyed(topic: &'static str, lines: &'static str) -> Input {
        let keys = Keys::BeforeColon;
        Input { topic, lines, keys }
    }

    /// Lines that are values, without keys.
    #[must_use]
    pub fn values(topic: &'static str, lines: &'static str) -> Input {
        let keys = Keys::None;
        Input { topic, lines, keys }
    }
}

/// The Kafka that an example runs on.
#[derive(Debug)]
pub struct Kafka {
    bootstrap: String,
    /// Is there as long as this is.
    _embedded: Option<EmbeddedKafka>,
}

impl Kafka {
    /// An embedded broker with these topics, whose outputs are printed as they are committed. It is gone
    /// with the program.
    ///
    /// With `--kafka`, the broker at localhost:9092 instead. `EOS_BOOTSTRAP_SERVERS` in the environment selects another
    /// broker. Then topics and records are the user's.
    ///
    /// # Errors
    /// When there is another argument than `--kafka`, or the embedded broker does not start.
    pub fn provide(inputs: &[Input], outputs: &[&'static str]) -> anyhow::Result<Kafka> {
        let bootstrap = told(std::env::args().skip(1), std::env::var(VARIABLE).ok())?;
        match bootstrap {
            Some(bootstrap) => Ok(Kafka {
                bootstrap,
                _embedded: None,
            }),
            None => Kafka::embedded(inputs, outputs),
        }
    }

    /// Whether it is the broker in this process.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self._embedded.is_some()
    }

    /// Where clients connect.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    fn embedded(inputs: &[Input], outputs: &[&'static str]) -> anyhow::Result<Kafka> {
        let inputs_then_outputs = inputs.iter().map(|input| &input.topic).chain(outputs);
        let broker = inputs_then_outputs.fold(EmbeddedKafka::builder(), |broker, topic| {
            broker.topic(*topic, PARTITIONS)
        });
        let broker = broker.start()?;
        let bootstrap = broker.bootstrap();
        eprintln!(
            "No Kafka needed: this runs on an embedded broker with sample data, gone when Ctrl-C ends it.\n\
             (--kafka takes the Kafka at {USUAL}, {VARIABLE} any other.)"
        );
        for input in inputs {
            broker.produce_lines(input.topic, input.lines, input.keys)?;
        }
        let follower = broker.follow(outputs)?;
        let shows = thread::Builder::new().name("shows".to_owned());
        shows.spawn(move || show(follower)).context("a thread")?;
        Ok(Kafka {
            bootstrap,
            _embedded: Some(broker),
        })
    }
}

/// The address that the user gives, if any.
fn told(
    arguments: impl Iterator<Item = String>,
    variable: Option<String>,
) -> anyhow::Result<Option<String>> {
    let mut usual = false;
    for argument in arguments {
        match &argument[..] {
            "--kafka" => usual = true,
            _ => bail!(
                "unknown argument {argument:?}: there is only --kafka, for the Kafka at {USUAL} \
                 ({VARIABLE} names any other)"
            ),
        }
    }
    let variable = variable.filter(|servers| !servers.is_empty());
    Ok(variable.or_else(|| usual.then(|| USUAL.to_owned())))
}

/// Prints results until the broker is gone, or stdout is closed.
fn show(mut follower: Follower) {
    let mut lines = Vec::new();
    loop {
        lines.clear();
        let read = follower.read(|topic, line| lines.push((topic.to_owned(), line)));
        if read.is_err() || print(&lines).is_err() {
            return;
        }
        thread::sleep(PERIOD);
    }
}

fn print(lines: &[(String, String)]) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for of_one in lines.chunk_by(|a, b| a.0 == b.0) {
        let (shown, rest) = of_one.split_at(of_one.len().min(SHOWN));
        for (topic, line) in shown {
            writeln!(out, "{topic} {line}")?;
        }
        if let Some((topic, _)) = rest.first() {
            writeln!(out, "{topic} .. and {} more", rest.len())?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str], variable: Option<&str>) -> anyhow::Result<Option<String>> {
        let arguments = arguments.iter().map(|a| (*a).to_owned());
        told(arguments, variable.map(str::to_owned))
    }

    #[test]
    fn the_user_may_name_a_kafka() {
        assert_eq!(of(&[], None).unwrap(), None);
        assert_eq!(of(&[], Some("")).unwrap(), None);
        assert_eq!(of(&["--kafka"], None).unwrap().as_deref(), Some(USUAL));
        let named = of(&["--kafka"], Some("a:1")).unwrap();
        assert_eq!(named.as_deref(), Some("a:1"));
        let error = of(&["--kafak"], None).unwrap_err().to_string();
        assert!(
            error.contains("\"--kafak\"") && error.contains("--kafka,"),
            "{error}"
        );
    }
}
