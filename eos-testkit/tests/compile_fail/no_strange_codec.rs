//! A codec must support the type.
use eos_core::codec::{Json, Plain};
use eos_core::{App, Topic};

struct Csv;

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<String, Vec<String>>::with("rows", Plain, Csv))
        .ignore();
    app.source(&Topic::<String, f64>::with("rows", Json, Plain))
        .ignore();
}
