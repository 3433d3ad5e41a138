/**
 * What a consumer promises, as a check of what its database went through and what is in it in the end.
 */
import type { Committed, FakeStore } from './store/fake-store.ts'
import type { Effect, EffectStore, ViewRow } from './store/effect-statements.ts'
import type { InboxStore, Position, StoredMessage } from './store/inbox-tables.ts'

/** An event that was published. */
export interface Expected {
  readonly eventId: string
  readonly type: string
  readonly aggregate: string
  readonly version: number
  readonly removed: boolean
}

export interface ConsumerWatch {
  /** Whether everything has had its effect and nothing waits. */
  isComplete(expected: readonly Expected[]): boolean
  /** `doubled a0 1`, `lost a0 2`, `out of turn a0 3`, `went back v0`, `wrong view of v0`, `left: 2 messages`. */
  violations(expected: readonly Expected[]): string[]
}

export function consumerViolations(parts: {
  readonly store: FakeStore
  readonly inbox: InboxStore
  readonly effects: EffectStore
}): ConsumerWatch {
  const { store, inbox, effects } = parts
  const seen: string[] = []
  const order: Effect[] = []
  store.onCommit(({ by, changes }: Committed) => {
    const owners = new Map(store.committed(inbox.lane).map(({ lane, lockedBy }) => [lane, lockedBy]))
    for (const { table, before, after } of changes) {
      if (table === 'effect' && after !== undefined) order.push(after as Effect)
      const gone = table === 'inbox_message' && after === undefined ? (before as StoredMessage | undefined) : undefined
      // What waits for its turn is anybody's; the rest is its lane's owner's.
      if (gone !== undefined && gone.state !== 4 && owners.get(gone.lane) !== by)
        seen.push('removed from a lane that was another’s')
      if (table === 'video_view' || table === 'consumer_position') {
        const [was, is] = [before, after] as (Pick<ViewRow & Position, 'id' | 'version'> | undefined)[]
        if (was !== undefined && (is === undefined || is.version < was.version)) seen.push(`went back ${was.id}`)
      }
    }
  })
  const effectsOf = (eventId: string): number => order.filter((each) => each.eventId === eventId).length
  return {
    isComplete: (expected) =>
      expected.every(({ eventId }) => effectsOf(eventId) > 0) && store.committed(inbox.message).length === 0,
    violations: (expected) => {
      const found = [...seen]
      for (const { eventId, aggregate, version } of expected) {
        const count = effectsOf(eventId)
        if (count === 0) found.push(`lost ${aggregate} ${version}`)
        if (count > 1) found.push(`doubled ${aggregate} ${version}`)
      }
      const last = new Map<string, number>()
      for (const { aggregate, version } of order.filter(({ eventId }) => isDelta(expected, eventId))) {
        if (version !== (last.get(aggregate) ?? 0) + 1) found.push(`out of turn ${aggregate} ${version}`)
        last.set(aggregate, version)
      }
      for (const [aggregate, newest] of newestOf(expected)) {
        const row = store.committed(effects.view).find(({ id }) => id === aggregate)
        if (row?.version !== newest.version || row.deleted !== newest.removed) found.push(`wrong view of ${aggregate}`)
      }
      const left = store.committed(inbox.message).length
      const waiting = store.committed(inbox.position).filter((row) => row.waiting !== 0).length
      if (left > 0) found.push(`left: ${left} messages`)
      if (waiting > 0) found.push(`left: ${waiting} counts`)
      return [...new Set(found)]
    },
  }
}

function isDelta(expected: readonly Expected[], eventId: string): boolean {
  return expected.some((each) => each.eventId === eventId && each.type === 'account')
}

/** The newest event of each aggregate that has a view. */
function newestOf(expected: readonly Expected[]): Map<string, Expected> {
  const newest = new Map<string, Expected>()
  for (const each of expected)
    if (each.type === 'video' && (newest.get(each.aggregate)?.version ?? 0) < each.version) newest.set(each.aggregate, each)
  return newest
}
