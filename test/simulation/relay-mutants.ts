/**
 * Relays and outboxes with one rule broken. The simulation is worth something only if it finds each of them.
 *
 * Some are those that the scripted scenarios use as well; the others break what a statement of the fake store means.
 */
import { relaySteps } from '../../src/outbox/relay/steps.ts'
import type { PublishOutcome } from '../../src/transport/port/transport.ts'
import { continueAfterFailure, cursorPolling, letThroughBehindHead } from '../outbox/mutants/order-mutants.ts'
import { unfencedSettle } from '../outbox/mutants/settle-mutants.ts'
import type { RelayMutant, RelayWorld } from './relay-world.ts'
import type { NamedMutant } from './simulation-suite.ts'

/** An answer that got lost is taken for a good one. */
const unknownIsConfirmed: RelayMutant = {
  steps: {
    decide: (plan, outcomes, rules) => {
      const taken = outcomes.map((outcome): PublishOutcome =>
        outcome.status === 'unavailable' ? { status: 'confirmed', messageId: 'none' } : outcome,
      )
      return relaySteps.decide(plan, taken, rules)
    },
  },
}

export const relayMutants: readonly NamedMutant<RelayMutant, RelayWorld>[] = [
  { name: 'lets rows through behind a head', make: () => letThroughBehindHead, found: /first-occurrence-order/ },
  { name: 'continues after a failure', make: () => continueAfterFailure, found: /first-occurrence-order/ },
  { name: 'settles without a fence', make: () => unfencedSettle, found: /wrote into a lane/ },
  { name: 'polls by a cursor', make: cursorPolling, found: /no-loss|liveness|first-occurrence-order/ },
  { name: 'takes what may have arrived for confirmed', make: () => unknownIsConfirmed, found: /no-loss|first-occurrence-order/ },
  { name: 'removes a head and promotes nobody', make: () => ({ broken: ['a head that goes is followed'] }), found: /liveness/ },
  { name: 'confirms without a lock on the lane', make: () => ({ broken: ['the fence locks'] }), found: /wrote into a lane/ },
  {
    name: 'removes a range',
    make: () => ({ broken: ['what was confirmed is removed and nothing else'] }),
    found: /no-loss|first-occurrence-order/,
  },
  {
    name: 'lets rows through behind a parked head',
    make: () => ({ broken: ['a parked head blocks'] }),
    found: /first-occurrence-order/,
  },
  {
    name: 'takes the place in line before the version',
    make: () => ({ broken: ['the version comes before the place'] }),
    found: /first-occurrence-order/,
  },
  {
    name: 'believes in leases from the future',
    make: () => ({ broken: ['a lease from the future has ended'] }),
    found: /liveness/,
  },
]
