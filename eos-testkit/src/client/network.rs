//! What is on its way between clients and the broker.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

use eos_broker::broker::{Api, Broker, Output, Request, Ticket, key_of};

/// Newer versions would promise what these clients don't do, as librdkafka's don't: the first transaction
/// protocol only.
const NEWEST: [(ApiKey, i16); 2] = [(ApiKey::AddPartitionsToTxn, 3), (ApiKey::EndTxn, 3)];

/// A client of the cluster: a consumer or a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(pub(crate) u64);

/// One of a client's connections: nothing overtakes anything on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// To a coordinator.
    Coordinator,
    /// To leaders, for records.
    Data,
    /// For everything else.
    Queries,
}

/// A request that a client sends, before the network delivers, delays or drops it.
#[derive(Debug)]
pub struct Sent<'a> {
    /// `client.id`.
    pub client_id: &'a str,
    /// What is asked.
    pub key: ApiKey,
    /// The request.
    pub body: &'a RequestKind,
    /// When, in milliseconds since the epoch.
    pub now: i64,
}

/// What becomes of a request and its answer. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after `there`, and its answer `back` after it was given.
    Arrives {
        /// On its way to the broker.
        there: i64,
        /// On its way to the client.
        back: i64,
    },
    /// It is lost, and so is its connection, which the client notices `after` so long.
    Lost {
        /// Until then.
        after: i64,
    },
    /// It arrives after `there`, but its answer is lost with the connection, which the client notices `after`
    /// so long.
    AnswerLost {
        /// On its way to the broker.
        there: i64,
        /// Until then.
        after: i64,
    },
    /// It arrives after `there`, is not applied, and its answer, which says so with this error, takes `back`.
    Refused {
        /// On its way to the broker.
        there: i64,
        /// On its way to the client.
        back: i64,
        /// The error.
        error: ResponseError,
    },
    /// The client notices that the connection broke `after` so long, and sends it once more if it is still of
    /// use; the first one arrives all the same, `there` after it was sent.
    Late {
        /// Until then.
        after: i64,
        /// On its way to the broker.
        there: i64,
    },
}

/// What a client hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An answer.
    Answer(Box<ResponseKind>),
    /// The connection broke: whether the request arrived is unknown.
    Broken,
}

#[derive(Debug)]
struct OnItsWay {
    ticket: Ticket,
    client_id: String,
    version: i16,
    body: RequestKind,
    /// It is not applied.
    refused: Option<ResponseError>,
}

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    tickets: u64,
    order: u64,
    /// By when they arrive, then by the order in which they were sent.
    requests: BTreeMap<(i64, u64), Box<OnItsWay>>,
    answers: BTreeMap<(i64, u64), (Ticket, Heard)>,
    /// Delays of the responses by request, without those that no client waits for.
    back: BTreeMap<Ticket, i64>,
    /// What arrived, and was not asked for yet.
    arrived: BTreeMap<Ticket, (ClientId, Heard)>,
    /// Whom an answer is for.
    owners: BTreeMap<Ticket, ClientId>,
    /// When the last request of a connection arrives.
    lines: BTreeMap<(ClientId, Line), i64>,
    /// Clients that something arrived for.
    told: BTreeSet<ClientId>,
}

