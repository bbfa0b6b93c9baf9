//! A processor takes the types of its stream.
use eos_core::{App, Ctx, Failure, Processor, Record, Topic};

struct Numbers;

impl Processor<String, u64> for Numbers {
    fn process(&mut self, _: &Ctx<'_>, _: Record<String, u64>) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).process_with(|| Numbers);
}
