/**
 * The owner's one command: an editor gives a video its title. Row, marker and event commit together or not at all.
 */
import { command } from 'waybill'
import { z } from 'zod'
import { videos } from './streams.ts'

export const publishVideo = command('PublishVideo', {
  input: z.object({ videoId: z.string().min(1), title: z.string().min(1) }),
  aggregate: ({ videoId }) => ({ type: videos.aggregateType, id: videoId }),
  store: 'response',
  execute: async (tx, { videoId, title }, { requestId = 'none', emit }) => {
    await tx.query(
      `insert into video (id, title, edit) values ($1, $2, $3)
       on conflict (id) do update set title = excluded.title, edit = excluded.edit`,
      [videoId, title, requestId],
    )
    emit(videos.VideoPublished, videoId, { title, edit: requestId })
    return { videoId, edit: requestId }
  },
})
