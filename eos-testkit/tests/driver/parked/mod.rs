//! Sequenced dead letters and their replay, with a crash at every effect.

mod operators;
mod origins;
mod replay;
mod replay_model;
mod starts;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eos_core::identity::SeenIds;
use eos_core::{
    App, Backoff, ErrorPolicy, Failure, Headers, PlainTopic, Record, Timer, Timestamp, Topic,
};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use replay::Replay;

type Bytes = Option<Vec<u8>>;

fn orders() -> PlainTopic<String, String> {
    Topic::plain("orders")
}

fn paid() -> PlainTopic<String, String> {
    Topic::plain("paid")
}

fn letters() -> PlainTopic<Bytes, Bytes> {
    Topic::plain("orders-dlq")
}

fn policy() -> ErrorPolicy {
    ErrorPolicy::dead_letter("orders-dlq").in_sequence("parked-orders")
}

/// The values that fail.
type Broken = Arc<Mutex<BTreeSet<&'static str>>>;

fn broken(values: &[&'static str]) -> Broken {
    Arc::new(Mutex::new(values.iter().copied().collect()))
}

/// Fails the broken values.
fn fail_if(broken: &Broken) -> impl Fn(String) -> Result<String, Failure> + use<> {
    let broken = Arc::clone(broken);
    move |order| match broken.lock().unwrap().contains(&*order) {
        true => Err(Failure::from("broken")),
        false => Ok(order),
    }
}

/// Copies each record that is not broken.
fn app(broken: &Broken) -> App {
    let mut app = App::new("a");
    app.source(&orders())
        .on_error(policy())
        .try_map(fail_if(broken))
        .to(&paid());
    app
}

fn pipe(driver: &mut TestDriver, records: &[(&str, &str)]) {
    for (key, value) in records {
        driver.pipe_at(&orders(), *key, *value, Timestamp(7));
    }
}

fn read(driver: &mut TestDriver) -> Vec<String> {
    driver
        .read(&paid())
        .into_iter()
        .map(|it| it.value)
        .collect()
}

/// A dead letter: key, value, headers.
type Letter = (Bytes, Bytes, Headers);

fn read_letters(driver: &mut TestDriver) -> Vec<Letter> {
    let letters = driver.read(&letters()).into_iter();
    letters.map(|it| (it.key, it.value, it.headers)).collect()
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap()
}

/// Values and numbers.
fn numbers(letters: &[Letter]) -> Vec<(String, String)> {
    letters
        .iter()
        .map(|(_, value, headers)| (text(value.as_deref()), text(headers.get("eos-sequence"))))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    expected.iter().map(own).collect()
}

/// Replays one letter, as the replay app does.
fn send(driver: &mut TestDriver, letter: &Letter) {
    let number = text(letter.2.get("eos-sequence"));
    let number = number.strip_prefix("1 ").unwrap();
    send_as(driver, letter, &format!("1 record {number}"));
}

fn send_as(driver: &mut TestDriver, (key, value, _): &Letter, header: &str) {
    let input = Input::raw(key.as_deref(), value.as_deref());
    let input = input.at(Timestamp(7)).header("eos-replay", header);
    driver.pipe_input(&orders(), input);
}

const THREE: [(&str, &str); 5] = [("k", "1"), ("k", "2"), ("l", "a"), ("k", "3"), ("l", "b")];

/// Three letters of the key `k`, whose first one failed, and the processed records of `l`.
fn three(driver: &mut TestDriver) -> Vec<Letter> {
    pipe(driver, &THREE);
    let letters = read_letters(driver);
    assert_eq!(
        numbers(&letters),
        pairs(&[("1", "1 0 1"), ("2", "1 0 2"), ("3", "1 0 3")])
    );
    letters
}

#[test]
fn later_records_follow_the_first_letter_of_their_key() {
    let broken = broken(&["1"]);
    let mut driver = TestDriver::new(app(&broken));
    let letters = three(&mut driver);
    assert_eq!(read(&mut driver), ["a", "b"]);
    let header = |at: usize, name: &str| text(letters[at].2.get(name));
    assert_eq!(header(0, "__streams.errors.message"), "broken");
    assert_eq!(header(1, "__streams.errors.exception"), "ParkedKey");
    assert!(header(2, "__streams.errors.message").contains("as number 3"));
    assert_eq!(header(2, "__streams.errors.offset"), "3");
    assert_eq!(driver.metrics().unwrap().totals.dead_letters, 3);
}

#[test]
fn a_replay_in_order_processes_each_letter_and_releases_the_key() {
    let broken = broken(&["1"]);
    let mut driver = TestDriver::new(app(&broken));
    let letters = three(&mut driver);
    broken.lock().unwrap().clear();
    for letter in &letters {
        pipe(&mut driver, &[("l", "c")]);
        send(&mut driver, letter);
    }
    pipe(&mut driver, &[("k", "4")]);
    assert_eq!(
        read(&mut driver),
        ["a", "b", "c", "1", "c", "2", "c", "3", "4"]
    );
    assert!(read_letters(&mut driver).is_empty());
}

/// C5: the first letter fails again. Neither the second one nor a new record may overtake it.
#[test]
fn a_letter_that_fails_again_keeps_its_number_and_none_overtakes_it() {
    let broken = broken(&["1"]);
    let mut driver = TestDriver::new(app(&broken));
    let letters = three(&mut driver);
    read(&mut driver);
    send(&mut driver, &letters[0]);
    pipe(&mut driver, &[("k", "4")]);
    send(&mut driver, &letters[1]);
    send(&mut driver, &letters[2]);
    assert!(read(&mut driver).is_empty());
    let again = read_letters(&mut driver);
    let expected = [
        ("1", "1 0 1"),
        ("4", "1 0 4"),
        ("2", "1 0 2"),
        ("3", "1 0 3"),
    ];
    assert_eq!(numbers(&again), pairs(&expected));
    assert_eq!(again[0].2.get("eos-replay"), None);
    broken.lock().unwrap().clear();
    // In the order of the topic: 4 waits for a second round.
    again.iter().for_each(|letter| send(&mut driver, letter));
    assert_eq!(read(&mut driver), ["1", "2", "3"]);
    let last = read_letters(&mut driver);
    assert_eq!(numbers(&last), pairs(&[("4", "1 0 4")]));
    send(&mut driver, &last[0]);
    assert_eq!(read(&mut driver), ["4"]);
}

/// C5: a second replay, also in the middle of another episode.
#[test]
fn a_second_replay_changes_nothing() {
    let broken = broken(&["1", "5"]);
    let mut driver = TestDriver::new(app(&broken));
    let letters = three(&mut driver);
    broken.lock().unwrap().remove("1");
    send(&mut driver, &letters[0]);
    send(&mut driver, &letters[0]);
    letters.iter().for_each(|letter| send(&mut driver, letter));
    letters.iter().for_each(|letter| send(&mut driver, letter));
    assert_eq!(read(&mut driver), ["a", "b", "1", "2", "3"]);
    pipe(&mut driver, &[("k", "5"), ("k", "6")]);
    let episode = read_letters(&mut driver);
    let first = text(episode[0].2.get("eos-sequence"));
    assert!(first.ends_with(" 1") && first != "1 0 1", "{first}");
    letters.iter().for_each(|letter| send(&mut driver, letter));
    assert!(read(&mut driver).is_empty());
    assert_eq!(driver.metrics().unwrap().totals.repeated_letters, 8);
    broken.lock().unwrap().clear();
    episode.iter().for_each(|letter| send(&mut driver, letter));
    assert_eq!(read(&mut driver), ["5", "6"]);
}

/// C5: keys that would be parked forever.
#[test]
fn a_letter_is_discarded_and_a_key_is_released() {
    let broken = broken(&["1"]);
    let mut driver = TestDriver::new(app(&broken));
    let letters = three(&mut driver);
    send_as(&mut driver, &letters[0], "1 discard 0 1");
    send(&mut driver, &letters[1]);
    send_as(&mut driver, &letters[2], "1 discard 0 3");
    pipe(&mut driver, &[("k", "4")]);
    assert_eq!(read(&mut driver), ["a", "b", "2", "4"]);

    pipe(&mut driver, &[("k", "1"), ("k", "5")]);
    let letters = read_letters(&mut driver);
    send_as(&mut driver, &letters[0], "1 release 0");
    pipe(&mut driver, &[("k", "6")]);
    assert!(read(&mut driver).is_empty(), "another episode");
    send_as(&mut driver, &letters[0], "1 release");
    pipe(&mut driver, &[("k", "7")]);
    assert_eq!(read(&mut driver), ["7"]);
    send(&mut driver, &letters[1]);
    assert!(read(&mut driver).is_empty(), "it was released");
}

#[test]
fn records_without_a_key_wait_for_none_and_their_letters_come_back_once() {
    let broken = broken(&["1"]);
    let mut app = App::new("a");
    let is_broken = Arc::clone(&broken);
    let source = PlainTopic::<Bytes, String>::named("orders");
    app.source(&source)
        .on_error(policy())
        .try_map(
            move |order: String| match is_broken.lock().unwrap().contains(&*order) {
                true => Err(Failure::from("broken")),
                false => Ok(order),
            },
        )
        .to(&PlainTopic::<Bytes, String>::named("paid"));
    let mut driver = TestDriver::new(app);
    let values = PlainTopic::<Bytes, String>::named("paid");
    let read = |driver: &mut TestDriver| -> Vec<String> {
        driver
            .read(&values)
            .into_iter()
            .map(|it| it.value)
            .collect()
    };
    for value in ["0", "1", "2"] {
        driver.pipe_input(&source, Input::raw(None, Some(value.as_bytes())));
    }
    assert_eq!(read(&mut driver), ["0", "2"]);
    let letters = read_letters(&mut driver);
    assert_eq!(numbers(&letters), pairs(&[("1", "1 1 1")]));
    broken.lock().unwrap().clear();
    send(&mut driver, &letters[0]);
    send(&mut driver, &letters[0]);
    assert_eq!(read(&mut driver), ["1"]);
}

#[test]
fn an_unreadable_replay_header_fails_the_record() {
    let mut driver = TestDriver::new(app(&broken(&[])));
    let letter = (Some(b"k".to_vec()), Some(b"1".to_vec()), Headers::new());
    send_as(&mut driver, &letter, "record 0 1");
    let letters = read_letters(&mut driver);
    let error = text(letters[0].2.get("__streams.errors.message"));
    assert!(error.contains("newer version of eos"), "{error}");
    // As a dead letter, it would have no number, and its key would stay parked.
    let newer = Input::<String, String>::new("k", "1").header("eos-replay", "2 record 0 1");
    let error = driver.try_pipe(&orders(), newer).unwrap_err().to_string();
    assert!(
        error.contains("has format 2") && error.contains("Upgrade this app"),
        "{error}"
    );
}

/// An abort gives the row of a released key back. The task must not forget it.
#[test]
fn a_release_that_is_aborted_leaves_the_key_parked() {
    let broken = broken(&["1"]);
    let mut driver = TestDriver::new(app(&broken));
    pipe(&mut driver, &[("k", "1")]);
    let letter = read_letters(&mut driver).remove(0);
    broken.lock().unwrap().clear();
    driver.hold();
    send(&mut driver, &letter);
    // The task looks for parked keys, and finds none.
    pipe(&mut driver, &[("other", "x")]);
    driver.abort();
    driver.release();
    pipe(&mut driver, &[("k", "2")]);
    assert_eq!(read(&mut driver), ["1", "x", "2"]);
    assert!(read_letters(&mut driver).is_empty());
}

#[test]
fn crashes_everywhere_change_nothing() {
    let places = crash_everywhere(
        || TestDriver::new(app(&broken(&[]))),
        |driver| {
            // The closure has no state. The value is the number of its failures.
            let letter = (Some(b"k".to_vec()), Some(b"x".to_vec()), Headers::new());
            pipe(driver, &[("k", "0")]);
            send_as(driver, &letter, "1 record 0 1");
            driver.committed()
        },
    );
    assert!(places > 10, "{places}");
    let always = broken(&["1"]);
    let places = crash_everywhere(
        || TestDriver::new(app(&always)),
        |driver| {
            pipe(driver, &THREE);
            for header in [
                "1 discard 0 1",
                "1 record 0 3",
                "1 record 0 2",
                "1 record 0 2",
            ] {
                let n = header.split(' ').next_back().unwrap();
                let letter = (
                    Some(b"k".to_vec()),
                    Some(n.as_bytes().to_vec()),
                    Headers::new(),
                );
                send_as(driver, &letter, header);
            }
            pipe(driver, &[("k", "4")]);
            driver.committed()
        },
    );
    assert!(places > 40, "{places}");
}

#[test]
fn retries_come_before_the_letter() {
    let broken = broken(&["1"]);
    let mut app = App::new("a");
    let is_broken = Arc::clone(&broken);
    let retry = ErrorPolicy::retry(2, Backoff::fixed(Duration::from_secs(1)));
    app.source(&orders())
        .on_error(retry.then(policy()))
        .try_map(
            move |order: String| match is_broken.lock().unwrap().contains(&*order) {
                true => Err(Failure::from("broken")),
                false => Ok(order),
            },
        )
        .to(&paid());
    let mut driver = TestDriver::new(app);
    let letters = three(&mut driver);
    assert_eq!(driver.metrics().unwrap().totals.retried, 2);
    send(&mut driver, &letters[0]);
    assert_eq!(
        numbers(&read_letters(&mut driver)),
        pairs(&[("1", "1 0 1")])
    );
    assert_eq!(driver.metrics().unwrap().totals.retried, 4);
}

#[test]
fn mistakes_are_refused_with_the_fix() {
    let error = |build: &dyn Fn(&mut App)| {
        let mut app = App::new("a");
        build(&mut app);
        app.describe().unwrap_err().to_string()
    };
    let without = error(&|app| {
        let skip = ErrorPolicy::skip().in_sequence("parked");
        app.source(&orders()).on_error(skip).to(&paid());
    });
    assert!(
        without.contains("`dead_letter(..).in_sequence(..)`"),
        "{without}"
    );
    let two = error(&|app| {
        app.source(&orders()).on_error(policy()).to(&paid());
        let other = app.source(&orders()).on_error(ErrorPolicy::skip());
        other.to(&paid());
    });
    assert!(
        two.contains("read twice") && two.contains("the same policy"),
        "{two}"
    );
    let shared = error(&|app| {
        app.source(&orders()).on_error(policy()).to(&paid());
        let other = app.source(&Topic::<String, String>::plain("others"));
        other.on_error(policy()).to(&paid());
    });
    assert!(shared.contains("parked-orders"), "{shared}");
    let replay = App::replay("orders-dlq").app().describe();
    let replay = replay.unwrap_err().to_string();
    assert!(replay.contains("`.to(topic)`"), "{replay}");
    assert_eq!(
        policy().to_string(),
        "dead_letter(\"orders-dlq\").in_sequence(\"parked-orders\")"
    );
}

/// The letter of a parked record is too large for its topic and aborts the transactions. The record must not run, even
/// though a timer is due at its time and could have caused the aborts.
#[test]
fn a_parked_record_whose_letter_is_refused_does_not_overtake() {
    let mut app = App::new("a");
    let timer = app.timer(&Timer::<String>::event_time("timer"));
    app.source(&orders())
        .on_error(policy())
        .on_timer(&timer, |ctx, due| ctx.forward(due.key, "moment".to_owned()))
        .process_values(move |ctx, record| match &*record.value {
            "broken" => Err(Failure::from("broken")),
            "set" => ctx.timer(&timer).set(record.key, Timestamp(9)),
            _ => ctx.forward(record.value),
        })
        .to(&paid());
    let mut driver = TestDriver::new(app);
    // The worker uses the limit that it read at its start, so the brokers refuse the letter.
    let set = driver
        .cluster()
        .broker(|broker| broker.configure_topic("orders-dlq", "max.message.bytes", "2000"));
    set.unwrap();
    for (key, value, at) in [("k", "set", 0), ("k", "broken", 1)] {
        driver.pipe_at(&orders(), key, value, Timestamp(at));
    }
    assert_eq!(read_letters(&mut driver).len(), 1);
    let large = Input::<String, String>::new("k", "x".repeat(3_000)).at(Timestamp(20));
    let error = driver.try_pipe(&orders(), large).unwrap_err().to_string();
    assert!(
        error.contains("record 2 of orders-0 could not be processed"),
        "{error}"
    );
    assert_eq!(read(&mut driver), Vec::<String>::new());
}

#[test]
fn parked_keys_are_counted() {
    let keys = |driver: &TestDriver| {
        let workers = driver.metrics().unwrap().workers;
        let mut tasks = workers.iter().flat_map(|worker| &worker.tasks);
        tasks.next().and_then(|task| task.parked_keys)
    };
    let broken = broken(&["b1", "b2", "c1"]);
    let mut driver = TestDriver::new(app(&broken));
    pipe(&mut driver, &[("a", "a1"), ("b", "b1"), ("c", "c1")]);
    pipe(&mut driver, &[("b", "b2"), ("b", "b3"), ("a", "a2")]);
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(keys(&driver), Some(2));
    driver.crash();
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(keys(&driver), Some(2));
    let letters = read_letters(&mut driver);
    let [b1, c1, ..] = &letters[..] else {
        panic!("{letters:?}");
    };
    broken.lock().unwrap().clear();
    driver.abort_next();
    send(&mut driver, c1);
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(keys(&driver), Some(1));
    broken.lock().unwrap().insert("d1");
    driver.abort_next();
    pipe(&mut driver, &[("d", "d1")]);
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(keys(&driver), Some(2));
    let letters = read_letters(&mut driver);
    send_as(&mut driver, letters.last().unwrap(), "1 release");
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(keys(&driver), Some(1));
    send_as(&mut driver, b1, "1 release");
    driver.advance_wall_clock(Duration::from_secs(1));
    assert_eq!(keys(&driver), Some(0));
}
