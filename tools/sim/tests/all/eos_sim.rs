//! The program `eos-sim`, as `cargo xtask sim` runs it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn eos_sim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eos-sim"));
    command.args(arguments);
    command
}

/// `cargo xtask sim --seed 1 --trace | head -1`
#[test]
fn a_reader_may_close_the_pipe_early() {
    let mut sim = eos_sim(&["--seed", "1", "--trace"]);
    let sim = sim.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sim = sim.spawn().unwrap();
    let mut first = String::new();
    // A trace is longer than the capacity of a pipe and this buffer.
    let mut trace = BufReader::with_capacity(1, sim.stdout.take().unwrap());
    trace.read_line(&mut first).unwrap();
    drop(trace);
    let ended = sim.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(first.contains("  sim-"), "{first}");
    assert_eq!(said, "");
    assert!(ended.status.success(), "{}", ended.status);
}

#[test]
fn what_is_no_defence_is_refused_before_anything_runs() {
    for what in [&["--seeds", "4"], &["--seed", "1"]] {
        let ended = eos_sim(&["--without", "nonsense"]).args(what).output();
        let ended = ended.unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.stdout.is_empty());
        assert!(said.starts_with("error: --without: \"nonsense\""), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        if cfg!(feature = "failpoints") {
            assert!(said.contains("the defences are quarantine, "), "{said}");
            assert!(
                said.contains(", task_lock, compaction, data_with_position\n"),
                "{said}"
            );
        } else {
            assert!(said.contains("the cargo feature `failpoints`"), "{said}");
        }
    }
}
