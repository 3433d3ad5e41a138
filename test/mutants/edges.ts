/** Mistakes at the edges of services: leases at the broker, sockets and sessions. */
import type { SourceMutant } from './source-mutant.ts'

export const edgeMutants: readonly SourceMutant[] = [
  {
    mutant: 'holds what a killed consumer had in hand for a minute',
    file: 'src/transport/pubsub-lease.ts',
    from: 'return isExactlyOnce ? 60_000 : 15_000',
    to: 'return 60_000',
    caughtBy: {
      file: 'src/transport/pubsub-faults.broker.test.ts',
      test: 'what a killed consumer held goes to another after 15000 ms unless told otherwise (exactly once: false)',
    },
  },
]
