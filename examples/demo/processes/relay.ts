/**
 * The owner's relay as a process of its own: moves committed events from the outbox to the broker.
 */
import { connect, createOutbox, createRelay, run } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { streams } from '../streams.ts'
import { connectParent } from './parent.ts'

const { settings, stopping, ready } = await connectParent()
const { projectId, emulatorHost } = settings
const db = connect({ url: settings.videoUrl, applicationName: 'relay' })
const transport = pubsub({ projectId, ...(emulatorHost === undefined ? {} : { emulatorHost }) })
const relay = createRelay({ db, outbox: createOutbox(), transport, streams })
ready()
await run([relay], { signal: stopping })
await transport.close()
await db.close()
process.disconnect()
