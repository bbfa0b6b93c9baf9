//! After `key_by` a record may be in another task than the row of its key: `repartition` comes before
//! `join`.
use eos_core::{App, KeyValueStore, Topic};

fn main() {
    let mut app = App::new("wrong");
    let names = app.table(
        &Topic::<String, Option<String>>::plain("names"),
        &KeyValueStore::plain("names"),
    );
    app.source(&Topic::<u64, String>::plain("visits"))
        .key_by(|page| page.clone())
        .join(&names, |page, name| format!("{name} on {page}"))
        .to(&Topic::plain("visits-with-names"));
    // A table with other keys can't be joined either.
    app.source(&Topic::<u64, String>::plain("visits"))
        .left_join(&names, |page, _| page)
        .to(&Topic::plain("visits-with-names"));
}
