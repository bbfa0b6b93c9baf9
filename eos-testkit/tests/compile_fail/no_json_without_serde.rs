//! A struct in a JSON topic derives serde's traits.
use eos_core::Topic;

struct Order {
    id: u64,
}

fn main() {
    let _topic = Topic::<String, Order>::json("orders");
}
