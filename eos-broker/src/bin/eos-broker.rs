//! The embedded broker as a program.
//!
//! Example: `eos-broker --port 9092 --topic orders:6`. The program is for development and tests. All data is in memory
//! and lost when the program ends.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use eos_broker::EmbeddedKafka;
use eos_broker::broker::BrokerOptions;
use eos_broker::wire::Limits;

const USAGE: &str = "\
eos-broker: a Kafka broker in memory, for development and tests. It is not Apache Kafka.

usage: eos-broker [options]
  --port <port>                     port to listen on, at 127.0.0.1 [a free port]
  --topic <name>[:<n>]              a topic with n partitions (1 without a number); may be repeated
  --auto-create-topics              create topics that clients request
  --help                            this text

limits (requests above them are refused):
  --log-memory-max-bytes <n>        bytes of records in all [2 GiB]
  --partition-memory-max-bytes <n>  bytes of records in one partition [1 GiB]
  --partitions-max <n>              partitions in all [10,000]
  --socket-request-max-bytes <n>    bytes of one request [100 MiB]
  --max-connections <n>             connections at a time [5,000]";

/// The options for limits.
const LIMITS: [&str; 5] = [
    "--log-memory-max-bytes",
    "--partition-memory-max-bytes",
    "--partitions-max",
    "--socket-request-max-bytes",
    "--max-connections",
];

/// The parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    port: u16,
    topics: Vec<(String, i32)>,
    auto_create_topics: bool,
    limits: BTreeMap<&'static str, usize>,
    help: bool,
}

fn parse(mut said: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(name) = said.next() {
        let mut value = || said.next().ok_or(format!("{name} needs a value"));
        let wrong = |value: &str| format!("{name} {value}: not a valid number");
        match name.as_str() {
            "--help" | "-h" => arguments.help = true,
            "--auto-create-topics" => arguments.auto_create_topics = true,
            "--port" => {
                let value = value()?;
                arguments.port = value.parse().map_err(|_| wrong(&value))?;
            }
            "--topic" => {
                let value = value()?;
                let topic = match value.split_once(':') {
                    None => (value, 1),
                    Some((topic, count)) => {
                        let count = count.parse().map_err(|_| wrong(&value))?;
                        (topic.to_owned(), count)
                    }
                };
                arguments.topics.push(topic);
            }
            other => {
                let limit = LIMITS.into_iter().find(|limit| *limit == other);
                let unknown = || format!("unknown option {other}; see --help");
                let limit = limit.ok_or_else(unknown)?;
                let value = value()?;
                let most = value.parse().map_err(|_| wrong(&value))?;
                arguments.limits.insert(limit, most);
            }
        }
    }
    Ok(arguments)
}

fn run(arguments: Arguments) -> Result<(), String> {
    let mut options = BrokerOptions::default();
    options.auto_create_topics = arguments.auto_create_topics;
    let mut limits = Limits::default();
    let places = [
        &mut options.log_memory_max_bytes,
        &mut options.partition_memory_max_bytes,
        &mut options.partitions_max,
        &mut limits.socket_request_max_bytes,
        &mut limits.max_connections,
    ];
    for (name, place) in LIMITS.iter().zip(places) {
        if let Some(most) = arguments.limits.get(name) {
            *place = *most;
        }
    }
    let mut builder = EmbeddedKafka::builder()
        .port(arguments.port)
        .options(options)
        .limits(limits);
    for (topic, partitions) in arguments.topics {
        builder = builder.topic(topic, partitions);
    }
    let kafka = builder.start().map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    let told = writeln!(
        out,
        "embedded dev broker, not Apache Kafka: in memory, for development and tests"
    )
    .and_then(|()| writeln!(out, "bootstrap.servers={}", kafka.bootstrap()))
    .and_then(|()| out.flush());
    told.map_err(|error| format!("cannot print the address: {error}"))?;
    drop(out);
    // A signal ends the program. It has nothing to save.
    loop {
        std::thread::park();
    }
}

fn main() -> ExitCode {
    let done = parse(std::env::args().skip(1)).and_then(|arguments| {
        if arguments.help {
            println!("{USAGE}");
            return Ok(());
        }
        run(arguments)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("eos-broker: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(said: &str) -> Result<Arguments, String> {
        parse(said.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read() {
        let all = "--port 9092 --topic a:6 --topic b --auto-create-topics --log-memory-max-bytes 5 \
                   --max-connections 7";
        let expected = Arguments {
            port: 9092,
            topics: vec![("a".into(), 6), ("b".into(), 1)],
            auto_create_topics: true,
            limits: [("--log-memory-max-bytes", 5), ("--max-connections", 7)].into(),
            help: false,
        };
        assert_eq!(parsed(all), Ok(expected));
        assert_eq!(parsed(""), Ok(Arguments::default()));
    }

    #[test]
    fn mistakes_are_named() {
        for said in [
            "--prot 1",
            "--port",
            "--port 70000",
            "--topic a:b",
            "--partitions-max many",
            "--max-connections",
            "--port -1",
        ] {
            let why = parsed(said).expect_err(said);
            let first = said.split(' ').next().unwrap_or_default();
            assert!(why.contains(first), "{why}");
        }
    }
}
