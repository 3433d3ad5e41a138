/**
 * Lets a world of commands happen, and says what is wrong with it afterwards.
 *
 * When all have asked and nothing is broken any more, everything is asked again: first with what Redis still remembers, then
 * without. So whatever a killed or misled server left behind is seen by somebody.
 */
import type { Outcome } from '../../src/command/model/outcome.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { DepositResult } from './bank.ts'
import { answerViolations, ledgerOf, tableViolations, type AskedCall } from './chaos-judge.ts'
import type { Site } from './chaos-site.ts'
import { inputOf, inputs, serverCount, type Ask, type Input, type Strike, type World } from './chaos-world.ts'
import { newHistory, unheard, violations, type Call } from './history.ts'

let worlds = 0

export async function happen({ site, db }: { readonly site: Site; readonly db: Database }, world: World): Promise<string[]> {
  await site.heal()
  const name = `w${(worlds += 1)}`
  const book = newBook(site, name)
  await Promise.all(world.clients.map((asks) => beClient(book, asks)))
  await site.heal()

  const asked = distinct(world.clients.flat())
  for (const ask of asked) await book.ask(ask, { server: 0 })
  const beforeRest = violations(book.history, await ledgerOf(db, name))

  await site.flush()
  const unknown: string[] = []
  for (const ask of asked) if (!(await isAnswered(book, ask))) unknown.push(`${requestName(ask)}: nobody learns its outcome`)
  for (const ask of asked) {
    await book.ask(ask, { server: 0 })
    await book.ask({ ...ask, reuse: inputs.indexOf(inputOf(ask)) + 1 }, { server: 1 })
  }
  const ledger = await ledgerOf(db, name)
  const found = [...beforeRest, ...unknown, ...violations(book.history, ledger), ...answerViolations(book.calls)]
  return [...new Set([...found, ...(await tableViolations(db, name, ledger))])]
}

type Asked = Pick<Ask, 'principal' | 'request' | 'reuse'>
type Sending = Pick<Ask, 'server'> & Partial<Pick<Ask, 'lostRaces' | 'strike'>>

/** Sends requests and keeps what became of them. */
interface Book {
  readonly history: ReturnType<typeof newHistory>
  readonly calls: readonly AskedCall[]
  ask(asked: Asked, sending: Sending): Promise<{ readonly call: Call; readonly isStruck: boolean }>
}

function newBook(site: Site, name: string): Book {
  const history = newHistory()
  const calls: AskedCall[] = []
  /** The input of each request that somebody was told has taken effect. */
  const told = new Map<string, Input>()
  return {
    history,
    calls,
    ask: async (asked, { server, lostRaces = 0, strike }) => {
      const request = requestName(asked)
      const input = inputOf(asked)
      const toldBefore = told.get(request)
      const running = site.run(server, jobOf(name, asked, lostRaces), strike)
      const call = await history.record({ requestId: request, amount: input.amount }, async () => {
        const { answer } = await running
        calls.push({ request, input, toldBefore, answer })
        if (answer === undefined) return unheard
        if (answer.outcome === undefined) throw new Error(answer.error)
        return answer.outcome
      })
      // Throws if the site itself broke, which is nothing that a client is told.
      const ran = await running
      call.drawn.push(...(ran.answer?.drawn ?? []))
      if (isSuccess(call.outcome)) told.set(request, input)
      return { call, isStruck: ran.isStruck }
    },
  }
}

/** Principals and accounts are the world's own; request ids are the same in all worlds. */
function jobOf(world: string, asked: Asked, lostRaces: number): Parameters<Site['run']>[1] {
  const { command, account, amount } = inputOf(asked)
  return {
    command,
    principal: `${world}-${asked.principal}`,
    requestId: `r${asked.request}`,
    input: { account: `${world}-${account}`, amount },
    lostRaces,
  }
}

async function beClient(book: Book, asks: readonly Ask[]): Promise<void> {
  let strike: Strike | undefined
  for (const ask of asks) {
    strike = ask.strike ?? strike
    for (let sent = 0; sent < ask.tries; sent += 1) {
      const server = (ask.server + sent) % serverCount
      const { call, isStruck } = await book.ask(ask, { server, lostRaces: ask.lostRaces, strike })
      if (isStruck) strike = undefined
      if (isKnown(call)) break
    }
  }
}

async function isAnswered(book: Book, ask: Asked): Promise<boolean> {
  const known = eventually(async () => isKnown((await book.ask(ask, { server: 1 })).call), { timeoutMs: 60_000 })
  return await known.then(
    () => true,
    () => false,
  )
}

/** Nothing more is to be learnt by asking again. */
function isKnown({ outcome }: Call): boolean {
  return (
    outcome !== undefined && !(outcome.status === 'failed' && ['IN_PROGRESS', 'OVERLOADED', 'UNAVAILABLE'].includes(outcome.code))
  )
}

function isSuccess(outcome: Outcome<DepositResult> | undefined): boolean {
  if (outcome?.status === 'failed') return outcome.code === 'ALREADY_COMMITTED'
  return outcome?.status === 'executed' || outcome?.status === 'replayed'
}

function requestName({ principal, request }: Asked): string {
  return `${principal}/r${request}`
}

function distinct(asks: readonly Ask[]): readonly Asked[] {
  const all = asks.map((ask) => [`${requestName(ask)} ${inputOf(ask).amount}`, ask] as const)
  return [...new Map<string, Asked>(all).values()]
}
