/** `waybill/avro`: Avro for event data, and the check that a new schema still reads what an old one wrote. */
export { avro, avroContentType, avroProblems, type AvroCodec, type AvroOptions, type AvroSchema } from './codec/avro.ts'
