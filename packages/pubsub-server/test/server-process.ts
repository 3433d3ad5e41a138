/** A local Pub/Sub server in a process of its own, with the options given as JSON; it says where it listens. */
import { startPubsubServer } from '../src/pubsub-server.ts'
import type { PubsubServerOptions } from '../src/pubsub-server.ts'

const options = JSON.parse(process.argv[2] ?? '{}') as PubsubServerOptions
const { port } = await startPubsubServer(options)
process.send?.({ port })
