//! The benchmark program measures the sides of this workspace and checks their outputs, with few records.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use kafka_launcher::{BOOTSTRAP_VAR, for_tests};

#[test]
fn our_sides_are_measured_and_their_outputs_checked() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let sides = ["bare", "eos", "eos-at-least-once"];
    let said = bench(
        kafka.bootstrap(),
        "throughput --records 100000 --rounds 1 --warm-up-rounds 0 --interval-ms 20 \
         --sides bare,eos,eos-at-least-once",
    )?;
    for side in sides {
        let figures = result(&said, side)?;
        ensure!(figures["verified"] == true, "{figures}");
        for figure in ["records_per_second", "cpu_us_per_record", "peak_mib"] {
            let value = figures[figure].as_f64();
            ensure!(value.is_some_and(|v| v > 0.0), "{figure} in {figures}");
        }
    }
    for ratio in ["records/s, eos / bare", "exactly once / at least once"] {
        ensure!(said.contains(ratio), "{ratio} is not in {said}");
    }
    let said = bench(
        kafka.bootstrap(),
        "latency --rate 500 --seconds 3 --warm-up-seconds 1 --sides eos-default",
    )?;
    let figures = result(&said, "eos-default")?;
    let (p50, p99) = (figures["p50_ms"].as_f64(), figures["p99_ms"].as_f64());
    ensure!(p50 > Some(0.0) && p50 <= p99, "{figures}");
    let said = bench(
        kafka.bootstrap(),
        "count --records 100000 --rounds 1 --warm-up-rounds 0 --interval-ms 20 --sides eos",
    )?;
    let figures = result(&said, "eos")?;
    ensure!(figures["outputs"] == 100_000, "every update: {figures}");
    for phase in ["seal", "apply"] {
        let ms = figures["commit_ms"][phase].as_f64();
        ensure!(ms.is_some_and(|ms| ms > 0.0), "{phase} in {figures}");
    }
    let dedup = "dedup --records 100000 --rounds 1 --warm-up-rounds 0 --interval-ms 20 --sides eos";
    let figures = result(&bench(kafka.bootstrap(), dedup)?, "eos")?;
    ensure!(figures["outputs"] == 90_000, "every id once: {figures}");
    let windows =
        "windows --records 100000 --rounds 1 --warm-up-rounds 0 --interval-ms 20 --sides eos";
    let said = bench(kafka.bootstrap(), windows)?;
    for work in ["tumbling", "hopping", "sessions", "on-close"] {
        ensure!(
            said.contains(&format!("\"benchmark\":\"{work}\"")),
            "{said}"
        );
    }
    let joins = "joins --records 100000 --rounds 1 --warm-up-rounds 0 --interval-ms 20 --sides eos";
    let said = bench(kafka.bootstrap(), joins)?;
    for work in ["stream-table", "inner", "left", "table-table", "foreign"] {
        ensure!(
            said.contains(&format!("\"benchmark\":\"{work}\"")),
            "{said}"
        );
    }
    let rows =
        "postgres --records 50000 --rounds 1 --warm-up-rounds 0 --interval-ms 20 --sides bare,eos";
    let said = bench(kafka.bootstrap(), rows)?;
    for (work, rows) in [("insert", 50_000), ("statements", 100_000)] {
        let line = said.lines().find(|line| {
            line.contains(&format!("\"benchmark\":\"{work}\"")) && line.contains("\"side\":\"eos\"")
        });
        let figures: serde_json::Value = serde_json::from_str(line.context(work)?)?;
        ensure!(figures["outputs"] == rows, "{figures}");
    }
    let said = bench(kafka.bootstrap(), "memory --records 20000 --seconds 8")?;
    let figures = result(&said, "eos")?;
    ensure!(figures["peak_mib"].as_f64() > Some(1.0), "{figures}");
    let said = bench(kafka.bootstrap(), "siblings --records 100000")?;
    let figures = result(&said, "eos")?;
    ensure!(
        figures["records_per_second"].as_f64() > Some(0.0),
        "{figures}"
    );
    Ok(())
}

fn bench(bootstrap: &str, arguments: &str) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_eos-benchmarks"))
        .args(arguments.split(' '))
        .env(BOOTSTRAP_VAR, bootstrap)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "bench {arguments}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the line of JSON about a side.
fn result(said: &str, side: &str) -> Result<serde_json::Value> {
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let mut results = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    results
        .find(|result| result["side"] == side)
        .with_context(|| format!("no result of {side} in: {said}"))
}
