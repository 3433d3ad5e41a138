/**
 * One script of statements on two databases: the fake store and PostgreSQL. Both must answer the same.
 *
 * A script is a list of steps of several sessions, played one after the other. A step whose session still waits for a lock is
 * left out, on both sides alike. After each step both sides come to rest: everything that was started has been answered, or
 * waits for somebody else.
 */
import { setImmediate as turn } from 'node:timers/promises'
import pg from 'pg'
import { transactionStatus } from '../../src/postgres/transaction/commit-outcome.ts'
import { serverStart, type TransactionId } from '../../src/postgres/transaction/tx-scope.ts'
import { sql, type Statement } from '../../src/postgres/query/sql.ts'
import { sqlState } from '../../src/postgres/query/sql-state.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { FakeStore, Surroundings } from './store/fake-store.ts'
import type { Transaction } from './store/mvcc.ts'

/**
 * What a session does next: a word that means what it says, or a statement, which may depend on what the session read and took
 * last. `status` asks how the next session's last transaction ended.
 */
export type Step = Word | ((lastRead: readonly Record<string, unknown>[]) => Statement)

type Word = 'begin' | 'commit' | 'rollback' | keyof typeof wordStatements

/** The words for which we have statements. */
export const wordStatements = {
  status: statusOf(''),
} as const

/** Without a server: for how long it has not crashed is a time, which no two have in common. */
function statusOf(xid: string): Statement {
  return transactionStatus({ xid, server: undefined })
}

/** The rows, or the code of the error. */
export type Answer = readonly Record<string, unknown>[] | string

export interface Side {
  start(session: number, step: Word | Statement): void
  /** Resolves when every step under way was answered or waits for a lock. */
  rest(): Promise<void>
  isWaiting(session: number): boolean
  /** What was answered since the last time this was asked. */
  answers(): ReadonlyMap<number, Answer>
}

/**
 * A fake store's surroundings without any schedule: everything happens at once, and nobody waits in vain. Its clock counts from
 * the start of the process: so small a number has room for the parts by which two looks differ.
 */
export const atOnce: Surroundings = {
  nowMs: () => performance.now(),
  pause: () => Promise.resolve(),
  sleep: (_ms, signal) => new Promise((done) => signal.addEventListener('abort', () => done(), { once: true })),
}

/** Steps under way, and what came of them. */
class Ledger {
  readonly pending = new Set<number>()
  #answers = new Map<number, Answer>()

  track(session: number, work: Promise<readonly object[]>): void {
    this.pending.add(session)
    const done = (answer: Answer): void => {
      this.pending.delete(session)
      this.#answers.set(session, answer)
    }
    work.then(
      (rows) => done(rows as readonly Record<string, unknown>[]),
      (error: unknown) => done(sqlState(error) ?? String(error)),
    )
  }

  take(): ReadonlyMap<number, Answer> {
    const taken = this.#answers
    this.#answers = new Map()
    return taken
  }
}

export function fakeSide(store: FakeStore, sessions: number): Side {
  const ledger = new Ledger()
  const open: (Transaction | undefined)[] = Array.from({ length: sessions })
  const last: (Transaction | undefined)[] = Array.from({ length: sessions })
  const begin = (): Transaction => store.begin({ isolation: 'read committed', lockTimeoutMs: 0, startedBy: '' })
  const run = async (session: number, { text, values }: Statement): Promise<readonly object[]> => {
    const tx = open[session]
    if (tx !== undefined) return await store.run(tx, text, values)
    const own = begin()
    try {
      const rows = await store.run(own, text, values)
      store.commit(own)
      return rows
    } catch (error) {
      store.rollBack(own)
      throw error
    }
  }
  const end = async (session: number, how: 'commit' | 'rollback'): Promise<readonly object[]> => {
    const tx = open[session]
    open[session] = undefined
    if (tx !== undefined && how === 'commit') store.commit(tx)
    else if (tx !== undefined) store.rollBack(tx)
    return []
  }
  return {
    start: (session, step) => {
      const asked = last[(session + 1) % sessions]
      if (step === 'begin') last[session] = open[session] ??= begin()
      else if (typeof step !== 'string') ledger.track(session, run(session, step))
      else if (step === 'status') {
        if (asked !== undefined) ledger.track(session, run(session, statusOf(String(asked.id))))
      } else if (open[session] !== undefined) ledger.track(session, end(session, step))
    },
    rest: async () => {
      await turn()
    },
    isWaiting: (session) => ledger.pending.has(session),
    answers: () => ledger.take(),
  }
}

export interface PostgresSide extends Side {
  readonly admin: pg.Client
  /** Another script begins: no session has had a transaction. */
  forget(): void
  close(): Promise<void>
}

