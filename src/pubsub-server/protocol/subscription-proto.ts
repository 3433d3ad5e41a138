/**
 * The google.pubsub.v1 wire contract of subscriptions, pulling, snapshots and seeking.
 *
 * Only what is on the wire is here (names, numbers, types); a test compares each of them with
 * the descriptor that comes with the official client. The server needs no Google package.
 */
export const subscriptionProto: string = `
syntax = "proto3";
package google.pubsub.v1;
service Subscriber {
  rpc CreateSubscription(Subscription) returns (Subscription);
  rpc GetSubscription(GetSubscriptionRequest) returns (Subscription);
  rpc UpdateSubscription(UpdateSubscriptionRequest) returns (Subscription);
  rpc ListSubscriptions(ListSubscriptionsRequest) returns (ListSubscriptionsResponse);
  rpc DeleteSubscription(DeleteSubscriptionRequest) returns (google.protobuf.Empty);
  rpc ModifyAckDeadline(ModifyAckDeadlineRequest) returns (google.protobuf.Empty);
  rpc Acknowledge(AcknowledgeRequest) returns (google.protobuf.Empty);
  rpc Pull(PullRequest) returns (PullResponse);
  rpc StreamingPull(stream StreamingPullRequest) returns (stream StreamingPullResponse);
  rpc ModifyPushConfig(ModifyPushConfigRequest) returns (google.protobuf.Empty);
  rpc GetSnapshot(GetSnapshotRequest) returns (Snapshot);
  rpc ListSnapshots(ListSnapshotsRequest) returns (ListSnapshotsResponse);
  rpc CreateSnapshot(CreateSnapshotRequest) returns (Snapshot);
  rpc UpdateSnapshot(UpdateSnapshotRequest) returns (Snapshot);
  rpc DeleteSnapshot(DeleteSnapshotRequest) returns (google.protobuf.Empty);
  rpc Seek(SeekRequest) returns (SeekResponse);
}
message Subscription {
  enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; RESOURCE_ERROR = 2; }
  message AnalyticsHubSubscriptionInfo { string listing = 1; string subscription = 2; }
  string name = 1;
  string topic = 2;
  PushConfig push_config = 4;
  BigQueryConfig bigquery_config = 18;
  CloudStorageConfig cloud_storage_config = 22;
  BigtableConfig bigtable_config = 27;
  int32 ack_deadline_seconds = 5;
  bool retain_acked_messages = 7;
  google.protobuf.Duration message_retention_duration = 8;
  map<string, string> labels = 9;
  bool enable_message_ordering = 10;
  ExpirationPolicy expiration_policy = 11;
  string filter = 12;
  DeadLetterPolicy dead_letter_policy = 13;
  RetryPolicy retry_policy = 14;
  bool detached = 15;
  bool enable_exactly_once_delivery = 16;
  google.protobuf.Duration topic_message_retention_duration = 17;
  State state = 19;
  AnalyticsHubSubscriptionInfo analytics_hub_subscription_info = 23;
  repeated MessageTransform message_transforms = 25;
  map<string, string> tags = 26;
}
message RetryPolicy {
  google.protobuf.Duration minimum_backoff = 1;
  google.protobuf.Duration maximum_backoff = 2;
}
message DeadLetterPolicy { string dead_letter_topic = 1; int32 max_delivery_attempts = 2; }
message ExpirationPolicy { google.protobuf.Duration ttl = 1; }
message PushConfig {
  message OidcToken { string service_account_email = 1; string audience = 2; }
  message PubsubWrapper {}
  message NoWrapper { bool write_metadata = 1; }
  string push_endpoint = 1;
  map<string, string> attributes = 2;
  oneof authentication_method { OidcToken oidc_token = 3; }
  oneof wrapper { PubsubWrapper pubsub_wrapper = 4; NoWrapper no_wrapper = 5; }
}
message BigQueryConfig {
  enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; PERMISSION_DENIED = 2; NOT_FOUND = 3; SCHEMA_MISMATCH = 4; IN_TRANSIT_LOCATION_RESTRICTION = 5; VERTEX_AI_LOCATION_RESTRICTION = 6; }
  string table = 1;
  bool use_topic_schema = 2;
  bool write_metadata = 3;
  bool drop_unknown_fields = 4;
  State state = 5;
  bool use_table_schema = 6;
  string service_account_email = 7;
}
message BigtableConfig {
  enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; NOT_FOUND = 2; APP_PROFILE_MISCONFIGURED = 3; PERMISSION_DENIED = 4; SCHEMA_MISMATCH = 5; IN_TRANSIT_LOCATION_RESTRICTION = 6; VERTEX_AI_LOCATION_RESTRICTION = 7; }
  string table = 1;
  string app_profile_id = 2;
  string service_account_email = 3;
  bool write_metadata = 5;
  State state = 4;
}
message CloudStorageConfig {
  message TextConfig {}
  message AvroConfig { bool write_metadata = 1; bool use_topic_schema = 2; }
  enum State { STATE_UNSPECIFIED = 0; ACTIVE = 1; PERMISSION_DENIED = 2; NOT_FOUND = 3; IN_TRANSIT_LOCATION_RESTRICTION = 4; SCHEMA_MISMATCH = 5; VERTEX_AI_LOCATION_RESTRICTION = 6; }
  string bucket = 1;
  string filename_prefix = 2;
  string filename_suffix = 3;
  string filename_datetime_format = 10;
  oneof output_format { TextConfig text_config = 4; AvroConfig avro_config = 5; }
  google.protobuf.Duration max_duration = 6;
  int64 max_bytes = 7;
  int64 max_messages = 8;
  State state = 9;
  string service_account_email = 11;
}
message ReceivedMessage {
  string ack_id = 1;
  PubsubMessage message = 2;
  int32 delivery_attempt = 3;
}
message GetSubscriptionRequest { string subscription = 1; }
message UpdateSubscriptionRequest {
  Subscription subscription = 1;
  google.protobuf.FieldMask update_mask = 2;
}
message ListSubscriptionsRequest { string project = 1; int32 page_size = 2; string page_token = 3; }
message ListSubscriptionsResponse {
  repeated Subscription subscriptions = 1;
  string next_page_token = 2;
}
message DeleteSubscriptionRequest { string subscription = 1; }
message ModifyPushConfigRequest { string subscription = 1; PushConfig push_config = 2; }
message PullRequest {
  string subscription = 1;
  bool return_immediately = 2;
  int32 max_messages = 3;
}
message PullResponse { repeated ReceivedMessage received_messages = 1; }
message ModifyAckDeadlineRequest {
  string subscription = 1;
  repeated string ack_ids = 4;
  int32 ack_deadline_seconds = 3;
}
message AcknowledgeRequest { string subscription = 1; repeated string ack_ids = 2; }
message StreamingPullRequest {
  string subscription = 1;
  repeated string ack_ids = 2;
  repeated int32 modify_deadline_seconds = 3;
  repeated string modify_deadline_ack_ids = 4;
  int32 stream_ack_deadline_seconds = 5;
  string client_id = 6;
  int64 max_outstanding_messages = 7;
  int64 max_outstanding_bytes = 8;
  int64 protocol_version = 10;
}
message StreamingPullResponse {
  message AcknowledgeConfirmation {
    repeated string ack_ids = 1;
    repeated string invalid_ack_ids = 2;
    repeated string unordered_ack_ids = 3;
    repeated string temporary_failed_ack_ids = 4;
  }
  message ModifyAckDeadlineConfirmation {
    repeated string ack_ids = 1;
    repeated string invalid_ack_ids = 2;
    repeated string temporary_failed_ack_ids = 3;
  }
  message SubscriptionProperties {
    bool exactly_once_delivery_enabled = 1;
    bool message_ordering_enabled = 2;
  }
  repeated ReceivedMessage received_messages = 1;
  AcknowledgeConfirmation acknowledge_confirmation = 5;
  ModifyAckDeadlineConfirmation modify_ack_deadline_confirmation = 3;
  SubscriptionProperties subscription_properties = 4;
}
message CreateSnapshotRequest {
  string name = 1;
  string subscription = 2;
  map<string, string> labels = 3;
  map<string, string> tags = 4;
}
message UpdateSnapshotRequest { Snapshot snapshot = 1; google.protobuf.FieldMask update_mask = 2; }
message Snapshot {
  string name = 1;
  string topic = 2;
  google.protobuf.Timestamp expire_time = 3;
  map<string, string> labels = 4;
}
message GetSnapshotRequest { string snapshot = 1; }
message ListSnapshotsRequest { string project = 1; int32 page_size = 2; string page_token = 3; }
message ListSnapshotsResponse { repeated Snapshot snapshots = 1; string next_page_token = 2; }
message DeleteSnapshotRequest { string snapshot = 1; }
message SeekRequest {
  string subscription = 1;
  oneof target { google.protobuf.Timestamp time = 2; string snapshot = 3; }
}
message SeekResponse {}
`
