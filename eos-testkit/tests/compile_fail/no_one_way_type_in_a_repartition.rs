//! A repartition topic is written and read back, so its values derive both traits of serde.
use eos_core::{App, Topic};

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
}

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<String, Order>::json("orders"))
        .key_by(|order| order.id)
        .repartition(&Topic::json("orders-by-id"))
        .map(|order| order.id)
        .to(&Topic::plain("ids"));
}
