/** The timeline of a trace puts causes before effects, whatever the clocks say, and follows the clocks elsewhere. */
import { describe, expect, test } from 'vitest'
import type { Trace, TracedDelivery, TracedEvent } from './report.ts'
import { traceTimeline } from './timeline.ts'

const at = (seconds: number): string =>
  `2025-01-01T10:${String(Math.floor(seconds / 60)).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}.000000Z`

function delivered(more: Partial<TracedDelivery>): TracedDelivery {
  const none = { attempts: 0, error: undefined, nextAttemptAt: undefined, deadLetter: undefined, position: undefined }
  return { service: 'catalog', consumer: 'catalog', state: 'applied', at: undefined, projections: [], ...none, ...more }
}

interface Given {
  readonly recordedAt?: number
  readonly service?: string
  readonly publishedAt?: readonly number[]
  readonly causedBy?: TracedEvent['causedBy']
  readonly isPending?: boolean
  readonly deliveries?: readonly TracedDelivery[]
}

function event(
  eventId: string,
  { recordedAt, service = 'films', publishedAt = [], causedBy, isPending, deliveries = [] }: Given,
): TracedEvent {
  const named = { topic: 'video.events', aggregateType: 'video', aggregateId: eventId, version: '1', eventType: 'VideoPublished' }
  const pending = {
    state: 'PENDING',
    attempts: 0,
    lane: 0,
    relay: 'relay-a',
    nextRetryAt: undefined,
    parkedAt: undefined,
    error: undefined,
  }
  return {
    eventId,
    causedBy,
    recorded: recordedAt === undefined ? undefined : { service, at: at(recordedAt), ...named },
    dispatch: isPending === true ? pending : undefined,
    publishes: publishedAt.map((seconds, n) => ({ at: at(seconds), attempts: 1, relay: 'relay-a', messageId: `m${n + 1}` })),
    deliveries,
  }
}

/** The lines, each as its event and what became of it. */
function lines(events: readonly TracedEvent[], request?: Trace['request']): readonly string[] {
  const verbs = /committed|not published|published|applied|given up|not seen|has version|for video.events|in no outbox/
  return traceTimeline({ request, events, notes: [] }).map(({ text }) => {
    const id = /\be\d\b/.exec(text)?.[0] ?? ''
    return `${id} ${verbs.exec(text)?.[0].replace('for video.events', 'recorded') ?? text}`.trim()
  })
}

describe('a cause stands before its effect', () => {
  test('where the receipt of a publish was written after the effect', () => {
    const dead = delivered({ state: 'dead', at: at(2) })
    expect(lines([event('e1', { recordedAt: 1, publishedAt: [3], deliveries: [dead] })])).toEqual([
      'e1 recorded',
      'e1 published',
      'e1 given up',
    ])
  })

  test('where the clock of the consumer is behind that of the owner', () => {
    const table = { table: 'view', version: '1', deleted: false }
    const request = { service: 'films', principal: 'ann', requestId: 'r', command: 'Publish', rejected: false, at: at(100) }
    const events = [
      event('e1', { recordedAt: 101, publishedAt: [102], deliveries: [delivered({ at: at(3), projections: [table] })] }),
      event('e2', { recordedAt: 3, service: 'catalog', causedBy: { eventId: 'e1', consumer: 'catalog' }, publishedAt: [4] }),
    ]
    expect(lines(events, request)).toEqual([
      'committed',
      'e1 recorded',
      'e1 published',
      'e1 applied',
      'has version',
      'e2 recorded',
      'e2 published',
    ])
  })

  test('where the cause has no moment, and where causes contradict each other no line is lost', () => {
    expect(lines([event('e1', { deliveries: [delivered({ at: at(1) })] })])).toEqual(['e1 in no outbox', 'e1 applied'])
    const circle = (id: string, of: string) => event(id, { recordedAt: 1, causedBy: { eventId: of, consumer: 'catalog' } })
    expect(lines([circle('e1', 'e2'), circle('e2', 'e1')])).toHaveLength(2)
  })
})

describe('what does not follow from each other', () => {
  test('stands in the order of the clocks, and what is so now comes last', () => {
    const events = [
      event('e1', { recordedAt: 1, publishedAt: [3, 9], deliveries: [delivered({ at: at(5) })] }),
      event('e2', { recordedAt: 2, isPending: true, deliveries: [delivered({ state: 'unseen' })] }),
      event('e3', { recordedAt: 4, publishedAt: [6], deliveries: [delivered({ at: at(7) })] }),
    ]
    expect(lines(events)).toEqual([
      'e1 recorded',
      'e2 recorded',
      'e1 published',
      'e3 recorded',
      'e1 applied',
      'e3 published',
      'e3 applied',
      'e1 published',
      'e2 not published',
      'e2 not seen',
    ])
  })
})
