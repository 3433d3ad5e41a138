/** `waybill/protobuf`: Protocol Buffers for event data, and the check that a new schema still reads what an old one wrote. */
export { protobuf, protobufContentType, type ProtobufOptions } from './codec/protobuf.ts'
export { protobufProblems } from './codec/protobuf-compatibility.ts'
