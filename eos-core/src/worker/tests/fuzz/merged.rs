//! Two inputs merged by time: each record of each input once, in the order of its input.

use super::*;

struct Merged {
    retry: bool,
}

const TOPICS: [(&str, char); 2] = [("in", 'a'), ("in2", 'b')];

impl Shape for Merged {
    fn spec(&self, _: &Disk) -> WorkerSpec {
        let mut spec = patient(super::super::spec(0, Guarantee::ExactlyOnce));
        spec.input_partitions = TOPICS.map(|(topic, _)| (topic.into(), 2)).into();
        spec.output_limits = vec![None];
        spec
    }

    fn declare(&self, clock: Clock, app: &mut App) {
        let (policy, closure) = trouble(clock, self.retry);
        let one = app.source(&text("in"));
        let other = app.source(&text("in2"));
        one.merge(other)
            .on_error(policy)
            .try_map(closure)
            .to(&Topic::plain("out"));
    }

    fn input(&self, rng: &mut Rng, p: i32) -> (TopicPartition, String) {
        let (topic, letter) = TOPICS[usize::from(rng.one_in(2))];
        (partition(topic, p), format!("{letter}{p}:"))
    }

    fn judge(&self, broker: &Broker) -> Result<(), String> {
        for (topic, letter) in TOPICS {
            for p in [0, 1] {
                let partition = partition(topic, p);
                let log = &broker.input[&partition];
                judge_committed(broker, &partition)?;
                let of = format!("{letter}{p}:");
                let visible = broker.visible.iter().map(|(_, value)| value);
                let found: Vec<_> = visible.filter(|value| value.starts_with(&of)).collect();
                let expected: Vec<_> = log.iter().filter(|value| counts(value)).collect();
                if found != expected {
                    return Err(format!("{partition}: {found:?}, expected {expected:?}"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn merged_inputs_are_exact_whatever_goes_wrong() {
    fuzz(&Merged { retry: false });
}

#[test]
fn merged_inputs_are_exact_with_retries_too() {
    fuzz(&Merged { retry: true });
}

#[cfg(feature = "failpoints")]
#[test]
fn a_defence_that_is_missing_is_found() {
    for defence in ["rewind", "in_doubt", "next_offset"] {
        finds(&Merged { retry: false }, defence);
    }
}
