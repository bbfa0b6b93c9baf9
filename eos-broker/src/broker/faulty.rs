//! Faults: what the rules do to requests, and markers that are held.

use kafka_protocol::ResponseError;
use kafka_wire::refusal::refuse;

use super::{Broker, Output, Request, Ticket, Unanswered};
use crate::faults::{Act, Rule, RuleId};
use crate::transactions::Participant;

/// Something that a fault holds back until its time.
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

/// Where markers are held.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// Everywhere.
    All,
    /// In one partition.
    Partition(String, i32),
    /// For the offsets of one group.
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
    /// Adds a fault; the rules are asked in the order in which they came.
    pub fn add_fault(&mut self, rule: Rule) -> RuleId {
        self.faults.add(rule)
    }

    /// Takes a fault away; its count stays.
    pub fn remove_fault(&mut self, id: RuleId) {
        self.faults.remove(id);
    }

    /// How often a fault happened.
    pub fn fired(&self, id: RuleId) -> u64 {
        self.faults.fired(id)
    }

    /// Holds markers: transactions stay decided but not complete, the last stable offset stays where it
    /// is, and their ids are busy.
    pub fn hold_markers(&mut self, hold: Hold) {
        self.unmarked.push(hold);
    }

    /// Writes the markers that were held, at the next moment at which time passes.
    pub fn release_markers(&mut self, now: i64) {
        self.unmarked.clear();
        self.wake_at(now);
    }

    /// How many markers are held.
    pub fn held_markers(&self) -> usize {
        let all = self.marking.iter().flat_map(|it| &it.markers.participants);
        all.filter(|it| self.is_held(it)).count()
    }

    pub(super) fn is_held(&self, participant: &Participant) -> bool {
        self.unmarked.iter().any(|hold| hold.covers(participant))
    }

    /// When markers are due that nothing holds.
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
            // The answer may come much later: a join, a fetch.
            Act::DelayAnswer(_) | Act::DropAnswer | Act::DisconnectAfter => {
                self.answers_hurt.insert(ticket, act);
                self.apply(request, now);
            }
        }
    }

    /// A ticket for the second one of a duplicate: both may be held, and are answered apart.
    fn double(&mut self) -> Ticket {
        // From the other end than those who ask would count.
        let ticket = Ticket(u64::MAX - self.doubled);
        self.doubled += 1;
        self.doubles.insert(ticket);
        ticket
    }

    /// What goes out, after the faults that wait for answers.
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
                // Without acks there is none to lose.
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
            // Its answer has no place for an error.
            None => Output::Disconnect(request.ticket),
        });
    }

    /// What was held back until now goes on.
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
