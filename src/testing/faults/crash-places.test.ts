/**
 * A statement that was rewritten is noticed here, before a crash waits for it in vain; and a step that is new: it gets a place,
 * or a line in `steps-without-place.ts` that says why it needs none.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { claimCommand, commandTables, updateMarker } from '../../command/model/command.sql.ts'
import { claim } from '../../consumer/tables/claim.sql.ts'
import { bury, chargeAttempt, holdAggregate, markRedriven, startAttempts } from '../../consumer/tables/dead-letter.sql.ts'
import { inboxTables, removeStored, storeWaiting, type Scope } from '../../consumer/tables/inbox.sql.ts'
import {
  fenceLanes,
  giveLanes,
  readReceived,
  removeReceived,
  storeReceived,
  takeLanes,
} from '../../consumer/tables/stored.sql.ts'
import { confirmDispatch, readDispatch, settleDispatch } from '../../outbox/tables/dispatch.sql.ts'
import { addEvents, outboxTables } from '../../outbox/tables/outbox.sql.ts'
import { acquireLanes, renewLanes } from '../../postgres/lanes/lanes.sql.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { name } from '../../postgres/query/sql.ts'
import { upsertNewer } from '../../projection/versioned-upsert.sql.ts'
import { crashPlaces, crashPointName, type CrashMoment } from './crash-places.ts'
import { placed, portCalls, statementsWithoutPlace, strangeFailpoints } from '../../../test/crash-matrix/steps-without-place.ts'

const outbox = outboxTables('waybill')
const commands = commandTables('waybill')
const scope: Scope = { tables: inboxTables('waybill'), consumer: 'c', generation: 1 }
const lease = { token: 't', worker: 'w', leaseMs: 1, count: 1, from: 0, lanes: [1], batchSize: 1, batchBytes: 1 }
const keep = { receipts: true, events: true }
const key = { principal: 'p', requestId: 'r' }
const upserted = { table: name('public', 'view'), keyColumns: ['id'], versionColumn: 'version', columns: ['title'] }

/** A statement, and the function that makes it. */
interface Made {
  readonly by: unknown
  readonly text: string
}

function made<Args extends unknown[]>(by: (...args: Args) => Statement, ...args: Args): Made {
  return { by, text: by(...args).text }
}

const confirming = made(confirmDispatch, outbox, 'relay', [], [], keep)
const settling = made(settleDispatch, outbox, 'relay', [], { confirmed: [], stopped: [], hold: [] }, keep)
const claiming = made(claim, scope, [], 1)
const starting = made(startAttempts, scope, [])
const charging = made(chargeAttempt, scope, '', '')
const message = { topic: 't', messageId: 'm', orderingKey: undefined, attributes: {}, body: new Uint8Array(), publishedAtMs: 0 }
const given = { eventId: '', eventType: 'E', aggregate: undefined, message, error: '', attempts: 1, holds: false } as const
const burying = made(bury, scope, { ...given, reason: 'failed' })
const aggregate = { aggregateType: 'a', aggregateId: '1', version: 1n }
const held = { event: { ...aggregate, id: '', type: 'E', key: '', schemaVersion: 1, occurredAtMs: 0 } }

/** What both kinds of consumers do with an event that is given up. */
const burial = (role: string): Readonly<Record<string, Made>> => ({
  [`${role}: attempt charged`]: charging,
  [`${role}: last attempt charged`]: charging,
  [`${role}: letter written`]: burying,
  [`${role}: aggregate held`]: made(holdAggregate, scope, held),
  [`${role}: burial commit sent`]: burying,
  [`${role}: buried`]: burying,
  [`${role}: letter redriven`]: made(markRedriven, scope, []),
})

/** Each place around a statement of ours, with that statement. */
const statements: Readonly<Record<string, Made>> = {
  'writer: event added': made(addEvents, outbox, []),
  'command server: marker claimed': made(claimCommand, commands, { ...key, command: 'C', fingerprint: '', lockTimeoutMs: 1 }, []),
  'command server: events added': made(addEvents, outbox, []),
  'command server: response kept': made(updateMarker, commands, key, { rejected: false, response: '', token: null }),
  'relay: lanes acquired': made(acquireLanes, outbox, lease),
  'relay: lanes renewed': made(renewLanes, outbox, [], { leaseMs: 1, batch: undefined }),
  'relay: rows read': made(readDispatch, outbox, [], { heads: 1, chain: 1, bytes: 1 }),
  'relay: confirming': confirming,
  'relay: confirm sent': confirming,
  'relay: confirmed': confirming,
  'relay: settling': settling,
  'relay: settled': settling,
  ...burial('consumer'),
  'consumer: attempts started': starting,
  'consumer: inbox claimed': claiming,
  'consumer: projection written': made(upsertNewer, upserted, '[]'),
  'consumer: waiting stored': made(storeWaiting, scope, []),
  'consumer: waiting removed': made(removeStored, scope, []),
  ...burial('stored consumer'),
  'stored consumer: message stored': made(storeReceived, scope, []),
  'stored consumer: lanes taken': made(takeLanes, scope, lease),
  'stored consumer: messages read': made(readReceived, scope, lease),
  'stored consumer: lanes fenced': made(fenceLanes, scope, lease),
  'stored consumer: attempts started': starting,
  'stored consumer: inbox claimed': claiming,
  'stored consumer: messages removed': made(removeReceived, scope, []),
  'stored consumer: lanes given back': made(giveLanes, scope, lease),
}
const around = crashPlaces.flatMap((place) => {
  const pattern = patternOf(place.at)
  return pattern === undefined ? [] : [{ name: crashPointName(place), pattern }]
})

