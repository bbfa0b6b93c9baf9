//! Rules: acts, and the requests that they apply to.

use std::time::Duration;

use kafka_wire::protocol::messages::ApiKey;

/// The id of a rule that was added to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) usize);

/// A selection of requests, a limit of their number, and an act.
///
/// By default, a rule matches every request of its APIs, without a limit, and drops it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Rule {
    pub(super) apis: Vec<ApiKey>,
    pub(super) client: String,
    pub(super) versions: Option<(i16, i16)>,
    pub(super) skip: u64,
    pub(super) times: u64,
    pub(super) chance: f64,
    pub(super) after: Vec<ApiKey>,
    pub(super) until: Option<ApiKey>,
    pub(super) act: Act,
}

/// An act on a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// The request is kept, and delivered to the broker later.
    Hold(Hold),
    /// The request never arrives. The connection stays open, and the client waits.
    Drop,
    /// The request arrives twice. The client gets the first response.
    Duplicate,
    /// The request is delayed by this time, and so are all later requests on its connection.
    Delay(Duration),
    /// The client's connection is cut.
    Cut(Cut),
    /// The broker's response does not arrive. The client can't know that the broker has applied the request.
    LoseAnswer {
        /// Whether the connection is cut as well. Otherwise the client waits.
        cut: bool,
    },
    /// The request does not arrive. The client gets a response with this error code for each part of the request.
    /// Supports the APIs of transactions, Produce, OffsetCommit and Heartbeat. Other requests pass.
    Answer(i16),
    /// The request is delayed by its size divided by this rate, in bytes per second.
    Throttle(u32),
}

/// The time at which the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The request never reaches the broker.
    Before,
    /// The request reaches the broker, and its response is lost. With [`Act::LoseAnswer`] the connection is cut only
    /// once the broker has responded.
    After,
}

/// The way in which a request is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Hold {
    pub(super) cut: bool,
    pub(super) until: Until,
    pub(super) on: On,
}

/// The time at which a kept request is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// At the call of [`Proxy::release`](super::Proxy::release).
    Released,
    /// After this time.
    After(Duration),
    /// Once brokers have responded without error to requests of these APIs by the same client, in this order. With
    /// [`On::New`], the last of these responses reaches the client only after the response to the kept request has
    /// arrived. So the order is always the same.
    Answered(Vec<ApiKey>),
}

/// The connection on which a kept request is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The connection to the broker that belongs to the client's connection. A cut ends only the client's side.
    Same,
    /// A new connection.
    New,
}

impl Rule {
    /// Creates a rule for requests of one API.
    pub fn on(api: ApiKey) -> Rule {
        Rule::on_any([api])
    }

    /// Creates a rule for requests of several APIs, or of all APIs if `apis` is empty.
    pub fn on_any(apis: impl IntoIterator<Item = ApiKey>) -> Rule {
        Rule {
            apis: apis.into_iter().collect(),
            client: String::new(),
            versions: None,
            skip: 0,
            times: u64::MAX,
            chance: 1.0,
            after: Vec::new(),
            until: None,
            act: Act::Drop,
        }
    }

    /// Limits the rule to clients whose `client.id` begins with `client`.
    pub fn of(mut self, client: &str) -> Rule {
        client.clone_into(&mut self.client);
        self
    }

    /// Limits the rule to these versions of the API, both included.
    pub fn versions(mut self, from: i16, to: i16) -> Rule {
        self.versions = Some((from, to));
        self
    }

    /// Limits the rule to the n-th matching request, counted from 1.
    pub fn nth(mut self, n: u64) -> Rule {
        self.skip = n.saturating_sub(1);
        self.times(1)
    }

    /// Limits the number of times that the rule acts.
    pub fn times(mut self, times: u64) -> Rule {
        self.times = times;
        self
    }

    /// Makes the rule act with this probability, drawn with the proxy's seed.
    pub fn chance(mut self, chance: f64) -> Rule {
        self.chance = chance;
        self
    }

    /// Starts the rule for a client once brokers have responded without error to its requests of these APIs, in this
    /// order.
    pub fn after(mut self, apis: impl IntoIterator<Item = ApiKey>) -> Rule {
        self.after = apis.into_iter().collect();
        self
    }

    /// Ends the rule when it has acted and a matching client sends a request of this API.
    pub fn until(mut self, api: ApiKey) -> Rule {
        self.until = Some(api);
        self
    }

    /// Sets the act on the requests.
    pub fn then(mut self, act: Act) -> Rule {
        self.act = act;
        self
    }
}

impl Hold {
    /// Keeps a request and cuts the client's connection. The request is delivered on a new connection when it is
    /// released.
    pub fn cut() -> Hold {
        Hold {
            cut: true,
            until: Until::Released,
            on: On::New,
        }
    }

    /// As [`Hold::cut`], but the connection stays open.
    pub fn uncut() -> Hold {
        Hold {
            cut: false,
            ..Hold::cut()
        }
    }

    /// Delivers the request after responses to requests of these APIs, as [`Until::Answered`] describes.
    pub fn until(mut self, apis: impl IntoIterator<Item = ApiKey>) -> Hold {
        self.until = Until::Answered(apis.into_iter().collect());
        self
    }

    /// Delivers the request after this time.
    pub fn for_time(mut self, time: Duration) -> Hold {
        self.until = Until::After(time);
        self
    }

    /// Sets the connection on which the request is delivered.
    pub fn on(mut self, on: On) -> Hold {
        self.on = on;
        self
    }
}
