/**
 * Messages that wait for their turn, and the marks of attempts.
 */
import { leasedWaiting, clampLetterRetries, clampMessageRetries } from '../../../src/consumer/tables/leased-work.sql.ts'
import {
  chargeAttempt,
  countDead,
  forgetAttempts,
  readAttempts,
  readRedriving,
  releaseAttempts,
  startAttempts,
} from '../../../src/consumer/tables/dead-letter.sql.ts'
import {
  countWaiting,
  readReleased,
  readWaiting,
  removeStored,
  restStored,
  storeWaiting,
  type Scope,
} from '../../../src/consumer/tables/inbox.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import { DatabaseFailure } from './database-failure.ts'
import type { FakeStore } from './fake-store.ts'
import type { Attempt, InboxStore, Position, StoredMessage } from './inbox-tables.ts'
import { bytes, keyOf, laneOf, parseArray, texts } from './sql-text.ts'
import type { StatementContext } from './statement-context.ts'

const lanes = 64

export function defineWaiting(store: FakeStore, scope: Scope, data: InboxStore): void {
  const isMine = mineOf(scope)
  const isWaiting = (row: StoredMessage): boolean => isMine(row) && row.state === 4

  store.define('storeWaiting', storeWaiting(scope, []), async (context, values) => {
    const stored: StoredMessage[] = []
    const messages = messagesOf(scope, { values: values.slice(2), state: 4, now: context.now() })
    for (const message of messages.toSorted((a, b) => (a.eventId < b.eventId ? -1 : 1))) {
      const kept = await context.insert(data.message, numbered(data, message), 'nothing')
      if (kept !== undefined) stored.push(kept)
    }
    await count(context, data, { scope, messages: stored, sign: 1 })
    return []
  })

  store.define('readWaiting', readWaiting(scope, [], noBounds), async (context, values) => {
    const [types, ids] = [texts(values[0]), texts(values[1])]
    const [lookLimit, batchSize, batchBytes] = values.slice(-3).map(Number)
    const now = context.now()
    const isFailing = (row: StoredMessage): boolean => row.attempts > 0 && (row.nextAttemptAt ?? 0) > now
    const waiting = context.rows(data.message, isWaiting).toSorted(byAggregate)
    const found = types.flatMap((type, i) => {
      const line = waiting.filter((row) => row.type === type && row.id === ids[i]).slice(0, lookLimit)
      return line.filter((row) => !line.some((other) => other.version <= row.version && isFailing(other)))
    })
    return withinBounds(found, { batchSize, batchBytes }).map(toStoredRow)
  })

  const anyLine = { types: [], sequentialTypes: [], standing: [], known: [], deltaStart: 'any' } as const
  store.define('readReleased', readReleased(scope, anyLine, noBounds), async (context, values) => {
    const [startsAnywhere, sequentialTypes, , , types, standingTypes, standingEvents] = values
    const [lookLimit, batchSize, batchBytes] = values.slice(-3).map(Number)
    const now = context.now()
    const [known, sequential] = [texts(types), texts(sequentialTypes)]
    const standing = texts(standingTypes).map((type, i) => `${type}\n${texts(standingEvents)[i]}`)
    const waiting = context.rows(data.message, isWaiting).toSorted(byAggregate)
    const released = context
      .rows(data.position, (row) => isMine(row) && row.waiting > 0 && row.heldBy === null && known.includes(row.type))
      .flatMap((position) => {
        const line = waiting.filter((row) => row.type === position.type && row.id === position.id).slice(0, lookLimit)
        const isResting = (row: StoredMessage): boolean =>
          line.some((other) => other.version <= row.version && (other.nextAttemptAt ?? 0) > now)
        const isNext = (row: StoredMessage, place: number): boolean => {
          if (!sequential.includes(position.type)) return true
          if (startsAnywhere === true && position.version === 0) return place === 0
          if ((line[0]?.version ?? 0) <= position.version + 1) return row.version <= position.version + place + 1
          return standing.includes(`${row.type}\n${eventTypeOf(row)}`)
        }
        return line.filter((row, i) => isNext(row, i) && !isResting(row))
      })
    return withinBounds(released, { batchSize, batchBytes }).map(toStoredRow)
  })

  store.define('removeStored', removeStored(scope, []), async (context, [, , eventIds]) => {
    const asked = new Set(texts(eventIds))
    const isAsked = (row: StoredMessage): boolean => isWaiting(row) && asked.has(row.eventId)
    const gone = await context.remove(data.message, context.see(data.message, isAsked), isAsked)
    const isGone = (row: Attempt): boolean => isMine(row) && gone.some(({ eventId }) => eventId === row.eventId)
    await context.remove(data.attempt, context.see(data.attempt, isGone), isGone)
    await count(context, data, { scope, messages: gone, sign: -1 })
    return []
  })

  store.define(
    'restStored',
    restStored(scope, sampleItem, { delayMs: 0, error: '' }),
    async (context, [delayMs, , , , eventId]) => {
      const isIt = (row: StoredMessage): boolean => isWaiting(row) && row.eventId === eventId
      const set = (row: StoredMessage): StoredMessage => ({
        ...row,
        attempts: row.attempts + 1,
        nextAttemptAt: context.now() + Number(delayMs),
        startedAt: context.now(),
      })
      await context.updateAll(data.message, context.see(data.message, isIt), { set, still: isIt })
      return []
    },
  )

  store.define('clampMessageRetries', clampMessageRetries(scope), async (context) => {
    if (data.broken.has('a rest from the future has ended')) return []
    const now = context.now()
    const isBeyond = (row: StoredMessage): boolean =>
      isMine(row) && (row.state === 1 || row.state === 4) && (row.nextAttemptAt ?? 0) > now && (row.startedAt ?? 0) > now + 1_000
    const beyond = await context.lockAll(context.see(data.message, isBeyond), { still: isBeyond, skipLocked: true })
    const set = (row: StoredMessage): StoredMessage => ({ ...row, nextAttemptAt: context.now(), startedAt: null })
    await context.updateAll(data.message, beyond, { set })
    return []
  })

  store.define('countWaiting', countWaiting(scope), async (context) => {
    const waiting = context.rows(data.position, (row) => isMine(row) && row.waiting > 0)
    const messages = waiting.reduce((sum, row) => sum + row.waiting, 0)
    return [{ messages, aggregates: waiting.length, held: waiting.filter((row) => row.heldBy !== null).length, oldest_ms: null }]
  })
}

