//! Pages with results: a block between two marks.
//!
//! `--write` replaces the block. The text around the marks is written by hand.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use kafka_launcher::workspace_root;

const BEGIN: &str = "<!-- begin results -->";
const END: &str = "<!-- end results -->";

/// Replaces the results in a page of the workspace.
pub(crate) fn write(page: &str, block: &str) -> Result<()> {
    let path = workspace_root().join(page);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let text = replaced(&text, block).with_context(|| {
        format!("{page} has no marks: put `{BEGIN}` and `{END}` where the results belong")
    })?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

fn replaced(page: &str, block: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{block}{END}{after}"))
}

/// Returns the command, the day, the versions and the machine, then more facts.
pub(crate) fn origin(command: &str, more: &[String]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = [
        said("date", &["-u", "+%F"]),
        said("git", &["rev-parse", "--short=10", "HEAD"]).map(|commit| format!("eos {commit}")),
        Some(format!("Kafka {}", kafka_launcher::VERSION)),
        Some(format!("{cores} cores, the brokers on the same machine")),
    ];
    let facts = facts.into_iter().flatten().chain(more.iter().cloned());
    let facts: Vec<_> = facts.collect();
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

/// Returns whether a page of the workspace has a place for results.
#[cfg(test)]
pub(crate) fn has_place(page: &str) -> bool {
    let page = fs::read_to_string(workspace_root().join(page));
    page.is_ok_and(|page| replaced(&page, "").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_replaced_and_nothing_else() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&page, "new\n").unwrap();
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(replaced("no marks", "new\n"), None);
    }
}
