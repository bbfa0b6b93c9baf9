//! Generates `docs/configuration.md` from the table of properties.

use std::fmt::Write;
use std::path::Path;

use super::table::{self, Clients, Kind, Property, Status};

const HEAD: &str = include_str!("docs_head.md");

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, rows) in table::GROUPS {
        write!(page, "\n## {title}\n\n").unwrap();
        let refused = rows
            .iter()
            .all(|p| matches!(p.status, Status::Refused { .. }));
        page.push_str(if refused {
            "| property | reason, and alternative |\n|---|---|\n"
        } else {
            "| property | applies to | values | default | meaning |\n|---|---|---|---|---|\n"
        });
        for property in *rows {
            row(&mut page, property);
        }
    }
    page
}

fn row(page: &mut String, property: &Property) {
    let name = property.name;
    if let Status::Refused { reason, holds } = property.status {
        let holds: Vec<_> = holds.iter().map(|value| format!("`{value}`")).collect();
        let holds = match &holds[..] {
            [] => String::new(),
            values => format!(
                " ({} is accepted, because it is the fixed value)",
                values.join(" or ")
            ),
        };
        writeln!(page, "| `{name}` | {}{holds} |", cell(reason)).unwrap();
        return;
    }
    let of = match property.clients {
        Clients::Runtime => "app",
        Clients::All => "all clients",
        Clients::Consumer => "consumer",
        Clients::Producer => "producer",
    };
    let values = match property.kind {
        Kind::Number { least, most } | Kind::Decimal { least, most } => format!("{least} … {most}"),
        Kind::Flag => "`true`, `false`".to_owned(),
        Kind::OneOf(names) => {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        }
        Kind::Text => "text".to_owned(),
        Kind::Brokers => "`host:port,…`".to_owned(),
        Kind::Secret => "secret".to_owned(),
    };
    let default = match property.default {
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let doc = cell(property.doc);
    writeln!(page, "| `{name}` | {of} | {values} | {default} | {doc} |").unwrap();
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// `EOS_BLESS=1 cargo test -p eos-core --lib config::docs` rewrites the page.
#[test]
fn the_page_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = page();
    if std::env::var_os("EOS_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/configuration.md is stale: EOS_BLESS=1 cargo test -p eos-core --lib config::docs"
    );
}
