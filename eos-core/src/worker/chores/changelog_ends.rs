//! Queries the ends of the changelogs.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::IdleTime;

use super::Chores;
use crate::client::{Client, Source};
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;
use crate::worker::{RecordsOf, SLICE};

/// The interval between two queries.
const EVERY: Duration = Duration::from_secs(2);

/// The interval after a query without a response, if the worker also queries idle inputs: their windows must not wait
/// because a changelog has no leader.
const SILENT: Duration = Duration::from_secs(10);

/// One of this many queries in a row without a response has as much time as the client gives it, because many
/// changelogs may need more.
const PATIENT: u32 = 6;

impl Chores {
    /// Queries the ends of the changelogs periodically. A later restore begins there, instead of at the last opening of
    /// the database. (An offset counts from the next commit on, which proves that no other worker wrote in between:
    /// [`ChangelogOffsets`](eos_protocol::state::ChangelogOffsets).)
    pub(super) fn read_changelog_ends<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) {
        let now = shared.env.about_now();
        if now < self.next_changelog_ends {
            return;
        }
        let logs = tasks.changelogs(&shared.topology);
        if logs.is_empty() {
            return;
        }
        let queried = *self.changelogs_queried.get_or_insert_with(|| {
            // Caches of idle tasks do not shrink by themselves when the worker gets other tasks.
            tasks.keep_to_cache_limit();
            now
        });
        let ends = source.ends(&logs, Duration::ZERO);
        let may_be_slow = self.silent_changelogs % PATIENT == PATIENT - 1;
        let is_slow = !may_be_slow && now.since(queried) > IdleTime::LONGEST_QUERY;
        if ends.is_pending() && !is_slow {
            return;
        }
        let has_idle = tasks.values_mut().any(|task| task.idle.is_some());
        if ends.is_pending() && !has_idle {
            return;
        }
        self.changelogs_queried = None;
        let failed = !matches!(ends, Poll::Ready(Ok(_)));
        self.silent_changelogs = if failed {
            self.silent_changelogs + 1
        } else {
            0
        };
        self.next_changelog_ends = now.after(if failed && has_idle { SILENT } else { EVERY });
        let Poll::Ready(ends) = ends else {
            return;
        };
        match ends {
            Ok(ends) => {
                shared.broker_answered();
                tasks.changelogs_end(&shared.topology, &ends);
            }
            // The next query reads newer ends.
            Err(error) => {
                tracing::debug!(worker = %shared.spec.id, %error, "reading the ends of changelogs failed");
            }
        }
    }
}

/// Without [`ChangelogOffsets`](eos_protocol::state::ChangelogOffsets): the next batch stores the current LSO, although
/// another worker may have written to the changelog.
pub(in crate::worker) fn take_any_end<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    tasks: &mut Tasks<RecordsOf<C>>,
) {
    let logs = tasks.changelogs(&shared.topology);
    // The first response may belong to an earlier query.
    for _ in 0..2 {
        let tries = std::iter::repeat_with(|| source.ends(&logs, SLICE));
        let ends = tries.take(500).find_map(|ends| match ends {
            Poll::Ready(Ok(ends)) => Some(ends),
            Poll::Ready(Err(_)) => {
                std::thread::sleep(SLICE);
                None
            }
            Poll::Pending => None,
        });
        tasks.changelogs_end(&shared.topology, &ends.unwrap_or_default());
    }
    let touched = tasks.values_mut().filter(|t| t.progress.touched());
    for state in touched.filter_map(|task| task.state.as_mut()) {
        state.offsets.sealed();
    }
}
