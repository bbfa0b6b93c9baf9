//! The requests and responses between clients and the broker.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

use eos_broker::broker::{Api, Broker, Output, Request, Ticket, key_of};

/// The maximum versions. Newer versions would promise features that these clients, like librdkafka's, don't have:
/// they support the first transaction protocol only.
const NEWEST: [(ApiKey, i16); 2] = [(ApiKey::AddPartitionsToTxn, 3), (ApiKey::EndTxn, 3)];

/// A client of the cluster: a consumer or a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(pub(crate) u64);

/// One of a client's connections. It keeps the order of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// To a coordinator.
    Coordinator,
    /// To leaders, for records.
    Data,
    /// For all other requests.
    Queries,
}

/// A request that a client sends, before the network delivers, delays or drops it.
#[derive(Debug)]
pub struct Sent<'a> {
    /// `client.id`.
    pub client_id: &'a str,
    /// The kind of request.
    pub key: ApiKey,
    /// The request.
    pub body: &'a RequestKind,
    /// The time of sending, in milliseconds since the epoch.
    pub now: i64,
}

/// The fate of a request and its response. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The request arrives after `there`, and its response takes `back`.
    Arrives {
        /// On its way to the broker.
        there: i64,
        /// On its way to the client.
        back: i64,
    },
    /// The request and its connection are lost. The client notices it after `after`.
    Lost {
        /// Until the client notices.
        after: i64,
    },
    /// The request arrives after `there`, but its response is lost with the connection. The client notices it after
    /// `after`.
    AnswerLost {
        /// On its way to the broker.
        there: i64,
        /// Until the client notices.
        after: i64,
    },
    /// The request arrives after `there` and is not applied. Its response has this error and takes `back`.
    Refused {
        /// On its way to the broker.
        there: i64,
        /// On its way to the client.
        back: i64,
        /// The error.
        error: ResponseError,
    },
    /// The client notices after `after` that the connection broke, and sends the request again if it is still useful.
    /// The first request still arrives, `there` after it was sent.
    Late {
        /// Until the client notices.
        after: i64,
        /// On its way to the broker.
        there: i64,
    },
}

/// The result that a client gets.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A response.
    Answer(Box<ResponseKind>),
    /// The connection broke. It is unknown whether the request arrived.
    Broken,
}

#[derive(Debug)]
struct OnItsWay {
    ticket: Ticket,
    client_id: String,
    version: i16,
    body: RequestKind,
    /// The request is not applied; the response has this error.
    refused: Option<ResponseError>,
}

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    tickets: u64,
    order: u64,
    /// Ordered by arrival time, then by the order of sending.
    requests: BTreeMap<(i64, u64), Box<OnItsWay>>,
    answers: BTreeMap<(i64, u64), (Ticket, Heard)>,
    /// Delays of the responses by request, without those that no client waits for.
    back: BTreeMap<Ticket, i64>,
    /// Arrived responses that no client has polled yet.
    arrived: BTreeMap<Ticket, (ClientId, Heard)>,
    /// The client of each response.
    owners: BTreeMap<Ticket, ClientId>,
    /// The arrival time of a connection's last request.
    lines: BTreeMap<(ClientId, Line), i64>,
    /// Clients with an arrival.
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
                // A request never overtakes an earlier one on the same connection.
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

    /// The result of a request, returned once; `None` before it arrives.
    pub(crate) fn hear(&mut self, ticket: Ticket) -> Option<Heard> {
        self.arrived.remove(&ticket).map(|(_, heard)| heard)
    }

    /// Discards the response to this ticket.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.owners.remove(&ticket);
        self.arrived.remove(&ticket);
    }

    /// Removes a client and discards its responses. The requests that it sent still arrive.
    pub(crate) fn forget_all(&mut self, client: ClientId) {
        self.owners.retain(|_, owner| *owner != client);
        self.lines.retain(|(of, _), _| *of != client);
        self.arrived.retain(|_, (owner, _)| *owner != client);
    }

    /// The clients with an arrival since the last call.
    pub(crate) fn told(&mut self) -> BTreeSet<ClientId> {
        std::mem::take(&mut self.told)
    }

    /// The time of the next arrival, on either side.
    pub(crate) fn next_arrival(&self) -> Option<i64> {
        let request = self.requests.first_key_value().map(|((at, _), _)| *at);
        let answer = self.answers.first_key_value().map(|((at, _), _)| *at);
        earliest(request, answer)
    }

    /// Delivers all due requests and responses.
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

    /// Takes the broker's responses.
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

/// The earlier of two times.
pub(crate) fn earliest(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The version of a request: the newest that both sides support and these clients may use.
pub(crate) fn version(body: &RequestKind) -> i16 {
    let key = key_of(body);
    let api = key.and_then(|key| Api::of(key as i16));
    let newest = NEWEST.iter().find(|(it, _)| Some(*it) == key);
    let most = api.map_or(0, |api| api.max);
    newest.map_or(most, |(_, version)| most.min(*version))
}