export async function postgresSide(url: string, sessions: number): Promise<PostgresSide> {
  const connect = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    return client
  }
  const [admin, ...clients] = (await Promise.all(Array.from({ length: sessions + 1 }, connect))) as [pg.Client, ...pg.Client[]]
  const pids = await Promise.all(
    clients.map(async (client) => (await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid ?? 0),
  )
  const ledger = new Ledger()
  const isIn: boolean[] = clients.map(() => false)
  const last: (Promise<TransactionId> | undefined)[] = clients.map(() => undefined)
  const run = async (client: pg.Client, { text, values }: Statement): Promise<object[]> =>
    (await client.query<object>(text, [...values])).rows
  const begin = async (client: pg.Client): Promise<TransactionId> => {
    const { text } = sql`begin; select pg_current_xact_id()::text as xid, ${serverStart} as server`
    const [, { rows }] = (await client.query(text)) as unknown as [unknown, { readonly rows: [TransactionId] }]
    return rows[0]
  }
  /**
   * Whoever is pending is blocked by somebody, and nobody else is at work: nothing more happens by itself. A failure is told
   * before the locks of its transaction are free.
   */
  const isAtRest = async (): Promise<boolean> => {
    const waiting = [...ledger.pending].map((session) => pids[session] ?? 0)
    const { rows } = await admin.query<{ busy: number }>(
      `select count(*)::int as busy from pg_stat_activity a
        where a.pid = any ($1::int[])
          and case when a.pid = any ($2::int[]) then cardinality(pg_blocking_pids(a.pid)) = 0 else a.state = 'active' end`,
      [pids, waiting],
    )
    return rows[0]?.busy === 0
  }
  return {
    admin,
    forget: () => void last.fill(undefined),
    start: (session, step) => {
      const client = clients[session] as pg.Client
      const asked = last[(session + 1) % sessions]
      if (step === 'begin') {
        if (isIn[session] === false) last[session] = begin(client)
        isIn[session] = true
      } else if (typeof step !== 'string') ledger.track(session, run(client, step))
      else if (step === 'status') {
        if (asked !== undefined)
          ledger.track(
            session,
            asked.then(({ xid }) => run(client, statusOf(xid))),
          )
      } else if (isIn[session] === true) {
        isIn[session] = false
        ledger.track(session, run(client, { text: step, values: [] }))
      }
    },
    rest: () => eventually(async () => (await isAtRest()) && (await isAtRest()), { intervalMs: 1 }).then(() => undefined),
    isWaiting: (session) => ledger.pending.has(session),
    answers: () => ledger.take(),
    close: async () => void (await Promise.all([admin, ...clients].map((client) => client.end()))),
  }
}

const twoWait = 'two wait'

/**
 * Whether timers or chance decide how a script goes on: who is served first of two that wait, who is a deadlock's victim,
 * who waited too long on a machine that was too busy.
 */
export function isUndecided(log: readonly string[]): boolean {
  return log.includes(twoWait) || log.some((line) => line.endsWith('40P01') || line.endsWith('55P03'))
}

/** Plays a script on one side; what each step led to, in order. Transactions that are open in the end are rolled back. */
export async function play(side: Side, script: readonly { readonly session: number; readonly step: Step }[]): Promise<string[]> {
  const log: string[] = []
  const read = new Map<number, readonly Record<string, unknown>[]>()
  const taken = new Map<number, readonly Record<string, unknown>[]>()
  const note = (): void => {
    for (const [session, answer] of [...side.answers()].toSorted(([a], [b]) => a - b)) {
      if (typeof answer !== 'string' && answer[0]?.['seq'] !== undefined) read.set(session, answer)
      if (typeof answer !== 'string' && answer[0]?.['until'] !== undefined) taken.set(session, answer)
      log.push(`${session} ${typeof answer === 'string' ? answer : normal(answer)}`)
    }
  }
  const sessions = [...new Set(script.map(({ session }) => session))]
  for (const [i, { session, step }] of script.entries()) {
    if (side.isWaiting(session)) {
      log.push(`${i}: ${session} waits`)
      continue
    }
    const said = typeof step === 'function' ? step([...(read.get(session) ?? []), ...(taken.get(session) ?? [])]) : step
    log.push(`${i}: ${session} ${typeof said === 'string' ? said : shown(said, taken.get(session) ?? [])}`)
    side.start(session, said)
    await side.rest()
    note()
    if (sessions.filter((each) => side.isWaiting(each)).length > 1) log.push(twoWait)
  }
  // Once more for every session: one that waited has its own transaction to end.
  for (const _ of sessions) {
    for (const session of sessions) if (!side.isWaiting(session)) side.start(session, 'rollback')
    await side.rest()
    note()
  }
  return log
}

/** Enough of a statement to recognise it, without the ends of the leases that it is about. */
function shown({ text, values }: Statement, taken: readonly Record<string, unknown>[]): string {
  const given = taken.reduce((all, row) => all.replaceAll(String(row['until']), 'until'), JSON.stringify(values))
  return `${text.replaceAll(/\s+/g, ' ').slice(0, 60)} … ${given}`
}

/** Rows without what a clock decides, in an order of their own. */
function normal(rows: readonly Record<string, unknown>[]): string {
  const clocked = new Set(['occurred_at', 'parked_at', 'first_at', 'published_at_ms', 'waited_ms', 'oldest_ms', 'xmin', 'until'])
  const lines = rows.map((row) =>
    JSON.stringify(
      Object.fromEntries(
        Object.entries(row)
          .filter(([name]) => !clocked.has(name))
          .map(([name, value]) => [name, plain(name, value)])
          .toSorted(([a], [b]) => (String(a) < String(b) ? -1 : 1)),
      ),
    ),
  )
  return lines.toSorted().join(' ')
}

function plain(name: string, value: unknown): unknown {
  if (name === 'wait_ms') return Number(value) > 0
  if (name === 'mine') return (JSON.parse(value as string) as number[]).toSorted((a, b) => a - b)
  if (name === 'attributes' || name === 'headers') return value === null ? null : (JSON.parse(value as string) as unknown)
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value
}
