//! `process_values` may forward several values with the key of one record.
use eos_core::{App, Topic};
use serde::Deserialize;

#[derive(Deserialize)]
struct Id(String);

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<Id, String, _, _>::with("in", eos_core::codec::Json, eos_core::codec::Json))
        .process_values(|ctx, text| ctx.forward(text.value))
        .ignore();
}