/** Who has a released message in hand. There are no dead letters here. */
export function defineLeases(store: FakeStore, scope: Scope, data: InboxStore): void {
  const isMine = mineOf(scope)
  store.define('takeWaiting', leasedWaiting.take(scope, [], 0), async (context, [, , ids, leaseMs]) => {
    const asked = new Set(texts(ids))
    const isFree = (row: StoredMessage): boolean =>
      isMine(row) && row.state === 4 && asked.has(row.eventId) && (row.nextAttemptAt ?? 0) <= context.now()
    const seen = context.see(data.message, isFree).toSorted((a, b) => (a.row.eventId < b.row.eventId ? -1 : 1))
    const free = await context.lockAll(seen, { still: isFree, skipLocked: true })
    const set = (row: StoredMessage): StoredMessage => ({
      ...row,
      nextAttemptAt: context.now() + Number(leaseMs),
      startedAt: context.now(),
    })
    const taken = await context.updateAll(data.message, free, { set })
    return taken.map((row) => ({ id: row.eventId, until: leaseOf(row) }))
  })
  store.define('renewWaiting', leasedWaiting.renew(scope, [], 0), async (context, [ids, untils, , , leaseMs]) => {
    const untilOf = new Map(texts(ids).map((id, i) => [id, texts(untils)[i]]))
    const isHeld = (row: StoredMessage): boolean =>
      isMine(row) && row.state === 4 && row.nextAttemptAt !== null && untilOf.get(row.eventId) === leaseOf(row)
    const seen = context.see(data.message, isHeld).toSorted((a, b) => (a.row.eventId < b.row.eventId ? -1 : 1))
    const held = await context.lockAll(seen, { still: isHeld, skipLocked: true })
    const set = (row: StoredMessage): StoredMessage => ({
      ...row,
      nextAttemptAt: context.now() + Number(leaseMs),
      startedAt: context.now(),
    })
    const renewed = await context.updateAll(data.message, held, { set })
    return renewed.map((row) => ({ id: row.eventId, until: leaseOf(row) }))
  })
  store.define('giveWaiting', leasedWaiting.give(scope, []), async (context, [ids, untils]) => {
    const untilOf = new Map(texts(ids).map((id, i) => [id, texts(untils)[i]]))
    const isTaken = (row: StoredMessage): boolean =>
      isMine(row) && row.nextAttemptAt !== null && untilOf.get(row.eventId) === leaseOf(row)
    const set = (row: StoredMessage): StoredMessage => ({ ...row, nextAttemptAt: null })
    await context.updateAll(data.message, context.see(data.message, isTaken), { set, still: isTaken })
    return []
  })
}

