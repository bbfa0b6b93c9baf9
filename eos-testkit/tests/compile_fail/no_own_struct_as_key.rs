//! Keys need an agreed encoding: an own struct has none unless a codec is named.
use eos_core::Topic;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

fn main() {
    let _topic = Topic::<Order, String>::json("orders");
}
