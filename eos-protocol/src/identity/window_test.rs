use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The store of one id, as the operator uses it: it loses buckets that are expired.
#[derive(Default)]
struct Store {
    rows: BTreeMap<i64, Vec<u8>>,
    stream_time: i64,
    /// The highest number of buckets read for a record.
    reads: usize,
}

impl Store {
    fn take(&mut self, window: SeenWindow, time: i64) -> Seen {
        self.stream_time = self.stream_time.max(time);
        let (time, now) = (Timestamp(time), Timestamp(self.stream_time));
        let expiry = window.expiry();
        self.rows
            .retain(|start, _| !expiry.is_expired(Timestamp(*start), Some(now)));
        let mut reads = 0;
        let first = window.buckets(time).next().unwrap();
        let has_expired = expiry.is_expired(first, Some(now));
        let sightings = window.buckets(time).filter_map(|bucket| {
            reads += 1;
            let row = self.rows.get(&bucket.0)?;
            Some(Sighting::decode(bucket, row).unwrap())
        });
        let (seen, sighting) = window.judge(time, now, sightings.collect::<Vec<_>>(), has_expired);
        self.reads = self.reads.max(reads);
        if let Some(sighting) = sighting {
            let bucket = window.bucket_of(sighting.at);
            let mut row = Vec::new();
            sighting.encode(bucket, &mut row);
            self.rows.insert(bucket.0, row);
        }
        seen
    }

    fn takes(window: SeenWindow, times: &[i64]) -> Vec<Seen> {
        let mut store = Self::default();
        times.iter().map(|time| store.take(window, *time)).collect()
    }
}

fn again(first: i64) -> Seen {
    let first = Timestamp(first);
    Seen::Duplicate { first }
}

const MINUTE: i64 = 60_000;

#[test]
fn a_fixed_window_ends_at_its_length_whatever_comes_in_between() {
    let window = SeenWindow::fixed(ms(300_000));
    let times = [0, 299_000, 299_999, 300_000, 599_999, 600_000];
    let new = Seen::New;
    let seen = [new, again(0), again(0), new, again(300_000), new];
    assert_eq!(Store::takes(window, &times), seen);
}

#[test]
fn a_sliding_window_begins_again_with_each_record() {
    let window = SeenWindow::sliding(ms(300_000));
    let times = [0, 4 * MINUTE, 8 * MINUTE, 12 * MINUTE, 17 * MINUTE];
    let seen = [Seen::New, again(0), again(0), again(0), Seen::New];
    assert_eq!(Store::takes(window, &times), seen);
    let window = window.at_most(ms(600_000));
    let seen = [Seen::New, again(0), again(0), Seen::New, Seen::New];
    assert_eq!(Store::takes(window, &times), seen);
}

#[test]
fn a_late_record_is_judged_until_its_lateness_and_then_too_old() {
    let window = SeenWindow::fixed(ms(1_000)).lateness(ms(5_000));
    let mut store = Store::default();
    assert_eq!(store.take(window, 20_000), Seen::New);
    assert_eq!(store.take(window, 15_000), Seen::New);
    assert_eq!(
        store.take(window, 14_999),
        again(15_000),
        "known ids are duplicates"
    );
    assert_eq!(store.take(window, 14_000), Seen::TooOld);
    assert_eq!(
        store.take(window, 19_500),
        again(20_000),
        "it came later, but is first"
    );
}

/// A shorter lateness has expired a bucket, so nothing is known of a record in it.
#[test]
fn a_record_with_an_expired_bucket_is_too_old() {
    let window = SeenWindow::fixed(ms(1_000)).lateness(ms(5_000));
    let judge = |has_expired| {
        let (time, now) = (Timestamp(10_000), Timestamp(12_000));
        window.judge(time, now, [], has_expired)
    };
    assert_eq!(judge(true), (Seen::TooOld, None));
    assert_eq!(judge(false).0, Seen::New);
}

#[test]
fn the_default_lateness_is_the_window_and_at_most_an_hour() {
    let takes = |window, time: i64| {
        let mut store = Store::default();
        store.take(window, 100 * 3_600_000);
        store.take(window, 100 * 3_600_000 - time)
    };
    let minutes = SeenWindow::fixed(ms(300_000));
    assert_eq!(takes(minutes, 300_000), Seen::New);
    assert_eq!(takes(minutes, 300_001), Seen::TooOld);
    let day = SeenWindow::fixed(ms(24 * 3_600_000)).lateness(ms(3_600_000));
    assert_eq!(day, SeenWindow::fixed(ms(24 * 3_600_000)));
}

