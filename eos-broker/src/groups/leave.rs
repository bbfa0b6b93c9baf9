//! LeaveGroup.

use kafka_protocol::ResponseError as Error;

use super::group::{Answer, Group};

/// A member that leaves. A static member may be named by its instance id alone.
#[derive(Debug, Clone)]
pub(crate) struct Leaving {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
}

impl Group {
    pub(crate) fn leave(
        &mut self,
        leaving: &Leaving,
        now: i64,
        out: &mut Vec<Answer>,
    ) -> Result<(), Error> {
        let instance = leaving.instance_id.as_deref();
        let by_instance = instance.and_then(|it| self.instances.get(it)).cloned();
        let id = if leaving.member_id.is_empty() {
            by_instance.ok_or(Error::UnknownMemberId)?
        } else if self.pending.remove(&leaving.member_id).is_some() {
            self.complete_if_all_joined(now, out);
            return Ok(());
        } else {
            self.check_member(&leaving.member_id, instance)?;
            leaving.member_id.clone()
        };
        self.remove(&id, now, out);
        Ok(())
    }
}
