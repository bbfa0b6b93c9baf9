//! Random histories of the replay, compared with a model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eos_core::spi::replay::with_limits;
use eos_core::{App, KeyValueStore, PlainTopic, Timestamp};
use eos_protocol::letter::WaitingLetter;
use eos_protocol::replay_round::RoundLimits;
use eos_testkit::rng::Rng;
use eos_testkit::{Input, TestDriver};

use super::starts::{failed, failed_at_offset, waiting};
use super::{Bytes, letters, text};

/// The clock of a driver begins in 2100, after the declaration of each replay.
const BEGIN: i64 = 4_102_444_800_000;
/// The time for which a letter that fails during the replay waits.
const PAUSE: i64 = 5_000;
const ROUND: Duration = Duration::from_millis(500);
/// The rows are in this order in the store. No start names `visits`.
const TOPICS: [&str; 3] = ["clicks", "orders", "visits"];
/// The partitions of origin. The topics have two, so partition 2 does not exist.
const PARTITIONS: [u32; 4] = [0, 0, 1, 2];
const KEYS: [Option<&str>; 5] = [Some("k"), Some("k"), Some("l"), Some("m"), None];

/// One letter. Its value begins with its place in the list of all letters.
#[derive(Debug, Clone)]
struct Letter {
    topic: &'static str,
    partition: u32,
    key: Option<&'static str>,
    /// Episode and number.
    number: Option<(i64, u64)>,
    failed_at: i64,
    is_large: bool,
}

impl Letter {
    /// A letter of any origin. `now`: the time of the clock.
    fn random(rng: &mut Rng, now: i64) -> Self {
        let number = (!rng.one_in(5)).then(|| (i64::from(rng.one_in(4)), rng.below(6) as u64 + 1));
        // Half of the letters are of a topic that each start names.
        let topic = match rng.one_in(2) {
            true => "orders",
            false => TOPICS[rng.below(TOPICS.len())],
        };
        Self {
            topic,
            partition: PARTITIONS[rng.below(PARTITIONS.len())],
            key: KEYS[rng.below(KEYS.len())],
            number,
            failed_at: [900, 900, 1_500, now][rng.below(4)],
            is_large: rng.one_in(4),
        }
    }

    fn input(&self, id: usize) -> Input<Bytes, Bytes> {
        let padding = if self.is_large { 950 } else { 0 };
        let value = format!("{id} {}", "v".repeat(padding));
        let record = Input::raw(self.key.map(str::as_bytes), Some(value.as_bytes()));
        let partition = self.partition.to_string();
        let letter = match self.number {
            Some((episode, n)) => failed(
                record,
                self.topic,
                &format!("{episode} {n}"),
                self.failed_at,
            ),
            None => failed_at_offset(record, self.topic, "3", self.failed_at),
        };
        let letter = letter.header("__streams.errors.partition", partition);
        letter.to_partition(self.task() as i32)
    }

    /// The partition of the dead-letter topic, which is that of the key.
    fn task(&self) -> usize {
        KEYS.iter().position(|key| *key == self.key).unwrap() % 2
    }

    /// The letters that follow each other.
    fn group(&self) -> impl PartialEq + use<> {
        let episode = self.number.map(|(episode, _)| episode);
        (self.topic, self.partition, self.key, episode)
    }

    /// Whether the later letters of its key wait for it.
    fn is_awaited(&self) -> bool {
        self.number.is_some() && self.key.is_some()
    }
}

/// The settings of one start.
#[derive(Debug, Clone, Copy)]
struct Settings {
    until: i64,
    names_clicks: bool,
    takes_large: bool,
    limits: RoundLimits,
}

impl Settings {
    fn random(rng: &mut Rng) -> Self {
        let until = [1_000, 2_000, i64::MAX][rng.below(3)];
        let (names_clicks, takes_large) = (rng.one_in(3), rng.one_in(3));
        let limits = RoundLimits {
            read: 1 + rng.below(6),
            letters: 1 + rng.below(4),
            bytes: [5, 20, 1_000][rng.below(3)],
        };
        Self {
            until,
            names_clicks,
            takes_large,
            limits,
        }
    }

