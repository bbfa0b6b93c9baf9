//! The metrics of a running app, from its handle and for a scraper, match its work.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::{Case, PATIENCE, ended, on_kafka, says};
use anyhow::{Context, Result, ensure};
use eos_core::Error;
use eos_core::metrics::CommitCause;
use eos_core::run::StopMode;
use integration_tests::wait::wait_until;

#[test]
fn an_app_says_how_it_does() -> Result<()> {
    on_kafka(&[
        ("numbers add up", numbers_add_up),
        ("a taken port ends the start", a_taken_port),
    ])
}

fn numbers_add_up(bootstrap: &str) -> Result<()> {
    let case = Case::with_partitions(bootstrap, "metrics", 2)?;
    case.send(&["a", "b", "c"])?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut app = case.copy();
    app.workers(2).prometheus(&address.to_string());
    let mut running = app.start_blocking(bootstrap)?;
    let handle = running.handle();
    // The offsets of first starts are commits, too.
    wait_until(PATIENCE, "the records are committed", || {
        let totals = handle.metrics().totals;
        let commits = totals.commits;
        Ok(totals.records_in >= 3 && commits.total() > commits.by(CommitCause::FirstStart))
    })?;
    wait_until(PATIENCE, "each worker has told where its task is", || {
        let workers = handle.metrics().workers;
        if workers.iter().any(|worker| worker.tasks.len() != 1) {
            return Ok(false);
        }
        let tasks = workers.iter().flat_map(|worker| &worker.tasks);
        let inputs = tasks.flat_map(|task| &task.inputs);
        let mut next: Vec<i64> = inputs.map(|input| input.next.get()).collect();
        next.sort_unstable();
        Ok(next == [0, 3])
    })?;
    let metrics = handle.metrics();
    let totals = &metrics.totals;
    ensure!(totals.records_out == totals.records_in, "{metrics:?}");
    let times = &metrics.totals.commit_times;
    let longest = times.commit.max;
    ensure!(!longest.is_zero() && times.latency.stats().max >= longest);

    let mut stream = TcpStream::connect(address).context("the endpoint")?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let offset = format!("topic=\"{}\",partition=\"0\"}} 3\n", case.input);
    let app = format!("{{app=\"{}\",worker=\"1\"}}", case.app);
    let tasks = format!("eos_tasks{app} 1\n");
    says(&text, &["HTTP/1.1 200 OK", &offset, &tasks])?;

    handle.stop(StopMode::Leave);
    ended(&mut running)??;
    let metrics = handle.metrics();
    ensure!(
        metrics
            .workers
            .iter()
            .all(|w| w.state.is_none() && w.tasks.is_empty()),
        "it has ended: {metrics:?}"
    );
    ensure!(metrics.totals.records_in >= 3, "what it did stays");
    Ok(())
}

fn a_taken_port(bootstrap: &str) -> Result<()> {
    let case = Case::new(bootstrap, "taken-port")?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let mut app = case.copy();
    app.prometheus(&address);
    let error = case.failure_of(app)?;
    ensure!(matches!(error, Error::Metrics(_)), "{error}");
    says(&error, &[&address, "a port of its own"])
}
