//! The output of `cargo test`, as numbers.

/// Results of any number of test programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// A failure that no test reported.
    pub(crate) broken: bool,
}

impl Count {
    /// Adds the counts of a line, if it is the result line of a test program.
    pub(crate) fn see(&mut self, line: &str) {
        let line = without_colour(line);
        let Some(result) = line.trim().strip_prefix("test result: ") else {
            return;
        };
        for part in result.split([';', '.']) {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    pub(crate) fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.broken |= other.broken;
    }
}

/// Returns the line without escape sequences of the form `ESC [ ... letter`.
fn without_colour(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic());
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(output: &str) -> Count {
        let mut count = Count::default();
        output.lines().for_each(|line| count.see(line));
        count
    }

    #[test]
    fn result_lines_of_all_programs_add_up() {
        let count = seen(
            "running 3 tests\ntest a ... ok\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s\n\
             test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.12s\n",
        );
        let expected = Count {
            passed: 13,
            failed: 2,
            ignored: 1,
            broken: false,
        };
        assert_eq!(count, expected);
    }

    #[test]
    fn colours_do_not_hide_a_result() {
        let coloured =
            "test result: \u{1b}[32mok\u{1b}[m. 4 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(seen(coloured).passed, 4);
        let coloured =
            "\u{1b}[1mtest result: \u{1b}[31mFAILED\u{1b}[0m. 4 passed; 5 failed; 0 ignored";
        assert_eq!(seen(coloured).failed, 5);
    }

    #[test]
    fn what_tests_print_is_not_counted() {
        assert_eq!(
            seen("my test result: 5 passed\ntest result_of_x ... ok\n5 passed"),
            Count::default()
        );
    }
}
