/**
 * What was asked, what was answered and what is in the ledger, and the checker that compares them.
 *
 * A call is one `commands.run`. What it planned is known by the number it drew, so that every effect can be traced to its call.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { isDeepStrictEqual } from 'node:util'
import type { Outcome } from '../../src/command/outcome.ts'
import type { DepositResult, LedgerRow } from './bank.ts'

export interface Call {
  readonly requestId: string
  readonly amount: number
  /** The numbers that its plan drew; one, if the plan ran once. */
  readonly drawn: number[]
  executes: number
  outcome?: Outcome<DepositResult>
  /** It threw: a definite failure. */
  error?: unknown
}

const current = new AsyncLocalStorage<Call>()

export interface History {
  readonly calls: Call[]
  /** Runs one call and keeps what became of it. */
  record(asked: Pick<Call, 'requestId' | 'amount'>, run: () => Promise<Outcome<DepositResult>>): Promise<Call>
}

export function newHistory(): History {
  const calls: Call[] = []
  return {
    calls,
    record: async (asked, run) => {
      const call: Call = { ...asked, drawn: [], executes: 0 }
      calls.push(call)
      await current.run(call, async () => {
        try {
          call.outcome = await run()
        } catch (error) {
          call.error = error
        }
      })
      return call
    },
  }
}

/** The call that is running here. */
export function currentCall(): Call | undefined {
  return current.getStore()
}

/** Everything that is wrong; nothing, if the promises were kept. */
export function violations({ calls }: Pick<History, 'calls'>, ledger: readonly LedgerRow[]): string[] {
  const found: string[] = []
  for (const requestId of new Set(calls.map((call) => call.requestId))) {
    const asked = calls.filter((call) => call.requestId === requestId)
    const effects = ledger.filter((row) => row.request_id === requestId)
    found.push(...requestViolations(requestId, asked, effects))
  }
  return found
}

function requestViolations(requestId: string, asked: readonly Call[], effects: readonly LedgerRow[]): string[] {
  const found: string[] = []
  const say = (what: string): void => void found.push(`${requestId}: ${what}`)
  const [effect] = effects
  if (effects.length > 1) say(`${effects.length} effects`)
  if (effects.length === 0 && asked.some(toldSuccess)) say('somebody was told success, and there is no effect')
  for (const call of asked) {
    if (call.drawn.length > 1) say('one call planned more than once')
    const isOwn = effect !== undefined && call.drawn.includes(effect.lucky)
    if (isOwn && (call.error !== undefined || call.outcome?.status === 'rejected')) say('a committed command was called failed')
    if (isOwn && call.drawn[0] !== effect.lucky) say('the effect is not what was planned')
    if (effect !== undefined && call.amount !== effect.amount && toldSuccess(call))
      say('another payload was answered as if it were the same')
  }
  const responses = asked.map(responseOf).filter((response) => response !== undefined)
  if (responses.some((response) => !isDeepStrictEqual(response, responses[0]))) say('repeats got different responses')
  if (effect !== undefined && responses.some((response) => response.lucky !== effect.lucky))
    say('a response is not that of the effect')
  return found
}

function toldSuccess({ outcome }: Call): boolean {
  if (outcome?.status === 'executed' || outcome?.status === 'replayed') return true
  return outcome?.status === 'failed' && outcome.code === 'ALREADY_COMMITTED'
}

function responseOf({ outcome }: Call): DepositResult | undefined {
  return outcome?.status === 'executed' || outcome?.status === 'replayed' ? outcome.response : undefined
}