    fn app(&self) -> App {
        let replay = App::replay("orders-dlq").to("orders");
        let replay = match self.names_clicks {
            true => replay.to("clicks"),
            false => replay,
        };
        with_limits(replay.until(Timestamp(self.until)), self.limits).app()
    }

    fn is_late(&self, letter: &Letter) -> bool {
        letter.failed_at >= self.until
    }

    fn is_too_large(&self, letter: &Letter) -> bool {
        letter.is_large && !self.takes_large && letter.topic == "orders"
    }

    /// Whether this start writes the letter, if it waits for no other.
    fn writes(&self, letter: &Letter) -> bool {
        let is_named = letter.topic == "orders" || letter.topic == "clicks" && self.names_clicks;
        let fits = letter.partition < 2 && !self.is_too_large(letter);
        is_named && fits && !self.is_late(letter)
    }
}

struct History {
    driver: TestDriver,
    current: Arc<Mutex<Settings>>,
    settings: Settings,
    letters: Vec<Letter>,
    /// The number of letters at the last look. Later letters may have arrived after a record was written.
    seen: usize,
    written: BTreeSet<usize>,
    /// The numbers of earlier starts in the rows of places.
    earlier: BTreeSet<Vec<u8>>,
    has_second: bool,
    /// The events, printed after a failure.
    log: Vec<String>,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log.join("\n"));
        }
    }
}

impl History {
    fn new(settings: Settings) -> Self {
        // The driver creates only the topics of the first app, so that app names `clicks`.
        let current = Arc::new(Mutex::new(Settings {
            names_clicks: true,
            ..settings
        }));
        let of = Arc::clone(&current);
        let builder = TestDriver::builder().partitions("orders-dlq", 2);
        let builder = builder.partitions("orders", 2).partitions("clicks", 2);
        let builder = builder.start_at(Timestamp(BEGIN));
        let driver = builder.start_of(move || of.lock().unwrap().app());
        let mut history = Self {
            driver,
            current,
            settings,
            letters: Vec::new(),
            seen: 0,
            written: BTreeSet::new(),
            earlier: BTreeSet::new(),
            has_second: false,
            log: Vec::new(),
        };
        history.restart_with(settings, Vec::new());
        history
    }

    /// Starts with other settings. The letters arrive while no process runs.
    fn restart_with(&mut self, settings: Settings, letters: Vec<Letter>) {
        self.driver.kill();
        self.look();
        self.earlier.extend(self.places().map(|(start, _)| start));
        self.settings = settings;
        self.log.push(format!("start {settings:?}"));
        *self.current.lock().unwrap() = settings;
        let limit = if settings.takes_large { "5000" } else { "1000" };
        let cluster = self.driver.cluster();
        let set = cluster.broker(|it| it.configure_topic("orders", "max.message.bytes", limit));
        set.unwrap();
        self.pipe(letters);
        self.driver.restart();
    }

    fn pipe(&mut self, new: Vec<Letter>) {
        let first = self.letters.len();
        let numbered = new.iter().enumerate();
        let shown = numbered.map(|(at, it)| format!("letter {}: {it:?}", first + at));
        self.log.extend(shown);
        let inputs = new.iter().enumerate();
        let inputs: Vec<_> = inputs.map(|(at, it)| it.input(first + at)).collect();
        self.letters.extend(new);
        self.driver.pipe_all(&letters(), inputs);
    }

    /// The clock of the machines.
    fn now(&self) -> i64 {
        self.driver.cluster().now()
    }

    fn pass(&mut self, time: Duration) {
        self.driver.advance_wall_clock(time);
    }

    /// Reads the new records. Checks that this start may write each of them, and that they are in the order of their numbers.
    fn look(&mut self) {
        for topic in ["orders", "clicks"] {
            let records = self.driver.read(&PlainTopic::<Bytes, Bytes>::named(topic));
            for record in records {
                let id = id_of(record.value.as_deref());
                self.log.push(format!("written: {id}"));
                let it = &self.letters[id];
                let action = it
                    .number
                    .map(|(episode, n)| format!("1 record {episode} {n}"));
                assert_eq!(
                    text(record.headers.get("eos-replay")),
                    action.unwrap_or_default()
                );
                let (key, partition) = (record.key.as_deref(), u32::try_from(record.partition));
                assert_eq!((topic, partition), (it.topic, Ok(it.partition)), "{id}");
                assert_eq!(key, it.key.map(str::as_bytes), "{id}");
                assert!(self.settings.writes(it), "{id} is of another start: {it:?}");
                let age = self.now() - it.failed_at;
                assert!(age >= PAUSE, "{id} is written after {age} ms");
                let overtaken = (0..self.seen).find(|at| self.is_overtaken(*at, id));
                assert_eq!(overtaken, None, "{id} overtakes it");
                assert!(self.written.insert(id), "{id} is written twice");
            }
        }
        self.seen = self.letters.len();
    }

