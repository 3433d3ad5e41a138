/**
 * The Pub/Sub server as a process of its own: it keeps what it confirmed in a folder, so killing it loses nothing.
 */
import { once } from 'node:events'
import { startPubsubServer } from 'waybill/testing'
import { connectParent } from './parent.ts'

const { settings, stopping, ready } = await connectParent()
const server = await startPubsubServer(settings.broker)
ready()
if (!stopping.aborted) await once(stopping, 'abort')
await server.stop()
process.disconnect()
