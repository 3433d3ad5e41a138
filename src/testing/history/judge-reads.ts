/**
 * What readers get: at rest the owner's states, and with a token never anything older.
 */
import type { Evidence } from './describe-entry.ts'
import { aggregateTypeOf, type State } from './entry.ts'
import type { Findings, Judge, RestEvidence } from './invariants.ts'

interface StateEvidence extends Evidence {
  readonly entry: State
}

type States = Map<string, StateEvidence>

/** The last state of each aggregate counts; whatever was different before was on its way. */
export function judgeProjections(): Judge {
  const owner: States = new Map()
  const projections = new Map<string, States>()
  const declared = new Map<string, Map<string, Evidence>>()
  return {
    see: (entry, line) => {
      if (entry.op === 'state') {
        const states = entry.consumer === undefined ? owner : at(projections, entry.consumer, () => new Map())
        states.set(entry.aggregate, { line, entry })
      }
      if (entry.op !== 'follow' || entry.projects === undefined) return
      const types = at(declared, entry.consumer, () => new Map())
      for (const type of entry.projects) types.set(type, { line, entry })
    },
    end: (findings, rest) => {
      for (const consumer of new Set([...projections.keys(), ...declared.keys()])) {
        const context = {
          consumer,
          owner,
          states: projections.get(consumer) ?? new Map(),
          declared: declared.get(consumer) ?? new Map(),
        }
        compareStates(context, findings, rest)
      }
    },
  }
}

interface Compared {
  readonly consumer: string
  readonly owner: States
  readonly states: States
  readonly declared: ReadonlyMap<string, Evidence>
}

function compareStates({ consumer, owner, states, declared }: Compared, findings: Findings, rest: RestEvidence): void {
  const judge = (aggregate: string, evidence: readonly Evidence[]): void => {
    findings.check('projection-equals-owner')
    const [own, projected] = [owner.get(aggregate)?.entry.value ?? null, states.get(aggregate)?.entry.value ?? null]
    if (own === projected) return
    const text = `${aggregate} is ${shown(projected)} at ${consumer}, and ${shown(own)} at the owner`
    findings.violate('projection-equals-owner', text, [...evidence, ...rest])
  }
  for (const [aggregate, state] of states) {
    const own = owner.get(aggregate)
    judge(aggregate, own === undefined ? [state] : [own, state])
  }
  for (const [aggregate, own] of owner) {
    const declaration = declared.get(aggregateTypeOf(aggregate))
    if (declaration !== undefined && !states.has(aggregate)) judge(aggregate, [declaration, own])
  }
}

const shownLength = 120

function shown(value: string | null): string {
  if (value === null) return 'not there'
  return value.length > shownLength ? `${value.slice(0, shownLength)}…` : value
}

function at<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const known = map.get(key)
  if (known !== undefined) return known
  const made = make()
  map.set(key, made)
  return made
}

/** Each read stands for itself. */
export function judgeReads(findings: Findings): Judge {
  return {
    see: (entry, line) => {
      if (entry.op !== 'read' || entry.atLeast === undefined) return
      findings.check('read-your-writes')
      const { aggregate, atLeast, served, by } = entry
      if (served < atLeast)
        findings.violate('read-your-writes', `${aggregate} was read as v${served} from the ${by} with a token of v${atLeast}`, [
          { line, entry },
        ])
    },
    end: () => {},
  }
}

/** Whether everybody who says that it is at rest has nothing left, and got there in time. */
export function judgeLiveness(): Judge {
  const rests = new Map<string, RestEvidence[number]>()
  return {
    see: (entry, line) => {
      if (entry.op === 'rest') rests.set(entry.source ?? '', { line, entry })
    },
    end: (findings) => {
      for (const evidence of rests.values()) {
        const { left, tookMs, limitMs } = evidence.entry
        const isTimed = tookMs !== undefined && limitMs !== undefined
        // Who says neither what is left nor how long it took has only said that nothing more comes.
        if (left !== undefined || isTimed) findings.check('liveness')
        for (const [what, count] of Object.entries(left ?? {}))
          if (count > 0) findings.violate('liveness', `${count} ${what} are left`, [evidence])
        if (isTimed && tookMs > limitMs)
          findings.violate('liveness', `it took ${tookMs} ms to come to rest, and ${limitMs} ms are allowed`, [evidence])
      }
    },
  }
}
