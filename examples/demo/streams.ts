/**
 * What travels: videos that an editor publishes, and the players of the game that the same service runs.
 */
import { state, stream } from 'waybill'
import { z } from 'zod'
import { players } from '../game/players.ts'

export { players }

export const videos = stream('video', {
  topic: 'video.events',
  events: {
    /** `edit` is the request that made this change, so that whoever reads can tell one change from its repeat. */
    VideoPublished: state(z.object({ title: z.string(), edit: z.string() })),
  },
})

export const streams = [videos, players] as const
