/** A statement that was rewritten is noticed here, before a crash waits for it in vain. */
import { describe, expect, test } from 'vitest'
import { claimCommand, commandTables, updateMarker } from '../command/command.sql.ts'
import { claim } from '../consumer/claim.sql.ts'
import { inboxTables, type Scope } from '../consumer/inbox.sql.ts'
import { fenceLanes, giveLanes, readReceived, removeReceived, storeReceived, takeLanes } from '../consumer/stored.sql.ts'
import { confirmDispatch, readDispatch, settleDispatch } from '../outbox/dispatch.sql.ts'
import { addEvents, outboxTables } from '../outbox/outbox.sql.ts'
import { acquireLanes, renewLanes } from '../postgres/lanes.sql.ts'
import type { Statement } from '../postgres/sql.ts'
import { name } from '../postgres/sql.ts'
import { upsertNewer } from '../projection/versioned-upsert.sql.ts'
import { crashPlaces, crashPointName } from './crash-places.ts'

const outbox = outboxTables('waybill')
const commands = commandTables('waybill')
const scope: Scope = { tables: inboxTables('waybill'), consumer: 'c', generation: 1 }
const lease = { token: 't', worker: 'w', leaseMs: 1, count: 1, from: 0, lanes: [1], batchSize: 1, batchBytes: 1 }
const keep = { receipts: true, events: true }
const key = { principal: 'p', requestId: 'r' }
const upserted = { table: name('public', 'view'), keyColumns: ['id'], versionColumn: 'version', columns: ['title'] }

const confirming = confirmDispatch(outbox, 'relay', [], [], keep)
const settling = settleDispatch(outbox, 'relay', [], { confirmed: [], stopped: [], hold: [] }, keep)
const claiming = claim(scope, [], [])

/** Each place around a statement of ours, with that statement. */
const statements: Readonly<Record<string, Statement>> = {
  'writer: event added': addEvents(outbox, []),
  'command server: marker claimed': claimCommand(commands, { ...key, command: 'C', fingerprint: '', lockTimeoutMs: 1 }, []),
  'command server: events added': addEvents(outbox, []),
  'command server: response kept': updateMarker(commands, key, { rejected: false, response: '', token: null }),
  'relay: lanes acquired': acquireLanes(outbox, lease),
  'relay: lanes renewed': renewLanes(outbox, [], { leaseMs: 1, batch: undefined }),
  'relay: rows read': readDispatch(outbox, [], { heads: 1, chain: 1, bytes: 1 }),
  'relay: confirming': confirming,
  'relay: confirm sent': confirming,
  'relay: confirmed': confirming,
  'relay: settling': settling,
  'relay: settled': settling,
  'consumer: inbox claimed': claiming,
  'consumer: projection written': upsertNewer(upserted, '[]'),
  'stored consumer: message stored': storeReceived(scope, []),
  'stored consumer: lanes taken': takeLanes(scope, lease),
  'stored consumer: messages read': readReceived(scope, lease),
  'stored consumer: lanes fenced': fenceLanes(scope, lease),
  'stored consumer: inbox claimed': claiming,
  'stored consumer: messages removed': removeReceived(scope, []),
  'stored consumer: lanes given back': giveLanes(scope, lease),
}
const around = crashPlaces.flatMap((place) =>
  'statement' in place.at && place.at.statement !== 'own' ? [{ name: crashPointName(place), pattern: place.at.statement }] : [],
)

test('every place around a statement of ours is known with its statement', () => {
  expect(around.map((place) => place.name).toSorted()).toEqual(Object.keys(statements).toSorted())
})

describe('a place stands at its own statement, and at no other', () => {
  test.each(around)('$name', ({ name: place, pattern }) => {
    const texts = new Set(Object.values(statements).map(({ text }) => text))
    expect([...texts].filter((text) => pattern.test(text))).toEqual([statements[place]?.text])
  })
})
