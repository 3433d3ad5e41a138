/**
 * Gives every property test the same seed, so that a run proves the same cases on every machine.
 *
 * A search for new counterexamples sets WAYBILL_SEED; a failure prints the seed that repeats it.
 */
import { configureGlobal } from 'fast-check'

configureGlobal({ seed: Number(process.env['WAYBILL_SEED'] ?? 20_250_101) })
