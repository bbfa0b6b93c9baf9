//! Metadata, DescribeCluster, FindCoordinator, ApiVersions.

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, BrokerId, DescribeClusterRequest, DescribeClusterResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, TopicName,
};

use super::configs::TopicConfigs;
use super::topics::check_name;
use super::versions::SERVED;
use super::{Broker, Context, NODE, text};

impl Broker {
    pub(super) fn api_versions(&self, _: &Context) -> ApiVersionsResponse {
        let keys = SERVED.iter().map(|api| {
            ApiVersion::default()
                .with_api_key(api.key as i16)
                .with_min_version(api.advertised_min)
                .with_max_version(api.max)
        });
        ApiVersionsResponse::default().with_api_keys(keys.collect())
    }

    pub(super) fn metadata(
        &mut self,
        request: MetadataRequest,
        context: &Context,
    ) -> MetadataResponse {
        // Version 0 has no null, so an empty list means all topics.
        let all = match &request.topics {
            None => true,
            Some(topics) => topics.is_empty() && context.version == 0,
        };
        let mut topics = Vec::new();
        if all {
            let names: Vec<String> = self.topics.keys().cloned().collect();
            topics.extend(names.iter().map(|name| self.topic_metadata(name)));
        }
        let may_create = request.allow_auto_topic_creation || context.version < 4;
        for asked in request.topics.unwrap_or_default() {
            let by_id = || {
                let mut all = self.topics.iter();
                all.find(|(_, topic)| topic.id == asked.topic_id)
                    .map(|(name, _)| name.clone())
            };
            let name = match &asked.name {
                Some(name) => Some(name.to_string()),
                None => by_id(),
            };
            let Some(name) = name else {
                let unknown = MetadataResponseTopic::default()
                    .with_error_code(Error::UnknownTopicId.code())
                    .with_topic_id(asked.topic_id)
                    .with_name(None);
                topics.push(unknown);
                continue;
            };
            let wanted = may_create && self.options.auto_create_topics;
            if wanted && !self.topics.contains_key(&name) && check_name(&name).is_ok() {
                let partitions = usize::try_from(self.options.num_partitions).unwrap_or(1);
                if self.partition_count() + partitions <= self.options.partitions_max {
                    self.create_topic(&name, partitions, TopicConfigs::default());
                }
            }
            topics.push(self.topic_metadata(&name));
        }
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(NODE))
            .with_host(text(&self.options.host))
            .with_port(i32::from(self.options.port));
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_cluster_id(Some(text(&self.options.cluster_id)))
            .with_controller_id(BrokerId(NODE))
            .with_topics(topics)
    }

    fn topic_metadata(&self, name: &str) -> MetadataResponseTopic {
        let answer = MetadataResponseTopic::default().with_name(Some(TopicName(text(name))));
        let Some(topic) = self.topics.get(name) else {
            let error = match check_name(name) {
                Ok(()) => Error::UnknownTopicOrPartition,
                Err(_) => Error::InvalidTopicException,
            };
            return answer.with_error_code(error.code());
        };
        let node = || vec![BrokerId(NODE)];
        let partitions = (0..topic.partitions.len()).map(|index| {
            MetadataResponsePartition::default()
                .with_partition_index(index as i32)
                .with_leader_id(BrokerId(NODE))
                .with_leader_epoch(0)
                .with_replica_nodes(node())
                .with_isr_nodes(node())
        });
        answer
            .with_topic_id(topic.id)
            .with_partitions(partitions.collect())
    }

    pub(super) fn describe_cluster(
        &self,
        request: DescribeClusterRequest,
    ) -> DescribeClusterResponse {
        if request.endpoint_type != 1 {
            let error = Error::MismatchedEndpointType.code();
            return DescribeClusterResponse::default()
                .with_error_code(error)
                .with_error_message(Some(text("this is a broker, not a controller")));
        }
        let broker = DescribeClusterBroker::default()
            .with_broker_id(BrokerId(NODE))
            .with_host(text(&self.options.host))
            .with_port(i32::from(self.options.port));
        DescribeClusterResponse::default()
            .with_cluster_id(text(&self.options.cluster_id))
            .with_controller_id(BrokerId(NODE))
            .with_brokers(vec![broker])
    }

    pub(super) fn find_coordinator(
        &self,
        request: FindCoordinatorRequest,
        context: &Context,
    ) -> FindCoordinatorResponse {
        let known = matches!(request.key_type, 0 | 1);
        let host = text(&self.options.host);
        let port = i32::from(self.options.port);
        if context.version < 4 {
            if !known {
                return FindCoordinatorResponse::default()
                    .with_error_code(Error::InvalidRequest.code())
                    .with_node_id(BrokerId(-1))
                    .with_port(-1);
            }
            return FindCoordinatorResponse::default()
                .with_node_id(BrokerId(NODE))
                .with_host(host)
                .with_port(port);
        }
        let coordinators = request.coordinator_keys.into_iter().map(|key| {
            let answer = Coordinator::default().with_key(key);
            if known {
                answer
                    .with_node_id(BrokerId(NODE))
                    .with_host(host.clone())
                    .with_port(port)
            } else {
                answer
                    .with_error_code(Error::InvalidRequest.code())
                    .with_node_id(BrokerId(-1))
                    .with_port(-1)
            }
        });
        FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
    }
}
