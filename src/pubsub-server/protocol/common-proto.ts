/**
 * The parts of google.protobuf, google.iam.v1, google.type and google.rpc that the Pub/Sub API refers to.
 *
 * Only what is on the wire is here (names, numbers, types); a test compares each of them with
 * the descriptors that come with the official client. The server needs no Google package.
 */
export const wellKnownProto: string = `
syntax = "proto3";
package google.protobuf;
message Empty {}
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message FieldMask { repeated string paths = 1; }
message Any { string type_url = 1; bytes value = 2; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1;
    double number_value = 2;
    string string_value = 3;
    bool bool_value = 4;
    Struct struct_value = 5;
    ListValue list_value = 6;
  }
}
`

export const exprProto: string = `
syntax = "proto3";
package google.type;
message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }
`

export const iamProto: string = `
syntax = "proto3";
package google.iam.v1;
service IAMPolicy {
  rpc SetIamPolicy(SetIamPolicyRequest) returns (Policy);
  rpc GetIamPolicy(GetIamPolicyRequest) returns (Policy);
  rpc TestIamPermissions(TestIamPermissionsRequest) returns (TestIamPermissionsResponse);
}
message SetIamPolicyRequest {
  string resource = 1;
  Policy policy = 2;
  google.protobuf.FieldMask update_mask = 3;
}
message GetIamPolicyRequest { string resource = 1; GetPolicyOptions options = 2; }
message GetPolicyOptions { int32 requested_policy_version = 1; }
message TestIamPermissionsRequest { string resource = 1; repeated string permissions = 2; }
message TestIamPermissionsResponse { repeated string permissions = 1; }
message Policy {
  int32 version = 1;
  bytes etag = 3;
  repeated Binding bindings = 4;
  repeated AuditConfig audit_configs = 6;
}
message Binding { string role = 1; repeated string members = 2; google.type.Expr condition = 3; }
message AuditConfig { string service = 1; repeated AuditLogConfig audit_log_configs = 3; }
message AuditLogConfig {
  enum LogType { LOG_TYPE_UNSPECIFIED = 0; ADMIN_READ = 1; DATA_WRITE = 2; DATA_READ = 3; }
  LogType log_type = 1;
  repeated string exempted_members = 2;
}
`

export const rpcProto: string = `
syntax = "proto3";
package google.rpc;
message Status { int32 code = 1; string message = 2; repeated google.protobuf.Any details = 3; }
message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
`
