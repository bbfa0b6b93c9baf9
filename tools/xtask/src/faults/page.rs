//! `docs/faults.md`: the table has its place between two marks; what is around it is written by hand.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use kafka_launcher::workspace_root;

const PAGE: &str = "docs/faults.md";
const BEGIN: &str = "<!-- begin results -->";
const END: &str = "<!-- end results -->";

/// Puts the table of a run that took so long in its place.
pub(super) fn write(table: &str, full: bool, took: Duration) -> Result<()> {
    let path = workspace_root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let block = format!("{}\n\n{table}", origin(full, took));
    let page = replaced(&page, &block).with_context(|| {
        format!("{PAGE} has no marks: put `{BEGIN}` and `{END}` where the table belongs")
    })?;
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))
}

fn replaced(page: &str, block: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{block}{END}{after}"))
}

/// The command, the day, the version, and the machine.
fn origin(full: bool, took: Duration) -> String {
    let (command, size) = match full {
        true => ("cargo xtask faults --full --write", "full size"),
        false => ("cargo xtask faults --write", "the size for each change"),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = [
        said("date", &["-u", "+%F"]),
        said("git", &["rev-parse", "--short=10", "HEAD"]).map(|commit| format!("eos {commit}")),
        Some(format!("Kafka {}", kafka_launcher::VERSION)),
        Some(format!("{cores} cores, the brokers on the same machine")),
        Some(size.to_owned()),
        Some(format!("{:.0} min in all", took.as_secs_f64() / 60.0)),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    format!("`{command}`\n\n{}.", facts.join(" · "))
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command
        .args(arguments)
        .current_dir(workspace_root())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_replaced_and_nothing_else() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&page, "new\n").unwrap();
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(replaced("no marks", "new\n"), None);
    }

    #[test]
    fn the_page_has_a_place_for_the_table() {
        let page = fs::read_to_string(workspace_root().join(PAGE)).unwrap();
        assert!(replaced(&page, "").is_some());
    }
}
