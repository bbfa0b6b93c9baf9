//! Closures run to their end.
use eos_core::{App, Topic};

async fn look_up(text: String) -> String {
    text
}

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts)
        .map(|text| look_up(text))
        .to(&Topic::plain("out"));
    app.source(&texts).for_each(|_, text| look_up(text.value));
}
