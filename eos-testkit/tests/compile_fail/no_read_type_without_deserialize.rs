//! A value that is read from a JSON topic derives `Deserialize`.
use eos_core::{App, Topic};

#[derive(serde::Serialize)]
struct Order {
    id: u64,
}

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<String, Order>::json("orders"))
        .map(|order| order.id)
        .to(&Topic::plain("ids"));
}
