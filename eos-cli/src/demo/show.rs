//! The display of the progress: a bar on a terminal, plain lines anywhere else.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::text::{Paint, counted, grouped};

/// The time between two plain lines of progress.
const PERIOD: Duration = Duration::from_secs(2);

/// The progress so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Lines in the input.
    pub(crate) input: u64,
    /// Words that are counted and committed.
    pub(crate) out: u64,
    /// Kills so far.
    pub(crate) kills: u64,
}

/// The display of the progress.
#[derive(Debug)]
pub(crate) enum Show {
    /// On a terminal.
    Bar(ProgressBar),
    /// In lines without escape sequences.
    Lines {
        /// The time of the first progress.
        begun: Cell<Option<Instant>>,
        /// The time of the last printed line of progress.
        last: Cell<Option<Instant>>,
    },
}

impl Show {
    /// Returns a bar if standard output is a terminal that may be drawn on.
    pub(crate) fn on_stdout(words: u64) -> Show {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = var("TERM").is_none_or(|term| term == "dumb");
        if !std::io::stdout().is_terminal() || var("NO_COLOR").is_some() || dumb {
            return Show::Lines {
                begun: Cell::new(None),
                last: Cell::new(None),
            };
        }
        let bar = ProgressBar::with_draw_target(Some(words), ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{spinner} {wide_bar:.green/black.bright} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Show::Bar(bar)
    }

    pub(crate) fn paint(&self) -> Paint {
        match self {
            Show::Bar(_) => Paint::Ansi,
            Show::Lines { .. } => Paint::Plain,
        }
    }

    /// Prints a line of text.
    pub(crate) fn line(&self, text: &str) {
        match self {
            Show::Bar(bar) => bar.suspend(|| println!("{text}")),
            Show::Lines { .. } => println!("{text}"),
        }
    }

    /// Prints a kill.
    pub(crate) fn kill(&self, text: &str) {
        match self {
            Show::Bar(_) => self.line(&format!("💀 {text}")),
            Show::Lines { .. } => self.line(&format!("  {text}")),
        }
    }

    /// Shows the progress. Plain lines appear once per [`PERIOD`].
    pub(crate) fn progress(&self, state: State) {
        match self {
            Show::Bar(bar) => {
                bar.set_position(state.out);
                bar.set_message(format!(
                    "{} lines in · {} words counted · 💀 {}",
                    grouped(state.input),
                    grouped(state.out),
                    state.kills
                ));
            }
            Show::Lines { begun, last } => {
                let now = Instant::now();
                let from = begun.get().unwrap_or(now);
                begun.set(Some(from));
                if last.get().is_none_or(|last| now - last >= PERIOD) {
                    last.set(Some(now));
                    println!("{}", plain(now - from, state));
                }
            }
        }
    }

    /// Removes the bar, or prints the last line of progress.
    pub(crate) fn end(&self, state: State) {
        match self {
            Show::Bar(bar) => bar.finish_and_clear(),
            Show::Lines { begun, .. } => {
                let from = begun.get().unwrap_or_else(Instant::now);
                println!("{}", plain(from.elapsed(), state));
            }
        }
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        if let Show::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Returns a line of progress for a log file.
fn plain(since: Duration, state: State) -> String {
    format!(
        "{:>5.1} s {:>9} lines in {:>9} words counted, committed {:>10}",
        since.as_secs_f64(),
        grouped(state.input),
        grouped(state.out),
        counted(state.kills, "kill")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_progress_is_a_table_without_escape_sequences() {
        let state = State {
            input: 88_000,
            out: 79_512,
            kills: 4,
        };
        let line = plain(Duration::from_millis(4_020), state);
        assert_eq!(
            line,
            "  4.0 s    88,000 lines in    79,512 words counted, committed    4 kills"
        );
    }
}
