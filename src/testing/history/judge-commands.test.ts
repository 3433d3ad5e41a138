import { expect, test } from 'vitest'
import { checkHistory } from './checker.ts'
import type { HistoryEntry } from './entry.ts'

const invoke = (call: string, payload?: string): HistoryEntry => ({
  op: 'invoke',
  call,
  request: 'r1',
  ...(payload === undefined ? {} : { payload }),
})
const answer = (call: string, outcome: 'ok' | 'fail' | 'info', response?: string): HistoryEntry => ({
  op: 'answer',
  call,
  request: 'r1',
  outcome,
  ...(response === undefined ? {} : { response }),
})
const replay = (call: string): HistoryEntry => ({ op: 'answer', call, request: 'r1', outcome: 'ok', isReplay: true })
const effect = (more: { call?: string; payload?: string; response?: string } = {}): HistoryEntry => ({
  op: 'effect',
  request: 'r1',
  ...more,
})
const rest: HistoryEntry = { op: 'rest' }
const violationsOf = (history: readonly HistoryEntry[]): string[] => checkHistory(history).violations.map(({ text }) => text)

test.each<{ readonly what: string; readonly history: readonly HistoryEntry[]; readonly found: readonly string[] }>([
  {
    what: 'repeats get different responses',
    history: [effect(), invoke('c1'), answer('c1', 'ok', '17'), invoke('c2'), answer('c2', 'ok', '18')],
    found: ['one-effect-per-command: r1 was given two responses'],
  },
  {
    what: 'a response is not that of the effect',
    history: [invoke('c1'), answer('c1', 'ok', '17'), effect({ response: '18' })],
    found: ['one-effect-per-command: r1 was given a response that is not that of its effect'],
  },
  {
    what: 'another payload is answered as if it were the same',
    history: [effect({ payload: '5' }), invoke('c1', '7'), answer('c1', 'ok')],
    found: ['one-effect-per-command: r1 was answered ok for another payload than the one that took effect'],
  },
  {
    what: 'success is told, and there is no effect',
    history: [invoke('c1'), answer('c1', 'ok'), rest],
    found: ['one-effect-per-command: r1 was answered ok and has no effect'],
  },
  {
    what: 'everybody is told failure of what took effect',
    history: [invoke('c1'), answer('c1', 'fail'), effect(), rest],
    found: ['ambiguity-is-info: r1 took effect, and whoever may have caused it was told that it failed'],
  },
  {
    what: 'failure is told of what took effect, and a repeat gets the response of that effect',
    history: [invoke('c1'), answer('c1', 'fail'), invoke('c2'), replay('c2'), effect(), rest],
    found: ['ambiguity-is-info: r1 took effect, and whoever may have caused it was told that it failed'],
  },
  {
    what: 'a repeat is told failure of what was told success before',
    history: [invoke('c1', 'p'), answer('c1', 'ok'), invoke('c2', 'p'), answer('c2', 'fail'), effect({ call: 'c1' }), rest],
    found: ['ambiguity-is-info: call c2 of r1 was told that it failed, and repeats one that was told success'],
  },
])('it is found, and nothing else, when $what', ({ history, found }) => {
  expect(violationsOf(history)).toEqual(found)
})

test.each<{ readonly what: string; readonly history: readonly HistoryEntry[] }>([
  { what: 'an effect of a call that nobody heard of again', history: [invoke('c1'), effect({ call: 'c1' }), rest] },
  { what: 'no effect of a call whose outcome nobody knows', history: [invoke('c1'), answer('c1', 'info'), rest] },
  {
    what: 'failure of one call, and success of the next',
    history: [invoke('c1'), answer('c1', 'fail'), invoke('c2'), answer('c2', 'ok'), invoke('c3'), replay('c3'), effect(), rest],
  },
  {
    what: 'failure of one call, and a replay of what another did, of which nobody knows',
    history: [invoke('c1'), answer('c1', 'info'), invoke('c2'), answer('c2', 'fail'), invoke('c3'), replay('c3'), effect(), rest],
  },
  {
    what: 'failure of one call, and a replay of what another did that was never answered',
    history: [invoke('c1'), invoke('c2'), answer('c2', 'fail'), invoke('c3'), replay('c3'), effect(), rest],
  },
  {
    what: 'failure of a call that was sent before success was told',
    history: [invoke('c1'), invoke('c2'), answer('c1', 'ok'), answer('c2', 'fail'), effect({ call: 'c1' }), rest],
  },
  {
    what: 'failure of another payload after success',
    history: [invoke('c1', 'p'), answer('c1', 'ok'), invoke('c2', 'q'), answer('c2', 'fail'), effect({ call: 'c1' }), rest],
  },
  {
    what: 'failure elsewhere, of which nobody knows whether it was sent before or after success was told',
    history: [
      invoke('c1'),
      answer('c1', 'ok'),
      { ...invoke('c2'), source: 'other' },
      { ...answer('c2', 'fail'), source: 'other' },
      effect({ call: 'c1' }),
      rest,
    ],
  },
])('it is no violation: $what', ({ history }) => {
  expect(violationsOf(history)).toEqual([])
})
