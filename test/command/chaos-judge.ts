/**
 * What the history checker does not ask about commands: what those are told who come after somebody was told success, and whether
 * the tables agree with each other.
 */
import type { Database } from '../../src/postgres/query/database.ts'
import type { LedgerRow } from './bank.ts'
import type { Answer } from './chaos-server.ts'
import type { Input } from './chaos-world.ts'

/** A call, and what its request was known to have done when it was sent. */
export interface AskedCall {
  readonly request: string
  readonly input: Input
  readonly toldBefore: Input | undefined
  readonly answer: Answer | undefined
}

/** The ledger of a world, with requests named as its history names them. */
export async function ledgerOf(db: Database, world: string): Promise<readonly LedgerRow[]> {
  const { rows } = await db.query('select * from ledger where principal like $1 order by id', [`${world}-%`])
  return (rows as LedgerRow[]).map((row) => ({ ...row, request_id: nameOf(world, row) }))
}

/**
 * Nothing is thrown at a client. A repeat gets the response, or ALREADY_COMMITTED where none is kept; another input is refused;
 * neither does anything.
 */
export function answerViolations(calls: readonly AskedCall[]): string[] {
  return calls.flatMap(({ request, input, toldBefore, answer }) => {
    if (answer === undefined) return []
    const { outcome, error, executes } = answer
    if (outcome === undefined) return [`${request}: the pipeline threw "${error}"`]
    const told = outcome.status === 'failed' ? outcome.code : outcome.status
    const isKept = input.command !== 'Deposit'
    const isWithheld = isKept && told === 'ALREADY_COMMITTED'
    const found = isWithheld ? [`${request}: the response was kept, and a repeat did not get it`] : []
    if (toldBefore === undefined) return found
    const isRepeat = toldBefore.amount === input.amount
    const allowed: readonly string[] = isRepeat
      ? ['replayed', 'ALREADY_COMMITTED', 'OVERLOADED', 'UNAVAILABLE']
      : ['KEY_REUSED', 'OVERLOADED', 'UNAVAILABLE']
    const what = isRepeat ? 'a repeat of a committed command' : 'another input for a committed request'
    return [
      ...found,
      ...(allowed.includes(told) ? [] : [`${request}: ${what} was told ${told}`]),
      ...(executes === 0 ? [] : [`${request}: ${what} executed`]),
    ]
  })
}

/** At rest: one marker for each effect, a balance that is the sum of the effects, and one event for each of them. */
export async function tableViolations(db: Database, world: string, ledger: readonly LedgerRow[]): Promise<string[]> {
  const found: string[] = []
  const { rows: markers } = await db.query('select principal, request_id from waybill.command_marker where principal like $1', [
    `${world}-%`,
  ])
  const marked = (markers as Pick<LedgerRow, 'principal' | 'request_id'>[]).map((row) => nameOf(world, row)).toSorted()
  const done = ledger.map((row) => row.request_id).toSorted()
  if (marked.join() !== done.join()) found.push(`effects of ${done.join()}, markers of ${marked.join()}`)
  const { rows: accounts } = await db.query(
    `select a.id, a.balance, v.version::int as version,
            (select count(*)::int from waybill.outbox o where o.aggregate_type = 'account' and o.aggregate_id = a.id) as events
       from account a left join waybill.aggregate_version v on v.aggregate_type = 'account' and v.aggregate_id = a.id
      where a.id like $1`,
    [`${world}-%`],
  )
  for (const { id, balance, version, events } of accounts as { id: string; balance: number; version: number; events: number }[]) {
    const own = ledger.filter(({ account }) => account === id)
    const sum = own.reduce((total, { amount }) => total + amount, 0)
    if (balance !== sum) found.push(`${id} has ${balance}, and its ledger adds up to ${sum}`)
    if (version !== own.length || events !== own.length)
      found.push(`${id} has ${own.length} effects, ${events} events and version ${version}`)
  }
  return found
}

function nameOf(world: string, { principal, request_id: request }: Pick<LedgerRow, 'principal' | 'request_id'>): string {
  return `${principal.slice(world.length + 1)}/${request}`
}
