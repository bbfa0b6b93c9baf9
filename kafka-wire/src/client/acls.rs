//! Rights: giving them and taking them away, under everybody's feet.
//!
//! Of everybody: without authentication a client's principal is `User:ANONYMOUS`, and so is that of the
//! program under test.

use anyhow::Result;
use kafka_protocol::messages::create_acls_request::{AclCreation, CreateAclsRequest};
use kafka_protocol::messages::delete_acls_request::{DeleteAclsFilter, DeleteAclsRequest};

use super::Client;
use super::routing::Node;
use crate::connection::check;
use crate::requests::text;

/// What a right is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a str),
    /// A consumer group.
    Group(&'a str),
    /// All transactional ids that begin so.
    TransactionalIds(&'a str),
    /// The cluster itself.
    Cluster,
}

/// What is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// To read a topic; to be in a group.
    Read,
    /// To write.
    Write,
    /// To create a topic; of the cluster, any topic.
    Create,
    /// To hear that it is there.
    Describe,
    /// To read its configuration.
    DescribeConfigs,
}

/// As the protocol writes them.
const ALLOW: i8 = 3;
const DENY: i8 = 2;
const ALL: i8 = 2;
const ANY: i8 = 1;

impl Client {
    /// Takes a right away. All others on the resource stay.
    ///
    /// # Errors
    /// When the brokers have no authorizer, or don't answer in time.
    pub fn deny(&mut self, resource: Resource<'_>, operation: Operation) -> Result<()> {
        let denied = match operation {
            Operation::Read => 3,
            Operation::Write => 4,
            Operation::Create => 5,
            Operation::Describe => 8,
            Operation::DescribeConfigs => 10,
        };
        // Where one right is spoken of, what is not allowed is denied.
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

    /// Gives everything back that was taken away on a resource.
    ///
    /// # Errors
    /// As [`Client::deny`].
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

/// Kind, name and whether the name is one or a prefix.
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
