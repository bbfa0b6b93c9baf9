//! The check of group metadata before a commit (design rule 3).

use crate::ids::Generation;

/// The client is not a member at this moment: its offsets would be committed unfenced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a member of the group (generation {generation}, member id {member_id:?})")]
pub struct NotAMember {
    /// The generation that the client reports.
    pub generation: i32,
    /// The member id that the client reports.
    pub member_id: String,
}

/// Checks the group metadata right before `send_offsets`.
///
/// Brokers accept a transactional offset commit with generation −1 and an empty member id from any client, unfenced
/// (for clients before KIP-447). So neither value may ever be sent.
///
/// # Errors
/// [`NotAMember`] if the generation is negative or the member id empty.
pub fn checked_membership(generation: i32, member_id: &str) -> Result<Generation, NotAMember> {
    match Generation::new(generation) {
        Ok(generation) if !member_id.is_empty() => Ok(generation),
        _ => Err(NotAMember {
            generation,
            member_id: member_id.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_an_unfenced_membership_is_refused() {
        assert!(checked_membership(-1, "").is_err());
        assert!(checked_membership(-1, "m").is_err());
        assert!(checked_membership(3, "").is_err());
        assert_eq!(checked_membership(0, "m").map(Generation::get), Ok(0));
    }
}