    /// Whether a letter had to be written before the letter `by`.
    ///
    /// A late letter between the two allows a cut between them. The replay then writes the earlier letter later, and the app
    /// parks the other one again.
    fn is_overtaken(&self, at: usize, by: usize) -> bool {
        let waits = |at: usize| {
            let it = &self.letters[at];
            let is_passed = self.settings.is_too_large(it) || it.failed_at >= BEGIN;
            self.settings.is_late(it) || is_passed && !it.is_awaited()
        };
        let mut others = (0..self.letters.len()).filter(|at| !self.written.contains(at));
        let is_cut = |between: usize| {
            waits(between) && self.follows(at, between) && self.follows(between, by)
        };
        let is_ready = !waits(at) && !self.written.contains(&at);
        is_ready && self.follows(at, by) && !others.any(is_cut)
    }

    /// Whether the letter `behind` is of the same key and episode, and behind the letter `at`.
    fn follows(&self, at: usize, behind: usize) -> bool {
        self.is_before(at, behind) && self.letters[at].group() == self.letters[behind].group()
    }

    fn is_before(&self, at: usize, other: usize) -> bool {
        (self.letters[at].number, at) < (self.letters[other].number, other)
    }

    /// The letters that this start still has to write.
    fn missing(&self) -> Vec<usize> {
        let waits = |at: &usize| {
            let it = &self.letters[*at];
            let mut before = self.letters.iter().enumerate().filter(|(other, before)| {
                before.group() == it.group()
                    && self.is_before(*other, *at)
                    && !self.written.contains(other)
            });
            let is_blocked = |(_, before): (usize, &Letter)| {
                self.settings.is_too_large(before) && !self.settings.is_late(before)
            };
            it.is_awaited() && before.any(is_blocked)
        };
        let all = 0..self.letters.len();
        let is_written = |at: &usize| self.written.contains(at);
        all.filter(|at| !is_written(at) && self.settings.writes(&self.letters[*at]) && !waits(at))
            .collect()
    }

    /// Continues this start until it has written all its letters. All others are stored.
    fn finish(&mut self) {
        for _ in 0..300 {
            self.look();
            if self.missing().is_empty() {
                break;
            }
            self.pass(ROUND);
        }
        assert_eq!(
            self.missing(),
            Vec::<usize>::new(),
            "this start writes them"
        );
        let rows = self.driver.store(&waiting());
        let rows = rows.entries().iter();
        let mut stored: Vec<_> = rows
            .map(|(key, row)| id_of(WaitingLetter::decode(key, row).unwrap().value))
            .collect();
        stored.sort_unstable();
        let others: Vec<_> = (0..self.letters.len())
            .filter(|at| !self.written.contains(at))
            .collect();
        assert_eq!(stored, others, "the stored letters");
    }

    /// Continues until the place of each task is behind its stored letters.
    fn rest(&mut self) {
        for _ in 0..300 {
            if self.has_passed_all() {
                return;
            }
            self.pass(ROUND);
        }
        panic!("the place is before a letter that stays");
    }

