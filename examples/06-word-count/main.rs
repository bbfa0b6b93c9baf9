//! A word count: state per key that survives crashes.
//! `cargo run -p eos-examples --bin 06-word-count`
//!
//! ```text
//! lines ─→ words ─(repartition: all of one word in one task)─→ counts ─→ word-counts
//! ```
//!
//! Each update of a count goes to `word-counts`, as the 8 bytes that Kafka Streams would write. The program prints
//! these bytes after the word; `Topic::json` would write text instead. Each task keeps its counts in a database and in
//! a changelog topic. The changelog commits in the transaction of the offsets and the outputs. Kill this program at any
//! moment, and start it again on any host: every word counts exactly once.

use eos_core::{App, KeyValueStore, PlainTopic, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let alice = Input::values("lines", include_str!("alice.txt"));
    let kafka = Kafka::provide(&[alice], &["word-counts"])?;

    let workers = std::env::var("WORKERS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let mut app = app();
    app.workers(workers);
    app.run(kafka.bootstrap()).await?;
    Ok(())
}

fn lines() -> PlainTopic<Option<String>, String> {
    Topic::plain("lines")
}

fn word_counts() -> PlainTopic<String, u64> {
    Topic::plain("word-counts")
}

fn app() -> App {
    let words = Topic::<String, String>::plain("words");
    let counts = KeyValueStore::<String, u64>::plain("counts");

    let mut app = App::new("word-count-v1");
    app.source(&lines())
        .flat_map(|line| words_of(&line))
        .key_by(|word| word.clone())
        .repartition(&words)
        .group_by_key()
        .count(&counts)
        .to(&word_counts());
    app
}

/// Returns the words in lower case, without the characters around them. An apostrophe is part of a word only inside it.
fn words_of(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let words = words.map(|word| word.trim_matches('\''));
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use eos_testkit::TestDriver;

    use super::*;

    #[test]
    fn a_word_counts_once_despite_crashes() {
        let mut driver = TestDriver::of(app);
        driver.pipe(&lines(), None, "Curiouser and curiouser!");
        assert_eq!(driver.read_map(&word_counts())["curiouser"], 2);

        // One crash in the middle of a record, and one that also loses the database.
        driver.crash_during_next_record();
        driver.pipe(&lines(), None, "And curiouser.");
        driver.crash_and_lose_state();
        driver.pipe(&lines(), None, "curiouser");
        assert_eq!(driver.crashes(), 2);
        assert_eq!(driver.read_map(&word_counts())["curiouser"], 4);
    }

    #[test]
    fn words_are_found_whatever_stands_around_them() {
        assert_eq!(
            words_of("\"It's late,\" she 'said' — late!"),
            ["it's", "late", "she", "said", "late"]
        );
        assert_eq!(words_of(" ... "), Vec::<String>::new());
    }
}
