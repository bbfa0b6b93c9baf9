//! The results in `docs/faults.md`.

use std::time::Duration;

use anyhow::Result;

use crate::page;

const PAGE: &str = "docs/faults.md";

/// Writes the table of a run with this duration into the page.
pub(super) fn write(table: &str, full: bool, took: Duration) -> Result<()> {
    let (command, size) = match full {
        true => ("cargo xtask faults --full --write", "full size"),
        false => ("cargo xtask faults --write", "the size for each change"),
    };
    let took = format!("{:.0} min in all", took.as_secs_f64() / 60.0);
    let origin = page::origin(command, &[size.to_owned(), took]);
    page::write(PAGE, &format!("{origin}\n\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_the_table() {
        assert!(page::has_place(PAGE));
    }
}
