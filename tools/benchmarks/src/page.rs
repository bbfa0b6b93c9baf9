//! The results in `docs/benchmarks.md`.
//!
//! Each benchmark has a block between two marks, and `--write` replaces it. The text around the blocks is written by
//! hand.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::options::{Options, What};

/// Prints the table. With `--write`, also writes it into the page.
pub(crate) fn show(what: What, table: &str, options: &Options) -> Result<()> {
    println!("\n{table}");
    if !options.write {
        return Ok(());
    }
    let path = kafka_launcher::workspace_root().join("docs/benchmarks.md");
    let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let name = name(what);
    let block = format!("{}\n{table}", origin());
    let page = replaced(&page, &name, &block).with_context(|| {
        format!(
            "{} has no marks for {name}: put `{}` and `{}` where its results belong",
            path.display(),
            begin(&name),
            end(&name)
        )
    })?;
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))
}

fn name(what: What) -> String {
    let value = what.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
}

fn begin(name: &str) -> String {
    format!("<!-- begin {name} -->")
}

fn end(name: &str) -> String {
    format!("<!-- end {name} -->")
}

fn replaced(page: &str, name: &str, block: &str) -> Option<String> {
    let (before, rest) = page.split_once(&begin(name))?;
    let (_, after) = rest.split_once(&end(name))?;
    Some(format!(
        "{before}{}\n{block}{}{after}",
        begin(name),
        end(name)
    ))
}

/// Returns the command that repeats the run, the date, the versions and the machine.
fn origin() -> String {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    let facts = [
        said("date", &["-u", "+%F"]),
        said("git", &["rev-parse", "--short=10", "HEAD"]).map(|commit| format!("eos {commit}")),
        Some(format!("librdkafka {librdkafka}")),
        Some(format!(
            "Kafka and Kafka Streams {}",
            kafka_launcher::VERSION
        )),
        java(),
        machine(),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    format!(
        "`cargo xtask bench {}`\n\n{}.\n",
        words.join(" "),
        facts.join(" · ")
    )
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(kafka_launcher::workspace_root())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

fn java() -> Option<String> {
    let output = Command::new("java").arg("-version").output().ok()?;
    let text = String::from_utf8(output.stderr).ok()?;
    let version = text.split('"').nth(1)?;
    Some(format!("Java {version}"))
}

/// Returns a description of the processor, its cores, and the memory.
fn machine() -> Option<String> {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "a processor".into());
    let cores = std::thread::available_parallelism().ok()?;
    let memory = field("/proc/meminfo", "MemTotal")?;
    let kib: f64 = memory.strip_suffix(" kB")?.parse().ok()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(format!(
        "{cores} cores ({model}), {:.0} GiB, Linux {}, the broker on the same machine",
        kib / f64::from(1 << 20),
        // Without the suffix of the distribution.
        kernel.trim().split('-').next()?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_and_nothing_else() {
        let page =
            "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n";
        let new = replaced(page, "x", "new\n").unwrap();
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(replaced(page, "z", "new\n"), None);
    }

    #[test]
    fn the_page_has_a_place_for_every_benchmark() {
        let page = kafka_launcher::workspace_root().join("docs/benchmarks.md");
        let page = fs::read_to_string(page).unwrap();
        for what in What::value_variants() {
            let name = name(*what);
            assert_eq!(
                replaced(&page, &name, "").is_some(),
                *what != What::All,
                "{name}"
            );
        }
    }
}
