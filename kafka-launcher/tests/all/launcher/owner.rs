//! Another process that owns a cluster.
//!
//! It is a second run of this test program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use kafka_launcher::{Cluster, ClusterOptions};

use super::traces::Traces;

const ASKED: &str = "EOS_TEST_BE_AN_OWNER";
const MARK: &str = "owner's traces: ";

/// The process, and the traces of its cluster in the system.
pub(crate) struct Owner {
    child: Child,
    pub(crate) traces: Traces,
}

impl Owner {
    pub(crate) fn start() -> Owner {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "launcher::owner_to_be_killed", "--nocapture"])
            .env(ASKED, "1");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap());
        let traces = lines.find_map(|line| parse(line.split_once(MARK)?.1));
        Owner {
            traces: traces.expect("the owner tells its traces"),
            child,
        }
    }

    /// Kills the process like `kill -9`, so that none of its destructors run.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A failed test must not leave the process running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a cluster from a thread that ends, prints its traces, and waits to be killed.
pub(crate) fn be_one_if_asked() {
    if std::env::var_os(ASKED).is_none() {
        return;
    }
    let start = || Cluster::start(&ClusterOptions::default()).unwrap();
    let cluster = std::thread::spawn(start).join().unwrap();
    let Traces { pids, ports, dir } = Traces::of(&cluster);
    println!("{MARK}{}|{}|{}", pids[0], ports[0], dir.display());
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

fn parse(line: &str) -> Option<Traces> {
    let mut parts = line.splitn(3, '|');
    Some(Traces {
        pids: vec![parts.next()?.parse().ok()?],
        ports: vec![parts.next()?.parse().ok()?],
        dir: parts.next()?.into(),
    })
}
