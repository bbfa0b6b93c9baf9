//! Changes to the ACLs of every principal during a test.
//!
//! Without authentication a client's principal is `User:ANONYMOUS`, and so is the principal of the program under test.

use anyhow::Result;
use kafka_protocol::messages::create_acls_request::{AclCreation, CreateAclsRequest};
use kafka_protocol::messages::delete_acls_request::{DeleteAclsFilter, DeleteAclsRequest};

use super::Client;
use super::routing::Node;
use crate::connection::check;
use crate::requests::text;

/// The resource that an ACL applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a str),
    /// A consumer group.
    Group(&'a str),
    /// All transactional ids with this prefix.
    TransactionalIds(&'a str),
    /// The cluster itself.
    Cluster,
}

/// The operation that an ACL allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read from a topic, or join a group.
    Read,
    /// Write.
    Write,
    /// Create a topic. On the cluster: create any topic.
    Create,
    /// List the resource.
    Describe,
    /// Read the configuration of a topic.
    DescribeConfigs,
}

/// The values of the protocol.
const ALLOW: i8 = 3;
const DENY: i8 = 2;
const ALL: i8 = 2;
const ANY: i8 = 1;

impl Client {
    /// Denies one operation on a resource. All other operations on the resource stay allowed.
    ///
    /// # Errors
    /// If the brokers have no authorizer, or do not respond in time.
    pub fn deny(&mut self, resource: Resource<'_>, operation: Operation) -> Result<()> {
        let denied = match operation {
            Operation::Read => 3,
            Operation::Write => 4,
            Operation::Create => 5,
            Operation::Describe => 8,
            Operation::DescribeConfigs => 10,
        };
        // Once a resource has an ACL, everything that no ACL allows is denied.
        let rights = [(ALL, ALLOW), (denied, DENY)];
        let creations =
            rights.map(|(operation, permission)| creation(resource, operation, permission));
        let request = CreateAclsRequest::default().with_creations(creations.into());
        self.retry(
            &format!("deny {operation:?} on {resource:?}"),
            |client, deadline| {
                let answer = client.exchange(Node::Any, &request, deadline)?;
                let mut results = answer.results.iter();
                results.try_for_each(|result| check(result.error_code, || "CreateAcls".to_owned()))
            },
        )
    }

    /// Allows all operations on a resource again.
    ///
    /// # Errors
    /// See [`Client::deny`].
    pub fn allow(&mut self, resource: Resource<'_>) -> Result<()> {
        let (kind, name, pattern) = pattern(resource);
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(kind)
            .with_resource_name_filter(Some(text(name)))
            .with_pattern_type_filter(pattern)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(ANY)
            .with_permission_type(ANY);
        let request = DeleteAclsRequest::default().with_filters(vec![filter]);
        self.retry(
            &format!("allow everything on {resource:?}"),
            |client, deadline| {
                let answer = client.exchange(Node::Any, &request, deadline)?;
                let mut results = answer.filter_results.iter();
                results.try_for_each(|result| check(result.error_code, || "DeleteAcls".to_owned()))
            },
        )
    }
}

fn creation(resource: Resource<'_>, operation: i8, permission: i8) -> AclCreation {
    let (kind, name, pattern) = pattern(resource);
    AclCreation::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_resource_pattern_type(pattern)
        .with_principal(text("User:*"))
        .with_host(text("*"))
        .with_operation(operation)
        .with_permission_type(permission)
}

/// Returns the resource type, the name, and the pattern type (literal or prefixed).
fn pattern(resource: Resource<'_>) -> (i8, &str, i8) {
    const LITERAL: i8 = 3;
    const PREFIXED: i8 = 4;
    match resource {
        Resource::Topic(name) => (2, name, LITERAL),
        Resource::Group(name) => (3, name, LITERAL),
        Resource::Cluster => (4, "kafka-cluster", LITERAL),
        Resource::TransactionalIds(prefix) => (5, prefix, PREFIXED),
    }
}
