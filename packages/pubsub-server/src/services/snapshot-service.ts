/** The snapshot and seek calls of google.pubsub.v1.Subscriber. */
import { checkProject, isIn } from '../model/names.ts'
import type { Duration, SnapshotResource } from '../model/resources.ts'
import { invalid } from '../model/rpc-error.ts'
import { createSnapshot, seekToSnapshot, seekToTime, updateSnapshot } from '../operations/snapshots.ts'
import type { NewSnapshot } from '../operations/snapshots.ts'
import { unary } from './call.ts'
import type { CallContext, UnaryHandler } from './call.ts'
import { pageOf } from './page.ts'
import type { PageRequest } from './page.ts'

interface SeekRequest {
  readonly subscription: string
  readonly time?: Duration
  readonly snapshot?: string
}

export function snapshotService(context: CallContext): Record<string, UnaryHandler> {
  const { broker } = context
  return {
    CreateSnapshot: unary(context, (given: NewSnapshot) => createSnapshot(broker, given)),
    GetSnapshot: unary(context, ({ snapshot }: { snapshot: string }) => broker.snapshot(snapshot).resource),
    UpdateSnapshot: unary(context, (request: { snapshot?: SnapshotResource; updateMask?: { paths?: string[] } }) =>
      updateSnapshot(broker, request.snapshot ?? { name: '', topic: '' }, request.updateMask?.paths ?? []),
    ),
    ListSnapshots: unary(context, (request: PageRequest & { project: string }) => {
      const project = checkProject(request.project)
      broker.sweep()
      const own = [...broker.snapshots.values()].map(({ resource }) => resource).filter(({ name }) => isIn(project, name))
      const page = pageOf(own, ({ name }) => name, request)
      return { snapshots: page.items, nextPageToken: page.nextPageToken }
    }),
    DeleteSnapshot: unary(context, ({ snapshot }: { snapshot: string }) => {
      broker.dropSnapshot(broker.snapshot(snapshot).resource.name)
      return {}
    }),
    Seek: unary(context, (request: SeekRequest) => {
      if (request.time !== undefined) seekToTime(broker, request.subscription, request.time)
      else if (request.snapshot !== undefined) seekToSnapshot(broker, request.subscription, request.snapshot)
      else throw invalid('A seek needs a target: a time or a snapshot.')
      return {}
    }),
  }
}
