/** What the command line has to know of the leaderboard. */
import { defineConfig } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { createLeaderboard } from './leaderboard.ts'

const { LEADERBOARD_URL: url, PUBSUB_EMULATOR_HOST: emulatorHost = '' } = process.env

export default defineConfig({
  service: 'leaderboard',
  database: { url },
  transport: () => pubsub({ projectId: 'game', emulatorHost }),
  consumers: (context) => [createLeaderboard(context)],
})
