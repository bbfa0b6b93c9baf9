//! A `process` closure returns nothing or a result.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).for_each(|_, text| text.value.len());
}
