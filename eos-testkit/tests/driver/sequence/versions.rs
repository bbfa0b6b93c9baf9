//! `newest`: only higher versions of a key pass.

use super::*;

#[expect(clippy::ptr_arg, reason = "passed as a closure of values")]
pub(super) fn version(value: &String) -> u64 {
    value.parse().unwrap_or(0)
}

fn newest(change: impl FnOnce(Newest<String, String>) -> Stream<String, String>) -> App {
    let mut app = App::new("a");
    let versions = Versions::new("versions");
    change(app.source(&input()).newest(&versions, version)).to(&output());
    app
}

/// R75: of any order of repeated versions, the highest of each key is the last one that passes.
#[test]
fn only_higher_versions_of_a_key_pass() {
    let start = || TestDriver::new(newest(|it| it.stale_to(&topic("stale")).accepted()));
    let scenario = |driver: &mut TestDriver| {
        for (key, value) in [("k", "3"), ("l", "1"), ("k", "1"), ("k", "3"), ("l", "2")] {
            driver.pipe(&input(), key, value);
        }
        driver.rebalance();
        for (key, value) in [("k", "2"), ("k", "5"), ("l", "0"), ("m", "0"), ("k", "5")] {
            driver.pipe(&input(), key, value);
        }
        (driver.read_pairs(&output()), read(driver, "stale"))
    };
    let mut driver = start();
    let (passed, stale) = scenario(&mut driver);
    let expected = [("k", "3"), ("l", "1"), ("l", "2"), ("k", "5"), ("m", "0")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(passed, expected);
    assert_eq!(stale, ["1", "3", "2", "0", "5"]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_stale, 5);
    assert_eq!(driver.store(&Versions::<String>::new("versions")).len(), 3);
    let places = crash_everywhere(start, scenario);
    assert!(places > 20, "{places}");
}

/// Returns the records in random order.
fn shuffled<T: Clone>(records: &[T], rng: &mut Rng) -> Vec<T> {
    let mut left = records.to_vec();
    let mut all = Vec::new();
    while !left.is_empty() {
        all.push(left.swap_remove(rng.below(left.len())));
    }
    all
}

/// R75: in any order of repeated versions, the last version that passes is the highest.
#[test]
fn a_hundred_shuffles_of_versions_end_with_the_highest() {
    let mut versions = Vec::new();
    for key in ["k", "l", "m"] {
        for version in 1..=20 {
            for _ in 0..1 + version % 3 {
                versions.push((key, version));
            }
        }
    }
    let mut rng = Rng::new(75);
    let mut orders = BTreeSet::new();
    for _ in 0..100 {
        let mut driver = TestDriver::new(newest(Newest::accepted));
        let order = shuffled(&versions, &mut rng);
        let records = order
            .iter()
            .map(|(key, version)| Input::new(*key, version.to_string()));
        driver.pipe_all(&input(), records.collect::<Vec<Input<String, String>>>());
        let last = driver.read_map(&output());
        let highest = ["k", "l", "m"].map(|key| (key.to_owned(), "20".to_owned()));
        assert_eq!(last, BTreeMap::from(highest), "{order:?}");
        assert_eq!(driver.store(&Versions::<String>::new("versions")).len(), 3);
        orders.insert(order);
    }
    assert_eq!(orders.len(), 100);
}

/// R104: a guard drops late increments, so their sum is wrong. With a deduplication, the sum is right in any order.
#[test]
fn a_guard_is_for_values_that_replace_each_other() {
    let mut driver = TestDriver::new(newest(Newest::accepted));
    let versions = ["2", "4", "1", "3", "5"];
    for value in versions {
        driver.pipe(&input(), "k", value);
    }
    let passed: u64 = read(&mut driver, "out").iter().map(version).sum();
    assert_eq!(passed, 11, "of 15");

    let sum_of = |order: Vec<u64>| {
        let sums = || KeyValueStore::<String, u64>::plain("sums");
        let mut app = App::new("a");
        app.source(&input())
            .dedup(&SeenIds::for_ever("seen"))
            .by(String::clone)
            .group_by_key()
            .aggregate(&sums(), || 0, |_, credit, sum| sum + version(&credit))
            .to_stream()
            .ignore();
        let mut driver = TestDriver::new(app);
        let records = order
            .iter()
            .map(|credit| Input::new("k", credit.to_string()));
        driver.pipe_all(&input(), records.collect::<Vec<Input<String, String>>>());
        driver.store(&sums()).get("k").copied()
    };
    let credits: Vec<u64> = (1..=20).flat_map(|credit| [credit; 3]).collect();
    let mut rng = Rng::new(104);
    for _ in 0..100 {
        assert_eq!(sum_of(shuffled(&credits, &mut rng)), Some(210));
    }
}

#[test]
fn a_version_needs_a_key() {
    let keyless = || Topic::<Option<String>, String>::plain("keyless");
    let mut app = App::new("a");
    app.source(&keyless())
        .newest(&Versions::new("versions"), version)
        .accepted()
        .to(&Topic::plain("kept"));
    let mut driver = TestDriver::new(app);
    driver.pipe(&keyless(), Some(String::new()), "1");
    let record = Input::<Option<String>, String>::new(None, "1");
    let text = driver.try_pipe(&keyless(), record).unwrap_err().to_string();
    assert!(
        text.contains("the record has no key, but versions are compared within a key"),
        "{text}"
    );
}
