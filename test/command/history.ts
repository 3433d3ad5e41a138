/**
 * What was asked, what was answered and what is in the ledger, for the history checker.
 *
 * A call is one `commands.run`. What it planned is known by the number it drew, so that every effect can be traced to its call.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { failed, type Outcome } from '../../src/command/model/outcome.ts'
import { checkHistory } from '../../src/testing/history/checker.ts'
import { createHistory, type Recorder } from '../../src/testing/history/history.ts'
import { answerOf } from '../../src/testing/history/message-entries.ts'
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
  /** Each call when it was sent, and again when it was answered. */
  readonly order: readonly Call[]
  /** Runs one call and keeps what became of it. */
  record(asked: Pick<Call, 'requestId' | 'amount'>, run: () => Promise<Outcome<DepositResult>>): Promise<Call>
}

export function newHistory(): History {
  const calls: Call[] = []
  const order: Call[] = []
  return {
    calls,
    order,
    record: async (asked, run) => {
      const call: Call = { ...asked, drawn: [], executes: 0 }
      calls.push(call)
      order.push(call)
      await current.run(call, async () => {
        try {
          call.outcome = await run()
        } catch (error) {
          call.error = error
        }
      })
      order.push(call)
      return call
    },
  }
}

/** Of a process that died before it answered nothing is known, which is neither success nor failure. */
export const unheard: Outcome<DepositResult> = failed('UNAVAILABLE', 'The process died before it answered.')

/** The call that is running here. */
export function currentCall(): Call | undefined {
  return current.getStore()
}

/** Everything that is wrong; nothing, if the promises were kept. */
export function violations({ calls, order }: Pick<History, 'calls' | 'order'>, ledger: readonly LedgerRow[]): string[] {
  const history = createHistory()
  recordCalls(history, calls, order)
  const asked = new Set(calls.map(({ requestId }) => requestId))
  const balances = new Map<string, number>()
  for (const { account, amount, lucky, request_id: request } of ledger) {
    const balance = (balances.get(account) ?? 0) + amount
    balances.set(account, balance)
    if (!asked.has(request)) continue
    const index = calls.findIndex((each) => each.requestId === request && each.drawn.includes(lucky))
    const call = index === -1 ? {} : { call: `call ${index}` }
    history.record({ op: 'effect', request, ...call, payload: String(amount), response: JSON.stringify({ balance, lucky }) })
  }
  history.record({ op: 'rest' })
  return [...checkHistory(history.entries).violations.map(({ text }) => text), ...planViolations(calls, ledger)]
}

function recordCalls(history: Recorder, calls: readonly Call[], order: readonly Call[]): void {
  const names = new Map(calls.map((each, index) => [each, `call ${index}`]))
  const sent = new Set<Call>()
  for (const each of order) {
    const { requestId: request, amount, outcome, error } = each
    const call = names.get(each) ?? ''
    if (!sent.has(each)) history.record({ op: 'invoke', call, request, payload: String(amount) })
    else if (error !== undefined) history.record({ op: 'answer', call, request, outcome: 'fail' })
    else if (outcome !== undefined) history.record({ op: 'answer', call, request, ...answerOf(outcome) })
    sent.add(each)
  }
}

/** A call plans once, and what it planned is what happens. */
function planViolations(calls: readonly Call[], ledger: readonly LedgerRow[]): string[] {
  return calls.flatMap(({ requestId, drawn }) => {
    const effect = ledger.find((row) => row.request_id === requestId && drawn.includes(row.lucky))
    return [
      ...(drawn.length > 1 ? [`${requestId}: one call planned more than once`] : []),
      ...(effect !== undefined && drawn[0] !== effect.lucky ? [`${requestId}: the effect is not what was planned`] : []),
    ]
  })
}