/** The end of a lease names it, and there are no two alike. */
function leaseOf({ nextAttemptAt }: StoredMessage): string {
  return String(nextAttemptAt)
}

export function defineAttempts(store: FakeStore, scope: Scope, data: InboxStore): void {
  const isMine = mineOf(scope)
  const fresh = (eventId: string): Attempt => ({
    consumer: scope.consumer,
    generation: scope.generation,
    eventId,
    attempts: 0,
    unfinished: 0,
  })
  store.define('startAttempts', startAttempts(scope, []), async (context, [, , ids]) => {
    for (const id of texts(ids).toSorted())
      await context.insert(data.attempt, { ...fresh(id), unfinished: 1 }, (row) => ({ ...row, unfinished: row.unfinished + 1 }))
    return []
  })
  store.define('readAttempts', readAttempts(scope, []), async (context, [, , ids]) =>
    context
      .rows(data.attempt, (row) => isMine(row) && texts(ids).includes(row.eventId))
      .map(({ eventId: id, attempts, unfinished }) => ({ id, attempts, unfinished })),
  )
  store.define('chargeAttempt', chargeAttempt(scope, '', ''), async (context, [, , id]) => {
    const charged = await context.insert(data.attempt, { ...fresh(String(id)), attempts: 1 }, (row) => ({
      ...row,
      attempts: row.attempts + 1,
      unfinished: 0,
    }))
    return [{ attempts: charged?.attempts ?? 0, first_at: '' }]
  })
  store.define('releaseAttempts', releaseAttempts(scope, []), async (context, [, , ids]) => {
    const isIt = (row: Attempt): boolean => isMine(row) && texts(ids).includes(row.eventId)
    for (const seen of context.see(data.attempt, isIt).toSorted((a, b) => (a.row.eventId < b.row.eventId ? -1 : 1))) {
      const mine = await context.lock(seen, { still: isIt })
      if (mine?.attempts === 0) await context.remove(data.attempt, [seen], isIt)
      else if (mine !== undefined)
        await context.update(data.attempt, seen, { set: (row) => ({ ...row, unfinished: 0 }), still: isIt })
    }
    return []
  })
  store.define('forgetAttempts', forgetAttempts(scope, []), async (context, [, , ids]) => {
    const isIt = (row: Attempt): boolean => isMine(row) && texts(ids).includes(row.eventId)
    await context.remove(data.attempt, context.see(data.attempt, isIt), isIt)
    return []
  })
  store.define('countDead', countDead(scope, 0), () => Promise.resolve([{ dead: 0 }]))
  store.define('readRedriving', readRedriving(scope, noBounds), () => Promise.resolve([]))
  store.define('clampLetterRetries', clampLetterRetries(scope, 0), () => Promise.resolve([]))
}

const noBounds = { batchSize: 0, batchBytes: 0 }

