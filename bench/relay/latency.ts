/**
 * How long an event waits while nothing else happens: from its commit until the broker has it.
 */
import type { Bench } from '../harness.ts'
import { defineBench } from '../harness.ts'
export const latencyBench: Bench = defineBench<null>({
  name: 'latency',
  summary: '',
  unit: 'ms',
  setup: () => null,
  contenders: { a: () => 1 },
  bars: [],
})
