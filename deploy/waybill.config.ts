/**
 * The video service for the CLI: its relay (`waybill relay`), its schema (`waybill migrate`), and what it needs in Pub/Sub
 * (`waybill provision`).
 */
import { defineConfig } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { videos } from './streams.ts'

const projectId = process.env['PUBSUB_PROJECT_ID'] ?? 'shop'
const emulatorHost = process.env['PUBSUB_EMULATOR_HOST']

export default defineConfig({
  service: 'video',
  streams: [videos],
  transport: () => pubsub({ projectId, ...(emulatorHost === undefined ? {} : { emulatorHost }) }),
  pubsub: {
    projectId,
    provision: {
      streams: [videos],
      publishers: [`serviceAccount:video-relay@${projectId}.iam.gserviceaccount.com`],
      consumers: [
        { name: 'catalog', streams: [videos], subscribers: [`serviceAccount:catalog@${projectId}.iam.gserviceaccount.com`] },
      ],
      projectNumber: '123456789012',
    },
  },
})
