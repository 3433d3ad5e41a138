/**
 * Consumers with one rule broken. The simulation is worth something only if it finds each of them.
 */
import type { ConsumerMutant, ConsumerWorld } from './consumer-world.ts'
import type { NamedMutant } from './simulation-suite.ts'

/** Says that it is done before it has begun. */
const acksFirst: ConsumerMutant = {
  delivery: (delivery) => {
    void delivery.ack()
    return delivery
  },
}

export const consumerMutants: readonly NamedMutant<ConsumerMutant, ConsumerWorld>[] = [
  { name: 'acknowledges before the commit', make: () => acksFirst, found: /lost/ },
  {
    name: 'looks for duplicates before it writes',
    make: () => ({ broken: ['a duplicate waits for the first'] }),
    found: /doubled|out of turn/,
  },
  {
    name: 'writes what is older than the row',
    make: () => ({ brokenView: ['an old version changes nothing'] }),
    found: /went back|wrong view/,
  },
  {
    name: 'deletes rows instead of keeping tombstones',
    make: () => ({ brokenView: ['a tombstone stays'] }),
    found: /went back|wrong view/,
  },
  { name: 'sets positions back', make: () => ({ broken: ['a position never goes back'] }), found: /went back/ },
  { name: 'does not count what waits', make: () => ({ broken: ['what waits is counted'] }), found: /lost|left/ },
  { name: 'applies deltas over a gap', make: () => ({ overGaps: true }), found: /out of turn/ },
  { name: 'works lanes that are another’s', make: () => ({ broken: ['a lane is fenced'] }), found: /removed from a lane/ },
  {
    name: 'believes in rests from the future',
    // Stored messages that rest when the clock is set back.
    within: (world) => ({
      ...world,
      mode: 'stored',
      failEvery: 3,
      faults: world.faults.map((fault) => ({ ...fault, kind: 'setBack' })),
    }),
    make: () => ({ broken: ['a rest from the future has ended'] }),
    found: /lost|left/,
  },
]
