/**
 * Idempotent commands: markers, the locks of aggregates, and the rows of the small bank that the commands change.
 */
import {
  claimCommand,
  lockAggregates,
  selectMarker,
  selectVersions,
  updateMarker,
  type CommandTables,
} from '../../../src/command/model/command.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import type { FakeStore } from './fake-store.ts'
import { Table } from './mvcc.ts'
import type { OutboxStore } from './outbox-tables.ts'
import { texts } from './sql-text.ts'
import type { StatementContext } from './statement-context.ts'

export interface Marker {
  readonly principal: string
  readonly requestId: string
  readonly fingerprint: string
  readonly rejected: boolean
  readonly response: string | null
  readonly token: string | null
  readonly writtenBy: number
}

export interface LedgerRow {
  readonly requestId: string
  readonly account: string
  readonly amount: number
  readonly lucky: number
}

/** Rules of the SQL that a test may break, to see that it is missed. */
export type CommandRule = 'aggregates are locked' | 'a request has one marker'

export interface CommandStore {
  readonly broken: ReadonlySet<CommandRule>
  readonly marker: Table<Marker>
  readonly account: Table<{ readonly id: string; readonly balance: number }>
  readonly ledger: Table<LedgerRow>
}

export function commandStore(broken: readonly CommandRule[] = []): CommandStore {
  const key = ({ principal, requestId }: Marker): string => `${principal}\n${requestId}`
  return {
    broken: new Set(broken),
    marker: new Table(
      'command_marker',
      broken.includes('a request has one marker') ? [] : [{ name: 'command_marker_pkey', key }],
    ),
    account: new Table('account', [{ name: 'account_pkey', key: ({ id }) => id }]),
    ledger: new Table('ledger'),
  }
}

export function defineCommands(store: FakeStore, tables: CommandTables, data: CommandStore & Pick<OutboxStore, 'version'>): void {
  const markerKey = { principal: '', requestId: '' }
  const newMarker = { ...markerKey, command: '', fingerprint: '', lockTimeoutMs: 0 }
  store.define('claimCommand', claimCommand(tables, newMarker, []), async (context, values) => {
    const [principal, requestId, , fingerprint, types, ids, lockTimeoutMs] = values
    const marker: Marker = {
      principal: String(principal),
      requestId: String(requestId),
      fingerprint: String(fingerprint),
      rejected: false,
      response: null,
      token: null,
      writtenBy: context.tx.id,
    }
    // Without its unique key, a marker is looked for and then written.
    const isKnown = data.broken.has('a request has one marker') && context.rows(data.marker, sameRequest(marker)).length > 0
    if (isKnown || (await context.insert(data.marker, marker, 'nothing')) === undefined) return []
    context.tx.lockTimeoutMs = Number(lockTimeoutMs)
    if (texts(types).length === 0) return [{ type: null, id: null, version: null }]
    return await lockInOrder(context, data, { types, ids })
  })
  store.define('lockAggregates', lockAggregates(tables, []), (context, [types, ids]) =>
    lockInOrder(context, data, { types, ids }),
  )
  store.define('selectVersions', selectVersions(tables, []), async (context, [types, ids]) => {
    const asked = new Set(texts(types).map((type, i) => `${type}\n${texts(ids)[i]}`))
    return context.rows(data.version, ({ type, id }) => asked.has(`${type}\n${id}`)).map(versionRow)
  })
  store.define('selectMarker', selectMarker(tables, markerKey), async (context, [principal, requestId]) => {
    const isIt = sameRequest({ principal: String(principal), requestId: String(requestId) })
    return context.rows(data.marker, isIt).map(({ fingerprint, rejected, response, token, writtenBy }) => ({
      fingerprint,
      rejected,
      response,
      token,
      xmin: String(writtenBy),
      barrier: null,
    }))
  })
  store.define(
    'updateMarker',
    updateMarker(tables, markerKey, { rejected: false, response: '', token: null }),
    async (context, values) => {
      const [rejected, response, token, principal, requestId] = values
      const isIt = sameRequest({ principal: String(principal), requestId: String(requestId) })
      const set = (row: Marker): Marker => ({
        ...row,
        rejected: rejected === true,
        response: response as string | null,
        token: token as string | null,
        writtenBy: context.tx.id,
      })
      const isOwn = (row: Marker): boolean => isIt(row) && row.writtenBy === context.tx.id
      const own = context.see(data.marker, isOwn)
      await context.updateAll(data.marker, own, { set, still: isOwn })
      return [{ kept: own.length > 0 }]
    },
  )
}

/** The statements of test/command/bank.ts. */
export function defineBank(store: FakeStore, data: CommandStore): void {
  store.define('selectBalance', { text: 'select balance from account where id = $1', values: [] }, async (context, [id]) =>
    context.rows(data.account, (row) => row.id === id).map(({ balance }) => ({ balance })),
  )
  const upsert = 'insert into account (id, balance) values ($1, $2) on conflict (id) do update set balance = excluded.balance'
  store.define('setBalance', { text: upsert, values: [] }, async (context, [id, balance]) => {
    const row = { id: String(id), balance: Number(balance) }
    await context.insert(data.account, row, () => row)
    return []
  })
  const insert = 'insert into ledger (principal, request_id, account, amount, lucky) values ($1, $2, $3, $4, $5)'
  store.define('insertLedger', { text: insert, values: [] }, async (context, [, requestId, account, amount, lucky]) => {
    const row = { requestId: String(requestId), account: String(account), amount: Number(amount), lucky: Number(lucky) }
    await context.insert(data.ledger, row)
    return []
  })
}

/** One after the other, in the order of type and id, each made first if it is new. */
async function lockInOrder(
  context: StatementContext,
  data: CommandStore & Pick<OutboxStore, 'version'>,
  { types, ids }: { readonly types: SqlValue | undefined; readonly ids: SqlValue | undefined },
): Promise<object[]> {
  const idList = texts(ids)
  const wanted = new Map(texts(types).map((type, i) => [`${type}\n${idList[i]}`, { type, id: idList[i] ?? '' }]))
  const found: object[] = []
  for (const [, { type, id }] of [...wanted].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const lock = async (): Promise<object | undefined> => {
      await context.next()
      const [seen] = context.see(data.version, (row) => row.type === type && row.id === id)
      if (seen === undefined) return undefined
      const row = data.broken.has('aggregates are locked') ? seen.row : await context.lock(seen, { still: () => true })
      return row === undefined ? undefined : versionRow(row)
    }
    let locked = await lock()
    if (locked === undefined) {
      await context.next()
      await context.insert(data.version, { type, id, version: 0 }, 'nothing')
      locked = await lock()
    }
    if (locked !== undefined) found.push(locked)
  }
  return found
}

function sameRequest({ principal, requestId }: Pick<Marker, 'principal' | 'requestId'>): (row: Marker) => boolean {
  return (row) => row.principal === principal && row.requestId === requestId
}

function versionRow({ type, id, version }: { readonly type: string; readonly id: string; readonly version: number }): object {
  return { type, id, version: String(version) }
}
