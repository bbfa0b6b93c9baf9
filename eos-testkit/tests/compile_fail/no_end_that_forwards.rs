//! `for_each_with` ends the stream, so its processor cannot forward.
use eos_core::{App, Failure, ProcessCtx, Processor, Record, Topic};

struct Copies;

impl Processor<String, String> for Copies {
    type Key = String;
    type Value = String;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, String, String>,
        record: Record<String, String>,
    ) -> Result<(), Failure> {
        ctx.forward_record(record)
    }
}

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<String, String>::plain("in")).for_each_with(|| Copies);
}