#[test]
fn bad_windows_are_refused_with_both_numbers() {
    let error = |window: SeenWindow, horizon| window.check(horizon).unwrap_err().to_string();
    let zero = SeenWindow::fixed(ms(0));
    assert!(error(zero, None).contains("shorter than 1 ms"));
    let long = SeenWindow::fixed(SeenWindow::LONGEST + ms(1));
    let text = error(long, None);
    assert!(
        text.contains("8553600.001s") && text.contains("8553600s"),
        "{text}"
    );
    assert_eq!(SeenWindow::fixed(SeenWindow::LONGEST).check(None), Ok(()));
    let hour = SeenWindow::fixed(ms(3_600_000));
    let horizon = Some(ms(4 * 86_400_000));
    let text = error(hour, horizon);
    assert!(text.contains("3600s") && text.contains("345600s"), "{text}");
    assert_eq!(hour.check(Some(ms(3_600_000))), Ok(()));
    let sliding = SeenWindow::sliding(ms(1_000)).at_most(ms(999));
    assert!(error(sliding, None).contains("999ms"));
}

#[test]
fn damaged_sightings_are_refused() {
    for len in [0, 3, 5, 11, 13] {
        let decoded = Sighting::decode(Timestamp(0), &vec![0; len]);
        assert_eq!(decoded, Err(SightingError { len }));
    }
}

/// The rule, without buckets, expiry and bytes.
fn model(window: SeenWindow, times: &[i64]) -> Vec<Seen> {
    let mut sightings: Vec<Sighting> = Vec::new();
    let mut stream_time = 0;
    let mut seen = Vec::new();
    for &time in times {
        stream_time = stream_time.max(time);
        let near = |it: &&Sighting| {
            let near = it.first.0 - time < window.window && time - it.at.0 < window.window;
            near && time - it.first.0 < window.at_most
        };
        let first = sightings.iter().filter(near).map(|it| it.first).min();
        let latest = sightings.iter().filter(near).map(|it| it.at.0).max();
        let at = Timestamp(time);
        seen.push(match first {
            Some(first) => {
                if window.slides && latest.is_some_and(|latest| time > latest) {
                    sightings.push(Sighting { at, first });
                }
                Seen::Duplicate { first }
            }
            None if time < stream_time - window.lateness => Seen::TooOld,
            None => {
                sightings.push(Sighting { at, first: at });
                Seen::New
            }
        });
    }
    seen
}

/// Times that mostly increase, with records behind and ahead.
fn times() -> impl Strategy<Value = Vec<i64>> {
    proptest::collection::vec(0i64..60, 1..120).prop_map(|steps| {
        let mut now = 1_000;
        let step = |step: i64| {
            now += step / 6;
            (now - if step % 6 == 0 { step } else { 0 }).max(0)
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #[test]
    fn buckets_that_expire_judge_like_a_list_of_all_sightings(
        times in times(),
        window in 1u64..40,
        lateness in 0u64..40,
    ) {
        let window = SeenWindow::fixed(ms(window)).lateness(ms(lateness));
        let expected = model(window, &times);
        let mut store = Store::default();
        for (time, expected) in times.iter().zip(expected) {
            let seen = store.take(window, *time);
            // The model never forgets, so it may find a duplicate behind the lateness that the store has forgotten.
            let forgotten = *time < store.stream_time - window.lateness;
            prop_assert!(seen == expected || (forgotten && seen != Seen::New));
        }
        prop_assert!(store.reads <= SeenWindow::MOST_BUCKETS);
    }

    /// A late record is judged by the chain of repetitions around it.
    #[test]
    fn late_records_are_near_a_sliding_window(
        times in times(),
        window in 1u64..40,
    ) {
        let window = SeenWindow::sliding(ms(window)).lateness(ms(200));
        let seen = Store::takes(window, &times);
        let expected = model(window, &times);
        let is_new = |seen: &Seen| *seen == Seen::New;
        // Chains that grow together have several first records, and a bucket has one of them.
        prop_assert_eq!(
            seen.iter().map(is_new).collect::<Vec<_>>(),
            expected.iter().map(is_new).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_sliding_window_judges_like_a_list_of_all_sightings(
        steps in proptest::collection::vec(0i64..60, 1..120),
        window in 1u64..40,
        most in 1u64..4,
    ) {
        let window = SeenWindow::sliding(ms(window)).at_most(ms(window * most));
        let mut now = 1_000;
        let times: Vec<_> = steps
            .into_iter()
            .map(|step| {
                now += step;
                now
            })
            .collect();
        prop_assert_eq!(Store::takes(window, &times), model(window, &times));
    }
}
