//! The effects of fault rules on requests, and held markers.

use kafka_protocol::ResponseError;
use kafka_wire::refusal::refuse;

use super::{Broker, Output, Request, Ticket, Unanswered};
use crate::faults::{Act, Rule, RuleId};
use crate::transactions::Participant;

/// A request or response that a fault holds back until its time.
#[derive(Debug)]
pub(super) enum HeldBack {
    Request(i64, Request),
    Answer(i64, Output),
}

impl HeldBack {
    pub(super) fn due(&self) -> i64 {
        match self {
            HeldBack::Request(due, _) | HeldBack::Answer(due, _) => *due,
        }
    }
}

/// The partitions in which markers are held.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// All partitions.
    All,
    /// One partition.
    Partition(String, i32),
    /// The offsets of one group.
    Group(String),
}

impl Hold {
    fn covers(&self, participant: &Participant) -> bool {
        match (self, participant) {
            (Hold::All, _) => true,
            (Hold::Partition(topic, partition), Participant::Partition(other, index)) => {
                topic == other && partition == index
            }
            (Hold::Group(group), Participant::Group(other)) => group == other,
            _ => false,
        }
    }
}

impl Broker {
    /// Adds a fault. A request is matched against the rules in the order of their addition.
    pub fn add_fault(&mut self, rule: Rule) -> RuleId {
        self.faults.add(rule)
    }

    /// Removes a fault. Its count stays.
    pub fn remove_fault(&mut self, id: RuleId) {
        self.faults.remove(id);
    }

    /// Returns how often a fault fired.
    pub fn fired(&self, id: RuleId) -> u64 {
        self.faults.fired(id)
    }

    /// Holds markers. Transactions stay decided but not complete, the last stable offset does not advance, and their
    /// ids are busy.
    pub fn hold_markers(&mut self, hold: Hold) {
        self.unmarked.push(hold);
    }

    /// Releases the held markers, which are written when time next passes.
    pub fn release_markers(&mut self, now: i64) {
        self.unmarked.clear();
        self.wake_at(now);
    }

    /// Returns the number of held markers.
    pub fn held_markers(&self) -> usize {
        let all = self.marking.iter().flat_map(|it| &it.markers.participants);
        all.filter(|it| self.is_held(it)).count()
    }

    pub(super) fn is_held(&self, participant: &Participant) -> bool {
        self.unmarked.iter().any(|hold| hold.covers(participant))
    }

    /// Returns the time at which the next marker is due that is not held.
    pub(super) fn next_marking(&self) -> Option<i64> {
        let free = self.marking.iter().filter(|it| {
            let markers = &it.markers.participants;
            markers.is_empty() || markers.iter().any(|it| !self.is_held(it))
        });
        free.map(|it| it.due).min()
    }

    pub(super) fn hurt(&mut self, act: Act, request: Request, now: i64) {
        let ticket = request.ticket;
        match act {
            Act::DelayRequest(wait) => {
                self.held_back.push(HeldBack::Request(now + wait, request));
                self.wake_at(now + wait);
            }
            Act::DropRequest => self.out.push(Output::Nothing(Unanswered::Lost(ticket))),
            Act::DisconnectBefore => self.out.push(Output::Disconnect(ticket)),
            Act::Refuse(error) => self.refuse_with(&request, error),
            Act::Duplicate => {
                let mut again = request.clone();
                again.ticket = self.double();
                self.apply(request, now);
                self.apply(again, now);
            }
            // The response may come much later, as for a join or a fetch.
            Act::DelayAnswer(_) | Act::DropAnswer | Act::DisconnectAfter => {
                self.answers_hurt.insert(ticket, act);
                self.apply(request, now);
            }
        }
    }

    /// Returns a ticket for the second request of a duplicate. Both requests may be held, and have separate responses.
    fn double(&mut self) -> Ticket {
        // Callers count up from 0, so these tickets count down from the other end.
        let ticket = Ticket(u64::MAX - self.doubled);
        self.doubled += 1;
        self.doubles.insert(ticket);
        ticket
    }

    /// Returns the outputs, after the faults of responses.
    pub(super) fn finish(&mut self, now: i64) -> Vec<Output> {
        let mut out = std::mem::take(&mut self.out);
        if !self.doubles.is_empty() {
            out.retain(|it| !self.doubles.remove(&it.ticket()));
        }
        if self.answers_hurt.is_empty() {
            return out;
        }
        let mut left = Vec::with_capacity(out.len());
        for output in out {
            let ticket = output.ticket();
            match self.answers_hurt.remove(&ticket) {
                Some(Act::DelayAnswer(wait)) => {
                    self.held_back.push(HeldBack::Answer(now + wait, output));
                    self.wake_at(now + wait);
                }
                // A request without acks has no response that could be lost.
                Some(Act::DropAnswer) if matches!(output, Output::Answer(..)) => {
                    left.push(Output::Nothing(Unanswered::Lost(ticket)));
                }
                Some(Act::DisconnectAfter) => left.push(Output::Disconnect(ticket)),
                _ => left.push(output),
            }
        }
        left
    }

    fn refuse_with(&mut self, request: &Request, error: ResponseError) {
        let answer = refuse(&request.body, request.version, error.code());
        self.out.push(match answer {
            Some(answer) => Output::Answer(request.ticket, answer),
            // The response has no field for an error.
            None => Output::Disconnect(request.ticket),
        });
    }

    /// Continues with the requests and responses that are held back until now.
    pub(super) fn release(&mut self, now: i64) {
        let (due, rest) = std::mem::take(&mut self.held_back)
            .into_iter()
            .partition(|it| it.due() <= now);
        self.held_back = rest;
        let due: Vec<HeldBack> = due;
        for it in due {
            match it {
                HeldBack::Request(_, request) => self.apply(request, now),
                HeldBack::Answer(_, answer) => self.out.push(answer),
            }
        }
    }
}
