//! After `key_by` the records of one key may be in several tasks: `repartition` comes before state.
use eos_core::{App, KeyValueStore, Topic};

fn main() {
    let lines = Topic::<String, String>::plain("lines");
    let counts = KeyValueStore::<String, u64>::plain("counts");
    let mut app = App::new("wrong");
    app.source(&lines)
        .key_by(|line| line.clone())
        .group_by_key()
        .count(&counts)
        .to(&Topic::plain("counted"));
    let seen = app.store(&counts);
    app.source(&lines)
        .key_by(|line| line.clone())
        .with_store(&seen)
        .for_each(|_, _| {});
}
