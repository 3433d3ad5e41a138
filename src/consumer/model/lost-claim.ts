/**
 * How a batch ends whose items are no longer ours: without a trace, and without blame.
 */
import { WaybillError } from '../../core/errors.ts'

/** What was in hand is no longer ours, or not in turn: nothing was written, and nobody is to blame. It comes again. */
export class Fenced extends WaybillError {
  constructor(message: string) {
    super('ABORTED', message)
  }
}
