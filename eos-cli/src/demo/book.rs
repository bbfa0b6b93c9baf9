//! The input: the lines of a book, repeated endlessly.

use std::fs;

use anyhow::{Context, Result};
use kafka_launcher::paths;

/// Alice's Adventures in Wonderland by Lewis Carroll (1865), in the public domain.
const PATH: &str = "examples/06-word-count/alice.txt";

/// The lines that have words, each with its number of words.
#[derive(Debug)]
pub(crate) struct Book(Vec<(String, u64)>);

impl Book {
    /// Reads the example's book from this checkout.
    pub(crate) fn open() -> Result<Book> {
        let checkout = paths::checkout();
        let checkout =
            checkout.context("the book is only in a clone of eos: run the demo in one")?;
        let path = checkout.join(PATH);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let lines = text.lines();
        let lines = lines.map(|line| (line.to_owned(), words(line).count() as u64));
        Ok(Book(lines.filter(|(_, words)| *words > 0).collect()))
    }

    /// Line number `n`, from 0.
    pub(crate) fn line(&self, n: u64) -> &str {
        let at = n % self.0.len().max(1) as u64;
        self.0.get(at as usize).map_or("", |(line, _)| line)
    }

    /// Returns the number of words in the first `lines` lines.
    pub(crate) fn words(&self, lines: u64) -> u64 {
        let (length, count) = (self.0.len().max(1) as u64, |(_, words): &(String, u64)| {
            *words
        });
        let whole: u64 = self.0.iter().map(count).sum();
        let rest: u64 = self
            .0
            .iter()
            .take((lines % length) as usize)
            .map(count)
            .sum();
        lines / length * whole + rest
    }
}

/// Returns the words of a line, in their original case: letters, digits, and apostrophes inside of
/// words.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    let pieces = line.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let words = pieces.map(|piece| piece.trim_matches('\''));
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_begins_again_when_it_is_through() {
        let book = Book::open().unwrap();
        let length = book.0.len() as u64;
        assert!(book.line(0).contains("WONDERLAND"));
        assert_eq!(book.line(length + 3), book.line(3));
        let counted = |lines: u64| -> u64 {
            let lines = (0..lines).map(|n| words(book.line(n)).count() as u64);
            lines.sum()
        };
        for lines in [0, 1, 17, length, 2 * length + 5] {
            assert_eq!(book.words(lines), counted(lines), "{lines}");
        }
    }

    #[test]
    fn words_are_what_stands_between_marks() {
        let found: Vec<_> = words("  `Oh dear!  It's late--late,' ").collect();
        assert_eq!(found, ["Oh", "dear", "It's", "late", "late"]);
    }
}