/** By what a statement of ours is known, around which a moment is, or around whose transaction. */
function patternOf(at: CrashMoment): RegExp | undefined {
  if ('transaction' in at) return at.of
  return 'statement' in at && at.statement !== 'own' ? at.statement : undefined
}

test('every place around a statement of ours is known with its statement', () => {
  expect(around.map((place) => place.name).toSorted()).toEqual(Object.keys(statements).toSorted())
})

describe('a place stands at its own statement, and at no other', () => {
  test.each(around)('$name', ({ name: place, pattern }) => {
    const texts = new Set(Object.values(statements).map(({ text }) => text))
    expect([...texts].filter((text) => pattern.test(text))).toEqual([statements[place]?.text])
  })
})

const source = fileURLToPath(new URL('../..', import.meta.url))
/** What the processes of the roles are made of. */
const roots = ['outbox/outbox.ts', 'outbox/relay/relay.ts', 'consumer/consumer.ts', 'command/commands.ts']

/** The functions of `*.sql.ts` that the roles use, by module and name. */
async function usedStatements(): Promise<ReadonlyMap<string, unknown>> {
  const used = new Map<string, unknown>()
  const seen = new Set<string>()
  const visit = async (file: string): Promise<void> => {
    if (seen.has(file)) return
    seen.add(file)
    const text = readFileSync(file, 'utf8')
    for (const [, names = '', from = ''] of text.matchAll(/^(?:import|export) (?!type )([^']*?) from '(\.[^']+)'/gm)) {
      const imported = join(file, '..', from)
      await visit(imported)
      if (imported.endsWith('.sql.ts')) await note(imported, names)
    }
    for (const [, from = ''] of text.matchAll(/\bimport\('(\.[^']+)'\)/g)) await visit(join(file, '..', from))
  }
  const note = async (file: string, names: string): Promise<void> => {
    const exported = (await import(file)) as Readonly<Record<string, unknown>>
    const module = relative(source, file).slice(0, -'.sql.ts'.length)
    for (const [name, value] of Object.entries(exported))
      if (isStatement(value) && (names.includes('*') || new RegExp(`(?<!type )\\b${name}\\b`).test(names)))
        used.set(`${module}.${name}`, value)
  }
  for (const root of roots) await visit(join(source, root))
  return used
}

/** A function that makes a statement, or an object of such functions. */
function isStatement(value: unknown): boolean {
  const makers = typeof value === 'object' && value !== null ? Object.values(value) : [value]
  return makers.some((maker) => typeof maker === 'function' && /\bsql\)?`/.test(String(maker)))
}

test('every statement of a role has a place, or a reason to have none', async () => {
  const withPlace = new Set(Object.values(statements).map(({ by }) => by))
  const without = [...(await usedStatements())].flatMap(([name, by]) => (withPlace.has(by) ? [] : [name]))
  expect(without.toSorted()).toEqual(Object.values(statementsWithoutPlace).flat().toSorted())
})

const placedCalls: Readonly<Record<keyof typeof portCalls, (at: CrashMoment) => string | undefined>> = {
  kafka: (at) => ('kafka' in at ? at.kafka : undefined),
  cache: (at) => ('cache' in at ? at.cache : undefined),
  delivery: (at) => ('delivery' in at && at.delivery !== 'received' ? 'ack' : undefined),
  publisher: (at) => ('publish' in at ? 'publish' : undefined),
}

test.each(['kafka', 'cache', 'delivery', 'publisher'] as const)(
  'every call of the port %s has a place, or a reason to have none',
  (port) => {
    const calls = Object.entries(portCalls[port]).flatMap(([call, why]) => (why === placed ? [call] : []))
    expect(new Set(calls)).toEqual(new Set(crashPlaces.flatMap(({ at }) => placedCalls[port](at) ?? [])))
  },
)

test('every failpoint that is named in the sources is a place, or has a reason not to be', () => {
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((file) => /(?<!\.test)\.ts$/.test(file))
  const naming = /\bhit\('([^']+)'\)|\bname: '([^']+)', method: /g
  const named = files.flatMap((file) =>
    [...readFileSync(join(source, file), 'utf8').matchAll(naming)].map(([, hit, around]) => hit ?? around ?? ''),
  )
  const places = new Set(crashPlaces.map(crashPointName))
  expect(named.filter((name) => !places.has(name)).toSorted()).toEqual(Object.values(strangeFailpoints).flat().toSorted())
})
