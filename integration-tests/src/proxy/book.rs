//! The rules of the proxy, their log, and the kept requests. Decides about requests without any I/O.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use kafka_wire::frame::Header;

use super::late::{Kept, Late};
use super::rule::{Act, Rule, RuleId, Until};
use crate::kill::Random;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The time since the proxy was started.
    pub at: Duration,
    /// The number of the connection, from 1.
    pub connection: u64,
    /// The index of the broker, from 0.
    pub broker: usize,
    /// The request.
    pub header: Header,
    /// The action on the request.
    pub deed: Deed,
    /// The rule that caused the action.
    pub rule: RuleId,
}

/// The action on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The request is kept.
    Held,
    /// The kept request was delivered, and the broker responded with this error code. `None` if the broker did not
    /// respond, or if the API of the request is not supported.
    Delivered(Option<i16>),
    /// The request was dropped.
    Dropped,
    /// The request was sent twice.
    Duplicated,
    /// The request was delayed by this time.
    Delayed(Duration),
    /// The connection was cut, and the request was not sent.
    CutBefore,
    /// The request was sent, and the connection was cut.
    CutAfter,
    /// The broker's response with this error code was dropped. `None` if the API of the request is not supported.
    AnswerLost(Option<i16>),
    /// The proxy responded in place of the broker, with this error code.
    Answered(i16),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry {
            at,
            connection,
            broker,
            header,
            deed,
            ..
        } = self;
        let at = at.as_secs_f64();
        write!(
            f,
            "{at:9.3} s connection {connection} broker {broker}: {header}: {deed:?}"
        )
    }
}

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Book {
    started: Instant,
    random: Random,
    rules: Vec<Standing>,
    kept: Vec<Kept>,
    log: Vec<Entry>,
    late: Vec<(RuleId, Late)>,
    /// The number of requests by API and client. Requests without a matching rule count, too.
    requests: HashMap<(i16, String), u64>,
}

/// A rule and its progress.
#[derive(Debug)]
struct Standing {
    rule: Rule,
    ended: bool,
    /// The number of matching requests.
    fitted: u64,
    fired: u64,
    /// The number of completed steps of `rule.after`, by client.
    progress: HashMap<String, usize>,
}

