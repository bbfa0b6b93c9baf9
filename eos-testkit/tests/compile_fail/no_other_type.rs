//! A value can't be written to a topic of another type.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).map(|text| text.len() as u64).to(&texts);
}
