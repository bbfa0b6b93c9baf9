//! Statements that control transactions or the session.

/// Words that control transactions or the session.
const CONTROL: &[&str] = &[
    "ABORT",
    "BEGIN",
    "COMMIT",
    "DISCARD",
    "END",
    "LISTEN",
    "PREPARE",
    "RELEASE",
    "RESET",
    "ROLLBACK",
    "SAVEPOINT",
    "SET",
    "START",
];

/// Returns the first word of a statement, if it controls transactions or the session.
///
/// If a text hides the word from this check, the move of positions detects it.
pub(crate) fn control_word(sql: &str) -> Option<&'static str> {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|letter: char| letter.is_whitespace() || letter == ';');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once(['\n', '\r'])?.1;
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = after_comment(comment)?;
        } else {
            break;
        }
    }
    let word: String = rest
        .chars()
        .take_while(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_uppercase())
        .collect();
    CONTROL.iter().copied().find(|control| *control == word)
}

/// Returns the text behind a comment that has begun. PostgreSQL nests comments.
fn after_comment(mut rest: &str) -> Option<&str> {
    let mut depth = 1;
    while depth > 0 {
        let at = rest.find(['*', '/'])?;
        let ends = rest[at..].starts_with("*/");
        let begins = rest[at..].starts_with("/*");
        match (ends, begins) {
            (true, _) => depth -= 1,
            (_, true) => depth += 1,
            _ => {}
        }
        rest = &rest[at + if ends || begins { 2 } else { 1 }..];
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_control_is_recognised() {
        for sql in [
            "COMMIT",
            " commit;",
            "-- x\nRollback",
            "-- x\rRollback",
            "/* x */ END",
            ";;SET x = 1",
            "/* a /* b */ c */ COMMIT",
            "/**/ /***/ COMMIT",
            "/*/ x */ COMMIT",
        ] {
            assert!(control_word(sql).is_some(), "{sql}");
        }
        for sql in [
            "UPDATE commit SET a = 1",
            "settle()",
            "/* a /* COMMIT */ COMMIT",
            "WITH x AS (SELECT 1) SELECT 1",
        ] {
            assert_eq!(control_word(sql), None, "{sql}");
        }
    }
}
