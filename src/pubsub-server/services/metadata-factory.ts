/** Empty gRPC metadata as a function that is passed in, because gRPC is loaded only when a server starts. */
import type { Metadata } from '@grpc/grpc-js'

export type MetadataFactory = () => Metadata
