/** The fault that every call knows: being refused, as by a service that is down. */
import type { Faults } from '../faults.ts'
import { RpcError } from '../rpc-error.ts'

/** Refuses the call when that fault is on and strikes. */
export function refuse(faults: Faults): void {
  if (faults.strikes('refuse')) throw new RpcError('UNAVAILABLE', 'Fault: the server refuses this call.')
}
