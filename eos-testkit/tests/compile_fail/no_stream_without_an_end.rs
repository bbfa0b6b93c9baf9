//! A stream that ends nowhere drops its records.
#![deny(unused_must_use)]
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).map(|text| text.len());
}