/** As many of them, in order, as one transaction takes. */
function withinBounds(
  found: readonly StoredMessage[],
  { batchSize, batchBytes = 0 }: { readonly batchSize: number | undefined; readonly batchBytes: number | undefined },
): readonly StoredMessage[] {
  let before = 0
  return found
    .toSorted(byAggregate)
    .slice(0, batchSize)
    .filter(({ body }) => (before += body.byteLength) - body.byteLength < batchBytes)
}

export function mineOf(scope: Scope): (row: { readonly consumer: string; readonly generation: number }) => boolean {
  return ({ consumer, generation }) => consumer === scope.consumer && generation === scope.generation
}

/** With the next number: drawn when it is the message's turn, whether it turns out to be new or not. */
export function numbered(data: InboxStore, message: StoredMessage): StoredMessage {
  return { ...message, seq: data.message.nextIdentity() }
}

/** Messages as the arrays of a statement name them. */
export function messagesOf(
  scope: Scope,
  { values, state, now }: { readonly values: readonly SqlValue[]; readonly state: number; readonly now: number },
): StoredMessage[] {
  const [eventIds, types, ids, versions, topics] = values.slice(0, 5).map(texts)
  const orderingKeys = parseArray(values[5])
  const [messageIds, attributes] = [texts(values[6]), texts(values[7])]
  const bodies = bytes(values[8])
  const published = texts(values[9])
  return (eventIds ?? []).map((eventId, i) => {
    const [type, id] = [types?.[i] ?? '', ids?.[i] ?? '']
    const key = keyOf(type, id)
    return {
      seq: 0,
      key,
      lane: laneOf(key, lanes),
      state,
      consumer: scope.consumer,
      generation: scope.generation,
      eventId,
      type,
      id,
      version: Number(versions?.[i]),
      attempts: 0,
      topic: topics?.[i] ?? '',
      orderingKey: orderingKeys[i] ?? null,
      messageId: messageIds[i] ?? '',
      attributes: attributes[i] ?? '{}',
      body: bodies[i] ?? Buffer.of(),
      publishedAt: published[i] ?? '',
      receivedAt: now,
      nextAttemptAt: null,
      startedAt: null,
    }
  })
}

/** Counts messages at their aggregates, whose rows are locked by the batch already. */
export async function count(
  context: StatementContext,
  data: InboxStore,
  counted: { readonly scope: Scope; readonly messages: readonly StoredMessage[]; readonly sign: 1 | -1 },
): Promise<void> {
  if (data.broken.has('what waits is counted')) return
  const isMine = mineOf(counted.scope)
  const isAt = (row: Position): boolean =>
    isMine(row) && counted.messages.some(({ type, id }) => type === row.type && id === row.id)
  const set = (row: Position): Position => {
    const here = counted.messages.filter(({ type, id }) => type === row.type && id === row.id).length
    const waiting = row.waiting + counted.sign * here
    if (waiting < 0) throw new DatabaseFailure('23514', 'violates check constraint "consumer_position_waiting_check"')
    return { ...row, waiting }
  }
  await context.updateAll(data.position, context.see(data.position, isAt), { set, still: isAt })
}

export function toStoredRow(row: StoredMessage): object {
  return {
    seq: String(row.seq),
    topic: row.topic,
    ordering_key: row.orderingKey,
    message_id: row.messageId,
    attributes: row.attributes,
    body: row.body,
    published_at_ms: String(Date.parse(row.publishedAt)),
  }
}

function byAggregate(a: StoredMessage, b: StoredMessage): number {
  const [left, right] = [`${a.type}\n${a.id}`, `${b.type}\n${b.id}`]
  return left === right ? a.version - b.version || b.seq - a.seq : left < right ? -1 : 1
}

function eventTypeOf({ attributes }: StoredMessage): string | undefined {
  return (JSON.parse(attributes) as Record<string, string>)['event_type']
}

const sampleItem = { event: { id: '' } } as Parameters<typeof restStored>[1]
