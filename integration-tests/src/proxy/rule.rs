//! What is to be done, and to which requests.

use std::time::Duration;

use kafka_wire::protocol::messages::ApiKey;

/// A rule that was added to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) usize);

/// Which requests, how many of them, and what is done to them.
///
/// Without more said it fits every request, each time.
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

/// What is done to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// It is kept, and delivered to the broker later.
    Hold(Hold),
    /// It never arrives; the connection stays, and the client waits.
    Drop,
    /// It arrives twice; the client gets the first answer.
    Duplicate,
    /// It arrives so much later, and whatever follows on its connection with it.
    Delay(Duration),
    /// The client's connection is cut.
    Cut(Cut),
    /// The broker's answer does not arrive: the request was applied, and the client can't know.
    LoseAnswer {
        /// Whether the connection is cut as well; otherwise the client waits.
        cut: bool,
    },
    /// It does not arrive; the client gets this error code for all that it asks for. For the APIs
    /// of transactions, Produce, OffsetCommit and Heartbeat; others pass.
    Answer(i16),
    /// It takes as long as its size takes at so many bytes a second.
    Throttle(u32),
}

/// When the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The request never reaches the broker.
    Before,
    /// The request reaches the broker, and its response is lost. With [`Act::LoseAnswer`] the connection
    /// is cut only once the broker has answered.
    After,
}

/// How a request is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Hold {
    pub(super) cut: bool,
    pub(super) until: Until,
    pub(super) on: On,
}

/// When a kept request is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// When [`Proxy::release`](super::Proxy::release) says so.
    Released,
    /// After so long.
    After(Duration),
    /// Once the same client was answered without error to requests of these APIs, in this order.
    /// The last of these answers reaches the client only after the kept request was answered, so
    /// that the moment is always the same.
    Answered(Vec<ApiKey>),
}

/// How a kept request is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// On the connection to the broker that it came on: what is cut is the client's side only.
    Same,
    /// On a connection of its own.
    New,
}

impl Rule {
    /// Requests of one API.
    pub fn on(api: ApiKey) -> Rule {
        Rule::on_any([api])
    }

    /// Requests of several APIs; of all, if there are none.
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

    /// Only of clients whose `client.id` begins so.
    pub fn of(mut self, client: &str) -> Rule {
        client.clone_into(&mut self.client);
        self
    }

    /// Only of these versions, both included.
    pub fn versions(mut self, from: i16, to: i16) -> Rule {
        self.versions = Some((from, to));
        self
    }

    /// Only the n-th one, counted from 1.
    pub fn nth(mut self, n: u64) -> Rule {
        self.skip = n.saturating_sub(1);
        self.times(1)
    }

    /// So many at most.
    pub fn times(mut self, times: u64) -> Rule {
        self.times = times;
        self
    }

    /// Each with this probability, drawn from the proxy's seed.
    pub fn chance(mut self, chance: f64) -> Rule {
        self.chance = chance;
        self
    }

    /// Only after such a client was answered without error to requests of these APIs, in this
    /// order.
    pub fn after(mut self, apis: impl IntoIterator<Item = ApiKey>) -> Rule {
        self.after = apis.into_iter().collect();
        self
    }

    /// Once it has acted, only until such a client sends a request of this API.
    pub fn until(mut self, api: ApiKey) -> Rule {
        self.until = Some(api);
        self
    }

    /// What is done to them.
    pub fn then(mut self, act: Act) -> Rule {
        self.act = act;
        self
    }
}

impl Hold {
    /// Kept, the client's connection cut, and delivered on a new one when told to.
    pub fn cut() -> Hold {
        Hold {
            cut: true,
            until: Until::Released,
            on: On::New,
        }
    }

    /// As [`Hold::cut`], but the connection stays.
    pub fn uncut() -> Hold {
        Hold {
            cut: false,
            ..Hold::cut()
        }
    }

    /// Delivered once the same client was answered to these: [`Until::Answered`].
    pub fn until(mut self, apis: impl IntoIterator<Item = ApiKey>) -> Hold {
        self.until = Until::Answered(apis.into_iter().collect());
        self
    }

    /// Delivered after so long.
    pub fn for_time(mut self, time: Duration) -> Hold {
        self.until = Until::After(time);
        self
    }

    /// Delivered in this way.
    pub fn on(mut self, on: On) -> Hold {
        self.on = on;
        self
    }
}
