/**
 * The events of the video service, as its readers know them.
 */
import { state, stream, tombstone } from 'waybill'
import { z } from 'zod'

export const videos = stream('video', {
  topic: 'video.events',
  events: { VideoPublished: state(z.object({ title: z.string(), url: z.string() })), VideoRemoved: tombstone() },
})
