//! Letters of apps with other operators: deduplication, orders, timers.

use eos_core::reorder::{OnGap, Reorder};
use eos_core::state::ReorderStore;
use eos_core::timers::Clock;

use super::*;

/// P fails after the deduplication, so its id is not kept. Its sender sends it again. The replay of P is then a
/// duplicate, unless an operator requests a new generation.
#[test]
fn a_replay_meets_the_deduplication() {
    let is_down = broken(&["p"]);
    let mut app = App::new("a");
    let seen = SeenIds::for_ever("seen");
    app.source(&orders())
        .on_error(ErrorPolicy::dead_letter("orders-dlq"))
        .dedup(&seen)
        .by(|order: &String| order.clone())
        .try_map(fail_if(&is_down))
        .to(&paid());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("k", "p")]);
    let letters = driver.read(&letters());
    is_down.lock().unwrap().clear();
    pipe(&mut driver, &[("k", "p")]);
    assert_eq!(read(&mut driver), ["p"]);
    for (generation, expected) in [(None, vec![]), (Some(1), vec!["p"]), (Some(1), vec![])] {
        let mut replay = Replay::start(&driver, generation);
        for letter in &letters {
            replay.pipe(
                letter.key.as_deref(),
                letter.value.as_deref(),
                &letter.headers,
            );
        }
        for record in replay.read() {
            driver.pipe_input(&orders(), record.1);
        }
        assert_eq!(read(&mut driver), expected, "{generation:?}");
    }
}

/// The number of a letter is not passed over: its replay comes before the later records of its key.
#[test]
fn a_letter_keeps_its_place_in_an_order() {
    let is_down = broken(&["1"]);
    let mut app = App::new("a");
    let settings = Reorder::max_gap(5).max_wait(Duration::from_secs(60), Clock::Stream);
    app.source(&orders())
        .on_error(policy())
        .reorder_by(
            |order: &String| order.parse::<u64>().unwrap_or_default(),
            settings.on_gap(OnGap::PassOn).starts_at(1),
            &ReorderStore::plain("waiting"),
        )
        .ordered()
        .try_map(fail_if(&is_down))
        .to(&paid());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("k", "1"), ("k", "2"), ("k", "3")]);
    let letters = read_letters(&mut driver);
    let expected = [("1", "1 0 1"), ("2", "1 0 2"), ("3", "1 0 3")];
    assert_eq!(numbers(&letters), pairs(&expected));
    is_down.lock().unwrap().clear();
    for letter in &letters {
        send(&mut driver, letter);
    }
    assert_eq!(read(&mut driver), ["1", "2", "3"]);
}

/// A letter about a moment of a timer has no number.
#[test]
fn a_failing_timer_handler_writes_a_letter_that_the_replay_refuses() {
    let mut app = App::new("a");
    let timer = app.timer(&Timer::<String>::event_time("soon"));
    app.source(&orders())
        .on_error(policy())
        .on_timer(&timer, |_, _| Err::<(), _>(Failure::from("broken")))
        .process(move |ctx, record: Record<String, String>| {
            ctx.timer(&timer)
                .set_in(&record.key, Duration::from_secs(1))?;
            ctx.forward(record.key, record.value)
        })
        .to(&paid());
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&orders(), "k", "1", Timestamp(0));
    driver.pipe_at(&orders(), "l", "2", Timestamp(5_000));
    driver.pipe_at(&orders(), "k", "3", Timestamp(5_000));
    let letters = read_letters(&mut driver);
    assert_eq!(letters[0].2.get("eos-sequence"), None);
    assert_eq!(text(letters[0].2.get("eos-due")), "soon 1000");
    assert_eq!(read(&mut driver), ["1", "2", "3"], "its key is not parked");
}
