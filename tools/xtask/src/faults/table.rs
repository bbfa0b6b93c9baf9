//! The rows as a table in Markdown.

use super::row::Row;

/// Returns the table. A point is named only in its first row.
pub(super) fn render(rows: &[Row]) -> String {
    let mut lines = vec![
        "| point | case | cases | fired | verdict | time | repeated by |".to_owned(),
        "|---|---|--:|--:|---|--:|---|".to_owned(),
    ];
    let mut last = "";
    for row in rows {
        let point = if row.point == last { "" } else { &row.point };
        last = &row.point;
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {:.1} s | `{}` |",
            cell(point),
            cell(&row.case),
            row.cases,
            row.fired,
            cell(&row.verdict),
            row.seconds,
            cell(&row.command)
        ));
    }
    lines.join("\n") + "\n"
}

/// Returns the text of a cell. An unescaped bar would begin another cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_named_once_and_no_text_breaks_the_table() {
        let row = |point: &str, case: &str| Row {
            point: point.into(),
            case: case.into(),
            cases: 10,
            fired: 9,
            verdict: "lost 0".into(),
            seconds: 1.25,
            command: "c".into(),
        };
        let table = render(&[row("1", "a"), row("1", "b|c"), row("2", "d")]);
        let lines: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| 1 | a | 10 | 9 | lost 0 | 1.2 s | `c` |",
                "|  | b\\|c | 10 | 9 | lost 0 | 1.2 s | `c` |",
                "| 2 | d | 10 | 9 | lost 0 | 1.2 s | `c` |",
            ]
        );
    }
}
