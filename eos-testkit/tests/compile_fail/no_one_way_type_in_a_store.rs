//! A store writes its values and reads them back, so their codec must support both.

use eos_core::KeyValueStore;
use eos_core::state::{OrderedStore, WindowStore};

#[derive(serde::Serialize)]
struct Written {
    n: u64,
}

#[derive(serde::Deserialize)]
struct Read {
    n: u64,
}

fn main() {
    let _ = KeyValueStore::<String, Written>::json("written");
    let _ = WindowStore::<String, Read>::json("read");
    let _ = OrderedStore::<u64, Written>::json("ordered");
}
