//! The check of an offset commit.

use kafka_protocol::ResponseError as Error;

use super::group::{Group, GroupState};

/// The committer of offsets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commit<'a> {
    pub(crate) member_id: &'a str,
    pub(crate) instance_id: Option<&'a str>,
    pub(crate) generation: i32,
    pub(crate) transactional: bool,
}

impl Group {
    /// Checks the committer. A commit also renews the session of its member.
    pub(crate) fn check_commit(&mut self, commit: Commit<'_>, now: i64) -> Result<(), Error> {
        let empty = self.state == GroupState::Empty;
        if commit.generation < 0 && empty {
            // The consumer assigns partitions itself, or the client is an administrator.
            return Ok(());
        }
        let named = !commit.member_id.is_empty() || commit.instance_id.is_some();
        if commit.generation >= 0 || named {
            self.check_member(commit.member_id, commit.instance_id)?;
            if commit.generation != self.generation {
                return Err(Error::IllegalGeneration);
            }
        } else if !commit.transactional && !empty {
            return Err(Error::UnknownMemberId);
        }
        if !commit.transactional && self.state == GroupState::Completing {
            return Err(Error::RebalanceInProgress);
        }
        if let Some(member) = self.members.get_mut(commit.member_id)
            && !commit.transactional
        {
            member.heard_of(now);
        }
        Ok(())
    }
}
