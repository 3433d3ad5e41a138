/**
 * The google.pubsub.v1 wire contract of topics and publishing, as a descriptor of our own.
 *
 * Only what is on the wire is here (names, numbers, types); a test compares each of them with
 * the descriptor that comes with the official client. The server needs no Google package.
 */
export const topicProto: string = `
syntax = "proto3";
package google.pubsub.v1;
service Publisher {
  rpc CreateTopic(Topic) returns (Topic);
  rpc UpdateTopic(UpdateTopicRequest) returns (Topic);
  rpc Publish(PublishRequest) returns (PublishResponse);
  rpc GetTopic(GetTopicRequest) returns (Topic);
  rpc ListTopics(ListTopicsRequest) returns (ListTopicsResponse);
  rpc ListTopicSubscriptions(ListTopicSubscriptionsRequest) returns (ListTopicSubscriptionsResponse);
  rpc ListTopicSnapshots(ListTopicSnapshotsRequest) returns (ListTopicSnapshotsResponse);
  rpc DeleteTopic(DeleteTopicRequest) returns (google.protobuf.Empty);
  rpc DetachSubscription(DetachSubscriptionRequest) returns (DetachSubscriptionResponse);
}
message PubsubMessage {
  bytes data = 1;
  map<string, string> attributes = 2;
  string message_id = 3;
  google.protobuf.Timestamp publish_time = 4;
  string ordering_key = 5;
}
message GetTopicRequest { string topic = 1; }
message UpdateTopicRequest { Topic topic = 1; google.protobuf.FieldMask update_mask = 2; }
message PublishRequest { string topic = 1; repeated PubsubMessage messages = 2; }
message PublishResponse { repeated string message_ids = 1; }
message ListTopicsRequest { string project = 1; int32 page_size = 2; string page_token = 3; }
message ListTopicsResponse { repeated Topic topics = 1; string next_page_token = 2; }
message ListTopicSubscriptionsRequest {
  string topic = 1;
  int32 page_size = 2;
  string page_token = 3;
}
message ListTopicSubscriptionsResponse {
  repeated string subscriptions = 1;
  string next_page_token = 2;
}
message ListTopicSnapshotsRequest { string topic = 1; int32 page_size = 2; string page_token = 3; }
message ListTopicSnapshotsResponse { repeated string snapshots = 1; string next_page_token = 2; }
message DeleteTopicRequest { string topic = 1; }
message DetachSubscriptionRequest { string subscription = 1; }
message DetachSubscriptionResponse {}
message Topic {
  enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; INGESTION_RESOURCE_ERROR = 2; }
  string name = 1;
  map<string, string> labels = 2;
  MessageStoragePolicy message_storage_policy = 3;
  string kms_key_name = 5;
  SchemaSettings schema_settings = 6;
  bool satisfies_pzs = 7;
  google.protobuf.Duration message_retention_duration = 8;
  State state = 9;
  IngestionDataSourceSettings ingestion_data_source_settings = 10;
  repeated MessageTransform message_transforms = 13;
  map<string, string> tags = 14;
}
message MessageStoragePolicy {
  repeated string allowed_persistence_regions = 1;
  bool enforce_in_transit = 2;
}
message SchemaSettings {
  string schema = 1;
  Encoding encoding = 2;
  string first_revision_id = 3;
  string last_revision_id = 4;
}
message IngestionDataSourceSettings {
  message AwsKinesis {
    enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; KINESIS_PERMISSION_DENIED = 2; PUBLISH_PERMISSION_DENIED = 3; STREAM_NOT_FOUND = 4; CONSUMER_NOT_FOUND = 5; }
    State state = 1;
    string stream_arn = 2;
    string consumer_arn = 3;
    string aws_role_arn = 4;
    string gcp_service_account = 5;
  }
  message CloudStorage {
    enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; CLOUD_STORAGE_PERMISSION_DENIED = 2; PUBLISH_PERMISSION_DENIED = 3; BUCKET_NOT_FOUND = 4; TOO_MANY_OBJECTS = 5; }
    message TextFormat { optional string delimiter = 1; }
    message AvroFormat {}
    message PubSubAvroFormat {}
    State state = 1;
    string bucket = 2;
    oneof input_format { TextFormat text_format = 3; AvroFormat avro_format = 4; PubSubAvroFormat pubsub_avro_format = 5; }
    google.protobuf.Timestamp minimum_object_create_time = 6;
    string match_glob = 9;
  }
  message AzureEventHubs {
    enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; EVENT_HUBS_PERMISSION_DENIED = 2; PUBLISH_PERMISSION_DENIED = 3; NAMESPACE_NOT_FOUND = 4; EVENT_HUB_NOT_FOUND = 5; SUBSCRIPTION_NOT_FOUND = 6; RESOURCE_GROUP_NOT_FOUND = 7; }
    State state = 1;
    string resource_group = 2;
    string namespace = 3;
    string event_hub = 4;
    string client_id = 5;
    string tenant_id = 6;
    string subscription_id = 7;
    string gcp_service_account = 8;
  }
  message AwsMsk {
    enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; MSK_PERMISSION_DENIED = 2; PUBLISH_PERMISSION_DENIED = 3; CLUSTER_NOT_FOUND = 4; TOPIC_NOT_FOUND = 5; }
    State state = 1;
    string cluster_arn = 2;
    string topic = 3;
    string aws_role_arn = 4;
    string gcp_service_account = 5;
  }
  message ConfluentCloud {
    enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; CONFLUENT_CLOUD_PERMISSION_DENIED = 2; PUBLISH_PERMISSION_DENIED = 3; UNREACHABLE_BOOTSTRAP_SERVER = 4; CLUSTER_NOT_FOUND = 5; TOPIC_NOT_FOUND = 6; }
    State state = 1;
    string bootstrap_server = 2;
    string cluster_id = 3;
    string topic = 4;
    string identity_pool_id = 5;
    string gcp_service_account = 6;
  }
  oneof source { AwsKinesis aws_kinesis = 1; CloudStorage cloud_storage = 2; AzureEventHubs azure_event_hubs = 3; AwsMsk aws_msk = 5; ConfluentCloud confluent_cloud = 6; }
  PlatformLogsSettings platform_logs_settings = 4;
}
message PlatformLogsSettings {
  enum Severity { SEVERITY_UNSPECIFIED = 0; DISABLED = 1; DEBUG = 2; INFO = 3; WARNING = 4; ERROR = 5; }
  Severity severity = 1;
}
message JavaScriptUDF { string function_name = 1; string code = 2; }
message AIInference {
  message UnstructuredInference { google.protobuf.Struct parameters = 1; }
  string endpoint = 1;
  oneof inference_mode { UnstructuredInference unstructured_inference = 2; }
  string service_account_email = 3;
}
message MessageTransform {
  oneof transform { JavaScriptUDF javascript_udf = 2; AIInference ai_inference = 6; }
  bool enabled = 3;
  bool disabled = 4;
}
`
