//! Streams of different types don't merge: `map` one of them first.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let numbers = Topic::<String, u64>::plain("numbers");
    let mut app = App::new("wrong");
    let other = app.source(&numbers);
    app.source(&texts).union(other).to(&texts);
    // A merge by time is not possible after a change of the key, because equal keys may be in several tasks.
    let scattered = app.source(&texts).key_by(|text| text.clone());
    app.source(&texts).merge(scattered).to(&texts);
}
