//! Numbers and colours as people read them.

use std::time::Duration;

/// Formats a number in groups of three digits: 400,000.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 kill`, `2 kills`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", grouped(number))
}

/// `0.62 s`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Returns the last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The colouring of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// For a terminal.
    Ansi,
    /// For a file, a pipe, or a reader who does not want colours.
    Plain,
}

impl Paint {
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("1;32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            Paint::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Paint::Plain => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_of_three() {
        let texts = [0, 999, 1_000, 45_678, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "45,678", "1,234,567"]);
        assert_eq!(counted(1, "kill"), "1 kill");
        assert_eq!(counted(1_200, "kill"), "1,200 kills");
    }

    #[test]
    fn the_tail_is_the_end_and_never_more_than_there_is() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 9), "a");
        assert_eq!(tail("", 9), "");
    }

    #[test]
    fn plain_text_has_no_escape_sequence() {
        let plain = Paint::Plain;
        let all = plain.bold("a") + &plain.good("b") + &plain.bad("c");
        assert_eq!(all, "abc");
        assert_eq!(Paint::Ansi.bold("a"), "\u{1b}[1ma\u{1b}[0m");
    }
}
