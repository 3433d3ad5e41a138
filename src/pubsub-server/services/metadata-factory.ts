import type { Metadata } from '@grpc/grpc-js'

/** Makes empty gRPC metadata; passed in because gRPC is loaded only when a server starts. */
export type MetadataFactory = () => Metadata
