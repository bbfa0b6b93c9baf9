//! Keys need a defined encoding. A user's struct has none unless a codec is named.
use eos_core::{App, Topic};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<Order, String>::json("orders"))
        .to(&Topic::json("copies"));
}