impl Book {
    pub(super) fn new(seed: u64) -> Book {
        Book {
            started: Instant::now(),
            random: Random::new(seed),
            rules: Vec::new(),
            kept: Vec::new(),
            log: Vec::new(),
            late: Vec::new(),
            requests: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        self.rules.push(Standing {
            rule,
            ended: false,
            fitted: 0,
            fired: 0,
            progress: HashMap::new(),
        });
        RuleId(self.rules.len() - 1)
    }

    pub(super) fn end(&mut self, rule: RuleId) {
        if let Some(standing) = self.rules.get_mut(rule.0) {
            standing.ended = true;
        }
    }

    pub(super) fn fired(&self, rule: RuleId) -> u64 {
        self.rules.get(rule.0).map_or(0, |standing| standing.fired)
    }

    /// Returns the act of the first matching rule for a request.
    pub(super) fn decide(&mut self, header: &Header) -> Option<(RuleId, Act)> {
        let seen = (header.key, header.client.clone());
        *self.requests.entry(seen).or_default() += 1;
        for standing in &mut self.rules {
            standing.end_by(header);
        }
        let Book { rules, random, .. } = self;
        let mut all = rules.iter_mut().enumerate();
        all.find_map(|(id, standing)| Some((RuleId(id), standing.act(header, random)?)))
    }

    /// Records a response without error. Returns the kept requests that are now due.
    pub(super) fn answered(&mut self, header: &Header) -> Vec<Kept> {
        for standing in &mut self.rules {
            standing.advance(header);
        }
        for kept in &mut self.kept {
            kept.advance(header);
        }
        self.take(Kept::is_due)
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept.push(kept);
    }

    /// Removes and returns the requests that a rule keeps.
    pub(super) fn take_of(&mut self, rule: RuleId) -> Vec<Kept> {
        self.take(|kept| kept.rule == rule)
    }

    /// Removes and returns the requests whose time is over.
    pub(super) fn take_ripe(&mut self) -> Vec<Kept> {
        self.take(Kept::is_ripe)
    }

    pub(super) fn held(&self, rule: RuleId) -> usize {
        self.kept.iter().filter(|kept| kept.rule == rule).count()
    }

    fn take(&mut self, which: impl Fn(&Kept) -> bool) -> Vec<Kept> {
        let all = std::mem::take(&mut self.kept);
        let (taken, left) = all.into_iter().partition(which);
        self.kept = left;
        taken
    }

    pub(super) fn write(
        &mut self,
        rule: RuleId,
        at: (u64, usize),
        header: &Header,
        deed: Deed,
    ) -> Duration {
        let since = self.started.elapsed();
        self.log.push(Entry {
            at: since,
            connection: at.0,
            broker: at.1,
            header: header.clone(),
            deed,
            rule,
        });
        since
    }

    pub(super) fn delivered(&mut self, rule: RuleId, late: Late) {
        self.late.push((rule, late));
    }

    pub(super) fn late(&self, rule: RuleId) -> Vec<Late> {
        let of_rule = self.late.iter().filter(|(id, _)| *id == rule);
        of_rule.map(|(_, late)| late.clone()).collect()
    }

    pub(super) fn log(&self) -> &[Entry] {
        &self.log
    }

    pub(super) fn requests(&self, key: i16, client: &str) -> u64 {
        let fits = |(api, name): &(i16, String)| *api == key && name.starts_with(client);
        let counts = self.requests.iter().filter(|(who, _)| fits(who));
        counts.map(|(_, count)| count).sum()
    }
}

impl Standing {
    fn concerns(&self, header: &Header) -> bool {
        !self.ended && header.client.starts_with(&self.rule.client)
    }

    fn end_by(&mut self, header: &Header) {
        let ends = self.rule.until.is_some() && self.rule.until == header.api();
        if ends && self.fired > 0 && self.concerns(header) {
            self.ended = true;
        }
    }

    fn advance(&mut self, header: &Header) {
        if self.rule.after.is_empty() || !self.concerns(header) {
            return;
        }
        let steps = &self.rule.after;
        let step = self.progress.entry(header.client.clone()).or_default();
        if steps.get(*step).copied() == header.api() && *step < steps.len() {
            *step += 1;
        }
    }

    fn act(&mut self, header: &Header, random: &mut Random) -> Option<Act> {
        let rule = &self.rule;
        let api = rule.apis.is_empty() || header.api().is_some_and(|api| rule.apis.contains(&api));
        let version = rule
            .versions
            .is_none_or(|(from, to)| (from..=to).contains(&header.version));
        let progress = self.progress.get(&header.client).copied().unwrap_or(0);
        let is_reached = progress == rule.after.len();
        if !(self.concerns(header) && api && version && is_reached) || self.fired >= rule.times {
            return None;
        }
        self.fitted += 1;
        if self.fitted <= rule.skip || random.share(0.0, 1.0) >= rule.chance {
            return None;
        }
        self.fired += 1;
        Some(rule.act.clone())
    }
}

impl Kept {
    fn advance(&mut self, header: &Header) {
        if let Until::Answered(steps) = &self.hold.until
            && header.client == self.header.client
            && steps.get(self.progress).copied() == header.api()
            && self.progress < steps.len()
        {
            self.progress += 1;
        }
    }

    fn is_ripe(&self) -> bool {
        matches!(self.hold.until, Until::After(time) if self.since.elapsed() >= time)
    }

    fn is_due(&self) -> bool {
        matches!(&self.hold.until, Until::Answered(steps) if self.progress == steps.len())
    }
}
