/**
 * The google.pubsub.v1 wire contract of schemas and their revisions.
 *
 * Only what is on the wire is here (names, numbers, types); a test compares each of them with
 * the descriptor that comes with the official client. The server needs no Google package.
 */
export const schemaProto: string = `
syntax = "proto3";
package google.pubsub.v1;
service SchemaService {
  rpc CreateSchema(CreateSchemaRequest) returns (Schema);
  rpc GetSchema(GetSchemaRequest) returns (Schema);
  rpc ListSchemas(ListSchemasRequest) returns (ListSchemasResponse);
  rpc ListSchemaRevisions(ListSchemaRevisionsRequest) returns (ListSchemaRevisionsResponse);
  rpc CommitSchema(CommitSchemaRequest) returns (Schema);
  rpc RollbackSchema(RollbackSchemaRequest) returns (Schema);
  rpc DeleteSchemaRevision(DeleteSchemaRevisionRequest) returns (Schema);
  rpc DeleteSchema(DeleteSchemaRequest) returns (google.protobuf.Empty);
  rpc ValidateSchema(ValidateSchemaRequest) returns (ValidateSchemaResponse);
  rpc ValidateMessage(ValidateMessageRequest) returns (ValidateMessageResponse);
}
message Schema {
  enum Type { TYPE_UNSPECIFIED = 0; PROTOCOL_BUFFER = 1; AVRO = 2; }
  string name = 1;
  Type type = 2;
  string definition = 3;
  string revision_id = 4;
  google.protobuf.Timestamp revision_create_time = 6;
}
enum SchemaView { SCHEMA_VIEW_UNSPECIFIED = 0; BASIC = 1; FULL = 2; }
message CreateSchemaRequest { string parent = 1; Schema schema = 2; string schema_id = 3; }
message GetSchemaRequest { string name = 1; SchemaView view = 2; }
message ListSchemasRequest {
  string parent = 1;
  SchemaView view = 2;
  int32 page_size = 3;
  string page_token = 4;
}
message ListSchemasResponse { repeated Schema schemas = 1; string next_page_token = 2; }
message ListSchemaRevisionsRequest {
  string name = 1;
  SchemaView view = 2;
  int32 page_size = 3;
  string page_token = 4;
}
message ListSchemaRevisionsResponse { repeated Schema schemas = 1; string next_page_token = 2; }
message CommitSchemaRequest { string name = 1; Schema schema = 2; }
message RollbackSchemaRequest { string name = 1; string revision_id = 2; }
message DeleteSchemaRevisionRequest { string name = 1; string revision_id = 2; }
message DeleteSchemaRequest { string name = 1; }
message ValidateSchemaRequest { string parent = 1; Schema schema = 2; }
message ValidateSchemaResponse {}
message ValidateMessageRequest {
  string parent = 1;
  oneof schema_spec { string name = 2; Schema schema = 3; }
  bytes message = 4;
  Encoding encoding = 5;
}
message ValidateMessageResponse {}
enum Encoding { ENCODING_UNSPECIFIED = 0; JSON = 1; BINARY = 2; }
`
