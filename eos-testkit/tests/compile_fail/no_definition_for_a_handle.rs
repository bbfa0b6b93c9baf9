//! Closures use the handle of a store.
use eos_core::{App, KeyValueStore, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let counts = KeyValueStore::<String, u64>::plain("counts");
    let mut app = App::new("wrong");
    app.source(&texts).with_store(&counts).for_each(|_, _| {});
}
