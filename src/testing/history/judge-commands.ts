/**
 * What clients asked, what they were told, and what is in the database: one effect a request, one response, and the truth.
 *
 * Effects are usually read from the database when everything is over, so answers and effects come in any order; each pair is
 * compared when the second of the two is seen. Only a repeat needs the order of its source: one that was sent after somebody there
 * was told success cannot have lost a race.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Evidence } from './describe-entry.ts'
import type { Answer, Effect, Invoke } from './entry.ts'
import type { Findings, Judge, RestEvidence } from './invariants.ts'

type Invoked = Evidence & { readonly entry: Invoke }
type Answered = Evidence & { readonly entry: Answer }

interface Call {
  invoked?: Invoked
  answered?: Answered
  /** What was asked before from the same source, in the same words, and had been told success by then. */
  repeated?: Success | undefined
}

interface Success {
  readonly invoked: Invoked
  readonly answered: Answered
}

interface Request {
  readonly name: string
  readonly calls: Map<string, Call>
  effect?: Evidence & { readonly entry: Effect }
  /** The first answer that had a response. */
  response?: Answered
  /** The first of each source and payload. */
  readonly successes: Success[]
}

export function judgeCommands(findings: Findings): Judge {
  const requests = new Map<string, Request>()
  const requestOf = (name: string): Request => {
    const known = requests.get(name)
    if (known !== undefined) return known
    const request: Request = { name, calls: new Map(), successes: [] }
    requests.set(name, request)
    return request
  }
  const callOf = (request: Request, name: string): Call => {
    const call = request.calls.get(name) ?? {}
    request.calls.set(name, call)
    return call
  }
  return {
    see: (entry, line) => {
      if (entry.op === 'invoke') {
        const request = requestOf(entry.request)
        const call = callOf(request, entry.call)
        call.invoked = { line, entry }
        call.repeated = successOf(request, call.invoked)
      }
      if (entry.op === 'answer') {
        const request = requestOf(entry.request)
        const call = callOf(request, entry.call)
        call.answered = { line, entry }
        findings.check('ambiguity-is-info')
        compareResponses(request, { line, entry }, findings)
        judgeRepeat(request, call, findings)
        if (request.effect !== undefined) compare(request, call, findings)
      }
      if (entry.op === 'effect') {
        findings.check('one-effect-per-command')
        const request = requestOf(entry.request)
        if (request.effect !== undefined)
          return findings.violate('one-effect-per-command', `${entry.request} took effect twice`, [
            request.effect,
            { line, entry },
          ])
        request.effect = { line, entry }
        for (const call of request.calls.values()) compare(request, call, findings)
      }
    },
    end: (ended, rest) => {
      for (const request of requests.values()) judgeRequest(request, ended, rest)
    },
  }
}

/** What this source asked in these words and was told success of. */
function successOf({ successes }: Request, { entry }: Invoked): Success | undefined {
  return successes.find(({ invoked: { entry: earlier } }) => earlier.source === entry.source && earlier.payload === entry.payload)
}

/** Who was told success is not told failure of the same afterwards. */
function judgeRepeat(request: Request, { invoked, answered, repeated }: Call, findings: Findings): void {
  if (invoked === undefined || answered === undefined) return
  const { source, outcome, call } = answered.entry
  if (outcome === 'fail' && repeated !== undefined) {
    const text = `call ${call} of ${request.name} was told that it failed, and repeats one that was told success`
    findings.violate('ambiguity-is-info', text, [repeated.invoked, repeated.answered, invoked, answered])
  }
  if (outcome === 'ok' && source === invoked.entry.source && successOf(request, invoked) === undefined)
    request.successes.push({ invoked, answered })
}

/** Repeats get the same response, whoever answers. */
function compareResponses(request: Request, answer: Answered, findings: Findings): void {
  if (answer.entry.outcome !== 'ok' || answer.entry.response === undefined) return
  request.response ??= answer
  if (request.response.entry.response !== answer.entry.response)
    findings.violate('one-effect-per-command', `${request.name} was given two responses`, [request.response, answer])
}

/** One call's answer against the effect. */
function compare({ name, effect }: Request, { invoked, answered }: Call, findings: Findings): void {
  if (effect === undefined || answered === undefined) return
  const { outcome, response, call } = answered.entry
  if (outcome === 'fail' && effect.entry.call === call)
    findings.violate('ambiguity-is-info', `call ${call} of ${name} took effect and was told that it failed`, [answered, effect])
  if (outcome !== 'ok') return
  const isOther = (one: string | undefined, other: string | undefined): boolean =>
    one !== undefined && other !== undefined && !isDeepStrictEqual(one, other)
  if (isOther(response, effect.entry.response))
    findings.violate('one-effect-per-command', `${name} was given a response that is not that of its effect`, [answered, effect])
  if (invoked !== undefined && isOther(invoked.entry.payload, effect.entry.payload)) {
    const text = `${name} was answered ok for another payload than the one that took effect`
    findings.violate('one-effect-per-command', text, [invoked, answered, effect])
  }
}

/** What only the end can tell: success without an effect, and an effect that can only be of a call that was told failure. */
function judgeRequest({ name, calls, effect }: Request, findings: Findings, rest: RestEvidence): void {
  const answers = [...calls.values()].flatMap(({ answered }) => (answered === undefined ? [] : [answered]))
  if (effect === undefined) {
    const told = answers.find(({ entry }) => entry.outcome === 'ok')
    if (told === undefined) return
    return findings.violate('one-effect-per-command', `${name} was answered ok and has no effect`, [told, ...rest])
  }
  if (effect.entry.call !== undefined || [...calls.values()].some(mayHaveCaused)) return
  const failures = answers.filter(({ entry }) => entry.outcome === 'fail')
  if (failures.length > 0)
    findings.violate('ambiguity-is-info', `${name} took effect, and whoever may have caused it was told that it failed`, [
      ...failures,
      effect,
      ...rest,
    ])
}

/** Whether an effect of unknown origin may be this call's, going by what it was told. A replay tells of another call's. */
function mayHaveCaused({ answered }: Call): boolean {
  const { outcome = 'info', isReplay = false } = answered?.entry ?? {}
  return outcome === 'info' || (outcome === 'ok' && !isReplay)
}