    /// The number of the start and the place, from the row of each task.
    fn places(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + use<> {
        let store = KeyValueStore::<u32, Vec<u8>>::plain("passed-letters");
        let rows = self.driver.store(&store).entries().to_vec().into_iter();
        rows.map(|(_, row)| (row[1..9].to_vec(), row[9..].to_vec()))
    }

    fn has_passed_all(&self) -> bool {
        let rows = self.driver.store(&waiting());
        // The rows of both stores are in the order of the tasks. The place of an earlier start does not count.
        let places: Vec<_> = self
            .places()
            .map(|(start, place)| match self.earlier.contains(&start) {
                true => Vec::new(),
                false => place,
            })
            .collect();
        let places: Vec<_> = places.iter().map(Vec::as_slice).collect();
        let mut last = [None; 2];
        for (key, row) in rows.entries() {
            let id = id_of(WaitingLetter::decode(key, row).unwrap().value);
            let last = &mut last[self.letters[id].task()];
            *last = (*last).max(Some(&key[..]));
        }
        match (last, &places[..]) {
            ([None, None], _) => true,
            ([None, Some(last)] | [Some(last), None], [place]) => *place > last,
            (last, [first, second]) => Some(*first) > last[0] && Some(*second) > last[1],
            _ => false,
        }
    }
}

fn id_of(value: Option<&[u8]>) -> usize {
    text(value).split(' ').next().unwrap().parse().unwrap()
}

fn some_letters(rng: &mut Rng, now: i64) -> Vec<Letter> {
    let count = 1 + rng.below(4);
    (0..count).map(|_| Letter::random(rng, now)).collect()
}

/// The number of events in all histories, by name.
type Counts = BTreeMap<&'static str, usize>;

fn run(seed: u64, counts: &mut Counts) {
    let mut rng = Rng::new(seed);
    let mut history = History::new(Settings::random(&mut rng));
    let steps = 10 + rng.below(20);
    for _ in 0..steps {
        let now = history.now();
        let step = match rng.below(17) {
            0..5 => {
                let letters = some_letters(&mut rng, now);
                history.pipe(letters);
                "letters"
            }
            5..8 => {
                history.pass(ROUND);
                "a round"
            }
            8 => {
                history.pass(Duration::from_secs(5));
                "five seconds"
            }
            9 => {
                history.driver.crash();
                "a crash"
            }
            10 => {
                history.driver.crash_and_lose_state();
                "a loss of the state"
            }
            11 => {
                history.driver.crash_at_effect(1 + rng.below(12) as u64);
                "a crash at an effect"
            }
            12 => {
                history.driver.abort_next();
                "an abort"
            }
            13 => {
                // Several rounds and letters are one transaction.
                history.driver.hold();
                for _ in 0..1 + rng.below(3) {
                    let letters = some_letters(&mut rng, now);
                    history.pipe(letters);
                    history.pass(ROUND);
                }
                if rng.one_in(2) {
                    history.driver.abort_next();
                }
                history.driver.release();
                "a long transaction"
            }
            14 if history.has_second => {
                history.driver.remove_instance();
                history.has_second = false;
                "a process that leaves"
            }
            14 if rng.one_in(2) => {
                history.driver.add_instance();
                let letters = some_letters(&mut rng, history.now());
                history.pipe(letters);
                history.driver.remove_instance();
                "a process that joins, takes letters and leaves"
            }
            14 => {
                history.driver.add_instance();
                history.has_second = true;
                "a process that joins"
            }
            15 => {
                let letters = some_letters(&mut rng, now);
                history.restart_with(Settings::random(&mut rng), letters);
                "a start"
            }
            _ => {
                history.finish();
                "an end"
            }
        };
        history.log.push(step.to_owned());
        history.look();
        *counts.entry(step).or_default() += 1;
    }
    history.restart_with(Settings::random(&mut rng), Vec::new());
    history.finish();
    history.rest();
    // The replay repeats no letter.
    history.pass(Duration::from_secs(5));
    history.finish();
    let stored = history.letters.len() - history.written.len();
    for (name, count) in [
        ("crashes", history.driver.crashes() as usize),
        ("written", history.written.len()),
        ("stored", stored),
    ] {
        *counts.entry(name).or_default() += count;
    }
}

/// A start writes each letter once, if its settings allow it. All other letters stay stored. With `EOS_FULL=1`, the test runs
/// 3,000 histories.
#[test]
fn random_histories_of_a_replay_lose_repeat_and_reorder_no_letter() {
    let seeds = match std::env::var_os("EOS_FULL") {
        Some(_) => 3_000,
        None => 300,
    };
    let mut counts = Counts::new();
    for seed in 0..seeds {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut counts)));
        if let Err(panic) = ran {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
    let is_frequent = counts.values().all(|it| *it > 20);
    assert!(counts.len() == 16 && is_frequent, "{counts:?}");
}