impl Network {
    /// Sends a request.
    pub(crate) fn send(
        &mut self,
        (client, line): (ClientId, Line),
        client_id: &str,
        body: RequestKind,
        fate: Fate,
        now: i64,
    ) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let broken_after = match fate {
            Fate::Arrives { back, .. } | Fate::Refused { back, .. } => {
                self.back.insert(ticket, back);
                None
            }
            Fate::Lost { after } | Fate::AnswerLost { after, .. } | Fate::Late { after, .. } => {
                Some(after)
            }
        };
        self.owners.insert(ticket, client);
        if let Some(after) = broken_after {
            let at = (now + after.max(1), self.next());
            self.answers.insert(at, (ticket, Heard::Broken));
        }
        let there = match fate {
            Fate::Arrives { there, .. }
            | Fate::Refused { there, .. }
            | Fate::AnswerLost { there, .. } => {
                // Nothing overtakes what was sent before it on the same connection.
                let before = self.lines.entry((client, line)).or_default();
                *before = (now + there).max(*before);
                Some(*before)
            }
            Fate::Late { there, .. } => Some(now + there),
            Fate::Lost { .. } => None,
        };
        if let Some(at) = there {
            let request = OnItsWay {
                ticket,
                client_id: client_id.to_owned(),
                version: version(&body),
                body,
                refused: match fate {
                    Fate::Refused { error, .. } => Some(error),
                    _ => None,
                },
            };
            let at = (at, self.next());
            self.requests.insert(at, Box::new(request));
        }
        ticket
    }

    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// What a request led to, once; nothing yet.
    pub(crate) fn hear(&mut self, ticket: Ticket) -> Option<Heard> {
        self.arrived.remove(&ticket).map(|(_, heard)| heard)
    }

    /// Discards the response to this ticket.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.owners.remove(&ticket);
        self.arrived.remove(&ticket);
    }

    /// A client is gone: its responses are discarded. The requests that it sent are on their way all the same.
    pub(crate) fn forget_all(&mut self, client: ClientId) {
        self.owners.retain(|_, owner| *owner != client);
        self.lines.retain(|(of, _), _| *of != client);
        self.arrived.retain(|_, (owner, _)| *owner != client);
    }

    /// Those that something arrived for since the last time.
    pub(crate) fn told(&mut self) -> BTreeSet<ClientId> {
        std::mem::take(&mut self.told)
    }

    /// When something arrives next, on either side.
    pub(crate) fn next_arrival(&self) -> Option<i64> {
        let request = self.requests.keys().next().map(|(at, _)| *at);
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        request.into_iter().chain(answer).min()
    }

    /// Delivers what has arrived by now.
    pub(crate) fn deliver(&mut self, broker: &mut Broker, now: i64) {
        while let Some(entry) = self.requests.first_entry().filter(|it| it.key().0 <= now) {
            let it = entry.remove();
            if let Some(error) = it.refused {
                let output = match Broker::refusal(&it.body, it.version, error) {
                    Some(answer) => Output::Answer(it.ticket, answer),
                    None => Output::Disconnect(it.ticket),
                };
                self.take_in(vec![output], now);
                continue;
            }
            let mut request = Request::new(it.ticket, it.version, it.body);
            request.client_id = it.client_id;
            let outputs = broker.step(request, now);
            self.take_in(outputs, now);
        }
        while let Some(entry) = self.answers.first_entry().filter(|it| it.key().0 <= now) {
            let (ticket, heard) = entry.remove();
            if let Some(owner) = self.owners.remove(&ticket) {
                self.told.insert(owner);
                self.arrived.insert(ticket, (owner, heard));
            }
        }
    }

    /// Takes what the broker says.
    pub(crate) fn take_in(&mut self, outputs: Vec<Output>, now: i64) {
        for output in outputs {
            let ticket = output.ticket();
            let Some(back) = self.back.remove(&ticket) else {
                continue;
            };
            let heard = match output {
                Output::Answer(_, response) => Heard::Answer(Box::new(response)),
                Output::Nothing(_) | Output::Disconnect(_) => Heard::Broken,
            };
            let at = (now + back, self.next());
            self.answers.insert(at, (ticket, heard));
        }
    }
}

/// The version that a request is sent in: the newest that both sides know and these clients may use.
pub(crate) fn version(body: &RequestKind) -> i16 {
    let key = key_of(body);
    let api = key.and_then(|key| Api::of(key as i16));
    let newest = NEWEST.iter().find(|(it, _)| Some(*it) == key);
    let most = api.map_or(0, |api| api.max);
    newest.map_or(most, |(_, version)| most.min(*version))
}
