/** What the command line has to know of the game. */
import { defineConfig } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { players } from './players.ts'

const { DATABASE_URL: url, PUBSUB_EMULATOR_HOST: emulatorHost = '' } = process.env

export default defineConfig({
  service: 'game',
  database: { url },
  streams: [players],
  transport: () => pubsub({ projectId: 'game', emulatorHost }),
})
