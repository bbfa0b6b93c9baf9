//! Several pauses of one task, after an abort.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eos_core::run::Resume;
use eos_core::{App, ErrorPolicy, Failure, PlainTopic, Timestamp, Topic};
use eos_testkit::TestDriver;

fn texts(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name)
}

/// An app with two inputs. `two` never passes, and `1` only while the flag is false.
fn app(is_broken: &Arc<AtomicBool>) -> App {
    let is_broken = Arc::clone(is_broken);
    let mut app = App::new("a");
    let policy = || ErrorPolicy::pause().dead_letters_to("letters");
    let first = app.source(&texts("first")).on_error(policy());
    let second = app.source(&texts("second")).on_error(policy());
    first
        .merge(second)
        .try_map(move |text: String| match &text[..] {
            "two" => Err(Failure::from("never")),
            "1" if is_broken.load(Ordering::Relaxed) => Err(Failure::from("not now")),
            _ => Ok(text),
        })
        .to(&texts("out"));
    app
}

/// The record of the first pause is skipped in a transaction that aborts. Then an earlier record fails.
#[test]
fn a_second_pause_keeps_the_decision_about_the_first() {
    for how in [Resume::Skip, Resume::DeadLetter] {
        let is_broken = Arc::new(AtomicBool::new(false));
        let mut driver = TestDriver::new(app(&is_broken));
        driver.hold();
        driver.pipe_at(&texts("second"), "k", "two", Timestamp(7));
        let first = driver.paused().remove(0);
        assert_eq!(first.at.to_string(), "record 0 of second-0");
        driver.pipe_at(&texts("first"), "k", "1", Timestamp(5));
        driver.resume(first.id, how).unwrap();
        assert!(driver.paused().is_empty());

        is_broken.store(true, Ordering::Relaxed);
        driver.abort();
        let paused = driver.paused();
        let places: Vec<_> = paused.iter().map(|it| it.at.to_string()).collect();
        assert_eq!(places, ["record 0 of first-0"]);

        is_broken.store(false, Ordering::Relaxed);
        driver.resume(paused[0].id, Resume::Retry).unwrap();
        assert!(driver.paused().is_empty(), "{:?}", driver.paused());
        driver.pipe_at(&texts("second"), "k", "3", Timestamp(9));
        driver.release();
        let out = driver.read_pairs(&texts("out")).into_iter();
        let out: Vec<_> = out.map(|(_, value)| value).collect();
        assert_eq!(out, ["1", "3"]);
        let letters = driver.read_pairs(&texts("letters"));
        assert_eq!(letters.len(), usize::from(how == Resume::DeadLetter));
    }
}

/// A decision about the second pause is not one about the first.
#[test]
fn both_pauses_are_decided_on_their_own() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let mut driver = TestDriver::new(app(&is_broken));
    driver.hold();
    driver.pipe_at(&texts("second"), "k", "two", Timestamp(7));
    driver.pipe_at(&texts("first"), "k", "1", Timestamp(5));
    let first = driver.paused().remove(0);
    driver.resume(first.id, Resume::DeadLetter).unwrap();
    is_broken.store(true, Ordering::Relaxed);
    driver.abort();
    let second = driver.paused().remove(0);
    driver.resume(second.id, Resume::Skip).unwrap();
    assert!(driver.paused().is_empty(), "{:?}", driver.paused());
    driver.release();
    assert!(driver.is_empty(&texts("out")));
    let letters = driver.read_pairs(&texts("letters"));
    assert_eq!(letters, [("k".to_owned(), "two".to_owned())]);
}
