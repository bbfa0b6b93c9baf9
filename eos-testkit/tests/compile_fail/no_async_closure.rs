//! Closures run to their end.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts)
        .map(|text| async move { text })
        .to(&Topic::plain("out"));
    app.source(&texts)
        .for_each(|_, text| async move { drop(text) });
}
