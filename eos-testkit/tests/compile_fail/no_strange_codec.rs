//! A codec has to know the type.
use eos_core::Topic;
use eos_core::codec::{Json, PlainCodec};

struct Csv;

fn main() {
    let _topic = Topic::<String, Vec<String>>::with("rows", PlainCodec::new(), Csv);
    let _topic = Topic::<String, f64>::with("rows", Json, PlainCodec::new());
}
