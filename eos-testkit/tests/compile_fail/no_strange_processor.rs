//! A processor takes the types of its stream.
use std::convert::Infallible;

use eos_core::{App, Failure, ProcessCtx, Processor, Record, Topic};

struct Numbers;

impl Processor<String, u64> for Numbers {
    type Key = Infallible;
    type Value = Infallible;

    fn process(&mut self, _: &ProcessCtx<'_, Infallible, Infallible>, _: Record<String, u64>) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).process_with(|| Numbers);
}
